"""What a `Model` needs of a density, and checks that all densities share."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from tfp_lhnn.support.state_layout import StateLayout

__all__ = [
    "Density",
    "batch_log_prob",
    "check_dtype",
    "checked_value",
    "digest",
    "evaluate",
    "trace_batch",
    "untaken_batch_size",
]


class Density(Protocol):
    """A density of some variables, each with an unconstrained form.

    Attributes:
      source: The callable or the joint distribution that it comes from.
      names: The variables' names.
      shapes: The shape of one draw of each variable, by name.
      layout: Where the variables' unconstrained forms lie in a flat `[n, dim]`.
      dtype: tf.float32 or tf.float64.
      num_evaluations: Densities evaluated to check the source.
    """

    source: Any
    names: tuple[str, ...]
    shapes: dict[str, tuple[int, ...]]
    layout: StateLayout
    dtype: tf.DType
    num_evaluations: int

    def log_prob(self, parts: list[tf.Tensor]) -> tf.Tensor:
        """Log densities `[n]` of unconstrained parts, `[n, ...]` each."""
        ...

    def constrain(self, rows: np.ndarray) -> list[np.ndarray]:
        """The variables, `[n, ...]` each, at unconstrained points `[n, dim]`."""
        ...

    def unconstrain(self, parts: list[tf.Tensor]) -> list[tf.Tensor]:
        """The unconstrained forms of the variables, `[n, ...]` each."""
        ...

    def prior(self, n: int, seed: tf.Tensor) -> np.ndarray | None:
        """Unconstrained draws `[n, dim]` from a prior, if there is one."""
        ...

    def signature(self) -> list[str]:
        """What identifies the density, besides its shapes, dtype and values."""
        ...


def check_dtype(dtype: tf.DType, name: str) -> None:
    """Raises TypeError unless states of this dtype can be sampled."""
    if dtype not in (tf.float32, tf.float64):
        raise TypeError(f"{name} is {dtype.name}; expected float32 or float64.")


def checked_value(value: Any, dtype: tf.DType, name: str) -> tf.Tensor:
    """Returns a log density; raises TypeError unless it is a Tensor of the dtype."""
    if not tf.is_tensor(value):
        raise TypeError(f"{name} is a {type(value).__name__}; expected a Tensor.")
    if value.dtype != dtype:
        raise TypeError(
            f"{name} is {value.dtype.name}; expected {dtype.name}, as the state is."
        )
    return value


def batch_log_prob(density: Density, q: tf.Tensor) -> tf.Tensor:
    """Log densities `[n]` of unconstrained points `[n, dim]`.

    Raises:
      TypeError: If the user's density has another dtype.
      ValueError: If it isn't one value per point.
    """
    log_prob = density.log_prob(density.layout.unflatten(q))
    if not log_prob.shape.is_compatible_with(q.shape[:1]):
        raise ValueError(
            f"the log density of {q.shape[0]} points has shape {log_prob.shape}; "
            f"expected [{q.shape[0]}], one value per point."
        )
    return tf.ensure_shape(log_prob, q.shape[:1])


def untaken_batch_size(density: Density) -> int:
    """A number of points that is not the length of any dimension of a variable."""
    # So that a dimension in the wrong place cannot fit by chance.
    lengths = {length for shape in density.shapes.values() for length in shape}
    return next(n for n in itertools.count(3) if n not in lengths)


def trace_batch(density: Density) -> None:
    """Traces the density for many points, which evaluates nothing."""
    n = untaken_batch_size(density)
    tf.function(
        lambda q: batch_log_prob(density, q), autograph=False
    ).get_concrete_function(tf.TensorSpec([n, density.layout.dim], density.dtype))


def evaluate(density: Density, q: np.ndarray) -> np.ndarray:
    """Log densities `[n]` of `[n, dim]`; the caller counts them."""
    # In a graph, since eager `tf.vectorized_map` warns of retracing. A new graph each
    # time, since shapes hardly ever recur. Without XLA, which may not support the
    # target.
    q = tf.constant(q, density.dtype)
    log_prob = tf.function(lambda q: batch_log_prob(density, q), autograph=False)
    return log_prob.get_concrete_function(q)(q).numpy()


def digest(array: np.ndarray) -> str:
    """Identifies an array by its shape, dtype and every bit."""
    header = repr((array.shape, array.dtype.str)).encode()
    return hashlib.sha256(header + np.ascontiguousarray(array).tobytes()).hexdigest()
