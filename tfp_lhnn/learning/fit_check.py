"""A check of a network against the target: where it goes, and where it does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tfp_lhnn.evaluation.gradient_ledger import GradientLedger
from tfp_lhnn.evaluation.target import BLOCK
from tfp_lhnn.learning.pilot import ChainStates, Pilot
from tfp_lhnn.learning.refinement import Quality, assess
from tfp_lhnn.learning.surrogate_chain import SurrogateRun
from tfp_lhnn.learning.tail_search import Compared, Mass, explore
from tfp_lhnn.network.latent_hnn import LatentHNN

__all__ = ["Check", "check"]


class Check(NamedTuple):
    """Fresh points, and how the network does there.

    Attributes:
        position: `[n, dim]`.
        num_own: the first so many of them are random draws of the network's chain.
        potential: `U` there, `[n]`.
        residual: `U − U_θ` there, `[n]`.
        quality: what follows from it.
    """

    position: np.ndarray
    num_own: int
    potential: np.ndarray
    residual: np.ndarray
    quality: Quality

    @property
    def mass(self) -> Mass:
        """Where the network's draws say that the target's mass is."""
        own = slice(self.num_own)
        return Mass.of_draws(self.position[own], self.residual[own])


def check(
    network: LatentHNN,
    run: SurrogateRun,
    hot: SurrogateRun,
    chains: ChainStates,
    pilot: Pilot,
    ledger: GradientLedger,
    number: int,
    expedition_gradients: int,
    generator: np.random.Generator,
    earlier: Sequence[Mass] = (),
) -> tuple[Check, ChainStates]:
    """Compares network and target.

    At random points of the network's chain and of its tempered chain; and along true
    trajectories, some from the frontier of these points, others, hot, that go on where
    the last ones were and owe nothing to the network. The next network learns from them all.

    Args:
        network: what to check.
        run: its chain.
        hot: its tempered chain.
        chains: where the last true trajectories came to.
        pilot: that runs the next ones.
        ledger: of all true gradients.
        number: of points of the two chains, whole blocks.
        expedition_gradients: that the trajectories may cost, or four of each of the
            pilot's chains if that is more.
        generator: of the choice.
        earlier: where the last few checks saw the target's mass: it limits how far
            out trajectories go.

    Returns:
        What was found, and where the true trajectories came to.
    """
    num_hot = number // 3 // BLOCK * BLOCK
    num_own = number - num_hot
    draws = np.concatenate(
        [_choice(run, num_own, generator), _choice(hot, num_hot, generator)]
    )
    points = ledger.evaluate(network.gaussian_base.unwhiten(draws))
    compared, is_open, chains = explore(
        network,
        draws[:num_own],
        Compared.with_network(network, points),
        earlier,
        chains,
        pilot,
        ledger,
        expedition_gradients,
        generator,
    )
    residual, potential = compared.residual, -compared.log_prob.astype(np.float64)
    own, elsewhere = slice(num_own), slice(num_own, None)
    quality = assess(
        residual[own], potential[own], residual[elsewhere], potential[elsewhere]
    )
    quality = quality._replace(is_open=is_open)
    result = Check(compared.position, num_own, potential, residual, quality)
    return result, chains


def _choice(
    run: SurrogateRun, number: int, generator: np.random.Generator
) -> np.ndarray:
    draws = run.position.reshape(-1, run.position.shape[-1])
    return draws[generator.choice(len(draws), number, replace=False)]
