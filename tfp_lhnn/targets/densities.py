"""Densities to sample from, with true moments and, where possible, exact draws.

A sampler can mix well and still be wrong: its chains agree on a region that is
not the whole target. Each target here therefore carries its ground truth.
"""

import math
import numbers
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfp_lhnn.support.arguments import check_count
from tfp_lhnn.targets.grid import GridChain, GridDensities, uniform_grid
from tfp_lhnn.targets.target import Moments, Target

__all__ = [
    "Moments",
    "Target",
    "allen_cahn",
    "eight_gaussians",
    "funnel",
    "gaussian_mixture_1d",
    "ill_conditioned_gaussian",
    "rosenbrock",
    "rough_well",
    "standard_gaussian",
]

Array = NDArray[np.float64]

# Grid points per standard deviation of the narrowest factor: draws inflate that
# factor's variance by 1 / (6 * 25**2) = 0.03%, ten times less than the standard
# error of a variance from 200 000 draws.
_POINTS_PER_SD = 25


def eight_gaussians() -> Target:
    """Eight equal unit-covariance Gaussians on a circle of radius 4, normalised.

    The paper has an eight-Gaussian mixture without giving its means; radius and
    covariance are this project's choice. Moments are analytic.
    """
    angle = 2.0 * np.pi * np.arange(8) / 8.0
    locations = 4.0 * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    # Rounding would leave a mean of 1e-16; symmetry makes it 0, and the sum of
    # cos² over the circle makes the variance 1 + 4²/2.
    moments = Moments.exact(np.zeros(2), np.full(2, 9.0))
    return _gaussian_mixture("eight_gaussians", locations, 1.0, moments)


def gaussian_mixture_1d() -> Target:
    """Two equal Gaussians at -1 and 1 with standard deviation 0.35, normalised.

    The constants are those of the reference code. Moments are analytic.
    """
    moments = Moments.exact([0.0], [1.0 + 0.35**2])
    locations = np.array([[-1.0], [1.0]])
    return _gaussian_mixture("gaussian_mixture_1d", locations, 0.35, moments)


def standard_gaussian(dim: int) -> Target:
    """Independent standard normals, normalised. Moments are analytic.

    Args:
        dim: Dimension, at least 1.
    """
    check_count("dim", dim, minimum=1)
    return _gaussian("standard_gaussian", np.ones(dim))


def ill_conditioned_gaussian(
    variances: Sequence[float] = (1e-2, 1e-1, 1.0, 1e1, 1e2),
) -> Target:
    """Independent centred Gaussians of different scales, normalised.

    The default is the reference code's 5-D Gaussian. Moments are analytic.

    Args:
        variances: Variance of each coordinate, [dim].
    """
    array = np.array(variances, np.float64)
    if array.ndim != 1 or not array.size or not np.all((array > 0) & (array < np.inf)):
        raise ValueError(
            f"`variances` is {variances!r}; expected one or more finite numbers "
            "above 0."
        )
    return _gaussian("ill_conditioned_gaussian", array)


def funnel(dim: int) -> Target:
    """Neal's funnel, normalised: `q_0 ~ N(0, 3²)`, `q_i | q_0 ~ N(0, exp(q_0))`.

    The reference code drops the normaliser `(dim - 1) q_0 / 2`, which gives another
    density. Moments are analytic: variances 9 and `exp(9/2)`.

    Args:
        dim: Dimension, at least 2.
    """
    check_count("dim", dim, minimum=2)

    def log_prob(q: tf.Tensor) -> tf.Tensor:
        width, rest = q[..., 0], q[..., 1:]
        # Scaling before squaring doubles the range of q_0 before exp overflows.
        scaled = rest * tf.exp(-width / 2.0)[..., tf.newaxis]
        square = (width / 3.0) ** 2 + tf.reduce_sum(scaled**2, axis=-1)
        normaliser = math.log(3.0) + dim * math.log(2.0 * math.pi) / 2.0
        return -square / 2.0 - (dim - 1) * width / 2.0 - normaliser

    def sample(n: int, generator: np.random.Generator) -> Array:
        draws = generator.standard_normal((n, dim))
        draws[:, 0] *= 3.0
        draws[:, 1:] *= np.exp(draws[:, :1] / 2.0)
        return draws

    variance = np.full(dim, math.exp(4.5))
    variance[0] = 9.0
    moments = Moments.exact(np.zeros(dim), variance)
    return Target("funnel", dim, log_prob, lambda: moments, sample)


def rough_well(dim: int = 100, eta: float = 0.01) -> Target:
    """Quadratic well with a ripple, `U = |q|²/2 + η Σ cos(q_i/η)`, unnormalised.

    The paper has a 100-D rough well without giving its constants; `eta` is this
    project's choice. Coordinates are independent: draws invert the CDF on a grid,
    the variance comes from quadrature that is exact to rounding.

    Args:
        dim: Dimension, at least 1.
        eta: Height and, times 2π, period of the ripple; at least 1e-4, below which
            the grid that resolves the ripple would have millions of points.
    """
    check_count("dim", dim, minimum=1)
    if not isinstance(eta, numbers.Real) or not 1e-4 <= eta < math.inf:
        raise ValueError(f"`eta` is {eta!r}; expected a finite number >= 1e-4.")
    eta = float(eta)

    def log_prob(q: tf.Tensor) -> tf.Tensor:
        return -tf.reduce_sum(q**2 / 2.0 + eta * tf.cos(q / eta), axis=-1)

    def tabulate() -> tuple[Array, Array]:
        # The ripple bends the log density by at most 1/eta. At a tenth of eta (and
        # a hundredth of the well) linear interpolation is then off by eta / 800 at
        # most. At 12 the density is below exp(-36) for every eta.
        grid = uniform_grid(-12.0, 12.0, min(eta / 10.0, 0.01))
        return grid, -(grid**2) / 2.0 - eta * np.cos(grid / eta)

    def sample(n: int, generator: np.random.Generator) -> Array:
        grid, log_density = tabulate()
        coordinate = GridDensities(grid, log_density[None, :])
        row = np.zeros(n, np.intp)
        columns = [coordinate.quantile(row, generator.random(n)) for _ in range(dim)]
        return np.stack(columns, axis=-1)

    def moments() -> Moments:
        grid, log_density = tabulate()
        weights = np.exp(log_density - log_density.max())
        variance = np.average(grid**2, weights=weights)
        return Moments.exact(np.zeros(dim), np.full(dim, variance))

    return Target("rough_well", dim, log_prob, moments, sample)


def rosenbrock(dim: int = 10) -> Target:
    """`U = Σ_{i<dim} [100 (q_{i+1} - q_i²)² + (1 - q_i)²] / 20`, unnormalised.

    The form and constants are the reference code's. The tail is long and stiff: in
    10-D the last coordinate has standard deviation 2.24 and 99.9% quantile 33.
    Neighbours alone interact, so draws and moments come from one-dimensional
    messages; the moments are exact to rounding.

    Args:
        dim: Dimension, at least 2.
    """
    check_count("dim", dim, minimum=2)
    noise_variance = 20.0 / (2.0 * 100.0)  # of q_{i+1} given q_i, before (1 - q)²

    def log_prob(q: tf.Tensor) -> tf.Tensor:
        head, tail = q[..., :-1], q[..., 1:]
        terms = 100.0 * (tail - head**2) ** 2 + (1.0 - head) ** 2
        return -tf.reduce_sum(terms, axis=-1) / 20.0

    spacing = math.sqrt(noise_variance) / _POINTS_PER_SD
    # At a distance of 27 from 1, the factor exp(-(1 - q)²/20) is below exp(-36). The
    # square of an earlier node is the mean of the next one, so that earlier nodes stay
    # within 5.6: 5.6² = 31.
    wide = uniform_grid(1.0 - 27.0, 1.0 + 27.0, spacing)
    narrow = uniform_grid(-5.6, 5.6, spacing)
    # The last coordinate has no factor of its own and reaches hundreds: given its
    # neighbour it is Gaussian, so it needs no grid.
    chain = GridChain(
        [narrow] * (dim - 2) + [wide],
        log_node=lambda x: -((1.0 - x) ** 2) / 20.0,
        log_edge=lambda x, y: -((y - x**2) ** 2) / (2.0 * noise_variance),
    )

    def sample(n: int, generator: np.random.Generator) -> Array:
        head = chain.sample(n, generator)
        noise = math.sqrt(noise_variance) * generator.standard_normal((n, 1))
        return np.concatenate([head, head[:, -1:] ** 2 + noise], axis=1)

    def moments() -> Moments:
        first = chain.expectation(lambda x: x)
        second = chain.expectation(lambda x: x**2)
        fourth = chain.expectation(lambda x: x**4)
        last_variance = noise_variance + fourth[-1] - second[-1] ** 2
        return Moments.exact(
            np.append(first, second[-1]), np.append(second - first**2, last_variance)
        )

    return Target("rosenbrock", dim, log_prob, moments, sample)


def allen_cahn(dim: int = 25) -> Target:
    """A discretised double-well path on the unit interval, unnormalised.

    `U = Σ_{i<dim} (u_{i+1} - u_i)² / (2 Δx) + (Δx/2) Σ_i (1 - u_i²)²`, with
    `Δx = 1/dim` (this project's choice: cells of a unit interval) and free ends.
    Draws and moments come from one-dimensional messages, as for `rosenbrock`; the
    variances are exact to rounding, the means are zero by symmetry.

    Args:
        dim: Number of cells, at least 2.
    """
    check_count("dim", dim, minimum=2)
    dx = 1.0 / dim

    def log_prob(q: tf.Tensor) -> tf.Tensor:
        slope = tf.reduce_sum((q[..., 1:] - q[..., :-1]) ** 2, axis=-1) / (2.0 * dx)
        well = tf.reduce_sum((1.0 - q**2) ** 2, axis=-1) * dx / 2.0
        return -slope - well

    # A path that starts at height a and relaxes costs about a³/3 - a: at 5, 37 nats.
    grid = uniform_grid(-5.0, 5.0, math.sqrt(dx) / _POINTS_PER_SD)
    chain = GridChain(
        [grid] * dim,
        log_node=lambda x: -dx / 2.0 * (1.0 - x**2) ** 2,
        log_edge=lambda x, y: -((y - x) ** 2) / (2.0 * dx),
    )

    def moments() -> Moments:
        return Moments.exact(np.zeros(dim), chain.expectation(lambda x: x**2))

    return Target("allen_cahn", dim, log_prob, moments, chain.sample)


def _gaussian(name: str, variance: Array) -> Target:
    """A centred Gaussian with diagonal covariance `variance`, [dim]."""
    dim, scale = len(variance), np.sqrt(variance)
    normaliser = float(np.sum(np.log(scale)) + dim * math.log(2.0 * math.pi) / 2.0)

    def log_prob(q: tf.Tensor) -> tf.Tensor:
        scaled = q / tf.constant(scale, q.dtype)
        return -tf.reduce_sum(scaled**2, axis=-1) / 2.0 - normaliser

    def sample(n: int, generator: np.random.Generator) -> Array:
        return scale * generator.standard_normal((n, dim))

    moments = Moments.exact(np.zeros(dim), variance)
    return Target(name, dim, log_prob, lambda: moments, sample)


def _gaussian_mixture(
    name: str, locations: Array, scale: float, moments: Moments
) -> Target:
    """Equal isotropic Gaussians at `locations`, [components, dim]."""
    components, dim = locations.shape
    normaliser = math.log(components) + dim * math.log(scale * math.sqrt(2 * math.pi))

    def log_prob(q: tf.Tensor) -> tf.Tensor:
        scaled = (q[..., tf.newaxis, :] - tf.constant(locations, q.dtype)) / scale
        logits = -tf.reduce_sum(scaled**2, axis=-1) / 2.0  # [..., components]
        return tf.reduce_logsumexp(logits, axis=-1) - normaliser

    def sample(n: int, generator: np.random.Generator) -> Array:
        component = generator.integers(components, size=n)
        return locations[component] + scale * generator.standard_normal((n, dim))

    return Target(name, dim, log_prob, lambda: moments, sample)
