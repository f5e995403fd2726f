"""The summed output of dense layers and its gradient, against autodiff."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tfp_lhnn.network.mlp_gradient import BaseWeights, summed_output


def random_layers(widths):
    rng = np.random.default_rng(0)
    pairs = itertools.pairwise(widths)
    kernels = [tf.constant(rng.normal(size=pair)) for pair in pairs]
    biases = [tf.constant(rng.normal(size=width)) for width in widths[1:-1]]
    return kernels, biases


def by_autodiff(x, kernels, biases, activation, scale, base, dim):
    with tf.GradientTape() as tape:
        tape.watch(x)
        hidden, value = x, 0.0
        if base is not None:
            whitening = base.whitening
            if whitening.shape.rank == 1:
                whitening = tf.linalg.diag(whitening)
            hidden = tf.linalg.matvec(whitening, x - base.location)
            value = 0.5 * tf.reduce_sum(hidden**2, axis=-1)
        for kernel, bias in zip(kernels[:-1], biases, strict=True):
            hidden = activation(hidden @ kernel + bias)
        value += scale * tf.reduce_sum(hidden @ kernels[-1], axis=-1)
    return value, tape.gradient(value, x)[:, :dim]


@pytest.mark.parametrize("hidden", [(4,), (4, 5), (4, 5, 6)], ids=str)
@pytest.mark.parametrize("whitening_shape", [None, (3,), (3, 3)], ids=str)
@pytest.mark.parametrize("activation", [tf.tanh, tf.nn.softmax])
def test_separable(hidden, whitening_shape, activation):
    kernels, biases = random_layers((3, *hidden, 2))
    rng = np.random.default_rng(1)
    base = None
    if whitening_shape is not None:
        base = BaseWeights(
            *(tf.constant(rng.normal(size=shape)) for shape in ((3,), whitening_shape))
        )
    x = tf.constant(rng.normal(size=(6, 3)))
    scale = tf.constant(1.7, tf.float64)
    parts = (kernels, biases, activation, scale, base, 3)
    for actual, expected in zip(
        summed_output(*parts)(x), by_autodiff(x, *parts), strict=True
    ):
        np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dim", [1, 2, 4])
def test_gradient_by_the_first_inputs_only(dim):
    kernels, biases = random_layers((4, 5, 5, 3))
    x = tf.constant(np.random.default_rng(1).normal(size=(6, 4)))
    value, gradient = summed_output(kernels, biases, tf.tanh, None, None, dim)(x)
    expected = by_autodiff(x, kernels, biases, tf.tanh, 1.0, None, dim)
    assert gradient.shape == (6, dim)
    np.testing.assert_allclose(value, expected[0], rtol=1e-12)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-12, atol=1e-12)
