"""Dispersed points of finite density to start chains from."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

__all__ = ["Starts", "find_starts"]

# Attempts to find starts of finite density. Around a finite point, distances go from
# 4^-1 to 4^-9 of a unit, which is near enough for any open support. If no point is
# finite, 9 x 32 points or more are tried.
_MAX_ATTEMPTS = 10
_MIN_DISPERSED = 32
_DISPERSED_SCALES = (1.0, 0.1, 10.0, 0.01, 100.0)


class Starts(NamedTuple):
    """Points to start chains from.

    Attributes:
      position: `[n, dim]`, flat and unconstrained.
      log_prob: The log density there, finite, `[n]`.
      num_evaluations: Densities evaluated to find them.
    """

    position: np.ndarray
    log_prob: np.ndarray
    num_evaluations: int


def find_starts(
    evaluate: Callable[[np.ndarray], np.ndarray],
    first: np.ndarray,
    given: np.ndarray | None,
    rng: np.random.Generator,
) -> Starts:
    """Replaces the points at which the density is not finite.

    They are replaced by points ever nearer to a finite one, and in the end by copies of
    that. As long as none is finite, they are replaced by points spread more and more
    widely, around the initial states and in a box around the origin.

    Args:
      evaluate: Log densities `[n]` of `[n, dim]`.
      first: The preferred points, `[n, dim]`, in the model's dtype.
      given: The user's initial states, `[m, dim]`, if there are any.
      rng: Generates the points that are tried.

    Returns:
      As many points as `first` has, with their cost.

    Raises:
      ValueError: If no point of finite density was found.
    """
    n, dim = first.shape
    position, log_prob = first[:0], np.empty(0, first.dtype)
    spent = 0
    for attempt in range(_MAX_ATTEMPTS):
        if attempt == 0:
            tried = first
        elif len(position):
            near = position[np.arange(n - len(position)) % len(position)]
            tried = near + 4.0**-attempt * rng.standard_normal(near.shape)
        else:
            tried = _dispersed(max(n, _MIN_DISPERSED), dim, given, attempt, rng)
        tried = tried.astype(first.dtype)
        value = evaluate(tried)
        spent += len(tried)
        finite = np.isfinite(value) & np.isfinite(tried).all(axis=-1)
        position = np.concatenate([position, tried[finite]])
        log_prob = np.concatenate([log_prob, value[finite]])
        if len(position) >= n:
            break
    if not len(position):
        raise ValueError(
            f"the log density is not finite at `initial_state`, nor at any of "
            f"{spent} points spread around it and the origin; give an "
            "`initial_state` of positive density, or check the model and its data."
        )
    rows = np.arange(n) % len(position)
    return Starts(position[rows], log_prob[rows], spent)


def _dispersed(
    n: int,
    dim: int,
    given: np.ndarray | None,
    attempt: int,
    rng: np.random.Generator,
) -> np.ndarray:
    scale = _DISPERSED_SCALES[(attempt - 1) // 2]
    # Stan and windowed_adaptive_nuts draw their starts from such a box, too.
    if given is None or attempt % 2 == 0:
        return scale * rng.uniform(-2, 2, (n, dim))
    centre = given[np.arange(n) % len(given)]
    return centre + scale * rng.standard_normal(centre.shape)
