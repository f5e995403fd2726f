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

__all__ = ["Points", "ValueAndGradient", "simulate_points"]

# Energy error, in nats, beyond which a segment has diverged. It is the bound of the
# kernels (`max_energy_diff`) and of Stan: such a point has e^-1000 of the weight of its
# start, and a gradient that tells of the integrator rather than of the target.
_MAX_ENERGY_DIFF = 1000.0

# A point is of no use if the sum of its squared gradient is larger than this share of
# the largest number: whoever adds up the squares of many points, as a mean squared
# error does, gets infinity. In float32 that is a gradient of 10^16.
_USABLE_SHARE = 1e-6

ValueAndGradient = Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


class Points(NamedTuple):
    """Points of phase space where the target was evaluated, one per trajectory.

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
      is_usable: Whether a point has numbers to learn from and its segment has not
        diverged there, bool `[num_steps + 1, trajectories]`.
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
    value_and_gradient: ValueAndGradient,
    starts: tf.Tensor,
    seed: tf.Tensor,
    *,
    num_steps: int,
    num_leapfrog_steps: int,
    step_size: float,
    jit_compile: bool,
) -> tuple[Points, np.ndarray]:
    """Compiles and runs the trajectories; `simulate_training_data` says which.

    Args:
      value_and_gradient: Maps positions `[trajectories, d]` to log densities
        `[trajectories]` and their gradients `[trajectories, d]`.
      starts: One start per trajectory, `[trajectories, d]`.
      seed: A stateless seed, int32 `[2]`.
      num_steps: Leapfrog steps of each trajectory.
      num_leapfrog_steps: Steps between Metropolis tests and fresh momenta.
      step_size: The leapfrog step.
      jit_compile: Whether XLA compiles the loop.

    Returns:
      All points, as NumPy arrays `[trajectories * (num_steps + 1), ...]`, trajectory by
      trajectory and in the order of time; and which of them to learn from, bool. If no
      start is usable no step is made: the points then mean nothing, and none of them is
      to learn from.
    """
    noise = _draw_noise(seed, num_steps, starts)

    # Without AutoGraph, which would bury the messages of a bad target in its own.
    @tf.function(autograph=False, jit_compile=jit_compile)
    def simulate(starts: tf.Tensor, noise: _Noise) -> tuple[_History, tf.Tensor]:
        return _run_trajectories(
            value_and_gradient,
            starts,
            noise,
            num_leapfrog_steps=num_leapfrog_steps,
            step_size=step_size,
        )

    # Traced once by intention, so TensorFlow must not warn of retracing.
    compiled = simulate.get_concrete_function(starts, noise)
    history, any_usable = compiled(starts, noise)
    points = Points(*map(_by_trajectory, history.points))
    return points, _by_trajectory(history.is_usable) & bool(any_usable)


def _by_trajectory(x: tf.Tensor) -> np.ndarray:
    """`[time, trajectories, ...]` as `[trajectories * time, ...]`."""
    return x.numpy().swapaxes(0, 1).reshape(-1, *x.shape[2:])


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
      value_and_gradient: As `simulate_points` takes it.
      position: The starts, `[trajectories, d]`.
      noise: The random numbers; their first dimension sets the number of steps.
      num_leapfrog_steps: Steps between Metropolis tests and fresh momenta.
      step_size: The leapfrog step.

    Returns:
      The history, and whether any start was usable. If none was, no step is made, and
      the points mean nothing.
    """
    num_points = noise.momentum.shape[0]
    first = Points(position, noise.momentum[0], *value_and_gradient(position))
    is_usable = _has_usable_numbers(first)
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
        gain = _log_joint_gain(point, chain.start)
        is_usable = _has_usable_numbers(point) & (gain >= -_MAX_ENERGY_DIFF)
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


def _has_usable_numbers(point: Points) -> tf.Tensor:
    """Whether all is finite, and the gradient no larger than can be worked with."""
    usable = tf.math.is_finite(point.log_prob)
    for x in (point.position, point.momentum):
        usable &= tf.reduce_all(tf.math.is_finite(x), axis=-1)
    # False for NaN as well.
    square = tf.reduce_sum(tf.square(point.gradient), axis=-1)
    return usable & (square <= _USABLE_SHARE * square.dtype.max)


def _replace_unusable(first: Points) -> Points:
    """Lets a trajectory with an unusable start begin where another one does.

    It could not leave its own start, and all its gradients would be wasted. The usable
    starts are dealt out in turn; each trajectory keeps its own momentum.
    """
    is_usable = _has_usable_numbers(first)
    usable_first = tf.argsort(tf.cast(~is_usable, tf.int32), stable=True)
    trajectory = tf.range(tf.size(is_usable))
    num_usable = tf.maximum(tf.reduce_sum(tf.cast(is_usable, tf.int32)), 1)
    source = tf.gather(usable_first, trajectory % num_usable)
    source = tf.where(is_usable, trajectory, source)
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

    A segment that met an unusable point ends at once. It will be rejected anyway, so
    further steps would only waste gradients.
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


def _log_joint_gain(point: Points, start: Points) -> tf.Tensor:
    """By how much the log joint density is higher at `point` than at `start`.

    The log densities are subtracted first: beside large ones, the kinetic energies
    would be lost in rounding.
    """
    kinetic, kinetic_before = (kinetic_energy(x.momentum, None) for x in (point, start))
    return (point.log_prob - start.log_prob) - (kinetic - kinetic_before)
