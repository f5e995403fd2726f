"""Networks that cannot serve are refused before the target is asked for anything."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfp_lhnn

from .helpers import DIM, make_kernel, skewed_log_prob, start

each_kernel = pytest.mark.parametrize("mode", ["cooldown", "delayed"])


class Shaped:
    """A stand-in network whose output is what a function makes of the inputs."""

    trainable_variables = ()
    non_trainable_variables = ()

    def __init__(self, function, **attributes):
        self._function = function
        self.__dict__.update(attributes)

    def stateless_call(self, trainable, non_trainable, x):
        del trainable
        return self._function(x), non_trainable


BAD_OUTPUTS = {
    "sums": (lambda x: tf.reduce_sum(x, axis=-1), "(6,)"),
    "one number": (lambda x: tf.reduce_sum(x), "()"),
    "one row": (lambda x: tf.reduce_sum(x, axis=0, keepdims=True), "(1, 5)"),
    "columns": (lambda x: tf.transpose(x), "(5, 6)"),
    "three dimensions": (lambda x: x[:, tf.newaxis], "(6, 1, 5)"),
}


def unasked(*parts):
    raise AssertionError("The target was called.")


@each_kernel
@pytest.mark.parametrize("name", BAD_OUTPUTS)
def test_what_gives_no_row_of_latents_is_refused_by_the_constructor(name, mode):
    function, shape = BAD_OUTPUTS[name]
    message = re.escape(f"`network` returns shape {shape} for inputs of shape [6, 5]")
    with pytest.raises(ValueError, match=message):
        make_kernel(unasked, Shaped(function, dim=DIM), mode=mode)


@each_kernel
def test_without_a_width_it_is_refused_at_the_start_of_a_chain(mode):
    kernel = make_kernel(network=Shaped(BAD_OUTPUTS["sums"][0]), mode=mode)
    with pytest.raises(ValueError, match="`network` returns shape"):
        kernel.bootstrap_results(start())


@pytest.mark.parametrize("num_latents", [1, 3, DIM])
def test_any_number_of_latents_will_do(num_latents):
    network = Shaped(lambda x: x[:, :num_latents] ** 2, dim=DIM)
    kernel = make_kernel(network=network, mode="none")
    state = start()
    draws, _ = kernel.one_step(state, kernel.bootstrap_results(state), seed=[1, 2])
    assert np.isfinite(draws).all()


def keras_network(*layers, width=DIM):
    return keras.Sequential([keras.Input((width,)), *layers])


@each_kernel
def test_a_keras_model_with_one_number_for_each_position_is_refused(mode):
    network = keras_network(keras.layers.Dense(1), keras.layers.Reshape(()))
    with pytest.raises(ValueError, match=r"`network` returns shape \(6,\)"):
        make_kernel(unasked, network, mode=mode)


@each_kernel
def test_a_keras_model_of_another_width_is_refused(mode):
    kernel = make_kernel(
        network=keras_network(keras.layers.Dense(2), width=4), mode=mode
    )
    with pytest.raises(ValueError, match="`network` takes inputs of width 4"):
        kernel.bootstrap_results(start())


@each_kernel
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float16"])
def test_a_model_in_half_precision_is_refused_by_name(policy, mode):
    network = keras_network(keras.layers.Dense(2, dtype=policy))
    with pytest.raises(ValueError, match=r"`network` computes in b?float16"):
        make_kernel(unasked, network, mode=mode)


@each_kernel
def test_a_latent_hnn_works_under_a_mixed_policy(mode):
    keras.config.set_dtype_policy("mixed_float16")
    try:
        network = tfp_lhnn.LatentHNN(DIM, hidden_units=(4,), seed=1)
    finally:
        keras.config.set_dtype_policy("float32")
    kernel = make_kernel(network=network, mode=mode)
    state = start()
    draws, results = kernel.one_step(
        state, kernel.bootstrap_results(state), seed=[1, 2]
    )
    assert draws.dtype == tf.float64
    assert np.isfinite(draws).all()
    assert np.isfinite(results.log_accept_ratio).all()


@each_kernel
def test_an_error_of_the_network_comes_through_with_a_note(mode):
    def fails(x):
        raise KeyError("my own words")

    with pytest.raises(KeyError, match="my own words") as caught:
        make_kernel(skewed_log_prob, Shaped(fails, dim=DIM), mode=mode)
    assert caught.value.__notes__ == ["Raised by `network` on inputs of shape [6, 5]."]
