"""Arithmetic of the report: pure functions of stored results."""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "PAPER",
    "TUNED_NUTS",
    "PaperRow",
    "Record",
    "best_nuts",
    "break_even",
    "cost_for",
    "ess_per_gradient_at",
    "find",
    "fit_slope",
    "load",
    "predicted_seconds",
    "ratio",
    "series",
    "stored",
]

Record = dict[str, Any]

TUNED_NUTS = ("tfp_nuts", "tfp_windowed", "numpyro_nuts", "blackjax_nuts")


class PaperRow(NamedTuple):
    """A row of Table 1 of arXiv 2209.09349.

    Attributes:
        title: its posterior.
        lhnn_gradients: of LHNN-NUTS, training included.
        lhnn: ESS per gradient of LHNN-NUTS.
        nuts_gradients: of its NUTS, whose step is fixed.
        nuts: ESS per gradient of that.
    """

    title: str
    lhnn_gradients: float
    lhnn: float
    nuts_gradients: float
    nuts: float


PAPER = {
    "eight_gaussians": PaperRow("2-D eight Gaussians", 0.40e6, 0.0269, 15e6, 0.000707),
    "rosenbrock:10": PaperRow("10-D Rosenbrock", 0.42e6, 0.0368, 7e6, 0.00219),
    "german_credit": PaperRow("logistic regression", 0.40e6, 0.243, 1.2e6, 0.0777),
    "rough_well:100": PaperRow("100-D rough well", 0.42e6, 0.0065, 1.28e6, 0.00373),
}


def stored(folder: pathlib.Path) -> list[pathlib.Path]:
    """Results in a folder, oldest first; those of smoke only if there are no others."""
    paths = sorted(folder.glob("*-*-*.json"), key=lambda p: p.stem.split("-", 1)[1])
    others = [path for path in paths if not path.stem.startswith("smoke-")]
    return others or paths


def load(paths: Iterable[pathlib.Path]) -> tuple[list[Record], list[Record]]:
    """Results as they are stored, and the last record of each of their cases."""
    results = [json.loads(path.read_text()) for path in paths]
    last = {case["key"]: case for result in results for case in result["cases"]}
    return results, list(last.values())


def find(records: Iterable[Record], **fields: Any) -> list[Record]:
    """The records of cases that ran and have these fields."""
    return [
        record
        for record in records
        if record["status"] == "ok"
        and all(record[name] == value for name, value in fields.items())
    ]


def cost_for(record: Record, what: str, ess: float) -> float:
    """Gradients, calls or seconds until `ess` effective samples, warm-up included."""
    fixed, slope = _line(record, what)
    return fixed + slope * ess


def break_even(ours: Record, baseline: Record, what: str) -> float:
    """The number of effective samples above which ours costs no more than the baseline.

    0 if it is cheaper from the first on, infinite if it is never cheaper.
    """
    (our_fixed, our_slope), (fixed, slope) = _line(ours, what), _line(baseline, what)
    if our_slope >= slope:
        return 0.0 if our_fixed <= fixed and our_slope == slope else math.inf
    return max(0.0, (our_fixed - fixed) / (slope - our_slope))


def _line(record: Record, what: str) -> tuple[float, float]:
    """Cost of the warm-up, and of one effective sample after it."""
    metrics = record["metrics"]
    kept = metrics["seconds_sampling" if what == "seconds" else f"{what}_kept"]
    return metrics[what] - kept, kept / metrics["ess_min"]


def best_nuts(records: Iterable[Record], problem: str, what: str) -> Record | None:
    """The tuned NUTS that needs the least for 10 000 effective samples."""
    rivals = [
        record
        for record in find(records, problem=problem)
        if record["sampler"] in TUNED_NUTS
    ]
    return min(rivals, key=lambda record: cost_for(record, what, 1e4), default=None)


def ess_per_gradient_at(record: Record, num_draws: float) -> float:
    """ESS per gradient, all costs included, if the run had made `num_draws` draws."""
    metrics = record["metrics"]
    scale = num_draws / record["num_kept"]
    warmup = metrics["gradients"] - metrics["gradients_kept"]
    return scale * metrics["ess_min"] / (warmup + scale * metrics["gradients_kept"])


def ratio(first: float | None, second: float | None) -> float:
    """`first / second`; NaN if one is unknown, infinite if only `second` is 0."""
    if first is None or second is None or math.isnan(first) or math.isnan(second):
        return math.nan
    if second == 0:
        return math.nan if first == 0 else math.inf
    return first / second


def fit_slope(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Slope and factor of `y = factor · x ** slope`, by least squares of logarithms.

    Raises:
        ValueError: if there are fewer than two different `x`, or numbers below 0.
    """
    if len(set(x)) < 2 or min(*x, *y) <= 0:
        raise ValueError("a slope needs two different points or more, all above 0.")
    slope, intercept = np.polyfit(np.log(x), np.log(y), 1)
    return float(slope), float(np.exp(intercept))


def series(
    records: Iterable[Record], vary: str, **fields: Any
) -> tuple[list[float], list[Record]]:
    """Cases in which `vary` was varied, in the order of its values."""
    found = sorted(find(records, vary=vary, **fields), key=lambda r: r["value"])
    return [record["value"] for record in found], found


def predicted_seconds(
    record: Record, milliseconds: float, new_milliseconds: float, ess: float
) -> float:
    """Seconds until `ess` effective samples if a density took longer than it did.

    Args:
        record: of a target padded to `milliseconds`, where a gradient costs twice that.
        milliseconds: of one density of one point in that run.
        new_milliseconds: of one density in the prediction.
        ess: effective samples.
    """
    gradients = cost_for(record, "gradients", ess)
    densities = cost_for(record, "calls", ess) - gradients
    extra = (new_milliseconds - milliseconds) / 1e3
    return cost_for(record, "seconds", ess) + extra * (2.0 * gradients + densities)
