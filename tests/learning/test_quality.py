"""What fresh points say of a network."""

import numpy as np
import pytest
from scipy import stats

from tfp_lhnn.learning.fit_config import FitConfig
from tfp_lhnn.learning.quality import (
    Quality,
    acceptance_from,
    assess,
    has_escaped,
    highest_potential,
)

CONFIG = FitConfig()
NOTHING = np.zeros(0)


def of_points(residual, potential, *, acceptance=0.99, fresh=None, is_open=False):
    """Quality with a perfect network near by, and something else elsewhere."""
    fresh = np.zeros(30) if fresh is None else fresh
    state_potential = np.linspace(0.0, 3.0, 30)
    return assess(
        acceptance, fresh, state_potential, residual, potential, is_open=is_open
    )


def test_acceptance_from_points_is_the_average_over_all_pairs():
    rng = np.random.default_rng(1)
    start, residual = rng.normal(size=7), rng.normal(scale=0.7, size=40)
    pairs = [min(1.0, np.exp(a - b)) for a in start for b in residual]
    assert acceptance_from(start, residual) == pytest.approx(np.mean(pairs))
    # The network's constant is nobody's business.
    assert acceptance_from(start + 5.0, residual + 5.0) == pytest.approx(np.mean(pairs))
    assert acceptance_from(start, NOTHING) == 0.0


def test_acceptance_is_measured_and_the_error_is_a_standard_deviation():
    fresh = np.array([3.0, 3.5, 2.5, 3.0])
    quality = of_points(NOTHING, NOTHING, acceptance=0.97, fresh=fresh)
    assert quality.acceptance == 0.97
    assert quality.energy_error == pytest.approx(np.sqrt(0.125))
    assert quality.tail_acceptance == 1.0
    assert quality.escaped == 0.0


def test_nothing_is_known_if_hardly_a_proposal_was_accepted():
    for number in (0, 1):
        quality = of_points(NOTHING, NOTHING, acceptance=0.99, fresh=np.zeros(number))
        assert quality.energy_error == np.inf
        assert quality.is_open
        assert not quality.is_good(CONFIG)
        assert not quality.is_even(CONFIG)
    assert of_points(NOTHING, NOTHING, fresh=np.zeros(2)).is_good(CONFIG)


def test_points_that_the_network_thinks_too_high_lower_the_tail_acceptance():
    # Five nats lower than the network says: chains would stick there.
    quality = of_points(np.full(4, -5.0), np.ones(4))
    assert quality.tail_acceptance == pytest.approx(np.exp(-5.0))
    assert quality.escaped == 1.0
    assert not quality.is_good(CONFIG)
    # The same where the target has no density is nobody's business.
    quality = of_points(np.full(4, -5.0), np.full(4, 10.0))
    assert quality.tail_acceptance == 1.0
    assert quality.escaped == 0.0
    assert quality.is_good(CONFIG)
    # Nor is a point where there is none at all.
    quality = of_points(np.array([np.nan, np.inf]), np.array([np.nan, np.inf]))
    assert quality.is_good(CONFIG)
    # One of a hundred escapes: too few to matter to the mean, and still a tail.
    one = np.where(np.arange(100) == 7, -5.0, 0.0)
    quality = of_points(one, np.ones(100))
    assert quality.tail_acceptance > 0.98
    assert quality.escaped == 0.01
    assert not quality.is_good(CONFIG)


def test_escaped_is_what_the_target_wants_and_the_network_shuns():
    residual = np.array([1.0, -1.5, -0.5, -1.5, np.nan, np.inf])
    potential = np.array([2.0, 2.0, 2.0, 9.0, np.nan, np.inf])
    # Two nats below the typical residual, and not too high up.
    away = has_escaped(residual, potential, typical=1.0, highest=5.0)
    np.testing.assert_array_equal(away, [False, True, False, False, False, False])


def test_what_matters_is_where_nearly_all_of_the_mass_lies():
    rng = np.random.default_rng(4)
    potential = 0.5 * np.sum(rng.normal(size=(4000, 3)) ** 2, axis=-1)
    # Up to the 98 % quantile of the potential, a chi square, and two nats more. A
    # quantile of 4000 draws is off by 0.07 nats here; four of these are seen.
    expected = 0.5 * stats.chi2(3).ppf(0.98) + 2.0
    assert highest_potential(potential) == pytest.approx(expected, abs=0.3)
    assert highest_potential(potential + 7.0) == pytest.approx(expected + 7.0, abs=0.3)


def test_a_fit_is_good_only_if_nothing_is_to_be_mended():
    good = Quality(0.97, 0.1, 0.95, 0.0, False)
    assert good.is_good(CONFIG)
    for worse in (
        good._replace(acceptance=0.94),
        good._replace(energy_error=0.3),
        good._replace(tail_acceptance=0.85),
        good._replace(escaped=0.1),
        good._replace(is_open=True),
    ):
        assert not worse.is_good(CONFIG)
    # What is good is for the settings to say.
    assert not good.is_good(FitConfig(good_acceptance=0.98))
    assert not good.is_good(FitConfig(good_energy_error=0.05))


def test_even_errors_are_no_sign_of_a_tail_and_uneven_ones_are():
    even = Quality(0.88, 0.2, 0.87, 0.0, False)
    assert even.is_even(CONFIG)
    assert not even.is_good(CONFIG)
    for worse in (
        even._replace(tail_acceptance=0.8),
        even._replace(acceptance=0.7, tail_acceptance=0.7),
        even._replace(energy_error=0.5),
        even._replace(escaped=0.1),
        even._replace(is_open=True),
    ):
        assert not worse.is_even(CONFIG)
    assert not even.is_even(FitConfig(even_acceptance=0.9))
