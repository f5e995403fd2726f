"""The numbers of the loop of `fit`."""

from __future__ import annotations

import dataclasses
import math

from tfp_lhnn.support.arguments import check_count

__all__ = ["FitConfig"]

# Every second chain is hot while they settle.
_FEWEST_CHAINS = 2

_SHARES = (
    "settle_share",
    "stragglers",
    "typical_share",
    "low_acceptance",
    "reserve",
    "known_acceptance",
    "good_acceptance",
    "even_acceptance",
    "small_gain",
)


@dataclasses.dataclass(frozen=True)
class FitConfig:
    """The numbers of the loop of `fit`. Those of training are `train`'s own.

    Attributes:
        num_chains: chains that run on the target while the network learns. Each call
            of the target evaluates one point for each.
        settle_share: share of the budget that settling may take.
        settle_points: gradients that settling aims for: enough for a first network.
        settle_points_per_dim: or so many for each dimension, if that is more: enough
            for a dense regression of gradients on positions.
        stragglers: share of the chains that may still be on their way down then. They
            are put where others are.
        round_share: gradients of a round, as a share of all so far. The number of
            trainings then grows with the logarithm of the budget.
        smallest_round: transitions of each chain in a round, at least: fewer tell
            little of a network.
        largest_round: gradients of a round, at most.
        typical_share: points with a potential up to this quantile of the chains'
            present states, and
        typical_margin: so many nats more, are learned from. Points on the way down
            would outweigh the others.
        num_steps: training steps, for up to
        num_points: so many points; with more points there are more steps.
        low_acceptance: below it, over the last transitions, every second proposal is
            followed by a true trajectory.
        reserve: share of the budget left to sampling, if acceptance is that low.
        known_acceptance: from here on the bulk is known: proposals may take several
            transitions on the network, and tails are searched.
        most_transitions: of these, at most.
        good_acceptance: of proposals: one in twenty is lost.
        good_energy_error: in nats. Errors of a Gaussian size have a tenth of a nat at
            that acceptance. Much more means that a few points are far off.
        good_rounds: rounds in a row that must be good, and agree with the one before:
            one may not have met what the next one meets.
        promising_base_error: held-out error in nats up to which the Gaussian base is
            tried alone.
        sufficient_base_error: in nats; a base this good needs no network.
        small_gain: a share of accepted proposals that is not worth another round.
        even_acceptance: errors that no network can learn, such as ripples, leave about
            0.86 of the proposals at the largest energy error that is good.

    Raises:
        TypeError: if a number has the wrong type.
        ValueError: if a number is out of range; the message names it.
    """

    num_chains: int = 16
    settle_share: float = 0.35
    settle_points: int = 1536
    settle_points_per_dim: int = 15
    stragglers: float = 0.5
    round_share: float = 0.33
    smallest_round: int = 6
    largest_round: int = 4096
    typical_share: float = 0.9
    typical_margin: float = 15.0
    num_steps: int = 3000
    num_points: int = 12_000
    low_acceptance: float = 0.5
    reserve: float = 0.3
    known_acceptance: float = 0.8
    most_transitions: int = 10
    good_acceptance: float = 0.95
    good_energy_error: float = 0.25
    good_rounds: int = 2
    promising_base_error: float = 0.5
    sufficient_base_error: float = 0.1
    even_acceptance: float = 0.8
    small_gain: float = 0.02

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, name = getattr(self, field.name), field.name
            if field.type == "int":
                check_count(name, value, _FEWEST_CHAINS if name == "num_chains" else 1)
                continue
            if not isinstance(value, (int, float)) or isinstance(value, bool):
                raise TypeError(f"`{name}` is {value!r}; expected a number.")
            largest = 1.0 if name in _SHARES else math.inf
            # Negated so that NaN is refused.
            if not (0.0 <= value <= largest and math.isfinite(value)):
                bounds = "between 0 and 1" if name in _SHARES else "0 or more"
                raise ValueError(f"`{name}` is {value}; expected {bounds}.")
