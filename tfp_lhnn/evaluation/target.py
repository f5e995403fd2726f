"""A model's density in compiled functions, kept for the next call with the same model.

Compiling a target costs seconds, running it often less. A second `fit` or `sample` of
the same model in a process finds its functions here.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lhnn.model.model import Model

__all__ = ["BLOCK", "CompiledTarget", "compiled_target"]

# Points evaluated in one call: enough to fill vector units, few enough to be spent one
# block at a time.
BLOCK = 32

_MODELS_KEPT = 4


class CompiledTarget:
    """The compiled functions of one model.

    Args:
        model: its density is compiled; its initial states play no part.
        jit_compile: whether XLA compiles.

    Attributes:
        log_prob: the density, not compiled, `[n, dim] -> [n]`.
        jit_compile: whether XLA compiles.
        dtype: of positions.
        samplers: compiled samplers by their settings; see `sampling`.
    """

    def __init__(self, model: Model, jit_compile: bool) -> None:
        self.log_prob: Callable[[tf.Tensor], tf.Tensor] = model.log_prob
        self.jit_compile = jit_compile
        self.dtype = model.dtype
        self.dim = model.dim
        self._compiled: dict[Any, Any] = {}
        self.samplers: dict[Any, Any] = {}
        self._value_and_gradient = tf.function(
            lambda q: tfp.math.value_and_gradient(model.log_prob, q),
            jit_compile=jit_compile,
            autograph=False,
        )

    def compiled(self, name: str, make: Callable[[], Any]) -> Any:
        """What `make` compiles of this target, made once."""
        if name not in self._compiled:
            self._compiled[name] = make()
        return self._compiled[name]

    def evaluate(self, position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log density and its gradient at points, `[n, dim] -> [n]`, `[n, dim]`.

        Args:
            position: all in one call; the fewer different `n` there are, the better.
        """
        try:
            value, gradient = self._value_and_gradient(
                tf.constant(position, self.dtype)
            )
        except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError) as error:
            if self.jit_compile:
                error.add_note(
                    "If XLA cannot take the target, pass `jit_compile=False`."
                )
            raise
        return value.numpy(), gradient.numpy()


class _Identity:
    """Equal to itself only, for keys of things that have no hash or a slow one."""

    def __init__(self, thing: Any) -> None:
        self._thing = thing  # Kept alive, so that no other gets its id.

    def __hash__(self) -> int:
        return id(self._thing)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self._thing is other._thing


_kept: collections.OrderedDict[Any, CompiledTarget] = collections.OrderedDict()


def compiled_target(
    model: Model, pins: Mapping[str, Any], jit_compile: bool
) -> CompiledTarget:
    """The functions of a model, from the last few models if they are there.

    Args:
        model: made of `model.source` and `pins`.
        pins: the very objects; equal values in other arrays are another model.
        jit_compile: whether XLA compiles.
    """
    # A bound method is a new object each time, but equal to the last.
    source = model.source if callable(model.source) else _Identity(model.source)
    try:
        hash(source)
    except TypeError:
        source = _Identity(source)
    key = (
        source,
        tuple((name, _Identity(pins[name])) for name in sorted(pins)),
        tuple(model.shapes.items()),
        model.dtype,
        jit_compile,
    )
    if key not in _kept:
        _kept[key] = CompiledTarget(model, jit_compile)
        while len(_kept) > _MODELS_KEPT:
            _kept.popitem(last=False)
    _kept.move_to_end(key)
    return _kept[key]
