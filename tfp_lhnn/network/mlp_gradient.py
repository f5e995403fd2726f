"""A network's summed output and its gradient, with the weights prepared in advance.

Autodiff of `Σ latents` multiplies by the whitening and its transpose, by a matrix of
ones for the sum, and by every kernel twice. In a leapfrog loop the weights are fixed.
So three things are done once, before the loop: the whitening is multiplied into the
first layer, the sum into the last, and base and first layer become one matrix. For one
hidden layer, two of five products are left. A compiler drops the value or the gradient
if it is not used.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

__all__ = ["BaseWeights", "summed_output"]


class BaseWeights(NamedTuple):
    """The Gaussian base `½|z|²`, `z = W (x − μ)`, to which the layers are added.

    Attributes:
        location: `μ`, `[dim]`.
        whitening: `W`, `[dim, dim]`, or its diagonal, `[dim]`.
    """

    location: tf.Tensor
    whitening: tf.Tensor


def summed_output(
    kernels: Sequence[tf.Tensor],
    biases: Sequence[tf.Tensor],
    activation: Callable[[tf.Tensor], tf.Tensor],
    output_scale: tf.Tensor | None,
    base: BaseWeights | None,
    dim: int,
) -> Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
    """Prepares the sum of base and layers and its gradient by the first `dim` inputs.

    Args:
        kernels: of the hidden layers and, last, of the linear output layer.
        biases: of the hidden layers.
        activation: of the hidden layers.
        output_scale: factor of the layers' output, `[]`.
        base: to which the layers are added; its coordinates are their input.
        dim: number of inputs to differentiate by.

    Returns:
        A function of inputs, `[n, width]`, to the sum, `[n]`, and the gradient,
        `[n, dim]`; call that function in the loop, and `summed_output` outside.
    """
    first, first_bias = kernels[0], biases[0]
    stem = first
    if base is not None:
        if base.whitening.shape.rank == 2:
            first = tf.matmul(base.whitening, first, transpose_a=True)
            precision = tf.matmul(base.whitening, base.whitening, transpose_a=True)
            stem = tf.concat([precision, first], axis=1)
        else:
            first = stem = base.whitening[:, tf.newaxis] * first
    output = tf.reduce_sum(kernels[-1], axis=1)
    if output_scale is not None:
        output = output_scale * output

    def value_and_gradient(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        if base is not None:
            x = x - base.location
        below = tf.matmul(x, stem)
        base_gradient = None
        if base is not None and base.whitening.shape.rank == 2:
            base_gradient, below = below[:, :dim], below[:, dim:]
        elif base is not None:
            base_gradient = tf.square(base.whitening) * x
        value, slope = _backward(
            below + first_bias, kernels[1:-1], biases[1:], activation, output
        )
        gradient = tf.matmul(slope, first[:dim], transpose_b=True)
        # The value waits for the gradient. XLA on a CPU hands what could run side by
        # side to its thread pool, which takes longer than the sums of a few chains.
        value = value + 0.0 * gradient[:, 0]
        if base_gradient is None:
            return value, gradient
        # Of a quadratic form with gradient `Px` the value is `½ xᵀPx`.
        base_value = 0.5 * tf.reduce_sum(x * base_gradient, axis=-1)
        return base_value + value, base_gradient + gradient

    return value_and_gradient


def _backward(
    pre_activation: tf.Tensor,
    kernels: Sequence[tf.Tensor],
    biases: Sequence[tf.Tensor],
    activation: Callable[[tf.Tensor], tf.Tensor],
    output: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """The summed output and its derivative by the first layer's pre-activation."""
    # A tape for each activation only: the products between are written out.
    tape = tf.GradientTape(persistent=False, watch_accessed_variables=False)
    with tape:
        tape.watch(pre_activation)
        hidden = activation(pre_activation)
    if not kernels:
        value = tf.linalg.matvec(hidden, output)
        upstream = tf.broadcast_to(output, tf.shape(hidden))
    else:
        value, above = _backward(
            tf.matmul(hidden, kernels[0]) + biases[0],
            kernels[1:],
            biases[1:],
            activation,
            output,
        )
        upstream = tf.matmul(above, kernels[0], transpose_b=True)
    return value, tape.gradient(hidden, pre_activation, output_gradients=upstream)
