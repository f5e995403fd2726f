"""Targets on grids against quadratures that share nothing but the density."""

import functools
import math
from statistics import NormalDist

import numpy as np
import pytest
import tensorflow as tf

from tfp_lhnn import targets
from tfp_lhnn.targets.grid import GridChain, GridDensities, uniform_grid


def normal_cdf(x):
    return tf.math.erfc(-np.asarray(x) / math.sqrt(2)).numpy() / 2


def gauss_legendre(low, high, num_panels):
    """Nodes and weights of 20-point rules on equal panels."""
    node, weight = np.polynomial.legendre.leggauss(20)
    edges = np.linspace(low, high, num_panels + 1)
    half = np.diff(edges)[:, None] / 2
    return (edges[:-1, None] + half * (1 + node)).ravel(), (half * weight).ravel()


@functools.cache
def rosenbrock_x9():
    """x9 of the 10-D chain by forward recursion alone: nodes and probabilities.

    Gauss-Legendre panels and no backward messages: nothing in common with the
    package but the density.
    """
    x, weight = gauss_legendre(-7, 7, 100)
    y, last_weight = gauss_legendre(-7, 29, 144)  # every quarter is an edge

    def advance(mass, to, to_weight):
        edge = np.exp(-5 * (to[:, None] - x**2) ** 2)
        mass = to_weight * np.exp(-((1 - to) ** 2) / 20) * (edge @ mass)
        return mass / mass.sum()

    mass = weight * np.exp(-((1 - x) ** 2) / 20)
    for _ in range(7):
        mass = advance(mass, x, weight)
    return y, advance(mass, y, last_weight)


def rosenbrock_x10_cdf(t):
    x9, mass = rosenbrock_x9()
    return normal_cdf((t[:, None] - x9**2) / math.sqrt(0.1)) @ mass


def test_rosenbrock_tail_agrees_with_an_independent_quadrature():
    x9, mass = rosenbrock_x9()
    mean, square, fourth = mass @ x9, mass @ x9**2, mass @ x9**4
    target = targets.rosenbrock()
    np.testing.assert_allclose(target.mean[8:], [mean, square], rtol=1e-9)
    np.testing.assert_allclose(
        target.variance[8:], [square - mean**2, 0.1 + fourth - square**2], rtol=1e-9
    )
    assert mass[x9 > 2].sum() == pytest.approx(0.0169, abs=5e-5)
    assert rosenbrock_x10_cdf(np.array([33.0]))[0] == pytest.approx(0.999, abs=1e-4)


def test_rosenbrock_tail_has_the_known_size():
    target = targets.rosenbrock()
    assert math.sqrt(target.variance[8]) == pytest.approx(0.598, abs=5e-4)
    assert math.sqrt(target.variance[9]) == pytest.approx(2.248, abs=5e-4)
    assert target.mean[9] == pytest.approx(0.41, abs=5e-3)


def test_rosenbrock_draws_reach_the_tail():
    # Counts above a cut are binomial; one false alarm in a million fresh seeds.
    num_draws, (x9, mass) = 100_000, rosenbrock_x9()
    draws = targets.rosenbrock().sample(num_draws, seed=[20, 26])
    x9_cuts = np.array([-0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 5.0])  # edges of panels
    x10_cuts = np.array([-0.5, 0.0, 0.5, 1.0, 4.0, 9.0, 33.0])
    count = np.concatenate(
        [
            np.sum(draws[:, 8, None] > x9_cuts, axis=0),
            np.sum(draws[:, 9, None] > x10_cuts, axis=0),
        ]
    )
    probability = np.concatenate(
        [(x9[:, None] > x9_cuts).T @ mass, 1 - rosenbrock_x10_cdf(x10_cuts)]
    )
    z = count - num_draws * probability
    z /= np.sqrt(num_draws * probability * (1 - probability))
    assert np.abs(z).max() < -NormalDist().inv_cdf(1e-6 / (2 * z.size))


def test_rosenbrock_3_agrees_with_a_brute_force_grid():
    # x3 given x2 is N(x2², 0.1), so the plane of x1 and x2 is enough.
    x1, x2 = np.linspace(-6, 6, 1201)[:, None], np.linspace(-7, 29, 1801)
    weight = np.exp(-5 * (x2 - x1**2) ** 2 - ((1 - x1) ** 2 + (1 - x2) ** 2) / 20)
    weight /= weight.sum()
    mean = [np.sum(weight * x1), np.sum(weight * x2), np.sum(weight * x2**2)]
    square = [np.sum(weight * x1**2), mean[2], 0.1 + np.sum(weight * x2**4)]
    target = targets.rosenbrock(3)
    np.testing.assert_allclose(target.mean, mean, rtol=1e-8)
    np.testing.assert_allclose(target.variance, square - target.mean**2, rtol=1e-8)


def test_allen_cahn_3_agrees_with_a_brute_force_grid():
    points = np.linspace(-4, 4, 101)
    mesh = np.stack(np.meshgrid(points, points, points, indexing="ij"), axis=-1)
    weight = np.exp(targets.allen_cahn(3).log_prob(mesh).numpy())
    square = np.einsum("abc,abci->i", weight / weight.sum(), mesh**2)
    np.testing.assert_allclose(targets.allen_cahn(3).variance, square, rtol=1e-8)


def test_allen_cahn_path_is_the_same_from_both_ends():
    variance = targets.allen_cahn().variance
    np.testing.assert_allclose(variance, variance[::-1], rtol=1e-10)


def test_rough_well_variance_agrees_with_its_bessel_series():
    # exp(-η cos θ) = Σ_k (-1)^k I_k(η) cos kθ and E cos(kz/η) = exp(-k²/2η²).
    eta, order = 0.5, np.arange(1, 4)
    bessel = [
        sum((eta / 2) ** (2 * m + k) / math.factorial(m) / math.factorial(m + k)
            for m in range(20))
        for k in range(4)
    ]  # fmt: skip
    term = 2 * (-1.0) ** order * bessel[1:] * np.exp(-((order / eta) ** 2) / 2)
    expected = (bessel[0] + term @ (1 - (order / eta) ** 2)) / (bessel[0] + term.sum())
    actual = targets.rough_well(1, eta=eta).variance[0]
    assert actual == pytest.approx(expected, rel=1e-9)
    assert targets.rough_well(1).variance[0] == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("spacing", [0.3, 0.5, 10.0])
def test_a_grid_has_both_ends_and_is_as_fine_as_asked(spacing):
    grid = uniform_grid(-1.0, 2.0, spacing)
    assert (grid[0], grid[-1]) == (-1.0, 2.0)
    steps = np.diff(grid)
    np.testing.assert_allclose(steps, steps[0])
    assert steps[0] <= spacing * (1.0 + 1e-12)
    # One point less would be too coarse.
    assert len(grid) == 2 or 3.0 / (len(grid) - 2) > spacing


def test_quantiles_of_straight_lines_are_exact():
    grid, u = uniform_grid(0.0, 1.0, 0.05), np.linspace(0.0, 1.0, 41)[:-1]
    # Densities 1 and (1 + 3 x) / 2.5, whose CDFs are x and (x + 1.5 x²) / 2.5.
    log_density = np.stack([np.zeros_like(grid), np.log1p(3.0 * grid)])
    lines = GridDensities(grid, log_density + np.array([[7.0], [-700.0]]))
    row = np.arange(2).repeat(len(u))
    flat, rising = lines.quantile(row, np.tile(u, 2)).reshape(2, -1)
    np.testing.assert_allclose(flat, u, atol=1e-12)
    np.testing.assert_allclose(
        rising, (np.sqrt(1.0 + 15.0 * u) - 1.0) / 3.0, atol=1e-12
    )


def test_moments_of_a_gaussian_chain_are_those_of_its_precision_matrix():
    # log f = -½ a x² + b x and log g = -½ c (x - y)²: a tridiagonal precision.
    a, b, c, nodes = 0.7, 0.4, 2.0, 4
    chain = GridChain(
        [uniform_grid(-12.0, 13.0, 0.1)] * nodes,
        lambda x: -0.5 * a * x**2 + b * x,
        lambda x, y: -0.5 * c * (x - y) ** 2,
    )
    difference = np.diff(np.eye(nodes), axis=0)
    covariance = np.linalg.inv(a * np.eye(nodes) + c * difference.T @ difference)
    mean = covariance @ np.full(nodes, b)
    np.testing.assert_allclose(chain.expectation(lambda x: x), mean, rtol=1e-9)
    square = np.diag(covariance) + mean**2
    np.testing.assert_allclose(chain.expectation(np.square), square, rtol=1e-9)
