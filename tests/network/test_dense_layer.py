"""What of Keras' dense layer a network can use, and what it refuses."""

import keras
import numpy as np
import pytest

import tfp_lhnn
from tfp_lhnn.network.dense_layer import Dense


def test_it_is_keras_dense_layer():
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    ours, theirs = Dense(4, "tanh"), keras.layers.Dense(4, "tanh")
    for layer in (ours, theirs):
        layer.build((None, 3))
    theirs.set_weights(ours.get_weights())
    np.testing.assert_array_equal(ours(x), theirs(x))


def test_lora_is_refused_and_changes_nothing():
    network = tfp_lhnn.LatentHNN(2, (4,))
    for layer in [*network.hidden_layers, network.output_layer]:
        with pytest.raises(NotImplementedError, match="`enable_lora` is not supported"):
            layer.enable_lora(1)
    assert len(network.layer_variables) == len(network.trainable_variables) == 3


def test_quantisation_is_refused_and_changes_nothing():
    network = tfp_lhnn.LatentHNN(2, (4,))
    for part in [network, *network.hidden_layers, network.output_layer]:
        with pytest.raises(NotImplementedError, match="`quantize` is not supported"):
            part.quantize("int8")
    assert network.compute_dtype == "float32"
    assert {v.dtype for v in network.layer_variables} == {"float32"}
