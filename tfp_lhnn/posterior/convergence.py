"""R-hat, effective sample sizes and BFMI of any number of chains."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfp_lhnn.posterior.remedies import (
    MIN_DRAWS,
    NUM_CHAIN_GROUPS,
    is_compared_in_groups,
)
from tfp_lhnn.support.arviz_import import az

__all__ = [
    "chain_groups",
    "effective_sample_size",
    "scalar_statistics",
    "scalars",
    "smallest_bfmi",
]

# ArviZ gets about this many values of a scalar at once: it needs a hundred bytes for
# each.
_MOST_VALUES = 250_000


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

    Very many values are taken some chains at a time, and their ESS are added. Chains
    that disagree show in R-hat.

    Args:
        values: `[chains, draws]`.
        method: as ArviZ names it.
    """
    num_parts = max(1, min(values.size // _MOST_VALUES, len(values) // 4))
    parts = np.array_split(values, num_parts)
    return float(sum(az.ess(part, method=method) for part in parts))


def chain_groups(values: np.ndarray) -> np.ndarray:
    """The later half of the draws, in groups of chains that began near each other.

    Chains are ordered by the mean of the earlier half of their draws, and divided into
    groups of the same size. Chains that have forgotten where they began are then alike
    in all groups. Chains that stay where they began, as in modes of their own, are not,
    whatever their order in `values`.

    Args:
        values: `[chains, draws]`. Chains that are left over are dropped, fewer than
            there are groups.

    Returns:
        `[groups, n]`, with all chains of a group at one draw before the next draw.
    """
    size, half = len(values) // NUM_CHAIN_GROUPS, values.shape[1] // 2
    kept = values[: NUM_CHAIN_GROUPS * size]
    order = np.argsort(kept[:, :half].mean(axis=1), kind="stable")
    later = kept[order, half:].reshape(NUM_CHAIN_GROUPS, size, -1)
    return np.swapaxes(later, 1, 2).reshape(NUM_CHAIN_GROUPS, -1)


def smallest_bfmi(energy: np.ndarray) -> float:
    """Smallest BFMI of a chain, or that of all chains if R-hat compares groups.

    The smallest of very many short chains would be small by chance.

    Args:
        energy: `[chains, draws]`.
    """
    if not is_compared_in_groups(*energy.shape):
        values = az.bfmi(energy)
        known = values[np.isfinite(values)]
        return float(known.min()) if known.size else math.nan
    known = energy[np.isfinite(energy).all(axis=1)]
    change = np.mean(np.square(np.diff(known, axis=1))) if known.size else math.nan
    return float(change / np.var(known)) if known.size else math.nan


def _r_hat(values: np.ndarray) -> float:
    """R-hat of `[chains, draws]`, by the rule of `is_compared_in_groups`."""
    num_chains, num_draws = values.shape
    if num_chains < 2:
        return math.nan
    if is_compared_in_groups(num_chains, num_draws):
        # In time's order, so that R-hat sees a drift, which all groups may share.
        halves = values.T[: num_draws // 2 * 2].reshape(2, -1)
        pair = (_split_r_hat(chain_groups(values)), _split_r_hat(halves))
        return max(pair, key=lambda x: -math.inf if math.isnan(x) else x)
    # Of very many draws every k-th one tells the same.
    stride = min(-(-values.size // _MOST_VALUES), num_draws // 4)
    return float(az.rhat(values[:, ::stride]))


def _split_r_hat(values: np.ndarray) -> float:
    """R-hat of `[groups, n]`, from every k-th value of a group if there are many."""
    return float(az.rhat(values[:, :: -(-values.size // _MOST_VALUES)]))
