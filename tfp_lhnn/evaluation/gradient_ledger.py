"""The ledger of true gradients: none is evaluated twice or thrown away."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfp_lhnn.evaluation.target import BLOCK, CompiledTarget
from tfp_lhnn.evaluation.training_data import TrainingData

__all__ = ["EvaluatedPoints", "GradientLedger"]


class EvaluatedPoints(NamedTuple):
    """Points at which the target was evaluated, `n` of them.

    Attributes:
        position: `[n, dim]`.
        log_prob: `[n]`.
        gradient: of the log density, `[n, dim]`.
        trajectory: points of one trajectory have the same number, `[n]` int.
    """

    position: np.ndarray
    log_prob: np.ndarray
    gradient: np.ndarray
    trajectory: np.ndarray

    @property
    def is_finite(self) -> np.ndarray:
        """Whether density and gradient are finite, `[n]` bool."""
        return np.isfinite(self.log_prob) & np.all(np.isfinite(self.gradient), axis=-1)


class GradientLedger:
    """All points evaluated so far, and what is left of the budget.

    Args:
        target: the target to evaluate.
        budget: the largest number of gradients to evaluate.
        num_densities: densities without a gradient that were evaluated before.

    Attributes:
        target: the target to evaluate.
        budget: the largest number of gradients to evaluate.
    """

    def __init__(
        self, target: CompiledTarget, budget: int, num_densities: int = 0
    ) -> None:
        self.target = target
        self.budget = budget
        self._num_densities = num_densities
        self._entries: list[EvaluatedPoints] = []
        self._num_trajectories = 0

    @property
    def num_gradients(self) -> int:
        """Gradients evaluated so far."""
        return sum(len(points.log_prob) for points in self._entries)

    @property
    def num_evaluations(self) -> int:
        """Densities evaluated so far, those with a gradient included."""
        return self._num_densities + self.num_gradients

    def count_densities(self, number: int) -> None:
        """Counts densities that were evaluated without a gradient."""
        self._num_densities += number

    @property
    def left(self) -> int:
        """Gradients that are left of the budget."""
        return self.budget - self.num_gradients

    @property
    def points(self) -> EvaluatedPoints:
        """All points so far, also those that are not finite."""
        return EvaluatedPoints(
            *(np.concatenate(x) for x in zip(*self._entries, strict=True))
        )

    @property
    def log_prob(self) -> np.ndarray:
        """Log densities at all points so far, `[n]`, without a copy of the rest."""
        return np.concatenate([points.log_prob for points in self._entries])

    def add(self, points: EvaluatedPoints) -> None:
        """Enters points that were evaluated just now.

        Their trajectories are others than those of all points before, whatever their
        numbers.
        """
        self._entries.append(
            points._replace(trajectory=points.trajectory + self._num_trajectories)
        )
        self._num_trajectories += int(points.trajectory.max()) + 1

    def evaluate_chains(self, position: np.ndarray) -> EvaluatedPoints:
        """Evaluates one point of each chain, in one call.

        Args:
            position: `[chains, dim]`.
        """
        return self._enter(position, *self.target.evaluate(position))

    def evaluate(self, position: np.ndarray) -> EvaluatedPoints:
        """Evaluates independent points, block by block.

        Args:
            position: `[n, dim]`, where `n` is a multiple of `BLOCK`.
        """
        position = position.astype(self.target.dtype.as_numpy_dtype)
        blocks = [
            self.target.evaluate(block)
            for block in np.split(position, len(position) // BLOCK)
        ]
        log_prob, gradient = (np.concatenate(x) for x in zip(*blocks, strict=True))
        return self._enter(position, log_prob, gradient)

    def _enter(
        self, position: np.ndarray, log_prob: np.ndarray, gradient: np.ndarray
    ) -> EvaluatedPoints:
        """Enters points of which each is a trajectory of its own."""
        number = np.arange(len(position))
        points = EvaluatedPoints(position, log_prob, gradient, number)
        self.add(points)
        return points

    def data(self, highest: float = np.inf) -> TrainingData:
        """What is finite, to learn from.

        Args:
            highest: potential up to which points count.
        """
        points = self.points
        # What is not finite is counted among what was dropped.
        rows = ~(-points.log_prob > highest)
        position, log_prob, gradient, trajectory = (x[rows] for x in points)
        dtype = self.target.dtype.as_numpy_dtype
        return TrainingData.from_gradients(
            position.astype(dtype),
            gradient.astype(dtype),
            log_prob.astype(dtype),
            seed=0,
            trajectory=trajectory,
        )
