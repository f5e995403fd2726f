"""The energy of a network as a pure function of its weights."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfp_lhnn.network.mlp_gradient import BaseWeights, summed_output

__all__ = ["energy_function", "split_offset"]


def energy_function(
    network: Any, layers: Sequence[tf.Tensor], base: Sequence[tf.Tensor]
) -> Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
    """See `LatentHNN.energy_function`.

    Args:
        network: a `LatentHNN`; gives the form, not the weights.
        layers: values of `network.layer_variables`.
        base: values of `network.base_variables`.
    """
    _check_number(network.layer_variables, layers)
    _check_number(network.base_variables, base)
    separable, dtype = network.separable, network.compute_dtype
    value_and_gradient = summed_output(
        # Kernel and bias in turn, and the last kernel alone.
        kernels=layers[0::2],
        biases=layers[1::2],
        activation=network.activation,
        output_scale=base[-2] if separable else None,
        base=BaseWeights(base[0], base[1]) if network.has_base else None,
        dim=network.dim,
    )

    def energy_and_gradient(q: tf.Tensor, p: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        x = q if separable else tf.concat([q, p], axis=-1)
        energy, gradient = value_and_gradient(tf.cast(x, dtype))
        energy = tf.cast(energy, q.dtype)
        if separable:
            # Added after the cast: in a narrower dtype, a large offset would round away
            # the differences between points.
            energy += tf.cast(base[-1], q.dtype)
        return energy, tf.cast(gradient, q.dtype)

    return energy_and_gradient


def split_offset(
    network: Any, base: Sequence[tf.Tensor]
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """See `LatentHNN.split_offset`."""
    if not network.separable:
        return list(base), tf.zeros([], network.compute_dtype)
    *others, offset = base
    return [*others, tf.zeros_like(offset)], offset


def _check_number(variables: Sequence[Any], values: Sequence[tf.Tensor]) -> None:
    if len(variables) != len(values):
        raise ValueError(
            f"`network` has {len(variables)} weights where {len(values)} were given: "
            "those belong to a network of another form."
        )
