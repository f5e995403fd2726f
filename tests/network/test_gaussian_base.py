"""The Gaussian base: exact where it can be, robust where it cannot."""

import numpy as np
import pytest

import tfp_lhnn
from tfp_lhnn.network.gaussian_base import fit_gaussian_base


@pytest.mark.parametrize("dim", [2, 20])
def test_dense_gaussian_is_exact_from_few_points(dim):
    generator = np.random.default_rng(dim)
    root = generator.normal(size=(dim, dim)) / np.sqrt(dim) + np.eye(dim)
    precision = root @ root.T * np.outer(*[np.logspace(-1, 1, dim)] * 2)
    mean = 5.0 * generator.normal(size=dim)
    # More than dim + 1 remain when a fifth is held out.
    q = mean + generator.normal(size=(3 * dim + 4, dim)) / np.logspace(-1, 1, dim)
    gradient = -(q - mean) @ precision
    log_prob = 3.0 + 0.5 * np.sum((q - mean) * gradient, axis=-1)
    network = tfp_lhnn.LatentHNN(dim, (4,), dtype="float64")
    network.fit_base(q, gradient, log_prob)
    size = np.max(np.abs(gradient))
    np.testing.assert_allclose(
        network.potential_gradient(q), -gradient, atol=1e-9 * size
    )
    np.testing.assert_allclose(network.potential(q), -log_prob, rtol=1e-8)
    np.testing.assert_allclose(network.location, mean, rtol=1e-7, atol=1e-7)


def test_diagonal_gaussian_is_exact_from_five_points():
    dim = 200
    generator = np.random.default_rng(0)
    scale = np.logspace(-2, 2, dim)
    mean = generator.normal(size=dim)
    q = mean + scale * generator.normal(size=(5, dim))
    network = tfp_lhnn.LatentHNN(dim, (4,), base="diagonal", dtype="float64")
    assert network.whitening.shape == (dim,)
    network.fit_base(q, -(q - mean) / scale**2)
    np.testing.assert_allclose(network.whitening, 1.0 / scale, rtol=1e-9)
    np.testing.assert_allclose(network.location, mean, rtol=1e-7, atol=1e-7)


def test_width_is_that_of_the_target_not_of_the_points():
    q = 0.01 * np.random.default_rng(0).normal(size=(20, 3))
    base = fit_gaussian_base(q, -4.0 * q, dense=False)
    np.testing.assert_allclose(base.whitening, 2.0 * np.ones(3), rtol=1e-8)


def test_negative_slopes_fall_back_to_the_spread():
    q = np.random.default_rng(0).normal(size=(500, 2)) * [1.0, 3.0]
    base = fit_gaussian_base(q, q * [-1.0, 1.0], dense=False)
    np.testing.assert_allclose(base.whitening, [1.0, 1.0 / q[:, 1].std()], rtol=0.1)


def test_points_far_away_are_ignored():
    q = np.random.default_rng(0).normal(size=(300, 2))
    q[:3] = [[1e3, 0.0], [-2e3, 1e3], [0.0, 5e2]]
    log_prob = -0.5 * np.sum(q**2, -1) - 0.01 * np.sum(q**4 * (abs(q) > 9), -1)
    gradient = -q - 0.04 * q**3 * (abs(q) > 9)
    base = fit_gaussian_base(q, gradient, log_prob, dense=False)
    np.testing.assert_allclose(base.whitening, np.ones(2), rtol=1e-9)


def test_energies_or_gradients_decide():
    # A wall on one side, nearly flat on the other: no Gaussian suits both.
    def points(seed):
        q = np.random.default_rng(seed).uniform(-2.5, 8.0, size=(400, 1))
        log_prob = -np.exp(-q[:, 0]) - 0.05 * q[:, 0]
        return q, np.exp(-q) - 0.05, log_prob

    by_energy = fit_gaussian_base(*points(0))
    by_gradient = fit_gaussian_base(*points(0), by_gradient=True)
    # Steps that the wall bears are shorter.
    assert by_gradient.whitening > 1.1 * by_energy.whitening
    q, gradient, log_prob = points(1)

    def gradient_error(base):
        return np.std(base.whiten(q) + base.whiten_gradient(gradient))

    def energy_error(base):
        return np.std(-log_prob - base.energy(q))

    assert gradient_error(by_gradient) < gradient_error(by_energy)
    assert energy_error(by_energy) < energy_error(by_gradient)


def test_noise_is_not_mistaken_for_correlation():
    generator = np.random.default_rng(0)
    q = generator.normal(size=(200, 40))
    base = fit_gaussian_base(q, -q + generator.normal(size=q.shape))
    assert base.whitening.ndim == 1 or np.allclose(
        base.whitening, np.eye(40), atol=0.15
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda q, g: (q * [1.0, 0.0], g), r"position is constant.*\[1\]"),
        (lambda q, g: (q, 0.0 * g + 1.0), "gradient is the same"),
        (lambda q, g: (np.where(q > 1, np.nan, q), g), "position has values"),
        (lambda q, g: (q, np.where(q > 1, np.inf, g)), "gradient has values"),
        (lambda q, g: (q[:2], g[:2]), "3 points"),
        (lambda q, g: (q, g[:, :1]), "one shape"),
        (lambda q, g: (np.c_[q, q + 1], np.c_[g, g]), "dim=2"),
    ],
)
def test_bad_points_are_named(change, message):
    q = np.random.default_rng(0).normal(size=(50, 2))
    with pytest.raises(ValueError, match=message):
        tfp_lhnn.LatentHNN(2, (4,)).fit_base(*change(q, -q))


def test_too_few_points_in_the_bulk_are_named():
    rng = np.random.default_rng(8)
    position = rng.normal(size=(16, 3))
    # Two low ones; the others are on their way down, each far above the next.
    log_prob = -(10.0 ** np.arange(16))
    log_prob[:2] = 0.0
    with pytest.raises(ValueError, match="only 2 of 16 do"):
        fit_gaussian_base(position, -position, log_prob)
