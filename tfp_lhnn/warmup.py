"""fit: from a density and a gradient budget to a network and a tuned sampler."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import arviz as az
import numpy as np
import tensorflow as tf

from tfp_lhnn._arguments import check_count, checked_hidden_units, stateless_seed
from tfp_lhnn._compiled_target import BLOCK, CompiledTarget, compiled_target
from tfp_lhnn._pilot import NUM_LEAPFROG_STEPS, Pilot
from tfp_lhnn._refinement import Quality, assess, choose_points
from tfp_lhnn._surrogate_chain import SurrogateRun, run_surrogate_chain
from tfp_lhnn.gaussian_base import GaussianBase, near_points
from tfp_lhnn.model import Model, as_model
from tfp_lhnn.network import LARGEST_DENSE_DIM, LatentHNN
from tfp_lhnn.progress import ProgressReporter
from tfp_lhnn.training import TrainingHistory, train
from tfp_lhnn.training_data import TrainingData

__all__ = ["Fit", "Round", "fit", "fit_model", "least_budget"]

_NUM_PILOT_CHAINS = 16
_NUM_SURROGATE_CHAINS = 32

# Refinement stops here: of delayed acceptance's proposals one in twenty is lost.
_GOOD_ACCEPTANCE = 0.95
# Errors of a Gaussian size have a tenth of a nat at that acceptance; much more means
# that a few points, in some corner, are far off.
_GOOD_ENERGY_ERROR = 0.25
# Below this the network proposes badly, and sampling turns to true gradients.
POOR_ACCEPTANCE = 0.5

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

# Rounds in a row that must be good: one may not have met what the next one meets.
_GOOD_ROUNDS = 3

# Share of the budget left to sampling, for true transitions, if the fit is poor.
_RESERVE = 0.3

# What tempered proposals must be accepted with, where the target has density: fewer
# mean that the network's density stops short of the target's tails.
_GOOD_TAIL_ACCEPTANCE = 0.9


class Round(NamedTuple):
    """What one round of `fit` did.

    Attributes:
        kind: `"pilot"`, or `"refinement"`.
        num_gradients: true gradients so far.
        num_points: points to learn from so far.
        energy_error: of the network at fresh points of its own chain, in nats; NaN for
            the pilot.
        acceptance: that delayed acceptance would have there; NaN for the pilot.
        tail_acceptance: the same from points of a tempered chain, where the target has
            density; NaN for the pilot.
        step_size: of the surrogate chain (or of the pilot), whitened.
        history: of the training; `None` for the pilot.
        seconds: that the round took.
    """

    kind: str
    num_gradients: int
    num_points: int
    energy_error: float
    acceptance: float
    tail_acceptance: float
    step_size: float
    history: TrainingHistory | None
    seconds: float


@dataclasses.dataclass(frozen=True, eq=False)
class Fit:
    """What `fit` found.

    Attributes:
        network: the network, of flat unconstrained positions, `[n, dim]`.
        step_size: for NUTS on the network, in its base's coordinates (see
            `network.whiten`), in which the target has about unit scale.
        leapfrogs_per_draw: of that step size.
        num_surrogate_transitions: NUTS transitions on the network after which a chain
            has about forgotten where it was; they cost nothing of the target.
        states: last states of the surrogate's chains, or of the pilot's if the fit is
            poor, `[chains, dim]`.
        data: every point at which a true gradient was evaluated.
        rounds: the history.
        num_gradients: true gradients evaluated; at most `gradient_budget`.
        num_evaluations: densities evaluated, those with a gradient included.
        gradient_budget: as given.
        energy_error: of the network at fresh points, in nats.
        acceptance: that delayed acceptance would have.
        held_out: potential and network error at the last fresh points, `[n]` each.
        radius: largest distance from the centre, in the base's coordinates, of the
            points learned from.
        nuts_gradients_per_effective_sample: what NUTS on true gradients would cost,
            estimated by running it on the network; without its warm-up.
        message: what to know about the fit; what to try if it is poor.
        seconds: wall time.
    """

    network: LatentHNN
    step_size: float
    leapfrogs_per_draw: float
    num_surrogate_transitions: int
    states: np.ndarray
    data: TrainingData
    rounds: tuple[Round, ...]
    num_gradients: int
    num_evaluations: int
    gradient_budget: int
    energy_error: float
    acceptance: float
    held_out: tuple[np.ndarray, np.ndarray]
    radius: float
    nuts_gradients_per_effective_sample: float
    message: str
    seconds: float

    @property
    def is_good(self) -> bool:
        """Whether delayed acceptance on the network is worth running."""
        return self.acceptance >= POOR_ACCEPTANCE

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the fit to a file of plain arrays, all or nothing."""
        from tfp_lhnn._fit_file import save_fit  # It needs this class.

        save_fit(path, self)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Fit:
        """Reads what `save` wrote.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if the file is damaged, foreign, or of another version.
        """
        from tfp_lhnn._fit_file import load_fit

        return load_fit(path)


def least_budget(dim: int) -> int:
    """The smallest gradient budget with which `fit` can do anything, by dimension."""
    # Two trajectories of the pilot, and points for one check of the network.
    pilot = _NUM_PILOT_CHAINS * (1 + 2 * NUM_LEAPFROG_STEPS)
    return max(pilot, 2 * (dim + 1)) + 2 * BLOCK


def fit(
    target_log_prob_fn: Callable[..., tf.Tensor],
    initial_state: Any,
    gradient_budget: int = 10_000,
    *,
    seed: Any,
    hidden_units: tuple[int, ...] = (64, 64, 64),
    jit_compile: bool = True,
    progress: bool | None = None,
) -> Fit:
    """Learns a target from as few true gradients as it takes.

    A pilot runs short trajectories with true gradients from dispersed starts; every
    point it evaluates is learned from. Then, round by round, a network is trained, NUTS
    is run on the network alone, and the true density and gradient are evaluated at a
    few of the points it went to: first at random, which tells how good the fit is, and
    then, if it is not good yet, where the error is probably large. It stops when
    delayed acceptance would accept 95% of the network's proposals, or when the budget
    is spent.

    Args:
        target_log_prob_fn: takes the parts of the state, `[n, event...]` each, and
            returns log densities `[n]`.
        initial_state: one point, or one for each of some chains; see
            `tfp_lhnn.Model.from_target`.
        gradient_budget: most true gradients to evaluate. It is never exceeded.
        seed: an int, a pair of ints, or an integer Tensor `[2]`.
        hidden_units: widths of the network's hidden layers.
        jit_compile: whether XLA compiles the target.
        progress: whether to show progress; `None`: in terminals and notebooks.

    Returns:
        The network, the tuned settings, the history and what it cost.

    Raises:
        TypeError: if an argument has the wrong type.
        ValueError: if the budget is too small, or no start has a finite density; the
            message names the argument.
    """
    model = as_model(target_log_prob_fn, initial_state)
    return fit_model(
        model,
        compiled_target(model, {}, jit_compile),
        gradient_budget,
        seed=seed,
        hidden_units=hidden_units,
        reporter=ProgressReporter(progress),
    )


def fit_model(
    model: Model,
    target: CompiledTarget,
    gradient_budget: int,
    *,
    seed: Any,
    hidden_units: tuple[int, ...],
    reporter: ProgressReporter,
) -> Fit:
    """`fit` of a `Model` whose functions are compiled."""
    check_count("gradient_budget", gradient_budget, 1)
    hidden_units = checked_hidden_units(hidden_units)
    least = least_budget(model.dim)
    if gradient_budget < least:
        raise ValueError(
            f"`gradient_budget` is {gradient_budget}; a model of {model.dim} "
            f"dimensions needs {least} or more."
        )
    words = stateless_seed(seed, "fit").numpy().view(np.uint32)
    run = _FitRun(
        model,
        target,
        gradient_budget,
        np.random.default_rng(words),
        hidden_units,
        reporter,
    )
    return run.result()


class _FitRun:
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
        surrogate = self._refine(pilot)
        return self._finish(pilot, surrogate)

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

    def _refine(self, pilot: Pilot) -> _Surrogate:
        best: _Surrogate | None = None
        number = good_rounds = 0
        while True:
            began = time.perf_counter()
            number += 1
            surrogate = self._train(pilot, number)
            number_to_check = self._part_of_round(0.5)
            if not number_to_check:
                # Nothing left to check it with; the last one that was checked is known
                # to be as good as it says.
                return best if best is not None else surrogate
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
            if best is None or _merit(surrogate) >= 0.98 * _merit(best):
                best = surrogate
            good_rounds = good_rounds + 1 if _is_good(surrogate.quality) else 0
            if good_rounds == _GOOD_ROUNDS:
                return surrogate
            self._learn_where_it_is_wrong(surrogate)

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

    def _train(self, pilot: Pilot, number: int) -> _Surrogate:
        data = self._data()
        network = LatentHNN(data.dim, self._hidden_units, seed=1)
        with self._reporter.phase(f"training, round {number}", unit="points") as phase:
            history = train(network, data, seed=self._seed(), num_steps=3000)
            phase.update(len(data), gradients=self._num_gradients)
        base = network.gaussian_base
        chosen = self._generator.integers(
            len(pilot.position), size=_NUM_SURROGATE_CHAINS
        )
        run = run_surrogate_chain(
            network, base.whiten(pilot.position[chosen]), self._seed()
        )
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
        trajectories, some from points of its chain, others that go on where the pilot
        was and owe nothing to the network.
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
            finite = np.flatnonzero(np.isfinite(log_prob[:num_cold]))
            pilot.send(position[finite], log_prob[finite], gradient[finite])
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

    def _finish(self, pilot: Pilot, surrogate: _Surrogate) -> Fit:
        data = self._data()
        network, base = surrogate.network, surrogate.base
        quality = surrogate.quality
        with self._reporter.phase("tuning", unit="draws"):
            tuned = run_surrogate_chain(
                network, surrogate.run.position[-1], self._seed(), num_draws=256
            )
        correlation_time = _correlation_time(tuned.position)
        is_good = quality.acceptance >= POOR_ACCEPTANCE
        near = near_points(-data.log_prob, data.dim)
        return Fit(
            network=network,
            step_size=tuned.step_size,
            leapfrogs_per_draw=tuned.leapfrogs_per_draw,
            num_surrogate_transitions=int(
                np.clip(np.ceil(correlation_time), 1, _MOST_TRANSITIONS)
            ),
            states=base.unwhiten(tuned.position[-1]) if is_good else pilot.position,
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
            message=_message(quality, self._budget, self._num_gradients),
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
    residual: np.ndarray
    potential: np.ndarray


def _is_good(quality: Quality) -> bool:
    return (
        quality.acceptance >= _GOOD_ACCEPTANCE
        and quality.energy_error <= _GOOD_ENERGY_ERROR
        and quality.tail_acceptance >= _GOOD_TAIL_ACCEPTANCE
    )


def _merit(surrogate: _Surrogate) -> float:
    return surrogate.quality.acceptance * surrogate.quality.tail_acceptance


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


def _message(quality: Quality, budget: int, spent: int) -> str:
    if _is_good(quality):
        return "The fit is good."
    shares = (
        f"delayed acceptance accepts {quality.acceptance:.0%} of the network's "
        f"proposals, and its energy is off by {quality.energy_error:.2g} nats"
    )
    if quality.acceptance >= POOR_ACCEPTANCE:
        return (
            f"The fit is fair: {shares}, after {spent} gradients. A larger "
            "`gradient_budget` makes draws less correlated."
        )
    return (
        f"The fit is poor: {shares}, after {spent} of {budget} gradients. Try a larger "
        "`gradient_budget`, wider `hidden_units`, a reparametrisation of the model (a "
        "non-centred one for funnels), or a better `initial_state`."
    )
