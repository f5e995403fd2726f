"""Calls of a user's target, whose failures say what was asked of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

__all__ = ["call_target", "missing_gradient"]

# Of what `missing_gradient` finds; the target may be a part of something else.
_NO_GRADIENT = (
    "its value does not depend on the state by operations that TensorFlow can "
    "differentiate (a constant, tf.stop_gradient or tf.numpy_function, perhaps)"
)


def call_target(
    target: Callable[..., Any],
    parts: Sequence[tf.Tensor],
    names: Sequence[str] | None = None,
) -> Any:
    """Calls a `target_log_prob_fn`.

    Args:
      target: The user's callable.
      parts: Its arguments, `[batch..., event...]` each.
      names: Their names, if they go by keyword.

    Returns:
      What the target returned.

    Raises:
      TypeError: If the target uses a Tensor as a Python bool, or iterates over one,
        while it is traced.
      Exception: Whatever the target raises, with a note on the call.
    """
    try:
        if names is None:
            return target(*parts)
        return target(**dict(zip(names, parts, strict=True)))
    except Exception as error:
        called = f"`target_log_prob_fn` when called with {_described(parts, names)}"
        if isinstance(error, tf.errors.OperatorNotAllowedInGraphError):
            raise TypeError(
                "`target_log_prob_fn` uses a Tensor where Python needs a value, as in "
                "`if` or `for`; expected one that can be traced: use tf.where or "
                f"tf.cond, or decorate it with tf.function. Raised by {called}."
            ) from error
        error.add_note(f"Raised by {called}.")
        raise


def _described(parts: Sequence[tf.Tensor], names: Sequence[str] | None) -> str:
    prefixes = [""] * len(parts) if names is None else [f"{name}: " for name in names]
    return ", ".join(
        f"{prefix}{part.dtype.name} of shape {part.shape}"
        for prefix, part in zip(prefixes, parts, strict=True)
    )


def missing_gradient(
    log_prob: Callable[..., Any], parts: Sequence[tf.Tensor | tf.TensorSpec]
) -> str | None:
    """Finds out, by tracing, whether a density has a gradient.

    Args:
      log_prob: Takes the parts.
      parts: Tensors or their specifications; nothing is evaluated.

    Returns:
      Why there is no gradient by any of the parts; None if there is one, or if the
      value is no floating Tensor.

    Raises:
      Exception: Whatever the density raises.
    """
    reason: str | None = None

    def trace(*parts: tf.Tensor) -> None:
        nonlocal reason
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(parts)
            value = log_prob(*parts)
        if not tf.is_tensor(value) or not value.dtype.is_floating:
            return
        try:
            gradients = tape.gradient(value, parts)
        except LookupError as error:  # an operation without a gradient
            reason = str(error)
            return
        if all(gradient is None for gradient in gradients):
            reason = _NO_GRADIENT

    specs = [tf.TensorSpec(part.shape, part.dtype) for part in parts]
    tf.function(trace, autograph=False).get_concrete_function(*specs)
    return reason
