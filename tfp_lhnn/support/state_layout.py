"""One matrix for a TFP state of many parts, and the way back."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

__all__ = ["StateLayout", "state_parts"]


def state_parts(state: Any, name: str = "state") -> list[tf.Tensor]:
    """Returns the Tensors of a state, in order and with one dtype.

    Args:
      state: A Tensor (or array), or a list or tuple of them.
      name: What the caller calls the state, for messages.

    Returns:
      The parts as a list of Tensors; one Tensor gives a list of one.

    Raises:
      TypeError: If the state is a mapping or nested, has a part that is no
        Tensor of floating-point numbers, or mixes dtypes.
      ValueError: If the state is an empty list or tuple.
    """
    expected = "expected a Tensor, or a flat list or tuple of Tensors"
    if isinstance(state, Mapping):
        raise TypeError(f"`{name}` is a {type(state).__name__}; {expected}.")
    if not isinstance(state, (list, tuple)):
        return [_to_tensor(state, name, expected)]
    if not state:
        raise ValueError(f"`{name}` is an empty {type(state).__name__}; {expected}.")
    parts = []
    for i, part in enumerate(state):
        if isinstance(part, (Mapping, list, tuple)):
            raise TypeError(
                f"`{name}` is nested: part {i} is a {type(part).__name__}; {expected}."
            )
        parts.append(_to_tensor(part, f"{name}[{i}]", expected))
    dtypes = [part.dtype.name for part in parts]
    if len(set(dtypes)) > 1:
        raise TypeError(
            f"the parts of `{name}` have dtypes {', '.join(dtypes)}; expected one."
        )
    return parts


def _to_tensor(value: Any, name: str, expected: str) -> tf.Tensor:
    try:
        tensor = tf.convert_to_tensor(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"`{name}` is a {type(value).__name__}; {expected}.") from error
    if not tensor.dtype.is_floating:
        raise TypeError(
            f"`{name}` is {tensor.dtype.name}; expected floating-point numbers, such "
            "as float32 or float64."
        )
    return tensor


@dataclasses.dataclass(frozen=True)
class StateLayout:
    """Where each part of a state lies in one flat `[batch..., dim]` matrix.

    A layout holds Python integers only, so what it does compiles under XLA, and a
    state that is one Tensor of vectors passes through without a single op.

    Attributes:
      event_shapes: The shape of one chain's share of each part; `()` for a scalar.
      container: The caller's list or tuple type; None for a bare Tensor.
    """

    event_shapes: tuple[tuple[int, ...], ...]
    container: type | None

    @classmethod
    def from_state(
        cls, state: Any, batch_rank: int, name: str = "state"
    ) -> StateLayout:
        """Reads the layout off a state.

        Args:
          state: A Tensor, or a list or tuple of Tensors `[batch..., event...]`.
          batch_rank: How many leading dimensions the parts share.
          name: What the caller calls the state, for messages.

        Returns:
          The layout.

        Raises:
          TypeError: As `state_parts`.
          ValueError: If a part has no known rank, fewer dimensions than
            `batch_rank`, an event shape unknown before running, or other leading
            dimensions than the first part.
        """
        parts = state_parts(state, name)
        is_list = isinstance(state, (list, tuple))
        event_shapes = []
        for i, part in enumerate(parts):
            part_name = f"{name}[{i}]" if is_list else name
            shape = part.shape
            if shape.rank is None or not shape[batch_rank:].is_fully_defined():
                raise ValueError(
                    f"`{part_name}` has shape {shape}; expected an event shape "
                    f"(after {batch_rank} batch dimensions) known before running; "
                    "say it by tf.ensure_shape, or in the `input_signature`."
                )
            if shape.rank < batch_rank or not shape[:batch_rank].is_compatible_with(
                parts[0].shape[:batch_rank]
            ):
                raise ValueError(
                    f"`{part_name}` has shape {shape}; expected {batch_rank} leading "
                    "batch dimensions, the same in every part."
                )
            event_shapes.append(tuple(shape[batch_rank:].as_list()))
        return cls(tuple(event_shapes), type(state) if is_list else None)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of columns that each part takes."""
        return tuple(math.prod(shape) for shape in self.event_shapes)

    @property
    def dim(self) -> int:
        """The number of columns of the flat matrix."""
        return sum(self.sizes)

    def flatten(self, state: Any) -> tf.Tensor:
        """Joins the parts of a state.

        Args:
          state: A Tensor, or a list or tuple of Tensors `[batch..., event...]`; the
            batch may have any rank.

        Returns:
          A Tensor `[batch..., dim]`.

        Raises:
          ValueError: If the parts are not those of this layout.
        """
        parts = state if isinstance(state, (list, tuple)) else [state]
        if len(parts) != len(self.event_shapes):
            raise ValueError(
                f"the state has {len(parts)} parts; expected {len(self.event_shapes)}."
            )
        columns = [
            _reshape_event(tf.convert_to_tensor(part), event_shape, (size,))
            for part, event_shape, size in zip(
                parts, self.event_shapes, self.sizes, strict=True
            )
        ]
        return columns[0] if len(columns) == 1 else tf.concat(columns, axis=-1)

    def unflatten(self, flat: tf.Tensor) -> list[tf.Tensor]:
        """Cuts a flat matrix into the parts.

        Args:
          flat: A Tensor `[batch..., dim]`; the batch may have any rank.

        Returns:
          The list of parts `[batch..., event...]`.
        """
        flat = tf.convert_to_tensor(flat)
        one = len(self.event_shapes) == 1
        columns = [flat] if one else tf.split(flat, list(self.sizes), axis=-1)
        return [
            _reshape_event(column, (size,), event_shape)
            for column, size, event_shape in zip(
                columns, self.sizes, self.event_shapes, strict=True
            )
        ]

    def restore(self, flat: tf.Tensor) -> Any:
        """Cuts a flat matrix into the structure that the caller gave.

        Args:
          flat: A Tensor `[batch..., dim]`.

        Returns:
          A Tensor, or the parts in the caller's own list or tuple type.
        """
        return self.pack(self.unflatten(flat))

    def pack(self, parts: Sequence[Any]) -> Any:
        """Puts one value per part into the structure that the caller gave."""
        if self.container is None:
            (part,) = parts
            return part
        if hasattr(self.container, "_make"):  # a namedtuple takes its fields apart
            return self.container._make(parts)
        # A subclass of list (as tf.Module makes of its attributes) becomes a list.
        return tuple(parts) if issubclass(self.container, tuple) else list(parts)

    def on_flat(self, fn: Callable[..., Any]) -> Callable[[tf.Tensor], Any]:
        """Turns TFP's `fn(*parts)` into a function of one flat matrix."""
        return lambda flat: fn(*self.unflatten(flat))


def _reshape_event(
    tensor: tf.Tensor, old: tuple[int, ...], new: tuple[int, ...]
) -> tf.Tensor:
    """Replaces trailing dimensions `old` by `new`; no op where they are equal."""
    batch_rank = tensor.shape.rank - len(old)
    if batch_rank < 0 or not tensor.shape[batch_rank:].is_compatible_with(old):
        raise ValueError(
            f"a part has shape {tensor.shape}; expected its last dimensions to be "
            f"{list(old)}."
        )
    if old == new:
        return tensor
    batch_shape = tensor.shape[:batch_rank]
    if batch_shape.is_fully_defined():
        return tf.reshape(tensor, [*batch_shape.as_list(), *new])
    return tf.reshape(tensor, tf.concat([tf.shape(tensor)[:batch_rank], new], axis=0))
