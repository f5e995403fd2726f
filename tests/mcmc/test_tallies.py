"""The tallies against a target that counts its own calls, outside the graph."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_lhnn

from .helpers import ExactNetwork

DIM = 2


class CountingTarget:
    """A skewed density that counts, in Python, how often it really runs."""

    def __init__(self):
        self.evaluations = 0
        self.gradients = 0

    def _count(self, name):
        def count():
            setattr(self, name, getattr(self, name) + 1)

        return tf.numpy_function(count, [], [])

    def __call__(self, q):
        @tf.custom_gradient
        def log_prob(q):
            with tf.control_dependencies([self._count("evaluations")]):
                value = tf.reduce_sum(-q - tf.exp(-q), axis=-1)

            def gradient(upstream):
                with tf.control_dependencies([self._count("gradients")]):
                    return upstream[..., tf.newaxis] * (tf.exp(-q) - 1.0)

            return value, gradient

        return log_prob(q)


class GaussianNetwork:
    """Right in the middle of a Gumbel density and wrong in its left tail."""

    trainable_variables = ()
    non_trainable_variables = ()

    def stateless_call(self, trainable, non_trainable, x):
        del trainable
        return 0.3 * x**2, non_trainable


def run(kernel, state, num_draws):
    step = tf.function(kernel.one_step, autograph=False)
    results = kernel.bootstrap_results(state)
    for i in range(num_draws):
        state, results = step(state, results, seed=tf.constant([i, 3]))
    return results


def make_kernel(target, monitor, **kwargs):
    return tfp_lhnn.LatentHNNNoUTurnSampler(
        target,
        GaussianNetwork(),
        0.7,
        max_tree_depth=4,
        max_hnn_energy_diff=1.0,
        num_fallback_samples=3,
        error_monitor=monitor,
        **kwargs,
    )


@pytest.mark.parametrize("sampling", ["slice", "multinomial"])
def test_one_chain_pays_for_what_it_needs(sampling):
    target = CountingTarget()
    kernel = make_kernel(target, "cooldown", trajectory_sampling=sampling)
    results = run(kernel, tf.zeros([1, DIM]), 60)
    assert results.num_fallbacks[0] >= 5
    assert target.gradients >= 20
    assert int(results.target_gradients[0]) == target.gradients
    assert int(results.target_evaluations[0]) == target.evaluations
    assert int(results.target_gradient_calls) == target.gradients
    assert int(results.target_evaluation_calls) == target.evaluations


def test_a_batch_pays_whenever_any_chain_needs_it():
    target = CountingTarget()
    results = run(make_kernel(target, "cooldown"), tf.zeros([6, DIM]), 40)
    assert int(results.target_gradient_calls) == target.gradients
    assert int(results.target_evaluation_calls) == target.evaluations
    # No chain needs more than was executed, and they do not all need the same.
    assert np.max(results.target_gradients) <= target.gradients
    assert np.max(results.target_evaluations) <= target.evaluations
    assert np.sum(results.target_gradients) >= target.gradients
    assert len(set(results.target_gradients.numpy())) > 1


def test_without_a_monitor_no_gradient_is_ever_computed():
    target = CountingTarget()
    results = run(make_kernel(target, "none"), tf.zeros([6, DIM]), 20)
    assert target.gradients == 0
    assert np.all(results.target_gradients == 0)
    assert int(results.target_evaluation_calls) == target.evaluations


def test_a_good_network_needs_no_gradient_either():
    target = CountingTarget()
    kernel = tfp_lhnn.LatentHNNNoUTurnSampler(
        target,
        ExactNetwork(lambda q: tf.reduce_sum(-q - tf.exp(-q), axis=-1)),
        0.3,
        max_tree_depth=4,
    )
    results = run(kernel, tf.zeros([1, DIM]), 20)
    assert target.gradients == 0
    assert int(results.target_evaluations[0]) == target.evaluations


def test_plain_nuts_pays_one_gradient_a_leaf_and_one_a_draw():
    target = CountingTarget()
    kernel = tfp_lhnn.LatentHNNNoUTurnSampler(
        target,
        GaussianNetwork(),
        0.3,
        max_tree_depth=4,
        max_hnn_energy_diff=-np.inf,
        num_fallback_samples=1000,
    )
    step = tf.function(kernel.one_step, autograph=False)
    state = tf.zeros([1, DIM])
    state, results = step(state, kernel.bootstrap_results(state), seed=[1, 2])
    for i in range(20):
        before = target.gradients
        state, results = step(state, results, seed=tf.constant([i, 3]))
        # The gradient at the start is not kept from the last draw.
        assert target.gradients - before == int(results.leapfrogs_taken[0]) + 1
