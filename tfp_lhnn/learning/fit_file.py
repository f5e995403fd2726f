"""A `Fit` as plain arrays, and back."""

from __future__ import annotations

import json
import os
from typing import Any

import keras
import numpy as np

from tfp_lhnn.evaluation.training_data import TrainingData
from tfp_lhnn.learning.fit_result import Fit, Round
from tfp_lhnn.network.latent_hnn import LatentHNN
from tfp_lhnn.network.training import TrainingHistory
from tfp_lhnn.support.npz_files import read_npz, write_npz

__all__ = ["fit_from_arrays", "fit_to_arrays", "load_fit", "save_fit"]

_FORMAT_VERSION = 2

_DATA_ARRAYS = ("position", "momentum", "momentum_rate", "log_prob", "trajectory")
_NUMBERS = (
    "step_size",
    "leapfrogs_per_draw",
    "num_surrogate_transitions",
    "num_gradients",
    "num_evaluations",
    "gradient_budget",
    "energy_error",
    "acceptance",
    "radius",
    "nuts_gradients_per_effective_sample",
    "is_confirmed",
    "message",
    "seconds",
)


def save_fit(path: str | os.PathLike[str], fit: Fit) -> None:
    """Writes a fit to exactly `path`, all or nothing."""
    arrays = fit_to_arrays(fit)
    names = np.frombuffer(json.dumps(sorted(arrays)).encode(), np.uint8)
    write_npz(path, _FORMAT_VERSION, {**arrays, "names": names})


def load_fit(path: str | os.PathLike[str]) -> Fit:
    """Reads what `save_fit` wrote."""
    names = read_npz(path, _FORMAT_VERSION, ["names"], "fit")["names"]
    fields = json.loads(names.tobytes())
    return fit_from_arrays(read_npz(path, _FORMAT_VERSION, fields, "fit"))


def fit_to_arrays(fit: Fit) -> dict[str, np.ndarray]:
    """All of a fit as named arrays; text and numbers as JSON in one of them."""
    network = fit.network
    arrays = {f"data_{name}": getattr(fit.data, name) for name in _DATA_ARRAYS}
    arrays |= {f"weight_{i}": w for i, w in enumerate(network.get_weights())}
    arrays["states"] = fit.states
    arrays["held_out_potential"], arrays["held_out_error"] = fit.held_out
    rounds: list[Any] = []
    for i, one in enumerate(fit.rounds):
        history = one.history
        scalars = None
        if history is not None:
            scalars = {}
            for name, value in history._asdict().items():
                if isinstance(value, np.ndarray):
                    arrays[f"round_{i}_{name}"] = value
                else:
                    scalars[name] = value
        rounds.append({**one._asdict(), "history": scalars})
    text = json.dumps(
        {
            "network": keras.saving.serialize_keras_object(network),
            "numbers": {name: getattr(fit, name) for name in _NUMBERS},
            "data": [fit.data.num_gradients, fit.data.num_dropped],
            "rounds": rounds,
        },
        default=lambda x: x.item(),
    )
    arrays["text"] = np.frombuffer(text.encode(), np.uint8)
    return arrays


def fit_from_arrays(arrays: dict[str, np.ndarray]) -> Fit:
    """The fit that `fit_to_arrays` took apart."""
    text = json.loads(arrays["text"].tobytes())
    network = keras.saving.deserialize_keras_object(text["network"])
    assert isinstance(network, LatentHNN)
    network.set_weights(
        [arrays[f"weight_{i}"] for i in range(len(network.get_weights()))]
    )
    data = {name: arrays[f"data_{name}"] for name in _DATA_ARRAYS}
    num_gradients, num_dropped = text["data"]
    return Fit(
        network=network,
        states=arrays["states"],
        data=TrainingData(
            **data,
            position_rate=data["momentum"],
            num_gradients=num_gradients,
            num_dropped=num_dropped,
        ),
        rounds=tuple(_round(i, one, arrays) for i, one in enumerate(text["rounds"])),
        held_out=(arrays["held_out_potential"], arrays["held_out_error"]),
        **text["numbers"],
    )


def _round(index: int, fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> Round:
    scalars = fields["history"]
    history = None
    if scalars is not None:
        values: dict[str, Any] = {
            name: scalars[name] if name in scalars else arrays[f"round_{index}_{name}"]
            for name in TrainingHistory._fields
        }
        history = TrainingHistory(**values)
    return Round(**{**fields, "history": history})
