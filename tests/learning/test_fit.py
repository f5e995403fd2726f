"""`fit`: what it learns, what it costs, and when it says that it failed."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

import tfp_lhnn
from tfp_lhnn.learning.fit_run import least_budget
from tfp_lhnn.learning.frontier import Yardstick, frontier
from tfp_lhnn.learning.refinement import (
    Quality,
    assess,
    choose_points,
    highest_potential,
    target_shares,
)

from ..counting_target import CountingTarget, funnel, skewed

SMALL = (16, 16)


@pytest.fixture(scope="module")
def counted_fit():
    """With NumPy functions inside, so not compiled by XLA."""
    target = CountingTarget()
    start = np.zeros([2], np.float32)
    fitted = tfp_lhnn.fit(
        target, start, 3000, seed=1, hidden_units=SMALL, jit_compile=False
    )
    return target, fitted


def test_the_tallies_are_those_counted_from_outside(counted_fit):
    target, fitted = counted_fit
    assert fitted.num_gradients == target.gradients
    assert fitted.num_evaluations == target.evaluations
    assert fitted.num_gradients <= 3000
    # Every one of them has become a point to learn from.
    assert fitted.data.num_gradients == fitted.num_gradients
    assert len(fitted.data) + fitted.data.num_dropped == fitted.num_gradients


def test_the_network_is_right_where_the_target_has_mass(counted_fit):
    _, fitted = counted_fit
    assert fitted.is_good
    assert fitted.acceptance > 0.9
    rng = np.random.default_rng(3)
    x = rng.gumbel(size=2000)
    q = np.stack([x, 0.8 * x + rng.normal(scale=0.5, size=2000)], -1)
    q = q.astype(np.float32)
    error = -skewed(tf.constant(q)).numpy() - fitted.network.potential(q).numpy()
    # A twentieth of proposals rejected is an error of a tenth of a nat; the rarest
    # draws may be worse off.
    assert np.std(error - np.median(error)) < 0.5
    assert np.quantile(np.abs(error - np.median(error)), 0.9) < 0.15


def test_rounds_tell_the_history(counted_fit):
    _, fitted = counted_fit
    pilot, *rounds = fitted.rounds
    assert pilot.kind == "pilot"
    assert pilot.history is None
    assert all(one.kind == "refinement" for one in rounds)
    spent = [one.num_gradients for one in fitted.rounds]
    assert spent == sorted(spent)
    # What a check that did not end the fit taught was paid for after it.
    after = fitted.num_gradients - spent[-1]
    assert after == 0 if fitted.is_confirmed else 0 <= after < 0.2 * spent[-1]
    assert all(0.0 <= one.acceptance <= 1.0 for one in rounds)


def test_a_fit_comes_back_from_its_file(counted_fit, tmp_path):
    _, fitted = counted_fit
    path = tmp_path / "a fit"
    fitted.save(path)
    again = tfp_lhnn.Fit.load(path)
    q = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    np.testing.assert_array_equal(
        again.network.potential(q), fitted.network.potential(q)
    )
    np.testing.assert_array_equal(again.states, fitted.states)
    np.testing.assert_array_equal(again.data.log_prob, fitted.data.log_prob)
    for name in ("step_size", "num_gradients", "message", "acceptance", "radius"):
        assert getattr(again, name) == getattr(fitted, name)
    assert len(again.rounds) == len(fitted.rounds)
    np.testing.assert_array_equal(
        again.rounds[1].history.held_out_energy_error,
        fitted.rounds[1].history.held_out_energy_error,
    )
    with pytest.raises(FileNotFoundError):
        tfp_lhnn.Fit.load(tmp_path / "another")
    (tmp_path / "broken").write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match="not a fit file"):
        tfp_lhnn.Fit.load(tmp_path / "broken")


def ill_conditioned(q):
    scales = tf.constant([1e-2, 1.0, 30.0, 1e-1, 3.0], q.dtype)
    return -0.5 * tf.reduce_sum(((q - 1.0) / scales) ** 2, axis=-1)


def test_an_easy_target_leaves_most_of_the_budget():
    start = np.full([5], 20.0, np.float32)  # 1900 standard deviations off
    fitted = tfp_lhnn.fit(ill_conditioned, start, 20_000, seed=2, hidden_units=SMALL)
    assert fitted.num_gradients < 5000
    assert fitted.acceptance > 0.99
    # A Gaussian is its own base, however ill conditioned.
    assert fitted.energy_error < 0.05


def test_a_poor_fit_says_so_and_what_to_try():
    start = np.zeros([8], np.float32)
    fitted = tfp_lhnn.fit(funnel, start, 1200, seed=3, hidden_units=(8,))
    assert fitted.num_gradients <= 1200
    assert not fitted.is_good
    assert "poor" in fitted.message
    assert "gradient_budget" in fitted.message
    assert "non-centred" in fitted.message
    assert "nats" not in fitted.message
    # Something is left for sampling with true gradients.
    assert fitted.num_gradients <= 0.85 * 1200


@pytest.mark.parametrize("dim", [1, 10, 1000])
def test_a_budget_that_is_too_small_says_the_least(dim):
    least = least_budget(dim)
    with pytest.raises(ValueError, match=rf"`gradient_budget` is .*needs {least}"):
        tfp_lhnn.fit(
            lambda q: -tf.reduce_sum(q**2, -1),
            np.zeros([dim], np.float32),
            least - 1,
            seed=1,
        )


def test_acceptance_from_residuals():
    """Against the average over all pairs, written out."""
    rng = np.random.default_rng(1)
    residual = rng.normal(scale=0.7, size=40)
    residual[3] = np.inf  # no density there
    weight = np.exp(-residual)
    pairs = np.minimum.outer(weight, weight)
    expected = pairs.sum() / (40 * weight.sum())
    potential = rng.normal(size=40)
    quality = assess(residual, potential, np.zeros(0), np.zeros(0))
    assert quality.acceptance == pytest.approx(expected)
    assert quality.tail_acceptance == 1.0
    share = np.delete(weight, 3) / weight.sum()
    others = np.delete(residual, 3)
    error = np.sqrt(share @ (others - share @ others) ** 2)
    assert quality.energy_error == pytest.approx(error)


def test_points_that_the_network_thinks_too_high_lower_the_tail_acceptance():
    residual, potential = np.zeros(30), np.linspace(0.0, 3.0, 30)
    # Five nats lower than the network says: chains would stick there.
    quality = assess(residual, potential, np.full(4, -5.0), np.ones(4))
    assert quality.tail_acceptance == pytest.approx(np.exp(-5.0))
    assert quality.escaped == 1.0
    assert not quality.is_good
    # The same where the target has no density is nobody's business.
    quality = assess(residual, potential, np.full(4, -5.0), np.full(4, 10.0))
    assert quality.tail_acceptance == 1.0
    assert quality.escaped == 0.0
    assert quality.is_good
    # One of a hundred escapes: too few to matter to the mean, and still a tail.
    one = np.where(np.arange(100) == 7, -5.0, 0.0)
    quality = assess(residual, potential, one, np.ones(100))
    assert quality.tail_acceptance > 0.98
    assert quality.escaped == 0.01
    assert not quality.is_good


def test_what_matters_to_the_target_not_where_the_network_goes():
    rng = np.random.default_rng(4)
    own = rng.normal(size=(400, 3))
    # A well that only the network has: it goes there, and the target does not.
    own[:20, 0] += 50.0
    potential = 0.5 * np.sum(own**2, axis=-1)
    residual = np.where(np.arange(400) < 20, potential, 0.0)
    highest = highest_potential(potential, residual)
    # Up to the 98 % quantile of the potential, a chi square, and two nats more.
    expected = 0.5 * stats.chi2(3).ppf(0.98) + 2.0
    assert highest == pytest.approx(expected, abs=0.5)
    nothing = highest_potential(np.full(400, np.inf), np.full(400, np.inf))
    assert nothing == -np.inf


def test_the_frontier_has_the_farthest_points_and_both_branches_of_a_ridge():
    rng = np.random.default_rng(4)
    along = rng.uniform(size=400)
    # One branch is ahead of the other: all of the farthest points are on it.
    is_ahead = np.arange(400) % 2 == 0
    along = np.where(is_ahead, 10.0, 8.0) * along
    z = np.stack([along, np.where(is_ahead, 2.0, -2.0)], axis=-1)
    z += 0.1 * rng.normal(size=z.shape)
    distance = np.abs(z[:, 0])
    chosen, reach = frontier(z, distance, 16)
    farthest = np.argsort(-distance)[:16]
    assert reach == pytest.approx(np.mean(distance[farthest]))
    assert np.all(is_ahead[farthest])
    assert len(np.unique(chosen)) == len(chosen) == 16
    assert set(farthest[:8]) <= set(chosen)
    # The rest is spread over what is far out: some on either branch.
    assert 3 <= np.sum(~is_ahead[chosen]) <= 8
    assert np.min(distance[chosen]) >= 0.7 * reach
    # Also the first few are of both kinds: at times there is use for these alone.
    assert np.any(is_ahead[chosen[:4]])
    assert np.any(~is_ahead[chosen[:4]])
    few, their_reach = frontier(z[:5], distance[:5], 16)
    np.testing.assert_array_equal(few, np.argsort(-distance[:5]))
    assert their_reach == pytest.approx(np.mean(distance[:5]))
    none, nowhere = frontier(z[:0], distance[:0], 16)
    assert len(none) == nowhere == 0


def test_outward_is_away_from_the_centre_where_a_point_is_farthest_out():
    yardstick = Yardstick(np.array([1.0, 0.0]), np.array([1.0, 10.0]))
    z = np.array([[-2.0, 5.0], [2.0, 50.0]])
    np.testing.assert_allclose(yardstick.distance(z), [3.0, 5.0])
    np.testing.assert_allclose(yardstick.outward(z), [[-1.0, 0.0], [0.0, 1.0]])


def test_shares_of_the_target():
    np.testing.assert_allclose(
        target_shares(np.array([0.0, np.log(3.0), np.inf, np.nan])), [0.75, 0.25, 0, 0]
    )


def test_a_gaussian_is_confirmed_at_once_and_a_short_budget_is_not():
    start = np.zeros([2], np.float32)
    gaussian = tfp_lhnn.fit(
        lambda q: -tf.reduce_sum(q**2, axis=-1), start, 3000, seed=1, hidden_units=SMALL
    )
    assert gaussian.is_confirmed
    assert gaussian.message == "The fit is good."
    assert len(gaussian.rounds) == 2
    short = tfp_lhnn.fit(skewed, start, 1100, seed=1, hidden_units=SMALL)
    assert short.is_good
    assert not short.is_confirmed
    assert "not confirmed" in short.message
    assert f"{short.energy_error:.2g} nats" in short.message
    assert "gradient_budget" in short.message


def test_errors_that_no_network_can_learn_do_not_use_up_the_budget():
    roughness = 0.05

    def log_prob(q):
        rough = 0.5 * q**2 + roughness * tf.cos(q / roughness)
        return -tf.reduce_sum(rough, axis=-1)

    starts = tf.random.stateless_normal([16, 30], [1, 2])
    fit = tfp_lhnn.fit(
        log_prob, starts, 6000, seed=[3, 6], hidden_units=SMALL, progress=False
    )
    assert fit.is_confirmed
    assert fit.num_gradients < 4000
    # A cosine's sd is 1/√2: a base that is exact is off by √(30/2) times the roughness.
    assert fit.energy_error == pytest.approx(roughness * np.sqrt(15.0), rel=0.15)
    assert len(fit.rounds) > 2
    assert {one.history.selected for one in fit.rounds[1:]} == {"base"}


def test_even_errors_are_no_sign_of_a_tail_and_uneven_ones_are():
    even = Quality(0.2, 0.88, 0.87, 0.0)
    assert even.is_even
    assert not even.is_good
    for worse in (
        even._replace(tail_acceptance=0.8),
        even._replace(acceptance=0.7, tail_acceptance=0.7),
        even._replace(energy_error=0.5),
        even._replace(escaped=0.1),
        even._replace(is_open=True),
    ):
        assert not worse.is_even


def test_points_are_chosen_where_the_error_is_large():
    rng = np.random.default_rng(2)
    known = rng.normal(size=(200, 2))
    residual = np.where(known[:, 0] > 0, 2.0, 0.01)
    candidates = rng.normal(size=(500, 2))
    chosen = choose_points(candidates, known, residual, 100, rng)
    assert len(set(chosen)) == 100
    assert np.mean(candidates[chosen, 0] > 0) > 0.85


@pytest.mark.slow
def test_correlations_are_learned_in_hundreds_of_dimensions():
    dim, correlation = 200, 0.7

    def log_prob(q):
        steps = q[..., 1:] - correlation * q[..., :-1]
        square = tf.reduce_sum(steps**2, axis=-1) / (1.0 - correlation**2)
        return -0.5 * (q[..., 0] ** 2 + square)

    starts = tf.random.stateless_normal([16, dim], [1, 2])
    fit = tfp_lhnn.fit(log_prob, starts, 12_000, seed=[3, 4], progress=False)
    # Regressing dim² slopes takes a few times dim gradients, and is exact.
    assert fit.num_gradients < 30 * dim
    assert fit.is_confirmed
    assert fit.energy_error < 0.01
