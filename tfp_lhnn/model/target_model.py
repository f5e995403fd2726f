"""The model of a `target_log_prob_fn`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tfp_lhnn.model.model import Model, checked_value, trace_batch
from tfp_lhnn.support.state_layout import state_parts

__all__ = ["TargetModel"]


class TargetModel(Model):
    """A user's `target_log_prob_fn`."""

    def __init__(self, target_log_prob_fn: Callable[..., Any], state: Any) -> None:
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
        if self._by_name:
            names = list(state)
        elif isinstance(state, (list, tuple)):
            names = [f"x{i}" for i in range(len(parts))]
        else:
            names = ["x"]
        self._target = target_log_prob_fn
        self.names = tuple(names)
        rank, num_evaluations = self._batch_rank(parts)
        shapes = [tuple(part.shape[rank:]) for part in parts]
        named_shapes = dict(zip(names, shapes, strict=True))
        super().__init__(target_log_prob_fn, named_shapes, shapes, parts[0].dtype)
        self.num_evaluations = num_evaluations
        try:
            trace_batch(self)
        except ValueError as error:
            raise ValueError(
                "`target_log_prob_fn` cannot take many points at once: each argument "
                "has a leading dimension [n], and the value is [n] (sum over axis -1, "
                f"say, not over all). {error}"
            ) from error
        self._given = self.to_flat(values)

    def _density(self, parts: list[tf.Tensor]) -> tf.Tensor:
        if self._by_name:
            return self._target(**dict(zip(self.names, parts, strict=True)))
        return self._target(*parts)

    def _batch_rank(self, parts: list[tf.Tensor]) -> tuple[int, int]:
        """Tells whether a state is one point (0) or one per chain (1), and the cost.

        Tracing tells, and evaluates nothing, unless the target hides its shape.
        """
        try:
            density = self._traced(parts)
        except Exception:
            # A target that insists on a dimension of chains may still get one point.
            one = self._traced([part[tf.newaxis] for part in parts])
            if not one.structured_outputs.shape.is_compatible_with([1]):
                raise
            return 0, 0
        shape, num_evaluations = density.structured_outputs.shape, 0
        if shape.rank is None:  # as from tf.numpy_function
            shape = density(*parts).shape
            num_evaluations = shape.num_elements()
        fits = all(part.shape[: shape.rank] == shape for part in parts)
        if shape.rank > 1 or not fits:
            raise ValueError(
                f"`target_log_prob_fn` returned shape {shape} for the `initial_state`; "
                "expected a scalar (one point) or a vector (one value per chain)."
            )
        return shape.rank, num_evaluations

    def _traced(self, parts: list[tf.Tensor]) -> Any:
        dtype = parts[0].dtype
        return tf.function(
            lambda *parts: checked_value(self._density(list(parts)), dtype),
            autograph=False,
        ).get_concrete_function(*parts)
