"""All that is random in a draw, drawn at its start but for the choice of leaves."""

from collections.abc import Sequence
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
    seeds = tf.unstack(tfp.random.split_seed(seed, n=6))
    slice_seed, direction_seed, merge_seed, leaf_seed = seeds[2:]
    chains, dtype = tf.shape(like)[:1], like.dtype
    momentum = _normal(seeds[:2], like)
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


def _normal(seeds: Sequence[tf.Tensor], like: tf.Tensor) -> tf.Tensor:
    """Standard normal numbers of the shape and dtype of `like`, `[chains, dim]`.

    Drawn in two halves, with a seed for each: XLA on a CPU inlines a generator that is
    called once into what uses its numbers and then evaluates it element by element.
    Called twice it stays a vectorised function, and momenta cost half.
    """
    dim = like.shape[1]
    shape = tf.stack([tf.shape(like)[0], (dim + 1) // 2])
    halves = [
        tf.random.stateless_normal(shape, seed, dtype=like.dtype) for seed in seeds
    ]
    return tf.concat(halves, axis=1)[:, :dim]
