"""`fit`: what it learns, what it costs, and when it says that it failed."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_lhnn
from tfp_lhnn.learning.fit_loop import least_budget

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
    # Nothing is evaluated after the last round, or before the first.
    assert spent[-1] == fitted.num_gradients
    # Settling takes no more than its share of the budget if all chains come down.
    assert spent[0] <= tfp_lhnn.FitConfig().settle_share * 3000
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
    least = least_budget(dim, tfp_lhnn.FitConfig())
    with pytest.raises(ValueError, match=rf"`gradient_budget` is .*needs {least}"):
        tfp_lhnn.fit(
            lambda q: -tf.reduce_sum(q**2, -1),
            np.zeros([dim], np.float32),
            least - 1,
            seed=1,
        )


def short_fit():
    """Of the skewed density, with the budget for a round or two."""
    start = np.zeros([2], np.float32)
    return tfp_lhnn.fit(skewed, start, 600, seed=1, hidden_units=SMALL)


def gaussian_log_prob(q):
    return -tf.reduce_sum(q**2, axis=-1)


@pytest.mark.parametrize("dim", [1, 10])
def test_the_least_budget_is_enough_for_a_fit(dim):
    least = least_budget(dim, tfp_lhnn.FitConfig())
    start = np.zeros([dim], np.float32)
    fitted = tfp_lhnn.fit(gaussian_log_prob, start, least, seed=1, hidden_units=(8,))
    assert [one.kind for one in fitted.rounds] == ["pilot", "refinement"]
    assert fitted.num_gradients <= least
    # A regression of so few gradients is exact, as far as it goes.
    assert fitted.acceptance > 0.99


def test_a_gaussian_is_confirmed_at_once_and_a_short_budget_is_not():
    start = np.zeros([2], np.float32)
    gaussian = tfp_lhnn.fit(gaussian_log_prob, start, 3000, seed=1, hidden_units=SMALL)
    assert gaussian.is_confirmed
    assert gaussian.message == "The fit is good."
    assert len(gaussian.rounds) == 2
    short = short_fit()
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


def test_the_same_seed_gives_the_same_fit():
    one, same = short_fit(), short_fit()
    # A network was trained, so that there is something that might differ.
    assert one.rounds[-1].history.num_steps > 0
    first, then = one.to_arrays(), same.to_arrays()
    assert first.keys() == then.keys()
    for name, array in first.items():
        if name != "text":  # It has the seconds, and what is below.
            np.testing.assert_array_equal(array, then[name], err_msg=name)
    for name in ("step_size", "acceptance", "energy_error", "message", "radius"):
        assert getattr(one, name) == getattr(same, name)
    for this, that in zip(one.rounds[1:], same.rounds[1:], strict=True):
        assert this[:7] == that[:7]


def test_other_numbers_make_another_fit():
    start = np.zeros([2], np.float32)
    config = tfp_lhnn.FitConfig(
        num_chains=8, settle_points=400, sufficient_base_error=0.0, good_rounds=1
    )
    fitted = tfp_lhnn.fit(
        gaussian_log_prob, start, 3000, seed=1, hidden_units=SMALL, config=config
    )
    assert fitted.states.shape == (8, 2)
    assert least_budget(2, config) < least_budget(2, tfp_lhnn.FitConfig())
    # No base is good enough at once, but the next round may confirm it.
    assert fitted.is_confirmed
    assert len(fitted.rounds) == 3
    # Trajectories of eight chains and eight steps, up to what was asked for.
    assert fitted.rounds[0].num_gradients == 8 + (400 - 8) // 64 * 64


@pytest.mark.parametrize("config", [{"num_chains": 8}, 3, tfp_lhnn.FitConfig])
def test_a_config_of_another_type_is_refused(config):
    start = np.zeros([2], np.float32)
    with pytest.raises(TypeError, match=r"`config` is a .*FitConfig"):
        tfp_lhnn.fit(skewed, start, 1100, seed=1, config=config)


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
