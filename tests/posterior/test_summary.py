"""What a summary prints: only what is known."""

import dataclasses
import math

import pandas as pd

from tfp_lhnn.posterior.summary import Summary

NUMBERS = [
    field.name
    for field in dataclasses.fields(Summary)
    if field.name not in ("table", "num_chains", "num_draws", "warnings")
]


def make(warnings=(), **known):
    unknown = dict.fromkeys(NUMBERS, math.nan)
    return Summary(
        table=pd.DataFrame(),
        num_chains=4,
        num_draws=1_000,
        warnings=warnings,
        **unknown | known,
    )


def test_what_is_not_known_is_left_out():
    assert make().items() == [("draws", "4 chains x 1,000")]
    assert str(make()) == "draws  4 chains x 1,000\nNo warnings."


def test_every_number_has_a_line():
    assert len(make(**dict.fromkeys(NUMBERS, 1.0)).items()) == 1 + len(NUMBERS)


def test_numbers_are_formatted_for_reading():
    summary = make(
        worst_r_hat=1.00449,
        min_ess_bulk=12_345.6,
        delayed_acceptance=0.4567,
        network_energy_drift=0.25,
        break_even=math.inf,
    )
    assert dict(summary.items()) == {
        "draws": "4 chains x 1,000",
        "worst R-hat": "1.004",
        "smallest ESS, bulk": "12,346",
        "delayed acceptance": "45.7%",
        "drift of that error": "+0.25 nats",
        "break-even against NUTS, ESS": "never",
    }
    # Values begin in one column.
    lines = str(summary).splitlines()[:-1]
    assert {line.rindex("  ") for line in lines} == {28}


def test_warnings_come_last():
    lines = str(make(warnings=("one", "two"))).splitlines()
    assert lines[-2:] == ["WARNING: one", "WARNING: two"]
