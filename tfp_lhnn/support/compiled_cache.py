"""Things that are compiled once and used by many runs, also in different threads."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Hashable
from typing import Any

import tensorflow as tf

__all__ = ["BuildOnce", "CompiledFunction"]


class BuildOnce:
    """Keeps things that are expensive to build, and builds each of them once.

    If a thread asks for a thing that another thread is building, it waits for it.
    Threads that ask for different things do not wait for each other.

    Args:
        size: how many things to keep; those used longest ago go first. None keeps all.
    """

    def __init__(self, size: int | None = None) -> None:
        self._size = size
        self._entries: collections.OrderedDict[Hashable, _Entry] = (
            collections.OrderedDict()
        )
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Returns what is kept under a key, after building it if there is nothing yet.

        Args:
            key: what the thing depends on.
            make: builds it. If it raises, nothing is kept.
        """
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            self._entries.move_to_end(key)
            while self._size is not None and len(self._entries) > self._size:
                self._entries.popitem(last=False)
        with entry.lock:
            if not entry.is_built:
                entry.value, entry.is_built = make(), True
            return entry.value

    def values(self) -> list[Any]:
        """All things that are kept."""
        with self._lock:
            return [x.value for x in self._entries.values() if x.is_built]


class _Entry:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.value: Any = None
        self.is_built = False


class CompiledFunction:
    """A pure function of tensors, traced once for every shape of its arguments.

    `tf.function` does the same, but warns of retracing when many functions are made
    from one piece of code, as every new target does.

    Args:
        function: takes nested structures of tensors.
        jit_compile: whether XLA compiles it.
    """

    def __init__(self, function: Callable[..., Any], *, jit_compile: bool) -> None:
        self._function = tf.function(function, autograph=False, jit_compile=jit_compile)
        self._traces = BuildOnce()

    def __call__(self, *arguments: Any) -> Any:
        """Calls the function, which is traced first if such arguments are new."""
        return self.trace(*arguments)(*arguments)

    def trace(self, *arguments: Any) -> Any:
        """The concrete function for such arguments; nothing is executed.

        Args:
            *arguments: tensors, or `tf.TensorSpec`, in the structure of the arguments.
        """
        key = tuple(
            (tuple(x.shape), x.dtype)
            for x in tf.nest.flatten(arguments, expand_composites=True)
        )
        return self._traces.get(
            key, lambda: self._function.get_concrete_function(*arguments)
        )

    @property
    def num_traces(self) -> int:
        """How often the function was traced."""
        return len(self._traces.values())
