"""The package's own targets rewritten in JAX: `[dim]` to `[]`, up to a constant.

Each function imports JAX when it is called and returns a density.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = [
    "allen_cahn",
    "correlated_gaussian",
    "curved_ridges",
    "funnel",
    "gaussian_mixture",
    "independent_gaussian",
    "rosenbrock",
    "rough_well",
]

Density = Callable[[Any], Any]


def gaussian_mixture(locations: np.ndarray, scale: float) -> Density:
    """Equal isotropic Gaussians at `locations`, `[components, dim]`."""
    import jax
    import jax.numpy as jnp

    centres = jnp.asarray(locations, jnp.float32)

    def log_prob(q: Any) -> Any:
        scaled = (q - centres) / scale
        return jax.nn.logsumexp(-0.5 * jnp.sum(scaled**2, axis=-1))

    return log_prob


def independent_gaussian(variances: np.ndarray) -> Density:
    import jax.numpy as jnp

    precision = jnp.asarray(1.0 / variances, jnp.float32)
    return lambda q: -0.5 * jnp.sum(precision * q**2)


def correlated_gaussian(correlation: float) -> Density:
    """Neighbours of a stationary AR(1) series with unit variances."""
    import jax.numpy as jnp

    innovation = 1.0 - correlation**2

    def log_prob(q: Any) -> Any:
        steps = q[1:] - correlation * q[:-1]
        return -0.5 * (q[0] ** 2 + jnp.sum(steps**2) / innovation)

    return log_prob


def funnel(dim: int) -> Density:
    import jax.numpy as jnp

    def log_prob(q: Any) -> Any:
        scaled = q[1:] * jnp.exp(-q[0] / 2.0)
        square = (q[0] / 3.0) ** 2 + jnp.sum(scaled**2)
        return -0.5 * square - 0.5 * (dim - 1) * q[0]

    return log_prob


def rough_well(eta: float) -> Density:
    import jax.numpy as jnp

    return lambda q: -jnp.sum(0.5 * q**2 + eta * jnp.cos(q / eta))


def rosenbrock() -> Density:
    import jax.numpy as jnp

    def log_prob(q: Any) -> Any:
        head, tail = q[:-1], q[1:]
        return -jnp.sum(100.0 * (tail - head**2) ** 2 + (1.0 - head) ** 2) / 20.0

    return log_prob


def allen_cahn(dim: int) -> Density:
    import jax.numpy as jnp

    dx = 1.0 / dim

    def log_prob(q: Any) -> Any:
        slope = jnp.sum((q[1:] - q[:-1]) ** 2) / (2.0 * dx)
        return -slope - 0.5 * dx * jnp.sum((1.0 - q**2) ** 2)

    return log_prob


def curved_ridges(num_pairs: int, slope: float, width: float) -> Density:
    """That of `benchmarks.curved_ridges`."""
    import jax.numpy as jnp

    def log_prob(q: Any) -> Any:
        x, y = q[:num_pairs], q[num_pairs:]
        z = (y - slope * jnp.sqrt(1.0 + x**2)) / width
        return -0.5 * jnp.sum(x**2 + z**2)

    return log_prob
