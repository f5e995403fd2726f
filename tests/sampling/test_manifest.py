"""What a checkpoint knows of its run, and which runs it takes for the same."""

import json
import math

import numpy as np
import pytest

from tfp_lhnn.sampling.manifest import (
    MANIFEST,
    ProbeValues,
    check_manifest,
    checked_identity,
    write_manifest,
)

NAN, INF = math.nan, math.inf
VALUES = (-1.25, 1e6, 0.0, NAN, -INF)


def written(directory, values=VALUES, rtol=1e-6):
    identity = checked_identity({"seed": 3, "probe": ProbeValues(values, rtol)})
    return write_manifest(directory, identity)


def checked(directory, values, rtol=1e-6):
    identity = checked_identity({"seed": 3, "probe": ProbeValues(values, rtol)})
    return check_manifest(directory, identity)


@pytest.mark.parametrize(
    "values",
    [
        VALUES,
        np.array(VALUES),
        (-1.25 * (1 + 9e-7), 1e6 + 0.9, 9e-7, NAN, -INF),
    ],
)
def test_values_within_the_tolerance_are_of_the_same_run(tmp_path, values):
    assert written(tmp_path) == checked(tmp_path, values)


@pytest.mark.parametrize(
    "values",
    [
        (-1.25 * (1 + 3e-6), 1e6, 0.0, NAN, -INF),
        (-1.25, 1e6 + 2.0, 0.0, NAN, -INF),
        (-1.25, 1e6, 3e-6, NAN, -INF),
        (-1.25, 1e6, 0.0, 0.0, -INF),
        (-1.25, 1e6, NAN, NAN, -INF),
        (-1.25, 1e6, 0.0, NAN, INF),
        (-1.25, 1e6, 0.0, NAN, -1e300),
        (-1.25, 1e6, 0.0, NAN),
        (),
    ],
)
def test_other_values_are_of_changed_data(tmp_path, values):
    written(tmp_path)
    with pytest.raises(ValueError, match=r"the log density has changed.*data") as error:
        checked(tmp_path, values)
    assert "probe: -1.25, 1000000, 0, ... there" in str(error.value)
    assert "seed" not in str(error.value)


def test_the_tolerance_is_that_of_the_run_at_hand(tmp_path):
    written(tmp_path, rtol=1e-9)
    other = (-1.25 * (1 + 1e-7), *VALUES[1:])
    checked(tmp_path, other, rtol=1e-6)
    with pytest.raises(ValueError, match="has changed"):
        checked(tmp_path, other, rtol=1e-8)


def test_a_manifest_without_the_values_says_so(tmp_path):
    write_manifest(tmp_path, {"seed": 3})
    with pytest.raises(ValueError, match=r"probe is not given there and \[-1.25"):
        checked(tmp_path, VALUES)


@pytest.mark.parametrize("stored", ["-1.25", [True] * 5, [[1.0]] * 5, {"a": 1}, None])
def test_anything_may_be_in_the_file(tmp_path, stored):
    written(tmp_path)
    path = tmp_path / MANIFEST
    fields = json.loads(path.read_text())
    fields["identity"]["probe"] = stored
    path.write_text(json.dumps(fields))
    with pytest.raises(ValueError, match="another run"):
        checked(tmp_path, VALUES)


def test_bad_values_are_refused():
    for values in ([[1.0]], ["a"], [{}], 3.0):
        with pytest.raises(ValueError, match=r"`identity\['probe'\]` has values"):
            checked_identity({"probe": ProbeValues(values, 1e-6)})
    for rtol in (-1.0, 1.0, NAN):
        with pytest.raises(ValueError, match="has rtol"):
            checked_identity({"probe": ProbeValues((1.0,), rtol)})


def test_a_manifest_that_is_a_huge_file_is_not_read(tmp_path):
    with open(tmp_path / MANIFEST, "wb") as file:
        file.truncate(10**10)
    with pytest.raises(ValueError, match="more than 1000000 bytes"):
        check_manifest(tmp_path, {})


def test_two_runs_with_the_same_arguments_have_marks_of_their_own(tmp_path):
    (tmp_path / "other").mkdir()
    assert written(tmp_path) != written(tmp_path / "other")
