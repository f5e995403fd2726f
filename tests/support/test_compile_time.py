"""Tensors that look unknown to XLA: it compiles once, and nothing else changes."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lhnn.support.compile_time import unknown_at_compile_time
from tfp_lhnn.support.compiled_cache import CompiledFunction

from ..xla_constants import number_compiled_in

POINTS = np.array([[0.5, -1.0, 2.0], [np.nan, np.inf, -3.0]])

# Of each, XLA needs an axis, a shape or a permutation that comes out of a call.
CALLS = {
    "transpose": tf.function(
        lambda q: -tf.reduce_sum(tf.transpose(q, [1, 0]) ** 4, axis=0)
    ),
    "gather": tf.function(
        lambda q: -tf.reduce_sum(tf.gather(q, [0, 2, 2, 1], axis=-1) ** 2, axis=-1)
    ),
    "reshape": tf.function(
        lambda q: -tf.reduce_sum(tf.reshape(q, [tf.shape(q)[0], -1]) ** 2, axis=-1),
        input_signature=[tf.TensorSpec([None, None], tf.float64)],
    ),
    "vectorized_map": lambda q: tf.vectorized_map(
        lambda x: -tf.reduce_sum(x[1:] ** 4) - tf.reduce_sum(x**2), q
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_xla_compiles_no_value_into_a_gradient(name):
    def gradient(q, step, is_mended):
        density = CALLS[name]
        if is_mended:
            return tfp.math.value_and_gradient(
                lambda x: density(*unknown_at_compile_time([x])), q * step
            )
        return tfp.math.value_and_gradient(density, q * step)

    arguments = tf.constant(POINTS), tf.constant(2.0, tf.float64)
    # Or the test would have no power.
    assert number_compiled_in(lambda *x: gradient(*x, False), *arguments) == 2
    assert number_compiled_in(lambda *x: gradient(*x, True), *arguments) == 0


@pytest.mark.parametrize("jit_compile", [True, False])
@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_values_and_gradients_are_the_same(jit_compile, dtype):
    def function(q):
        with tf.GradientTape() as tape:
            tape.watch(q)
            same, other = unknown_at_compile_time([q, 2.0 * q])
            value = tf.reduce_sum(same**3) + tf.reduce_sum(other)
        return same, tape.gradient(value, q)

    q = tf.constant(POINTS, dtype)
    same, gradient = CompiledFunction(function, jit_compile=jit_compile)(q)
    assert same.dtype == dtype
    np.testing.assert_array_equal(same, q)
    np.testing.assert_allclose(gradient, 3.0 * q**2 + 2.0, rtol=1e-6)


def test_shapes_stay_as_they_are():
    shapes = []

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 2], tf.float32),
            tf.TensorSpec([], tf.float32),
        ]
    )
    def function(x, y):
        parts = unknown_at_compile_time([x, y])
        shapes.extend(part.shape.as_list() for part in parts)
        return parts

    x, y = function(tf.ones([4, 2]), tf.constant(3.0))
    assert shapes == [[None, 2], []]
    assert x.shape == [4, 2]
    assert y.numpy() == 3.0


def test_a_tensor_that_plays_no_part_has_no_gradient():
    gradients = []

    @tf.function
    def function(x, y):
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            same, _ = unknown_at_compile_time([x, y])
            value = tf.reduce_sum(tf.gather(same, [0, 0]))
        gradients.extend(tape.gradient(value, [x, y]))

    function.get_concrete_function(tf.ones([3]), tf.ones([3]))
    assert gradients[0] is not None
    assert gradients[1] is None


def test_eager_tensors_come_back_themselves():
    x = tf.ones([3])
    assert unknown_at_compile_time([x])[0] is x
