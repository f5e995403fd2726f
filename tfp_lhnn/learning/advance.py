"""Exact transitions on the target while the network is still young.

Every chain makes a transition on the network, which is frozen for the round. Value and
gradient of the target are evaluated at the proposal, which is then accepted or not by
delayed acceptance. So chains stay near the posterior, however wrong the network is, and
what is evaluated lies within one transition of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfp_lhnn.evaluation.gradient_ledger import GradientLedger
from tfp_lhnn.learning.fit_config import FitConfig
from tfp_lhnn.learning.pilot import ChainStates, Pilot
from tfp_lhnn.learning.surrogate import Surrogate
from tfp_lhnn.network.latent_hnn import LatentHNN

__all__ = ["Advance", "advance"]

# Transitions over which acceptance is called recent.
_RECENT = 4


class Advance(NamedTuple):
    """The transitions of a round, `n` of them, of all chains together.

    The network has not learned from any of the proposals.

    Attributes:
        position: proposals, `[n, dim]`.
        log_prob: of the target there, `[n]`.
        gradient: of that, `[n, dim]`.
        log_ratio: by which delayed acceptance decides, `[n]`.
        is_accepted: `[n]` bool.
        state: where the chain was after the transition, `[n, dim]`.
        state_log_prob: `[n]`.
        state_gradient: `[n, dim]`.
    """

    position: np.ndarray
    log_prob: np.ndarray
    gradient: np.ndarray
    log_ratio: np.ndarray
    is_accepted: np.ndarray
    state: np.ndarray
    state_log_prob: np.ndarray
    state_gradient: np.ndarray

    @property
    def acceptance(self) -> float:
        """Mean probability of acceptance."""
        return float(np.mean(np.exp(np.minimum(self.log_ratio, 0.0))))

    @property
    def states(self) -> ChainStates:
        """Where the chains were after the transitions, `n` of them."""
        return ChainStates(self.state, self.state_log_prob, self.state_gradient)

    def fresh_residual(self, network: LatentHNN) -> np.ndarray:
        """`U − U_θ` where proposals were accepted, `[k]`."""
        accepted = self.is_accepted
        learned = network.potential(self.position[accepted]).numpy()
        return -self.log_prob[accepted].astype(np.float64) - learned


def advance(
    surrogate: Surrogate,
    chains: ChainStates,
    pilot: Pilot,
    ledger: GradientLedger,
    number: int,
    num_transitions: int,
    config: FitConfig,
    generator: np.random.Generator,
) -> tuple[ChainStates, Advance]:
    """Moves the chains on by delayed acceptance; each proposal enters the ledger.

    While few proposals are accepted, every second one is followed by a true trajectory.

    Args:
        surrogate: the network, which stays as it is.
        chains: where they are.
        pilot: that runs true trajectories.
        ledger: of all true gradients.
        number: gradients to spend.
        num_transitions: on the network, for each proposal.
        config: of the fit.
        generator: of all that is random.

    Returns:
        Where the chains are now, and what happened.
    """
    step = surrogate.adapted_step(chains.position, generator)
    end = min(ledger.num_gradients + number, ledger.budget)
    num_chains = len(chains.position)
    records: list[Advance] = []
    while ledger.num_gradients + num_chains <= end:
        proposal, gain = surrogate.propose(
            chains.position, step, num_transitions, generator
        )
        points = ledger.evaluate_chains(proposal)
        # Values of the same density are subtracted first: they may be large, but their
        # differences are not.
        log_ratio = (points.log_prob - chains.log_prob).astype(np.float64) - gain
        is_possible = points.is_finite & np.isfinite(log_ratio)
        log_ratio = np.where(is_possible, log_ratio, -np.inf)
        is_accepted = np.log(generator.uniform(size=num_chains)) < log_ratio
        chains = chains.where(is_accepted, ChainStates(*points[:3]))
        records.append(Advance(*points[:3], log_ratio, is_accepted, *chains))
        recent = np.mean([r.acceptance for r in records[-_RECENT:]])
        if (
            recent < config.low_acceptance
            and len(records) % 2 == 0
            and ledger.num_gradients + pilot.cost <= end
        ):
            chains, _, _ = pilot.run_from(chains, exact=True)
    return chains, Advance(*(np.concatenate(x) for x in zip(*records, strict=True)))
