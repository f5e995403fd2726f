"""Chained HMC trajectories in one compiled loop, every evaluated point kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lhnn.mcmc.integrator import (
    PhasePoint,
    finish_step,
    kinetic_energy,
    select_chains,
    start_step,
)
from tfp_lhnn.support.state_layout import StateLayout, state_parts

__all__ = ["Points", "simulate_points"]

# Energy error, in nats, beyond which a segment has diverged. It is the bound of the
# kernels (`max_energy_diff`) and of Stan: such a point has e^-1000 of the weight of its
# start, and a gradient that tells of the integrator rather than of the target.
_MAX_ENERGY_DIFF = 1000.0

ValueAndGradient = Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


class Points(NamedTuple):
    """Evaluated points of phase space, one per trajectory.

    Attributes:
      position: `[trajectories, d]`.
      momentum: `[trajectories, d]`.
      log_prob: `[trajectories]`.
      gradient: The gradient of the log density, `[trajectories, d]`.
    """

    position: Any
    momentum: Any
    log_prob: Any
    gradient: Any


class _Noise(NamedTuple):
    """The random numbers of all trajectories; index 0 is the start, `i` step `i`.

    Attributes:
      momentum: Momenta for segments that begin there, `[num_steps + 1, trajectories,
        d]`.
      log_uniform: For the Metropolis tests there, `[num_steps + 1, trajectories]`.
    """

    momentum: tf.Tensor
    log_uniform: tf.Tensor


class _History(NamedTuple):
    """All points in the order of time.

    Attributes:
      points: With a leading dimension `[num_steps + 1]`.
      is_usable: Whether a point is finite and its segment has not diverged there, bool
        `[num_steps + 1, trajectories]`.
    """

    points: Points
    is_usable: Any

    def write(self, i: Any, point: Points, is_usable: tf.Tensor) -> _History:
        """Writes one time into the TensorArrays."""
        arrays = zip(self.points, point, strict=True)
        return _History(
            Points(*(array.write(i, x) for array, x in arrays)),
            self.is_usable.write(i, is_usable),
        )

    def stack(self) -> _History:
        """The TensorArrays as Tensors."""
        arrays = (array.stack() for array in self.points)
        return _History(Points(*arrays), self.is_usable.stack())


class _Chain(NamedTuple):
    """What a step needs of the past.

    Attributes:
      current: Where the trajectory stands.
      start: Where its segment began, with the momentum drawn there.
      age: Leapfrog steps since then, int32 `[trajectories]`.
    """

    current: Points
    start: Points
    age: tf.Tensor


def simulate_points(
    target_log_prob_fn: Callable[..., tf.Tensor],
    initial_state: Any,
    seed: tf.Tensor,
    *,
    num_trajectories: int,
    num_steps: int,
    num_leapfrog_steps: int,
    step_size: float,
    jit_compile: bool,
) -> tuple[Points, np.ndarray]:
    """Compiles and runs the trajectories; `simulate_training_data` says which.

    Args:
      target_log_prob_fn: The user's target.
      initial_state: The user's starts.
      seed: A stateless seed, int32 `[2]`.
      num_trajectories: How many trajectories run side by side.
      num_steps: Leapfrog steps of each trajectory.
      num_leapfrog_steps: Steps between Metropolis tests and fresh momenta.
      step_size: The leapfrog step.
      jit_compile: Whether XLA compiles the loop.

    Returns:
      All points, as NumPy arrays `[num_trajectories * (num_steps + 1), ...]`,
      trajectory by trajectory and in the order of time; and which of them are finite
      and have not diverged, bool.

    Raises:
      TypeError: If the state or the target's value has a wrong type.
      ValueError: If one of them has a wrong shape, or no start is finite.
    """
    layout, starts = _deal_starts(initial_state, num_trajectories)
    evaluate = _checked_value_and_gradient(
        layout.on_flat(target_log_prob_fn), starts.dtype, num_trajectories
    )

    noise = _draw_noise(seed, num_steps, starts)

    # Without AutoGraph, which would bury the messages of a bad target in its own.
    @tf.function(autograph=False, jit_compile=jit_compile)
    def simulate(starts: tf.Tensor, noise: _Noise) -> tuple[_History, tf.Tensor]:
        return _run_trajectories(
            evaluate,
            starts,
            noise,
            num_leapfrog_steps=num_leapfrog_steps,
            step_size=step_size,
        )

    try:
        # Traced once by intention, so TensorFlow must not warn of retracing.
        compiled = simulate.get_concrete_function(starts, noise)
        history, any_usable = compiled(starts, noise)
    except tf.errors.OpError as error:
        if jit_compile:
            error.add_note("If XLA cannot take the target, pass `jit_compile=False`.")
        raise
    if not any_usable:
        raise ValueError(
            "`target_log_prob_fn` or its gradient is not finite at any start in "
            "`initial_state`; expected at least one start of positive density."
        )
    return Points(*map(_by_trajectory, history.points)), _by_trajectory(
        history.is_usable
    )


def _by_trajectory(x: tf.Tensor) -> np.ndarray:
    """`[time, trajectories, ...]` as `[trajectories * time, ...]`."""
    return x.numpy().swapaxes(0, 1).reshape(-1, *x.shape[2:])


def _deal_starts(
    initial_state: Any, num_trajectories: int
) -> tuple[StateLayout, tf.Tensor]:
    """Gives each trajectory a start.

    Args:
      initial_state: A Tensor `[starts, d]` or `[d]`, or a list of parts
        `[starts, ...]`.
      num_trajectories: How many trajectories there are; starts are used in turn.

    Returns:
      The layout of the state, and the flat starts `[num_trajectories, d]`.

    Raises:
      TypeError: If the state is not float32 or float64, or no Tensor or list of them.
      ValueError: If a shape is wrong, or there are more starts than trajectories.
    """
    parts = state_parts(initial_state, "initial_state")
    if parts[0].dtype not in (tf.float32, tf.float64):
        raise TypeError(
            f"`initial_state` is {parts[0].dtype.name}; expected float32 or float64."
        )
    if not isinstance(initial_state, (list, tuple)):
        shape = parts[0].shape
        if shape.rank not in (1, 2):
            raise ValueError(
                f"`initial_state` has shape {shape}; expected [starts, d] or [d] (put "
                "a part of another shape into a list)."
            )
        initial_state = parts[0] if shape.rank == 2 else parts[0][tf.newaxis]
    layout = StateLayout.from_state(initial_state, batch_rank=1, name="initial_state")
    flat = layout.flatten(initial_state)
    num_starts = flat.shape[0]
    if not 1 <= num_starts <= num_trajectories or not layout.dim:
        raise ValueError(
            f"`initial_state` has {num_starts} starts in {layout.dim} dimensions; "
            f"expected 1 to {num_trajectories} (`num_trajectories`) in 1 or more."
        )
    return layout, tf.gather(flat, np.arange(num_trajectories) % num_starts)


def _draw_noise(seed: tf.Tensor, num_steps: int, starts: tf.Tensor) -> _Noise:
    """Draws all random numbers beforehand.

    Inside the compiled loop, XLA would make other numbers of the same seed than plain
    TensorFlow does, and the data would depend on `jit_compile`.
    """
    momentum_seed, uniform_seed = tfp.random.split_seed(seed, n=2)
    shape = [num_steps + 1, *starts.shape]
    uniform = tf.random.stateless_uniform(shape[:2], uniform_seed, dtype=starts.dtype)
    return _Noise(
        momentum=tf.random.stateless_normal(shape, momentum_seed, dtype=starts.dtype),
        log_uniform=tf.math.log(uniform),
    )


def _checked_value_and_gradient(
    log_prob_fn: Callable[[tf.Tensor], Any], dtype: tf.DType, batch_size: int
) -> ValueAndGradient:
    """Makes the function that evaluates the target, once per call.

    What it checks is known while tracing, so the checks cost no evaluation.

    Args:
      log_prob_fn: The user's target as a function of `[batch_size, d]`.
      dtype: The dtype that its values must have.
      batch_size: The number of its values.

    Returns:
      A function from positions to log densities `[batch_size]` and gradients
      `[batch_size, d]`. It raises TypeError or ValueError for a bad target.
    """

    def evaluate(position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # The target's own variables (weights, data) are constants here.
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(position)
            log_prob = log_prob_fn(position)
        if not tf.is_tensor(log_prob):
            raise TypeError(
                f"`target_log_prob_fn` returned a {type(log_prob).__name__}; "
                f"expected a Tensor of shape [{batch_size}]."
            )
        if log_prob.dtype != dtype:
            raise TypeError(
                f"`target_log_prob_fn` returned {log_prob.dtype.name}; expected "
                f"{dtype.name}, as `initial_state` is."
            )
        if not log_prob.shape.is_compatible_with([batch_size]):
            raise ValueError(
                f"`target_log_prob_fn` returned shape {log_prob.shape}; expected "
                f"[{batch_size}], one value per trajectory."
            )
        gradient = tape.gradient(log_prob, position)
        if gradient is None:
            raise ValueError(
                "`target_log_prob_fn` has no gradient: its value does not depend on "
                "the state through differentiable TensorFlow operations."
            )
        # The gradient of a gather comes as IndexedSlices.
        gradient = tf.ensure_shape(tf.convert_to_tensor(gradient), position.shape)
        return tf.ensure_shape(log_prob, [batch_size]), gradient

    return evaluate


def _run_trajectories(
    value_and_gradient: ValueAndGradient,
    position: tf.Tensor,
    noise: _Noise,
    *,
    num_leapfrog_steps: int,
    step_size: float,
) -> tuple[_History, tf.Tensor]:
    """Runs all trajectories in lockstep: one evaluation at the start, one per step.

    Args:
      value_and_gradient: As `_checked_value_and_gradient` makes it.
      position: The starts, `[trajectories, d]`.
      noise: The random numbers; their first dimension sets the number of steps.
      num_leapfrog_steps: Steps between Metropolis tests and fresh momenta.
      step_size: The leapfrog step.

    Returns:
      The history, and whether any start was finite. If none was, no step is made and
      the points mean nothing.
    """
    num_points = noise.momentum.shape[0]
    first = Points(position, noise.momentum[0], *value_and_gradient(position))
    is_usable = _is_finite(first)
    arrays = [
        tf.TensorArray(x.dtype, size=num_points, element_shape=x.shape)
        for x in (*first, is_usable)
    ]
    any_usable = tf.reduce_any(is_usable)
    start = _replace_unusable(first)
    age = tf.zeros(first.log_prob.shape, tf.int32)

    def body(
        i: tf.Tensor, chain: _Chain, history: _History
    ) -> tuple[tf.Tensor, _Chain, _History]:
        point = _leapfrog(value_and_gradient, chain.current, step_size)
        noise_i = _Noise(noise.momentum[i], noise.log_uniform[i])
        gain = _log_joint(point) - _log_joint(chain.start)
        is_usable = _is_finite(point) & (gain >= -_MAX_ENERGY_DIFF)
        chain = _end_segments(
            point, chain, is_usable, gain, noise_i, num_leapfrog_steps
        )
        return i + 1, chain, history.write(i, point, is_usable)

    history = _History(Points(*arrays[:-1]), arrays[-1]).write(0, first, is_usable)
    *_, history = tf.while_loop(
        lambda i, *_: any_usable & (i < num_points),
        body,
        (1, _Chain(start, start, age), history),
        parallel_iterations=1,  # each step waits for the one before
    )
    return history.stack(), any_usable


def _is_finite(point: Points) -> tf.Tensor:
    finite = tf.math.is_finite(point.log_prob)
    for x in (point.position, point.momentum, point.gradient):
        finite &= tf.reduce_all(tf.math.is_finite(x), axis=-1)
    return finite


def _replace_unusable(first: Points) -> Points:
    """Lets a trajectory with a non-finite start begin where another one does.

    It could not leave its own start, and all its gradients would be wasted. The usable
    starts are dealt out in turn; each trajectory keeps its own momentum.
    """
    finite = _is_finite(first)
    usable_first = tf.argsort(tf.cast(~finite, tf.int32), stable=True)
    trajectory = tf.range(tf.size(finite))
    num_usable = tf.maximum(tf.reduce_sum(tf.cast(finite, tf.int32)), 1)
    source = tf.gather(usable_first, trajectory % num_usable)
    source = tf.where(finite, trajectory, source)
    return Points(
        position=tf.gather(first.position, source),
        momentum=first.momentum,
        log_prob=tf.gather(first.log_prob, source),
        gradient=tf.gather(first.gradient, source),
    )


def _leapfrog(
    value_and_gradient: ValueAndGradient, point: Points, step_size: float
) -> Points:
    start = PhasePoint(point.position, point.momentum, -point.gradient)
    position, half_momentum = start_step(start, step_size, None)
    log_prob, gradient = value_and_gradient(position)
    momentum = finish_step(half_momentum, -gradient, step_size)
    return Points(position, momentum, log_prob, gradient)


def _end_segments(
    point: Points,
    chain: _Chain,
    is_usable: tf.Tensor,
    log_ratio: tf.Tensor,
    noise: _Noise,
    num_leapfrog_steps: int,
) -> _Chain:
    """Tests the segments that are complete, and begins the next ones.

    A segment that met a non-finite point, or has diverged, ends at once: it is going to
    be rejected, so that further steps of it could only waste gradients.
    """
    age = chain.age + 1
    ended = ~is_usable | (age >= num_leapfrog_steps)
    accepted = is_usable & (noise.log_uniform < log_ratio)
    origin = select_chains(accepted, point, chain.start)
    renewed = Points(origin.position, noise.momentum, origin.log_prob, origin.gradient)
    return _Chain(
        current=select_chains(ended, renewed, point),
        start=select_chains(ended, renewed, chain.start),
        age=tf.where(ended, 0, age),
    )


def _log_joint(point: Points) -> tf.Tensor:
    return point.log_prob - kinetic_energy(point.momentum, None)
