"""The sine of networks, and activations by name."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfp_lhnn.network.activations import (
    resolve_activation,
    serialized_activation,
    sine,
)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 3e-7), ("float64", 4e-16)]
)
def test_is_the_sine_with_its_derivatives(dtype, tolerance):
    x = tf.cast(np.linspace(-20.0, 20.0, 4001), dtype)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = sine(x)
        slope = inner.gradient(y, x)
    curvature = outer.gradient(slope, x)
    exact = x.numpy().astype(np.float64)
    np.testing.assert_allclose(y, np.sin(exact), atol=tolerance)
    np.testing.assert_allclose(slope, np.cos(exact), atol=tolerance)
    np.testing.assert_allclose(curvature, -np.sin(exact), atol=tolerance)


def test_sine_far_out_keeps_its_digits():
    x = np.float32(np.linspace(900.0, 1000.0, 1001))
    np.testing.assert_allclose(sine(tf.constant(x)), np.sin(np.float64(x)), atol=1e-6)


@keras.saving.register_keras_serializable(package="tests")
def cubic(x):
    return x**3


@pytest.mark.parametrize(
    ("given", "function"),
    [
        ("sine", sine),
        (sine, sine),
        ("tanh", keras.activations.tanh),
        ("swish", keras.activations.silu),
        (keras.activations.gelu, keras.activations.gelu),
        (cubic, cubic),
    ],
)
def test_what_a_name_or_function_stands_for(given, function):
    resolved = resolve_activation(given)
    assert resolved is function
    # As in the configuration of a saved network.
    assert resolve_activation(serialized_activation(resolved)) is function


@pytest.mark.parametrize("activation", ["sinus", 3, {"a": 1}])
def test_others_are_named(activation):
    with pytest.raises(ValueError, match=r"`activation` is .*'sine'.*silu"):
        resolve_activation(activation)
