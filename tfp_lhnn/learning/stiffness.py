"""How small leapfrog steps must be where the learned potential is at its steepest.

A step size that is adapted to the mean acceptance suits the bulk. Where curvature grows
along a tail, such steps are always rejected: a chain never enters, and nothing tells
that it should have.
"""

import math

import numpy as np
import tensorflow as tf

from tfp_lhnn.network.fixed_network import NetworkForm, WhitenedWeights
from tfp_lhnn.network.latent_hnn import LatentHNN
from tfp_lhnn.support.compiled_cache import BuildOnce, CompiledFunction

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
    z = network.gaussian_base.whiten(position)
    direction = generator.standard_normal(z.shape)
    if network.is_silent:
        return np.ones(len(z))
    # Of few sizes, as each compiles.
    size = 2 ** math.ceil(math.log2(len(z)))
    form = NetworkForm.of(network)
    iterate = _compiled.get(form, lambda: _compile(form))
    padded = (np.resize(x, (size, network.dim)) for x in (z, direction))
    curvature = iterate(
        WhitenedWeights.of(network), *(tf.constant(x, form.dtype) for x in padded)
    )
    return np.sqrt(curvature.numpy()[: len(z)].astype(np.float64))


# Eagerly, op by op, this took half of the seconds of a fit to a simple posterior.
_compiled = BuildOnce(16)


def _compile(form: NetworkForm) -> CompiledFunction:
    """The power iteration as a function of weights, points and directions."""
    network = form.network()

    def iterate(
        weights: WhitenedWeights, z: tf.Tensor, direction: tf.Tensor
    ) -> tf.Tensor:
        energy_and_gradient = network.energy_function(*weights)

        def multiply(i: tf.Tensor, product: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            length = tf.norm(product, axis=-1, keepdims=True)
            shift = _DISTANCE * product / tf.maximum(length, 1e-12)
            ends = tf.concat([z + shift, z - shift], axis=0)
            _, gradient = energy_and_gradient(ends, ends)
            above, below = tf.split(gradient, 2)
            return i + 1, (above - below) / (2.0 * _DISTANCE)

        _, product = tf.while_loop(
            lambda i, _: i < _NUM_ITERATIONS, multiply, (0, direction)
        )
        return tf.norm(product, axis=-1)

    return CompiledFunction(iterate, jit_compile=True)
