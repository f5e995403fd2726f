"""`tfp_lhnn.sample`: what a user of this package calls."""

from __future__ import annotations

import time
import warnings
from typing import Any

import arviz as az
import numpy as np
import tensorflow as tf

import tfp_lhnn
from benchmarks.problem import Job, Run, Seconds, Tally

__all__ = ["sample"]

# Dispersed starts for the pilot, whatever the number of chains.
_NUM_STARTS = 16


def sample(
    job: Job,
    *,
    method: str,
    gradient_budget: int = 10_000,
    num_burnin_draws: int = 100,
    split_compiling: bool = False,
) -> Run:
    """Fit and draws. Burn-in counts as warm-up, but its time is part of the sampling.

    Args:
        job: what to sample.
        method: of `tfp_lhnn.sample`.
        gradient_budget: of all chains and phases.
        num_burnin_draws: of each chain.
        split_compiling: whether to draw once more from the same fit, when all is
            compiled. The time by which the first run took longer is called compilation.
            The fit's own compilation stays part of the warm-up.
    """
    problem, seed = job.problem, job.seed
    starts = tf.constant(problem.starts(_NUM_STARTS, seed))

    def draw(fit: tfp_lhnn.Fit | None) -> az.InferenceData:
        return tfp_lhnn.sample(
            job.num_draws,
            problem.log_prob,
            initial_state=starts,
            n_chains=job.num_chains,
            gradient_budget=gradient_budget,
            method=method,
            num_burnin_draws=num_burnin_draws,
            seed=[seed, 6],
            progress=False,
            fit=fit,
        )

    fit, compiling = None, 0.0
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", tfp_lhnn.SamplingWarning)
        if split_compiling:
            fit = tfp_lhnn.fit(
                problem.log_prob,
                starts,
                gradient_budget,
                seed=[seed, 6],
                progress=False,
            )
        posterior = draw(fit)
    seconds = time.perf_counter() - began
    sampling_seconds = float(posterior.attrs["seconds_sampling"])
    if split_compiling:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tfp_lhnn.SamplingWarning)
            again = float(draw(fit).attrs["seconds_sampling"])
        compiling = max(0.0, sampling_seconds - again)
    attrs, stats = posterior.attrs, posterior.sample_stats
    gradients = int(stats["target_gradients"].sum())
    # An evaluation with a gradient counts in both tallies.
    densities = int(stats["target_evaluations"].sum()) - gradients
    all_gradients = int(attrs["target_gradients"])
    all_densities = int(attrs["target_evaluations"]) - all_gradients
    return Run(
        np.asarray(posterior.posterior["x"]),
        Tally(all_gradients - gradients, all_densities - densities),
        Tally(gradients, densities),
        # What `sample` spends on diagnostics after the draws is warm-up here, too.
        Seconds(compiling, seconds - sampling_seconds, sampling_seconds - compiling),
        _settings(attrs),
        tuple(
            str(w.message)
            for w in caught
            if issubclass(w.category, tfp_lhnn.SamplingWarning)
        ),
    )


def _settings(attrs: dict[str, Any]) -> dict[str, Any]:
    names = (
        "gradient_budget",
        "fit_gradients",
        "fit_is_good",
        "fit_message",
        "fit_energy_error",
        "fit_acceptance",
        "num_surrogate_transitions",
    )
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in ((name, attrs[name]) for name in names if name in attrs)
    }
