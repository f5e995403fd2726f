"""A network as plain values and arrays, and back, without Keras' own files."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from tfp_lhnn.network.activations import sine
from tfp_lhnn.network.latent_hnn import LARGEST_DENSE_DIM, LatentHNN

__all__ = ["network_from_arrays", "network_settings"]

_SETTINGS: dict[str, tuple[type, ...]] = {
    "dim": (int,),
    "hidden_units": (list,),
    "activation": (str,),
    "separable": (bool,),
    "base": (str,),
    "dtype": (str,),
    "seed": (int, type(None)),
}

# Names in Keras' module of activations that are no activations.
_NO_ACTIVATIONS = ("deserialize", "get", "serialize")


def network_settings(network: LatentHNN) -> dict[str, Any]:
    """What it takes to make such a network again, as values that JSON has.

    Args:
        network: the network; its weights are not in it.

    Raises:
        ValueError: if its activation is a function that Keras has no name for.
    """
    return {
        "dim": network.dim,
        "hidden_units": list(network.hidden_units),
        "activation": _activation_name(network.activation),
        "separable": network.separable,
        "base": network.base,
        "dtype": network.dtype_policy.name,
        "seed": network.seed,
    }


def network_from_arrays(
    settings: Any, weights: Sequence[np.ndarray], name: str = "network"
) -> LatentHNN:
    """Makes a network of settings and weights, which may come from anybody.

    Args:
        settings: of `network_settings`.
        weights: of `network.get_weights`.
        name: what to call it in messages.

    Raises:
        ValueError: if a setting is missing or not possible, or weights do not fit.
    """
    if not isinstance(settings, dict):
        raise ValueError(f"`{name}` is a {type(settings).__name__}; expected settings.")
    for key, types in _SETTINGS.items():
        # `isinstance` would take a bool for a number.
        if key not in settings or type(settings[key]) not in types:
            raise ValueError(f"`{name}` has no valid `{key}`.")
    if not all(type(units) is int for units in settings["hidden_units"]):
        raise ValueError(f"`{name}` has `hidden_units` that are no integers.")
    _check_size(settings, weights, name)
    known = {key: settings[key] for key in _SETTINGS}
    try:
        network = LatentHNN(
            **known | {"activation": _activation(settings["activation"])}
        )
    except TypeError as error:
        raise ValueError(f"`{name}` cannot be made: {error}") from error
    _set_weights(network, weights, name)
    return network


def _check_size(
    settings: Mapping[str, Any], weights: Sequence[np.ndarray], name: str
) -> None:
    """Refuses settings of a network larger than its weights, before it is made."""
    dim, separable = settings["dim"], settings["separable"]
    widths = [dim if separable else 2 * dim, *settings["hidden_units"], dim]
    is_dense = settings["base"] == "dense" or (
        settings["base"] == "auto" and dim <= LARGEST_DENSE_DIM
    )
    least = sum(a * b for a, b in itertools.pairwise(widths))
    least += dim**2 if separable and is_dense else 0
    stored = sum(weight.size for weight in weights)
    if stored < least or len(weights) < len(widths) - 1:
        raise ValueError(
            f"`{name}` has {stored} weights in {len(weights)} arrays; its settings "
            f"need {least} or more in {len(widths) - 1} or more."
        )


def _set_weights(network: LatentHNN, weights: Sequence[np.ndarray], name: str) -> None:
    variables = network.weights
    if len(weights) != len(variables):
        raise ValueError(
            f"`{name}` has {len(weights)} arrays of weights; expected {len(variables)}."
        )
    for i, (weight, variable) in enumerate(zip(weights, variables, strict=True)):
        shape, dtype = tuple(variable.shape), variable.dtype
        if weight.shape != shape or weight.dtype != dtype:
            raise ValueError(
                f"`weight_{i}` is {weight.dtype} of shape {weight.shape}; the "
                f"{variable.name} of this network is {dtype} of shape {shape}."
            )
        if not np.isfinite(weight).all():
            raise ValueError(f"`weight_{i}` has numbers that are not finite.")
    network.set_weights(weights)


def _activation_name(activation: Callable[..., Any]) -> str:
    if activation is sine:
        return "sine"
    name = getattr(activation, "__name__", None)
    if isinstance(name, str) and _built_in(name) is activation:
        return name
    # Keras asks for its name, which an object that is no function does not have.
    registered = keras.saving.get_registered_name(activation) if name else ""
    if keras.saving.get_registered_object(registered) is not activation:
        raise ValueError(
            f"the activation {activation!r} has no name by which it could be found "
            "again; register it by `keras.saving.register_keras_serializable`."
        )
    return registered


def _activation(name: str) -> Callable[..., Any]:
    """The function of that name: ours, Keras', or one that the user registered."""
    found = sine if name == "sine" else _built_in(name)
    if found is None:
        found = keras.saving.get_registered_object(name)
    # Classes are registered too; to call one would make a layer.
    if not callable(found) or isinstance(found, type):
        raise ValueError(
            f"the activation {name!r} is not known here; define it and register it by "
            "`keras.saving.register_keras_serializable` before loading."
        )
    return found


def _built_in(name: str) -> Callable[..., Any] | None:
    if name.startswith("_") or name in _NO_ACTIVATIONS:
        return None
    return getattr(keras.activations, name, None)
