"""Densities and gradients of network and target, and the tally of what was asked."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfp_lhnn.mcmc.gradient_source import (
    NetworkSource,
    TargetCalls,
    TargetSource,
    network_weights,
)
from tfp_lhnn.network.latent_hnn import LatentHNN

Q = tf.constant(np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32))
P = tf.constant(np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32))


def noisy(**kwargs):
    network = LatentHNN(3, (5,), seed=1, **kwargs)
    network.output_layer.kernel.assign(np.linspace(-1, 1, 15).reshape(5, 3))
    return network


@pytest.mark.parametrize("separable", [True, False])
def test_a_network_is_its_energy_less_the_constant(separable):
    network = noisy(separable=separable)
    if separable:
        network.offset.assign(7.5)
    source = NetworkSource(network, network_weights(network))
    assert source.is_separable is separable
    energy, gradient = source.energy_and_gradient(Q, P)
    expected = network.potential(Q) if separable else network.energy(Q, P)
    offset = 7.5 if separable else 0.0
    np.testing.assert_allclose(energy + offset, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(source.offset, offset)
    by_tape = network.potential_gradient(Q, None if separable else P)
    np.testing.assert_allclose(gradient, by_tape, rtol=1e-4, atol=1e-5)


def test_any_keras_model_will_do():
    model = keras.Sequential([keras.layers.Input([3]), keras.layers.Dense(2, "tanh")])
    source = NetworkSource(model, network_weights(model))
    energy, gradient = source.energy_and_gradient(Q, P)
    with tf.GradientTape() as tape:
        tape.watch(Q)
        expected = tf.reduce_sum(model(Q), axis=-1)
    np.testing.assert_allclose(energy, expected, rtol=1e-5)
    np.testing.assert_allclose(gradient, tape.gradient(expected, Q), rtol=1e-5)
    log_prob, same = source.log_prob_and_gradient(Q)
    np.testing.assert_allclose(log_prob, -expected, rtol=1e-5)
    np.testing.assert_allclose(same, gradient)


def test_weights_are_read_in_an_order_that_freezing_does_not_change():
    network = noisy()
    before = network_weights(network)
    network.hidden_layers[0].trainable = False
    for one, other in zip(
        tf.nest.flatten(before), tf.nest.flatten(network_weights(network)), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_gradients_are_evaluated_only_for_those_who_need_them():
    calls = []

    def log_prob(q):
        calls.append(len(q))
        return -tf.reduce_sum(q**2, axis=-1)

    source, otherwise = TargetSource(log_prob), tf.fill([4, 3], 9.0)
    nobody = source.gradient_where(tf.zeros([4], tf.bool), Q, otherwise)
    np.testing.assert_array_equal(nobody, otherwise)
    assert calls == []
    needed = tf.constant([True, False, True, False])
    gradient = source.gradient_where(needed, Q, otherwise)
    assert calls == [4]
    np.testing.assert_allclose(gradient[0::2], 2.0 * Q[0::2], rtol=1e-6)
    np.testing.assert_array_equal(gradient[1::2], otherwise[1::2])


def test_the_tally_counts_chains_and_executed_calls():
    calls = TargetCalls.of(tf.zeros([2, 3], tf.int32), tf.zeros([2], tf.int32))
    some, none = tf.constant([True, False, True]), tf.zeros([3], tf.bool)
    calls = calls.add(densities=[some], gradients=[some, none])
    # A value with its gradient counts once in each; nobody's call is not made.
    np.testing.assert_array_equal(calls.needed, [[2, 0, 2], [1, 0, 1]])
    np.testing.assert_array_equal(calls.executed, [2, 1])
