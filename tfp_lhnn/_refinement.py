"""How good a network is, and where a true gradient would teach it most."""

from typing import NamedTuple

import numpy as np

__all__ = ["Quality", "assess", "choose_points"]

# Potentials up to this quantile of those that `π_θ` visits are the target's business;
# what a tempered chain meets above them is not.
_RELEVANT = 0.98


class Quality(NamedTuple):
    """How well the network does where it goes by itself.

    Attributes:
        energy_error: standard deviation of `U − U_θ` under the target, from fresh
            points, in nats. (Where the network's density is too large, however much
            so, proposals are lost but nothing else.)
        acceptance: of delayed acceptance with independent proposals from `π_θ`.
        tail_acceptance: of such proposals from points elsewhere that the target gives
            as much density as to those of `π_θ`; 1 if there are none.
    """

    energy_error: float
    acceptance: float
    tail_acceptance: float


def assess(
    residual: np.ndarray,
    potential: np.ndarray,
    elsewhere_residual: np.ndarray,
    elsewhere_potential: np.ndarray,
) -> Quality:
    """Quality from errors of the network at fresh points.

    Under the target a draw of `π_θ` has weight `w = e^{−residual}`, so that a proposal
    is accepted with probability `E_π E_θ min(1, w'/w) = Σ_ij min(w_i, w_j) / (n Σ w)`.

    That says nothing about where `π_θ` hardly goes. A tempered chain goes a little
    farther, true trajectories where they please; where the target has density there and
    the network does not know, a chain would stick, and draws from `π_θ` would miss it.

    Args:
        residual: `U − U_θ` at independent draws of `π_θ`, `[n]`.
        potential: `U` there, `[n]`.
        elsewhere_residual: `U − U_θ` at other points, `[m]`.
        elsewhere_potential: `U` there, `[m]`.
    """
    n = len(residual)
    finite = np.isfinite(residual)
    if not np.any(finite):
        return Quality(np.inf, 0.0, 0.0)
    # Where the target has no density the weight is zero.
    low = np.min(residual[finite])
    weight = np.where(finite, np.exp(low - residual), 0.0)
    share = weight[finite] / np.sum(weight)
    centred = residual[finite] - np.sum(share * residual[finite])
    energy_error = float(np.sqrt(np.sum(share * centred**2)))
    weight = np.sort(weight)
    # Sorted, min(w_i, w_j) is the earlier of the two.
    pairs = np.sum(weight * (2 * (n - np.arange(n)) - 1))
    counts = np.isfinite(elsewhere_residual)
    counts &= elsewhere_potential <= np.quantile(potential[finite], _RELEVANT)
    tail = 1.0
    if np.any(counts):
        log_ratio = elsewhere_residual[counts, np.newaxis] - residual[finite]
        tail = float(np.mean(np.exp(np.minimum(log_ratio, 0.0))) * np.mean(finite))
    return Quality(energy_error, float(pairs / (n * np.sum(weight))), tail)


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
