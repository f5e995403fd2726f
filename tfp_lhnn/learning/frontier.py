"""How far out points are, and from which of them to go on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["Yardstick", "frontier"]

# What counts as far out, if the farthest are at a distance of one.
_OUTER = 0.7


class Yardstick(NamedTuple):
    """What "far" means: standard deviations of some draws in any one coordinate.

    Attributes:
        centre: mean of the draws, whitened, `[dim]`.
        scale: their standard deviations, `[dim]`.
    """

    centre: np.ndarray
    scale: np.ndarray

    @classmethod
    def of_draws(cls, draws: np.ndarray) -> Yardstick:
        """From whitened draws, `[n, dim]`."""
        return cls(np.mean(draws, axis=0), np.maximum(np.std(draws, axis=0), 1e-12))

    def distance(self, z: np.ndarray) -> np.ndarray:
        """Of whitened points, `[n, dim]`, in the coordinate where it is largest."""
        return np.max(np.abs(self.standardised(z)), axis=-1)

    def outward(self, z: np.ndarray) -> np.ndarray:
        """Unit vectors along that coordinate, away from the centre, `[n, dim]`."""
        standardised = self.standardised(z)
        axis = np.argmax(np.abs(standardised), axis=-1)[:, np.newaxis]
        sign = np.sign(np.take_along_axis(standardised, axis, axis=-1))
        vectors = np.zeros_like(standardised)
        np.put_along_axis(vectors, axis, sign, axis=-1)
        return vectors

    def standardised(self, z: np.ndarray) -> np.ndarray:
        """Whitened points, `[n, dim]`, in standard deviations from the centre."""
        return (z - self.centre) / self.scale


def frontier(
    z: np.ndarray, distance: np.ndarray, number: int
) -> tuple[np.ndarray, float]:
    """Some of the farthest points, by turns the next farthest and the loneliest.

    What lies beyond them the network may know nothing of, and its own chain is the last
    to find out. The farthest of all are neighbours more often than not, of one
    trajectory or on one of a ridge's two branches; the others would fall behind for
    good.

    Args:
        z: points, `[n, dim]`.
        distance: how far out they are, `[n]`.
        number: of points wanted.

    Returns:
        Indices, `[k]`: all if there are no more than `number`; and how far out the
        farthest `number` are on average, zero if there are no points.
    """
    order = np.argsort(-distance)
    reach = float(np.mean(distance[order[:number]])) if len(order) else 0.0
    if len(order) <= number:
        return order, reach
    outer = order[distance[order] >= _OUTER * reach]
    lonely = outer[_spread(z[outer], number)]
    by_turns = np.stack([order[: len(lonely)], lonely], axis=-1).reshape(-1)
    _, first = np.unique(by_turns, return_index=True)
    return by_turns[np.sort(first)][:number], reach


def _spread(z: np.ndarray, number: int) -> np.ndarray:
    """Indices of the first point and, one by one, the farthest from those before."""
    chosen = [0]
    nearest = np.full(len(z), np.inf)
    while len(chosen) < min(number, len(z)):
        square = np.sum((z - z[chosen[-1]]) ** 2, axis=-1)
        nearest = np.minimum(nearest, square)
        chosen.append(int(np.argmax(nearest)))
    return np.asarray(chosen)
