"""R-hat, effective sample sizes and BFMI of any number of chains."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfp_lhnn.support.arviz_import import az

__all__ = [
    "MIN_DRAWS",
    "chain_groups",
    "effective_sample_size",
    "evenly_spaced",
    "num_groups",
    "scalar_statistics",
    "scalars",
    "smallest_bfmi",
]

# ArviZ gives neither R-hat nor ESS for fewer.
MIN_DRAWS = 4
# R-hat compares chains one by one. That needs many effective draws of each chain. With
# very many chains, short ones suffice. Those are compared in groups, as Margossian et
# al. (2024), "Nested R-hat", do. There are at least four groups of four chains.
_MIN_GROUPS = 4
_MIN_GROUPED_CHAINS = 16
# R-hat of groups that agree is about 1 + (τ − 1)/n, for n draws that are worth n/τ:
# each group enters the formula as two halves. With 4 000 draws and τ = 20 that is
# 1.005, half-way to a warning. Larger groups would hide modes that few chains visit.
_GROUP_DRAWS = 4_000
# With a thousand draws or more, R-hat of single chains is below 1.01 up to τ = 10, so
# that groups are not needed.
_MIN_LONG_CHAIN = 1_000
# ArviZ gets at most about this many values of a scalar at once. It sorts them several
# times, which takes a second for ten times as many. The ESS of so many values is known
# to a few per cent.
_MOST_VALUES = 100_000


def scalars(posterior: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Names, as ArviZ has them, and values `[chains, draws]` of all scalars."""
    labeller = az.labels.BaseLabeller()
    posterior = posterior.transpose("chain", "draw", ...)
    for *key, values in az.sel_utils.xarray_var_iter(posterior, combined=True):
        yield labeller.make_label_flat(*key), np.asarray(values)


def scalar_statistics(values: np.ndarray) -> dict[str, float]:
    """Statistics of one scalar by name; NaN where they are not known.

    Args:
        values: float64, `[chains, draws]`.
    """
    row = {"mean": float(np.mean(values)), "sd": float(np.std(values, ddof=1))}
    row |= dict.fromkeys(("mcse_mean", "ess_bulk", "ess_tail", "r_hat"), math.nan)
    # ArviZ would log a line for each scalar that it refuses.
    if values.shape[1] >= MIN_DRAWS and np.isfinite(values).all():
        mean_ess = effective_sample_size(values, "mean")
        row["mcse_mean"] = row["sd"] / math.sqrt(mean_ess)
        row["ess_bulk"] = effective_sample_size(values, "bulk")
        row["ess_tail"] = effective_sample_size(values, "tail")
        row["r_hat"] = _r_hat(values)
    return row


def effective_sample_size(values: np.ndarray, method: str) -> float:
    """ArviZ's ESS.

    If there are very many values, it is computed from some of the chains, and scaled up
    to all of them. Chains that disagree show in R-hat, which looks at all chains.

    Args:
        values: `[chains, draws]`.
        method: as ArviZ names it.
    """
    most = max(_MIN_GROUPS, _MOST_VALUES // values.shape[1])
    some = values[evenly_spaced(len(values), most)]
    return float(az.ess(some, method=method)) * len(values) / len(some)


def evenly_spaced(number: int, most: int) -> np.ndarray:
    """Indices of `most` of `number` things, or of all if there are fewer.

    Args:
        number: how many there are.
        most: how many to take at most.
    """
    return np.linspace(0, number - 1, min(number, most)).round().astype(int)


def num_groups(num_chains: int, num_draws: int) -> int:
    """How many groups of chains R-hat compares; 0 if it compares chains one by one.

    Chains are grouped if they are many, and short.

    Args:
        num_chains: chains of the run.
        num_draws: draws of each.
    """
    if num_chains < _MIN_GROUPED_CHAINS or not MIN_DRAWS <= num_draws < _MIN_LONG_CHAIN:
        return 0
    number = num_chains * (num_draws // 2) // _GROUP_DRAWS
    return min(max(number, _MIN_GROUPS), _MOST_VALUES // _GROUP_DRAWS)


def chain_groups(values: np.ndarray) -> np.ndarray:
    """The later half of the draws, in groups of chains that began near each other.

    Chains are ordered by the mean of the earlier half of their draws, and divided into
    groups of the same size. Chains that have forgotten where they began are then alike
    in all groups. Chains that stay where they began, as in modes of their own, are not,
    whatever their order in `values`.

    Args:
        values: `[chains, draws]`, of chains that `num_groups` groups. If the chains
            cannot be divided evenly, the last few are left out.

    Returns:
        `[groups, n]`, with all chains of a group at one draw before the next draw.
    """
    number, half = num_groups(*values.shape), values.shape[1] // 2
    size = len(values) // number
    kept = values[: number * size]
    order = np.argsort(kept[:, :half].mean(axis=1), kind="stable")
    later = kept[order, half:].reshape(number, size, -1)
    return np.swapaxes(later, 1, 2).reshape(number, -1)


def smallest_bfmi(energy: np.ndarray) -> float:
    """Smallest BFMI of a chain; that of all chains together if R-hat compares groups.

    The smallest of very many short chains would be small by chance.

    Args:
        energy: `[chains, draws]`.
    """
    if not num_groups(*energy.shape):
        values = az.bfmi(energy)
        known = values[np.isfinite(values)]
        return float(known.min()) if known.size else math.nan
    known = energy[np.isfinite(energy).all(axis=1)]
    change = np.mean(np.square(np.diff(known, axis=1))) if known.size else math.nan
    return float(change / np.var(known)) if known.size else math.nan


def _r_hat(values: np.ndarray) -> float:
    """R-hat of `[chains, draws]`: of chains, or of groups by the rule of `num_groups`.

    That of groups is the larger of two. One compares groups of chains, and one compares
    earlier with later draws, because all groups may share a drift.
    """
    num_chains, num_draws = values.shape
    if num_chains < 2:
        return math.nan
    if num_groups(num_chains, num_draws):
        halves = values.T[: num_draws // 2 * 2].reshape(2, -1)
        return float(
            np.fmax(_thinned_r_hat(chain_groups(values)), _thinned_r_hat(halves))
        )
    return _thinned_r_hat(values)


def _thinned_r_hat(values: np.ndarray) -> float:
    """ArviZ's R-hat of `[rows, n]`; of very many values every k-th of a row."""
    stride = min(-(-values.size // _MOST_VALUES), values.shape[1] // MIN_DRAWS)
    return float(az.rhat(values[:, ::stride]))
