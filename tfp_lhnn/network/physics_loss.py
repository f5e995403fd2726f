"""The physics loss: Keras' `compile`, `fit` and `evaluate` on time derivatives."""

import os
from typing import Any, NoReturn

import keras
import numpy as np
import tensorflow as tf

from tfp_lhnn.evaluation.training_data import TrainingData
from tfp_lhnn.network.dense_layer import QUANTIZE_MESSAGE

__all__ = ["PhysicsModel", "check_last_dimension", "physics_arrays"]

_NO_RATES = (
    "`y` is None; expected the time derivatives at `x`. Pass a TrainingData as `x`, or "
    "both as `physics_arrays` makes them."
)


def physics_arrays(data: TrainingData) -> tuple[np.ndarray, np.ndarray]:
    """Returns `data` as the `x` and `y` of `LatentHNN.fit`.

    Args:
        data: points in phase space and their time derivatives.

    Returns:
        `x`: positions and momenta, `[n, 2 dim]`.
        `y`: their time derivatives, `[n, 2 dim]`.
    """
    x = np.concatenate([data.position, data.momentum], axis=-1)
    y = np.concatenate([data.position_rate, data.momentum_rate], axis=-1)
    return x, y


class PhysicsModel(keras.Model):
    """A Keras model of a Hamiltonian that learns from time derivatives.

    Subclasses have a `dim` and `time_derivatives(q, p) -> (dq/dt, dp/dt)`.
    """

    dim: int

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.position_rate_loss = keras.metrics.Mean(name="position_rate_loss")
        self.momentum_rate_loss = keras.metrics.Mean(name="momentum_rate_loss")

    def time_derivatives(self, q: Any, p: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Hamilton's equations of the learned energy."""
        raise NotImplementedError

    def compile(self, optimizer: Any = "adam", **kwargs: Any) -> None:
        """Configures `fit`; the loss is the physics loss of the paper.

        `fit` and `evaluate` take a `TrainingData`, or `x` and `y` as `physics_arrays`
        makes them. The loss is the sum of two mean squared errors, which are reported
        as well: that of `∂H_θ/∂p` against `dq/dt` (`position_rate_loss`; zero by
        construction for a separable network), and that of `−∂H_θ/∂q` against `dp/dt`
        (`momentum_rate_loss`).

        Args:
            optimizer: name or instance of a Keras optimiser.
            **kwargs: other arguments of `keras.Model.compile`, except those that set
                losses or metrics.

        Raises:
            ValueError: for `loss`, `loss_weights`, `metrics` or `weighted_metrics`.
        """
        for name in ("loss", "loss_weights", "metrics", "weighted_metrics"):
            if kwargs.get(name) is not None:
                raise ValueError(
                    f"{name} cannot be set: a LatentHNN learns by its physics loss"
                )
        super().compile(optimizer=optimizer, **kwargs)

    def fit(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """As `keras.Model.fit`; takes a `TrainingData` as well.

        Args:
            x: a `TrainingData`; or positions and momenta, `[n, 2 dim]`; or a dataset of
                pairs.
            y: time derivatives, `[n, 2 dim]`, if `x` has none.
            *args: as of `keras.Model.fit`.
            **kwargs: as of `keras.Model.fit`; `validation_data` may be a `TrainingData`
                too.

        Returns:
            Keras' `History`.

        Raises:
            ValueError: if there are no time derivatives.
        """
        x, y = _inputs_and_rates(x, y)
        if isinstance(kwargs.get("validation_data"), TrainingData):
            kwargs["validation_data"] = physics_arrays(kwargs["validation_data"])
        return super().fit(x, y, *args, **kwargs)

    def evaluate(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """As `keras.Model.evaluate`; takes a `TrainingData` as well (see `fit`)."""
        return super().evaluate(*_inputs_and_rates(x, y), *args, **kwargs)

    def save(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """As `keras.Model.save`, for `.keras` files.

        Raises:
            ValueError: for an `.h5` file.
        """
        if str(filepath).endswith((".h5", ".hdf5")):
            raise ValueError(
                f"`filepath` is {os.fspath(filepath)!r}; a LatentHNN is saved as a "
                "`.keras` file. An HDF5 file cannot hold all of its settings."
            )
        super().save(filepath, *args, **kwargs)

    def quantize(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuses: gradients of a rounded energy do not conserve it."""
        raise NotImplementedError(QUANTIZE_MESSAGE)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Restores what `compile` was given, and the optimiser's variables."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None:
            self.optimizer.build(self.trainable_variables)

    def physics_losses(
        self, x: tf.Tensor, y: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean squared errors of the two time derivatives.

        Args:
            x: positions and momenta, `[n, 2 dim]`.
            y: their time derivatives, `[n, 2 dim]`.
            sample_weight: `[n]`.

        Returns:
            Scalars: the error of `dq/dt` and that of `dp/dt`.
        """
        check_last_dimension(x, 2 * self.dim, "x")
        check_last_dimension(y, 2 * self.dim, "y")
        q, p = tf.split(x, 2, axis=-1)
        losses = []
        for rate, learned in zip(
            tf.split(y, 2, axis=-1), self.time_derivatives(q, p), strict=True
        ):
            error = tf.reduce_mean(tf.square(learned - tf.cast(rate, q.dtype)), axis=-1)
            if sample_weight is not None:
                error *= tf.cast(tf.reshape(sample_weight, [-1]), q.dtype)
            losses.append(tf.reduce_mean(error))
        return losses[0], losses[1]

    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        """One step of `fit` on the physics loss."""
        x, y, sample_weight = _unpacked(data)
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        with tf.GradientTape() as tape:
            losses = self.physics_losses(x, y, sample_weight)
            # The optimiser adds up the replicas' gradients.
            loss = self.optimizer.scale_loss((losses[0] + losses[1]) / replicas)
        weights = self.trainable_weights
        self.optimizer.apply_gradients(
            zip(tape.gradient(loss, weights), weights, strict=True)
        )
        return self._report(losses, x)

    def test_step(self, data: Any) -> dict[str, tf.Tensor]:
        """One step of `evaluate` and of validation."""
        x, y, sample_weight = _unpacked(data)
        return self._report(self.physics_losses(x, y, sample_weight), x)

    def _report(
        self, losses: tuple[tf.Tensor, tf.Tensor], x: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        size = tf.shape(x)[0]
        self._loss_tracker.update_state(losses[0] + losses[1], sample_weight=size)
        self.position_rate_loss.update_state(losses[0], sample_weight=size)
        self.momentum_rate_loss.update_state(losses[1], sample_weight=size)
        return self.get_metrics_result()


def _inputs_and_rates(x: Any, y: Any) -> tuple[Any, Any]:
    """`x` and `y` for Keras; raises ValueError if `y` is clearly missing."""
    if isinstance(x, TrainingData):
        if y is not None:
            raise ValueError("`y` is given; a TrainingData as `x` has all of it.")
        return physics_arrays(x)
    if y is None and isinstance(x, (np.ndarray, tf.Tensor, list)):
        raise ValueError(_NO_RATES)
    return x, y


def _unpacked(data: Any) -> tuple[Any, Any, Any]:
    """`x`, `y` and sample weights of a batch; raises ValueError without `y`."""
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    if y is None:
        raise ValueError(_NO_RATES)
    return x, y, sample_weight


def check_last_dimension(x: tf.Tensor, dim: int, name: str) -> None:
    """Raises ValueError unless the last dimension of `x` is `dim`."""
    if x.shape.rank == 0 or x.shape[-1] != dim:
        raise ValueError(f"`{name}` has shape {x.shape}; expected [..., {dim}].")
