"""The physics loss, and Keras' own `compile`, `fit`, `evaluate` and `save` by it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfp_lhnn
from tfp_lhnn.network.physics_loss import physics_arrays

from ..processes import run_python


def physics_data(n=600, dim=2):
    generator = np.random.default_rng(0)
    position = generator.normal(size=(n, dim)).astype(np.float32)
    return tfp_lhnn.TrainingData.from_gradients(
        position, -np.sin(position), np.sum(np.cos(position), -1), seed=0
    )


class TestFit:
    @pytest.mark.parametrize("separable", [True, False])
    def test_loss_falls_with_callbacks_and_validation(self, separable):
        x, y = physics_arrays(physics_data())
        network = tfp_lhnn.LatentHNN(2, (16,), separable=separable, seed=0)
        network.compile(keras.optimizers.Adam(0.01), steps_per_execution=5)
        seen = []
        callback = keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: seen.append(logs["val_loss"])
        )
        stop = keras.callbacks.EarlyStopping("val_loss", patience=20)
        history = network.fit(
            x, y, epochs=8, validation_split=0.2, callbacks=[callback, stop], verbose=0
        ).history
        assert history["val_loss"] == seen
        assert history["loss"][-1] < 0.5 * history["loss"][0]
        parts = np.add(history["position_rate_loss"], history["momentum_rate_loss"])
        np.testing.assert_allclose(history["loss"], parts, rtol=1e-5)

    @pytest.mark.parametrize("weighted", [False, True])
    def test_evaluate_is_the_physics_error(self, weighted):
        x, y = physics_arrays(physics_data(n=70))
        network = tfp_lhnn.LatentHNN(2, (8,), separable=False, seed=0)
        network.compile()
        weights = np.linspace(0.0, 2.0, 70) if weighted else None
        result = network.evaluate(
            x, y, sample_weight=weights, verbose=0, return_dict=True
        )
        velocity, force = network.time_derivatives(x[:, :2], x[:, 2:])
        error = np.stack([velocity - y[:, :2], force - y[:, 2:]])
        by_point = np.mean(error**2, axis=-1)
        expected = np.mean(by_point if weights is None else by_point * weights, axis=-1)
        np.testing.assert_allclose(result["position_rate_loss"], expected[0], rtol=1e-5)
        np.testing.assert_allclose(result["momentum_rate_loss"], expected[1], rtol=1e-5)
        np.testing.assert_allclose(result["loss"], expected.sum(), rtol=1e-5)

    @pytest.mark.slow
    def test_two_replicas_train_like_one(self):
        done = run_python("""
            import keras, numpy as np, tensorflow as tf, tfp_lhnn
            cpu = tf.config.list_physical_devices("CPU")[0]
            two = [tf.config.LogicalDeviceConfiguration()] * 2
            tf.config.set_logical_device_configuration(cpu, two)
            generator = np.random.default_rng(0)
            x = generator.normal(size=(64, 4)).astype("float32")
            y = np.concatenate([x[:, 2:], -np.sin(x[:, :2])], -1)
            weights = []
            for strategy in (
                tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]),
                tf.distribute.OneDeviceStrategy("CPU:0"),
            ):
                with strategy.scope():
                    network = tfp_lhnn.LatentHNN(2, (8,), seed=0)
                    network.compile(keras.optimizers.SGD(0.1), jit_compile=False)
                    network.fit(x, y, batch_size=32, epochs=2, shuffle=False, verbose=0)
                weights.append(network.get_weights())
            for a, b in zip(*weights, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
        """)
        assert done.returncode == 0, done.stderr

    @pytest.mark.parametrize(
        "name", ["loss", "loss_weights", "metrics", "weighted_metrics"]
    )
    def test_other_losses_are_refused(self, name):
        with pytest.raises(ValueError, match=f"{name} cannot be set"):
            tfp_lhnn.LatentHNN(2, (4,)).compile("adam", **{name: ["mse"]})

    def test_data_of_another_dim_are_refused(self):
        network = tfp_lhnn.LatentHNN(3, (4,))
        network.compile()
        with pytest.raises(ValueError, match=r"expected \[\.\.\., 6\]"):
            network.fit(*physics_arrays(physics_data(n=8)), verbose=0)


class TestTrainingData:
    """`fit` and `evaluate` of what `simulate_training_data` returns."""

    def test_it_is_its_arrays(self):
        data = physics_data(n=70)
        results = []
        for arguments in ((data,), physics_arrays(data)):
            network = tfp_lhnn.LatentHNN(2, (8,), seed=0)
            network.compile(keras.optimizers.Adam(0.01), run_eagerly=True)
            validation = (
                data if len(arguments) == 1 else physics_arrays(physics_data(n=70))
            )
            history = network.fit(
                *arguments,
                epochs=2,
                shuffle=False,
                verbose=0,
                validation_data=validation,
            ).history
            loss = network.evaluate(*arguments, verbose=0)
            results.append([*history["loss"], *history["val_loss"], *loss])
        np.testing.assert_array_equal(*results)

    def test_rates_twice_are_refused(self):
        network = tfp_lhnn.LatentHNN(2, (8,), seed=0)
        network.compile()
        with pytest.raises(ValueError, match="`y` is given"):
            network.fit(physics_data(), np.ones([600, 4]))


class TestRefusals:
    @pytest.mark.parametrize(
        ("method", "options"), [("fit", {"shuffle": False}), ("evaluate", {})]
    )
    @pytest.mark.parametrize("as_dataset", [False, True])
    def test_no_time_derivatives(self, method, options, as_dataset):
        x = np.ones([8, 4], np.float32)
        network = tfp_lhnn.LatentHNN(2, (4,))
        network.compile(jit_compile=False)
        if as_dataset:
            x = tf.data.Dataset.from_tensor_slices(x).batch(4)
        with pytest.raises(ValueError, match="`y` is None; expected the time deriv"):
            getattr(network, method)(x, verbose=0, **options)

    @pytest.mark.parametrize("name", ["a.h5", "a.hdf5"])
    def test_hdf5_files(self, tmp_path, name):
        with pytest.raises(ValueError, match=r"`filepath` is .*\.keras"):
            tfp_lhnn.LatentHNN(2, (4,)).save(tmp_path / name)
        assert not list(tmp_path.iterdir())
