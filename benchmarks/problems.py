"""The package's own targets as benchmark problems, and all problems by name."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks import curved_ridges, jax_densities
from benchmarks.logistic import logistic_regression
from benchmarks.padding import padded
from benchmarks.problem import Problem, Truth
from tfp_lhnn import targets

__all__ = ["check_twins", "gym_names", "make_problem"]

# For the spread of the squares, which `b²` divides by; an error of 1% is small enough.
_NUM_EXACT_DRAWS = 100_000
_CORRELATION = 0.7
_NUM_TWIN_POINTS = 5
_TWIN_TOLERANCE = 1e-3

# From grid computations; see `Truth.tails`.
_ROSENBROCK_TAILS: dict[str, tuple[float, Callable[[np.ndarray], float]]] = {
    "sd(x9)": (0.598, lambda x: float(np.std(x[:, 8]))),
    "P(x9 > 2)": (0.0169, lambda x: float(np.mean(x[:, 8] > 2.0))),
    "99.9% quantile of x10": (33.0, lambda x: float(np.quantile(x[:, 9], 0.999))),
}


def make_problem(name: str) -> Problem:
    """The problem of that name, which may carry arguments after colons.

    Args:
        name: one of the package's targets (`"eight_gaussians"`), or with an argument:
            `"correlated_gaussian:100"`, `"rough_well:30"` (dimension),
            `"logistic:1000"` (rows), `"padded:10"` (milliseconds of one density),
            `"german_credit"`, `"gym:NAME"`.

    Raises:
        KeyError: if there is none.
    """
    kind, *arguments = name.split(":")
    if kind in ("gym", "german_credit"):
        from benchmarks.gym_problems import gym_problem

        return gym_problem(*arguments or [kind])
    return _FACTORIES[kind](*arguments)


def gym_names() -> list[str]:
    """Names of inference_gym's problems; none if it is not installed."""
    if importlib.util.find_spec("inference_gym") is None:
        return []
    from benchmarks.gym_problems import gym_problem_names

    return gym_problem_names()


def check_twins(problem: Problem) -> None:
    """Compares the density and its gradient in TensorFlow and JAX at a few points.

    Densities are compared by their differences, as constants do not matter.

    Raises:
        ValueError: if they differ by more than a part in a thousand of their spread.
    """
    import jax

    assert problem.make_jax_log_prob is not None
    points = problem.starts(_NUM_TWIN_POINTS, 17)
    with tf.GradientTape() as tape:
        q = tf.constant(points)
        tape.watch(q)
        value = problem.log_prob(q)
    gradient = tape.gradient(value, q)
    twin = jax.vmap(jax.value_and_grad(problem.make_jax_log_prob()))(points)
    for ours, theirs, what in zip(
        (value, gradient), twin, ("density", "gradient"), strict=True
    ):
        first, second = (np.asarray(x, np.float64) for x in (ours, theirs))
        if what == "density":
            first, second = first - first[0], second - second[0]
        error = np.max(np.abs(first - second)) / (np.max(np.abs(first)) + 1e-6)
        if not error <= _TWIN_TOLERANCE:
            raise ValueError(
                f"the {what} of {problem.name!r} differs between TensorFlow and JAX "
                f"by {error:.1e} of its size."
            )


def _of_target(
    target: targets.Target,
    make_jax_log_prob: Callable[[], Any],
    source: str,
    *,
    name: str | None = None,
    tails: dict[str, tuple[float, Callable[[np.ndarray], float]]] | None = None,
) -> Problem:
    zeros = np.zeros(target.dim)
    squares = target.sample(_NUM_EXACT_DRAWS, seed=[11, 13]) ** 2
    truth = Truth(
        target.mean, zeros, np.sqrt(target.variance), zeros, squares.std(0), tails or {}
    )
    return Problem(
        name or target.name,
        target.dim,
        target.log_prob,
        make_jax_log_prob,
        functools.partial(normal_starts, target.dim),
        lambda x: x,
        truth,
        source,
    )


def normal_starts(dim: int, num_chains: int, seed: int) -> np.ndarray:
    """Standard normal starts, which need no knowledge of the target."""
    generator = np.random.default_rng([seed, 101])
    return generator.standard_normal((num_chains, dim)).astype(np.float32)


def _eight_gaussians() -> Problem:
    angle = np.pi * np.arange(8) / 4.0
    centres = 4.0 * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    return _of_target(
        targets.eight_gaussians(),
        functools.partial(jax_densities.gaussian_mixture, centres, 1.0),
        "analytic",
    )


def _gaussian_mixture_1d() -> Problem:
    centres = np.array([[-1.0], [1.0]])
    return _of_target(
        targets.gaussian_mixture_1d(),
        functools.partial(jax_densities.gaussian_mixture, centres, 0.35),
        "analytic",
    )


def _rosenbrock(dim: str) -> Problem:
    return _of_target(
        targets.rosenbrock(int(dim)),
        jax_densities.rosenbrock,
        "messages on a grid",
        name=f"rosenbrock{dim}",
        tails=_ROSENBROCK_TAILS if int(dim) == 10 else None,
    )


def _rough_well(dim: str) -> Problem:
    return _of_target(
        targets.rough_well(int(dim)),
        functools.partial(jax_densities.rough_well, 0.01),
        "quadrature",
        name=f"rough_well{dim}",
    )


def _gaussian5() -> Problem:
    target = targets.ill_conditioned_gaussian()
    return _of_target(
        target,
        functools.partial(jax_densities.independent_gaussian, target.variance),
        "analytic",
        name="gaussian5",
    )


def _funnel() -> Problem:
    # The squares of its arms have a variance that no sample shows. So b² says little
    # here; the mean and sd of the neck are what matters.
    return _of_target(
        targets.funnel(10), functools.partial(jax_densities.funnel, 10), "analytic"
    )


def _allen_cahn() -> Problem:
    return _of_target(
        targets.allen_cahn(25),
        functools.partial(jax_densities.allen_cahn, 25),
        "messages on a grid",
    )


def _correlated_gaussian(dim: str) -> Problem:
    number, innovation = int(dim), 1.0 - _CORRELATION**2

    def log_prob(q: tf.Tensor) -> tf.Tensor:
        steps = q[..., 1:] - _CORRELATION * q[..., :-1]
        square = q[..., 0] ** 2 + tf.reduce_sum(steps**2, axis=-1) / innovation
        return -0.5 * square

    ones, zeros = np.ones(number), np.zeros(number)
    return Problem(
        f"correlated_gaussian{dim}",
        number,
        log_prob,
        functools.partial(jax_densities.correlated_gaussian, _CORRELATION),
        functools.partial(normal_starts, number),
        lambda x: x,
        Truth(zeros, zeros, ones, zeros, np.sqrt(2.0) * ones),
        "analytic",
    )


@functools.cache
def _curved_ridges() -> Problem:
    exact = curved_ridges.exact_draws(1_000_000, 5)
    root = np.sqrt(len(exact))
    square_sd = (exact**2).std(0)
    mean, sd = exact.mean(0), exact.std(0)
    spread = ((exact - mean) ** 2).std(0)
    return Problem(
        "curved_ridges",
        curved_ridges.DIM,
        curved_ridges.log_prob,
        functools.partial(
            jax_densities.curved_ridges,
            curved_ridges.NUM_PAIRS,
            curved_ridges.SLOPE,
            curved_ridges.WIDTH,
        ),
        functools.partial(normal_starts, curved_ridges.DIM),
        lambda x: x,
        Truth(mean, sd / root, sd, spread / (2.0 * sd * root), square_sd),
        "a million exact draws",
    )


_FACTORIES: dict[str, Callable[..., Problem]] = {
    "eight_gaussians": _eight_gaussians,
    "gaussian_mixture_1d": _gaussian_mixture_1d,
    "rosenbrock": _rosenbrock,
    "rough_well": _rough_well,
    "gaussian5": _gaussian5,
    "funnel": _funnel,
    "allen_cahn": _allen_cahn,
    "correlated_gaussian": _correlated_gaussian,
    "curved_ridges": _curved_ridges,
    "logistic": lambda rows: logistic_regression(int(rows)),
    "padded": lambda milliseconds: padded(_curved_ridges(), float(milliseconds)),
}
