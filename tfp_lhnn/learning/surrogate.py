"""What a round of `fit` makes of all points so far: a network, and its chains."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tfp_lhnn.evaluation.training_data import TrainingData
from tfp_lhnn.learning.fit_config import FitConfig
from tfp_lhnn.learning.gaussian_chain import gaussian_run
from tfp_lhnn.learning.stiffness import stable_step
from tfp_lhnn.learning.surrogate_chain import (
    NUM_DRAWS,
    SurrogateRun,
    adapted_step,
    run_surrogate_chain,
    surrogate_proposals,
)
from tfp_lhnn.network.gaussian_base import GaussianBase, near_points
from tfp_lhnn.network.latent_hnn import LatentHNN
from tfp_lhnn.network.training import TrainingHistory, train
from tfp_lhnn.support.progress import ProgressReporter

__all__ = ["Surrogate", "new_seed", "temperature", "train_surrogate"]

# The Gaussian base is worth a round alone with so many points per dimension.
_POINTS_FOR_A_BASE = 2


class Surrogate(NamedTuple):
    """A trained network.

    Attributes:
        network: the network.
        base: its base, in NumPy.
        history: of its training.
        data: what it was trained on.
        largest_step: that leapfrog can take where it is at its steepest, whitened.
    """

    network: LatentHNN
    base: GaussianBase
    history: TrainingHistory
    data: TrainingData
    largest_step: float

    @property
    def is_gaussian(self) -> bool:
        """Whether the base is all there is."""
        return self.history.selected == "base"

    def adapted_step(
        self, position: np.ndarray, generator: np.random.Generator
    ) -> float:
        """The step size for transitions from given points, `[chains, dim]`."""
        if self.is_gaussian:
            return self.largest_step
        return adapted_step(
            self.network,
            self.base.whiten(position),
            new_seed(generator),
            largest_step=self.largest_step,
        )

    def propose(
        self,
        position: np.ndarray,
        step_size: float,
        num_transitions: int,
        generator: np.random.Generator,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Transitions on the network that leave its density as it is.

        Args:
            position: `[chains, dim]`.
            step_size: whitened.
            num_transitions: for each chain; a Gaussian needs none to forget its start.
            generator: of the transitions.

        Returns:
            The points reached, `[chains, dim]`, and by how much the network's log
            density is larger there, `[chains]`.
        """
        z = self.base.whiten(position)
        if self.is_gaussian:
            new = generator.standard_normal(z.shape)
            gain = 0.5 * np.sum(z**2 - new**2, axis=-1)
        else:
            new, gain = surrogate_proposals(
                self.network, z, step_size, num_transitions, new_seed(generator)
            )
        return self.base.unwhiten(new).astype(position.dtype), gain

    def chain(
        self,
        starts: np.ndarray,
        generator: np.random.Generator,
        temperature: float = 1.0,
    ) -> SurrogateRun:
        """Draws of the learned density, tempered or not, from `[chains, dim]`."""
        if self.is_gaussian:
            return gaussian_run(
                (NUM_DRAWS, *starts.shape),
                generator,
                largest_step=self.largest_step,
                temperature=temperature,
            )
        return run_surrogate_chain(
            self.network,
            self.base.whiten(starts),
            new_seed(generator),
            largest_step=self.largest_step,
            temperature=temperature,
        )


def train_surrogate(
    data: TrainingData,
    hidden_units: tuple[int, ...],
    generator: np.random.Generator,
    reporter: ProgressReporter,
    name: str,
    config: FitConfig,
    *,
    try_base: bool,
) -> Surrogate:
    """A network of all points, or its base alone if that promises enough.

    Args:
        data: all points.
        hidden_units: of the network.
        generator: of seeds.
        reporter: of progress.
        name: of the phase.
        config: of the fit.
        try_base: whether the base alone may do.
    """
    network = LatentHNN(data.dim, hidden_units, seed=1)
    history = _fit_base_alone(network, data, generator, config) if try_base else None
    if history is None:
        num_steps = _training_steps(len(data), config)
        with reporter.phase(name, num_steps, "steps") as phase:
            phase.update(0, gradients=data.num_gradients)
            history = train(
                network,
                data,
                seed=new_seed(generator),
                num_steps=num_steps,
                progress=phase.update,
            )
    near = near_points(-data.log_prob, data.dim)
    largest_step = stable_step(network, data.position[near], generator)
    return Surrogate(network, network.gaussian_base, history, data, largest_step)


def _fit_base_alone(
    network: LatentHNN,
    data: TrainingData,
    generator: np.random.Generator,
    config: FitConfig,
) -> TrainingHistory | None:
    """The base of typical points, if it fits them."""
    # Where a Gaussian with such a minimum would have its draws. What lies farther out
    # teaches a network its tails, but a quadratic nothing.
    half = 0.5 * data.dim
    typical = -data.log_prob <= np.min(-data.log_prob) + half + 4.0 * np.sqrt(half)
    if np.sum(typical) < _POINTS_FOR_A_BASE * data.dim:
        return None
    history = train(
        network,
        TrainingData.from_gradients(
            data.position[typical],
            data.momentum_rate[typical],
            data.log_prob[typical],
            seed=0,
            trajectory=data.trajectory[typical],
        ),
        seed=new_seed(generator),
        sufficient_base_error=math.inf,
    )
    return history if history.energy_error <= config.promising_base_error else None


def _training_steps(num_points: int, config: FitConfig) -> int:
    """Enough to see every point some sixty times, and of few sizes: each compiles."""
    doublings = math.ceil(math.log2(num_points / config.num_points))
    return config.num_steps * 2 ** max(0, doublings)


def temperature(dim: int) -> float:
    """How hot a chain may be that shall still meet what the target's tails are."""
    # The potential is about dim/2 · T then, and √(dim/2) wide.
    return 1.0 + min(2.0, 2.0 / np.sqrt(dim))


def new_seed(generator: np.random.Generator) -> np.ndarray:
    """Of a compiled function, `[2]` int."""
    return generator.integers(2**31, size=2)
