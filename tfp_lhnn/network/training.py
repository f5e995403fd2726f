"""Training that works by default: compiled, seeded, with held-out selection."""

import math
import numbers
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfp_lhnn.evaluation.training_data import TrainingData
from tfp_lhnn.network.gaussian_base import checked_points, near_points
from tfp_lhnn.network.latent_hnn import LatentHNN
from tfp_lhnn.network.training_loop import LossCurve, Points, Recipe, TrainingLoop
from tfp_lhnn.support.arguments import check_count, stateless_seed

__all__ = ["TrainingHistory", "train"]

# Steps between two evaluations of the held-out loss, all in one compiled call: enough
# to make the call's own cost (about 0.1 ms) negligible, few enough to stop in time.
_ROUND_STEPS = 250

# What a base this good leaves over is rounding error, which no network should learn. An
# error of 1e-3 nats changes an acceptance probability by a thousandth.
_PERFECT_ENERGY_ERROR = 1e-3
_PERFECT_GRADIENT_ERROR = 1e-6

# If a network lowers the held-out energy error by less than a tenth, that may be
# chance: few trajectories are held out. The base is smoother and cheaper. For this
# comparison, errors above five nats count as five: a proposal there is lost all the
# same, and one such point must not decide.
_WORTHWHILE = 0.9
_LARGEST_ERROR = 5.0

# The loss divides the gradient by its size in each coordinate, but by no less than this
# share of the size over all coordinates: smaller ones hardly matter to leapfrog.
_SMALLEST_SCALE = 0.1


# Points per call where no gradients are needed: bounds the memory of large data sets.
_CHUNK = 8192


class TrainingHistory(NamedTuple):
    """Curves of a training run, with one entry per held-out evaluation, and results.

    Energy errors are root mean squares of `U − U_θ` about its mean over the held-out
    points, in nats (for a joint network, of `H − H_θ`). Gradient errors are mean
    squared errors of `∂U_θ/∂q` over the variance of the true gradient, in the base's
    coordinates, so that no coordinate dominates. Held-out points are those of whole
    trajectories, without points far away from the target's bulk.

    Attributes:
        step: steps done, int `[k]`; the first entry, 0, is the state before training.
        gradient_loss: training loss of the gradients since the last entry, `[k]`.
        value_loss: training loss of the values, `[k]`; not used by a joint network.
        held_out_gradient_error: relative, `[k]`.
        held_out_energy_error: in nats, `[k]`.
        energy_error: held-out energy error of what was kept, in nats.
        gradient_error: held-out gradient error of what was kept.
        base_energy_error: held-out energy error of the Gaussian base alone; NaN if the
            network has none.
        selected: `"network"`, or `"base"` if the network did not lower the energy error
            by a tenth or more and was set to zero.
        num_steps: steps run; fewer than asked for if the held-out loss stopped falling.
        seconds: wall time, compilation included.
    """

    step: np.ndarray
    gradient_loss: np.ndarray
    value_loss: np.ndarray
    held_out_gradient_error: np.ndarray
    held_out_energy_error: np.ndarray
    energy_error: float
    gradient_error: float
    base_energy_error: float
    selected: str
    num_steps: int
    seconds: float


def train(
    network: LatentHNN,
    data: TrainingData,
    *,
    seed: Any,
    num_steps: int = 5000,
    batch_size: int = 256,
    learning_rate: float = 5e-3,
    weight_decay: float = 0.03,
    value_weight: float = 0.1,
    held_out_fraction: float = 0.1,
    patience: int = 3000,
    sufficient_base_error: float = 0.0,
    warm_start: bool = False,
    jit_compile: bool = True,
    progress: bool | Callable[[int], None] = False,
) -> TrainingHistory:
    """Fits the Gaussian base, then the network to what the base leaves over.

    A separable network learns gradients and values, each scaled to order one, under a
    robust loss. A joint one learns the time derivatives alone, scaled likewise. AdamW's
    learning rate decays to zero by a cosine. The weights with the smallest held-out
    loss are kept. If they do not lower the base's held-out energy error by a tenth,
    the network's output is set to zero. Finally, `offset` is set so that
    `network.potential(q)` is about `-log_prob(q)`.

    A frozen layer (`layer.trainable = False`) keeps its weights to the last bit, and
    the others learn around it. Its weights refer to the base's coordinates, which are
    new unless `warm_start` is set.

    The same seed, data and machine give the same weights, whatever the network's
    weights were before, unless `warm_start` is set or layers are frozen.

    Args:
        network: what to train; usable right after.
        data: points, gradients and log densities of the target.
        seed: an int, a pair of ints, or an integer Tensor `[2]`.
        num_steps: the largest number of steps to run.
        batch_size: points per step, at most the number of points.
        learning_rate: Adam's, at the start.
        weight_decay: share of each weight removed per step, in units of the learning
            rate. It keeps the network smooth where there are no points.
        value_weight: weight of the value loss beside the gradient loss.
        held_out_fraction: share of the points, in whole trajectories, by which the
            weights are chosen and the errors measured.
        patience: steps without a smaller held-out loss after which to stop.
        sufficient_base_error: held-out energy error of the base, in nats, below which
            no network is trained on top of it. If infinite, none ever is.
        warm_start: whether to go on from the present weights and base, as in refinement
            with a few new points. Otherwise base and weights are made anew, since what
            a network has learned means nothing in the coordinates of another base.
        jit_compile: whether XLA compiles the loop.
        progress: whether to show a progress bar; or a function that is called instead,
            now and then, with the number of steps done.

    Returns:
        The loss curves and held-out errors.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, the dimensions of `network` and
            `data` differ, or the data are constant; the message names it.
    """
    start = time.perf_counter()
    _check_network_and_data(network, data)
    for name, count in (
        ("num_steps", num_steps),
        ("batch_size", batch_size),
        ("patience", patience),
    ):
        check_count(name, count, minimum=1)
    _check_positive("learning_rate", learning_rate)
    _check_positive("weight_decay", weight_decay, or_zero=True)
    _check_positive("value_weight", value_weight, or_zero=True)
    if sufficient_base_error != math.inf:
        _check_positive("sufficient_base_error", sufficient_base_error, or_zero=True)
    if not isinstance(progress, bool) and not callable(progress):
        raise TypeError(f"`progress` is {progress!r}; expected a bool or a callable.")
    words = stateless_seed(seed, "train").numpy().view(np.uint32)
    generator = np.random.default_rng(words)
    kept, held_out = data.split(held_out_fraction, seed)
    if len(held_out) < 2:
        raise ValueError(
            f"`held_out_fraction` is {held_out_fraction}: of {len(data)} points it "
            "leaves one to measure errors with; expected two or more."
        )
    if not warm_start:
        _start_afresh(network, kept, held_out, int(generator.integers(2**31)))
    points, tests = _remainder(network, kept), _remainder(network, held_out)
    if network.separable and not (warm_start and network.energy_scale.numpy()):
        network.energy_scale.assign(_spread(points.value - np.mean(points.value)))
    base = _base_errors(network, tests)
    run = _Run([], [], 0)
    suffices = base.is_perfect or base.energy < sufficient_base_error
    if warm_start or not suffices:
        loop = TrainingLoop(
            network,
            points,
            tests,
            gradient_scale=_spread(points.gradient),
            recipe=Recipe(
                learning_rate,
                num_steps,
                weight_decay,
                value_weight if network.separable else 0.0,
                jit_compile,
            ),
        )
        rows = _Rows(generator, len(points.value), batch_size)
        run = _run(loop, rows, num_steps, patience, progress)
    is_worthwhile = bool(run.curves) and _is_worthwhile(network, tests)
    history = _history(run, base, is_worthwhile, time.perf_counter() - start)
    if history.selected == "base":
        network.silence()
    _set_offset(network, points)
    return history


class _Errors(NamedTuple):
    """Held-out errors of the base; infinite without one."""

    energy: float
    squared_gradient: float
    gradient_variance: float

    @property
    def is_perfect(self) -> bool:
        return (
            self.energy < _PERFECT_ENERGY_ERROR
            and self.squared_gradient < _PERFECT_GRADIENT_ERROR * self.gradient_variance
        )


class _Run(NamedTuple):
    """Steps done at each held-out evaluation, the losses then, and the best entry."""

    steps: list[int]
    curves: list[LossCurve]
    best: int


class _Rows:
    """Batches of row numbers; all rows come once before any comes again."""

    def __init__(self, generator: np.random.Generator, n: int, batch_size: int) -> None:
        self._generator = generator
        self._n = n
        self._batch_size = min(batch_size, n)
        self._rest = np.zeros([0], np.int64)

    def take(self, num_steps: int) -> np.ndarray:
        """Rows of the next steps, `[num_steps, batch_size]`."""
        needed = num_steps * self._batch_size
        parts = [self._rest]
        for _ in range(-(-(needed - len(self._rest)) // self._n)):
            parts.append(self._generator.permutation(self._n))
        rows = np.concatenate(parts)
        self._rest = rows[needed:]
        return rows[:needed].reshape(num_steps, self._batch_size)


def _run(
    loop: TrainingLoop,
    rows: _Rows,
    num_steps: int,
    patience: int,
    progress: bool | Callable[[int], None],
) -> _Run:
    """Trains in rounds; leaves the weights of the smallest held-out loss."""
    round_steps = min(_ROUND_STEPS, num_steps)
    bar = keras.utils.Progbar(num_steps, verbose=1 if progress is True else 0)
    # The first call makes no step, since the present weights may be the best.
    steps, curves = [0], [loop.run(rows.take(round_steps), 0)]
    best, weights = 0, loop.weights()
    while steps[-1] < num_steps and steps[-1] - steps[best] < patience:
        count = min(round_steps, num_steps - steps[-1])
        curve = loop.run(rows.take(round_steps), count)
        steps.append(steps[-1] + count)
        curves.append(curve)
        bar.update(steps[-1], [("held_out_energy_error", curve.energy_error)])
        if callable(progress):
            progress(steps[-1])
        if not math.isfinite(curve.held_out_loss):
            break
        # Negated so that a finite loss beats a NaN at the start.
        if not curve.held_out_loss >= curves[best].held_out_loss:
            best, weights = len(steps) - 1, loop.weights()
    loop.restore(weights)
    return _Run(steps, curves, best)


def _is_worthwhile(network: LatentHNN, tests: Points) -> bool:
    """Whether the network does better than its base at the held-out points."""
    if not network.has_base:
        return True
    residual = tests.value - _learned(network, tests)
    return _clipped_error(residual) < _WORTHWHILE * _clipped_error(tests.value)


def _clipped_error(residual: np.ndarray) -> float:
    """Root mean square about the median; infinite if anything is not finite."""
    if not np.all(np.isfinite(residual)):
        return math.inf
    size = np.abs(residual - np.median(residual))
    return float(np.sqrt(np.mean(np.minimum(size, _LARGEST_ERROR) ** 2)))


def _history(
    run: _Run, base: _Errors, is_worthwhile: bool, seconds: float
) -> TrainingHistory:
    """The curves, and the errors of what was chosen: the network, or its base."""
    chosen = run.curves[run.best] if run.curves else None
    if chosen is None or not is_worthwhile:
        selected, energy_error, squared = "base", base.energy, base.squared_gradient
    else:
        selected, energy_error = "network", chosen.energy_error
        squared = chosen.squared_error
    curves = np.array(run.curves or [LossCurve(0.0, 0.0, 0.0, squared, energy_error)])
    return TrainingHistory(
        step=np.array(run.steps or [0]),
        gradient_loss=np.where(curves[:, 0] == 0.0, np.nan, curves[:, 0]),
        value_loss=np.where(curves[:, 1] == 0.0, np.nan, curves[:, 1]),
        held_out_gradient_error=curves[:, 3] / base.gradient_variance,
        held_out_energy_error=curves[:, 4],
        energy_error=energy_error,
        gradient_error=squared / base.gradient_variance,
        base_energy_error=base.energy if math.isfinite(base.energy) else math.nan,
        selected=selected,
        num_steps=run.steps[-1] if run.steps else 0,
        seconds=seconds,
    )


def _start_afresh(
    network: LatentHNN, kept: TrainingData, held_out: TrainingData, seed: int
) -> None:
    """Draws new weights, and fits the base to `kept`, selected by `held_out`."""
    arrays = (kept.position, kept.momentum_rate, kept.log_prob)
    if network.has_base:
        network.fit_base(
            *arrays,
            held_out=(held_out.position, held_out.momentum_rate, held_out.log_prob),
        )
    else:
        checked_points(*arrays)
    network.initialise(seed)


def _remainder(network: LatentHNN, data: TrainingData) -> Points:
    """What the base leaves for the layers to learn, at the near points, in float64."""
    potential = -data.log_prob.astype(np.float64)
    near = near_points(potential, data.dim)
    position, potential = data.position[near].astype(np.float64), potential[near]
    gradient = -data.momentum_rate[near].astype(np.float64)
    if not network.separable:
        momentum = data.momentum[near].astype(np.float64)
        return Points(
            np.concatenate([position, momentum], axis=-1),
            np.concatenate([gradient, data.position_rate[near]], axis=-1),
            potential + 0.5 * np.sum(momentum**2, axis=-1),
        )
    if not network.has_base:
        return Points(position, gradient, potential)
    base = network.gaussian_base
    z = base.whiten(position)
    return Points(
        z, base.whiten_gradient(gradient) - z, potential - base.energy(position)
    )


def _base_errors(network: LatentHNN, tests: Points) -> _Errors:
    remainder = tests.gradient[:, : network.dim]
    if not network.has_base:
        return _Errors(math.inf, math.inf, float(np.var(remainder)))
    return _Errors(
        float(np.std(tests.value)),
        float(np.mean(remainder**2)),
        float(np.var(remainder + tests.inputs)),
    )


def _spread(values: np.ndarray) -> np.ndarray:
    """Robust standard deviation about zero over the first axis, never zero.

    The median ignores large values at few points in a tail. A share of the root mean
    square keeps the result above zero if most values are nearly zero.
    """
    squares = values**2
    # 0.455 is the median of the square of a standard normal variable.
    median = np.median(squares, axis=0) / 0.455
    spread = np.sqrt(np.maximum(median, _SMALLEST_SCALE**2 * np.mean(squares)))
    return np.where(spread > 0.0, spread, 1.0)


def _set_offset(network: LatentHNN, points: Points) -> None:
    """Makes the mean error of the potential zero."""
    if network.separable:
        network.offset.assign(np.mean(points.value - _learned(network, points)))


def _learned(network: LatentHNN, points: Points) -> np.ndarray:
    """What the layers add to the base, without the offset, `[n]`."""
    chunks = np.array_split(points.inputs, -(-len(points.inputs) // _CHUNK))
    learned = np.concatenate(
        [
            network.raw_latents(tf.constant(chunk, network.compute_dtype)).numpy()
            for chunk in chunks
        ]
    )
    return network.energy_scale.numpy() * np.sum(learned, axis=-1, dtype=np.float64)


def _check_network_and_data(network: Any, data: Any) -> None:
    if not isinstance(network, LatentHNN):
        raise TypeError(f"`network` is a {type(network).__name__}; expected LatentHNN.")
    if not isinstance(data, TrainingData):
        raise TypeError(f"`data` is a {type(data).__name__}; expected TrainingData.")
    if data.dim != network.dim:
        raise ValueError(f"`data` has dim {data.dim}; the network has {network.dim}.")
    if not network.trained_variables:
        raise ValueError("`network` has no trainable weights.")
    output = network.output_layer.kernel
    if not output.trainable and not np.any(output.numpy()):
        raise ValueError(
            "`network` has a frozen output layer of zeros, through which no other "
            "layer can learn: train it before you freeze it."
        )


def _check_positive(name: str, value: Any, or_zero: bool = False) -> None:
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise TypeError(f"`{name}` is {value!r}; expected a number.")
    if not math.isfinite(value) or value < 0.0 or (value == 0.0 and not or_zero):
        bound = "0 or more" if or_zero else "above 0"
        raise ValueError(f"`{name}` is {value}; expected a finite number, {bound}.")
