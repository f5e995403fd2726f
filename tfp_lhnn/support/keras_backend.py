"""Checks, when it is imported, that Keras runs on TensorFlow.

The package imports this file first. Otherwise another backend fails somewhere inside
Keras or TensorFlow Probability, with a message that does not name the cause.
"""

import os
import sys

__all__: list[str] = []

_ADVICE = (
    "tfp_lhnn needs Keras on TensorFlow: set the environment variable KERAS_BACKEND to "
    '"tensorflow" before Keras is imported, or unset it and see "backend" in Keras\' '
    "file keras.json."
)


def _refuse(backend: str, source: str) -> None:
    if backend != "tensorflow":
        raise ImportError(f"{source} is {backend!r}. {_ADVICE}")


if "keras" not in sys.modules:
    # Keras would import the backend, which need not be installed.
    _refuse(os.environ.get("KERAS_BACKEND") or "tensorflow", "KERAS_BACKEND")
try:
    import keras
except ImportError as error:
    error.add_note(_ADVICE)
    raise
_refuse(keras.config.backend(), "the backend of Keras")
