"""What the compiled loop of `train` does: steps of an optimiser, and the losses."""

from typing import Any, NamedTuple

import tensorflow as tf

from tfp_lhnn.network.latent_hnn import LatentHNN

__all__ = ["LossCurve", "Points", "Task", "TrainingSteps"]


class Points(NamedTuple):
    """What the layers of a network are to learn.

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


class Task(NamedTuple):
    """The inputs of the compiled function besides its state.

    Attributes:
        points: to learn from, in units of the energy scale, padded.
        held_out: for the held-out loss, in the same form.
        is_held_out: 1 for rows of `held_out`, 0 for padding, `[n]`.
        scale: size of the gradients by coordinate, in those units, `[width]`.
        unit: the energy scale, in nats.
    """

    points: Points
    held_out: Points
    is_held_out: tf.Tensor
    scale: tf.Tensor
    unit: tf.Tensor


class TrainingSteps:
    """The function that is compiled.

    Args:
        network: gives the layers.
        optimizer: built for those of its variables that are trained.
        value_weight: weight of the value loss beside the gradient loss.
    """

    def __init__(self, network: LatentHNN, optimizer: Any, value_weight: float) -> None:
        self._network = network
        self._optimizer = optimizer
        self._value_weight = value_weight

    def run(
        self,
        weights: list[tf.Tensor],
        optimizer_state: list[tf.Tensor],
        task: Task,
        rows: tf.Tensor,
        num_steps: tf.Tensor,
    ) -> tuple[list[tf.Tensor], list[tf.Tensor], tuple[tf.Tensor, ...]]:
        """Makes some steps of the optimiser.

        Args:
            weights: values of `layer_variables`.
            optimizer_state: values of the optimiser's variables.
            task: what to learn.
            rows: of the points, `[steps, batch]`.
            num_steps: how many of these steps to do, `[]`.

        Returns:
            New values of `trained_variables`, the new state of the optimiser, and the
            entries of a `LossCurve`.
        """
        variables = self._network.trained_variables
        for variable, value in zip(
            [*self._network.layer_variables, *self._optimizer.variables],
            [*weights, *optimizer_state],
            strict=True,
        ):
            variable.assign(value)
        zero = tf.zeros([], self._network.compute_dtype)
        # A batch has no padding.
        ones = tf.ones(rows.shape[1:], zero.dtype)

        def body(
            i: tf.Tensor, gradient_sum: tf.Tensor, value_sum: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            batch = Points(*(tf.gather(x, rows[i]) for x in task.points))
            with tf.GradientTape() as tape:
                errors = self._errors(batch)
                gradient_loss, value_loss = _losses(*errors, task.scale, ones)
                loss = gradient_loss + self._value_weight * value_loss
            gradients = tape.gradient(
                loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
            self._optimizer.apply(gradients)
            return i + 1, gradient_sum + gradient_loss, value_sum + value_loss

        _, gradient_sum, value_sum = tf.while_loop(
            lambda i, *_: i < num_steps, body, (0, zero, zero)
        )
        count = tf.cast(tf.maximum(num_steps, 1), zero.dtype)
        curve = (gradient_sum / count, value_sum / count, *self._judge(task))
        return (
            [tf.convert_to_tensor(v) for v in variables],
            [tf.convert_to_tensor(v) for v in self._optimizer.variables],
            curve,
        )

    def _judge(self, task: Task) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The held-out entries of a `LossCurve`."""
        gradient_error, value_error = self._errors(task.held_out)
        gradient_loss, value_loss = _losses(
            gradient_error, value_error, task.scale, task.is_held_out
        )
        by_position = gradient_error[:, : self._network.dim]
        squares = tf.reduce_mean(tf.square(by_position), axis=-1)
        centred = value_error - _mean(value_error, task.is_held_out)
        return (
            gradient_loss + self._value_weight * value_loss,
            tf.square(task.unit) * _mean(squares, task.is_held_out),
            task.unit * tf.sqrt(_mean(tf.square(centred), task.is_held_out)),
        )

    def _errors(self, points: Points) -> tuple[tf.Tensor, tf.Tensor]:
        """Errors of gradient and value, in units of the energy scale."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(points.inputs)
            value = tf.reduce_sum(self._network.raw_latents(points.inputs), axis=-1)
        gradient = tape.gradient(value, points.inputs)
        return gradient - points.gradient, value - points.value


def _mean(x: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(weight * x) / tf.reduce_sum(weight)


def _losses(
    gradient_error: tf.Tensor,
    value_error: tf.Tensor,
    scale: tf.Tensor,
    weight: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Losses of gradient and value; `weight` is 0 for padding, else 1, `[n]`."""
    # The potential's constant is free, so the batch's mean error does not count.
    value_error -= _mean(value_error, weight)
    by_point = tf.reduce_mean(_robust(gradient_error / scale), axis=-1)
    return _mean(by_point, weight), _mean(_robust(value_error), weight)


def _robust(error: tf.Tensor) -> tf.Tensor:
    """Pseudo-Huber: half the square up to about one, then linear, smooth throughout."""
    return tf.sqrt(1.0 + tf.square(error)) - 1.0
