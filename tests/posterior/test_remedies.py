"""Warnings name what their reader can do; large log densities name float64."""

import numpy as np
import pytest
import xarray as xr

from tfp_lhnn.posterior.advice import Advice
from tfp_lhnn.posterior.diagnostics import summarize
from tfp_lhnn.posterior.remedies import (
    MAX_SPACING,
    precision_warnings,
    stuck_chains,
)
from tfp_lhnn.support.arviz_import import az

# What only the arguments of kernels are, and of `sample`.
OF_KERNELS = ("step size", "max_tree_depth", "true_transition", "surrogate transitions")
OF_SAMPLE = ("method=",)


def dataset(**arrays):
    return xr.Dataset({name: (("chain", "draw"), a) for name, a in arrays.items()})


def all_wrong(method, *, is_delayed=True, **attrs):
    """Warnings of a run in which all goes wrong."""
    shape = (4, 200)
    generator = np.random.default_rng(0)
    x = generator.normal(size=shape)
    x[1] = 3.0
    lp = generator.normal(size=shape)
    stats = {
        "lp": lp,
        "energy": np.sort(generator.normal(size=shape), axis=1),
        "diverging": np.ones(shape, bool),
        "reached_max_treedepth": np.ones(shape, bool),
        "fallback": generator.uniform(size=shape) < 0.8,
        "network_energy": -lp + np.linspace(0.0, 3.0, 200),
        "outside_training_data": np.ones(shape, bool),
    }
    if is_delayed:
        stats["delayed_acceptance_rate"] = np.full(shape, 0.1)
    attrs |= {"method": method} if method else {}
    data = az.InferenceData(
        posterior=dataset(x=x), sample_stats=dataset(**stats), attrs=attrs
    )
    return summarize(data).warnings


@pytest.mark.parametrize("is_delayed", [True, False])
def test_who_calls_sample_is_told_of_its_arguments(is_delayed):
    method = "delayed_acceptance" if is_delayed else "nuts"
    spent = {"fit_gradients": 900, "gradient_budget": 1_000}
    found = all_wrong(method, is_delayed=is_delayed, **spent)
    assert len(found) == (10 if is_delayed else 9)
    text = " ".join(found)
    assert not any(name in text for name in OF_KERNELS)
    assert "larger `gradient_budget`" in text
    assert ('method="nuts"' in text) is is_delayed


@pytest.mark.parametrize("is_delayed", [True, False])
def test_who_builds_a_kernel_is_told_of_its_arguments(is_delayed):
    text = " ".join(all_wrong(None, is_delayed=is_delayed))
    assert not any(name in text for name in OF_SAMPLE)
    assert "gradient_budget" not in text
    assert "train the network on more gradients" in text
    assert "step size" in text
    assert "max_tree_depth" in text
    assert ("true_transition_probability" in text) is is_delayed
    assert ("error_monitor" in text) is not is_delayed


def test_a_larger_budget_is_no_remedy_for_one_that_was_not_spent():
    text = " ".join(all_wrong("nuts", fit_gradients=300, gradient_budget=1_000))
    assert "larger `gradient_budget`" not in text
    assert "wider `hidden_units`" in text


# One half of the spacing of float32 is reached at 65 536, and the whole at 131 072.
@pytest.mark.parametrize(
    ("size", "dtype", "is_warned"),
    [
        (60_000, "float32", False),
        (140_000, "float32", True),
        (1e7, "float32", True),
        (1e7, "float64", False),
        (1e15, "float64", True),
        (0, "float32", False),
    ],
)
def test_log_densities_too_large_for_their_dtype(size, dtype, is_warned):
    noise = np.random.default_rng(0).normal(size=(4, 50))
    for sign in (1, -1):
        log_prob = (sign * size + noise).astype(dtype)
        found = list(precision_warnings(log_prob))
        assert len(found) == is_warned
        spacing = np.spacing(np.abs(log_prob[0, 0]))
        assert (spacing > MAX_SPACING) is np.bool_(is_warned)
        remedy = "in float64" if dtype == "float32" else "Leave constants out"
        assert all(f"{dtype} has" in text and remedy in text for text in found)
        assert all(f"about {log_prob[0, 0]:.1e}" in text for text in found)


def test_log_densities_that_say_nothing():
    for log_prob in (None, np.full((2, 3), np.nan), np.full((2, 3), -np.inf, "f")):
        assert not list(precision_warnings(log_prob))
    # A few that are off do not matter.
    log_prob = np.zeros((4, 100), np.float32)
    log_prob[0, :5] = -1e30
    assert not list(precision_warnings(log_prob))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bfmi_of_rounded_energies_is_not_warned_of(dtype):
    generator = np.random.default_rng(0)
    shape = (4, 300)
    x = generator.normal(size=shape)
    stats = {
        "lp": (-1e7 - 0.5 * x**2).astype(dtype),
        "energy": 1e7 + np.sort(generator.normal(size=shape), axis=1),
    }
    data = az.InferenceData(posterior=dataset(x=x), sample_stats=dataset(**stats))
    (message,) = summarize(data).warnings
    assert ("BFMI" in message) is (dtype == "float64")
    assert ("in float64" in message) is (dtype == "float32")


def test_stuck_chains_are_named_by_number():
    advice = Advice.of({}, is_delayed=True)
    x = np.random.default_rng(0).normal(size=(20, 100))
    assert not list(stuck_chains(dataset(x=x), advice))
    x[3:15, 10:80] = 0.0
    (message,) = stuck_chains(dataset(x=x), advice)
    assert message.startswith("Chain 3 is stuck: it moved in 30.3% of its draws")
    assert "11 more chains are stuck (4, 5, 6, 7, 8, 9, 10, 11, ...)" in message
