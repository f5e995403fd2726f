"""The compiled loop of `train`: many optimiser steps in one XLA call.

The compiled function is pure: weights and the optimiser's variables go in and come out,
the points are arguments, padded to a size of which there are few. So one compilation
serves all trainings of alike networks, as the rounds of `fit` are.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfp_lhnn.network.latent_hnn import LatentHNN

__all__ = ["LossCurve", "Points", "Recipe", "TrainingLoop"]

# Points are padded to this, or four times as many, and so on; those held out, usually a
# tenth, to an eighth of that. Padding costs next to nothing, a new size a compilation.
_SMALLEST_CAPACITY = 4096
_HELD_OUT_SHARE = 8


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


class Recipe(NamedTuple):
    """How to train.

    Attributes:
        learning_rate: AdamW's at the start; it decays to zero by a cosine.
        num_steps: over which it does.
        weight_decay: AdamW's.
        value_weight: weight of the value loss beside the gradient loss.
        jit_compile: whether XLA compiles the loop.
    """

    learning_rate: float
    num_steps: int
    weight_decay: float
    value_weight: float
    jit_compile: bool


class _Task(NamedTuple):
    """What the compiled function is given beside its state.

    Attributes:
        points: to learn from, in units of the energy scale, padded.
        held_out: to be judged by, alike.
        is_held_out: 1 for rows of `held_out`, 0 for padding, `[n]`.
        scale: size of the gradients by coordinate, in those units, `[width]`.
        unit: the energy scale, in nats.
    """

    points: Points
    held_out: Points
    is_held_out: tf.Tensor
    scale: tf.Tensor
    unit: tf.Tensor


class TrainingLoop:
    """Keras layers and a Keras optimiser inside one compiled `tf.while_loop`.

    A call per step would spend more time on the call than on the step.

    Args:
        network: the network; `run` changes its trainable variables.
        points: to learn from.
        held_out: to be judged by.
        gradient_scale: size of the gradients by coordinate, `[width]`.
        recipe: how.
    """

    def __init__(
        self,
        network: LatentHNN,
        points: Points,
        held_out: Points,
        *,
        gradient_scale: np.ndarray,
        recipe: Recipe,
    ) -> None:
        self._network = network
        self._recipe = recipe
        dtype = network.compute_dtype
        # The unit of energy in which the layers' output is of order one.
        unit = float(network.energy_scale.numpy()) if network.separable else 1.0
        centre = np.mean(points.value)

        capacity = _capacity(len(points.value), _SMALLEST_CAPACITY)
        held_out_capacity = _capacity(len(held_out.value), capacity // _HELD_OUT_SHARE)

        def prepared(p: Points, capacity: int) -> Points:
            arrays = (p.inputs, p.gradient / unit, (p.value - centre) / unit)
            return Points(*(_padded(x, capacity, dtype) for x in arrays))

        self._task = _Task(
            prepared(points, capacity),
            prepared(held_out, held_out_capacity),
            _padded(np.ones(len(held_out.value)), held_out_capacity, dtype),
            tf.constant(gradient_scale / unit, dtype),
            tf.constant(unit, dtype),
        )
        self._optimizer_state: list[tf.Tensor] | None = None

    def run(self, rows: np.ndarray, num_steps: int) -> LossCurve:
        """Runs the first `num_steps` steps, maybe none, of `rows`, `[steps, batch]`.

        All calls must have the same shape of `rows`.
        """
        network = self._network
        steps, fresh_state = _compiled_steps(
            network.dim,
            network.hidden_units,
            network.activation,
            network.separable,
            network.dtype_policy.name,
            self._recipe,
            len(self._task.points.value),
            len(self._task.held_out.value),
            rows.shape,
        )
        if self._optimizer_state is None:
            self._optimizer_state = fresh_state
        weights, self._optimizer_state, curve = steps(
            [tf.convert_to_tensor(v) for v in network.trainable_variables],
            self._optimizer_state,
            self._task,
            tf.constant(rows, tf.int32),
            tf.constant(num_steps, tf.int32),
        )
        self.restore(weights)
        return LossCurve(*(float(x) for x in curve))

    def weights(self) -> list[np.ndarray]:
        """A copy of the weights that are being trained."""
        return [v.numpy() for v in self._network.trainable_variables]

    def restore(self, weights: list[Any]) -> None:
        """Puts back what `weights` returned."""
        for variable, value in zip(
            self._network.trainable_variables, weights, strict=True
        ):
            variable.assign(value)


def _capacity(number: int, smallest: int) -> int:
    capacity = smallest
    while capacity < number:
        capacity *= 4
    return capacity


def _padded(x: np.ndarray, capacity: int, dtype: str) -> tf.Tensor:
    room = np.zeros([capacity, *x.shape[1:]], dtype)
    room[: len(x)] = x
    return tf.constant(room)


@functools.lru_cache(maxsize=16)
def _compiled_steps(
    dim: int,
    hidden_units: tuple[int, ...],
    activation: Any,
    separable: bool,
    dtype_policy: str,
    recipe: Recipe,
    capacity: int,
    held_out_capacity: int,
    rows_shape: tuple[int, int],
) -> tuple[Callable[..., Any], list[tf.Tensor]]:
    """The compiled function, and the state of an optimiser that has done no step."""
    network = LatentHNN(
        dim,
        hidden_units,
        activation,
        separable=separable,
        base="none",
        seed=0,
        dtype=dtype_policy,
    )
    schedule = keras.optimizers.schedules.CosineDecay(
        recipe.learning_rate, recipe.num_steps
    )
    optimizer = keras.optimizers.AdamW(schedule, weight_decay=recipe.weight_decay)
    optimizer.build(network.trainable_variables)
    steps = _Steps(network, optimizer, recipe.value_weight)
    width = dim if separable else 2 * dim
    dtype = network.compute_dtype

    def spec(*shape: int) -> tf.TensorSpec:
        return tf.TensorSpec(shape, dtype)

    def points(n: int) -> Points:
        return Points(spec(n, width), spec(n, width), spec(n))

    state = [tf.convert_to_tensor(v) for v in optimizer.variables]
    compiled = tf.function(
        steps.run, jit_compile=recipe.jit_compile, autograph=False
    ).get_concrete_function(
        [tf.TensorSpec(v.shape, v.dtype) for v in network.trainable_variables],
        [tf.TensorSpec(v.shape, v.dtype) for v in state],
        _Task(
            points(capacity),
            points(held_out_capacity),
            spec(held_out_capacity),
            spec(width),
            spec(),
        ),
        tf.TensorSpec(rows_shape, tf.int32),
        tf.TensorSpec([], tf.int32),
    )
    return compiled, state


class _Steps:
    """The function that is compiled.

    Keras' optimisers change variables, so those of this network and optimiser are set
    at its beginning and read at its end: from outside it is a pure function.

    Args:
        network: gives the layers.
        optimizer: built for it.
        value_weight: see `Recipe`.
    """

    def __init__(self, network: LatentHNN, optimizer: Any, value_weight: float) -> None:
        self._network = network
        self._optimizer = optimizer
        self._value_weight = value_weight

    def run(
        self,
        weights: list[tf.Tensor],
        optimizer_state: list[tf.Tensor],
        task: _Task,
        rows: tf.Tensor,
        num_steps: tf.Tensor,
    ) -> tuple[list[tf.Tensor], list[tf.Tensor], tuple[tf.Tensor, ...]]:
        """New weights, new state of the optimiser, and the entries of a `LossCurve`."""
        variables = self._network.trainable_variables
        for variable, value in zip(
            [*variables, *self._optimizer.variables],
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
        gradient_error, value_error = self._errors(task.held_out)
        gradient_loss, value_loss = _losses(
            gradient_error, value_error, task.scale, task.is_held_out
        )
        by_position = gradient_error[:, : self._network.dim]
        squares = tf.reduce_mean(tf.square(by_position), axis=-1)
        centred = value_error - _mean(value_error, task.is_held_out)
        curve = (
            gradient_sum / count,
            value_sum / count,
            gradient_loss + self._value_weight * value_loss,
            tf.square(task.unit) * _mean(squares, task.is_held_out),
            task.unit * tf.sqrt(_mean(tf.square(centred), task.is_held_out)),
        )
        return (
            [tf.convert_to_tensor(v) for v in variables],
            [tf.convert_to_tensor(v) for v in self._optimizer.variables],
            curve,
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
    # The potential's constant is free, so the batch's mean error is no error.
    value_error -= _mean(value_error, weight)
    by_point = tf.reduce_mean(_robust(gradient_error / scale), axis=-1)
    return _mean(by_point, weight), _mean(_robust(value_error), weight)


def _robust(error: tf.Tensor) -> tf.Tensor:
    """Pseudo-Huber: half the square up to about one, then linear, smooth throughout."""
    return tf.sqrt(1.0 + tf.square(error)) - 1.0
