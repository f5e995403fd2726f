"""Log densities of millions of nats: what varies is a few of them.

A log density is known up to a constant, so that a chain must not care for it. In each
test the chain with a large constant is compared with the chain without.
"""

import numpy as np
import pytest
import tensorflow as tf

from .helpers import DIM, MODES, make_kernel, skewed_log_prob, small_network, start

each_sampling = pytest.mark.parametrize("sampling", ["slice", "multinomial"])


def run(constant, state, mode, network, **settings):
    """Some draws, with a target and a network that are higher by a constant."""
    if hasattr(network, "offset"):
        network.offset.assign(tf.cast(constant, network.offset.dtype))

    def log_prob(q):
        return skewed_log_prob(q) - tf.cast(constant, q.dtype)

    kernel = make_kernel(log_prob, network, mode=mode, **settings)
    results, draws = kernel.bootstrap_results(state), []
    for i in range(4):
        state, results = kernel.one_step(state, results, seed=tf.constant([i, 3]))
        draws.append(state)
    return tf.stack(draws), results


@pytest.mark.parametrize("mode", sorted(MODES))
def test_a_network_in_single_precision_serves_a_target_in_double(mode):
    """The network's constant of 10⁸ nats is not rounded into its energies."""
    network = small_network()
    assert network.compute_dtype == "float32"
    state = start((20,))
    expected, _ = run(0.0, state, mode, network)
    draws, results = run(1e8, state, mode, network)
    assert np.any(np.asarray(expected) != state)
    # The density itself has eight digits after the point at 10⁸.
    np.testing.assert_allclose(draws, expected, atol=1e-5)
    assert np.isfinite(results.log_accept_ratio).all()


class Plain:
    """A network whose energies are small integers, which no dtype rounds."""

    trainable_variables = non_trainable_variables = ()
    dim = DIM

    def stateless_call(self, trainable, non_trainable, x):
        del trainable
        # The force is that of a Gaussian; the energy of it is not asked for here.
        stopped = tf.round(-0.5 * tf.reduce_sum(x**2, axis=-1, keepdims=True))
        force = 0.5 * tf.reduce_sum(x**2, axis=-1, keepdims=True)
        return force - tf.stop_gradient(force) - tf.stop_gradient(stopped), ()


@each_sampling
@pytest.mark.parametrize("mode", ["cooldown", "none", "delayed"])
def test_a_kinetic_energy_is_not_rounded_beside_a_large_density(mode, sampling):
    """Single precision; a density in whole nats, which 10⁷ more do not round."""

    def chain(constant):
        def log_prob(q):
            # The zero has a gradient, which a rounded number has not.
            zero = 0.0 * tf.reduce_sum(q, axis=-1)
            return tf.round(-0.5 * tf.reduce_sum(q**2, axis=-1)) - constant + zero

        kernel = make_kernel(
            log_prob,
            Plain(),
            mode=mode,
            trajectory_sampling=sampling,
            **({"max_hnn_energy_diff": 10.0} if mode == "cooldown" else {}),
        )
        state = start((50,), np.float32)
        results, stats = kernel.bootstrap_results(state), []
        for i in range(4):
            state, results = kernel.one_step(state, results, seed=tf.constant([i, 3]))
            stats.append(results.log_accept_ratio)
        return state, tf.stack(stats), results

    state, log_accept, results = chain(0.0)
    far_state, far_log_accept, far_results = chain(1e7)
    assert np.any(np.exp(log_accept) < 0.95)
    np.testing.assert_array_equal(far_state, state)
    np.testing.assert_array_equal(far_log_accept, log_accept)
    name = "log_delayed_accept_ratio" if mode == "delayed" else "log_true_accept_ratio"
    np.testing.assert_array_equal(getattr(far_results, name), getattr(results, name))
