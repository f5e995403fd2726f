"""The density of a `target_log_prob_fn`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_lhnn.model.density import check_dtype, checked_value, trace_batch
from tfp_lhnn.support.state_layout import StateLayout, state_parts
from tfp_lhnn.support.target_calls import call_target

__all__ = ["TargetDensity"]


class TargetDensity:
    """A user's `target_log_prob_fn`, a `Density` without constraints.

    Attributes:
      source: The callable.
      names: The names of its arguments; `x`, or `x0`, `x1`, ..., if it has none.
      shapes: The shape of each at one point, by name.
      layout: Of the arguments in a flat `[n, dim]`.
      dtype: tf.float32 or tf.float64.
      num_evaluations: Densities evaluated to find the shapes.
    """

    def __init__(self, target_log_prob_fn: Callable[..., Any], state: Any) -> None:
        """Reads the arguments' shapes off a state.

        Args:
          target_log_prob_fn: Takes the parts of the state.
          state: As `initial_state` of `Model.from_target`.

        Raises:
          TypeError: If a type is wrong, or the state is nested.
          ValueError: If there is no state, or the target doesn't return one value per
            point.
        """
        if state is None:
            raise ValueError(
                "`initial_state` is missing; a target_log_prob_fn needs one, for the "
                "shapes of its arguments."
            )
        self._by_name = isinstance(state, Mapping)
        values = state
        if self._by_name:  # where a list can only mean an array
            values = [
                tf.convert_to_tensor(value) if isinstance(value, list) else value
                for value in state.values()
            ]
        parts = state_parts(values, "initial_state")
        check_dtype(parts[0].dtype, "`initial_state`")
        if self._by_name:
            self.names: tuple[str, ...] = tuple(state)
        elif isinstance(state, (list, tuple)):
            self.names = tuple(f"x{i}" for i in range(len(parts)))
        else:
            self.names = ("x",)
        self.source = target_log_prob_fn
        self.dtype = parts[0].dtype
        rank, self.num_evaluations = self._batch_rank(parts)
        shapes = tuple(tuple(part.shape[rank:]) for part in parts)
        self.shapes: dict[str, tuple[int, ...]] = dict(
            zip(self.names, shapes, strict=True)
        )
        self.layout = StateLayout(shapes, list)
        try:
            trace_batch(self)
        except ValueError as error:
            raise ValueError(
                "`target_log_prob_fn` cannot take many points at once: each argument "
                "has a leading dimension [n], and the value is [n] (sum over axis -1, "
                f"say, not over all). {error}"
            ) from error

    def log_prob(self, parts: list[tf.Tensor]) -> tf.Tensor:
        """The target's log densities `[n]` of parts `[n, ...]`."""
        value = call_target(self.source, parts, self.names if self._by_name else None)
        return checked_value(value, self.dtype, "`target_log_prob_fn`: the log density")

    def constrain(self, rows: np.ndarray) -> list[np.ndarray]:
        """The parts `[n, ...]` of `[n, dim]`, as views."""
        return np.split(rows, np.cumsum(self.layout.sizes)[:-1], axis=-1)

    def unconstrain(self, parts: list[tf.Tensor]) -> list[tf.Tensor]:
        """The parts themselves."""
        return parts

    def prior(self, n: int, seed: tf.Tensor) -> None:
        """None: a callable has no prior."""
        return None

    def signature(self) -> list[str]:
        """Empty: a callable can be identified by its values only."""
        return []

    def _batch_rank(self, parts: list[tf.Tensor]) -> tuple[int, int]:
        """Returns 0 for one point or 1 for one per chain, and the densities evaluated.

        Tracing shows this without an evaluation, unless the target hides its shape.
        """
        try:
            traced = self._traced(parts)
        except Exception:
            # The target may need a dimension of chains although the state is one point.
            if not self._takes_one_of_many(parts):
                raise
            return 0, 0
        shape, num_evaluations = traced.structured_outputs.shape, 0
        if shape.rank is None:  # as from tf.numpy_function
            shape = traced(*parts).shape
            num_evaluations = shape.num_elements()
        fits = all(part.shape[: shape.rank] == shape for part in parts)
        if shape.rank > 1 or not fits:
            raise ValueError(
                f"`target_log_prob_fn` returned shape {shape} for the `initial_state`; "
                "expected a scalar (one point) or a vector (one value per chain)."
            )
        return shape.rank, num_evaluations

    def _takes_one_of_many(self, parts: list[tf.Tensor]) -> bool:
        """Whether the target takes a state with a leading dimension of one chain."""
        try:
            traced = self._traced([part[tf.newaxis] for part in parts])
        except Exception:
            return False
        return traced.structured_outputs.shape.is_compatible_with([1])

    def _traced(self, parts: list[tf.Tensor]) -> Any:
        return tf.function(
            lambda *parts: self.log_prob(list(parts)), autograph=False
        ).get_concrete_function(*parts)
