"""True trajectories from the edge of what a network knows: what lies beyond?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tfp_lhnn.evaluation.gradient_ledger import EvaluatedPoints, GradientLedger
from tfp_lhnn.learning.frontier import Yardstick, frontier
from tfp_lhnn.learning.pilot import LARGEST_STEP, ChainStates, Pace, Pilot
from tfp_lhnn.learning.quality import has_escaped, highest_potential
from tfp_lhnn.learning.stiffness import largest_frequencies
from tfp_lhnn.network.gaussian_base import GaussianBase
from tfp_lhnn.network.latent_hnn import LatentHNN

__all__ = ["Compared", "TailSearch", "search_tails"]

# Farther out, in standard deviations, than a Gaussian's farthest few draws: there, true
# trajectories go on as long as each gets so many times as far as the last. These and
# the first of all are pushed outwards by a momentum of so many standard deviations.
_HEAVY_TAIL = 5.0
_ADVANCE = 1.03
_PUSH = 3.0
# How far a tail may lead: as long as points in it are no less likely than all but so
# many of the target's draws. (Its lowest points are; most of its mass is not there.)
# In few dimensions that is not far: or as long as they have so much of the highest
# density.
_ORDINARY = 0.9
_FEW = 0.001
# And so many times as far as all but that little of the states of recent rounds, whose
# chains visit a tail about as often as they should.
_AHEAD = 3.0
_FEWEST_EXPEDITIONS = 4

# Steps of an expedition, times the frequency where it starts. If it got so much stiffer
# on the way that the median acceptance is as low as this, nothing was seen, and the
# next steps are so many times as long.
_PRODUCT = 1.0
_FAILURE = 0.2
_CAUTION = 0.4
_SMALLEST_STEP = 1e-3


class Compared(NamedTuple):
    """Points where both the target and the network were evaluated, `n` of them.

    Attributes:
        position: `[n, dim]`.
        log_prob: of the target, `[n]`.
        gradient: of that, `[n, dim]`.
        residual: `U − U_θ`, `[n]`.
    """

    position: np.ndarray
    log_prob: np.ndarray
    gradient: np.ndarray
    residual: np.ndarray

    @classmethod
    def with_network(
        cls, network: LatentHNN, points: EvaluatedPoints | ChainStates
    ) -> Compared:
        """Points at which the target is known."""
        energy = network.potential(points.position).numpy().astype(np.float64)
        residual = -points.log_prob.astype(np.float64) - energy
        return cls(points.position, points.log_prob, points.gradient, residual)

    def and_others(self, others: Compared) -> Compared:
        """These, then those."""
        return Compared(
            *(np.concatenate(x) for x in zip(self, others, strict=True)),
        )


class _Edge(NamedTuple):
    """From where on a network may know nothing.

    Attributes:
        yardstick: by which points are far out.
        farthest: how far out trajectories may start.
        highest: potential above which the target has next to no mass.
        ordinary: potential below which most of the target's mass lies.
    """

    yardstick: Yardstick
    farthest: float
    highest: float
    ordinary: float

    @classmethod
    def of_states(
        cls, base: GaussianBase, states: Compared, earlier: Sequence[np.ndarray]
    ) -> _Edge:
        """From states of the target's chains, in the last round and some before it."""
        yardstick = Yardstick.of_draws(base.whiten(states.position))
        position = np.concatenate([*earlier, states.position])
        usual = np.quantile(yardstick.distance(base.whiten(position)), 1.0 - _FEW)
        potential = -states.log_prob.astype(np.float64)
        return cls(
            yardstick,
            max(_AHEAD * float(usual), _HEAVY_TAIL),
            highest_potential(potential),
            max(
                float(np.quantile(potential, _ORDINARY)),
                float(np.min(potential)) - math.log(_FEW),
            ),
        )

    def starts(
        self, base: GaussianBase, compared: Compared, highest: float, number: int
    ) -> tuple[np.ndarray, float]:
        """Points from which to set out; indices, and how far out the farthest are.

        Args:
            base: that whitens.
            compared: points to choose from.
            highest: potential that a start may have.
            number: of starts.
        """
        eligible = np.flatnonzero(-compared.log_prob <= highest)
        z = base.whiten(compared.position[eligible])
        distance = self.yardstick.distance(z)
        is_near = distance <= self.farthest
        chosen, reach = frontier(
            self.yardstick.standardised(z[is_near]), distance[is_near], number
        )
        return eligible[is_near][chosen], reach


class TailSearch(NamedTuple):
    """What a search has found.

    Attributes:
        elsewhere: points off the chains where the target was evaluated.
        is_open: whether trajectories were still on their way out when they were
            stopped, or diverged, or none could be paid for, so that nobody knows.
        explorers: where the trajectories came to.
    """

    elsewhere: Compared
    is_open: bool
    explorers: ChainStates


def search_tails(
    network: LatentHNN,
    states: Compared,
    fresh: Compared,
    earlier: Sequence[np.ndarray],
    explorers: ChainStates,
    pilot: Pilot,
    ledger: GradientLedger,
    affordable: int,
    generator: np.random.Generator,
) -> TailSearch:
    """Sends true trajectories out as long as they find something new.

    The first start at the frontier of the points compared so far. While trajectories
    escape the network, or get ever farther out along a heavy tail, others follow from
    where they came to.

    Args:
        network: whose edge it is.
        states: of the target's chains in this round.
        fresh: other points that this round has evaluated.
        earlier: states of rounds before, `[k, dim]` each.
        explorers: where the last search came to; the hot ones of them go on from there.
        pilot: that runs the trajectories.
        ledger: of all true gradients.
        affordable: gradients that this may cost, or four trajectories of each of the
            pilot's chains if that is more.
        generator: of random directions.

    Returns:
        What was found.
    """
    base, typical = network.gaussian_base, float(np.median(states.residual))
    edge = _Edge.of_states(base, states, earlier)
    compared, elsewhere = states.and_others(fresh), fresh
    number = max(affordable // pilot.cost, _FEWEST_EXPEDITIONS)

    def starts(highest: float) -> tuple[np.ndarray, float]:
        return edge.starts(base, compared, highest, len(pilot.is_hot))

    # The first time just beyond what the network's chains meet.
    chosen, _ = starts(edge.highest)
    _, reach = starts(edge.ordinary)
    is_open, product = True, _PRODUCT
    for expedition in range(min(number, ledger.left // pilot.cost)):
        # And the hot ones first go where they please.
        movable = ~pilot.is_hot if expedition == 0 else np.ones_like(pilot.is_hot)
        explorers = _sent(explorers, np.flatnonzero(movable), compared, chosen)
        pace = _pace(network, explorers.position, product, generator)
        # At random they would hardly leave the frontier, and find nothing new.
        is_pushed = ~pilot.is_hot if expedition == 0 else reach > _HEAVY_TAIL
        outward = edge.yardstick.outward(base.whiten(explorers.position))
        pace = pace._replace(push=_PUSH * outward * np.reshape(is_pushed, [-1, 1]))
        explorers, acceptance, points = pilot.run_from(explorers, pace)
        new = Compared.with_network(network, points)
        compared, elsewhere = compared.and_others(new), elsewhere.and_others(new)
        if np.median(acceptance) < _FAILURE:
            # These trajectories failed, so nothing is known of what lies out there.
            is_open = True
            product *= _CAUTION
            continue
        last_reach = reach
        chosen, reach = starts(edge.ordinary)
        is_open = reach > max(_ADVANCE * last_reach, _HEAVY_TAIL)
        escaped = has_escaped(new.residual, -new.log_prob, typical, edge.highest)
        if not (is_open or (reach <= _HEAVY_TAIL and np.any(escaped))):
            break
    return TailSearch(elsewhere, is_open, explorers)


def _sent(
    chains: ChainStates, rows: np.ndarray, compared: Compared, chosen: np.ndarray
) -> ChainStates:
    """The chains with some of them, `rows`, at the chosen points, as many as fit."""
    rows, chosen = rows[: len(chosen)], chosen[: len(rows)]
    arrays = [x.copy() for x in chains]
    for array, new in zip(arrays, compared[:3], strict=True):
        array[rows] = new[chosen]
    return ChainStates(*arrays)


def _pace(
    network: LatentHNN,
    position: np.ndarray,
    product: float,
    generator: np.random.Generator,
) -> Pace:
    """Steps that are stable where each chain is, as far as the network knows."""
    frequency = largest_frequencies(network, position, generator)
    frequency = np.where(np.isfinite(frequency), frequency, np.inf)
    step = np.clip(product / np.maximum(frequency, 1e-3), _SMALLEST_STEP, LARGEST_STEP)
    return Pace(network.gaussian_base, step, np.zeros(position.shape))
