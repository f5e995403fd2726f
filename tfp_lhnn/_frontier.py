"""How far out points are, and which of them are the farthest."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["Yardstick", "frontier"]


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
        return np.max(np.abs(self._standardised(z)), axis=-1)

    def outward(self, z: np.ndarray) -> np.ndarray:
        """Unit vectors along that coordinate, away from the centre, `[n, dim]`."""
        standardised = self._standardised(z)
        axis = np.argmax(np.abs(standardised), axis=-1)[:, np.newaxis]
        sign = np.sign(np.take_along_axis(standardised, axis, axis=-1))
        vectors = np.zeros_like(standardised)
        np.put_along_axis(vectors, axis, sign, axis=-1)
        return vectors

    def _standardised(self, z: np.ndarray) -> np.ndarray:
        return (z - self.centre) / self.scale


def frontier(
    distance: np.ndarray, is_eligible: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The eligible ones among some points, the farthest first.

    What lies beyond them the network may know nothing of, and its own chain is the last
    to find out.

    Args:
        distance: how far out the points are, `[n]`.
        is_eligible: `[n]` bool.

    Returns:
        Their indices and distances, `[k]` each.
    """
    eligible = np.flatnonzero(is_eligible)
    order = eligible[np.argsort(-distance[eligible])]
    return order, distance[order]
