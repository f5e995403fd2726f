"""Figures of stored results: growth with slopes, budgets, costs."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import matplotlib

from benchmarks.summary import Record, cost_for, find, fit_slope, series

matplotlib.use("Agg")
import matplotlib.pyplot as plt

__all__ = ["draw_figures"]

_SIZE = (6.4, 4.2)
_DPI = 110

# Of a record, how much of something it took.
Value = Callable[[Record], float]


class _Growth(NamedTuple):
    """One figure of the growth suite.

    Attributes:
        vary: what is on the horizontal axis.
        label: of that axis.
        values: by label, what is on the vertical.
    """

    vary: str
    label: str
    values: dict[str, Value]


_GROWTH = (
    _Growth(
        "dim",
        "dimension",
        {
            "gradients": lambda r: r["metrics"]["gradients"],
            "seconds": lambda r: r["metrics"]["seconds"],
            "memory, MB": lambda r: r["memory_mb"],
            "ESS": lambda r: r["metrics"]["ess_min"],
        },
    ),
    _Growth(
        "chains",
        "chains",
        {
            "ms per draw of all chains": lambda r: _milliseconds_per_draw(r),
            "memory, MB": lambda r: r["memory_mb"],
            "ESS": lambda r: r["metrics"]["ess_min"],
        },
    ),
    _Growth(
        "draws",
        "draws",
        {
            "ms per draw": lambda r: _milliseconds_per_draw(r),
            "memory, MB": lambda r: r["memory_mb"],
            "ESS": lambda r: r["metrics"]["ess_min"],
        },
    ),
    _Growth(
        "training",
        "training gradients",
        {
            "seconds of training and warm-up": lambda r: r["metrics"]["seconds_warmup"],
            "memory, MB": lambda r: r["memory_mb"],
            "ESS": lambda r: r["metrics"]["ess_min"],
        },
    ),
)


def _milliseconds_per_draw(record: Record) -> float:
    return 1e3 * record["metrics"]["seconds_sampling"] / record["draws"]


def draw_figures(records: list[Record], folder: pathlib.Path) -> list[tuple[str, str]]:
    """Draws what there are results for; file names and captions of what was drawn."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
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


def _growth_figure(
    growth: _Growth, kind: str, x: list[float], found: list[Record], path: pathlib.Path
) -> None:
    figure, axes = plt.subplots(figsize=_SIZE)
    for label, value in growth.values.items():
        y = [value(record) for record in found]
        slope, factor = fit_slope(x, y)
        (line,) = axes.loglog(x, y, "o", label=f"{label}: slope {slope:.2f}")
        axes.loglog(x, [factor * v**slope for v in x], color=line.get_color(), lw=1)
    _finish(figure, axes, growth.label, "", kind, path)


def _budget_figure(records: list[Record], path: pathlib.Path) -> bool:
    problems = sorted({r["problem"] for r in find(records, vary="budget")})
    if not problems:
        return False
    figure, (left, right) = plt.subplots(1, 2, figsize=(2 * _SIZE[0], _SIZE[1]))
    for problem in problems:
        x, found = series(records, "budget", problem=problem)
        metrics = [record["metrics"] for record in found]
        (line,) = left.loglog(x, [m["b2"] for m in metrics], "o-", label=problem)
        chance = [m["b2_noise"] for m in metrics]
        left.loglog(x, chance, ":", color=line.get_color())
        right.loglog(x, [m["ess_min"] for m in metrics], "o-", label=problem)
    left.set(xlabel="gradient budget", ylabel="b² (dotted: by chance)")
    left.legend()
    _finish(figure, right, "gradient budget", "smallest ESS", "", path)
    return True


def _cost_figure(
    records: list[Record], vary: str, label: str, path: pathlib.Path
) -> bool:
    samplers = sorted({r["sampler"] for r in find(records, suite="cost", vary=vary)})
    if not samplers:
        return False
    figure, axes = plt.subplots(figsize=_SIZE)
    for sampler in samplers:
        x, found = series(records, vary, suite="cost", sampler=sampler)
        y = [cost_for(record, "seconds", 1e4) for record in found]
        axes.loglog(x, y, "o-", label=sampler)
    _finish(figure, axes, label, "seconds for 10 000 effective samples", "", path)
    return True


def _finish(
    figure: Any, axes: Any, label: str, value: str, title: str, path: pathlib.Path
) -> None:
    axes.set(xlabel=label, ylabel=value, title=title)
    axes.grid(True, which="major", alpha=0.3)
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=_DPI)
    plt.close(figure)
