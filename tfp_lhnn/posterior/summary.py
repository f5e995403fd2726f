"""The numbers and warnings that `summarize` returns."""

import dataclasses
import math

import pandas as pd  # type: ignore[import-untyped]

__all__ = ["Summary"]

_ROWS = (
    ("worst R-hat", "worst_r_hat", "{:.3f}"),
    ("smallest ESS, bulk", "min_ess_bulk", "{:,.0f}"),
    ("smallest ESS, tail", "min_ess_tail", "{:,.0f}"),
    ("BFMI", "bfmi", "{:.2f}"),
    ("divergences", "divergences", "{:,.0f}"),
    ("draws at the largest tree depth", "deep_trees", "{:.1%}"),
    ("draws with true gradients", "fallbacks", "{:,.0f}"),
    ("share with true gradients", "fallback_share", "{:.1%}"),
    ("delayed acceptance", "delayed_acceptance", "{:.1%}"),
    ("network energy error", "network_energy_error", "{:.3g} nats"),
    ("drift of that error", "network_energy_drift", "{:+.2g} nats"),
    ("outside the training data", "outside_training_data", "{:.1%}"),
    ("target gradients", "target_gradients", "{:,.0f}"),
    ("target evaluations", "target_evaluations", "{:,.0f}"),
    ("ESS per gradient", "ess_per_gradient", "{:.3g}"),
    ("ESS per target call", "ess_per_target_call", "{:.3g}"),
    ("break-even against NUTS, ESS", "break_even", "{:,.0f}"),
)


@dataclasses.dataclass(frozen=True, eq=False)
class Summary:
    """What `summarize` found. Numbers that are not known are NaN.

    Attributes:
        table: a row for each scalar variable, with columns `mean`, `sd`, `mcse_mean`,
            `ess_bulk`, `ess_tail` and `r_hat`.
        num_chains: chains.
        num_draws: draws of each chain.
        worst_r_hat: the largest R-hat. Sixteen chains or more with fewer than 1000
            draws each are compared in groups, other chains one by one.
        min_ess_bulk: the smallest bulk ESS, of all chains together.
        min_ess_tail: the smallest tail ESS, of all chains together.
        bfmi: the smallest Bayesian fraction of missing information of a chain; that of
            all chains together where R-hat compares groups.
        divergences: draws with a divergence.
        deep_trees: share of draws that reached the largest tree depth.
        fallbacks: draws in which true gradients were used.
        fallback_share: their share.
        delayed_acceptance: mean acceptance of the network's proposals by the target.
        network_energy_error: standard deviation of `U − U_θ` over the draws, in nats.
        network_energy_drift: mean of `U − U_θ` over the last third of the draws, minus
            that over the first third, in nats.
        outside_training_data: share of draws outside the training data.
        target_gradients: gradients of the target, of all chains and phases.
        target_evaluations: calls of the target, of all chains and phases. A call for a
            gradient counts here too.
        ess_per_gradient: the smallest bulk ESS over `target_gradients`.
        ess_per_target_call: the smallest bulk ESS over `target_evaluations`.
        break_even: the number of effective samples above which this method needs fewer
            gradients than NUTS on the target, its fit included. Infinite if it never
            does.
        warnings: what is wrong, and what to do about it.
    """

    table: pd.DataFrame
    num_chains: int
    num_draws: int
    worst_r_hat: float
    min_ess_bulk: float
    min_ess_tail: float
    bfmi: float
    divergences: float
    deep_trees: float
    fallbacks: float
    fallback_share: float
    delayed_acceptance: float
    network_energy_error: float
    network_energy_drift: float
    outside_training_data: float
    target_gradients: float
    target_evaluations: float
    ess_per_gradient: float
    ess_per_target_call: float
    break_even: float
    warnings: tuple[str, ...]

    def items(self) -> list[tuple[str, str]]:
        """Labels and values of what is known, formatted for reading."""
        rows = [("draws", f"{self.num_chains} chains x {self.num_draws:,}")]
        for label, name, form in _ROWS:
            value = getattr(self, name)
            if not math.isnan(value):
                is_never = name == "break_even" and math.isinf(value)
                rows.append((label, "never" if is_never else form.format(value)))
        return rows

    def __str__(self) -> str:
        rows = self.items()
        width = max(len(label) for label, _ in rows)
        lines = [f"{label:<{width}}  {value}" for label, value in rows]
        lines += [f"WARNING: {message}" for message in self.warnings]
        return "\n".join(lines if self.warnings else [*lines, "No warnings."])
