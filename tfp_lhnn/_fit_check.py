"""A check of a network against the target: where it goes, and where it does not."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfp_lhnn._compiled_target import BLOCK
from tfp_lhnn._evaluated import Evaluated
from tfp_lhnn._frontier import Yardstick, frontier
from tfp_lhnn._pilot import LARGEST_STEP, Pace, Pilot
from tfp_lhnn._refinement import (
    Quality,
    assess,
    has_escaped,
    highest_potential,
    potential_quantile,
    proposal_acceptance,
)
from tfp_lhnn._stiffness import largest_frequencies
from tfp_lhnn._surrogate_chain import SurrogateRun
from tfp_lhnn.fit_result import POOR_ACCEPTANCE
from tfp_lhnn.network import LatentHNN

__all__ = ["Check", "check"]

# Farther out, in standard deviations, than a Gaussian's farthest few draws: there, true
# trajectories go on as long as each gets so many times as far as the last, pushed
# outwards by a momentum of so many standard deviations.
_HEAVY_TAIL = 5.0
_ADVANCE = 1.03
_PUSH = 3.0
# How far a tail may lead: as long as points in it are no less likely than all but so
# many of the target's draws. (Its lowest points are; most of its mass is not there.)
_ORDINARY = 0.9
# And so many times as far as all but a few of the network's draws: what it knows it
# visits about as often as it should.
_AHEAD = 2.5
_FEW = 0.001
_FEWEST_EXPEDITIONS = 4
# Acceptance below which there is enough to learn where the network's chains are.
_KNOWN_BULK = 0.8

# Steps of an expedition, times the frequency where it starts. If it got so much stiffer
# on the way that the median acceptance is as low as this, nothing was seen, and the
# next steps are so many times as long.
_PRODUCT = 1.0
_FAILURE = 0.2
_CAUTION = 0.4
_SMALLEST_STEP = 1e-3


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


def check(
    network: LatentHNN,
    run: SurrogateRun,
    hot: SurrogateRun,
    pilot: Pilot,
    evaluated: Evaluated,
    number: int,
    expedition_gradients: int,
    generator: np.random.Generator,
) -> Check:
    """Compares network and target.

    At random points of the network's chain and of its tempered chain; and along true
    trajectories, some from the frontier of these points, others, hot, that go on where
    the pilot was and owe nothing to the network. As long as true trajectories escape,
    or get ever farther out along a heavy tail, others follow from where they came to;
    the next network learns from them all.

    Args:
        network: what to check.
        run: its chain.
        hot: its tempered chain.
        pilot: whose chains run the true trajectories.
        evaluated: which pays.
        number: of points of the two chains, whole blocks.
        expedition_gradients: that the trajectories may cost, or four of each of the
            pilot's chains if that is more.
        generator: of the choice.
    """
    base = network.gaussian_base
    num_hot = number // 3 // BLOCK * BLOCK
    num_own = number - num_hot
    draws = np.concatenate(
        [_choice(run, num_own, generator), _choice(hot, num_hot, generator)]
    )
    first = evaluated.evaluate(base.unwhiten(draws))
    position, log_prob, gradient = first.position, first.log_prob, first.gradient
    residual = _residual(network, position, log_prob)
    own = slice(num_own)
    highest = highest_potential(-log_prob[own], residual[own])
    yardstick = Yardstick.of_draws(draws[own])
    usual = yardstick.distance(_draws(run))
    farthest = max(_AHEAD * float(np.quantile(usual, 1.0 - _FEW)), _HEAVY_TAIL)

    def starts(highest: float) -> tuple[np.ndarray, float]:
        """Where expeditions start: indices, and how far out that is on average."""
        distance = yardstick.distance(base.whiten(position))
        is_eligible = (-log_prob <= highest) & (distance <= farthest)
        order, distance = frontier(distance, is_eligible)
        number = len(pilot.is_hot)
        return order[:number], float(np.mean(distance[:number])) if len(order) else 0.0

    # The first time just beyond what the network's chains meet.
    chosen, _ = starts(highest)
    ordinary = potential_quantile(-log_prob[own], residual[own], _ORDINARY)
    _, reach = starts(ordinary)
    is_open = False
    affordable = max(expedition_gradients // pilot.cost, _FEWEST_EXPEDITIONS)
    acceptance = proposal_acceptance(residual[own])
    is_poor = acceptance < POOR_ACCEPTANCE
    if acceptance < _KNOWN_BULK:
        # What a network does not know even in the bulk is not a tail.
        affordable = 1
    product = _PRODUCT
    for expedition in range(min(affordable, evaluated.left // pilot.cost)):
        pilot.send(
            position[chosen],
            log_prob[chosen],
            gradient[chosen],
            # And the hot ones then go where they please.
            spare_hot=expedition == 0,
        )
        pace = None
        if not is_poor:
            pace = _pace(network, pilot.position, product, generator)
            if reach > _HEAVY_TAIL:
                outward = yardstick.outward(base.whiten(pilot.position))
                pace = pace._replace(push=_PUSH * outward)
        trajectory_acceptance = pilot.run(pace)
        leaves = pilot.last_points
        evaluated.add(leaves)
        new = _residual(network, leaves.position, leaves.log_prob)
        position = np.concatenate([position, leaves.position])
        log_prob = np.concatenate([log_prob, leaves.log_prob])
        gradient = np.concatenate([gradient, leaves.gradient])
        residual = np.concatenate([residual, new])
        if np.median(trajectory_acceptance) < _FAILURE:
            # Nobody knows what there is. (Of a poor network nobody asks.)
            is_open = not is_poor
            product *= _CAUTION
            continue
        last_reach = reach
        chosen, reach = starts(ordinary)
        is_open = reach > max(_ADVANCE * last_reach, _HEAVY_TAIL)
        escaped = has_escaped(new, -leaves.log_prob, residual[own], highest)
        if not (is_open or (reach <= _HEAVY_TAIL and np.any(escaped))):
            break
    potential = -log_prob.astype(np.float64)
    elsewhere = slice(num_own, None)
    quality = assess(
        residual[own], potential[own], residual[elsewhere], potential[elsewhere]
    )
    quality = quality._replace(is_open=is_open)
    return Check(position, num_own, potential, residual, quality)


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


def _choice(
    run: SurrogateRun, number: int, generator: np.random.Generator
) -> np.ndarray:
    draws = _draws(run)
    return draws[generator.choice(len(draws), number, replace=False)]


def _draws(run: SurrogateRun) -> np.ndarray:
    return run.position.reshape(-1, run.position.shape[-1])


def _residual(
    network: LatentHNN, position: np.ndarray, log_prob: np.ndarray
) -> np.ndarray:
    energy = network.potential(position).numpy().astype(np.float64)
    return -log_prob.astype(np.float64) - energy
