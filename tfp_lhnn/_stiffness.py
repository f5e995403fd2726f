"""How small leapfrog steps must be where the learned potential is at its steepest.

A step size that is adapted to the mean acceptance suits the bulk. Where curvature grows
along a tail, such steps are always rejected: a chain never enters, and nothing tells
that it should have.
"""

import numpy as np
import tensorflow as tf

from tfp_lhnn.network import LatentHNN

__all__ = ["largest_frequencies", "stable_step"]

_NUM_ITERATIONS = 20
# Whitened distance over which a change of the gradient is a curvature.
_DISTANCE = 0.01

# Leapfrog is stable up to 2 / frequency, and good to half of that. So it shall be at
# all but the stiffest few of the points, of which many lie farther out than draws do.
_PRODUCT = 1.0
_QUANTILE = 0.98
_NUM_POINTS = 1024


def stable_step(
    network: LatentHNN, position: np.ndarray, generator: np.random.Generator
) -> float:
    """A whitened step that is stable at nearly all of some points.

    Args:
        network: separable, with a base.
        position: `[n, dim]`.
        generator: of the points that are looked at.
    """
    number = min(len(position), _NUM_POINTS)
    chosen = generator.choice(len(position), number, replace=False)
    frequencies = largest_frequencies(network, position[chosen], generator)
    finite = frequencies[np.isfinite(frequencies)]
    return _PRODUCT / max(float(np.quantile(finite, _QUANTILE)), 1e-3)


def largest_frequencies(
    network: LatentHNN, position: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Root of the largest curvature of `U_θ`, whitened, `[n]`: by power iteration.

    Args:
        network: separable, with a base.
        position: `[n, dim]`.
        generator: of the first directions.
    """
    base = network.gaussian_base
    z = base.whiten(position)

    def gradient(z: np.ndarray) -> np.ndarray:
        position = tf.constant(base.unwhiten(z), tf.float32)
        return base.whiten_gradient(network.potential_gradient(position).numpy())

    product = generator.standard_normal(z.shape)
    for _ in range(_NUM_ITERATIONS):
        size = np.linalg.norm(product, axis=-1, keepdims=True)
        shift = _DISTANCE * product / np.maximum(size, 1e-12)
        product = (gradient(z + shift) - gradient(z - shift)) / (2.0 * _DISTANCE)
    return np.sqrt(np.linalg.norm(product, axis=-1))
