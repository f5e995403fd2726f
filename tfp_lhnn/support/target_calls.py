"""Calls of a user's target; errors say with which arguments it was called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfp_lhnn.support.compile_time import unknown_at_compile_time
from tfp_lhnn.support.compiled_cache import CompiledFunction

__all__ = ["call_target", "gradient_fault", "lost_gradient", "missing_gradient"]

# What `missing_gradient` finds. The target may be a part of a larger density.
_NO_GRADIENT = (
    "its value does not depend on the state by operations that TensorFlow can "
    "differentiate (a constant, tf.stop_gradient or tf.numpy_function, perhaps)"
)


_LOST_GRADIENT = (
    "a tf.py_function computes it with NumPy, through which TensorFlow cannot "
    "differentiate"
)

_NEEDS_VALUE = (
    "`target_log_prob_fn` uses a Tensor where Python needs a value, as in `if` or "
    "`for`; expected one that can be traced: use tf.where or tf.cond, or decorate it "
    "with tf.function"
)

# The operation that tf.py_function makes.
_PY_FUNCTION = "EagerPyFunc"


def call_target(
    target: Callable[..., Any],
    parts: Sequence[tf.Tensor],
    names: Sequence[str] | None = None,
) -> Any:
    """Calls a `target_log_prob_fn`, whose graph XLA compiles once for all states.

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
    parts = unknown_at_compile_time(parts)
    try:
        if names is None:
            return target(*parts)
        return target(**dict(zip(names, parts, strict=True)))
    except Exception as error:
        called = f"`target_log_prob_fn` when called with {_described(parts, names)}"
        if isinstance(error, tf.errors.OperatorNotAllowedInGraphError):
            raise TypeError(f"{_NEEDS_VALUE}. Raised by {called}.") from error
        note = f"Raised by {called}."
        if not tf.executing_eagerly():
            note += " It was being traced: Tensors have no values then."
        # The target may raise one and the same object each time.
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)
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
      TypeError: If the density uses a Tensor as a Python bool, or iterates over one.
      Exception: Whatever else the density raises.
    """
    return _trace_gradient(log_prob, parts)[0]


def gradient_fault(
    log_prob: Callable[..., Any],
    parts: Sequence[tf.Tensor | tf.TensorSpec],
    make_points: Callable[[], Sequence[tf.Tensor]],
) -> str | None:
    """Finds out whether a density has a gradient, by evaluating it if necessary.

    Args:
      log_prob: Takes the parts.
      parts: Tensors or their specifications, to trace the density with.
      make_points: Makes parts with values. It is called if the density has a
        `tf.py_function`; see `lost_gradient`.

    Returns:
      Why there is no gradient; None if there is one.

    Raises:
      TypeError: If the density uses a Tensor as a Python bool, or iterates over one.
      Exception: Whatever else the density raises.
    """
    reason, graph = _trace_gradient(log_prob, parts)
    if reason is None and _has_py_function(graph):
        return lost_gradient(log_prob, make_points())
    return reason


def _trace_gradient(
    log_prob: Callable[..., Any], parts: Sequence[tf.Tensor | tf.TensorSpec]
) -> tuple[str | None, Any]:
    """What `missing_gradient` returns, and the graph."""
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

    graph = _traced(trace, parts)
    return reason, graph


def lost_gradient(
    log_prob: Callable[..., Any], points: Sequence[tf.Tensor]
) -> str | None:
    """Finds out whether a gradient that can be traced is lost when it is run.

    That happens inside a `tf.py_function`, which tracing does not look into. A density
    without one is not evaluated. The others are evaluated at the points twice, the
    second time with the gradient.

    Args:
      log_prob: Takes the parts; `missing_gradient` must have found nothing missing.
      points: The parts, `[batch..., event...]`, with values.

    Returns:
      Why there is no gradient; None if there is one.

    Raises:
      TypeError: If the density uses a Tensor as a Python bool, or iterates over one.
      Exception: Whatever else the density raises.
    """

    def value_and_gradients(*parts: tf.Tensor) -> Any:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(parts)
            value = log_prob(*parts)
        return value, tape.gradient(value, parts)

    if not _has_py_function(_traced(log_prob, points)):
        return None
    # Evaluated by itself first, so that an error below is due to the gradient.
    CompiledFunction(log_prob, jit_compile=False)(*points)
    try:
        _, gradients = CompiledFunction(value_and_gradients, jit_compile=False)(*points)
    except tf.errors.InvalidArgumentError:
        return _LOST_GRADIENT
    # TensorFlow returns a scalar zero for a gradient that the function does not give.
    lost = (
        gradient is None or gradient.shape != point.shape
        for gradient, point in zip(gradients, points, strict=True)
    )
    return _LOST_GRADIENT if all(lost) else None


def _traced(function: Callable[..., Any], parts: Sequence[Any]) -> Any:
    """The graph of a function of such parts."""
    specs = [tf.TensorSpec(part.shape, part.dtype) for part in parts]
    traced = tf.function(function, autograph=False)
    try:
        return traced.get_concrete_function(*specs).graph
    except tf.errors.OperatorNotAllowedInGraphError as error:
        raise TypeError(f"{_NEEDS_VALUE}.") from error


def _has_py_function(graph: Any) -> bool:
    definition = graph.as_graph_def()
    bodies = [definition.node, *(each.node_def for each in definition.library.function)]
    return any(node.op == _PY_FUNCTION for body in bodies for node in body)
