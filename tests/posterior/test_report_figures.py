"""Figures of the report: what they show of few chains and of thousands."""

import numpy as np
import pytest

from tfp_lhnn.posterior.report_figures import (
    energy_figure,
    panels,
    trace_figure,
    trace_note,
)


def values(num_chains, num_draws, seed=0):
    return np.random.default_rng(seed).normal(size=(num_chains, num_draws))


def heights(patch):
    return np.asarray(patch.get_data().values)


def test_traces_and_ranks_of_few_chains():
    x = values(3, 100)
    x[2] += 10.0
    trace, rank = trace_figure("$x[0]", x).axes
    assert trace.get_title() == "$x[0]"  # as it is, no formula
    for line, chain in zip(trace.lines, x, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), chain)
    # All ranks of the last chain are in the last third of the bins.
    last = heights(rank.patches[2])
    assert (last[:13] == 0).all()
    # Frequencies of the chains add up to one of each draw.
    total = np.sum([heights(patch) for patch in rank.patches], axis=0)
    np.testing.assert_allclose(total, 3.0)


def test_ties_and_constants_have_a_figure():
    trace, rank = trace_figure("x", np.zeros((4, 30))).axes
    assert len(trace.lines) == len(rank.patches) == 4


def test_long_traces_are_thinned():
    (line, *_), _ = (axes.lines for axes in trace_figure("x", values(2, 2_500)).axes)
    assert len(line.get_xdata()) == 834
    assert line.get_xdata()[-1] == 2_499


@pytest.mark.parametrize(
    ("shape", "has", "has_not"),
    [
        ((4, 100), [], ["Shown", "groups"]),
        ((16, 100), ["Shown are 12 of 16", "of 4 groups"], []),
        ((20, 2_000), ["Shown are 12 of 20"], ["groups"]),
        ((2_000, 900), ["12 of 2,000 chains", "12 of 25 groups"], []),
    ],
)
def test_the_note_says_what_is_shown(shape, has, has_not):
    note = trace_note(*shape)
    assert all(text in note for text in has)
    assert not any(text in note for text in has_not)


def test_energies_are_shown_beside_their_changes():
    energy = 1e6 + values(4, 500)
    axes = energy_figure(energy).axes[0]
    low, high = axes.get_xlim()
    assert -15.0 < low < high < 15.0  # of the mean
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["energy", "change per draw"]


def test_panels_are_of_figures_of_their_own():
    one, other = panels(2)
    assert one.figure is not other.figure
