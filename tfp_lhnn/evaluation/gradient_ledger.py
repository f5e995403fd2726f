"""The true gradients that a fit has paid for: none is bought twice or thrown away."""

from __future__ import annotations

import numpy as np

from tfp_lhnn.evaluation.target import BLOCK, CompiledTarget
from tfp_lhnn.evaluation.training_data import TrainingData
from tfp_lhnn.learning.pilot import PilotPoints

__all__ = ["Evaluated"]


class Evaluated:
    """All points so far, and what is left of the budget.

    Args:
        target: the compiled target.
        budget: gradients that may be evaluated.
    """

    def __init__(self, target: CompiledTarget, budget: int) -> None:
        self._target = target
        self._budget = budget
        self._points: list[PilotPoints] = []

    @property
    def num_gradients(self) -> int:
        """Evaluated so far."""
        return sum(len(points.log_prob) for points in self._points)

    @property
    def left(self) -> int:
        """Of the budget."""
        return self._budget - self.num_gradients

    def add(self, points: PilotPoints) -> None:
        """Points that the pilot evaluated."""
        self._points.append(points)

    def evaluate(self, position: np.ndarray) -> PilotPoints:
        """True gradients at independent points, in blocks.

        Args:
            position: `[n, dim]`, whole blocks of them.
        """
        position = position.astype(self._target.dtype.as_numpy_dtype)
        blocks = [
            self._target.evaluate(block)
            for block in np.split(position, len(position) // BLOCK)
        ]
        log_prob, gradient = (np.concatenate(x) for x in zip(*blocks, strict=True))
        # Each is a trajectory of its own.
        first = 1 + max(int(points.chain.max()) for points in self._points)
        chain = first + np.arange(len(position))
        points = PilotPoints(position, log_prob, gradient, chain)
        self.add(points)
        return points

    def data(self) -> TrainingData:
        """Everything, to learn from."""
        position, log_prob, gradient, chain = (
            np.concatenate(x) for x in zip(*self._points, strict=True)
        )
        dtype = self._target.dtype.as_numpy_dtype
        return TrainingData.from_gradients(
            position.astype(dtype),
            gradient.astype(dtype),
            log_prob.astype(dtype),
            seed=0,
            trajectory=chain,
        )
