"""All that is random in a draw, drawn at its start but for the choice of leaves."""

from typing import NamedTuple

import tensorflow as tf
import tensorflow_probability as tfp

__all__ = ["Randomness", "counted_uniform", "draw"]


class Randomness(NamedTuple):
    """All that is random in a draw.

    Attributes:
        momentum: `[chains, dim]`.
        log_uniform: log of the slice variable, `[chains]`.
        directions: bit `j` is the direction of doubling `j`, `[chains]` int32.
        merge_seed: seed of what decides between the old tree and a new half, `[2]`
            int32.
        leaf_seed: seed of what decides between the leaves of a new half, `[2]` int32.
    """

    momentum: tf.Tensor
    log_uniform: tf.Tensor
    directions: tf.Tensor
    merge_seed: tf.Tensor
    leaf_seed: tf.Tensor

    def is_forward(self, depth: tf.Tensor) -> tf.Tensor:
        """Direction of the doubling at a depth below 32, `[chains]` bool."""
        return (
            tf.bitwise.bitwise_and(tf.bitwise.right_shift(self.directions, depth), 1)
            > 0
        )


def draw(
    seed: tf.Tensor, like: tf.Tensor, inverse_mass: tf.Tensor | None
) -> Randomness:
    """Draws for all chains.

    Args:
        seed: of the draw, `[2]` int32.
        like: positions, `[chains, dim]`; their shape and dtype are used.
        inverse_mass: diagonal of `M⁻¹`, `[chains, dim]`; `None` for unit mass.

    Returns:
        What is random.
    """
    momentum_seed, slice_seed, direction_seed, merge_seed, leaf_seed = tf.unstack(
        tfp.random.split_seed(seed, n=5)
    )
    shape, dtype = tf.shape(like), like.dtype
    chains = shape[:1]
    momentum = tf.random.stateless_normal(shape, momentum_seed, dtype=dtype)
    if inverse_mass is not None:
        momentum = momentum * tf.math.rsqrt(inverse_mass)
    # Uniform on (0, 1]: its logarithm is finite.
    uniform = 1.0 - tf.random.stateless_uniform(chains, slice_seed, dtype=dtype)
    return Randomness(
        momentum=momentum,
        log_uniform=tf.math.log(uniform),
        directions=tf.random.stateless_uniform(
            chains, direction_seed, minval=None, maxval=None, dtype=tf.int32
        ),
        merge_seed=merge_seed,
        leaf_seed=leaf_seed,
    )


def counted_uniform(seed: tf.Tensor, count: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """Uniform numbers on [0, 1) for one of many uses of a seed.

    Counting is cheaper than splitting the seed anew inside a loop, and as good: TF's
    generator is a keyed hash, under which neighbouring seeds have nothing in common.

    Args:
        seed: `[2]` int32.
        count: of the use, `[]` int32.
        like: shape and dtype, `[chains]`.
    """
    return tf.random.stateless_uniform(
        tf.shape(like), seed + tf.stack([0, count]), dtype=like.dtype
    )
