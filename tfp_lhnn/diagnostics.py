"""What a run is worth: convergence, the network's errors, costs, and warnings."""

import dataclasses
import math
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

with warnings.catch_warnings():
    # ArviZ announces its next major version once a day.
    warnings.simplefilter("ignore", FutureWarning)
    import arviz as az

__all__ = ["SamplingWarning", "Summary", "summarize", "warn"]

# Vehtari et al. (2021), "Rank-normalization, folding, and localization": R-hat below
# 1.01, and an ESS of 400 with four chains, or R-hat and ESS cannot be trusted either.
MAX_R_HAT = 1.01
MIN_ESS_PER_CHAIN = 100
# A network whose energy error has a standard deviation of one nat gives 0.48 (normal
# errors, independent proposals): below, most densities are paid for and thrown away.
MIN_DELAYED_ACCEPTANCE = 0.5
# A chain that accepts 30 % does this by chance once in some 10⁸ draws.
MAX_RUN_WITHOUT_MOVE = 50
# Half as many moves as the other chains make is a matter of place, not of chance, if it
# is also this many standard deviations of the count below them.
MIN_RELATIVE_MOVES = 0.5
NUM_DEVIATIONS = 4.0
# Half a nat changes the ratio of acceptance by a factor of 1.6 between the start and
# the end of a run; smaller drifts hardly show in the acceptance.
MAX_ENERGY_DRIFT = 0.5
# With a tenth of the draws outside, a 5 % tail may rest on extrapolation alone.
MAX_OUTSIDE_TRAINING_DATA = 0.1
# Now and then a tree is long; in one draw of twenty it is the step that is too small.
MAX_DEEP_TREES = 0.05
# Above, the target's gradients do most of the work that the network was trained for.
MAX_FALLBACKS = 0.5
# Betancourt (2016), "Diagnosing suboptimal cotangent disintegrations"; Stan's bound.
MIN_BFMI = 0.3

_MORE_GRADIENTS = "fit again with a larger `gradient_budget`"
# Of stuck chains, so that a warning stays a sentence.
_CHAINS_NAMED = 8

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


# Of a scalar, that ArviZ is given at once, about.
_MOST_VALUES = 250_000


class SamplingWarning(UserWarning):
    """Something about a run's draws is off; the message says what to do."""


@dataclasses.dataclass(frozen=True, eq=False)
class Summary:
    """What `summarize` found. Numbers that the run does not tell are NaN.

    Attributes:
        table: a row for each scalar variable, with columns `mean`, `sd`, `mcse_mean`,
            `ess_bulk`, `ess_tail` and `r_hat`.
        num_chains: chains.
        num_draws: draws of each chain.
        worst_r_hat: the largest R-hat.
        min_ess_bulk: the smallest bulk ESS.
        min_ess_tail: the smallest tail ESS.
        bfmi: the smallest Bayesian fraction of missing information of a chain.
        divergences: draws with a divergence.
        deep_trees: share of draws that reached the largest tree depth.
        fallbacks: draws in which true gradients were used.
        fallback_share: their share.
        delayed_acceptance: mean acceptance of the network's proposals by the target.
        network_energy_error: standard deviation of `U − U_θ` over the draws, in nats.
        network_energy_drift: its mean over the last third of the draws less that over
            the first, in nats.
        outside_training_data: share of draws outside the training data.
        target_gradients: of all chains and phases.
        target_evaluations: of all chains and phases: the calls of the target, since a
            value with its gradient counts in both tallies.
        ess_per_gradient: the smallest bulk ESS over `target_gradients`.
        ess_per_target_call: the smallest bulk ESS over `target_evaluations`.
        break_even: effective samples from which on this method, fit included, needs
            fewer gradients than NUTS with true gradients; infinite if it never does.
        warnings: what is off, and what to do about it.
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


def summarize(inference_data: az.InferenceData) -> Summary:
    """Judges a run by its draws, statistics and costs.

    Args:
        inference_data: what `sample` or `to_inference_data` made. What it does not hold
            is left out of the judgement.

    Returns:
        Numbers, and warnings with remedies.

    Raises:
        TypeError: if it is no `InferenceData`.
        ValueError: if it has no group `posterior`.
    """
    if not isinstance(inference_data, az.InferenceData):
        kind = type(inference_data).__name__
        raise TypeError(f"`inference_data` is a {kind}; expected arviz.InferenceData.")
    if "posterior" not in inference_data.groups():
        raise ValueError("`inference_data` has no group `posterior`.")
    with warnings.catch_warnings():
        # Of constants, such as the corner of a Cholesky factor, and of infinities.
        warnings.simplefilter("ignore", RuntimeWarning)
        summary, drift_is_sure = _without_warnings(inference_data)
    found = (
        *_stuck_chains(inference_data.posterior),
        *_convergence_warnings(summary),
        *_sampler_warnings(summary),
        *_network_warnings(summary, inference_data.attrs, drift_is_sure),
    )
    return dataclasses.replace(summary, warnings=found)


def warn(summary: Summary, stacklevel: int = 2) -> None:
    """Issues each warning of what `summarize` returned, as `SamplingWarning`.

    Args:
        summary: what `summarize` returned.
        stacklevel: whose line they name, as in `warnings.warn`; 2 is the caller's.
    """
    for message in summary.warnings:
        warnings.warn(message, SamplingWarning, stacklevel=stacklevel)


def _without_warnings(inference_data: az.InferenceData) -> tuple[Summary, bool]:
    """The numbers, and whether the drift is more than chance."""
    attrs, group = inference_data.attrs, inference_data.get("sample_stats", {})
    stats = {str(name): group[name].to_numpy() for name in group}
    posterior = inference_data.posterior
    rows = {name: _row(x.astype(np.float64)) for name, x in scalars(posterior)}
    table = pd.DataFrame.from_dict(rows, orient="index")
    error = None  # U − U_θ at the draws
    if "network_energy" in stats and "lp" in stats:
        error = -stats["lp"] - stats["network_energy"].astype(np.float64)
    drift, drift_is_sure = _drift(error)
    gradients = float(attrs.get("target_gradients", math.nan))
    evaluations = float(attrs.get("target_evaluations", math.nan))
    ess = _apply(np.min, table["ess_bulk"].to_numpy())
    summary = Summary(
        table=table,
        num_chains=int(posterior.sizes["chain"]),
        num_draws=int(posterior.sizes["draw"]),
        worst_r_hat=_apply(np.max, table["r_hat"].to_numpy()),
        min_ess_bulk=ess,
        min_ess_tail=_apply(np.min, table["ess_tail"].to_numpy()),
        bfmi=_apply(np.min, az.bfmi(stats["energy"]) if "energy" in stats else None),
        divergences=_apply(np.sum, stats.get("diverging")),
        deep_trees=_apply(np.mean, stats.get("reached_max_treedepth")),
        fallbacks=_apply(np.sum, stats.get("fallback")),
        fallback_share=_apply(np.mean, stats.get("fallback")),
        delayed_acceptance=_delayed_acceptance(stats),
        network_energy_error=_apply(np.std, error),
        network_energy_drift=drift,
        outside_training_data=_apply(np.mean, stats.get("outside_training_data")),
        target_gradients=gradients,
        target_evaluations=evaluations,
        ess_per_gradient=_ratio(ess, gradients),
        ess_per_target_call=_ratio(ess, evaluations),
        break_even=_break_even(attrs, gradients, ess),
        warnings=(),
    )
    return summary, drift_is_sure


def _convergence_warnings(summary: Summary) -> Iterator[str]:
    table, needed = summary.table, MIN_ESS_PER_CHAIN * summary.num_chains
    if summary.num_chains < 2:
        yield "There is one chain, so R-hat cannot tell if it has converged. Run 4."
    if summary.worst_r_hat > MAX_R_HAT:
        number = int((table["r_hat"] > MAX_R_HAT).sum())
        yield (
            f"R-hat is {summary.worst_r_hat:.3f} for {table['r_hat'].idxmax()}, and "
            f"above {MAX_R_HAT} for {number} of {len(table)} variables: the chains "
            "disagree. Make more draws; if it stays, look in the trace plot for modes "
            "that only some chains visit, and fit from starts in all of them."
        )
    for kind, ess in (("bulk", summary.min_ess_bulk), ("tail", summary.min_ess_tail)):
        if ess < needed:
            yield (
                f"The {kind} ESS is {ess:.0f} for {table[f'ess_{kind}'].idxmin()}; "
                f"expected {needed} ({MIN_ESS_PER_CHAIN} per chain). Make about "
                f"{math.ceil(needed / max(ess, 1.0))} times as many draws."
            )
    if (unknown := table["ess_bulk"].isna()).any():
        yield (
            f"No ESS could be computed for {unknown.idxmax()}. Make 4 draws or more, "
            "and see that all of them are finite."
        )


def _stuck_chains(posterior: Any) -> Iterator[str]:
    """Chains that stay where they are for long, or far oftener than the others."""
    moved = _moved(posterior)
    num_chains, num = moved.shape
    counts = moved.sum(axis=1)
    stuck: dict[int, int] = {}  # with the longest run without a move
    for chain in range(num_chains if num else 0):
        ends = np.concatenate([[-1], np.flatnonzero(moved[chain]), [num]])
        run = int(np.diff(ends).max()) - 1
        others = float(np.median(np.delete(counts, chain))) if num_chains > 1 else 0.0
        expected = min(
            MIN_RELATIVE_MOVES * others, others - NUM_DEVIATIONS * math.sqrt(others)
        )
        if run >= min(MAX_RUN_WITHOUT_MOVE, num) or counts[chain] < expected:
            stuck[chain] = run
    if stuck:
        worst = max(stuck, key=lambda chain: (stuck[chain], -counts[chain]))
        yield (
            f"Chain {worst} is stuck: it moved in {counts[worst] / num:.1%} of its "
            f"draws (all chains: {moved.mean():.1%}), and stayed at one point for "
            f"{stuck[worst]} in a row.{_others_of(stuck, worst)} Where the network is "
            f"wrong, {_MORE_GRADIENTS} and a start there, or raise "
            "`true_transition_probability`."
        )


def _others_of(stuck: Iterable[int], worst: int) -> str:
    others = [str(chain) for chain in stuck if chain != worst]
    if not others:
        return ""
    names = ", ".join(others[:_CHAINS_NAMED])
    more = ", ..." if len(others) > _CHAINS_NAMED else ""
    noun = "chain is" if len(others) == 1 else "chains are"
    return f" {len(others)} more {noun} stuck ({names}{more})."


def _sampler_warnings(summary: Summary) -> Iterator[str]:
    if summary.divergences > 0:
        yield (
            f"{summary.divergences:.0f} of {summary.num_chains * summary.num_draws} "
            "draws diverged: the posterior may be too steep there to be explored. "
            "Reduce the step size, or reparametrise the model."
        )
    if summary.deep_trees > MAX_DEEP_TREES:
        yield (
            f"{summary.deep_trees:.1%} of the draws were cut short at the largest tree "
            "depth. Raise `max_tree_depth`, enlarge the step size, or scale the "
            "variables alike."
        )
    if summary.bfmi < MIN_BFMI:
        yield (
            f"BFMI is {summary.bfmi:.2f}, below {MIN_BFMI}: the chains change their "
            "energy slowly and may miss parts of the posterior. Reparametrise (a "
            "hierarchical model: non-centred)."
        )


def _network_warnings(
    summary: Summary, attrs: dict[str, Any], drift_is_sure: bool
) -> Iterator[str]:
    if not (attrs.get("fit_is_good", True) and attrs.get("fit_is_confirmed", True)):
        yield str(attrs.get("fit_message") or "The fit is poor.")
    if summary.delayed_acceptance < MIN_DELAYED_ACCEPTANCE:
        yield (
            f"The target accepted {summary.delayed_acceptance:.1%} of the network's "
            f"proposals; {MIN_DELAYED_ACCEPTANCE:.0%} or more is expected. To raise "
            f"it, {_MORE_GRADIENTS}, or use fewer surrogate transitions per draw."
        )
    if drift_is_sure and abs(summary.network_energy_drift) > MAX_ENERGY_DRIFT:
        yield (
            "The network's energy error drifted by "
            f"{summary.network_energy_drift:+.2g} nats from the first to the last "
            "third of the draws: the chains move to where the network was not trained. "
            f"Make more draws, or {_MORE_GRADIENTS}, starting at the last draws."
        )
    if summary.outside_training_data > MAX_OUTSIDE_TRAINING_DATA:
        yield (
            f"{summary.outside_training_data:.1%} of the draws lie outside the "
            "training data, where the network extrapolates. To cover them, "
            f"{_MORE_GRADIENTS} and more dispersed starts."
        )
    # All of them: gradients of the target only, which was meant.
    if MAX_FALLBACKS < summary.fallback_share < 1.0:
        yield (
            f"{summary.fallback_share:.1%} of the draws needed true gradients: the "
            f"network saves little. To improve it, {_MORE_GRADIENTS}."
        )


def scalars(posterior: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Names, as ArviZ has them, and values `[chains, draws]` of all scalars."""
    labeller = az.labels.BaseLabeller()
    posterior = posterior.transpose("chain", "draw", ...)
    for *key, values in az.sel_utils.xarray_var_iter(posterior, combined=True):
        yield labeller.make_label_flat(*key), np.asarray(values)


def _row(values: np.ndarray) -> dict[str, float]:
    """Statistics of one scalar, `[chains, draws]`."""
    row = {"mean": float(np.mean(values)), "sd": float(np.std(values, ddof=1))}
    row |= dict.fromkeys(("mcse_mean", "ess_bulk", "ess_tail", "r_hat"), math.nan)
    # ArviZ needs four draws, and would log a line for each scalar that it refuses.
    if values.shape[1] >= 4 and np.isfinite(values).all():
        row["mcse_mean"] = row["sd"] / math.sqrt(_ess(values, "mean"))
        row["ess_bulk"] = _ess(values, "bulk")
        row["ess_tail"] = _ess(values, "tail")
        if len(values) >= 2:
            # Of very many draws every k-th one tells the same.
            stride = -(-values.size // _MOST_VALUES)
            stride = min(stride, values.shape[1] // 4)
            row["r_hat"] = float(az.rhat(values[:, ::stride]))
    return row


def _ess(values: np.ndarray, method: str) -> float:
    """ArviZ's ESS of `[chains, draws]`.

    Very many values are taken a group of chains at a time, and the groups' ESS added:
    ArviZ needs a hundred bytes for a value. (Groups that disagree show in R-hat.)
    """
    num_groups = max(1, min(values.size // _MOST_VALUES, len(values) // 4))
    groups = np.array_split(values, num_groups)
    return float(sum(az.ess(group, method=method) for group in groups))


def _moved(posterior: Any) -> np.ndarray:
    """Whether a draw differs from the one before it, `[chains, draws - 1]`."""
    moved = np.zeros((posterior.sizes["chain"], posterior.sizes["draw"] - 1), bool)
    for array in posterior.transpose("chain", "draw", ...).data_vars.values():
        differs = array.to_numpy()[:, 1:] != array.to_numpy()[:, :-1]
        moved |= differs.any(axis=tuple(range(2, differs.ndim)))
    return moved


def _drift(error: np.ndarray | None) -> tuple[float, bool]:
    """Last third's mean less the first's, and whether chance could hardly do it."""
    if error is None or error.shape[1] // 3 < 4 or not np.isfinite(error).all():
        return math.nan, False
    third = error.shape[1] // 3
    first, last = error[:, :third], error[:, -third:]
    noise = math.hypot(
        *(np.std(part) / math.sqrt(_ess(part, "mean")) for part in (first, last))
    )
    drift = float(last.mean() - first.mean())
    return drift, abs(drift) > NUM_DEVIATIONS * noise


def _delayed_acceptance(stats: dict[str, np.ndarray]) -> float:
    """Mean over the network's proposals: a true transition has nothing to accept."""
    rate = stats.get("delayed_acceptance_rate")
    if rate is None:
        return math.nan
    proposed = ~stats.get("fallback", np.zeros(rate.shape, bool))
    return float(rate[proposed].mean()) if proposed.any() else math.nan


def _break_even(attrs: dict[str, Any], gradients: float, ess: float) -> float:
    """Where `fit + n * (sampling per effective sample)` meets `n * (NUTS's)`."""
    nuts = float(attrs.get("nuts_gradients_per_effective_sample", math.nan))
    fit = float(attrs.get("fit_gradients", math.nan))
    saved = nuts - _ratio(gradients - fit, ess)
    if math.isnan(saved):
        return math.nan
    return fit / saved if saved > 0.0 else math.inf


def _apply(function: Any, values: np.ndarray | None) -> float:
    """A statistic of the values that are finite; NaN if there are none."""
    known = np.empty(0) if values is None else values[np.isfinite(values)]
    return float(function(known)) if known.size else math.nan


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else math.inf
