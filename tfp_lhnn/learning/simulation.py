"""Training data by hand: true Hamiltonian trajectories from given starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_lhnn.evaluation.training_data import TrainingData
from tfp_lhnn.learning.hmc_trajectories import ValueAndGradient, simulate_points
from tfp_lhnn.support.arguments import check_count, checked_step_size, stateless_seed
from tfp_lhnn.support.state_layout import StateLayout, state_parts
from tfp_lhnn.support.target_calls import call_target

__all__ = ["simulate_training_data"]


def simulate_training_data(
    target_log_prob_fn: Callable[..., tf.Tensor],
    initial_state: Any,
    num_trajectories: int,
    num_steps: int,
    step_size: float,
    seed: Any,
    *,
    num_leapfrog_steps: int = 20,
    jit_compile: bool = True,
) -> TrainingData:
    """Simulates Hamiltonian trajectories with true gradients.

    All trajectories run in one batch. Each makes `num_steps` leapfrog steps; every
    `num_leapfrog_steps` of them end in a Metropolis test (a rejected segment goes back
    to its start) and a fresh momentum from N(0, I). The cost is
    `num_trajectories * (num_steps + 1)` gradients exactly.

    Points that are of no use are left out and counted in `num_dropped`:

    - points where something is not finite, or where the gradient is so large that the
      sum of its squares nears the largest number of the dtype (10^16 in float32);
    - points whose Hamiltonian exceeds that of their segment's start by more than 1000
      nats, the divergence bound of the kernels. Steps too long for the target lead
      there.

    Such a point ends its segment by a rejection. A trajectory whose start is such a
    point begins at the start of another. The loop is compiled anew per call.

    Args:
      target_log_prob_fn: Takes the state, each part with a leading dimension
        `[num_trajectories]`, and returns log densities `[num_trajectories]`.
      initial_state: Starts, best widely dispersed: a Tensor `[starts, d]`, or `[d]`
        for one start, or a list of parts `[starts, ...]`; float32 or float64. If there
        are fewer starts than trajectories, starts are used several times.
      num_trajectories: How many trajectories to run.
      num_steps: How many leapfrog steps each of them makes.
      step_size: The leapfrog step.
      seed: An int, a pair of ints, or an integer Tensor `[2]`; the same seed gives the
        same data.
      num_leapfrog_steps: Steps between momentum draws; the last segment may be shorter.
      jit_compile: Whether XLA compiles the loop; False for a target it cannot take.

    Returns:
      The points kept, trajectory by trajectory and in the order of time.

    Raises:
      TypeError: If an argument or the target's value has a wrong type.
      ValueError: If an argument is out of range, the target's value has a wrong shape
        or no gradient, or the target is finite at none of the starts.
      Exception: Whatever the target raises, with a note that says how it was called.
    """
    check_count("num_trajectories", num_trajectories, minimum=1)
    check_count("num_steps", num_steps, minimum=1)
    check_count("num_leapfrog_steps", num_leapfrog_steps, minimum=1)
    step_size = checked_step_size(step_size)
    seed = stateless_seed(seed, "simulate_training_data")
    if not callable(target_log_prob_fn):
        raise TypeError(
            f"`target_log_prob_fn` is a {type(target_log_prob_fn).__name__}; expected "
            "a callable."
        )
    layout, starts = _deal_starts(initial_state, num_trajectories)
    evaluate = _checked_value_and_gradient(
        lambda flat: call_target(target_log_prob_fn, layout.unflatten(flat)),
        starts.dtype,
        num_trajectories,
    )
    try:
        points, is_usable = simulate_points(
            evaluate,
            starts,
            seed,
            num_steps=num_steps,
            num_leapfrog_steps=num_leapfrog_steps,
            step_size=step_size,
            jit_compile=jit_compile,
        )
    except tf.errors.OpError as error:
        if jit_compile:
            error.add_note("If XLA cannot take the target, pass `jit_compile=False`.")
        raise
    if not is_usable.any():
        raise ValueError(
            "`target_log_prob_fn` or its gradient is not finite, or too large to work "
            "with, at all starts in `initial_state`; expected a start of finite "
            "density."
        )
    trajectory = np.repeat(np.arange(num_trajectories), num_steps + 1)
    return TrainingData.of_finite_points(*points, trajectory, is_usable=is_usable)


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
        gradient = _gradient(tape, log_prob, position)
        # The gradient of a gather comes as IndexedSlices.
        gradient = tf.ensure_shape(tf.convert_to_tensor(gradient), position.shape)
        return tf.ensure_shape(log_prob, [batch_size]), gradient

    return evaluate


def _gradient(
    tape: tf.GradientTape, log_prob: tf.Tensor, position: tf.Tensor
) -> tf.Tensor:
    """The gradient, of the shape of `position`; raises ValueError if there is none."""
    reason = (
        "its value does not depend on the state through differentiable TensorFlow "
        "operations."
    )
    try:
        gradient = tape.gradient(log_prob, position)
    except LookupError as error:  # an operation without a gradient
        gradient, reason = None, str(error)
    if gradient is None:
        raise ValueError(f"`target_log_prob_fn` has no gradient: {reason}")
    return gradient
