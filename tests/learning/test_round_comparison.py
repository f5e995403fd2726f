"""What two rounds of a fit say of each other's networks."""

import types

import numpy as np
import pytest
import tensorflow as tf

from tfp_lhnn.learning.fit_check import Check
from tfp_lhnn.learning.refinement import Quality, assess
from tfp_lhnn.learning.round_comparison import Checked

NUM_OWN, NUM_ELSEWHERE = 400, 200


def potential(x):
    """The target: a Gaussian up to two, and flat, a heavy tail, beyond."""
    return 0.5 * np.minimum(np.abs(x), 2.0) ** 2


def ignorant(x):
    """A network that is exact where it goes, and knows nothing of the tail."""
    return 0.5 * x**2


def well_informed(x):
    """Knows the tail too, with ripples all over that cost it some acceptance."""
    return potential(x) + 0.3 * np.sin(40.0 * x)


def with_a_well(x):
    """Knows the tail, and a well that nobody else does."""
    return potential(x) - 8.0 * (np.abs(x + 1.0) < 0.3)


def checked(learned, own, elsewhere):
    x = np.concatenate([own, elsewhere])
    residual = potential(x) - learned(x)
    quality = assess(
        residual[:NUM_OWN],
        potential(own),
        residual[NUM_OWN:],
        potential(elsewhere),
    )
    network = types.SimpleNamespace(
        potential=lambda position: tf.constant(learned(position[:, 0]))
    )
    check = Check(x[:, np.newaxis], NUM_OWN, potential(x), residual, quality)
    return Checked(types.SimpleNamespace(network=network), check)


@pytest.fixture(name="bulk")
def fixture_bulk():
    return np.clip(np.random.default_rng(1).standard_normal(NUM_OWN), -2.0, 2.0)


@pytest.fixture(name="tail")
def fixture_tail():
    return np.random.default_rng(2).uniform(2.0, 9.0, NUM_ELSEWHERE)


def test_a_network_that_knows_more_of_a_tail_does_better(bulk, tail):
    # The first one's check was blind: it is found to be nearly perfect.
    first = checked(ignorant, bulk, bulk[:NUM_ELSEWHERE])
    second = checked(well_informed, bulk, tail)
    assert first.check.quality.is_good
    assert second.check.quality.acceptance < 0.9 * first.check.quality.acceptance
    assert second.does_as_well_as(first)


def test_a_later_network_that_is_worse_is_not_taken(bulk, tail):
    first = checked(well_informed, bulk, tail)
    # Its chain sits in the well most of the time.
    in_well = np.where(np.arange(NUM_OWN) % 8 == 0, bulk, -1.0 + 0.1 * bulk)
    second = checked(with_a_well, in_well, tail)
    assert second.check.quality.acceptance < 0.5
    assert not second.does_as_well_as(first)


def test_of_equals_the_later_one_is_taken(bulk, tail):
    first = checked(well_informed, bulk, bulk[:NUM_ELSEWHERE])
    assert checked(well_informed, bulk, tail).does_as_well_as(first)


def test_a_network_without_a_single_finite_density_is_never_better(bulk, tail):
    known = checked(ignorant, bulk, tail)
    nan = np.full(NUM_OWN + NUM_ELSEWHERE, np.nan)
    lost = known._replace(
        check=known.check._replace(
            residual=nan, potential=nan, quality=Quality(np.inf, 0.0, 0.0, 1.0)
        )
    )
    assert not lost.does_as_well_as(known)
    assert known.does_as_well_as(lost)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_chains_start_only_where_the_target_has_density(bad):
    generator = np.random.default_rng(5)
    position = generator.standard_normal((NUM_OWN, 1))
    residual = generator.normal(scale=0.3, size=NUM_OWN)
    # Without density on the left, and one point of far too great a weight.
    residual[position[:, 0] < 0] = bad
    residual[np.argmax(position[:, 0])] = -50.0
    quality = assess(residual, residual, residual[:0], residual[:0])
    points = Check(position, NUM_OWN, residual, residual, quality)
    states = Checked(None, points).states(generator)
    assert states.shape == (32, 1)
    assert np.all(states >= 0)
    # The one does not make up all of them.
    assert len(np.unique(states)) > 20
