"""Initial weights: their seeds and their sizes."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfp_lhnn
from tfp_lhnn.network.initialisation import initialise_layers


def make_layers(widths):
    pairs = list(itertools.pairwise(widths))
    layers = []
    for i, (width, units) in enumerate(pairs):
        layers.append(keras.layers.Dense(units, use_bias=i < len(pairs) - 1))
        layers[-1].build((None, width))
    return layers[:-1], layers[-1]


def weights(widths, seed):
    hidden, output = make_layers(widths)
    initialise_layers(hidden, output, seed)
    return [v.numpy() for layer in [*hidden, output] for v in layer.variables]


def test_initial_weights_follow_from_seed():
    def kernel(**kwargs):
        return tfp_lhnn.LatentHNN(2, (4,), **kwargs).hidden_layers[0].kernel.numpy()

    np.testing.assert_array_equal(kernel(seed=1), kernel(seed=1))
    assert not np.array_equal(kernel(seed=1), kernel(seed=2))
    keras.utils.set_random_seed(5)
    first = kernel()
    keras.utils.set_random_seed(5)
    np.testing.assert_array_equal(first, kernel())
    assert not np.array_equal(first, kernel())


def test_a_seed_gives_the_same_weights():
    for a, b in zip(weights((2, 4, 3), 7), weights((2, 4, 3), 7), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dim", [2, 50])
def test_pre_activations_and_the_sum_of_outputs_have_sizes_of_order_one(dim):
    hidden, output = make_layers((dim, 400, 400, dim))
    initialise_layers(hidden, output, 0)
    x = tf.constant(np.random.default_rng(1).normal(size=(1000, dim)), tf.float32)
    first = x @ hidden[0].kernel
    # Of N(0, 1) inputs, at 400 units: a few per cent of noise, more where dim is small.
    np.testing.assert_allclose(np.std(first), 0.7, rtol=0.15)
    phases = hidden[0].bias.numpy()
    assert -1.0 <= phases.min() < -0.9
    assert 0.9 < phases.max() <= 1.0
    # Sines of phases all over have a mean square of a half.
    second = tf.sin(3.0 * first + phases * np.pi) @ hidden[1].kernel
    np.testing.assert_allclose(np.std(second), 0.8 * np.sqrt(0.5), rtol=0.15)
    np.testing.assert_array_equal(hidden[1].bias, 0.0)
    unit = tf.constant(np.random.default_rng(2).normal(size=(1000, 400)), tf.float32)
    total = tf.reduce_sum(unit @ output.kernel, axis=-1)
    np.testing.assert_allclose(np.std(total), 1.0, rtol=0.2)
