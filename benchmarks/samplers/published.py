"""The paper's algorithm as published: fixed step, training trajectories, cool-down."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import tensorflow as tf

import tfp_lhnn
from benchmarks.problem import Job, Run, Seconds, Tally
from benchmarks.samplers.chunks import Chain

__all__ = ["sample"]

_STEP_SIZE = 0.025
_NUM_FALLBACK_SAMPLES = 20
_MAX_ENERGY_DIFFS = {"max_hnn_energy_diff": 10.0, "max_energy_diff": 1000.0}
# The reference code's optimiser.
_OPTIMISER = {"batch_size": 1000, "learning_rate": 5e-4, "weight_decay": 1e-4}


def sample(
    job: Job,
    *,
    error_monitor: str,
    num_burnin_draws: int = 300,
    num_trajectories: int = 40,
    num_training_gradients: int = 400_000,
    num_training_steps: int = 10_000,
    num_leapfrog_steps: int = 400,
    max_tree_depth: int = 10,
) -> Run:
    """Training data, training, and NUTS on the network.

    Args:
        job: what to sample. The paper has one chain; several cost as much per draw and
            mix equally well.
        error_monitor: `"cooldown"` is the paper's.
        num_burnin_draws: of each chain.
        num_trajectories: of training, from dispersed starts.
        num_training_gradients: of all of them together.
        num_training_steps: of the optimiser.
        num_leapfrog_steps: between momentum draws in training: ten units of time at
            the paper's step.
        max_tree_depth: of NUTS.
    """
    problem, seed = job.problem, job.seed
    began = time.perf_counter()
    data = tfp_lhnn.simulate_training_data(
        problem.log_prob,
        problem.starts(num_trajectories, seed),
        num_trajectories=num_trajectories,
        num_steps=max(1, num_training_gradients // num_trajectories - 1),
        step_size=_STEP_SIZE,
        seed=seed,
        num_leapfrog_steps=num_leapfrog_steps,
    )
    network = tfp_lhnn.LatentHNN(problem.dim, base="none", seed=seed)
    history = tfp_lhnn.train(
        network, data, seed=seed, num_steps=num_training_steps, **_OPTIMISER
    )
    with warnings.catch_warnings():
        # The cool-down is not calibrated; the bias column shows the effect.
        warnings.filterwarnings("ignore", "supplied `TransitionKernel`")
        kernel = tfp_lhnn.LatentHNNNoUTurnSampler(
            problem.log_prob,
            network,
            step_size=_STEP_SIZE,
            max_tree_depth=max_tree_depth,
            num_fallback_samples=_NUM_FALLBACK_SAMPLES,
            error_monitor=error_monitor,
            **_MAX_ENERGY_DIFFS,
        )
        chain = Chain(kernel, tf.constant(job.starts), _trace)
        trained = time.perf_counter() - began
        burnin = chain.advance(num_burnin_draws, seed)
        kept = chain.advance(job.num_draws, seed + 1)
    totals = _totals(burnin.trace), _totals(kept.trace)
    gradients = totals[1][0] - totals[0][0]
    densities = totals[1][1] - totals[0][1]
    return Run(
        kept.draws,
        Tally(data.num_gradients + totals[0][0], totals[0][1]),
        Tally(gradients, densities),
        Seconds(chain.compiling, trained + burnin.seconds, kept.seconds),
        {
            "step_size": _STEP_SIZE,
            "training_gradients": data.num_gradients,
            "training_energy_error": float(history.energy_error),
            "leapfrogs_per_draw": float(np.mean(kept.trace["leapfrogs"])),
            "fallback_draws": float(np.mean(kept.trace["fallback"] > 0)),
        },
    )


def _trace(_: Any, results: Any) -> dict[str, tf.Tensor]:
    return {
        "gradients": results.target_gradients,
        "evaluations": results.target_evaluations,
        "leapfrogs": results.leapfrogs_taken,
        "fallback": results.fallback_remaining,
    }


def _totals(trace: dict[str, np.ndarray]) -> tuple[int, int]:
    """Gradients so far, and densities without a gradient."""
    gradients = int(trace["gradients"][-1].sum(dtype=np.int64))
    return gradients, int(trace["evaluations"][-1].sum(dtype=np.int64)) - gradients
