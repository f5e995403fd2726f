"""The state of all chains as one `[chains, dim]` matrix, and the way back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfp_lhnn.support.state_layout import StateLayout, state_parts

__all__ = ["ChainLayout"]


class ChainLayout:
    """Where TFP's state (parts, chain dimensions) lies in a matrix.

    Everything below the kernel sees one row per chain. For the common state, one tensor
    `[chains, dim]`, none of the conversions adds an op.

    Args:
        state: a Tensor, or a list or tuple of Tensors, `[batch..., event...]`.
        log_prob: the target's value at it, `[batch...]`.
    """

    def __init__(self, state: Any, log_prob: tf.Tensor) -> None:
        self._log_prob = log_prob
        self._state = StateLayout.from_state(state, log_prob.shape.rank)
        self._parts = state_parts(state)

    @property
    def dim(self) -> int:
        """Number of coordinates of a chain."""
        return self._state.dim

    def to_matrix(self, state: Any) -> tf.Tensor:
        """State -> `[chains, dim]`."""
        flat = self._state.flatten(state)
        return flat if self._is_flat else tf.reshape(flat, [-1, self.dim])

    def to_state(self, matrix: tf.Tensor) -> Any:
        """`[chains, dim]` -> state, in the caller's own structure."""
        return self._state.restore(self._with_batch(matrix, [self.dim]))

    def to_rows(self, values: tf.Tensor) -> tf.Tensor:
        """`[batch...]` -> `[chains]`."""
        return values if self._is_flat else tf.reshape(values, [-1])

    def to_batch(self, rows: tf.Tensor) -> tf.Tensor:
        """`[chains]` -> `[batch...]`."""
        return self._with_batch(rows, [])

    def columns_to_matrix(self, columns: Sequence[tf.Tensor]) -> tf.Tensor:
        """One `[batch..., event...]` or `[batch..., size]` per part -> a matrix."""
        rows = [
            column
            if self._is_flat and column.shape.rank == 2
            else tf.reshape(column, [-1, size])
            for column, size in zip(columns, self._state.sizes, strict=True)
        ]
        return rows[0] if len(rows) == 1 else tf.concat(rows, axis=-1)

    def step_to_matrix(self, step_size: Any) -> tf.Tensor:
        """Step sizes -> the smallest of `[1, 1]`, `[1, dim]` and `[chains, dim]`.

        Args:
            step_size: a value, or a list of one per part; each broadcasts with it.

        Raises:
            ValueError: if there are neither one nor as many values as parts, or a value
                does not broadcast with its part.
        """
        steps = list(step_size) if isinstance(step_size, (list, tuple)) else [step_size]
        if len(steps) == 1 and steps[0].shape.rank == 0:
            return tf.reshape(steps[0], [1, 1])
        if len(steps) == 1:
            steps = steps * len(self._parts)
        if len(steps) != len(self._parts):
            raise ValueError(
                f"`step_size` has {len(steps)} values; expected one, or one for each "
                f"of the {len(self._parts)} parts of the state."
            )
        if all(step.shape.rank == 0 for step in steps):
            sizes = self._state.sizes
            return tf.concat(
                [tf.fill([1, n], step) for n, step in zip(sizes, steps, strict=True)], 1
            )
        return self.to_matrix(
            [
                _broadcast_step(step, part)
                for step, part in zip(steps, self._parts, strict=True)
            ]
        )

    def on_matrix(self, target: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
        """Turns `target(*parts) -> [batch...]` into `[chains, dim] -> [chains]`."""

        def log_prob(matrix: tf.Tensor) -> tf.Tensor:
            parts = self._state.unflatten(self._with_batch(matrix, [self.dim]))
            return self.to_rows(target(*parts))

        return log_prob

    @property
    def _is_flat(self) -> bool:
        return self._log_prob.shape.rank == 1

    def _with_batch(self, rows: tf.Tensor, event_shape: list[int]) -> tf.Tensor:
        if self._is_flat:
            return rows
        batch_shape = self._log_prob.shape
        if batch_shape.is_fully_defined():
            return tf.reshape(rows, [*batch_shape, *event_shape])
        event = tf.constant(event_shape, tf.int32)  # An empty list has another dtype.
        return tf.reshape(rows, tf.concat([tf.shape(self._log_prob), event], axis=0))


def _broadcast_step(step: tf.Tensor, part: tf.Tensor) -> tf.Tensor:
    try:
        fits = tf.broadcast_static_shape(step.shape, part.shape).is_compatible_with(
            part.shape
        )
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"`step_size` has a value of shape {step.shape}, which does not broadcast "
            f"to its part of the state, of shape {part.shape}."
        )
    return tf.broadcast_to(step, tf.shape(part))
