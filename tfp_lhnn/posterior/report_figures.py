"""Figures that only the report has: traces with ranks, and energies."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from tfp_lhnn.posterior import plots
from tfp_lhnn.posterior.convergence import chain_groups, evenly_spaced, num_groups

__all__ = ["energy_figure", "panels", "trace_figure", "trace_note"]

# With more traces, no single one can be followed.
_MAX_CHAINS = 12
_MAX_TRACE_POINTS = 1000  # per chain, more than a figure of 700 pixels can show
_RANK_BINS = 20

# Narrow, so that a phone shows the letters of a figure at a readable size.
_WIDTH = 4.6

_CHAIN_COLOURS = (
    *(plots.BLUE, plots.ORANGE, plots.GREEN, plots.VERMILLION),
    *("#CC79A7", "#56B4E9", "#000000"),
)


def trace_note(num_chains: int, num_draws: int) -> str:
    """Sentences that say how to read the figures of traces and ranks."""
    note = "Where chains disagree, traces part and ranks leave the dashed line."
    if num_chains > _MAX_CHAINS:
        note += (
            f" Shown are {_MAX_CHAINS} of {num_chains:,} chains, from the one with the "
            "smallest mean to the one with the largest."
        )
    if number := num_groups(num_chains, num_draws):
        shown = f"{_MAX_CHAINS} of " if number > _MAX_CHAINS else ""
        note += (
            f" Ranks are those of {shown}{number} groups of chains that began near "
            "each other, in the later half of the draws; R-hat compares these groups."
        )
    return note


def trace_figure(name: str, values: np.ndarray) -> Figure:
    """Traces and ranks of one scalar.

    Args:
        name: of the scalar.
        values: `[chains, draws]`. At most a dozen chains are shown.
    """
    num_chains, num_draws = values.shape
    figure = Figure(figsize=(_WIDTH, 3.8), layout="constrained")
    trace, rank = figure.subplots(2, 1, height_ratios=(1.5, 1))
    step = -(-num_draws // _MAX_TRACE_POINTS)
    draws = np.arange(0, num_draws, step)
    shown = _shown_chains(values)
    for i, chain in enumerate(shown):
        trace.plot(draws, values[chain, ::step], color=_colour(i), lw=0.5, alpha=0.8)
    # Short chains are ranked in groups, because each has too few draws for a histogram.
    is_grouped = num_groups(num_chains, num_draws) > 0
    compared = chain_groups(values) if is_grouped else values
    rows = evenly_spaced(len(compared), _MAX_CHAINS) if is_grouped else shown
    number = compared.shape[1]
    edges = np.linspace(0, compared.size, min(_RANK_BINS, number) + 1)
    expected = number / (len(edges) - 1)
    ranks = _ranks(compared)
    for i, row in enumerate(rows):
        share = np.histogram(ranks[row], edges)[0] / expected
        rank.stairs(share, edges / compared.size, baseline=None, color=_colour(i))
    trace.set_title(name, parse_math=False)
    trace.set(xlabel="draw", xlim=(0, num_draws))
    rank.axhline(1.0, color="0.4", lw=0.8, ls="--")
    rank.set(xlabel="rank among all draws", ylabel="frequency", xlim=(0, 1))
    rank.set_ylim(bottom=0)
    for axes in (trace, rank):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def energy_figure(energy: np.ndarray) -> Figure:
    """Distributions of the energy and of its changes from draw to draw.

    Args:
        energy: `[chains, draws]`.
    """
    axes = panels(1)[0]
    marginal = (energy - energy.mean()).ravel()
    change = np.diff(energy, axis=1).ravel()
    bins = list(np.histogram_bin_edges(np.concatenate([marginal, change]), 60))
    for name, values, colour in (
        ("energy", marginal, plots.BLUE),
        ("change per draw", change, plots.ORANGE),
    ):
        axes.hist(values, bins, density=True, color=colour, alpha=0.55, label=name)
    axes.set(xlabel="energy less its mean (nats)", ylabel="density", title="Energy")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper right", frameon=False, fontsize="small")
    return axes.figure


def panels(number: int) -> list[Any]:
    """Axes, each in a figure of its own, so that a page can arrange them."""
    size = (_WIDTH, 3.2)
    return [Figure(size, layout="constrained").subplots() for _ in range(number)]


def _shown_chains(values: np.ndarray) -> np.ndarray:
    """Numbers of the chains to show: all, or a dozen evenly spaced by their means."""
    if len(values) <= _MAX_CHAINS:
        return np.arange(len(values))
    order = np.argsort(values.mean(axis=1), kind="stable")
    return order[evenly_spaced(len(values), _MAX_CHAINS)]


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks among all values, from zero on, of the same shape."""
    order = np.argsort(values.ravel(), kind="stable")
    return np.argsort(order, kind="stable").reshape(values.shape)


def _colour(number: int) -> str:
    return _CHAIN_COLOURS[number % len(_CHAIN_COLOURS)]
