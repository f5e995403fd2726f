"""The compiled loop of `train`: many optimiser steps in one XLA call."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfp_lhnn.network import LatentHNN

__all__ = ["LossCurve", "Points", "TrainingLoop"]


class Points(NamedTuple):
    """What the layers of a network shall learn.

    Attributes:
        inputs: what the first layer sees, `[n, width]`.
        gradient: wanted derivative of the summed output by `inputs`, `[n, width]`.
        value: wanted summed output up to a constant, in nats, `[n]`.
    """

    inputs: Any
    gradient: Any
    value: Any


class LossCurve(NamedTuple):
    """Results of some steps of training.

    Attributes:
        gradient_loss: of the gradients, mean over the steps.
        value_loss: of the values, mean over the steps.
        held_out_loss: weighted sum of both on the held-out points, after the steps.
        squared_error: mean over held-out points and coordinates of the squared error
            of the gradient by position.
        energy_error: standard deviation of the held-out error of the value, in nats.
    """

    gradient_loss: float
    value_loss: float
    held_out_loss: float
    squared_error: float
    energy_error: float


class TrainingLoop:
    """Keras variables and a Keras optimiser inside one compiled `tf.while_loop`.

    A call per step would spend more time on the call than on the step.

    Args:
        network: the network; its trainable variables are changed.
        optimizer: a Keras optimiser that has not been built.
        points: to learn from.
        held_out: to be judged by.
        gradient_scale: size of the gradients by coordinate, `[width]`.
        value_weight: weight of the value loss beside the gradient loss.
        jit_compile: whether XLA compiles the loop.
    """

    def __init__(
        self,
        network: LatentHNN,
        optimizer: Any,
        points: Points,
        held_out: Points,
        *,
        gradient_scale: np.ndarray,
        value_weight: float,
        jit_compile: bool,
    ) -> None:
        self._network = network
        self._optimizer = optimizer
        self._value_weight = value_weight
        self._dim = network.dim
        dtype = network.compute_dtype
        # The unit of energy in which the layers' output is of order one.
        unit = float(network.energy_scale.numpy()) if network.separable else 1.0
        self._unit = unit
        self._scale = tf.constant(gradient_scale / unit, dtype)
        self._points, self._held_out = (
            Points(
                tf.constant(p.inputs, dtype),
                tf.constant(p.gradient / unit, dtype),
                tf.constant((p.value - np.mean(points.value)) / unit, dtype),
            )
            for p in (points, held_out)
        )
        optimizer.build(network.trainable_variables)
        self._jit_compile = jit_compile
        self._compiled: Any = None

    def run(self, rows: np.ndarray, num_steps: int) -> LossCurve:
        """Runs the first `num_steps` steps, maybe none, of `rows`, `[steps, batch]`.

        All calls must have the same shape of `rows`.
        """
        arguments = tf.constant(rows, tf.int32), tf.constant(num_steps, tf.int32)
        if self._compiled is None:
            # A concrete function: TensorFlow would warn of retracing, since every loop
            # traces this method once.
            self._compiled = tf.function(
                self._steps, jit_compile=self._jit_compile, autograph=False
            ).get_concrete_function(*arguments)
        results = self._compiled(*arguments)
        return LossCurve(*(float(x) for x in results))

    def weights(self) -> list[np.ndarray]:
        """A copy of the weights that are being trained."""
        return [v.numpy() for v in self._network.trainable_variables]

    def restore(self, weights: list[np.ndarray]) -> None:
        """Puts back what `weights` returned."""
        for variable, value in zip(
            self._network.trainable_variables, weights, strict=True
        ):
            variable.assign(value)

    def _steps(self, rows: tf.Tensor, num_steps: tf.Tensor) -> tuple[tf.Tensor, ...]:
        variables = self._network.trainable_variables

        def body(
            i: tf.Tensor, gradient_sum: tf.Tensor, value_sum: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            batch = Points(*(tf.gather(x, rows[i]) for x in self._points))
            with tf.GradientTape() as tape:
                gradient_loss, value_loss = self._losses(*self._errors(batch))
                loss = gradient_loss + self._value_weight * value_loss
            gradients = tape.gradient(
                loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
            self._optimizer.apply(gradients)
            return i + 1, gradient_sum + gradient_loss, value_sum + value_loss

        zero = tf.zeros([], self._network.compute_dtype)
        _, gradient_sum, value_sum = tf.while_loop(
            lambda i, *_: i < num_steps, body, (0, zero, zero)
        )
        count = tf.cast(tf.maximum(num_steps, 1), zero.dtype)
        gradient_error, value_error = self._errors(self._held_out)
        gradient_loss, value_loss = self._losses(gradient_error, value_error)
        by_position = self._unit * gradient_error[:, : self._dim]
        return (
            gradient_sum / count,
            value_sum / count,
            gradient_loss + self._value_weight * value_loss,
            tf.reduce_mean(tf.square(by_position)),
            self._unit * tf.math.reduce_std(value_error),
        )

    def _errors(self, points: Points) -> tuple[tf.Tensor, tf.Tensor]:
        """Errors of gradient and value, in units of the energy scale."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(points.inputs)
            value = tf.reduce_sum(self._network.raw_latents(points.inputs), axis=-1)
        gradient = tape.gradient(value, points.inputs)
        return gradient - points.gradient, value - points.value

    def _losses(
        self, gradient_error: tf.Tensor, value_error: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        # The potential's constant is free, so the batch's mean error is no error.
        value_error -= tf.reduce_mean(value_error)
        return (
            tf.reduce_mean(_robust(gradient_error / self._scale)),
            tf.reduce_mean(_robust(value_error)),
        )


def _robust(error: tf.Tensor) -> tf.Tensor:
    """Pseudo-Huber: half the square up to about one, then linear, smooth throughout."""
    return tf.sqrt(1.0 + tf.square(error)) - 1.0
