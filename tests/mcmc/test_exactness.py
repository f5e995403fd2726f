"""Does one transition leave the target as it is? Statistics on exact draws.

Each test starts from exact draws, takes a kernel step, and compares distributions
(`statistics.py`). It states its false-alarm rate and shows that chains moved; a
companion shows that the same test fails for a kernel that is wrong (a force that
depends on the momentum). `test_exact_modes.py` does the same for the schemes that
choose between network and target.
"""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

import tfp_lhnn

from .helpers import ExactNetwork
from .statistics import (
    DETECTABLE,
    FALSE_ALARM_RATE,
    Transitions,
    gumbel_draws,
    gumbel_ks_p_value,
    gumbel_log_prob,
    gumbel_p_value,
    three_gumbels_draws,
    three_gumbels_log_prob,
    three_gumbels_p_value,
)


class WrongNetwork:
    """A force that fits nothing: wrong centre, wrong scale, and a jump.

    Args:
        momentum_term: strength of a term `q·p` in the energy, which makes the force
            depend on the momentum.
    """

    trainable_variables = ()
    non_trainable_variables = ()

    def __init__(self, momentum_term=0.0):
        self.momentum_term = momentum_term
        self.separable = momentum_term == 0.0

    def stateless_call(self, trainable, non_trainable, x):
        del trainable
        if self.separable:
            q, coupling = x, 0.0
        else:
            q, p = tf.split(x, 2, axis=-1)
            coupling = self.momentum_term * q * p
        # The absolute value has a gradient that jumps.
        return 0.3 * (q - 0.4) ** 2 + 0.5 * tf.abs(q - 1.0) + coupling, non_trainable


def test_the_test_has_power():
    """A distribution off by `DETECTABLE` in the CDF fails."""
    shift = DETECTABLE / np.exp(-1.0)  # The largest density of a Gumbel is 1/e.
    assert gumbel_ks_p_value(gumbel_draws() + shift) < FALSE_ALARM_RATE
    assert DETECTABLE < 0.02


def test_flows_have_power_in_the_tail():
    """Nine in ten chains leave the far tail: too few of all for the other test."""
    start = gumbel_draws()
    is_far = start > stats.gumbel_r.ppf(0.999)
    is_lost = is_far & (np.arange(len(start)) % 10 > 0)[:, np.newaxis]
    end = np.where(is_lost, start - 3.0, start)
    assert gumbel_p_value(start, end) < FALSE_ALARM_RATE
    assert gumbel_ks_p_value(end) > 100 * FALSE_ALARM_RATE


@pytest.mark.parametrize(
    ("sampling", "dtype", "num_steps"),
    [
        ("slice", tf.float32, 1),
        ("multinomial", tf.float32, 1),
        ("slice", tf.float64, 4),
    ],
)
def test_a_wrong_force_of_the_position_is_exact(sampling, dtype, num_steps):
    kernel = tfp_lhnn.LatentHNNNoUTurnSampler(
        gumbel_log_prob,
        WrongNetwork(),
        0.9,
        max_tree_depth=4,
        error_monitor="none",
        trajectory_sampling=sampling,
    )
    assert kernel.is_calibrated
    start = gumbel_draws()
    states, _ = Transitions(kernel).run(start, dtype, num_steps)
    assert gumbel_p_value(start, states[-1]) > FALSE_ALARM_RATE
    assert np.mean(np.abs(states[-1] - start)) > 0.3


def test_a_force_of_the_momentum_is_found_out():
    kernel = tfp_lhnn.LatentHNNNoUTurnSampler(
        gumbel_log_prob,
        WrongNetwork(momentum_term=0.4),
        0.9,
        max_tree_depth=4,
        error_monitor="none",
    )
    assert not kernel.is_calibrated
    start = gumbel_draws()
    (end,), _ = Transitions(kernel).run(start, tf.float32)
    assert gumbel_p_value(start, end) < FALSE_ALARM_RATE


@pytest.mark.parametrize("untrained", [False, True], ids=["wrong", "untrained"])
def test_a_multivariate_target_is_left_as_it_is(untrained):
    network = WrongNetwork()
    if untrained:
        network = tfp_lhnn.LatentHNN(3, hidden_units=(8,), seed=1)
        network.initialise(1)  # A new one is a standard Gaussian.
    kernel = tfp_lhnn.LatentHNNNoUTurnSampler(
        three_gumbels_log_prob, network, 0.5, max_tree_depth=4, error_monitor="none"
    )
    start = three_gumbels_draws()
    (end,), _ = Transitions(kernel).run(start, tf.float32)
    assert three_gumbels_p_value(start, end) > FALSE_ALARM_RATE
    assert np.mean(np.abs(end - start)) > 0.2


def test_the_exact_gradient_gives_nuts_at_no_gradient():
    network = ExactNetwork(three_gumbels_log_prob)
    kernel = tfp_lhnn.LatentHNNNoUTurnSampler(
        three_gumbels_log_prob, network, 0.2, max_tree_depth=5
    )
    start = three_gumbels_draws()
    (_, end), (_, results) = Transitions(kernel).run(start, tf.float32, num_steps=2)
    assert three_gumbels_p_value(start, end) > FALSE_ALARM_RATE
    assert np.mean(np.abs(end - start)) > 0.5
    assert np.all(results.num_fallbacks == 0)
    assert np.all(results.target_gradients == 0)
    assert results.target_gradient_calls == 0
    # One density a leaf: those of the last draw are among all there were.
    assert np.all(results.target_evaluations > results.leapfrogs_taken)
    assert np.mean(np.exp(results.log_accept_ratio)) > 0.95


def chain_moments(kernel, num_draws=250, num_chains=128):
    """Means and standard errors, over chains, of x, y, z and their squares."""
    start = tf.constant(three_gumbels_draws(seed=[5, 6])[:num_chains])

    @tf.function(jit_compile=True, autograph=False)
    def sample():
        return tfp.mcmc.sample_chain(
            num_draws,
            start,
            kernel=kernel,
            trace_fn=lambda _, results: results.log_accept_ratio,
            seed=[7, 8],
        )

    draws, log_accept = sample()
    draws = draws.numpy()
    chains = np.concatenate([draws.mean(0), (draws**2).mean(0)], axis=-1)
    error = chains.std(0, ddof=1) / np.sqrt(num_chains)
    return chains.mean(0), error, float(np.mean(np.exp(log_accept)))


@pytest.mark.filterwarnings("ignore:supplied `TransitionKernel` is not calibrated")
def test_without_trust_it_is_plain_nuts():
    """No network leaf passes a threshold of minus infinity, however wrong it is."""
    kernel = tfp_lhnn.LatentHNNNoUTurnSampler(
        three_gumbels_log_prob,
        WrongNetwork(),
        np.float64(0.3),
        max_tree_depth=6,
        max_hnn_energy_diff=-np.inf,
    )
    ours, our_error, our_accept = chain_moments(kernel)
    theirs, their_error, their_accept = chain_moments(
        tfp.mcmc.NoUTurnSampler(
            three_gumbels_log_prob, np.float64(0.3), max_tree_depth=6
        )
    )
    z = (ours - theirs) / np.hypot(our_error, their_error)
    # Six tests; a false alarm in all of them together at most once in 10 000.
    limit = stats.norm.isf(1e-4 / 6 / 2)
    assert np.abs(z).max() < limit, z
    # The integrator's energy errors are the same; the trees differ a little.
    assert abs(our_accept - their_accept) < 0.03
    # And the truth, to which both must come.
    exact = three_gumbels_draws(seed=[9, 9])
    truth = np.concatenate([exact.mean(0), (exact**2).mean(0)])
    assert np.abs((ours - truth) / our_error).max() < limit + 0.5
