"""Advice for warnings, which depends on how the draws were made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["Advice"]

# A fit that stops with more than half of its budget left does not lack gradients.
_MIN_SPENT = 0.5

_MORE_TRAINING = "train the network on more gradients"
_LARGER_BUDGET = "fit again with a larger `gradient_budget`"
_NOT_THE_BUDGET = (
    "fit again with wider `hidden_units` (the budget of gradients was not used up)"
)


class Advice(NamedTuple):
    """Remedies by problem, as phrases that complete a warning.

    `sample` chooses the step size, the depth of the trees and the share of true
    transitions. Its caller cannot change these; a user who builds a kernel can.

    Attributes:
        better_network: how to make the network's errors smaller.
        stuck: what else helps a chain that is stuck.
        divergences: what to do about them.
        deep_trees: what to do about trees that are cut short.
        low_acceptance: what else raises delayed acceptance.
    """

    better_network: str
    stuck: str
    divergences: str
    deep_trees: str
    low_acceptance: str

    @classmethod
    def of(cls, attrs: Mapping[str, Any], *, is_delayed: bool) -> Advice:
        """The advice for a run.

        Args:
            attrs: of the run. `method` is there if `sample` made the draws, and
                `fit_gradients` if there was a fit.
            is_delayed: whether the draws are of delayed acceptance.
        """
        better_network = _better_network(attrs)
        if "method" in attrs:
            nuts = 'sample with `method="nuts"`'
            return cls(
                better_network,
                nuts if is_delayed else "reparametrise the model",
                "Reparametrise the model (a hierarchical one: non-centred).",
                "Scale the variables alike, or reparametrise the model.",
                nuts,
            )
        return cls(
            better_network,
            "raise `true_transition_probability`"
            if is_delayed
            else 'choose `error_monitor="pointwise"`',
            "Reduce the step size, or reparametrise the model.",
            "Raise `max_tree_depth`, enlarge the step size, or scale the variables "
            "alike.",
            "use fewer surrogate transitions per draw",
        )


def _better_network(attrs: Mapping[str, Any]) -> str:
    spent, budget = attrs.get("fit_gradients"), attrs.get("gradient_budget")
    if spent is None:
        return _MORE_TRAINING
    has_room = budget is not None and spent < _MIN_SPENT * budget
    return _NOT_THE_BUDGET if has_room else _LARGER_BUDGET
