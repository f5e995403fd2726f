"""One run of `fit`: pilot, then rounds of training, checking and learning."""

from __future__ import annotations

import time
from typing import NamedTuple

import arviz as az
import numpy as np

from tfp_lhnn._compiled_target import BLOCK, CompiledTarget
from tfp_lhnn._pilot import NUM_LEAPFROG_STEPS, Pilot
from tfp_lhnn._refinement import (
    Quality,
    assess,
    choose_points,
    frontier,
    target_shares,
)
from tfp_lhnn._surrogate_chain import SurrogateRun, run_surrogate_chain
from tfp_lhnn.fit_result import POOR_ACCEPTANCE, Fit, Round
from tfp_lhnn.gaussian_base import GaussianBase, near_points
from tfp_lhnn.model import Model
from tfp_lhnn.network import LARGEST_DENSE_DIM, LatentHNN
from tfp_lhnn.progress import ProgressReporter
from tfp_lhnn.training import TrainingHistory, train
from tfp_lhnn.training_data import TrainingData

__all__ = ["FitRun", "least_budget"]

_NUM_PILOT_CHAINS = 16
_NUM_SURROGATE_CHAINS = 32

# Share of the budget that the pilot may take, and the points it aims for: enough for a
# dense regression of gradients on positions and a first network.
_PILOT_SHARE = 0.35
_PILOT_POINTS_PER_DIM = 15
_PILOT_POINTS = 1536

# A round of refinement adds this share to the points there are, so that the number of
# trainings grows with the logarithm of the budget.
_ROUND_SHARE = 0.3

_FEWEST_BLOCKS = 6
_MOST_TRANSITIONS = 10

# Rounds in a row that must be good, and agree with the one before on what the
# posterior is: one may not have met what the next one meets.
_GOOD_ROUNDS = 2

# Networks of two rounds agree if their potentials differ by more than so many nats at
# no more than so small a share of the draws. Half a percent of a tail that is missed
# can make up a tenth of a standard deviation.
_LARGE_CHANGE = 1.0
_FEW = 0.005

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
        target: CompiledTarget,
        budget: int,
        generator: np.random.Generator,
        hidden_units: tuple[int, ...],
        reporter: ProgressReporter,
    ) -> None:
        self._began = time.perf_counter()
        self._model = model
        self._target = target
        self._budget = budget
        self._generator = generator
        self._hidden_units = hidden_units
        self._reporter = reporter
        self._rounds: list[Round] = []
        self._evaluations_before = model.num_evaluations
        self._num_gradients = 0
        self._points: list[tuple[np.ndarray, ...]] = []

    def result(self) -> Fit:
        """Runs everything."""
        pilot = self._run_pilot()
        surrogate, is_confirmed = self._refine(pilot)
        surrogate = self._learn_from_the_last_check(surrogate)
        return self._finish(pilot, surrogate, is_confirmed)

    def _seed(self) -> np.ndarray:
        return self._generator.integers(2**31, size=2)

    def _run_pilot(self) -> Pilot:
        began = time.perf_counter()
        budget, dim = self._budget, self._model.dim
        starts = self._model.starts(_NUM_PILOT_CHAINS, self._seed())
        pilot = Pilot(
            self._target.trajectories,
            self._target.evaluate,
            starts.position,
            self._generator,
            dense=dim <= LARGEST_DENSE_DIM,
            temperature=_temperature(dim),
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
                acceptance = pilot.run()
                phase.update(
                    min(pilot.num_gradients, wanted),
                    acceptance=acceptance,
                    gradients=pilot.num_gradients,
                )
        points = pilot.points
        self._num_gradients = pilot.num_gradients
        self._points.append(points)
        self._rounds.append(
            Round(
                "pilot",
                self._num_gradients,
                int(np.sum(np.isfinite(points.log_prob))),
                np.nan,
                np.nan,
                np.nan,
                pilot.step_size,
                None,
                time.perf_counter() - began,
            )
        )
        return pilot

    def _refine(self, pilot: Pilot) -> tuple[_Surrogate, bool]:
        """The best network, and whether enough checks in a row found it good."""
        best: _Surrogate | None = None
        previous: LatentHNN | None = None
        number = good_rounds = 0
        while True:
            began = time.perf_counter()
            number += 1
            number_to_check = self._part_of_round(0.5)
            if not number_to_check and best is not None:
                # Nothing left to check another one with; this one is known to be as
                # good as it says.
                return best, False
            # From the frontier of the last check: its chains shall pass there.
            surrogate = self._train(pilot.position[~pilot.is_hot], number)
            if not number_to_check:
                return surrogate, False
            surrogate = self._check(surrogate, pilot, number_to_check)
            self._rounds.append(
                Round(
                    "refinement",
                    self._num_gradients,
                    len(surrogate.data),
                    surrogate.quality.energy_error,
                    surrogate.quality.acceptance,
                    surrogate.quality.tail_acceptance,
                    surrogate.run.step_size,
                    surrogate.history,
                    time.perf_counter() - began,
                )
            )
            # The last few are trained on more points: the better of equals.
            if best is None or surrogate.quality.merit >= 0.98 * best.quality.merit:
                best = surrogate
            is_good = surrogate.quality.is_good
            if is_good and surrogate.history.selected == "base":
                # A quadratic that fits everywhere has no tails left to be found.
                return surrogate, True
            agrees = is_good and self._agree(surrogate, previous)
            good_rounds = good_rounds + 1 if agrees else 0
            if good_rounds == _GOOD_ROUNDS:
                return surrogate, True
            previous = surrogate.network
            self._learn_where_it_is_wrong(surrogate)

    def _agree(self, surrogate: _Surrogate, previous: LatentHNN | None) -> bool:
        """Whether the round before would have said the same of these draws.

        As long as every round finds more of a tail, it would not.
        """
        if previous is None:
            return False
        draws = surrogate.run.position.reshape(-1, self._model.dim)
        position = surrogate.base.unwhiten(draws).astype(np.float32)
        change = previous.potential(position) - surrogate.network.potential(position)
        size = np.abs(change - np.median(change))
        return bool(np.mean(size > _LARGE_CHANGE) <= _FEW)

    def _learn_from_the_last_check(self, surrogate: _Surrogate) -> _Surrogate:
        """Trains once more, on what was bought since too.

        These points may be the only ones in some corner. Nothing is left to check the
        new network with, so it keeps the old one's quality, and it is taken only if it
        does better where the old one was checked.
        """
        if not np.any(np.isfinite(surrogate.residual)):
            return surrogate
        position = surrogate.base.unwhiten(surrogate.checked)
        new = self._train(self._states(surrogate), len(self._rounds))
        residual = surrogate.potential - new.network.potential(position).numpy()
        if not _typical_error(residual) <= _typical_error(surrogate.residual):
            return surrogate
        return new._replace(
            quality=surrogate.quality,
            checked=new.base.whiten(position),
            num_own=surrogate.num_own,
            residual=residual,
            potential=surrogate.potential,
        )

    def _part_of_round(self, share: float) -> int:
        """Points for a part of a round, whole blocks; 0 at the end of the budget."""
        wanted = int(share * _ROUND_SHARE * self._num_gradients)
        left = self._budget - self._num_gradients
        checked = [r.acceptance for r in self._rounds if r.kind == "refinement"]
        if checked and max(checked) < POOR_ACCEPTANCE:
            # A network that has learned nothing from most of the budget will not do so
            # from the rest, which sampling can make better use of.
            left -= int(_RESERVE * self._budget)
        return BLOCK * max(0, min(max(_FEWEST_BLOCKS, wanted // BLOCK), left // BLOCK))

    def _train(self, starts: np.ndarray, number: int) -> _Surrogate:
        """A network of all points so far, and its chains from some of `starts`."""
        data = self._data()
        network = LatentHNN(data.dim, self._hidden_units, seed=1)
        with self._reporter.phase(f"training, round {number}", unit="points") as phase:
            history = train(network, data, seed=self._seed(), num_steps=3000)
            phase.update(len(data), gradients=self._num_gradients)
        base = network.gaussian_base
        chosen = self._generator.integers(len(starts), size=_NUM_SURROGATE_CHAINS)
        run = run_surrogate_chain(network, base.whiten(starts[chosen]), self._seed())
        hot = run_surrogate_chain(
            network,
            run.position[-1],
            self._seed(),
            temperature=_temperature(data.dim),
        )
        nothing = np.zeros(0)
        return _Surrogate(
            network,
            base,
            history,
            data,
            run,
            hot,
            Quality(np.nan, np.nan, np.nan),
            nothing,
            0,
            nothing,
            nothing,
        )

    def _data(self) -> TrainingData:
        position, log_prob, gradient, chain = (
            np.concatenate(x) for x in zip(*self._points, strict=True)
        )
        dtype = self._model.dtype.as_numpy_dtype
        return TrainingData.from_gradients(
            position.astype(dtype),
            gradient.astype(dtype),
            log_prob.astype(dtype),
            seed=0,
            trajectory=chain,
        )

    def _check(self, surrogate: _Surrogate, pilot: Pilot, number: int) -> _Surrogate:
        """Measures the fit where the surrogate goes, and where it does not.

        At random points of its own chain and of its tempered chain; and along true
        trajectories, some from the frontier of these points, others, hot, that go on
        where the pilot was and owe nothing to the network.
        """
        num_hot = number // 3 // BLOCK * BLOCK
        num_cold = number - num_hot
        z = np.concatenate(
            [
                self._choice(surrogate.run, num_cold),
                self._choice(surrogate.hot, num_hot),
            ]
        )
        position, log_prob, gradient = self._evaluate(surrogate.base, z)
        if self._num_gradients + pilot.cost <= self._budget:
            energy = surrogate.network.potential(position[:num_cold]).numpy()
            chosen = frontier(z, -log_prob, -log_prob[:num_cold] - energy)
            pilot.send(position[chosen], log_prob[chosen], gradient[chosen])
            pilot.run()
            leaves = pilot.last_points
            self._num_gradients += len(leaves.log_prob)
            self._points.append(leaves)
            position = np.concatenate([position, leaves.position])
            log_prob = np.concatenate([log_prob, leaves.log_prob])
        energy = surrogate.network.potential(position).numpy().astype(np.float64)
        potential = -log_prob.astype(np.float64)
        residual = potential - energy
        return surrogate._replace(
            quality=assess(
                residual[:num_cold],
                potential[:num_cold],
                residual[num_cold:],
                potential[num_cold:],
            ),
            checked=surrogate.base.whiten(position),
            num_own=num_cold,
            residual=residual,
            potential=potential,
        )

    def _choice(self, run: SurrogateRun, number: int) -> np.ndarray:
        draws = run.position.reshape(-1, self._model.dim)
        return draws[self._generator.choice(len(draws), number, replace=False)]

    def _learn_where_it_is_wrong(self, surrogate: _Surrogate) -> None:
        number = self._part_of_round(0.5)
        finite = np.isfinite(surrogate.residual)
        if not number or not np.any(finite):
            return
        candidates = np.concatenate([surrogate.run.position, surrogate.hot.position])
        candidates = candidates.reshape(-1, self._model.dim)
        residual = surrogate.residual[finite]
        chosen = choose_points(
            candidates,
            surrogate.checked[finite],
            residual - np.median(residual),
            number,
            self._generator,
        )
        self._evaluate(surrogate.base, candidates[chosen])

    def _evaluate(
        self, base: GaussianBase, z: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """True gradients at whitened points, in blocks; all are remembered."""
        position = base.unwhiten(z).astype(self._model.dtype.as_numpy_dtype)
        blocks = [
            self._target.evaluate(block)
            for block in np.split(position, len(position) // BLOCK)
        ]
        log_prob, gradient = (np.concatenate(x) for x in zip(*blocks, strict=True))
        self._num_gradients += len(position)
        # Independent draws: each is a trajectory of its own.
        first = 1 + max(int(points[3].max()) for points in self._points)
        chain = first + np.arange(len(position))
        self._points.append((position, log_prob, gradient, chain))
        return position, log_prob, gradient

    def _states(self, surrogate: _Surrogate) -> np.ndarray:
        """About draws from the target, `[chains, dim]`.

        The surrogate's chain itself may sit in a well that only the network has.
        """
        residual = surrogate.residual[: surrogate.num_own]
        # Cut off at the typical weight: a few points must not make up all the states.
        share = target_shares(np.fmax(residual, np.nanmedian(residual)))
        chosen = self._generator.choice(len(share), _NUM_SURROGATE_CHAINS, p=share)
        return surrogate.base.unwhiten(surrogate.checked[chosen])

    def _finish(self, pilot: Pilot, surrogate: _Surrogate, is_confirmed: bool) -> Fit:
        data = self._data()
        network, base = surrogate.network, surrogate.base
        quality = surrogate.quality
        is_good = quality.acceptance >= POOR_ACCEPTANCE
        states = self._states(surrogate) if is_good else pilot.position[~pilot.is_hot]
        rows = np.arange(_NUM_SURROGATE_CHAINS) % len(states)
        with self._reporter.phase("tuning", unit="draws"):
            tuned = run_surrogate_chain(
                network, base.whiten(states[rows]), self._seed(), num_draws=256
            )
        correlation_time = _correlation_time(tuned.position)
        near = near_points(-data.log_prob, data.dim)
        return Fit(
            network=network,
            step_size=tuned.step_size,
            leapfrogs_per_draw=tuned.leapfrogs_per_draw,
            num_surrogate_transitions=int(
                np.clip(np.ceil(correlation_time), 1, _MOST_TRANSITIONS)
            ),
            states=states,
            data=data,
            rounds=tuple(self._rounds),
            num_gradients=self._num_gradients,
            num_evaluations=self._num_gradients
            + self._model.num_evaluations
            - self._evaluations_before,
            gradient_budget=self._budget,
            energy_error=quality.energy_error,
            acceptance=quality.acceptance,
            held_out=(surrogate.potential, surrogate.residual),
            radius=float(
                np.max(np.linalg.norm(base.whiten(data.position[near]), axis=-1))
            ),
            nuts_gradients_per_effective_sample=correlation_time
            * (tuned.leapfrogs_per_draw + 1.0),
            is_confirmed=is_confirmed,
            message=_message(quality, is_confirmed, self._budget, self._num_gradients),
            seconds=time.perf_counter() - self._began,
        )


class _Surrogate(NamedTuple):
    """A trained network, its chain, and how good it is.

    Attributes:
        network: the network.
        base: its base, in NumPy.
        history: of its training.
        data: what it was trained on.
        run: its chain.
        hot: its tempered chain.
        quality: at fresh points.
        checked: those points, whitened.
        num_own: the first so many of them are random draws of its chain.
        residual: `U − U_θ` there.
        potential: `U` there.
    """

    network: LatentHNN
    base: GaussianBase
    history: TrainingHistory
    data: TrainingData
    run: SurrogateRun
    hot: SurrogateRun
    quality: Quality
    checked: np.ndarray
    num_own: int
    residual: np.ndarray
    potential: np.ndarray


def _typical_error(residual: np.ndarray) -> float:
    """Mean absolute error about the median, errors above a nat counted as one."""
    centred = np.abs(residual - np.median(residual[np.isfinite(residual)]))
    return float(np.mean(np.fmin(centred, 1.0)))


def _temperature(dim: int) -> float:
    """How hot a chain may be that shall still meet what the target's tails are."""
    # The potential is about dim/2 · T then, and √(dim/2) wide.
    return 1.0 + min(2.0, 2.0 / np.sqrt(dim))


def _correlation_time(draws: np.ndarray) -> float:
    """Draws per effective one, of the slowest coordinate or its square."""
    chains = np.moveaxis(draws.astype(np.float64), 2, 0)
    values = np.concatenate([chains, (chains - chains.mean()) ** 2])
    ess = [float(az.ess(x.T)) for x in values]
    return draws.shape[0] * draws.shape[1] / max(np.nanmin(ess), 1.0)


def _message(quality: Quality, is_confirmed: bool, budget: int, spent: int) -> str:
    shares = (
        f"delayed acceptance accepts {quality.acceptance:.0%} of the network's "
        f"proposals, and its energy is off by {quality.energy_error:.2g} nats"
    )
    if quality.acceptance < POOR_ACCEPTANCE:
        return (
            f"The fit is poor: {shares}, after {spent} of {budget} gradients. Try a "
            "larger `gradient_budget`, wider `hidden_units`, a reparametrisation of "
            "the model (a non-centred one for funnels), or a better `initial_state`."
        )
    if is_confirmed:
        return "The fit is good."
    return (
        f"The fit is not confirmed: {shares}, but the budget of {budget} gradients "
        f"ended before {_GOOD_ROUNDS} checks in a row were good and agreed, so tails "
        "or modes may have been missed. Try a larger `gradient_budget`."
    )
