"""What may be wrong with a run: warnings, each with a remedy."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from tfp_lhnn.posterior.advice import Advice
from tfp_lhnn.posterior.convergence import MIN_DRAWS
from tfp_lhnn.posterior.summary import Summary

__all__ = [
    "MAX_ENERGY_DRIFT",
    "MAX_R_HAT",
    "MAX_SPACING",
    "MIN_ESS",
    "NUM_DEVIATIONS",
    "convergence_warnings",
    "network_warnings",
    "precision_warnings",
    "sampler_warnings",
    "stuck_chains",
]

# Vehtari et al. (2021), "Rank-normalization, folding, and localization": R-hat should
# be below 1.01. The ESS of all chains together should be 400, or R-hat and ESS are too
# noisy to be trusted. With 400, each half of four chains has 50. More chains do not
# need more.
MAX_R_HAT = 1.01
MIN_ESS = 400
# If a network's energy error has a standard deviation of one nat, 48 % of its proposals
# are accepted (with normal errors and independent proposals). With fewer, most of the
# densities are evaluated for nothing.
MIN_DELAYED_ACCEPTANCE = 0.5
# A chain that accepts 30 % stays in place for so long by chance only once in about 10⁸
# draws.
MAX_RUN_WITHOUT_MOVE = 50
# A chain is stuck if it makes less than half as many moves as the others. The count
# must also be this many of its standard deviations lower, or it may be chance.
MIN_RELATIVE_MOVES = 0.5
NUM_DEVIATIONS = 4.0
# Half a nat changes acceptance ratios by a factor of 1.6 between the start and the end
# of a run. Smaller drifts hardly show.
MAX_ENERGY_DRIFT = 0.5
# With a tenth of the draws outside, a 5 % tail may rest on extrapolation alone.
MAX_OUTSIDE_TRAINING_DATA = 0.1
# A long tree now and then is normal. If every twentieth is cut short, the step is too
# small.
MAX_DEEP_TREES = 0.05
# With a larger share, most of the work is done by the target's gradients, not the
# network's.
MAX_FALLBACKS = 0.5
# Betancourt (2016), "Diagnosing suboptimal cotangent disintegrations"; Stan's bound.
MIN_BFMI = 0.3

# Energies that are rounded to more than that, in nats, change acceptance ratios by more
# than 1 %. Float32 reaches it at 131 072.
MAX_SPACING = 0.01

# No more stuck chains than this are named, so that a warning stays short.
_CHAINS_NAMED = 8


def convergence_warnings(summary: Summary) -> Iterator[str]:
    """Warnings from R-hat and ESS."""
    table = summary.table
    if summary.num_chains < 2:
        yield "There is one chain, so R-hat cannot tell if it has converged. Run 4."
    if summary.worst_r_hat > MAX_R_HAT:
        number = int((table["r_hat"] > MAX_R_HAT).sum())
        yield (
            f"R-hat is {summary.worst_r_hat:.3f} for {table['r_hat'].idxmax()}, and "
            f"above {MAX_R_HAT} for {number} of {len(table)} variables: the chains "
            "disagree. Make more draws; if it stays, look in the trace plot for modes "
            "that only some chains visit, and start from points in all of them."
        )
    for kind, ess in (("bulk", summary.min_ess_bulk), ("tail", summary.min_ess_tail)):
        if ess < MIN_ESS:
            yield (
                f"The {kind} ESS is {ess:.0f} for {table[f'ess_{kind}'].idxmin()}; "
                f"expected {MIN_ESS} in all chains together. Make about "
                f"{math.ceil(MIN_ESS / max(ess, 1.0))} times as many draws."
            )
    if (unknown := table["ess_bulk"].isna()).any():
        yield (
            f"No ESS could be computed for {unknown.idxmax()}. Make {MIN_DRAWS} draws "
            "or more, and see that all of them are finite."
        )


def stuck_chains(posterior: Any, advice: Advice) -> Iterator[str]:
    """Warns of chains that stay at one point for long, or move far less than others.

    Args:
        posterior: the draws.
        advice: for this run.
    """
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
            f"wrong, {advice.better_network} and a start there, or {advice.stuck}."
        )


def _others_of(stuck: Iterable[int], worst: int) -> str:
    others = [str(chain) for chain in stuck if chain != worst]
    if not others:
        return ""
    names = ", ".join(others[:_CHAINS_NAMED])
    more = ", ..." if len(others) > _CHAINS_NAMED else ""
    noun = "chain is" if len(others) == 1 else "chains are"
    return f" {len(others)} more {noun} stuck ({names}{more})."


def precision_warnings(log_prob: np.ndarray | None) -> Iterator[str]:
    """Warns of log densities that are too large for their dtype.

    Args:
        log_prob: at the draws, in the dtype in which the target computes it; `None` if
            not known.
    """
    if log_prob is None or log_prob.dtype.kind != "f":
        return
    known = log_prob[np.isfinite(log_prob)]
    if not known.size:
        return
    # A few draws that are far off do not matter.
    typical = np.median(known).astype(log_prob.dtype)
    spacing = float(np.spacing(np.abs(typical)))
    if spacing <= MAX_SPACING:
        return
    if log_prob.dtype.itemsize < 8:
        remedy = (
            "Compute the log density in float64: give the state and the data (of a "
            "joint distribution, its parameters) in float64."
        )
    else:
        remedy = "Leave constants out of the log density, so that it is smaller."
    yield (
        f"Log densities are about {typical:.1e}, where {log_prob.dtype.name} has "
        f"numbers {spacing:.2g} apart; expected {MAX_SPACING} or less. Energies are "
        f"rounded to that. {remedy}"
    )


def sampler_warnings(
    summary: Summary, advice: Advice, *, is_precise: bool
) -> Iterator[str]:
    """Warnings from divergences, tree depths and BFMI.

    Args:
        summary: of the run.
        advice: for this run.
        is_precise: whether energies are precise enough for BFMI to mean anything.
    """
    if summary.divergences > 0:
        yield (
            f"{summary.divergences:.0f} of {summary.num_chains * summary.num_draws} "
            "draws diverged: the posterior may be too steep there to be explored. "
            f"{advice.divergences}"
        )
    if summary.deep_trees > MAX_DEEP_TREES:
        yield (
            f"{summary.deep_trees:.1%} of the draws were cut short at the largest tree "
            f"depth. {advice.deep_trees}"
        )
    if is_precise and summary.bfmi < MIN_BFMI:
        yield (
            f"BFMI is {summary.bfmi:.2f}, below {MIN_BFMI}: the chains change their "
            "energy slowly and may miss parts of the posterior. Reparametrise (a "
            "hierarchical model: non-centred)."
        )


def network_warnings(
    summary: Summary, attrs: dict[str, Any], advice: Advice, *, drift_is_sure: bool
) -> Iterator[str]:
    """Warnings from the fit, and from the network's errors at the draws.

    Args:
        summary: of the run.
        attrs: of the run.
        advice: for this run.
        drift_is_sure: whether the drift of the network's error is more than chance.
    """
    if not (attrs.get("fit_is_good", True) and attrs.get("fit_is_confirmed", True)):
        yield str(attrs.get("fit_message") or "The fit is poor.")
    if summary.delayed_acceptance < MIN_DELAYED_ACCEPTANCE:
        yield (
            f"The target accepted {summary.delayed_acceptance:.1%} of the network's "
            f"proposals; {MIN_DELAYED_ACCEPTANCE:.0%} or more is expected. To raise "
            f"it, {advice.better_network}, or {advice.low_acceptance}."
        )
    if drift_is_sure and abs(summary.network_energy_drift) > MAX_ENERGY_DRIFT:
        yield (
            "The network's energy error drifted by "
            f"{summary.network_energy_drift:+.2g} nats from the first to the last "
            "third of the draws: the chains move to where the network was not trained. "
            f"Make more draws, or {advice.better_network}, starting at the last draws."
        )
    if summary.outside_training_data > MAX_OUTSIDE_TRAINING_DATA:
        yield (
            f"{summary.outside_training_data:.1%} of the draws lie outside the "
            "training data, where the network extrapolates. To cover them, "
            f"{advice.better_network} and more dispersed starts."
        )
    # If all draws have true gradients, the user has asked for them.
    if MAX_FALLBACKS < summary.fallback_share < 1.0:
        yield (
            f"{summary.fallback_share:.1%} of the draws needed true gradients: the "
            f"network saves little. To improve it, {advice.better_network}."
        )


def _moved(posterior: Any) -> np.ndarray:
    """Whether a draw differs from the one before it, `[chains, draws - 1]`."""
    moved = np.zeros((posterior.sizes["chain"], posterior.sizes["draw"] - 1), bool)
    for array in posterior.transpose("chain", "draw", ...).data_vars.values():
        differs = array.to_numpy()[:, 1:] != array.to_numpy()[:, :-1]
        moved |= differs.any(axis=tuple(range(2, differs.ndim)))
    return moved
