"""One run of `fit`: pilot, then rounds of training, checking and learning."""

from __future__ import annotations

import collections
import time

import numpy as np

from tfp_lhnn.evaluation.gradient_ledger import GradientLedger
from tfp_lhnn.evaluation.target import BLOCK
from tfp_lhnn.learning.fit_check import Check, check
from tfp_lhnn.learning.fit_result import POOR_ACCEPTANCE, Fit, Round, fit_message
from tfp_lhnn.learning.pilot import NUM_LEAPFROG_STEPS, ChainStates, Pilot
from tfp_lhnn.learning.refinement import choose_points
from tfp_lhnn.learning.round_comparison import Checked
from tfp_lhnn.learning.surrogate import (
    NUM_CHAINS,
    Surrogate,
    new_seed,
    temperature,
    train_surrogate,
)
from tfp_lhnn.learning.surrogate_chain import SurrogateRun
from tfp_lhnn.learning.tail_search import Mass
from tfp_lhnn.model.model import Model
from tfp_lhnn.network.gaussian_base import near_points
from tfp_lhnn.network.latent_hnn import LARGEST_DENSE_DIM
from tfp_lhnn.support.progress import ProgressReporter

__all__ = ["FitRun", "least_budget"]

_NUM_PILOT_CHAINS = 16

# Share of the budget that the pilot may take, and the points it aims for: enough for a
# dense regression of gradients on positions and a first network.
_PILOT_SHARE = 0.35
_PILOT_POINTS_PER_DIM = 15
_PILOT_POINTS = 1536

# A round of refinement adds this share to the points there are, so that the number of
# trainings grows with the logarithm of the budget.
_ROUND_SHARE = 0.3
# Of that, to check and to learn, each. While there is more of a tail to be found rounds
# shall be small and many: none gets far ahead of its network.
_SHARE, _SHARE_IF_OPEN = 0.5, 0.25

_FEWEST_BLOCKS = 6
_MOST_TRANSITIONS = 10
# After which a NUTS chain on a Gaussian remembers neither where it was nor how far out.
_GAUSSIAN_TRANSITIONS = 4

# If the Gaussian base was so good at a check, it is checked once more, fitted to better
# points; if it then is so good, no network is trained at all.
_PROMISING_BASE_ACCEPTANCE = 0.9
_SUFFICIENT_BASE_ERROR = 0.1

# Rounds in a row that must be good, and agree with the one before on what the
# posterior is: one may not have met what the next one meets.
_GOOD_ROUNDS = 2

# Rounds that tell the next how far out mass is: one may see nothing of a heavy tail.
_NUM_MASSES = 2

# Points for a part of a round at most: less than the draws there are to choose from.
_LARGEST_PART = 2048

# Share of the budget left to sampling, for true transitions, if the fit is poor.
_RESERVE = 0.3


def least_budget(dim: int) -> int:
    """The smallest gradient budget with which `fit` can do anything, by dimension."""
    # Two trajectories of the pilot, and points for one check of the network.
    pilot = _NUM_PILOT_CHAINS * (1 + 2 * NUM_LEAPFROG_STEPS)
    return max(pilot, 2 * (dim + 1)) + 2 * BLOCK


class FitRun:
    """One run of `fit`, from the starts to the result."""

    def __init__(
        self,
        model: Model,
        ledger: GradientLedger,
        generator: np.random.Generator,
        hidden_units: tuple[int, ...],
        reporter: ProgressReporter,
    ) -> None:
        self._began = time.perf_counter()
        self._model = model
        self._ledger = ledger
        self._budget = ledger.budget
        self._generator = generator
        self._hidden_units = hidden_units
        self._reporter = reporter
        self._rounds: list[Round] = []
        self._masses: collections.deque[Mass] = collections.deque(maxlen=_NUM_MASSES)

    def result(self) -> Fit:
        """Runs everything."""
        pilot = self._run_pilot()
        at_rest = pilot.chains.position[~pilot.is_hot]
        checked, is_confirmed = self._refine(pilot)
        if not (is_confirmed and checked.surrogate.is_gaussian):
            checked = self._learn_from_the_last_check(checked)
        return self._finish(at_rest, checked, is_confirmed)

    def _run_pilot(self) -> Pilot:
        began = time.perf_counter()
        budget, dim = self._budget, self._model.dim
        starts = self._model.starts(_NUM_PILOT_CHAINS, new_seed(self._generator))
        self._ledger.count_densities(starts.num_evaluations)
        pilot = Pilot(
            self._ledger,
            starts.position,
            self._generator,
            dense=dim <= LARGEST_DENSE_DIM,
            temperature=temperature(dim),
        )
        wanted = min(
            int(_PILOT_SHARE * budget), max(_PILOT_POINTS_PER_DIM * dim, _PILOT_POINTS)
        )
        # Chains on their way down may use more: nothing can be learned up there.
        most = max(int(0.7 * budget), least_budget(dim) - 2 * BLOCK)
        with self._reporter.phase("pilot", total=wanted, unit="gradients") as phase:
            while pilot.num_gradients + pilot.cost <= most and (
                pilot.num_gradients + pilot.cost <= wanted
                or not pilot.is_settled
                or pilot.num_gradients < 2 * pilot.cost
            ):
                acceptance = float(np.mean(pilot.run()))
                phase.update(
                    min(pilot.num_gradients, wanted),
                    acceptance=acceptance,
                    gradients=pilot.num_gradients,
                )
        self._rounds.append(
            Round(
                "pilot",
                pilot.num_gradients,
                int(np.sum(np.isfinite(pilot.points.log_prob))),
                np.nan,
                np.nan,
                np.nan,
                pilot.step_size,
                None,
                time.perf_counter() - began,
            )
        )
        return pilot

    def _refine(self, pilot: Pilot) -> tuple[Checked, bool]:
        """The best network, and whether enough checks in a row found it good."""
        best: Checked | None = None
        last: Checked | None = None
        number = good_rounds = 0
        share = _SHARE
        chains = pilot.chains
        while True:
            began = time.perf_counter()
            number += 1
            number_to_check = self._part_of_round(share)
            if not number_to_check and best is not None:
                # Nothing left to check another one with; this one is known to be as
                # good as it says.
                return best, False
            surrogate = self._train(number, try_base=self._base_may_do())
            if not number_to_check:
                return Checked.not_at_all(surrogate), False
            run, hot, result, chains = self._check(
                surrogate, pilot, chains, number_to_check, number
            )
            checked = Checked(surrogate, result)
            quality = result.quality
            self._rounds.append(
                Round(
                    "refinement",
                    self._ledger.num_gradients,
                    len(surrogate.data),
                    quality.energy_error,
                    quality.acceptance,
                    quality.tail_acceptance,
                    run.step_size,
                    surrogate.history,
                    time.perf_counter() - began,
                )
            )
            if best is None or checked.does_as_well_as(best):
                best = checked
            if (
                quality.is_good
                and surrogate.is_gaussian
                and quality.energy_error <= _SUFFICIENT_BASE_ERROR
            ):
                # A quadratic that fits everywhere has no tails left to be found.
                return checked, True
            may_do = quality.is_good or quality.is_even
            if may_do and last is not None and checked.agrees_with(last, run):
                good_rounds = good_rounds + 1 if quality.is_good else 0
                if good_rounds == _GOOD_ROUNDS or checked.is_settled_since(last):
                    return checked, True
            else:
                good_rounds = 0
            last = checked
            share = _SHARE_IF_OPEN if quality.is_open else _SHARE
            self._learn_where_it_is_wrong(checked, run, hot, share)

    def _check(
        self,
        surrogate: Surrogate,
        pilot: Pilot,
        chains: ChainStates,
        number_to_check: int,
        number: int,
    ) -> tuple[SurrogateRun, SurrogateRun, Check, ChainStates]:
        """The network's chain, its tempered chain, and what the target says of them.

        `chains` is where the last check's trajectories came to; last comes where this
        one's did.
        """
        before = self._ledger.num_gradients
        name = f"refinement, round {number}"
        with self._reporter.phase(name, unit="gradients") as phase:
            # From the frontier of the last check: its chains shall pass there.
            starts = chains.position[~pilot.is_hot]
            run, hot = surrogate.explore(starts, self._generator)
            result, chains = check(
                surrogate.network,
                run,
                hot,
                chains,
                pilot,
                self._ledger,
                number_to_check,
                self._part_of_round(_SHARE),
                self._generator,
                self._masses,
            )
            self._masses.append(result.mass)
            spent = self._ledger.num_gradients
            acceptance = result.quality.acceptance
            phase.update(spent - before, acceptance=acceptance, gradients=spent)
        return run, hot, result, chains

    def _learn_from_the_last_check(self, checked: Checked) -> Checked:
        """Trains once more, on what was bought since too.

        These points may be the only ones in some corner. Nothing is left to check the
        new network with, so it keeps the old one's quality, and it is taken only if it
        does better where the old one was checked.
        """
        if not np.any(np.isfinite(checked.check.residual)):
            return checked
        return checked.or_better(self._train(len(self._rounds), try_base=False))

    def _part_of_round(self, share: float) -> int:
        """Points for a part of a round, whole blocks; 0 at the end of the budget."""
        wanted = int(share * _ROUND_SHARE * self._ledger.num_gradients)
        wanted = min(wanted, _LARGEST_PART)
        left = self._ledger.left
        qualities = [r.acceptance for r in self._rounds if r.kind == "refinement"]
        if qualities and max(qualities) < POOR_ACCEPTANCE:
            # A network that has learned nothing from most of the budget will not do so
            # from the rest, which sampling can make better use of.
            left -= int(_RESERVE * self._budget)
        return BLOCK * max(0, min(max(_FEWEST_BLOCKS, wanted // BLOCK), left // BLOCK))

    def _base_may_do(self) -> bool:
        """Whether no check was against the base alone so far, or only just."""
        last = self._rounds[-1]
        return last.history is None or (
            len(self._rounds) == 2
            and last.history.selected == "base"
            and last.acceptance >= _PROMISING_BASE_ACCEPTANCE
        )

    def _train(self, number: int, *, try_base: bool) -> Surrogate:
        """A network of all points so far, or, tried first, its base alone."""
        return train_surrogate(
            self._ledger.data(),
            self._hidden_units,
            self._generator,
            self._reporter,
            f"training, round {number}",
            try_base=try_base,
        )

    def _learn_where_it_is_wrong(
        self, checked: Checked, run: SurrogateRun, hot: SurrogateRun, share: float
    ) -> None:
        number = self._part_of_round(share)
        base, result = checked.surrogate.base, checked.check
        finite = np.isfinite(result.residual)
        if not number or not np.any(finite):
            return
        candidates = np.concatenate([run.position, hot.position])
        candidates = candidates.reshape(-1, self._model.dim)
        residual = result.residual[finite]
        chosen = choose_points(
            candidates,
            base.whiten(result.position[finite]),
            residual - np.median(residual),
            number,
            self._generator,
        )
        self._ledger.evaluate(base.unwhiten(candidates[chosen]))

    def _finish(self, at_rest: np.ndarray, checked: Checked, is_confirmed: bool) -> Fit:
        surrogate, result = checked
        data = self._ledger.data()
        network, base = surrogate.network, surrogate.base
        quality = result.quality
        is_good = quality.acceptance >= POOR_ACCEPTANCE
        states = checked.states(self._generator) if is_good else at_rest
        rows = np.arange(NUM_CHAINS) % len(states)
        with self._reporter.phase("tuning", unit="draws"):
            tuned = surrogate.chain(states[rows], self._generator)
        correlation_time = tuned.correlation_time
        near = near_points(-data.log_prob, data.dim)
        return Fit(
            network=network,
            step_size=tuned.step_size,
            leapfrogs_per_draw=tuned.leapfrogs_per_draw,
            num_surrogate_transitions=_GAUSSIAN_TRANSITIONS
            if surrogate.is_gaussian
            else int(np.clip(np.ceil(correlation_time), 1, _MOST_TRANSITIONS)),
            states=states,
            data=data,
            rounds=tuple(self._rounds),
            num_gradients=self._ledger.num_gradients,
            num_evaluations=self._ledger.num_evaluations,
            gradient_budget=self._budget,
            energy_error=quality.energy_error,
            acceptance=quality.acceptance,
            held_out=(result.potential, result.residual),
            radius=float(
                np.max(np.linalg.norm(base.whiten(data.position[near]), axis=-1))
            ),
            nuts_gradients_per_effective_sample=correlation_time
            * (tuned.leapfrogs_per_draw + 1.0),
            is_confirmed=is_confirmed,
            message=fit_message(
                quality.acceptance,
                quality.energy_error,
                self._ledger.num_gradients,
                self._budget,
                _GOOD_ROUNDS,
                is_confirmed=is_confirmed,
            ),
            seconds=time.perf_counter() - self._began,
        )
