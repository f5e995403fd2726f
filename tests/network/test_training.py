"""`train`: accuracy, selection, reproducibility, and what it refuses."""

import dataclasses
import pathlib
import runpy

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_lhnn
from tfp_lhnn import targets

QUICK = {"num_steps": 60, "batch_size": 64}


def mixture_potential(q):
    """Two unit Gaussians of different weight at ±2 along the first axis."""
    first = np.log(0.7) - 0.5 * tf.reduce_sum((q - [2.0, 0.0]) ** 2, axis=-1)
    second = np.log(0.3) - 0.5 * tf.reduce_sum((q - [-2.0, 0.0]) ** 2, axis=-1)
    return -tf.math.log(tf.exp(first) + tf.exp(second))


def data_from(potential, position, trajectory_length=20):
    value, gradient = tfp.math.value_and_gradient(potential, tf.constant(position))
    return tfp_lhnn.TrainingData.from_gradients(
        position,
        -gradient.numpy(),
        -value.numpy(),
        seed=0,
        trajectory=np.arange(len(position)) // trajectory_length,
    )


@pytest.fixture(scope="module")
def mixture():
    position = 2.0 * np.random.default_rng(0).normal(size=(1000, 2))
    return data_from(mixture_potential, position.astype(np.float32))


def weights_after(network, data, **kwargs):
    tfp_lhnn.train(network, data, **{"seed": 1, **QUICK, **kwargs})
    return network.get_weights()


class TestAccuracy:
    def test_learns_a_mixture(self, mixture):
        network = tfp_lhnn.LatentHNN(2, (32, 32))
        history = tfp_lhnn.train(network, mixture, seed=1, num_steps=1000)
        assert history.selected == "network"
        assert history.energy_error < 0.05 < 0.5 < history.base_energy_error
        assert history.gradient_error < 1e-2
        q = np.random.default_rng(5).normal(size=(500, 2)).astype(np.float32)
        error = network.potential(q) - mixture_potential(tf.constant(q))
        # The constant is learned as well as the shape.
        assert np.sqrt(np.mean(np.square(error))) < 0.1

    def test_curves_and_best_weights(self, mixture):
        network = tfp_lhnn.LatentHNN(2, (16,))
        history = tfp_lhnn.train(network, mixture, seed=1, num_steps=600)
        np.testing.assert_array_equal(history.step, [0, 250, 500, 600])
        assert history.num_steps == 600
        assert np.isnan(history.gradient_loss[0])
        assert history.gradient_loss[-1] < history.gradient_loss[1]
        assert history.value_loss[-1] < history.value_loss[1]
        _, held_out = mixture.split(0.1, 1)
        error = network.potential(held_out.position) + held_out.log_prob
        # What is reported is what the network now does.
        np.testing.assert_allclose(np.std(error), history.energy_error, rtol=1e-3)
        assert history.energy_error in history.held_out_energy_error

    def test_warm_start_goes_on_and_restores_the_best(self, mixture):
        network = tfp_lhnn.LatentHNN(2, (16,))
        first = tfp_lhnn.train(network, mixture, seed=1, num_steps=400)
        good = network.get_weights()
        second = tfp_lhnn.train(
            network, mixture, seed=1, warm_start=True, num_steps=300, learning_rate=10.0
        )
        start = second.held_out_energy_error[0]
        np.testing.assert_allclose(start, first.energy_error, rtol=1e-3)
        # Steps that long ruin everything; the weights before them come back.
        assert np.all(second.held_out_energy_error[1:] > 2 * start)
        assert second.energy_error == start
        for a, b in zip(good, network.get_weights(), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)

    def test_stops_when_patience_ends(self, mixture, capsys):
        history = tfp_lhnn.train(
            tfp_lhnn.LatentHNN(2, (8,)),
            mixture,
            seed=1,
            num_steps=3000,
            learning_rate=10.0,
            patience=250,
        )
        assert history.num_steps < 3000
        assert capsys.readouterr().out == ""

    def test_joint_network_learns_the_physics(self, mixture):
        network = tfp_lhnn.LatentHNN(2, (32, 32), separable=False)
        history = tfp_lhnn.train(network, mixture, seed=1, num_steps=1000)
        assert history.selected == "network"
        assert np.isnan(history.base_energy_error)
        assert history.gradient_error < 0.1
        q, p = mixture.position, mixture.momentum
        velocity, _ = network.time_derivatives(q, p)
        assert np.mean(np.square(velocity - p)) < 0.1

    @pytest.mark.parametrize("base", ["diagonal", "none"])
    def test_float64_and_other_bases(self, mixture, base):
        network = tfp_lhnn.LatentHNN(2, (16,), base=base, dtype="float64")
        history = tfp_lhnn.train(network, mixture, seed=1, num_steps=500)
        assert history.selected == "network"
        assert history.held_out_energy_error[-1] < 0.5 * np.std(mixture.log_prob)
        assert (
            network.potential(mixture.position.astype(np.float64)).dtype == tf.float64
        )


class TestSelection:
    def test_rough_well_keeps_the_base(self):
        target = targets.rough_well(dim=100)
        position = np.random.default_rng(0).normal(size=(2000, 100)).astype(np.float32)
        data = data_from(lambda q: -target.log_prob(q), position)
        history = tfp_lhnn.train(
            tfp_lhnn.LatentHNN(100, (32,)), data, seed=2, num_steps=500
        )
        assert history.selected == "base"
        assert history.energy_error == history.base_energy_error < 0.2

    def test_a_base_that_suffices_is_left_alone(self, mixture):
        network = tfp_lhnn.LatentHNN(2, (16,))
        history = tfp_lhnn.train(
            network, mixture, seed=1, sufficient_base_error=np.inf, **QUICK
        )
        assert history.selected == "base"
        assert history.num_steps == 0
        limit = 0.9 * history.base_energy_error
        trained = tfp_lhnn.train(
            network, mixture, seed=1, sufficient_base_error=limit, **QUICK
        )
        assert trained.num_steps > 0
        with pytest.raises(ValueError, match="`sufficient_base_error` is -1"):
            tfp_lhnn.train(network, mixture, seed=1, sufficient_base_error=-1.0)

    def test_correlated_gaussian_is_not_made_worse(self):
        dim = 20
        generator = np.random.default_rng(0)
        root = np.eye(dim) + generator.normal(size=(dim, dim)) / np.sqrt(dim)
        precision = tf.constant(root @ root.T, tf.float32)
        data = data_from(
            lambda q: 0.5 * tf.einsum("...i,ij,...j->...", q, precision, q),
            generator.normal(size=(400, dim)).astype(np.float32),
        )
        network = tfp_lhnn.LatentHNN(dim, (32,))
        history = tfp_lhnn.train(network, data, seed=1)
        assert history.selected == "base"
        assert history.num_steps == 0
        assert history.energy_error < 1e-4
        gradient = network.potential_gradient(data.position)
        np.testing.assert_allclose(gradient, -data.momentum_rate, atol=1e-3)


class TestReproducibility:
    def test_seed_decides_whatever_was_before(self, mixture, capsys):
        first = weights_after(tfp_lhnn.LatentHNN(2, (8,), seed=3), mixture, seed=[4, 5])
        again = weights_after(
            tfp_lhnn.LatentHNN(2, (8,), seed=4),
            mixture,
            seed=tf.constant([4, 5]),
            progress=True,
        )
        for a, b in zip(first, again, strict=True):
            np.testing.assert_array_equal(a, b)
        assert "held_out_energy_error" in capsys.readouterr().out
        other = weights_after(tfp_lhnn.LatentHNN(2, (8,), seed=3), mixture, seed=2)
        # The last weights but one are a hidden layer's.
        assert not np.allclose(first[-2], other[-2])

    def test_without_xla_much_the_same(self, mixture):
        few = {"num_steps": 10}
        compiled = weights_after(tfp_lhnn.LatentHNN(2, (8,)), mixture, **few)
        plain = weights_after(
            tfp_lhnn.LatentHNN(2, (8,)), mixture, jit_compile=False, **few
        )
        for a, b in zip(compiled, plain, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-4)


class TestBadArguments:
    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ({"num_steps": 0}, ValueError),
            ({"num_steps": 2.5}, TypeError),
            ({"batch_size": 0}, ValueError),
            ({"patience": 0}, ValueError),
            ({"learning_rate": 0.0}, ValueError),
            ({"learning_rate": float("nan")}, ValueError),
            ({"learning_rate": "fast"}, TypeError),
            ({"value_weight": -1.0}, ValueError),
            ({"weight_decay": -1.0}, ValueError),
            ({"held_out_fraction": 0.0}, ValueError),
            ({"held_out_fraction": 1.0}, ValueError),
            ({"seed": "x"}, TypeError),
            ({"progress": "yes"}, TypeError),
            ({"batch_size": True}, TypeError),
            ({"patience": 2.0}, TypeError),
            ({"weight_decay": None}, TypeError),
        ],
    )
    def test_are_named(self, mixture, arguments, error):
        with pytest.raises(error, match=f"`{next(iter(arguments))}`"):
            tfp_lhnn.train(
                tfp_lhnn.LatentHNN(2, (4,)), mixture, **{"seed": 1, **arguments}
            )

    def test_network_and_data(self, mixture):
        network = tfp_lhnn.LatentHNN(3, (4,))
        with pytest.raises(ValueError, match=r"`data` has dim 2; the network has 3"):
            tfp_lhnn.train(network, mixture, seed=1)
        with pytest.raises(TypeError, match="`data`"):
            tfp_lhnn.train(network, mixture.position, seed=1)
        with pytest.raises(TypeError, match="`network`"):
            tfp_lhnn.train(object(), mixture, seed=1)
        network = tfp_lhnn.LatentHNN(2, (4,), trainable=False)
        with pytest.raises(ValueError, match="no trainable weights"):
            tfp_lhnn.train(network, mixture, seed=1)

    @pytest.mark.parametrize("separable", [True, False])
    def test_constant_data(self, mixture, separable):
        network = tfp_lhnn.LatentHNN(2, (4,), separable=separable)
        constant = dataclasses.replace(mixture, position=np.ones_like(mixture.position))
        with pytest.raises(ValueError, match="position is constant"):
            tfp_lhnn.train(network, constant, seed=1)

    def test_nan_in_data(self, mixture):
        broken = np.full_like(mixture.momentum_rate, np.nan)
        with pytest.raises(ValueError, match="`momentum_rate`"):
            dataclasses.replace(mixture, momentum_rate=broken)

    def test_too_few_points_to_hold_out(self, mixture):
        few = data_from(mixture_potential, mixture.position[:6], trajectory_length=1)
        with pytest.raises(ValueError, match="`held_out_fraction`"):
            tfp_lhnn.train(tfp_lhnn.LatentHNN(2, (4,)), few, seed=1)


@pytest.mark.slow
def test_benchmark_runs_tiny(monkeypatch, capsys):
    script = pathlib.Path(__file__).parents[2] / "benchmarks" / "training.py"
    monkeypatch.setattr("sys.argv", [str(script), "--tiny"])
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out.count("steps/s") == 5
