"""R-hat, ESS and BFMI of few chains and of thousands."""

import math
import re

import numpy as np
import pytest
import xarray as xr

from tfp_lhnn.posterior.convergence import (
    chain_groups,
    effective_sample_size,
    num_groups,
)
from tfp_lhnn.posterior.diagnostics import summarize
from tfp_lhnn.posterior.html_report import report
from tfp_lhnn.posterior.report_figures import trace_figure
from tfp_lhnn.support.arviz_import import az

MANY, SHORT = 2_000, 50


def autoregression(shape, correlation, seed=0):
    """Stationary chains, standard normal at each draw, `[chains, draws]`."""
    x = np.random.default_rng(seed).normal(size=shape)
    for i in range(1, shape[1]):
        x[:, i] *= math.sqrt(1.0 - correlation**2)
        x[:, i] += correlation * x[:, i - 1]
    return x


def data_of(x, **stats):
    """A run with the variable `x`; ArviZ's own constructor warns of many chains."""

    def dataset(arrays):
        return xr.Dataset({name: (("chain", "draw"), a) for name, a in arrays.items()})

    return az.InferenceData(posterior=dataset({"x": x}), sample_stats=dataset(stats))


def summary_of(x, **stats):
    return summarize(data_of(x, **stats))


def r_hat_warnings(summary):
    return [text for text in summary.warnings if text.startswith("R-hat")]


# Draws worth one each, and draws worth a third: 16 effective ones in a chain.
@pytest.mark.parametrize("correlation", [0.0, 0.5])
@pytest.mark.parametrize("num_chains", [100, MANY])
def test_many_short_chains_that_are_good_raise_no_alarm(num_chains, correlation):
    shape = (num_chains, SHORT)
    energy = autoregression(shape, correlation, seed=1)
    summary = summary_of(autoregression(shape, correlation), energy=energy)
    assert summary.warnings == ()
    assert summary.min_ess_bulk > 1_000
    # E (x' - x)² / var x, of all chains; the smallest of 2 000 would be far off.
    assert summary.bfmi == pytest.approx(2.0 * (1.0 - correlation), rel=0.1)


@pytest.mark.parametrize("order", ["apart", "mixed"])
@pytest.mark.parametrize("share", [0.5, 0.1, 0.05])
def test_chains_that_stay_in_one_of_two_modes_are_found(order, share):
    x = autoregression((MANY, SHORT), 0.0)
    is_other = np.arange(MANY) < share * MANY
    if order == "mixed":
        is_other = np.random.default_rng(2).permutation(is_other)
    summary = summary_of(x + 3.0 * is_other[:, np.newaxis])
    assert summary.worst_r_hat > 1.05
    assert len(r_hat_warnings(summary)) == 1


def test_chains_that_forget_slowly_are_found():
    # Half a run later a chain still knows where it began: 0.98^25 = 0.6.
    summary = summary_of(autoregression((MANY, SHORT), 0.98))
    assert len(r_hat_warnings(summary)) == 1


def test_a_drift_that_all_chains_share_is_found():
    x = autoregression((MANY, SHORT), 0.0) + np.exp(-np.arange(SHORT) / 5.0)
    assert len(r_hat_warnings(summary_of(x))) == 1


def test_chains_of_unlike_scales_are_found():
    x = autoregression((MANY, SHORT), 0.0)
    x[: MANY // 4] *= 4.0
    assert len(r_hat_warnings(summary_of(x))) == 1


# Few chains, or long ones.
@pytest.mark.parametrize("shape", [(4, 50), (4, 300), (15, 50), (16, 1000)])
def test_elsewhere_r_hat_is_arviz_own(shape):
    x = autoregression(shape, 0.5)
    assert summary_of(x).worst_r_hat == pytest.approx(float(az.rhat(x)), rel=1e-12)


@pytest.mark.parametrize("num_chains", [4, 16, MANY])
def test_400_effective_samples_are_asked_for_in_all(num_chains):
    summary = summary_of(autoregression((num_chains, 250), 0.0))
    assert not any("ESS" in text for text in summary.warnings)
    # Copies of one chain: the ESS stays that of a few draws.
    slow = summary_of(autoregression((4, 250), 0.9))
    (message,) = (text for text in slow.warnings if "bulk ESS" in text)
    assert "expected 400 in all chains together" in message
    factor = int(re.search(r"about (\d+) times", message)[1])
    assert factor == math.ceil(400 / slow.min_ess_bulk)


@pytest.mark.parametrize(
    ("shape", "number"),
    [
        ((15, 50), 0),  # few chains
        ((16, 3), 0),  # too short for any R-hat
        ((16, 50), 4),
        ((16, 1_000), 0),  # long chains
        ((2_000, 50), 12),  # 4 000 later draws in each group
        ((2_000, 900), 25),  # 100 000 values in all
    ],
)
def test_chains_are_grouped_if_they_are_many_and_short(shape, number):
    assert num_groups(*shape) == number


@pytest.mark.parametrize("method", ["mean", "bulk", "tail"])
def test_the_ess_of_very_many_values_is_scaled_from_some_chains(method):
    # 200 of 400 chains are looked at. AR(1) draws with 0.5 are worth a third of a draw.
    values = autoregression((400, 500), 0.5)
    found = effective_sample_size(values, method)
    assert found == pytest.approx(float(az.ess(values, method=method)), rel=0.1)
    if method == "mean":
        assert found == pytest.approx(400 * 500 / 3, rel=0.1)


def test_groups_are_of_chains_that_began_near_each_other():
    # The mean of the first two draws is 7, 6, ..., 0; two chains are left over.
    values = np.zeros((18, 4))
    values[:, :2] = np.arange(17, -1, -1)[:, np.newaxis]
    values[:, 2] = np.arange(18)
    values[:, 3] = 100 + np.arange(18)
    groups = chain_groups(values)
    np.testing.assert_array_equal(groups[0], [15, 14, 13, 12, 115, 114, 113, 112])
    np.testing.assert_array_equal(groups[3], [3, 2, 1, 0, 103, 102, 101, 100])
    assert groups.shape == (4, 8)


def test_a_figure_of_thousands_of_chains_has_a_dozen_lines():
    values = autoregression((MANY, SHORT), 0.0)
    values[777] += 10.0
    trace, rank = trace_figure("x", values).axes
    assert len(trace.lines) == 12
    # The chain that is off is among them.
    assert max(line.get_ydata().mean() for line in trace.lines) > 9.0
    assert len(rank.patches) == 12


def test_a_figure_of_few_chains_shows_each():
    trace, rank = trace_figure("x", autoregression((12, SHORT), 0.0)).axes
    assert len(trace.lines) == len(rank.patches) == 12


def test_the_page_says_how_many_chains_it_shows(tmp_path):
    def page(num_chains):
        x = autoregression((num_chains, SHORT), 0.0)
        return report(data_of(x), tmp_path / "page.html").read_text(encoding="utf-8")

    assert "Shown are 12 of 2,000 chains" in (text := page(MANY))
    assert "12 groups of chains" in text
    assert "Shown are" not in (text := page(12))
    assert "groups" not in text
