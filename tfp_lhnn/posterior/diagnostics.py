"""Judges a run: its convergence, the network's errors, its costs, and warnings."""

import dataclasses
import math
import warnings
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

from tfp_lhnn.posterior.advice import Advice
from tfp_lhnn.posterior.convergence import (
    effective_sample_size,
    scalar_statistics,
    scalars,
    smallest_bfmi,
)
from tfp_lhnn.posterior.remedies import (
    NUM_DEVIATIONS,
    convergence_warnings,
    network_warnings,
    precision_warnings,
    sampler_warnings,
    stuck_chains,
)
from tfp_lhnn.posterior.summary import Summary
from tfp_lhnn.support.arviz_import import az

__all__ = ["SamplingWarning", "Summary", "summarize", "warn"]


class SamplingWarning(UserWarning):
    """Something is wrong with a run's draws. The message says what to do."""


def summarize(inference_data: az.InferenceData) -> Summary:
    """Judges a run by its draws, statistics and costs.

    Args:
        inference_data: what `sample` or `to_inference_data` made. Statistics that it
            does not hold are not judged.

    Returns:
        Numbers, and warnings with remedies.

    Raises:
        TypeError: if it is not an `InferenceData`.
        ValueError: if it has no group `posterior`.
    """
    if not isinstance(inference_data, az.InferenceData):
        kind = type(inference_data).__name__
        raise TypeError(f"`inference_data` is a {kind}; expected arviz.InferenceData.")
    if "posterior" not in inference_data.groups():
        raise ValueError("`inference_data` has no group `posterior`.")
    with warnings.catch_warnings():
        # NumPy warns of infinities, and of variables that are constant, such as the
        # corner of a Cholesky factor.
        warnings.simplefilter("ignore", RuntimeWarning)
        summary, drift_is_sure = _without_warnings(inference_data)
    attrs, stats = inference_data.attrs, inference_data.get("sample_stats", {})
    advice = Advice.of(attrs, is_delayed="delayed_acceptance_rate" in stats)
    log_prob = stats["lp"].to_numpy() if "lp" in stats else None
    imprecise = tuple(precision_warnings(log_prob))
    found = (
        *stuck_chains(inference_data.posterior, advice),
        *convergence_warnings(summary),
        *imprecise,
        *sampler_warnings(summary, advice, is_precise=not imprecise),
        *network_warnings(summary, attrs, advice, drift_is_sure=drift_is_sure),
    )
    return dataclasses.replace(summary, warnings=found)


def warn(summary: Summary, stacklevel: int = 2) -> None:
    """Issues each warning of a summary, as a `SamplingWarning`.

    Args:
        summary: what `summarize` returned.
        stacklevel: as in `warnings.warn`. With 2, warnings name the caller's line.
    """
    for message in summary.warnings:
        warnings.warn(message, SamplingWarning, stacklevel=stacklevel)


def _without_warnings(inference_data: az.InferenceData) -> tuple[Summary, bool]:
    """The numbers, and whether the drift is more than chance."""
    attrs, group = inference_data.attrs, inference_data.get("sample_stats", {})
    stats = {str(name): group[name].to_numpy() for name in group}
    posterior = inference_data.posterior
    rows = {
        name: scalar_statistics(values.astype(np.float64))
        for name, values in scalars(posterior)
    }
    table = pd.DataFrame.from_dict(rows, orient="index")
    error = None  # U − U_θ at the draws
    if "network_energy" in stats and "lp" in stats:
        error = -stats["lp"] - stats["network_energy"].astype(np.float64)
    drift, drift_is_sure = _drift(error)
    gradients = float(attrs.get("target_gradients", math.nan))
    evaluations = float(attrs.get("target_evaluations", math.nan))
    ess = _apply(np.min, table["ess_bulk"].to_numpy())
    summary = Summary(
        table=table,
        num_chains=int(posterior.sizes["chain"]),
        num_draws=int(posterior.sizes["draw"]),
        worst_r_hat=_apply(np.max, table["r_hat"].to_numpy()),
        min_ess_bulk=ess,
        min_ess_tail=_apply(np.min, table["ess_tail"].to_numpy()),
        bfmi=smallest_bfmi(stats["energy"]) if "energy" in stats else math.nan,
        divergences=_apply(np.sum, stats.get("diverging")),
        deep_trees=_apply(np.mean, stats.get("reached_max_treedepth")),
        fallbacks=_apply(np.sum, stats.get("fallback")),
        fallback_share=_apply(np.mean, stats.get("fallback")),
        delayed_acceptance=_delayed_acceptance(stats),
        network_energy_error=_apply(np.std, error),
        network_energy_drift=drift,
        outside_training_data=_apply(np.mean, stats.get("outside_training_data")),
        target_gradients=gradients,
        target_evaluations=evaluations,
        ess_per_gradient=_ratio(ess, gradients),
        ess_per_target_call=_ratio(ess, evaluations),
        break_even=_break_even(attrs, gradients, ess),
        warnings=(),
    )
    return summary, drift_is_sure


def _drift(error: np.ndarray | None) -> tuple[float, bool]:
    """How much the error changes from the first third of the draws to the last.

    Args:
        error: of the network's energy at the draws, `[chains, draws]`, if known.

    Returns:
        The difference of the means, and whether it is more than chance.
    """
    if error is None or error.shape[1] // 3 < 4 or not np.isfinite(error).all():
        return math.nan, False
    third = error.shape[1] // 3
    first, last = error[:, :third], error[:, -third:]
    standard_errors = (
        np.std(part) / math.sqrt(effective_sample_size(part, "mean"))
        for part in (first, last)
    )
    noise = math.hypot(*standard_errors)
    drift = float(last.mean() - first.mean())
    return drift, abs(drift) > NUM_DEVIATIONS * noise


def _delayed_acceptance(stats: dict[str, np.ndarray]) -> float:
    """Mean over the network's proposals; true transitions have none."""
    rate = stats.get("delayed_acceptance_rate")
    if rate is None:
        return math.nan
    proposed = ~stats.get("fallback", np.zeros(rate.shape, bool))
    return float(rate[proposed].mean()) if proposed.any() else math.nan


def _break_even(attrs: dict[str, Any], gradients: float, ess: float) -> float:
    """The number of effective samples at which this method costs as much as NUTS.

    That is the `n` that solves `fit + n * sampling = n * nuts`, with the gradients per
    effective sample of both methods.

    Args:
        attrs: of the run.
        gradients: of fit and sampling together.
        ess: effective samples of the run.
    """
    nuts = float(attrs.get("nuts_gradients_per_effective_sample", math.nan))
    fit = float(attrs.get("fit_gradients", math.nan))
    saved = nuts - _ratio(gradients - fit, ess)
    if math.isnan(saved):
        return math.nan
    return fit / saved if saved > 0.0 else math.inf


def _apply(function: Any, values: np.ndarray | None) -> float:
    """A statistic of the finite values; NaN if there are none."""
    known = np.empty(0) if values is None else values[np.isfinite(values)]
    return float(function(known)) if known.size else math.nan


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else math.inf
