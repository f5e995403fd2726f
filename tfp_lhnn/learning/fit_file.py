"""The fields of a `Fit` as plain arrays, and back."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfp_lhnn.evaluation.training_data import TrainingData
from tfp_lhnn.learning.network_arrays import network_from_arrays, network_settings
from tfp_lhnn.learning.round import Round
from tfp_lhnn.network.training import TrainingHistory
from tfp_lhnn.support.npz_files import read_npz, write_npz

__all__ = ["fit_from_arrays", "fit_to_arrays", "load_fit", "save_fit"]

# Raised when the meaning of a field changes, so that old files are refused by name.
_FORMAT_VERSION = 3

# A fit chooses a few dozen at most.
_MOST_TRANSITIONS = 10_000
# Counts are stored with the posterior, whose files have no larger integers.
_LARGEST_COUNT = int(np.iinfo(np.int64).max)

_DATA_ARRAYS = ("position", "momentum", "momentum_rate", "log_prob", "trajectory")
_CURVES = (
    "step",
    "gradient_loss",
    "value_loss",
    "held_out_gradient_error",
    "held_out_energy_error",
)
# Fields of `Fit` that hold no arrays, with their types.
_FIT_VALUES: dict[str, type] = {
    "step_size": float,
    "leapfrogs_per_draw": float,
    "num_surrogate_transitions": int,
    "num_gradients": int,
    "num_evaluations": int,
    "gradient_budget": int,
    "energy_error": float,
    "acceptance": float,
    "radius": float,
    "nuts_gradients_per_effective_sample": float,
    "is_confirmed": bool,
    "message": str,
    "seconds": float,
}
_ROUND_VALUES: dict[str, type] = {
    "kind": str,
    "num_gradients": int,
    "num_points": int,
    "energy_error": float,
    "acceptance": float,
    "tail_acceptance": float,
    "step_size": float,
    "seconds": float,
}
_HISTORY_VALUES: dict[str, type] = {
    "energy_error": float,
    "gradient_error": float,
    "base_energy_error": float,
    "selected": str,
    "num_steps": int,
    "seconds": float,
}
_DATA_VALUES: dict[str, type] = {"num_gradients": int, "num_dropped": int}


def save_fit(path: str | os.PathLike[str], fields: Mapping[str, Any]) -> None:
    """Writes a fit to exactly `path`, all or nothing.

    Args:
        path: the file.
        fields: of `Fit`, by name.
    """
    write_npz(path, _FORMAT_VERSION, fit_to_arrays(fields))


def load_fit(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads what `save_fit` wrote.

    Args:
        path: the file.

    Returns:
        The fields of `Fit`, by name.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is damaged, foreign, or of another version.
    """
    arrays = read_npz(path, _FORMAT_VERSION, None, "fit")
    try:
        return fit_from_arrays(arrays)
    except ValueError as error:
        raise ValueError(f"{path} is not a fit file: {error}") from error


def fit_to_arrays(fields: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """All of a fit as named arrays. One of them holds text and numbers as JSON.

    Args:
        fields: of `Fit`, by name.

    Raises:
        ValueError: if the network's activation has no name.
    """
    data, network = fields["data"], fields["network"]
    arrays = {f"data_{name}": getattr(data, name) for name in _DATA_ARRAYS}
    arrays |= {f"weight_{i}": w for i, w in enumerate(network.get_weights())}
    arrays["states"] = fields["states"]
    arrays["held_out_potential"], arrays["held_out_error"] = fields["held_out"]
    rounds = []
    for i, one in enumerate(fields["rounds"]):
        rounds.append({**_taken(one._asdict(), _ROUND_VALUES), "history": None})
        if one.history is not None:
            curves = one.history._asdict()
            arrays |= {f"round_{i}_{name}": curves[name] for name in _CURVES}
            rounds[-1]["history"] = _taken(curves, _HISTORY_VALUES)
    text = json.dumps(
        {
            "network": network_settings(network),
            "values": _taken(fields, _FIT_VALUES),
            "data": _taken(vars(data), _DATA_VALUES),
            "rounds": rounds,
        }
    )
    arrays["text"] = np.frombuffer(text.encode(), np.uint8)
    return arrays


def fit_from_arrays(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Puts together the fields of a fit.

    Args:
        arrays: by name, as `fit_to_arrays` made them. They may come from anybody.

    Returns:
        The fields of `Fit`, by name.

    Raises:
        ValueError: if something is missing, of the wrong type or shape, or does not go
            with the rest.
    """
    text = _parsed(_array(arrays, "text"))
    count = sum(name.startswith("weight_") for name in arrays)
    weights = [_array(arrays, f"weight_{i}") for i in range(count)]
    network = network_from_arrays(text.get("network"), weights)
    values = _values(text.get("values"), _FIT_VALUES, "values")
    _check_ranges(values)
    rounds = text.get("rounds")
    if not isinstance(rounds, list):
        raise ValueError("`rounds` is no list.")
    return {
        "network": network,
        "states": _states(arrays, network.dim),
        "data": _data(text.get("data"), arrays, network.dim),
        "rounds": tuple(_round(i, one, arrays) for i, one in enumerate(rounds)),
        "held_out": _curves(arrays, ("held_out_potential", "held_out_error")),
        **values,
    }


def _check_ranges(values: Mapping[str, Any]) -> None:
    """Refuses what a sampler could not run with, or would run with for ever."""
    step_size, number = values["step_size"], values["num_surrogate_transitions"]
    if not (math.isfinite(step_size) and step_size > 0.0):
        raise ValueError(f"`step_size` is {step_size}; expected a number above 0.")
    if not 1 <= number <= _MOST_TRANSITIONS:
        raise ValueError(
            f"`num_surrogate_transitions` is {number}; expected 1 to "
            f"{_MOST_TRANSITIONS}."
        )
    for name in ("num_gradients", "num_evaluations", "gradient_budget"):
        if not 0 <= values[name] <= _LARGEST_COUNT:
            raise ValueError(f"`{name}` is {values[name]}; expected a count.")


def _parsed(text: np.ndarray) -> dict[str, Any]:
    try:
        parsed = json.loads(text.tobytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"`text` is no JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise ValueError("`text` is no dictionary.")
    return parsed


def _array(arrays: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    if name not in arrays:
        raise ValueError(f"there is no `{name}`.")
    return arrays[name]


def _taken(fields: Mapping[str, Any], types: Mapping[str, type]) -> dict[str, Any]:
    """These fields in Python's own types, which JSON gives back as they are."""
    return {name: kind(fields[name]) for name, kind in types.items()}


def _values(found: Any, types: Mapping[str, type], name: str) -> dict[str, Any]:
    """The values of these types and no others, from a dictionary."""
    if not isinstance(found, dict):
        raise ValueError(f"`{name}` is a {type(found).__name__}; expected values.")
    for key, kind in types.items():
        # `isinstance` would take a bool for a number.
        if type(found.get(key)) is not kind:
            raise ValueError(
                f"`{name}` has `{key}` = {found.get(key)!r}; expected {kind.__name__}."
            )
    return {key: found[key] for key in types}


def _states(arrays: Mapping[str, np.ndarray], dim: int) -> np.ndarray:
    states = _array(arrays, "states")
    is_matrix = states.ndim == 2 and len(states) > 0 and states.shape[1] == dim
    if not is_matrix or states.dtype.kind != "f" or not np.isfinite(states).all():
        raise ValueError(
            f"`states` is {states.dtype} of shape {states.shape}; expected finite "
            f"floats, [chains, {dim}] as the network has it."
        )
    return states


def _data(values: Any, arrays: Mapping[str, np.ndarray], dim: int) -> TrainingData:
    found: dict[str, Any] = {
        name: _array(arrays, f"data_{name}") for name in _DATA_ARRAYS
    }
    try:
        data = TrainingData(
            **found,
            position_rate=found["momentum"],
            **_values(values, _DATA_VALUES, "data"),
        )
    except TypeError as error:
        raise ValueError(f"bad `data`: {error}") from error
    if data.dim != dim:
        raise ValueError(f"`data` has {data.dim} dimensions; the network has {dim}.")
    return data


def _curves(
    arrays: Mapping[str, np.ndarray], names: tuple[str, ...]
) -> tuple[np.ndarray, ...]:
    """Arrays with one entry for each of the same points."""
    curves = tuple(_array(arrays, name) for name in names)
    for name, curve in zip(names, curves, strict=True):
        is_number = curve.dtype.kind in "fi"
        if curve.ndim != 1 or curve.shape != curves[0].shape or not is_number:
            raise ValueError(
                f"`{name}` is {curve.dtype} of shape {curve.shape}; expected numbers, "
                f"[n], as many as `{names[0]}`."
            )
    return curves


def _round(index: int, found: Any, arrays: Mapping[str, np.ndarray]) -> Round:
    name = f"round {index}"
    values = _values(found, _ROUND_VALUES, name)
    history = None
    if found.get("history") is not None:
        fields = _values(found["history"], _HISTORY_VALUES, f"history of {name}")
        curves = _curves(arrays, tuple(f"round_{index}_{curve}" for curve in _CURVES))
        fields |= zip(_CURVES, curves, strict=True)
        history = TrainingHistory(**fields)
    return Round(**values, history=history)
