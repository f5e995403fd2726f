"""The compiled loop of `train`: many optimiser steps in one XLA call.

One compilation serves all trainings of networks of the same form, such as the rounds of
`fit`. Everything is an argument of the compiled function: the weights, the state of the
optimiser, and the points. The points are padded, so that there are few sizes.
"""

import threading
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfp_lhnn.network.latent_hnn import LatentHNN
from tfp_lhnn.network.training_steps import LossCurve, Points, Task, TrainingSteps
from tfp_lhnn.support.compiled_cache import BuildOnce

__all__ = ["LossCurve", "Points", "Recipe", "TrainingLoop"]

# Points are padded to this number, to four times as many, and so on. Held-out points,
# usually a tenth, are padded to an eighth of that. Padding costs next to nothing, but a
# new size costs a compilation.
_SMALLEST_CAPACITY = 4096
_HELD_OUT_SHARE = 8

# Compiled loops kept: `fit` needs one per size of its data.
_LOOPS_KEPT = 16


class Recipe(NamedTuple):
    """How to train.

    Attributes:
        learning_rate: AdamW's at the start; it decays to zero by a cosine.
        num_steps: steps over which it decays.
        weight_decay: AdamW's.
        value_weight: weight of the value loss beside the gradient loss.
        jit_compile: whether XLA compiles the loop.
    """

    learning_rate: float
    num_steps: int
    weight_decay: float
    value_weight: float
    jit_compile: bool


class _Form(NamedTuple):
    """All that the compiled function depends on.

    Attributes:
        dim: of the network.
        hidden_units: of the network.
        activation: of the network.
        separable: of the network.
        dtype: in which the network computes.
        is_trained: which of its `layer_variables` are trained.
        recipe: how to train.
        capacity: number of points, padding included.
        held_out_capacity: number of held-out points, padding included.
        rows_shape: steps and batch size.
    """

    dim: int
    hidden_units: tuple[int, ...]
    activation: Any
    separable: bool
    dtype: str
    is_trained: tuple[bool, ...]
    recipe: Recipe
    capacity: int
    held_out_capacity: int
    rows_shape: tuple[int, int]

    def network(self) -> LatentHNN:
        """A network of this form, with arbitrary weights."""
        network = LatentHNN(
            self.dim,
            self.hidden_units,
            self.activation,
            separable=self.separable,
            base="none",
            seed=0,
            dtype=self.dtype,
        )
        for variable, is_trained in zip(
            network.layer_variables, self.is_trained, strict=True
        ):
            variable.trainable = is_trained
        return network

    def task_spec(self) -> Task:
        """Shapes and dtypes of a task."""
        width = self.dim if self.separable else 2 * self.dim

        def spec(*shape: int) -> tf.TensorSpec:
            return tf.TensorSpec(shape, self.dtype)

        def points(n: int) -> Points:
            return Points(spec(n, width), spec(n, width), spec(n))

        return Task(
            points(self.capacity),
            points(self.held_out_capacity),
            spec(self.held_out_capacity),
            spec(width),
            spec(),
        )


class _CompiledLoop:
    """The compiled function, with the network and the optimiser that it works on.

    Keras' optimisers change variables. So the function sets the variables of its own
    network and optimiser when it begins, and returns their values when it ends. In
    between, a lock keeps other threads out. A pure function would need no lock, but
    Keras has no pure form of an optimiser on TensorFlow.

    Args:
        form: what to compile for.

    Attributes:
        fresh_state: of an optimiser that has made no step.
    """

    def __init__(self, form: _Form) -> None:
        self._lock = threading.Lock()
        network = form.network()
        recipe = form.recipe
        schedule = keras.optimizers.schedules.CosineDecay(
            recipe.learning_rate, recipe.num_steps
        )
        optimizer = keras.optimizers.AdamW(schedule, weight_decay=recipe.weight_decay)
        optimizer.build(network.trained_variables)
        # Kept alive: a compiled function does not own the variables it uses.
        self._steps = TrainingSteps(network, optimizer, recipe.value_weight)
        self.fresh_state = [tf.convert_to_tensor(v) for v in optimizer.variables]
        self._compiled = tf.function(
            self._steps.run, jit_compile=recipe.jit_compile, autograph=False
        ).get_concrete_function(
            [tf.TensorSpec(v.shape, v.dtype) for v in network.layer_variables],
            [tf.TensorSpec(v.shape, v.dtype) for v in self.fresh_state],
            form.task_spec(),
            tf.TensorSpec(form.rows_shape, tf.int32),
            tf.TensorSpec([], tf.int32),
        )

    def run(self, *arguments: Any) -> Any:
        """Calls `TrainingSteps.run`, compiled; one thread at a time."""
        with self._lock:
            return self._compiled(*arguments)


_loops = BuildOnce(_LOOPS_KEPT)


class TrainingLoop:
    """Keras layers and a Keras optimiser inside one compiled `tf.while_loop`.

    A call per step would spend more time on the call than on the step.

    Args:
        network: the network; `run` changes its trainable variables.
        points: to learn from.
        held_out: points for the held-out loss.
        gradient_scale: size of the gradients by coordinate, `[width]`.
        recipe: how to train.
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

        self._task = Task(
            prepared(points, capacity),
            prepared(held_out, held_out_capacity),
            _padded(np.ones(len(held_out.value)), held_out_capacity, dtype),
            tf.constant(gradient_scale / unit, dtype),
            tf.constant(unit, dtype),
        )
        self._optimizer_state: list[tf.Tensor] | None = None

    def run(self, rows: np.ndarray, num_steps: int) -> LossCurve:
        """Runs the first `num_steps` steps, possibly none, of `rows`, `[steps, batch]`.

        All calls must have the same shape of `rows`.
        """
        trained = {id(variable) for variable in self._network.trained_variables}
        form = _Form(
            self._network.dim,
            self._network.hidden_units,
            self._network.activation,
            self._network.separable,
            self._network.compute_dtype,
            tuple(id(v) in trained for v in self._network.layer_variables),
            self._recipe,
            len(self._task.points.value),
            len(self._task.held_out.value),
            rows.shape,
        )
        compiled = _loops.get(form, lambda: _CompiledLoop(form))
        if self._optimizer_state is None:
            self._optimizer_state = compiled.fresh_state
        weights, self._optimizer_state, curve = compiled.run(
            [tf.convert_to_tensor(v) for v in self._network.layer_variables],
            self._optimizer_state,
            self._task,
            tf.constant(rows, tf.int32),
            tf.constant(num_steps, tf.int32),
        )
        self.restore(weights)
        return LossCurve(*(float(x) for x in curve))

    def weights(self) -> list[np.ndarray]:
        """A copy of the weights that are being trained."""
        return [v.numpy() for v in self._network.trained_variables]

    def restore(self, weights: list[Any]) -> None:
        """Restores what `weights` returned."""
        for variable, value in zip(
            self._network.trained_variables, weights, strict=True
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
