"""What a benchmark samples from, and the result of one run of a sampler."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["Job", "Problem", "Run", "Seconds", "Tally", "Truth"]


@dataclasses.dataclass(frozen=True, eq=False)
class Truth:
    """Moments of a problem's quantities, `[k]` each, with their standard errors.

    Attributes:
        mean: true means.
        mean_error: their standard errors; zeros if exact.
        sd: true standard deviations.
        sd_error: their standard errors.
        square_sd: standard deviation of the squares, for the bias `b²`; `None` where it
            is unknown and has to be estimated from a run's own draws.
        tails: further numbers to reproduce, by name: the true value, and the function
            of quantities `[n, k]` that estimates it.
    """

    mean: np.ndarray
    mean_error: np.ndarray
    sd: np.ndarray
    sd_error: np.ndarray
    square_sd: np.ndarray | None = None
    tails: dict[str, tuple[float, Callable[[np.ndarray], float]]] = dataclasses.field(
        default_factory=dict
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """A density on flat unconstrained positions, for all samplers alike.

    Attributes:
        name: short, unique.
        dim: of the positions.
        log_prob: TensorFlow, `[n, dim]` float32 to `[n]`; XLA compiles it.
        make_jax_log_prob: returns the same density in JAX, `[dim]` to `[]`; imports JAX
            only when called. `None` if there is none; JAX's samplers skip it then.
        starts: `(num_chains, seed)` to positions `[num_chains, dim]` float32.
        quantities: positions `[..., dim]` to the quantities that the truth is for,
            `[..., k]`.
        truth: of these quantities.
        source: where the truth comes from.
    """

    name: str
    dim: int
    log_prob: Callable[[Any], Any]
    make_jax_log_prob: Callable[[], Callable[[Any], Any]] | None
    starts: Callable[[int, int], np.ndarray]
    quantities: Callable[[np.ndarray], np.ndarray]
    truth: Truth
    source: str


@dataclasses.dataclass(frozen=True, eq=False)
class Job:
    """The input of every sampler, besides its own options.

    Attributes:
        problem: what to sample.
        num_chains: of it.
        num_draws: kept, of each chain.
        seed: of everything.
    """

    problem: Problem
    num_chains: int
    num_draws: int
    seed: int

    @property
    def starts(self) -> np.ndarray:
        """Of the chains, `[num_chains, dim]`."""
        return self.problem.starts(self.num_chains, self.seed)


@dataclasses.dataclass(frozen=True)
class Tally:
    """Target calls, all chains together.

    Attributes:
        gradients: true gradients; each comes with its density.
        densities: densities without a gradient.
    """

    gradients: int
    densities: int = 0


@dataclasses.dataclass(frozen=True)
class Seconds:
    """Wall time of a run's phases.

    Attributes:
        compiling: where it can be measured; otherwise 0, and part of the others.
        warmup: pilot, training, adaptation.
        sampling: the kept draws.
    """

    compiling: float
    warmup: float
    sampling: float

    @property
    def total(self) -> float:
        """Everything."""
        return self.compiling + self.warmup + self.sampling


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """The result of a sampler.

    Attributes:
        draws: kept positions, `[chains, draws, dim]`.
        warmup: target calls before them: pilot, training, adaptation.
        sampling: target calls of the kept draws.
        seconds: wall time.
        settings: what was tuned or fixed, for the record.
        warnings: what the sampler itself warned of.
    """

    draws: np.ndarray
    warmup: Tally
    sampling: Tally
    seconds: Seconds
    settings: dict[str, Any]
    warnings: tuple[str, ...] = ()
