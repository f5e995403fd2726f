"""One round of `fit`."""

from __future__ import annotations

from typing import NamedTuple

from tfp_lhnn.network.training import TrainingHistory

__all__ = ["Round"]


class Round(NamedTuple):
    """What one round of `fit` did.

    Attributes:
        kind: `"pilot"`, or `"refinement"`.
        num_gradients: true gradients so far.
        num_points: points to learn from so far.
        energy_error: of the network, in nats, where its proposals were accepted;
            NaN for the pilot.
        acceptance: of delayed acceptance in the round; NaN for the pilot.
        tail_acceptance: probability that a chain leaves points that the search along
            tails has evaluated, where the target has density; 1 without a search, NaN
            for the pilot.
        step_size: of the network's chain (or of the pilot), whitened.
        history: of the training; `None` for the pilot.
        seconds: that the round took.
    """

    kind: str
    num_gradients: int
    num_points: int
    energy_error: float
    acceptance: float
    tail_acceptance: float
    step_size: float
    history: TrainingHistory | None
    seconds: float
