"""Draws and their statistics as ArviZ's `InferenceData`."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lhnn._version import __version__
from tfp_lhnn.mcmc.results import (
    LatentHNNDelayedAcceptanceStats,
    LatentHNNStats,
)
from tfp_lhnn.support.arviz_import import az

__all__ = ["to_inference_data"]

# What `bootstrap_results` of our kernels counts: no gradient and one density.
_FRESH_TALLIES = (0, 1)

_TALLIES = ("target_gradients", "target_evaluations")


def to_inference_data(
    draws: Any,
    stats: LatentHNNStats | LatentHNNDelayedAcceptanceStats,
    *,
    var_names: Sequence[str] | None = None,
    coords: Mapping[str, Any] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    warmup_draws: Any = None,
    warmup_stats: LatentHNNStats | LatentHNNDelayedAcceptanceStats | None = None,
    tallies_before: tuple[Any, Any] = _FRESH_TALLIES,
    network_energy: Any = None,
    outside_training_data: Any = None,
    attrs: Mapping[str, Any] | None = None,
) -> az.InferenceData:
    """Turns what `sample_chain` returns into ArviZ's `InferenceData`.

    `sample_stats` gets ArviZ's `diverging`, `tree_depth`, `n_steps`, `energy`, `lp`,
    `acceptance_rate`, `step_size` and `reached_max_treedepth`, and ours: `fallback`
    (true gradients were used in this draw), `target_gradients` and
    `target_evaluations` (of this draw), `delayed_acceptance_rate` (delayed acceptance
    only), and, if given, `network_energy` and `outside_training_data`.

    `tree_depth` is computed from the number of leaves, as if one tree had them all. A
    draw of several surrogate transitions has several smaller trees. If each coordinate
    has its step size, the geometric mean of them is stored.

    Arrays are viewed rather than copied wherever that is possible.

    Args:
        draws: `[draws, chains..., event...]`: a Tensor or array, a list or tuple of
            parts, a namedtuple, or a mapping of names to arrays. Without a chain
            dimension it is one chain; several are flattened to one.
        stats: what `trace_stats` traced, `[draws, chains...]`, as Tensors or arrays.
        var_names: one name for each part of draws that have none; by default `x`, or
            `x0`, `x1`, ...
        coords: coordinate values by dimension, as ArviZ takes them.
        dims: names of the event dimensions by variable, as ArviZ takes them.
        warmup_draws: as `draws`, of the warm-up.
        warmup_stats: as `stats`, of the warm-up.
        tallies_before: gradients and evaluations tallied before the first draw (of the
            warm-up, if its statistics are given), numbers or `[chains...]`. The
            default is a fresh kernel's. With `num_burnin_steps` the first draw takes on
            the cost of the burn-in, unless its tallies are given here. After a warm-up
            the tallies go on where it ended. If they are smaller than that, they
            started anew.
        network_energy: `U_θ` at the draws, `[draws, chains...]`.
        outside_training_data: whether a draw lies outside of the training data, bool
            `[draws, chains...]`.
        attrs: numbers and strings to store as attributes. They replace default
            attributes of the same name. By default, `target_gradients` and
            `target_evaluations` are the totals that the chains tallied, plus
            `fit_gradients` and `fit_evaluations` if given.

    Returns:
        Groups `posterior`, `sample_stats` and, if given, `warmup_posterior` and
        `warmup_sample_stats`; attributes with costs and versions.

    Raises:
        TypeError: if an argument has a wrong type.
        ValueError: if shapes or names do not fit together; the message names them.
    """
    batch = _Batch(stats, "stats")
    groups = {"posterior": batch.variables(draws, "draws", var_names)}
    _check_dims(dims, groups["posterior"])
    before, spent = _tallies(tallies_before), [0, 0]
    if warmup_stats is not None:
        warmup = _Batch(warmup_stats, "warmup_stats")
        if warmup.num_chains != batch.num_chains:
            raise ValueError(
                f"`warmup_stats` has {warmup.num_chains} chains; `stats` has "
                f"{batch.num_chains}."
            )
        warmup.events = batch.events
        groups["warmup_sample_stats"] = _sample_stats(warmup, before)
        before, spent = _tallies_after(warmup, batch)
    if warmup_draws is not None:
        # A warm-up without statistics may have any number of draws.
        shape = warmup if warmup_stats is not None else batch.with_draws(warmup_draws)
        groups["warmup_posterior"] = shape.variables(
            warmup_draws, "warmup_draws", var_names
        )
    groups["sample_stats"] = _sample_stats(batch, before) | {
        name: batch.array(value, name, dtype)
        for name, value, dtype in (
            ("network_energy", network_energy, None),
            ("outside_training_data", outside_training_data, bool),
        )
        if value is not None
    }
    for i, name in enumerate(_TALLIES):
        spent[i] += int(batch.field(name)[:, -1].sum())
    with warnings.catch_warnings():
        # ArviZ guesses that dimensions were mixed up. They have been checked here.
        warnings.filterwarnings("ignore", "More chains", UserWarning)
        datasets = {
            name: az.dict_to_dataset(
                group, coords=coords, dims=dims if "posterior" in name else None
            )[list(group)]  # ArviZ has put it into alphabetical order
            for name, group in groups.items()
        }
    checked = _checked_attrs(attrs or {})
    return az.InferenceData(
        **datasets, save_warmup=True, attrs=_default_attrs(checked, spent) | checked
    )


class _Batch:
    """Statistics of some draws, read as `[chains, draws]` each.

    Attributes:
        stats: as given.
        shape: draws, then the chain dimensions as the caller has them, if any.
        events: event shapes of the parts of the draws, once known.
    """

    def __init__(self, stats: Any, name: str, shape: tuple[int, ...] = ()) -> None:
        if not isinstance(stats, (LatentHNNStats, LatentHNNDelayedAcceptanceStats)):
            raise TypeError(
                f"`{name}` is a {type(stats).__name__}; expected what "
                "`tfp_lhnn.trace_stats` traced."
            )
        self.stats = stats
        self.shape = shape or np.shape(stats.target_log_prob)
        if not self.shape or 0 in self.shape:
            raise ValueError(
                f"`{name}` has log densities of shape {self.shape}; expected "
                "[draws, chains...] with one draw or more."
            )
        self.events: list[tuple[int, ...]] = []

    @property
    def num_chains(self) -> int:
        return int(np.prod(self.shape[1:], dtype=int))

    def with_draws(self, draws: Any) -> "_Batch":
        """The same chains with as many draws as the first part of `draws` has."""
        parts = _named_parts(draws, "warmup_draws", None)
        num = np.shape(next(iter(parts.values())))[:1]
        return _Batch(self.stats, "stats", (*num, *self.shape[1:]))

    def array(self, value: Any, name: str, dtype: Any = None) -> np.ndarray:
        """A value of each draw, `[chains, draws, event...]`."""
        array, rank = np.asarray(value), len(self.shape)
        flat = (self.shape[0], self.num_chains)
        if array.shape[:rank] == self.shape:
            event = array.shape[rank:]
        elif array.shape == flat:
            event = ()
        else:
            raise ValueError(
                f"`{name}` has shape {array.shape}; expected it to begin with "
                f"{self.shape}, the draws and chains of the statistics."
            )
        if dtype is bool and array.dtype != bool:
            raise TypeError(f"`{name}` is {array.dtype}; expected bool.")
        return np.swapaxes(array.reshape(*flat, *event), 0, 1)

    def field(self, name: str) -> np.ndarray:
        """A field of the statistics, `[chains, draws]`."""
        value = np.asarray(getattr(self.stats, name))
        if value.shape != self.shape:
            raise ValueError(
                f"`stats.{name}` has shape {value.shape}; expected {self.shape}, as "
                "`stats.target_log_prob` has."
            )
        return self.array(value, name)

    def variables(
        self, draws: Any, argument: str, var_names: Sequence[str] | None
    ) -> dict[str, np.ndarray]:
        """The parts of draws by name, `[chains, draws, event...]` each."""
        named = _named_parts(draws, argument, var_names)
        is_one = len(named) == 1 and not isinstance(draws, (Mapping, list, tuple))
        arrays = {
            name: self.array(part, argument if is_one else f"{argument}[{name!r}]")
            for name, part in named.items()
        }
        self.events = [array.shape[2:] for array in arrays.values()]
        return arrays

    def step_size(self) -> np.ndarray:
        """One step size for each draw, `[chains, draws]`."""
        parts = self.stats.step_size
        parts = list(parts) if isinstance(parts, (list, tuple)) else [parts]
        steps = [np.asarray(part) for part in parts]
        if len(steps) == 1 and steps[0].shape in ((), self.shape[:1]):
            # Almost always there is one for all chains. A broadcast takes no memory.
            return np.broadcast_to(steps[0], (self.num_chains, self.shape[0]))
        events = self.events if len(self.events) == len(steps) else [()] * len(steps)
        logs = [
            self._by_coordinate(np.log(step), event)
            for step, event in zip(steps, events, strict=True)
        ]
        mean = np.mean(np.concatenate(logs, axis=-1), axis=-1)
        return self.array(np.exp(mean), "step_size")

    def _by_coordinate(self, step: np.ndarray, event: tuple[int, ...]) -> np.ndarray:
        """A traced step size of one part of the state, `[*shape, coordinates]`."""
        shape = (*self.shape, *event)
        # It broadcasts with its part from the right, after the dimension of draws.
        missing = max(len(shape) - step.ndim, 0)
        aligned = step.reshape(*step.shape[:1], *([1] * missing), *step.shape[1:])
        try:
            return np.broadcast_to(aligned, shape).reshape(*self.shape, -1)
        except ValueError:
            # The step size belongs to another space than the draws. Chains share it.
            chains = [1] * (len(self.shape) - 1)
            alike = step.reshape(len(step), *chains, -1)
            return np.broadcast_to(alike, (*self.shape, alike.shape[-1]))


def _sample_stats(
    batch: _Batch, before: tuple[np.ndarray, np.ndarray]
) -> dict[str, np.ndarray]:
    """Statistics under their names in ArviZ, `[chains, draws]` each."""
    leaves = batch.field("leapfrogs_taken")
    tallies = {
        name: _of_each_draw(batch, name, start)
        for name, start in zip(_TALLIES, before, strict=True)
    }
    delayed = {}
    if isinstance(batch.stats, LatentHNNDelayedAcceptanceStats):
        fallback = batch.field("is_true_transition")
        ratio = batch.field("log_delayed_accept_ratio")
        delayed["delayed_acceptance_rate"] = np.exp(np.minimum(ratio, 0.0))
    else:
        fallback = tallies["target_gradients"] > 0
    return {
        "lp": batch.field("target_log_prob"),
        "energy": batch.field("energy"),
        "acceptance_rate": np.exp(np.minimum(batch.field("log_accept_ratio"), 0.0)),
        "step_size": batch.step_size(),
        # j doublings make 2^j - 1 leaves, or fewer if the last one stopped early.
        "tree_depth": np.ceil(np.log2(leaves + 1.0)).astype(np.int32),
        "n_steps": leaves,
        "diverging": batch.field("has_divergence"),
        "reached_max_treedepth": batch.field("reach_max_depth"),
        "fallback": fallback,
        **tallies,
        **delayed,
    }


def _of_each_draw(batch: _Batch, name: str, before: np.ndarray) -> np.ndarray:
    """Differences of a cumulative tally, `[chains, draws]`."""
    tally = batch.field(name)
    first = before.ravel().astype(tally.dtype)
    if first.size not in (1, batch.num_chains):
        raise ValueError(
            f"`tallies_before` has {name} for {first.size} chains; expected one number "
            f"or {batch.num_chains}."
        )
    first = np.broadcast_to(first, [batch.num_chains])
    differences = np.diff(tally, axis=1, prepend=first[:, np.newaxis])
    if differences.min() < 0:
        raise ValueError(
            f"`stats.{name}` falls by {-differences.min()} from a draw to the next, or "
            "from `tallies_before` to the first; expected a cumulative tally."
        )
    return differences


def _tallies(pair: Any) -> tuple[np.ndarray, np.ndarray]:
    """The argument `tallies_before`, checked."""
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise TypeError(
            f"`tallies_before` is {pair!r}; expected a pair: gradients, evaluations."
        )
    gradients, evaluations = (np.asarray(value) for value in pair)
    for array in (gradients, evaluations):
        if array.dtype.kind not in "iu":
            raise TypeError(f"`tallies_before` has {array.dtype}; expected integers.")
    return gradients, evaluations


def _tallies_after(
    warmup: _Batch, batch: _Batch
) -> tuple[tuple[np.ndarray, np.ndarray], list[int]]:
    """Tallies before the first draw after a warm-up, and those a restart wiped out."""
    last = [warmup.field(name)[:, -1] for name in _TALLIES]
    first = [batch.field(name)[:, 0] for name in _TALLIES]
    if all((a <= b).all() for a, b in zip(last, first, strict=True)):
        return (last[0], last[1]), [0, 0]
    return _tallies(_FRESH_TALLIES), [int(tally.sum()) for tally in last]


def _named_parts(
    draws: Any, argument: str, var_names: Sequence[str] | None
) -> dict[str, Any]:
    """The parts of draws by name."""
    if isinstance(draws, Mapping):
        named = dict(draws)
    elif hasattr(draws, "_fields"):
        named = dict(zip(draws._fields, draws, strict=True))
    else:
        parts = list(draws) if isinstance(draws, (list, tuple)) else [draws]
        if isinstance(var_names, str):
            raise TypeError(
                f"`var_names` is {var_names!r}; expected a sequence of str."
            )
        if var_names is None:
            is_list = isinstance(draws, (list, tuple))
            names = [f"x{i}" for i in range(len(parts))] if is_list else ["x"]
        else:
            names = list(var_names)
        if len(names) != len(parts) or len(set(names)) != len(names):
            raise ValueError(
                f"`var_names` is {names}; expected {len(parts)} different names, one "
                f"for each part of `{argument}`."
            )
        return dict(zip(names, parts, strict=True))
    if var_names is not None and list(var_names) != list(named):
        raise ValueError(
            f"`var_names` is {list(var_names)}, but `{argument}` has the names "
            f"{list(named)}; expected None."
        )
    if not named:
        raise ValueError(f"`{argument}` is empty; expected one variable or more.")
    return named


def _check_dims(dims: Mapping[str, Any] | None, variables: Mapping[str, Any]) -> None:
    unknown = [name for name in dims or {} if name not in variables]
    if unknown:
        raise ValueError(
            f"`dims` is for {', '.join(unknown)}; the draws have "
            f"{', '.join(variables)}."
        )


def _default_attrs(attrs: Mapping[str, Any], spent: list[int]) -> dict[str, Any]:
    gradients, evaluations = spent
    return {
        "target_gradients": gradients + attrs.get("fit_gradients", 0),
        "target_evaluations": evaluations + attrs.get("fit_evaluations", 0),
        "inference_library": "tfp_lhnn",
        "inference_library_version": __version__,
        "tfp_lhnn_version": __version__,
        "tensorflow_version": tf.__version__,
        "tensorflow_probability_version": tfp.__version__,
        "keras_version": keras.__version__,
        "numpy_version": np.__version__,
        "arviz_version": az.__version__,
    }


def _checked_attrs(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as netCDF takes them; those that are None are left out."""
    checked: dict[str, Any] = {}
    for name, value in attrs.items():
        if value is None:
            continue
        if isinstance(value, np.generic) or (
            isinstance(value, (np.ndarray, tf.Tensor)) and np.ndim(value) == 0
        ):
            value = np.asarray(value).item()
        if isinstance(value, bool):
            checked[name] = int(value)  # NetCDF has no truth values.
        elif isinstance(value, (str, int, float)):
            checked[name] = value
        else:
            raise TypeError(
                f"`attrs[{name!r}]` is a {type(value).__name__}; expected a number or "
                "a string."
            )
    return checked
