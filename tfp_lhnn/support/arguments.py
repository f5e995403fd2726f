"""Checks of arguments that many functions take, with messages that name them."""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

__all__ = [
    "check_count",
    "check_network_seed",
    "check_path",
    "checked_hidden_units",
    "checked_step_size",
    "stateless_seed",
]


def check_count(name: str, value: Any, minimum: int) -> None:
    """Raises TypeError unless `value` is an int, ValueError if below `minimum`."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise TypeError(f"`{name}` is {value!r}; expected an int.")
    if value < minimum:
        raise ValueError(f"`{name}` is {value}; expected {minimum} or more.")


def check_network_seed(seed: Any) -> None:
    """Raises TypeError or ValueError unless `seed` can seed a network's weights."""
    if seed is not None:
        check_count("seed", seed, minimum=0)


def check_path(name: str, value: Any) -> None:
    """Raises TypeError unless `value` can be a path, ValueError if it is empty."""
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"`{name}` is {value!r}; expected a path: a str or a Path.")
    if not os.fspath(value):
        raise ValueError(f"`{name}` is empty; expected a path.")


def checked_hidden_units(hidden_units: Any) -> tuple[int, ...]:
    """Returns the widths; raises TypeError or ValueError unless they are valid."""
    if isinstance(hidden_units, str) or not isinstance(hidden_units, Sequence):
        raise TypeError(
            f"`hidden_units` is {hidden_units!r}; expected one width per hidden layer."
        )
    if not hidden_units:
        raise ValueError("`hidden_units` is empty; expected one hidden layer or more.")
    for i, units in enumerate(hidden_units):
        check_count(f"hidden_units[{i}]", units, minimum=1)
    return tuple(int(units) for units in hidden_units)


def checked_step_size(step_size: Any) -> float:
    """Returns the step size; raises TypeError or ValueError unless it is valid."""
    array = _as_array(step_size)
    if array.shape != () or array.dtype.kind not in "fiu":
        raise TypeError(f"`step_size` is {step_size!r}; expected one number.")
    if not math.isfinite(array) or array <= 0:
        raise ValueError(f"`step_size` is {array}; expected a finite number above 0.")
    return float(array)


def stateless_seed(seed: Any, salt: str) -> tf.Tensor:
    """Makes a stateless seed of any seed that a user may give.

    An int becomes a pair here because TFP takes it as the seed of a *stateful* draw,
    which gives other numbers at the next call.

    Args:
      seed: An int, a pair of ints, or an integer Tensor `[2]`.
      salt: The purpose. Different purposes draw different numbers from the same seed.

    Returns:
      A seed, int32 `[2]`.

    Raises:
      TypeError: If the seed is anything else.
    """
    if isinstance(seed, numbers.Integral) and not isinstance(seed, bool):
        words = [int(seed) & 0xFFFFFFFF, (int(seed) >> 32) & 0xFFFFFFFF]
    else:
        array = _as_array(seed)
        if array.shape != (2,) or array.dtype.kind not in "iu":
            raise TypeError(
                f"`seed` is {seed!r}; expected an int, a pair of ints, or an integer "
                "Tensor of shape [2]."
            )
        words = [int(word) & 0xFFFFFFFF for word in array]
    pair = np.array(words, np.uint32).view(np.int32)
    return tfp.random.sanitize_seed(tf.constant(pair), salt=salt)


def _as_array(value: Any) -> np.ndarray:
    """The value as an array; that of `None` if it has none, like a ragged list."""
    try:
        return np.asarray(value)
    except (ValueError, TypeError, NotImplementedError):
        # NumPy raises for ragged lists, TensorFlow for a Tensor without a value.
        return np.asarray(None)
