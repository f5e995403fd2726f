"""Bayesian logistic regression on synthetic rows, with a truth by importance sampling.

The density is written as a sum over rows of its difference from a reference point:
with a million rows the plain sum has a rounding error of tenths of a nat in float32,
which no sampler can avoid; that of the difference is negligible.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.problem import Problem, Truth

__all__ = ["importance_truth", "logistic_regression"]

# Density evaluations of the truth, rows times points, about ten seconds at most.
_NUM_TERMS = 1e8
_POINTS = (400, 100_000)
_CHUNK_TERMS = 1e6  # in the cache


def logistic_regression(rows: int, dim: int = 24) -> Problem:
    """Standard normal features, coefficients and prior."""
    signed, coefficients = _data(rows, dim)
    margin = signed @ coefficients
    reference = tf.constant(-np.logaddexp(0.0, -margin), tf.float32)
    features = tf.constant(signed, tf.float32)  # [rows, dim]

    def log_prob(q: tf.Tensor) -> tf.Tensor:
        margins = tf.matmul(q, features, transpose_b=True)  # [n, rows]
        terms = tf.math.log_sigmoid(margins) - reference
        return tf.reduce_sum(terms, axis=-1) - 0.5 * tf.reduce_sum(q**2, axis=-1)

    def make_jax_log_prob() -> Any:
        import jax
        import jax.numpy as jnp

        matrix = jnp.asarray(signed, jnp.float32)
        offset = jnp.asarray(reference.numpy())

        def density(q: Any) -> Any:
            terms = jax.nn.log_sigmoid(matrix @ q) - offset
            return jnp.sum(terms) - 0.5 * jnp.sum(q**2)

        return density

    def starts(num_chains: int, seed: int) -> np.ndarray:
        generator = np.random.default_rng([seed, 101])
        return generator.standard_normal((num_chains, dim)).astype(np.float32)

    truth, size = importance_truth(signed, coefficients)
    return Problem(
        f"logistic{rows}",
        dim,
        log_prob,
        make_jax_log_prob,
        starts,
        lambda x: x,
        truth,
        f"importance sampling from Laplace's approximation, {size} points",
    )


def _data(rows: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Features with the sign of their label, `[rows, dim]`, and true coefficients."""
    generator = np.random.default_rng(2024)
    coefficients = 0.5 * generator.standard_normal(dim)
    features = generator.standard_normal((rows, dim), dtype=np.float32)
    margin = features @ coefficients
    is_one = generator.random(rows) < 1.0 / (1.0 + np.exp(-margin))
    return np.where(is_one, 1.0, -1.0)[:, None].astype(np.float32) * features, (
        coefficients
    )


def importance_truth(signed: np.ndarray, start: np.ndarray) -> tuple[Truth, int]:
    """Moments under the posterior, and the number of points they come from.

    The proposal is Laplace's Gaussian, whose own moments are known. Only the deviations
    of the weights from one have to be averaged, so errors are small if the posterior is
    nearly Gaussian.

    Args:
        signed: features times the sign of the label, `[rows, dim]`.
        start: where to look for the mode, `[dim]`.
    """
    rows, dim = signed.shape
    mode, covariance = _laplace(signed, start)
    number = int(np.clip(_NUM_TERMS / rows, *_POINTS)) // 2
    normals = np.random.default_rng(7).standard_normal((number, dim))
    normals = np.concatenate([normals, -normals])  # odd errors cancel
    shift = normals @ np.linalg.cholesky(covariance).T
    log_weight = _log_densities(signed, mode + shift) + 0.5 * np.sum(normals**2, -1)
    weight = np.exp(log_weight - log_weight.max())
    excess = (weight / weight.mean() - 1.0)[:, None]
    pairs = (2, number, dim)

    def correction(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Correction of the Gaussian's mean of `values`, and its standard error."""
        products = (excess * values).reshape(pairs).mean(axis=0)
        return products.mean(0), products.std(0) / np.sqrt(number)

    first, first_error = correction(shift)
    variance = np.diag(covariance)
    second, second_error = correction(shift**2 - variance)
    sd = np.sqrt(variance + second - first**2)
    squares = (mode + shift) ** 2
    share = weight[:, None] / weight.sum()
    square_mean = np.sum(share * squares, axis=0)
    square_sd = np.sqrt(np.sum(share * (squares - square_mean) ** 2, axis=0))
    truth = Truth(mode + first, first_error, sd, second_error / (2.0 * sd), square_sd)
    return truth, 2 * number


def _laplace(signed: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mode by Newton's method, and the inverse Hessian there."""
    mode = np.array(start, np.float64)
    hessian = np.eye(len(mode))
    for _ in range(12):
        gradient, hessian = -mode, np.eye(len(mode))
        for block in _blocks(signed, 1):
            probability = 1.0 / (1.0 + np.exp(block @ mode))  # of the other label
            gradient = gradient + block.T @ probability
            curvature = probability * (1.0 - probability)
            hessian = hessian + (block * curvature[:, None]).T @ block
        step = np.linalg.solve(hessian, gradient)
        mode = mode + step
        if np.max(np.abs(step)) < 1e-10:
            break
    return mode, np.linalg.inv(hessian)


def _log_densities(signed: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Up to a constant, `[points]`, summed in float64.

    The terms are float32, ten times as fast: their rounding errors are independent and
    below 1e-7, so that a million of them sum to less than 1e-3.
    """
    total = -0.5 * np.sum(points**2, axis=-1)
    transposed = points.T.astype(np.float32)
    for block in _blocks(signed, len(points)):
        margins = block.astype(np.float32) @ transposed
        # log(1 + exp(-m)) without overflow.
        loss = np.log(1.0 + np.exp(-np.abs(margins))) - np.minimum(margins, 0.0)
        total -= loss.sum(axis=0, dtype=np.float64)
    return total


def _blocks(signed: np.ndarray, width: int) -> Any:
    size = max(1, int(_CHUNK_TERMS / max(width, signed.shape[1])))
    for first in range(0, len(signed), size):
        yield signed[first : first + size].astype(np.float64)
