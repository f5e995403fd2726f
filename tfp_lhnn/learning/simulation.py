"""Training data by hand: true Hamiltonian trajectories from given starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_lhnn.evaluation.training_data import TrainingData
from tfp_lhnn.learning.hmc_trajectories import simulate_points
from tfp_lhnn.support.arguments import check_count, checked_step_size, stateless_seed

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

    Every evaluated point is kept but two kinds: points that are not finite, and points
    whose Hamiltonian exceeds that of their segment's start by more than 1000 nats, the
    divergence bound of the kernels. A step too long for the target leads there, to
    gradients beyond any use. Both are counted in `num_dropped`, and either ends its
    segment there and then by a rejection.

    A trajectory whose start is not finite begins at the start of another. The loop is
    compiled anew per call.

    Args:
      target_log_prob_fn: Takes the state, each part with a leading dimension
        `[num_trajectories]`, and returns log densities `[num_trajectories]`.
      initial_state: Starts, best widely dispersed: a Tensor `[starts, d]`, or `[d]`
        for one start, or a list of parts `[starts, ...]`; float32 or float64. Fewer
        starts than trajectories are used in turn.
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
    """
    check_count("num_trajectories", num_trajectories, minimum=1)
    check_count("num_steps", num_steps, minimum=1)
    check_count("num_leapfrog_steps", num_leapfrog_steps, minimum=1)
    points, is_usable = simulate_points(
        target_log_prob_fn,
        initial_state,
        stateless_seed(seed, "simulate_training_data"),
        num_trajectories=num_trajectories,
        num_steps=num_steps,
        num_leapfrog_steps=num_leapfrog_steps,
        step_size=checked_step_size(step_size),
        jit_compile=jit_compile,
    )
    trajectory = np.repeat(np.arange(num_trajectories), num_steps + 1)
    return TrainingData.of_finite_points(*points, trajectory, is_usable=is_usable)
