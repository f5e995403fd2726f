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
        merge_key: of what decides between the old tree and a new half, `[chains]`
            uint32.
        leaf_key: of what decides between the leaves of a new half, `[chains]` uint32.
    """

    momentum: tf.Tensor
    log_uniform: tf.Tensor
    directions: tf.Tensor
    merge_key: tf.Tensor
    leaf_key: tf.Tensor

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
    bits_seed, slice_seed, *momentum_seeds = tf.unstack(
        tfp.random.split_seed(seed, n=4)
    )
    chains, dtype = tf.shape(like)[:1], like.dtype
    momentum = _normal(momentum_seeds, like)
    if inverse_mass is not None:
        momentum = momentum * tf.math.rsqrt(inverse_mass)
    # Uniform on (0, 1]: its logarithm is finite.
    uniform = 1.0 - tf.random.stateless_uniform(chains, slice_seed, dtype=dtype)
    bits = tf.random.stateless_uniform(
        tf.concat([[3], chains], axis=0),
        bits_seed,
        minval=None,
        maxval=None,
        dtype=tf.uint32,
    )
    directions, merge_key, leaf_key = tf.unstack(bits)
    return Randomness(
        momentum=momentum,
        log_uniform=tf.math.log(uniform),
        directions=tf.bitcast(directions, tf.int32),
        merge_key=merge_key,
        leaf_key=leaf_key,
    )


def counted_uniform(key: tf.Tensor, count: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Uniform numbers on [0, 1) for one of many uses of a random key.

    A hash of key and count. It is a handful of integer operations that a compiler puts
    into whatever uses the number, where TF's own generator would be several kernels of
    every turn of the loop. The keys come from TF's generator, anew for every draw.

    Args:
        key: random bits, `[chains]` uint32.
        count: of the use, `[]` int32.
        dtype: of the numbers; they have 24 random bits in single precision, else 32.

    Returns:
        `[chains]`.
    """
    # Steps of the golden ratio keep the counts of a key far apart; the shifts and odd
    # factors of MurmurHash3's finalizer then spread every bit over all of them.
    x = key + tf.cast(count, tf.uint32) * tf.constant(0x9E3779B9, tf.uint32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, None)):
        x = tf.bitwise.bitwise_xor(x, _shift(x, shift))
        if factor is not None:
            x = x * tf.constant(factor, tf.uint32)
    unused = 8 if dtype == tf.float32 else 0
    return tf.cast(_shift(x, unused), dtype) * 2.0 ** (unused - 32)


def _shift(x: tf.Tensor, bits: int) -> tf.Tensor:
    return tf.bitwise.right_shift(x, tf.constant(bits, tf.uint32))


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
