"""Figures of stored results: efficiency beside bias, growth with slopes, costs."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np

from benchmarks.cells import title
from benchmarks.samplers import SAMPLERS
from benchmarks.summary import (
    PAPER,
    Record,
    cost_for,
    ess_per_gradient_at,
    find,
    fit_slope,
    series,
)

matplotlib.use("Agg")
import matplotlib.pyplot as plt

__all__ = ["draw_figures"]

_PANEL = (3.6, 3.2)  # inches
_DPI = 110
# Each sampler has one look in all figures; those of one kind share a marker.
_LOOKS = {
    "ours": ("tab:red", "*"),
    "ours_nuts": ("tab:orange", "*"),
    "published": ("tab:brown", "D"),
    "published_pointwise": ("tab:pink", "D"),
    "published_none": ("tab:gray", "D"),
    "tfp_nuts": ("tab:blue", "o"),
    "tfp_windowed": ("tab:cyan", "o"),
    "numpyro_nuts": ("tab:green", "o"),
    "blackjax_nuts": ("tab:purple", "o"),
    "blackjax_mclmc": ("tab:olive", "s"),
}

# A quantity of a record.
Value = Callable[[Record], float]


def _metric(name: str) -> Value:
    return lambda record: record["metrics"][name]


def _milliseconds_per_draw(record: Record) -> float:
    return 1e3 * record["metrics"]["seconds_sampling"] / record["draws"]


class _Growth(NamedTuple):
    """One figure of the growth suite.

    Attributes:
        vary: what is on the horizontal axes.
        label: of these axes.
        values: by label, what is on the vertical, in a panel each.
    """

    vary: str
    label: str
    values: dict[str, Value]


_MEMORY_AND_ESS: dict[str, Value] = {
    "peak memory, MB": lambda record: record["memory_mb"],
    "smallest ESS": _metric("ess_min"),
}
_GROWTH = (
    _Growth(
        "dim",
        "dimension",
        {
            "gradients": _metric("gradients"),
            "seconds": _metric("seconds"),
            **_MEMORY_AND_ESS,
        },
    ),
    _Growth(
        "chains",
        "chains",
        {"ms per draw of all chains": _milliseconds_per_draw, **_MEMORY_AND_ESS},
    ),
    _Growth(
        "draws", "draws", {"ms per draw": _milliseconds_per_draw, **_MEMORY_AND_ESS}
    ),
    _Growth(
        "training",
        "training gradients",
        {"seconds of warm-up": _metric("seconds_warmup"), **_MEMORY_AND_ESS},
    ),
)


def draw_figures(records: list[Record], folder: pathlib.Path) -> list[tuple[str, str]]:
    """Draws the figures that have results; returns their file names and captions."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    if _paper_figure(records, folder / "bench_paper.png"):
        caption = "The paper's posteriors: effective samples per gradient, and bias."
        drawn.append(("bench_paper.png", caption))
    for growth in _GROWTH:
        kinds = {
            record["problem"].split(":")[0]
            for record in find(records, suite="growth", vary=growth.vary)
        }
        for kind in sorted(kinds):
            chosen = [r for r in records if r["problem"].split(":")[0] == kind]
            x, found = series(chosen, growth.vary, suite="growth")
            if len(set(x)) > 1:
                name = f"bench_growth_{growth.vary}_{kind}.png"
                _growth_figure(growth, kind, x, found, folder / name)
                drawn.append((name, f"Growth with {growth.label}: {kind}."))
    if _budget_figure(records, folder / "bench_budget.png"):
        drawn.append(("bench_budget.png", "Error and ESS against the gradient budget."))
    for vary, label in (("rows", "rows"), ("milliseconds", "ms of one density")):
        name = f"bench_cost_{vary}.png"
        if _cost_figure(records, vary, label, folder / name):
            drawn.append((name, f"Seconds for 10 000 effective samples by {label}."))
    return drawn


def _paper_figure(records: list[Record], path: pathlib.Path) -> bool:
    """Efficiency upwards, error to the right; hollow markers where a z-test fails."""
    found = find(records, suite="paper")
    problems = [p for p in PAPER if any(r["problem"] == p for r in found)]
    if not problems:
        return False
    label = "b² (hollow: z-tests fail)"
    figure, axes = _panels(len(problems), label, sharex=True, sharey=True)
    handles = {}
    for panel, problem in zip(axes, problems, strict=True):
        for record in (r for r in found if r["problem"] == problem):
            color, marker = _LOOKS[record["sampler"]]
            (handles[title(record)],) = panel.loglog(
                record["metrics"]["b2"],
                ess_per_gradient_at(record, 1e5),
                marker,
                color=color,
                markerfacecolor=color if record["metrics"]["z_pass"] else "none",
                markersize=11 if marker == "*" else 6,
            )
        handles["paper: LHNN-NUTS"] = panel.axhline(
            PAPER[problem].lhnn, color="k", ls=":", lw=1
        )
        panel.set_title(PAPER[problem].title)
    axes[0].set_ylabel("ESS / gradient at 100 000 draws")
    _save(figure, path, handles)
    return True


def _growth_figure(
    growth: _Growth, kind: str, x: list[float], found: list[Record], path: pathlib.Path
) -> None:
    figure, axes = _panels(len(growth.values) + 1, growth.label)
    for panel, (label, value) in zip(axes, growth.values.items(), strict=False):
        y = [value(record) for record in found]
        slope, factor = fit_slope(x, y)
        panel.loglog(x, y, "o")
        panel.loglog(x, [factor * v**slope for v in x], "k", lw=1)
        panel.set_title(f"{label}: slope {slope:.2f}")
    _bias(axes[-1], x, found, color="tab:blue")
    figure.suptitle(kind)
    _save(figure, path)


def _budget_figure(records: list[Record], path: pathlib.Path) -> bool:
    problems = sorted({r["problem"] for r in find(records, vary="budget")})
    if not problems:
        return False
    figure, (left, right) = _panels(2, "gradient budget")
    handles = {}
    for problem in problems:
        x, found = series(records, "budget", problem=problem)
        y = [record["metrics"]["ess_min"] for record in found]
        (handles[problem],) = right.loglog(x, y, "o-")
        _bias(left, x, found, color=handles[problem].get_color())
    right.set_title("smallest ESS")
    _save(figure, path, handles)
    return True


def _cost_figure(
    records: list[Record], vary: str, label: str, path: pathlib.Path
) -> bool:
    found = find(records, suite="cost", vary=vary)
    samplers = [name for name in SAMPLERS if any(r["sampler"] == name for r in found)]
    if not samplers:
        return False
    figure, (left, right) = _panels(2, label)
    handles = {}
    for sampler in samplers:
        x, found = series(records, vary, suite="cost", sampler=sampler)
        y = [cost_for(record, "seconds", 1e4) for record in found]
        color, marker = _LOOKS[sampler]
        (handles[SAMPLERS[sampler].title],) = left.loglog(
            x, y, f"{marker}-", color=color
        )
        _bias(right, x, found, color=color)
    left.set_title("seconds for 10 000 effective samples")
    _save(figure, path, handles)
    return True


def _bias(axes: Any, x: Sequence[float], found: list[Record], color: str) -> None:
    axes.loglog(x, [r["metrics"]["b2"] for r in found], "o-", color=color)
    axes.loglog(x, [r["metrics"]["b2_noise"] for r in found], ":", color=color)
    axes.set_title("b² (dotted: by chance)")


def _panels(number: int, label: str, **shared: bool) -> tuple[Any, Sequence[Any]]:
    figure, axes = plt.subplots(
        1,
        number,
        figsize=(number * _PANEL[0], _PANEL[1]),
        squeeze=False,
        layout="constrained",
        **shared,
    )
    for panel in axes[0]:
        panel.set_xlabel(label)
        panel.grid(True, which="major", alpha=0.3)
    return figure, axes[0]


def _save(
    figure: Any, path: pathlib.Path, handles: dict[str, Any] | None = None
) -> None:
    if handles:
        figure.legend(
            list(handles.values()),
            list(handles),
            loc="outside lower center",
            ncols=min(len(handles), 6),
            fontsize="small",
        )
    for panel in figure.axes:
        panel.autoscale(False)  # it warns of data that are all the same
        beside = panel.get_shared_x_axes().get_siblings(panel)
        panel.set_xlim(_decades([other.dataLim.intervalx for other in beside]))
        beside = panel.get_shared_y_axes().get_siblings(panel)
        panel.set_ylim(_decades([other.dataLim.intervaly for other in beside]))
    figure.savefig(path, dpi=_DPI)
    plt.close(figure)


def _decades(intervals: list[Any]) -> tuple[float, float]:
    """Limits at whole decades: slopes keep their steepness, and ticks have room."""
    first, last = np.floor(np.log10(np.min(intervals))), np.log10(np.max(intervals))
    return 10.0**first, 10.0 ** max(np.ceil(last), first + 1.0)
