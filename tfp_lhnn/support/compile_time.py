"""Tensors that XLA must not take for constants of a compilation."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

__all__ = ["unknown_at_compile_time"]


def unknown_at_compile_time(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The same tensors, on whose values no compilation by XLA can depend.

    XLA compiles anew for every value of an argument that it needs as a constant, and it
    asks for more constants than it needs. If a density contains a function call, as
    every `tf.vectorized_map` and every `tf.function` makes one, its gradient takes from
    that call axes, permutations and shapes besides numbers. They are constants. But XLA
    doesn't tell the results of a call apart: if it needs one as a constant, it demands
    that all that goes into the call be one. So every new point, step size or seed would
    be compiled for, at a thousand times the cost of running it.

    A loop carries the tensors over: XLA traces its results to where they start, here to
    zeros, and no farther. It then sees that the loop runs once and removes it.

    Args:
      tensors: What goes into the density. In eager mode they come back as they are.
    """
    if tf.executing_eagerly():
        return list(tensors)
    tensors = [tf.convert_to_tensor(x) for x in tensors]
    _, copies = tf.while_loop(
        lambda i, _: i < 1,
        lambda i, _: (i + 1, list(tensors)),
        # Zeros by shape: `zeros_like` would count as made of the values.
        (tf.constant(0), [tf.zeros(tf.shape(x), x.dtype) for x in tensors]),
        shape_invariants=(tf.TensorShape([]), [x.shape for x in tensors]),
    )
    pairs = zip(tensors, copies, strict=True)
    # One by one, so that a tensor without a gradient has none.
    return [_with_gradient_of(x, tf.stop_gradient(copy)) for x, copy in pairs]


@tf.custom_gradient
def _with_gradient_of(tensor: tf.Tensor, copy: tf.Tensor) -> tuple:
    """The copy, as if it were the tensor itself."""
    return copy, lambda upstream: (upstream, None)
