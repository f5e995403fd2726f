"""The loop of `fit`: settle, then rounds of learning, advancing and judging."""

from __future__ import annotations

import dataclasses
import time

import numpy as np

from tfp_lhnn.evaluation.gradient_ledger import GradientLedger
from tfp_lhnn.evaluation.target import BLOCK
from tfp_lhnn.learning.advance import advance
from tfp_lhnn.learning.fit_config import FitConfig
from tfp_lhnn.learning.fit_result import Fit, Round, fit_message
from tfp_lhnn.learning.fit_state import FitState, Judged
from tfp_lhnn.learning.pilot import NUM_LEAPFROG_STEPS, Pilot
from tfp_lhnn.learning.quality import assess
from tfp_lhnn.learning.surrogate import (
    Surrogate,
    new_seed,
    temperature,
    train_surrogate,
)
from tfp_lhnn.learning.tail_search import Compared, search_tails
from tfp_lhnn.model.model import Model
from tfp_lhnn.network.gaussian_base import near_points
from tfp_lhnn.network.latent_hnn import LARGEST_DENSE_DIM
from tfp_lhnn.support.progress import ProgressReporter

__all__ = [
    "advance_chains",
    "judge",
    "learn",
    "least_budget",
    "round_size",
    "run_fit",
    "search",
    "settle",
]

# Rounds whose chains tell how far out mass is: one may see nothing of a heavy tail.
_NUM_VISITED = 2

# Share of a round that goes into points of a tempered chain, where the bulk is known.
_HOT_SHARE = 0.25

# Transitions after which a NUTS chain on a Gaussian remembers neither where it was nor
# how far out.
_GAUSSIAN_TRANSITIONS = 4

# If the Gaussian base was so good in the first round, it is tried once more, fitted to
# better points.
_PROMISING_BASE_ACCEPTANCE = 0.9


def least_budget(dim: int, config: FitConfig) -> int:
    """The smallest gradient budget with which `fit` can do anything, by dimension."""
    # Two trajectories, and the proposals of a small round.
    settling = config.num_chains * (1 + 2 * NUM_LEAPFROG_STEPS)
    return max(settling, 2 * (dim + 1)) + config.smallest_round * config.num_chains


def run_fit(
    model: Model,
    ledger: GradientLedger,
    generator: np.random.Generator,
    hidden_units: tuple[int, ...],
    reporter: ProgressReporter,
    config: FitConfig,
) -> Fit:
    """One run of `fit`, from the starts to the result."""
    began = time.perf_counter()
    state = settle(model, ledger, generator, hidden_units, reporter, config)
    is_confirmed = False
    while not is_confirmed and (number := round_size(state, config)):
        round_began = time.perf_counter()
        state = learn(state, config)
        state = advance_chains(state, number, config)
        state = search(state, number, config)
        state, is_confirmed = judge(state, config, round_began)
    return _finish(state, config, is_confirmed, began)


def settle(
    model: Model,
    ledger: GradientLedger,
    generator: np.random.Generator,
    hidden_units: tuple[int, ...],
    reporter: ProgressReporter,
    config: FitConfig,
) -> FitState:
    """Short true trajectories come down from dispersed starts."""
    began = time.perf_counter()
    budget, dim = ledger.budget, model.dim
    starts = model.starts(config.num_chains, new_seed(generator))
    ledger.count_densities(starts.num_evaluations)
    pilot = Pilot(
        ledger,
        starts.position,
        generator,
        dense=dim <= LARGEST_DENSE_DIM,
        temperature=temperature(dim),
    )
    wanted = min(
        int(config.settle_share * budget),
        max(config.settle_points_per_dim * dim, config.settle_points),
    )
    # Chains on their way down may use more: nothing can be learned up there.
    round_gradients = config.smallest_round * config.num_chains
    most = max(int(0.7 * budget), least_budget(dim, config) - round_gradients)
    with reporter.phase("pilot", total=wanted, unit="gradients") as phase:
        while pilot.num_gradients + pilot.cost <= most and (
            pilot.num_gradients + pilot.cost <= wanted
            or np.mean(pilot.is_far) > config.stragglers
            or pilot.num_gradients < 2 * pilot.cost
        ):
            acceptance = float(np.mean(pilot.run()))
            phase.update(
                min(pilot.num_gradients, wanted),
                acceptance=acceptance,
                gradients=pilot.num_gradients,
            )
    first = Round(
        "pilot",
        pilot.num_gradients,
        int(np.sum(np.isfinite(ledger.log_prob))),
        np.nan,
        np.nan,
        np.nan,
        pilot.step_size,
        None,
        time.perf_counter() - began,
    )
    chains = pilot.settled_chains()
    return FitState(
        ledger,
        generator,
        reporter,
        hidden_units,
        pilot,
        chains=chains,
        explorers=chains,
        rounds=(first,),
    )


def round_size(state: FitState, config: FitConfig) -> int:
    """Gradients of the next round; 0 if the fit is to end."""
    ledger = state.ledger
    left = ledger.left
    acceptances = [one.acceptance for one in state.rounds[1:]]
    if acceptances and acceptances[-1] < config.low_acceptance:
        is_better = acceptances[-1] > max([*acceptances[:-1], 0.0]) + config.small_gain
        if not is_better:
            # A network that has learned little from most of the budget will not do so
            # from the rest, which sampling can make better use of.
            left -= int(config.reserve * ledger.budget)
    smallest = config.smallest_round * config.num_chains
    if left < smallest:
        return 0
    share = config.round_share
    if state.last is not None and state.last.quality.is_good(config):
        # There is little left to learn; what is found now is to be confirmed.
        share *= 0.5
    wanted = int(share * ledger.num_gradients)
    wanted = min(max(smallest, wanted), config.largest_round)
    # The last network has learned from all rounds, and a small one remains to judge it.
    last = smallest + (_least_search(state) if _knows_bulk(state, config) else 0)
    return min(wanted, left - last) if left >= smallest + last else left


def _least_search(state: FitState) -> int:
    """Gradients with which something can be said of tails."""
    return BLOCK + state.pilot.cost


def learn(state: FitState, config: FitConfig) -> FitState:
    """Trains a network on all typical points, or, tried first, its base alone."""
    highest = np.quantile(-state.chains.log_prob, config.typical_share)
    data = state.ledger.data(float(highest) + config.typical_margin)
    surrogate = train_surrogate(
        data,
        state.hidden_units,
        state.generator,
        state.reporter,
        f"training, round {len(state.rounds)}",
        config,
        try_base=_base_may_do(state),
    )
    return dataclasses.replace(state, surrogate=surrogate)


def _base_may_do(state: FitState) -> bool:
    """Whether no round was with the base alone so far, or only the first, nearly."""
    last = state.rounds[-1]
    return last.history is None or (
        len(state.rounds) == 2
        and last.history.selected == "base"
        and last.acceptance >= _PROMISING_BASE_ACCEPTANCE
    )


def advance_chains(state: FitState, number: int, config: FitConfig) -> FitState:
    """Exact transitions of the target's chains, `number` gradients of them.

    Where the bulk is known, part of these are left for the search along tails.
    """
    surrogate = _surrogate(state)
    if _knows_bulk(state, config):
        number -= max(int(_HOT_SHARE * number), _least_search(state))
    name = f"refinement, round {len(state.rounds)}"
    with state.reporter.phase(name, unit="gradients") as phase:
        before = state.ledger.num_gradients
        chains, advanced = advance(
            surrogate,
            state.chains,
            state.pilot,
            state.ledger,
            max(number, config.smallest_round * config.num_chains),
            state.num_transitions,
            config,
            state.generator,
        )
        spent = state.ledger.num_gradients
        phase.update(spent - before, acceptance=advanced.acceptance, gradients=spent)
    return dataclasses.replace(state, chains=chains, advanced=advanced, search=None)


def _knows_bulk(state: FitState, config: FitConfig) -> bool:
    last = state.last
    return last is not None and last.quality.acceptance >= config.known_acceptance


def _surrogate(state: FitState) -> Surrogate:
    if state.surrogate is None:
        raise ValueError("`state` has no network; call `learn` first.")
    return state.surrogate


def search(state: FitState, number: int, config: FitConfig) -> FitState:
    """Looks beyond the chains, if the network is good where they are."""
    surrogate, advanced, ledger = _surrogate(state), state.advanced, state.ledger
    if advanced is None or advanced.acceptance < config.known_acceptance:
        return state
    hot = surrogate.chain(
        state.chains.position, state.generator, temperature(surrogate.network.dim)
    )
    draws = hot.position.reshape(-1, surrogate.network.dim)
    # One trajectory at least is to follow.
    affordable = (ledger.left - state.pilot.cost) // BLOCK
    blocks = min(max(int(_HOT_SHARE * number) // BLOCK, 1), affordable)
    if blocks < 1:
        return state
    chosen = state.generator.choice(len(draws), blocks * BLOCK, replace=False)
    fresh = Compared.with_network(
        surrogate.network, ledger.evaluate(surrogate.base.unwhiten(draws[chosen]))
    )
    found = search_tails(
        surrogate.network,
        Compared.with_network(surrogate.network, advanced.states),
        fresh,
        state.visited,
        state.explorers,
        state.pilot,
        ledger,
        number // 2,
        state.generator,
    )
    return dataclasses.replace(state, search=found, explorers=found.explorers)


def judge(state: FitState, config: FitConfig, began: float) -> tuple[FitState, bool]:
    """What the round says of its network; and whether the fit is confirmed."""
    surrogate, advanced, found = _surrogate(state), state.advanced, state.search
    if advanced is None:
        raise ValueError("`state` has no transitions; call `advance_chains` first.")
    residual = advanced.fresh_residual(surrogate.network)
    nothing = np.zeros(0)
    quality = assess(
        advanced.acceptance,
        residual,
        -advanced.state_log_prob.astype(np.float64),
        nothing if found is None else found.elsewhere.residual,
        nothing if found is None else -found.elsewhere.log_prob.astype(np.float64),
        is_open=found is None or found.is_open,
    )
    run, num_transitions = None, 1
    if quality.acceptance >= config.known_acceptance:
        run = surrogate.chain(state.chains.position, state.generator)
        num_transitions = (
            _GAUSSIAN_TRANSITIONS
            if surrogate.is_gaussian
            else int(np.clip(np.ceil(run.correlation_time), 1, config.most_transitions))
        )
    judged = Judged(
        surrogate,
        state.num_transitions,
        quality,
        residual,
        -advanced.log_prob[advanced.is_accepted].astype(np.float64),
        run,
    )
    last, best, good_rounds = state.last, state.best, 0
    if best is None or judged.does_as_well_as(best, advanced, found):
        best = judged
    is_good = quality.is_good(config)
    is_confirmed = (
        is_good
        and surrogate.is_gaussian
        # A quadratic that fits everywhere has no tails left to be found.
        and quality.energy_error <= config.sufficient_base_error
    )
    may_do = is_good or quality.is_even(config)
    if may_do and last is not None and judged.agrees_with(last):
        good_rounds = state.good_rounds + 1 if is_good else 0
        is_confirmed |= good_rounds >= config.good_rounds
        is_confirmed |= judged.is_settled_since(last, config)
    if is_confirmed:
        best = judged
    this = Round(
        "refinement",
        state.ledger.num_gradients,
        len(surrogate.data),
        quality.energy_error,
        quality.acceptance,
        quality.tail_acceptance,
        surrogate.largest_step if run is None else run.step_size,
        surrogate.history,
        time.perf_counter() - began,
    )
    state = dataclasses.replace(
        state,
        rounds=(*state.rounds, this),
        num_transitions=num_transitions,
        visited=(*state.visited, advanced.state)[-_NUM_VISITED:],
        last=judged,
        best=best,
        good_rounds=good_rounds,
    )
    return state, bool(is_confirmed)


def _finish(
    state: FitState, config: FitConfig, is_confirmed: bool, began: float
) -> Fit:
    best = state.best
    if best is None:
        raise ValueError("`gradient_budget` was spent before any network was judged.")
    surrogate, quality, ledger = best.surrogate, best.quality, state.ledger
    data = ledger.data()
    states = state.chains.position
    with state.reporter.phase("tuning", unit="draws"):
        tuned = surrogate.chain(states, state.generator)
    correlation_time = tuned.correlation_time
    near = near_points(-data.log_prob, data.dim)
    distance = np.linalg.norm(surrogate.base.whiten(data.position[near]), axis=-1)
    return Fit(
        network=surrogate.network,
        step_size=tuned.step_size,
        leapfrogs_per_draw=tuned.leapfrogs_per_draw,
        num_surrogate_transitions=best.num_transitions
        if not surrogate.is_gaussian
        else _GAUSSIAN_TRANSITIONS,
        states=states,
        data=data,
        rounds=state.rounds,
        num_gradients=ledger.num_gradients,
        num_evaluations=ledger.num_evaluations,
        gradient_budget=ledger.budget,
        energy_error=quality.energy_error,
        acceptance=quality.acceptance,
        held_out=(best.potential, best.residual),
        radius=float(np.max(distance)),
        nuts_gradients_per_effective_sample=correlation_time
        * (tuned.leapfrogs_per_draw + 1.0),
        is_confirmed=is_confirmed,
        message=fit_message(
            quality.acceptance,
            quality.energy_error,
            ledger.num_gradients,
            ledger.budget,
            config.good_rounds,
            is_confirmed=is_confirmed,
        ),
        seconds=time.perf_counter() - began,
    )
