"""A trained network with its check, and what two rounds say of each other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfp_lhnn.learning.fit_check import Check
from tfp_lhnn.learning.refinement import (
    Quality,
    acceptance_from,
    highest_potential,
    target_shares,
)
from tfp_lhnn.learning.surrogate import NUM_CHAINS, Surrogate
from tfp_lhnn.learning.surrogate_chain import SurrogateRun

__all__ = ["Checked"]

# Networks of two rounds agree if their potentials differ by more than so many nats at
# no more than so small a share of the draws. Half a percent of a tail that is missed
# can make up a tenth of a standard deviation.
_LARGE_CHANGE = 1.0
_FEW = 0.005

# Of two networks that do about as well, the later one was trained on more points.
_ALIKE = 0.98

# A share of accepted proposals that is not worth another round.
_SMALL_GAIN = 0.02


class Checked(NamedTuple):
    """A trained network, and how good it is at fresh points."""

    surrogate: Surrogate
    check: Check

    @classmethod
    def not_at_all(cls, surrogate: Surrogate) -> Checked:
        """A network that nobody knows anything of."""
        nothing = np.zeros(0)
        unknown = Quality(np.nan, np.nan, np.nan, np.nan)
        nowhere = np.zeros([0, surrogate.network.dim])
        return cls(surrogate, Check(nowhere, 0, nothing, nothing, unknown))

    def agrees_with(self, last: Checked, run: SurrogateRun) -> bool:
        """Whether the round before would have said the same of this one's draws.

        As long as every round finds more of a tail, it would not.
        """
        network, base = self.surrogate.network, self.surrogate.base
        draws = run.position.reshape(-1, network.dim)
        position = base.unwhiten(draws).astype(np.float32)
        change = last.surrogate.network.potential(position)
        change = change - network.potential(position)
        size = np.abs(change - np.median(change))
        return bool(np.mean(size > _LARGE_CHANGE) <= _FEW)

    def does_as_well_as(self, earlier: Checked) -> bool:
        """Whether an earlier network is no better at this one's points.

        Each at its own would not do: as long as rounds find more of a tail, the later
        one is asked at more difficult points.
        """
        points, own = self.check, slice(self.check.num_own)
        if not np.any(np.isfinite(points.residual[own])):
            return False
        highest = highest_potential(points.potential[own], points.residual[own])
        matters = np.isfinite(points.residual) & (points.potential <= highest)
        position, potential = points.position[matters], points.potential[matters]

        def merit(checked: Checked) -> float:
            learned = checked.surrogate.network.potential(position).numpy()
            own_residual = checked.check.residual[: checked.check.num_own]
            tail = acceptance_from(potential - learned, own_residual)
            return checked.check.quality.acceptance * tail

        return merit(self) >= _ALIKE * merit(earlier)

    def is_settled_since(self, last: Checked) -> bool:
        """Whether what is wrong with the base is nothing that more points would mend.

        A network of all of them was no better than the base, the round before had none
        either, and the base gained little since.
        """
        quality = self.check.quality
        return (
            self.surrogate.is_gaussian
            and self.surrogate.history.num_steps > 0
            and last.surrogate.is_gaussian
            and quality.is_even
            and quality.acceptance - last.check.quality.acceptance <= _SMALL_GAIN
        )

    def or_better(self, new: Surrogate) -> Checked:
        """`new` if it does better at the same points, whose quality it then keeps."""
        old = self.check
        residual = old.potential - new.network.potential(old.position).numpy()
        if not _typical_error(residual) <= _typical_error(old.residual):
            return self
        return Checked(new, old._replace(residual=residual))

    def states(self, generator: np.random.Generator) -> np.ndarray:
        """About draws from the target, `[chains, dim]`.

        The surrogate's chain itself may sit in a well that only the network has.
        """
        residual = self.check.residual[: self.check.num_own]
        # Cut off at the typical weight: a few points must not make up all the states.
        finite = np.isfinite(residual)
        cut = np.fmax(residual, np.median(residual[finite]))
        # Where the target has no density no chain may start.
        share = target_shares(np.where(finite, cut, np.inf))
        chosen = generator.choice(len(share), NUM_CHAINS, p=share)
        return self.check.position[chosen]


def _typical_error(residual: np.ndarray) -> float:
    """Mean absolute error about the median, errors above a nat counted as one."""
    centred = np.abs(residual - np.median(residual[np.isfinite(residual)]))
    return float(np.mean(np.fmin(centred, 1.0)))
