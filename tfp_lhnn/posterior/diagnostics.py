"""What a run is worth: convergence, the network's errors, costs, and warnings."""

import dataclasses
import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

with warnings.catch_warnings():
    # ArviZ announces its next major version once a day.
    warnings.simplefilter("ignore", FutureWarning)
    import arviz as az

from tfp_lhnn.posterior.remedies import (
    NUM_DEVIATIONS,
    convergence_warnings,
    network_warnings,
    sampler_warnings,
    stuck_chains,
)
from tfp_lhnn.posterior.summary import Summary

__all__ = ["SamplingWarning", "Summary", "summarize", "warn"]

# Of a scalar, that ArviZ is given at once, about.
_MOST_VALUES = 250_000


class SamplingWarning(UserWarning):
    """Something about a run's draws is off; the message says what to do."""


def summarize(inference_data: az.InferenceData) -> Summary:
    """Judges a run by its draws, statistics and costs.

    Args:
        inference_data: what `sample` or `to_inference_data` made. What it does not hold
            is left out of the judgement.

    Returns:
        Numbers, and warnings with remedies.

    Raises:
        TypeError: if it is no `InferenceData`.
        ValueError: if it has no group `posterior`.
    """
    if not isinstance(inference_data, az.InferenceData):
        kind = type(inference_data).__name__
        raise TypeError(f"`inference_data` is a {kind}; expected arviz.InferenceData.")
    if "posterior" not in inference_data.groups():
        raise ValueError("`inference_data` has no group `posterior`.")
    with warnings.catch_warnings():
        # Of constants, such as the corner of a Cholesky factor, and of infinities.
        warnings.simplefilter("ignore", RuntimeWarning)
        summary, drift_is_sure = _without_warnings(inference_data)
    found = (
        *stuck_chains(inference_data.posterior),
        *convergence_warnings(summary),
        *sampler_warnings(summary),
        *network_warnings(summary, inference_data.attrs, drift_is_sure),
    )
    return dataclasses.replace(summary, warnings=found)


def warn(summary: Summary, stacklevel: int = 2) -> None:
    """Issues each warning of what `summarize` returned, as `SamplingWarning`.

    Args:
        summary: what `summarize` returned.
        stacklevel: whose line they name, as in `warnings.warn`; 2 is the caller's.
    """
    for message in summary.warnings:
        warnings.warn(message, SamplingWarning, stacklevel=stacklevel)


def _without_warnings(inference_data: az.InferenceData) -> tuple[Summary, bool]:
    """The numbers, and whether the drift is more than chance."""
    attrs, group = inference_data.attrs, inference_data.get("sample_stats", {})
    stats = {str(name): group[name].to_numpy() for name in group}
    posterior = inference_data.posterior
    rows = {name: _row(x.astype(np.float64)) for name, x in scalars(posterior)}
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
        bfmi=_apply(np.min, az.bfmi(stats["energy"]) if "energy" in stats else None),
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


def scalars(posterior: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Names, as ArviZ has them, and values `[chains, draws]` of all scalars."""
    labeller = az.labels.BaseLabeller()
    posterior = posterior.transpose("chain", "draw", ...)
    for *key, values in az.sel_utils.xarray_var_iter(posterior, combined=True):
        yield labeller.make_label_flat(*key), np.asarray(values)


def _row(values: np.ndarray) -> dict[str, float]:
    """Statistics of one scalar, `[chains, draws]`."""
    row = {"mean": float(np.mean(values)), "sd": float(np.std(values, ddof=1))}
    row |= dict.fromkeys(("mcse_mean", "ess_bulk", "ess_tail", "r_hat"), math.nan)
    # ArviZ needs four draws, and would log a line for each scalar that it refuses.
    if values.shape[1] >= 4 and np.isfinite(values).all():
        row["mcse_mean"] = row["sd"] / math.sqrt(_ess(values, "mean"))
        row["ess_bulk"] = _ess(values, "bulk")
        row["ess_tail"] = _ess(values, "tail")
        if len(values) >= 2:
            # Of very many draws every k-th one tells the same.
            stride = -(-values.size // _MOST_VALUES)
            stride = min(stride, values.shape[1] // 4)
            row["r_hat"] = float(az.rhat(values[:, ::stride]))
    return row


def _ess(values: np.ndarray, method: str) -> float:
    """ArviZ's ESS of `[chains, draws]`.

    Very many values are taken a group of chains at a time, and the groups' ESS added:
    ArviZ needs a hundred bytes for a value. (Groups that disagree show in R-hat.)
    """
    num_groups = max(1, min(values.size // _MOST_VALUES, len(values) // 4))
    groups = np.array_split(values, num_groups)
    return float(sum(az.ess(group, method=method) for group in groups))


def _drift(error: np.ndarray | None) -> tuple[float, bool]:
    """Last third's mean less the first's, and whether chance could hardly do it."""
    if error is None or error.shape[1] // 3 < 4 or not np.isfinite(error).all():
        return math.nan, False
    third = error.shape[1] // 3
    first, last = error[:, :third], error[:, -third:]
    noise = math.hypot(
        *(np.std(part) / math.sqrt(_ess(part, "mean")) for part in (first, last))
    )
    drift = float(last.mean() - first.mean())
    return drift, abs(drift) > NUM_DEVIATIONS * noise


def _delayed_acceptance(stats: dict[str, np.ndarray]) -> float:
    """Mean over the network's proposals: a true transition has nothing to accept."""
    rate = stats.get("delayed_acceptance_rate")
    if rate is None:
        return math.nan
    proposed = ~stats.get("fallback", np.zeros(rate.shape, bool))
    return float(rate[proposed].mean()) if proposed.any() else math.nan


def _break_even(attrs: dict[str, Any], gradients: float, ess: float) -> float:
    """Where `fit + n * (sampling per effective sample)` meets `n * (NUTS's)`."""
    nuts = float(attrs.get("nuts_gradients_per_effective_sample", math.nan))
    fit = float(attrs.get("fit_gradients", math.nan))
    saved = nuts - _ratio(gradients - fit, ess)
    if math.isnan(saved):
        return math.nan
    return fit / saved if saved > 0.0 else math.inf


def _apply(function: Any, values: np.ndarray | None) -> float:
    """A statistic of the values that are finite; NaN if there are none."""
    known = np.empty(0) if values is None else values[np.isfinite(values)]
    return float(function(known)) if known.size else math.nan


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else math.inf
