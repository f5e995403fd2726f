"""Chains of TFP kernels, compiled once for chunks of draws."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from benchmarks.scripts import compiled_chunk

__all__ = ["Advance", "Chain"]

_CHUNK = 50


class Advance(NamedTuple):
    """Draws of one phase.

    Attributes:
        draws: `[chains, draws, dim]`.
        trace: `[draws, ...]`, by name.
        seconds: without compilation.
    """

    draws: np.ndarray
    trace: dict[str, np.ndarray]
    seconds: float


class Chain:
    """Chains that can be continued, and the seconds that they took.

    The first call compiles. The time by which it exceeds the median of the other calls
    of its phase is called compilation.

    Args:
        kernel: what to run.
        state: `[chains, dim]`.
        trace_fn: of state and results, to arrays by name.
        chunk: draws of one call.

    Attributes:
        compiling: seconds.
    """

    def __init__(
        self,
        kernel: tfp.mcmc.TransitionKernel,
        state: tf.Tensor,
        trace_fn: Callable[[Any, Any], dict[str, tf.Tensor]],
        chunk: int = _CHUNK,
    ) -> None:
        @tf.function(jit_compile=True, autograph=False)
        def bootstrap(state: tf.Tensor) -> Any:
            return kernel.bootstrap_results(state)

        self._chunk = chunk
        self._is_compiled = False
        self._advance = compiled_chunk(kernel, chunk, trace_fn)
        began = time.perf_counter()
        self._state, self._results = state, bootstrap(state)
        self.compiling = time.perf_counter() - began

    def advance(self, num_draws: int, seed: int) -> Advance:
        """Draws `num_draws`, rounded up to whole chunks; none is thrown away."""
        draws, traces, times = [], [], []
        for i in range(-(-num_draws // self._chunk)):
            began = time.perf_counter()
            states, trace, self._results = self._advance(
                self._state, self._results, tf.constant([seed, i])
            )
            self._state = states[-1]
            draws.append(states.numpy())
            traces.append({name: value.numpy() for name, value in trace.items()})
            times.append(time.perf_counter() - began)
        if not self._is_compiled:
            self._is_compiled = True
            usual = float(np.median(times[1:])) if len(times) > 1 else 0.0
            compiling = max(0.0, times[0] - usual)
            self.compiling += compiling
            times[0] -= compiling
        return Advance(
            np.concatenate(draws).swapaxes(0, 1),
            {name: np.concatenate([t[name] for t in traces]) for name in traces[0]},
            sum(times),
        )
