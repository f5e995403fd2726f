"""Five curved ridges in ten dimensions, with exact draws to compare with."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

__all__ = ["DIM", "NUM_PAIRS", "SLOPE", "WIDTH", "exact_draws", "log_prob"]

NUM_PAIRS = 5
DIM = 2 * NUM_PAIRS
# Ridges are hyperbolas, whose slope stays below the first number. On parabolas the
# tails are so stiff that the ESS of second moments is a matter of luck, for every
# sampler.
SLOPE, WIDTH = 1.5, 0.5


def log_prob(q: tf.Tensor) -> tf.Tensor:
    """Pairs `x ~ N(0, 1)`, `y | x ~ N(1.5 √(1 + x²), 0.5²)`; all x, then all y."""
    x, y = q[..., :NUM_PAIRS], q[..., NUM_PAIRS:]
    z = (y - SLOPE * tf.sqrt(1.0 + x**2)) / WIDTH
    return -0.5 * tf.reduce_sum(x**2 + z**2, axis=-1)


def exact_draws(n: int, seed: int) -> np.ndarray:
    """Draws of the density, `[n, 10]`."""
    x, z = np.random.default_rng(seed).normal(size=(2, n, NUM_PAIRS))
    y = SLOPE * np.sqrt(1.0 + x**2) + WIDTH * z
    return np.concatenate([x, y], axis=-1)
