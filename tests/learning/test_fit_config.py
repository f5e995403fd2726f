"""The settings of `fit`: what they refuse."""

import dataclasses

import pytest

from tfp_lhnn import FitConfig


def test_the_usual_settings_pass_their_own_checks():
    assert dataclasses.replace(FitConfig(), num_steps=10).num_steps == 10


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_chains", 1),
        ("num_steps", 0),
        ("settle_share", 1.5),
        ("good_acceptance", -0.1),
        ("typical_margin", float("nan")),
        ("round_share", float("inf")),
    ],
)
def test_numbers_out_of_range_are_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"`{name}` is {value}"):
        FitConfig(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"), [("num_chains", 8.5), ("reserve", "0.3"), ("small_gain", True)]
)
def test_other_types_are_refused_by_name(name, value):
    with pytest.raises(TypeError, match=f"`{name}` is {value!r}"):
        FitConfig(**{name: value})
