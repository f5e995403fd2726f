"""Layers that the user froze: `train`, resumed chains, files."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfp_lhnn
from tfp_lhnn.network.physics_loss import physics_arrays

# Without XLA: what is compiled is the same, and compiling takes longer than training.
QUICK = {"num_steps": 300, "batch_size": 64, "jit_compile": False}


@pytest.fixture(scope="module")
def data():
    position = np.random.default_rng(0).normal(size=(400, 2)).astype(np.float32)
    return tfp_lhnn.TrainingData.from_gradients(
        position, -position - np.cos(position), -_potential(position), seed=0
    )


def _potential(q):
    return np.sum(0.5 * q**2 + np.sin(q), axis=-1)


def values(layer):
    return [v.numpy() for v in layer.variables]


def is_same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("frozen", [[0], [1, 2]])
def test_train_leaves_frozen_layers_and_trains_the_others(data, frozen):
    network = tfp_lhnn.LatentHNN(2, (8, 8), seed=1)
    network.initialise(5)
    layers = [*network.hidden_layers, network.output_layer]
    for i in frozen:
        layers[i].trainable = False
    before = [values(layer) for layer in layers]
    history = tfp_lhnn.train(network, data, seed=1, **QUICK)
    for i, layer in enumerate(layers):
        assert is_same(values(layer), before[i]) == (i in frozen)
    assert history.selected == "network"
    _, held_out = data.split(0.1, 1)
    error = network.potential(held_out.position) + held_out.log_prob
    np.testing.assert_allclose(np.std(error), history.energy_error, rtol=1e-3)

    tfp_lhnn.train(network, data, seed=1, warm_start=True, **QUICK)
    assert all(is_same(values(layers[i]), before[i]) for i in frozen)


def test_a_base_without_a_network_leaves_a_frozen_output_layer(data):
    network = tfp_lhnn.LatentHNN(2, (8,), seed=1)
    network.initialise(5)
    network.output_layer.trainable = False
    before = values(network.output_layer)
    history = tfp_lhnn.train(network, data, seed=1, sufficient_base_error=np.inf)
    assert history.selected == "base"
    assert network.is_silent
    assert is_same(values(network.output_layer), before)
    base = network.gaussian_base.energy(data.position) + network.offset.numpy()
    np.testing.assert_allclose(network.potential(data.position), base, atol=1e-6)
    # From silence a warm start still finds its way.
    history = tfp_lhnn.train(network, data, seed=1, warm_start=True, **QUICK)
    assert history.selected == "network"


def test_a_frozen_output_layer_of_zeros_is_refused(data):
    network = tfp_lhnn.LatentHNN(2, (8,), seed=1)
    network.output_layer.trainable = False
    with pytest.raises(ValueError, match="`network` has a frozen output layer of zero"):
        tfp_lhnn.train(network, data, seed=1)


def test_initial_weights_of_a_layer_do_not_depend_on_frozen_ones():
    networks = [tfp_lhnn.LatentHNN(2, (4, 4), seed=1) for _ in range(2)]
    networks[0].hidden_layers[0].trainable = False
    for network in networks:
        network.initialise(7)
    first, second = (network.hidden_layers for network in networks)
    assert not is_same(values(first[0]), values(second[0]))
    assert is_same(values(first[1]), values(second[1]))


def test_a_chain_goes_on_after_layers_were_frozen():
    network = tfp_lhnn.LatentHNN(2, (4,), seed=1)
    network.initialise(3)
    kernel = tfp_lhnn.LatentHNNNoUTurnSampler(
        lambda q: -0.5 * tf.reduce_sum(q**2, axis=-1), network, 0.5, max_tree_depth=2
    )
    state = tf.zeros([2, 2])
    results = kernel.bootstrap_results(state)
    expected, _ = kernel.one_step(state, results, seed=[3, 4])
    network.hidden_layers[0].trainable = False
    resumed, _ = kernel.one_step(state, results, seed=[3, 4])
    np.testing.assert_array_equal(resumed, expected)
    assert np.any(resumed != state)


def test_files_keep_which_layers_are_frozen_and_the_optimiser(data, tmp_path):
    network = tfp_lhnn.LatentHNN(2, (4, 4), seed=1)
    network.hidden_layers[0].trainable = False
    first = values(network.hidden_layers[0])
    network.compile(keras.optimizers.Adam(0.01), run_eagerly=True)
    x, y = physics_arrays(data)
    network.fit(x, y, verbose=0)
    assert is_same(values(network.hidden_layers[0]), first)
    network.save(tmp_path / "a.keras")
    loaded = keras.models.load_model(tmp_path / "a.keras")
    assert is_same(network.get_weights(), loaded.get_weights())
    assert [x.trainable for x in loaded.hidden_layers] == [False, True]
    pairs = zip(network.optimizer.variables, loaded.optimizer.variables, strict=True)
    assert is_same(*zip(*((a.numpy(), b.numpy()) for a, b in pairs), strict=True))
    loaded.fit(x, y, verbose=0)
    assert is_same(values(loaded.hidden_layers[0]), first)
