"""How good a network is, and where a true gradient would teach it most."""

from typing import NamedTuple

import numpy as np

__all__ = [
    "Quality",
    "acceptance_from",
    "assess",
    "choose_points",
    "has_escaped",
    "highest_potential",
    "potential_quantile",
    "proposal_acceptance",
    "target_shares",
]

# The network must be right up to this quantile of the target's potential and a margin,
# in nats, above it. About e⁻² · 2% of the target's mass lies higher. An error there
# stops a chain at most once in 400 draws.
_RELEVANT = 0.98
_MARGIN = 2.0


# Refinement stops here: of delayed acceptance's proposals one in twenty is lost.
_GOOD_ACCEPTANCE = 0.95
# Errors of a Gaussian size have a tenth of a nat at that acceptance; much more means
# that a few points, in some corner, are far off.
_GOOD_ENERGY_ERROR = 0.25
# What tempered proposals must be accepted with, where the target has density: fewer
# mean that the network's density stops short of the target's tails.
_GOOD_TAIL_ACCEPTANCE = 0.9

# Errors that no network can learn, such as a rough potential's ripples, lose as many
# proposals elsewhere as near by, and at the largest energy error allowed leave about
# 0.86 of them. What leaves fewer than this, or loses a larger part elsewhere, is
# something else: a tail that is missed, for one.
_EVEN_ACCEPTANCE = 0.8
_EVEN_TAIL_SHARE = 0.95

# Where the network thinks the target so many nats too high that its chain will not go,
# a true trajectory has escaped it. So few may be chance; more are a tail, or a mode.
_ESCAPE = 2.0
_FEW_ESCAPED = 0.005


class Quality(NamedTuple):
    """How well the network does where it goes by itself.

    Attributes:
        energy_error: standard deviation of `U − U_θ` under the target, from fresh
            points, in nats. (Where the network's density is too large, however much
            so, proposals are lost but nothing else.)
        acceptance: of delayed acceptance with independent proposals from `π_θ`.
        tail_acceptance: of such proposals from points elsewhere that the target gives
            as much density as to those of `π_θ`; 1 if there are none.
        escaped: share of those points elsewhere that the target wants and `π_θ` shuns.
        is_open: whether true trajectories were still on their way out of a heavy tail
            when they were stopped, or diverged, so that nobody knows.
    """

    energy_error: float
    acceptance: float
    tail_acceptance: float
    escaped: float
    is_open: bool = False

    @property
    def is_good(self) -> bool:
        """Whether there is nothing to be mended at these points."""
        return (
            self.acceptance >= _GOOD_ACCEPTANCE
            and self.tail_acceptance >= _GOOD_TAIL_ACCEPTANCE
            and self._misses_nothing
        )

    @property
    def is_even(self) -> bool:
        """Whether errors are small, and elsewhere no larger than where `π_θ` goes."""
        return (
            self.acceptance >= _EVEN_ACCEPTANCE
            and self.tail_acceptance >= _EVEN_TAIL_SHARE * self.acceptance
            and self._misses_nothing
        )

    @property
    def _misses_nothing(self) -> bool:
        return (
            self.energy_error <= _GOOD_ENERGY_ERROR
            and self.escaped <= _FEW_ESCAPED
            and not self.is_open
        )


def target_shares(residual: np.ndarray) -> np.ndarray:
    """Share of the target that each of some draws of `π_θ` stands for, `[n]`.

    A draw has the weight `e^{−residual}`, and none where the target has no density.

    Args:
        residual: `U − U_θ`, `[n]`, at least one of them finite.
    """
    finite = np.isfinite(residual)
    weight = np.zeros(len(residual))
    weight[finite] = np.exp(np.min(residual[finite]) - residual[finite])
    return weight / np.sum(weight)


def highest_potential(potential: np.ndarray, residual: np.ndarray) -> float:
    """Up to where the target's potential matters, from draws of `π_θ`.

    Args:
        potential: `U`, `[n]`.
        residual: `U − U_θ`, `[n]`.
    """
    return potential_quantile(potential, residual, _RELEVANT) + _MARGIN


def potential_quantile(
    potential: np.ndarray, residual: np.ndarray, share: float
) -> float:
    """What a share of the target lies below, from draws of `π_θ`.

    Args:
        potential: `U`, `[n]`.
        residual: `U − U_θ`, `[n]`.
        share: of the target.

    Returns:
        The quantile; minus infinity if no residual is finite.
    """
    if not np.any(np.isfinite(residual)):
        return -np.inf
    order = np.argsort(potential)
    covered = np.cumsum(target_shares(residual)[order])
    return float(potential[order][np.searchsorted(covered, share)])


def has_escaped(
    residual: np.ndarray,
    potential: np.ndarray,
    own_residual: np.ndarray,
    highest: float,
) -> np.ndarray:
    """Which points the target wants and the network shuns, `[n]` bool.

    Args:
        residual: `U − U_θ`, `[n]`.
        potential: `U`, `[n]`.
        own_residual: `U − U_θ` at draws of `π_θ`, `[m]`.
        highest: potential up to which it matters.
    """
    finite = own_residual[np.isfinite(own_residual)]
    typical = np.median(finite) if len(finite) else -np.inf
    return (potential <= highest) & (residual < typical - _ESCAPE)


def assess(
    residual: np.ndarray,
    potential: np.ndarray,
    elsewhere_residual: np.ndarray,
    elsewhere_potential: np.ndarray,
) -> Quality:
    """Quality from errors of the network at fresh points.

    Acceptance says nothing about where `π_θ` hardly goes. A tempered chain goes a
    little farther, true trajectories where they please; where the target has density
    there and the network does not know, a chain would stick, and draws from `π_θ` would
    miss it.

    Args:
        residual: `U − U_θ` at independent draws of `π_θ`, `[n]`.
        potential: `U` there, `[n]`.
        elsewhere_residual: `U − U_θ` at other points, `[m]`.
        elsewhere_potential: `U` there, `[m]`.
    """
    finite = np.isfinite(residual)
    if not np.any(finite):
        return Quality(np.inf, 0.0, 0.0, 1.0)
    share = target_shares(residual)
    centred = residual[finite] - np.sum(share[finite] * residual[finite])
    energy_error = float(np.sqrt(np.sum(share[finite] * centred**2)))
    highest = highest_potential(potential, residual)
    counts = np.isfinite(elsewhere_residual) & (elsewhere_potential <= highest)
    tail, escaped = 1.0, 0.0
    if np.any(counts):
        away = has_escaped(elsewhere_residual, elsewhere_potential, residual, highest)
        escaped = float(np.mean(away))
        tail = acceptance_from(elsewhere_residual[counts], residual)
    return Quality(energy_error, proposal_acceptance(residual), tail, escaped)


def acceptance_from(start_residual: np.ndarray, residual: np.ndarray) -> float:
    """Probability that delayed acceptance leaves given points for draws of `π_θ`.

    Args:
        start_residual: `U − U_θ` at the points, `[m]`, all finite.
        residual: the same at independent draws of `π_θ`, `[n]`.
    """
    finite = np.isfinite(residual)
    if not np.any(finite):
        return 0.0
    log_ratio = start_residual[:, np.newaxis] - residual[finite]
    return float(np.mean(np.exp(np.minimum(log_ratio, 0.0))) * np.mean(finite))


def proposal_acceptance(residual: np.ndarray) -> float:
    """Probability that delayed acceptance takes a proposal of the network.

    Under the target a draw of `π_θ` has weight `w = e^{−residual}`, so that a proposal
    is accepted with probability `E_π E_θ min(1, w'/w) = Σ_ij min(w_i, w_j) / (n Σ w)`.

    Args:
        residual: `U − U_θ` at independent draws of `π_θ`, `[n]`.
    """
    if not np.any(np.isfinite(residual)):
        return 0.0
    n = len(residual)
    share = np.sort(target_shares(residual))
    # Sorted, min(w_i, w_j) is the earlier of the two.
    return float(np.sum(share * (2 * (n - np.arange(n)) - 1)) / n)


def choose_points(
    candidates: np.ndarray,
    known: np.ndarray,
    known_residual: np.ndarray,
    number: int,
    generator: np.random.Generator,
    num_neighbours: int = 8,
) -> np.ndarray:
    """Candidates where the energy error is probably large.

    The error of a candidate is foretold from its nearest neighbours among the points
    at which it is known, and grows with the distance from them.

    Args:
        candidates: in whitened coordinates, `[m, dim]`.
        known: points with a known error, alike, `[n, dim]`.
        known_residual: the error there, about its mean, `[n]`.
        number: how many to choose.
        generator: of the choice.
        num_neighbours: to foretell from.

    Returns:
        Indices into `candidates`, `[number]`, without repetition.
    """
    square = (
        np.sum(candidates**2, axis=-1)[:, np.newaxis]
        - 2.0 * candidates @ known.T
        + np.sum(known**2, axis=-1)
    )
    k = min(num_neighbours, len(known))
    nearest = np.argpartition(square, k - 1, axis=-1)[:, :k]
    distance = np.sqrt(
        np.maximum(np.min(np.take_along_axis(square, nearest, -1), axis=-1), 0.0)
    )
    size = np.abs(known_residual[nearest]).mean(axis=-1)
    score = size * (0.1 + distance) + 1e-12
    # Drawn by score rather than the largest scores: these lie side by side.
    keys = np.log(score) + generator.gumbel(size=len(score))
    return np.argsort(-keys)[:number]
