"""What `fit` returns."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfp_lhnn.evaluation.training_data import TrainingData
from tfp_lhnn.learning.fit_file import (
    fit_from_arrays,
    fit_to_arrays,
    load_fit,
    save_fit,
)
from tfp_lhnn.learning.round import Round
from tfp_lhnn.network.latent_hnn import LatentHNN

__all__ = ["POOR_ACCEPTANCE", "Fit", "Round", "fit_message"]

# Below this the network proposes badly, and sampling turns to true gradients.
POOR_ACCEPTANCE = 0.5


@dataclasses.dataclass(frozen=True, eq=False)
class Fit:
    """What `fit` found.

    Attributes:
        network: the network, of flat unconstrained positions, `[n, dim]`.
        step_size: for NUTS on the network, in its base's coordinates (see
            `network.whiten`), in which the target has about unit scale.
        leapfrogs_per_draw: of that step size.
        num_surrogate_transitions: NUTS transitions on the network after which a chain
            has about forgotten where it was; they cost nothing of the target.
        states: last states of the chains that ran on the target, `[chains, dim]`.
        data: every point at which a true gradient was evaluated.
        rounds: the history.
        num_gradients: true gradients evaluated; at most `gradient_budget`.
        num_evaluations: densities evaluated, those with a gradient included.
        gradient_budget: as given.
        energy_error: of the network, in nats, where proposals were accepted that it has
            not learned from; of a poor fit, with few such points, it says little.
        acceptance: of delayed acceptance with this network, by the chains that ran on
            the target.
        held_out: potential and network error where `energy_error` is measured, `[n]`
            each.
        radius: largest distance from the centre, in the base's coordinates, of the
            points learned from.
        nuts_gradients_per_effective_sample: what NUTS on true gradients would cost,
            estimated by running it on the network; without its warm-up.
        is_confirmed: whether several checks in a row found the fit good, or such that
            more points would not mend it. If not, the budget ended first, and there may
            be tails or modes that no check has met.
        message: what to know about the fit; what to try if it is poor.
        seconds: wall time.
    """

    network: LatentHNN
    step_size: float
    leapfrogs_per_draw: float
    num_surrogate_transitions: int
    states: np.ndarray
    data: TrainingData
    rounds: tuple[Round, ...]
    num_gradients: int
    num_evaluations: int
    gradient_budget: int
    energy_error: float
    acceptance: float
    held_out: tuple[np.ndarray, np.ndarray]
    radius: float
    nuts_gradients_per_effective_sample: float
    is_confirmed: bool
    message: str
    seconds: float

    @property
    def is_good(self) -> bool:
        """Whether delayed acceptance on the network is worth running."""
        return self.acceptance >= POOR_ACCEPTANCE

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the fit to a file of plain arrays, all or nothing.

        Raises:
            ValueError: if the network's activation is a function that Keras has no
                name for.
            OSError: if the file cannot be written.
        """
        save_fit(path, self._fields())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Fit:
        """Reads what `save` wrote; nothing in the file is executed.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if the file is damaged, foreign, or of another version.
        """
        return cls(**load_fit(path))

    def to_arrays(self) -> dict[str, np.ndarray]:
        """All of the fit as named arrays."""
        return fit_to_arrays(self._fields())

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Fit:
        """The fit that `to_arrays` took apart, the same to the bit.

        Raises:
            ValueError: if the arrays are not those of a fit, or do not fit together.
        """
        return cls(**fit_from_arrays(arrays))

    def _fields(self) -> dict[str, Any]:
        # Not `dataclasses.asdict`, which copies all data.
        return {
            field.name: getattr(self, field.name) for field in dataclasses.fields(self)
        }


def fit_message(
    acceptance: float,
    energy_error: float,
    spent: int,
    budget: int,
    num_rounds: int,
    *,
    is_confirmed: bool,
) -> str:
    """What a fit says of itself, and what to do about it.

    Args:
        acceptance: of delayed acceptance.
        energy_error: of the network, in nats.
        spent: gradients.
        budget: gradients that it might have spent.
        num_rounds: good checks in a row that it takes to be confirmed.
        is_confirmed: whether it is.
    """
    share = f"delayed acceptance accepts {acceptance:.0%} of the network's proposals"
    if acceptance < POOR_ACCEPTANCE:
        # Of its energy too few draws are the target's to say anything.
        return (
            f"The fit is poor: {share}, after {spent} of {budget} gradients. Try a "
            "larger `gradient_budget`, wider `hidden_units`, a reparametrisation of "
            "the model (a non-centred one for funnels), or a better `initial_state`."
        )
    if is_confirmed:
        return "The fit is good."
    return (
        f"The fit is not confirmed: {share}, and its energy is off by "
        f"{energy_error:.2g} nats, but the budget of {budget} gradients ended before "
        f"{num_rounds} checks in a row were good and agreed, so tails or modes may "
        "have been missed. Try a larger `gradient_budget`."
    )
