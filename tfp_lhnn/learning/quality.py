"""How good a network is, from points that it has not learned from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfp_lhnn.learning.fit_config import FitConfig

__all__ = [
    "Quality",
    "acceptance_from",
    "assess",
    "has_escaped",
    "highest_potential",
]

# The network must be right up to this quantile of the target's potential and a margin,
# in nats, above it. About e⁻² · 2% of the target's mass lies higher. An error there
# stops a chain at most once in 400 draws.
_RELEVANT = 0.98
_MARGIN = 2.0

# What tempered proposals must be accepted with, where the target has density: fewer
# mean that the network's density stops short of the target's tails.
_GOOD_TAIL_ACCEPTANCE = 0.9
# Errors that no network can learn lose as many proposals elsewhere as near by. What
# loses a larger part elsewhere is a tail that is missed.
_EVEN_TAIL_SHARE = 0.95

# Where the network thinks the target so many nats too high that its chain will not go,
# a true trajectory has escaped it. So few may be chance; more are a tail, or a mode.
_ESCAPE = 2.0
_FEW_ESCAPED = 0.005


class Quality(NamedTuple):
    """How well a network does at fresh points.

    Attributes:
        acceptance: of delayed acceptance, by the chains on the target.
        energy_error: standard deviation of `U − U_θ` where these proposals were
            accepted, in nats.
        tail_acceptance: probability that a chain leaves points elsewhere that the
            target gives as much density as to the chains' states; 1 if there are none.
        escaped: share of those points elsewhere that the target wants and the network
            shuns.
        is_open: whether true trajectories were still on their way out of a heavy tail
            when they were stopped, or diverged, or nobody has looked.
    """

    acceptance: float
    energy_error: float
    tail_acceptance: float
    escaped: float
    is_open: bool

    def is_good(self, config: FitConfig) -> bool:
        """Whether there is nothing to be mended at these points."""
        return (
            self.acceptance >= config.good_acceptance
            and self.tail_acceptance >= _GOOD_TAIL_ACCEPTANCE
            and self._misses_nothing(config)
        )

    def is_even(self, config: FitConfig) -> bool:
        """Whether errors are small, and elsewhere no larger than where chains are."""
        return (
            self.acceptance >= config.even_acceptance
            and self.tail_acceptance >= _EVEN_TAIL_SHARE * self.acceptance
            and self._misses_nothing(config)
        )

    def _misses_nothing(self, config: FitConfig) -> bool:
        return (
            self.energy_error <= config.good_energy_error
            and self.escaped <= _FEW_ESCAPED
            and not self.is_open
        )


def highest_potential(potential: np.ndarray) -> float:
    """Up to where the target's potential matters, from that at its draws, `[n]`."""
    return float(np.quantile(potential, _RELEVANT)) + _MARGIN


def has_escaped(
    residual: np.ndarray, potential: np.ndarray, typical: float, highest: float
) -> np.ndarray:
    """Which points the target wants and the network shuns, `[n]` bool.

    Args:
        residual: `U − U_θ`, `[n]`.
        potential: `U`, `[n]`.
        typical: `U − U_θ` where chains are.
        highest: potential up to which it matters.
    """
    return (potential <= highest) & (residual < typical - _ESCAPE)


def acceptance_from(start_residual: np.ndarray, residual: np.ndarray) -> float:
    """Probability that delayed acceptance leaves given points for typical ones.

    Args:
        start_residual: `U − U_θ` at the points, `[m]`, all finite.
        residual: the same where chains are, `[n]`.
    """
    if not len(residual):
        return 0.0
    log_ratio = start_residual[:, np.newaxis] - residual
    return float(np.mean(np.exp(np.minimum(log_ratio, 0.0))))


def assess(
    acceptance: float,
    fresh_residual: np.ndarray,
    state_potential: np.ndarray,
    elsewhere_residual: np.ndarray,
    elsewhere_potential: np.ndarray,
    *,
    is_open: bool,
) -> Quality:
    """Quality from errors of the network at fresh points.

    Acceptance says nothing about where chains hardly go. A tempered chain goes a little
    farther, true trajectories where they please; where the target has density there and
    the network does not know, a chain would stick, or never come.

    Args:
        acceptance: of the round's proposals.
        fresh_residual: `U − U_θ` where they were accepted, `[n]`.
        state_potential: `U` where the chains have been, `[k]`.
        elsewhere_residual: `U − U_θ` at other points, `[m]`.
        elsewhere_potential: `U` there, `[m]`.
        is_open: whether a tail leads farther out.
    """
    if len(fresh_residual) < 2:
        return Quality(acceptance, np.inf, 0.0, 1.0, True)
    highest = highest_potential(state_potential)
    counts = np.isfinite(elsewhere_residual) & (elsewhere_potential <= highest)
    tail, escaped = 1.0, 0.0
    if np.any(counts):
        typical = float(np.median(fresh_residual))
        away = has_escaped(elsewhere_residual, elsewhere_potential, typical, highest)
        escaped = float(np.mean(away))
        tail = acceptance_from(elsewhere_residual[counts], fresh_residual)
    energy_error = float(np.std(fresh_residual))
    return Quality(acceptance, energy_error, tail, escaped, is_open)
