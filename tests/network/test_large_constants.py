"""Log densities far from zero, whose differences count to a fraction of a nat."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfp_lhnn
from tfp_lhnn.network.energy_function import energy_function, split_offset
from tfp_lhnn.network.gaussian_base import fit_gaussian_base

CONSTANT = 1e8
RUN = {"seed": 1, "num_steps": 200, "batch_size": 64, "jit_compile": False}


def potential(q):
    return np.sum(0.5 * q**2 + 0.3 * np.sin(2.0 * q), axis=-1)


def make_data(constant, dtype=np.float64, num_points=500):
    q = np.random.default_rng(0).normal(size=(num_points, 2))
    gradient = -q - 0.6 * np.cos(2.0 * q)
    return tfp_lhnn.TrainingData.from_gradients(
        q.astype(dtype), gradient.astype(dtype), -potential(q) - constant, seed=0
    )


@pytest.fixture(scope="module", params=[np.float64, np.float32], ids=["f64", "f32"])
def trained(request):
    """A float32 network trained on data with a constant, and one without."""
    networks, histories = [], []
    for constant in (0.0, CONSTANT):
        networks.append(tfp_lhnn.LatentHNN(2, (16,), seed=0))
        data = make_data(constant, request.param)
        histories.append(tfp_lhnn.train(networks[-1], data, **RUN))
    return networks, histories


def test_a_constant_does_not_disturb_training(trained):
    _, (plain, high) = trained
    assert plain.selected == high.selected == "network"
    assert plain.energy_error < 0.2
    np.testing.assert_allclose(high.energy_error, plain.energy_error, rtol=1e-3)
    np.testing.assert_allclose(
        high.base_energy_error, plain.base_energy_error, rtol=1e-5
    )


def test_potentials_keep_their_digits_in_float64(trained):
    (plain, high), _ = trained
    q = np.random.default_rng(1).normal(size=(50, 2))
    error = plain.potential(q) - potential(q)
    # Six digits of a nat are left of 16 beside a constant of nine.
    for method in (
        lambda x: high.potential(x),
        lambda x: high.energy(x, np.zeros_like(x)),
        lambda x: tf.reduce_sum(high.latents(x), axis=-1),
        lambda x: high.energy_function(*_weights(high))(x, x)[0],
    ):
        value = method(tf.constant(q)) - CONSTANT
        np.testing.assert_allclose(value - potential(q), error, atol=1e-3)


def _weights(network):
    return [
        [tf.convert_to_tensor(v) for v in variables]
        for variables in (network.layer_variables, network.base_variables)
    ]


def test_energies_without_the_offset_are_small(trained):
    (_, high), _ = trained
    layers, base = _weights(high)
    rest, offset = split_offset(high, base)
    np.testing.assert_allclose(offset, CONSTANT, atol=0.1)
    q = tf.constant(np.random.default_rng(1).normal(size=(50, 2)), tf.float32)
    energy, _ = energy_function(high, layers, rest)(q, q)
    np.testing.assert_allclose(energy, potential(q.numpy()), atol=0.5)


def test_the_base_and_the_offset_are_fitted_past_a_constant():
    data, high = make_data(0.0), make_data(CONSTANT)
    arrays = data.position, data.momentum_rate
    plain_base = fit_gaussian_base(*arrays, data.log_prob)
    high_base = fit_gaussian_base(*arrays, high.log_prob)
    np.testing.assert_allclose(high_base.whitening, plain_base.whitening, atol=1e-6)
    offsets = []
    for d in (data, high):
        network = tfp_lhnn.LatentHNN(2, (4,))
        network.adapt(d)
        offsets.append(network.offset.numpy())
    np.testing.assert_allclose(offsets[1] - offsets[0], CONSTANT, rtol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_older_weights_and_files_load(dtype, tmp_path, monkeypatch):
    """The offset once had the dtype of the network."""
    network = tfp_lhnn.LatentHNN(2, (4,), dtype=dtype, seed=0)
    network.offset.assign(-4.25)
    weights = [w.astype(dtype) for w in network.get_weights()]
    other = tfp_lhnn.LatentHNN(2, (4,), dtype=dtype, seed=1)
    other.set_weights(weights)
    q = np.random.default_rng(1).normal(size=(5, 2))
    np.testing.assert_array_equal(other.potential(q), network.potential(q))

    add_weight = tfp_lhnn.LatentHNN.add_weight
    with monkeypatch.context() as patch:
        patch.setattr(
            tfp_lhnn.LatentHNN,
            "add_weight",
            lambda self, **kwargs: add_weight(self, **{**kwargs, "dtype": dtype}),
        )
        old = tfp_lhnn.LatentHNN(2, (4,), dtype=dtype, seed=0)
        old.offset.assign(-4.25)
        assert old.offset.dtype == dtype
        old.save(tmp_path / "old.keras")
    loaded = keras.models.load_model(tmp_path / "old.keras")
    assert loaded.offset.dtype == "float64"
    np.testing.assert_array_equal(loaded.potential(q), network.potential(q))
