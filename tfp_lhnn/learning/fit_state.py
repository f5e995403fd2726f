"""What `fit` knows between its steps."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from tfp_lhnn.evaluation.gradient_ledger import GradientLedger
from tfp_lhnn.learning.advance import Advance
from tfp_lhnn.learning.fit_config import FitConfig
from tfp_lhnn.learning.pilot import ChainStates, Pilot
from tfp_lhnn.learning.quality import Quality, acceptance_from, highest_potential
from tfp_lhnn.learning.round import Round
from tfp_lhnn.learning.surrogate import Surrogate
from tfp_lhnn.learning.surrogate_chain import SurrogateRun
from tfp_lhnn.learning.tail_search import TailSearch
from tfp_lhnn.support.progress import ProgressReporter

__all__ = ["FitState", "Judged"]

# Networks of two rounds agree if their potentials differ by more than so many nats at
# no more than so small a share of the draws. Half a percent of a tail that is missed
# can make up a tenth of a standard deviation.
_LARGE_CHANGE = 1.0
_FEW = 0.005

# Of two networks that do about as well, the later one was trained on more points.
_ALIKE = 0.98


class Judged(NamedTuple):
    """A network, and what a round showed of it at points it has not learned from.

    Attributes:
        surrogate: the network.
        num_transitions: on the network, for each proposal.
        quality: what follows from the round.
        residual: `U − U_θ` where proposals were accepted, `[n]`.
        potential: `U` there, `[n]`.
        run: draws of the network's own chain; `None` if nobody asked.
    """

    surrogate: Surrogate
    num_transitions: int
    quality: Quality
    residual: np.ndarray
    potential: np.ndarray
    run: SurrogateRun | None

    def agrees_with(self, last: Judged) -> bool:
        """Whether the network before would have said the same of this one's draws.

        As long as every round finds more of a tail, it would not.
        """
        if self.run is None:
            return False
        network, base = self.surrogate.network, self.surrogate.base
        draws = self.run.position.reshape(-1, network.dim)
        position = base.unwhiten(draws).astype(np.float32)
        change = last.surrogate.network.potential(position)
        change = change - network.potential(position)
        size = np.abs(change - np.median(change))
        return bool(np.mean(size > _LARGE_CHANGE) <= _FEW)

    def is_settled_since(self, last: Judged, config: FitConfig) -> bool:
        """Whether what is wrong with the base is nothing that more points would mend.

        A network of all of them was no better than the base, the round before had none
        either, and the base gained little since.
        """
        return (
            self.surrogate.is_gaussian
            and self.surrogate.history.num_steps > 0
            and last.surrogate.is_gaussian
            and self.quality.is_even(config)
            and self.quality.acceptance - last.quality.acceptance <= config.small_gain
        )

    def does_as_well_as(
        self, earlier: Judged, advanced: Advance, search: TailSearch | None
    ) -> bool:
        """Whether an earlier network is no better at this one's points.

        Each at its own would not do: as long as rounds find more of a tail, the later
        one is asked at more difficult points.
        """
        position, log_prob = advanced.position, advanced.log_prob
        if search is not None:
            position = np.concatenate([position, search.elsewhere.position])
            log_prob = np.concatenate([log_prob, search.elsewhere.log_prob])
        potential = -log_prob.astype(np.float64)
        highest = highest_potential(-advanced.state_log_prob.astype(np.float64))
        matters = np.isfinite(potential) & (potential <= highest)
        if not np.any(matters):
            return False

        def merit(judged: Judged) -> float:
            learned = judged.surrogate.network.potential(position[matters]).numpy()
            tail = acceptance_from(potential[matters] - learned, judged.residual)
            return judged.quality.acceptance * tail

        return merit(self) >= _ALIKE * merit(earlier)


@dataclasses.dataclass(frozen=True)
class FitState:
    """All that a fit goes on from; each of its steps returns the next one.

    Attributes:
        ledger: of all true gradients.
        generator: of all that is random.
        reporter: of progress.
        hidden_units: of the networks.
        pilot: that runs true trajectories.
        chains: states of the target's chains.
        explorers: where the search along tails came to.
        rounds: the history.
        surrogate: the network of this round, from `learn`.
        num_transitions: on the network, for each proposal.
        advanced: the transitions of this round, from `advance`.
        search: what the search along tails found in this round, if there was one.
        visited: states of the last rounds' chains.
        last: the network that was judged last.
        best: the best one so far.
        good_rounds: how many were good in a row.
    """

    ledger: GradientLedger
    generator: np.random.Generator
    reporter: ProgressReporter
    hidden_units: tuple[int, ...]
    pilot: Pilot
    chains: ChainStates
    explorers: ChainStates
    rounds: tuple[Round, ...] = ()
    surrogate: Surrogate | None = None
    num_transitions: int = 1
    advanced: Advance | None = None
    search: TailSearch | None = None
    visited: tuple[np.ndarray, ...] = ()
    last: Judged | None = None
    best: Judged | None = None
    good_rounds: int = 0
