"""The target as compiled functions, which later runs of the same density use again.

Compiling a target costs seconds, running it often less. A second `fit` or `sample` of
the same density in a process finds its functions here.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lhnn.model.model import Model
from tfp_lhnn.support.compiled_cache import BuildOnce, CompiledFunction

__all__ = ["BLOCK", "CompiledTarget", "compiled_target"]

# Points evaluated in one call: enough to fill vector units, few enough to spend a
# budget block by block.
BLOCK = 16

_MODELS_KEPT = 4


class CompiledTarget:
    """The compiled functions of one density. Many runs may share it.

    Args:
        model: its density is compiled; its initial states play no part.
        jit_compile: whether XLA compiles.

    Attributes:
        log_prob: the density, not compiled, `[n, dim] -> [n]`.
        jit_compile: whether XLA compiles.
        dtype: of positions.
        dim: number of coordinates.
    """

    def __init__(self, model: Model, jit_compile: bool) -> None:
        self.log_prob: Callable[[tf.Tensor], tf.Tensor] = model.log_prob
        self.jit_compile = jit_compile
        self.dtype = model.dtype
        self.dim = model.dim
        self._compiled = BuildOnce()
        self._value_and_gradient = CompiledFunction(
            lambda q: tfp.math.value_and_gradient(model.log_prob, q),
            jit_compile=jit_compile,
        )

    def compiled(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Something compiled from this target, made once for each key.

        Args:
            key: identifies it among the things compiled from this target.
            make: makes it.
        """
        return self._compiled.get(key, make)

    def evaluate(self, position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log density and its gradient at points, `[n, dim] -> [n]`, `[n, dim]`.

        Args:
            position: all in one call. Every new `n` is compiled.
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
        # For one point, `tf.vectorized_map` makes a sparse gradient.
        return value.numpy(), tf.convert_to_tensor(gradient).numpy()


class _Kept(NamedTuple):
    """A compiled target, and the values by which its density is recognised."""

    target: CompiledTarget
    probe: np.ndarray


class _Identity:
    """A key equal to itself only, for things that have no hash or a slow one."""

    def __init__(self, thing: Any) -> None:
        self._thing = thing  # Kept alive, so that no other thing gets its id.

    def __hash__(self) -> int:
        return id(self._thing)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self._thing is other._thing


_kept: collections.OrderedDict[Hashable, _Kept] = collections.OrderedDict()
_lock = threading.Lock()


def compiled_target(
    model: Model, probe: np.ndarray, pins: Mapping[str, Any], jit_compile: bool
) -> CompiledTarget:
    """The functions of a model, reused if it was among the last few models.

    A graph keeps the values that the density read when it was traced, such as globals,
    attributes and arrays. Functions are therefore reused only if the density, evaluated
    afresh, has exactly the values that it had then. A target whose values differ from
    call to call is compiled anew each time.

    Args:
        model: made of `model.source` and `pins`.
        probe: `model.probe()`, evaluated just now.
        pins: the objects themselves; equal values in other arrays make another model.
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
    with _lock:
        kept = _kept.get(key)
        if kept is None or not np.array_equal(kept.probe, probe, equal_nan=True):
            kept = _kept[key] = _Kept(CompiledTarget(model, jit_compile), probe)
            while len(_kept) > _MODELS_KEPT:
                _kept.popitem(last=False)
        _kept.move_to_end(key)
    return kept.target
