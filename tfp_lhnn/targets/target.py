"""What a target is: a log density together with its ground truth."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from tfp_lhnn.support.arguments import check_count, stateless_seed

__all__ = ["Moments", "Target"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    """True moments of a target and how well they are known.

    Attributes:
        mean: [dim].
        variance: [dim].
        mean_standard_error: [dim]; zero where the mean is analytic or comes from
            quadrature that is exact to rounding.
        variance_standard_error: [dim]; likewise.
    """

    mean: Array
    variance: Array
    mean_standard_error: Array
    variance_standard_error: Array

    @classmethod
    def exact(cls, mean: ArrayLike, variance: ArrayLike) -> "Moments":
        """Moments without error, from `mean` and `variance`, [dim] each."""
        mean, variance = np.array(mean, np.float64), np.array(variance, np.float64)
        error = np.zeros_like(mean)
        for array in (mean, variance, error):
            array.setflags(write=False)  # a target hands the same array to everyone
        return cls(mean, variance, error, error)


@dataclass(frozen=True, eq=False)
class Target:
    """A density on `R^dim` with its ground truth.

    Attributes:
        name: Name of the target.
        dim: Dimension.
        log_prob_fn: Log density, [..., dim] -> [...], in the dtype of its tensor
            argument. Use `log_prob`, which checks the argument.
        moments_fn: Computes the true moments when they are first asked for.
        sampler: Exact draws, `(n, generator) -> [n, dim]`, or None if there is no
            exact sampler.
    """

    name: str
    dim: int
    log_prob_fn: Callable[[tf.Tensor], tf.Tensor]
    moments_fn: Callable[[], Moments]
    sampler: Callable[[int, np.random.Generator], Array] | None = None

    def log_prob(self, q: Any) -> tf.Tensor:
        """Log density, normalised only where the factory says so.

        Args:
            q: Positions, [..., dim], float32 or float64.

        Returns:
            Log density in the dtype of `q`, [...].

        Raises:
            TypeError: If `q` is not floating point.
            ValueError: If the last axis of `q` is not of length `dim`.
        """
        q = tf.convert_to_tensor(q)
        if not q.dtype.is_floating:
            raise TypeError(f"`q` has dtype {q.dtype.name}; expected a float.")
        if q.shape.rank == 0 or not q.shape[-1:].is_compatible_with([self.dim]):
            raise ValueError(
                f"`q` has shape {q.shape}; target {self.name!r} expects "
                f"[..., {self.dim}]."
            )
        return self.log_prob_fn(q)

    @property
    def has_exact_sampler(self) -> bool:
        """Whether `sample` can draw from this target."""
        return self.sampler is not None

    def sample(self, n: int, seed: Any) -> Array:
        """Independent exact draws, outside graphs.

        Args:
            n: Number of draws.
            seed: An int, a pair of ints, or an integer Tensor of shape [2]. Equal
                seeds give equal draws.

        Returns:
            Draws, [n, dim], float64.

        Raises:
            NotImplementedError: If the target has no exact sampler.
            TypeError: If `n` or `seed` is of another type.
            ValueError: If `n` is below 1.
        """
        if self.sampler is None:
            raise NotImplementedError(
                f"target {self.name!r} has no exact sampler; see has_exact_sampler."
            )
        check_count("n", n, minimum=1)
        return self.sampler(n, _generator(seed))

    @cached_property
    def moments(self) -> Moments:
        """True moments with their standard errors, computed once."""
        return self.moments_fn()

    @property
    def mean(self) -> Array:
        """True mean, [dim]."""
        return self.moments.mean

    @property
    def variance(self) -> Array:
        """True variance of each coordinate, [dim]."""
        return self.moments.variance

    @property
    def mean_standard_error(self) -> Array:
        """Standard error of `mean`, [dim]."""
        return self.moments.mean_standard_error

    @property
    def variance_standard_error(self) -> Array:
        """Standard error of `variance`, [dim]."""
        return self.moments.variance_standard_error


def _generator(seed: Any) -> np.random.Generator:
    """A NumPy generator that depends on `seed` alone."""
    words = np.asarray(stateless_seed(seed, salt="exact_draws"))
    return np.random.default_rng(words.view(np.uint32))
