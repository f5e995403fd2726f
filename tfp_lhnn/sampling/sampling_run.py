"""One run of `sample`: compiled chunks of draws, put together as they come."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lhnn.evaluation.target import CompiledTarget
from tfp_lhnn.learning.fit_result import Fit
from tfp_lhnn.model.model import Model
from tfp_lhnn.network.fixed_network import NetworkForm
from tfp_lhnn.network.latent_hnn import LatentHNN
from tfp_lhnn.posterior.inference_data import to_inference_data
from tfp_lhnn.sampling.checkpoint import Checkpoint
from tfp_lhnn.sampling.chunk_sampler import (
    Chunk,
    ChunkSampler,
    compiled_sampler,
)
from tfp_lhnn.sampling.compiled_sampler import SamplerSettings
from tfp_lhnn.support.arviz_import import az
from tfp_lhnn.support.progress import ProgressReporter

__all__ = ["Plan", "SamplingRun", "compiling_meanwhile", "sampler_settings"]

# A run has about fifty chunks, and reports progress after each. Chunks are not so small
# that calls cost more than draws, nor so large that a crash loses much.
_CHUNKS = 50
_CHUNK_SIZES = (10, 1000)

_TREE_DEPTH = 10
# True transitions, which only a poor fit needs, have shorter trajectories.
_TRUE_TREE_DEPTH = 6


class Plan(NamedTuple):
    """What a run is to draw.

    Attributes:
        num_draws: of each chain, including the burn-in.
        num_burnin_draws: how many of them are burn-in.
        settings: of the compiled sampler.
        is_true: which draws are made with true gradients, `[num_draws]` bool.
    """

    num_draws: int
    num_burnin_draws: int
    settings: SamplerSettings
    is_true: np.ndarray

    @classmethod
    def of(
        cls,
        n_draws: int,
        num_burnin_draws: int,
        n_chains: int,
        method: str,
        budget: int,
        fit: Fit,
        is_own: bool,
    ) -> Plan:
        """The plan of a run.

        Args:
            n_draws: of each chain, without the burn-in.
            num_burnin_draws: of each chain.
            n_chains: number of chains.
            method: `"delayed_acceptance"` or `"nuts"`.
            budget: the largest number of true gradients, of all chains and phases.
            fit: what was learned.
            is_own: whether this run has paid for the fit.
        """
        number = n_draws + num_burnin_draws
        is_true = np.zeros(number, bool)
        if method == "delayed_acceptance" and not fit.is_good:
            left = budget - (fit.num_gradients if is_own else 0)
            # A draw may need the start and every leaf of the deepest tree, so the
            # budget holds whatever trees are grown. Which draws use true gradients is
            # fixed before the first one, so it does not depend on any state.
            affordable = left // (n_chains * 2**_TRUE_TREE_DEPTH)
            count = min(number, affordable)
            is_true[np.linspace(0, number, count, endpoint=False).astype(int)] = True
        depth = _TRUE_TREE_DEPTH if np.any(is_true) else 0
        settings = sampler_settings(number, n_chains, method, depth)
        return cls(number, num_burnin_draws, settings, is_true)


def sampler_settings(
    num_draws: int, n_chains: int, method: str, true_tree_depth: int = 0
) -> SamplerSettings:
    """Settings of the compiled sampler for a run of `num_draws`, including the burn-in.

    Args:
        num_draws: of each chain.
        n_chains: number of chains.
        method: `"delayed_acceptance"` or `"nuts"`.
        true_tree_depth: of trees on true gradients, which only a poor fit needs.
    """
    size = int(np.clip(num_draws // _CHUNKS, *_CHUNK_SIZES))
    return SamplerSettings(
        method, n_chains, min(size, num_draws), _TREE_DEPTH, true_tree_depth
    )


@contextlib.contextmanager
def compiling_meanwhile(
    target: CompiledTarget, network: LatentHNN, settings: SamplerSettings
) -> Iterator[None]:
    """Compiles the sampler while the body of the `with` block runs.

    Errors are ignored here, since they occur again when the sampler is used.
    """
    if not target.jit_compile:
        # There is little to compile, and the target may not expect threads.
        yield
        return

    def work() -> None:
        with contextlib.suppress(Exception):
            compiled_sampler(target, NetworkForm.of(network), settings).compile()

    thread = threading.Thread(target=work, name="tfp_lhnn-compile")
    thread.start()
    try:
        yield
    finally:
        thread.join()


class _Draws(NamedTuple):
    """All draws, `[draws, chains, ...]`, filled chunk by chunk.

    Attributes:
        position: flat and unconstrained.
        network_energy: `U_θ` there.
        is_outside: whether they lie outside of the training data.
        stats: of `trace_stats`.
    """

    position: np.ndarray
    network_energy: np.ndarray
    is_outside: np.ndarray
    stats: Any


class SamplingRun:
    """Sampling, from a fit to the posterior."""

    def __init__(
        self,
        model: Model,
        target: CompiledTarget,
        fit: Fit,
        is_own_fit: bool,
        plan: Plan,
        seed: tf.Tensor,
        store: Checkpoint | None,
        reporter: ProgressReporter,
    ) -> None:
        self._model = model
        self._fit = fit
        self._is_own_fit = is_own_fit
        self._plan = plan
        self._store = store
        self._reporter = reporter
        self._seed = tfp.random.sanitize_seed(seed, salt="draws")
        # Densities evaluated besides those that the chains count.
        self.num_evaluations = 0
        self._sampler = ChunkSampler(
            target,
            fit.network,
            fit.step_size,
            fit.num_surrogate_transitions,
            plan.settings,
        )

    def draws(self) -> _Draws:
        """Makes the draws that are still missing, and joins all draws."""
        plan, size = self._plan, self._plan.settings.chunk_size
        firsts = range(0, plan.num_draws, size)
        draws: _Draws | None = None
        carry: list[np.ndarray] | None = None
        done = 0 if self._store is None else self._store.num_chunks
        start = min(done * size, plan.num_draws)
        with self._reporter.phase(
            "sampling", total=plan.num_draws, unit="draws", start=start
        ) as phase:
            for index, first in enumerate(firsts):
                chunk = self._chunk(index, first, done, carry)
                carry = chunk.carry
                if draws is None:
                    draws = _room_for(chunk, plan.num_draws)
                _fill(draws, chunk, first, self._fit.radius)
                phase.update(
                    first + len(chunk.position),
                    acceptance=_acceptance(chunk.stats),
                    gradients=self._fit.num_gradients
                    + int(np.sum(chunk.stats.target_gradients[-1])),
                )
        if draws is None:
            raise ValueError("`num_draws` is 0; expected 1 or more.")
        return draws

    def _chunk(
        self, index: int, first: int, done: int, carry: list[np.ndarray] | None
    ) -> Chunk:
        if self._store is not None and index < done:
            return self._stored_chunk(self._store, index, first)
        if carry is None:
            carry = self._first_carry()
        chunk = self._sampler.run(
            carry, self._seed, first, self._plan.is_true[self._rows(first)]
        )
        if self._store is not None:
            self._store.append(index, _pack(chunk))
        return chunk

    def _stored_chunk(self, store: Checkpoint, index: int, first: int) -> Chunk:
        number = len(self._plan.is_true[self._rows(first)])
        example = self._sampler.example(number, self._plan.settings.num_chains)
        expected = {name: (x.shape, x.dtype.str) for name, x in _pack(example).items()}
        return _unpack(store.read(index, expected), type(example.stats))

    def _rows(self, first: int) -> slice:
        """The draws of the chunk that begins with this one."""
        return slice(first, first + self._plan.settings.chunk_size)

    def _first_carry(self) -> list[np.ndarray]:
        """Starts the chains at states of the fit, all of finite density."""
        num_chains = self._plan.settings.num_chains
        states = self._fit.states[np.arange(num_chains) % len(self._fit.states)]
        if not self._is_own_fit:
            # The fit may be of another density, which is finite elsewhere.
            states = self._with_density(states)
        return self._sampler.start(states)

    def _with_density(self, states: np.ndarray) -> np.ndarray:
        """The states, `[chains, dim]`; those without a finite density are replaced."""
        is_finite = np.isfinite(self._model.evaluate(states))
        self.num_evaluations += len(states)
        if is_finite.all():
            return states
        good = states[is_finite]
        if not len(good):
            starts = self._model.starts(len(states), self._seed)
            self.num_evaluations += starts.num_evaluations
            good = starts.position
        replaced = states.copy()
        missing = np.flatnonzero(~is_finite)
        replaced[missing] = good[np.arange(len(missing)) % len(good)]
        return replaced

    def inference_data(
        self, draws: _Draws, keep_warmup: bool, attrs: dict[str, Any]
    ) -> az.InferenceData:
        """The posterior under the model's names."""
        burnin = self._plan.num_burnin_draws
        kept, warmup = (
            type(draws.stats)(*(x[rows] for x in draws.stats))
            for rows in (slice(burnin, None), slice(burnin))
        )
        options: dict[str, Any] = {}
        if burnin and keep_warmup:
            options = {
                "warmup_draws": self._model.to_draws(draws.position[:burnin]),
                "warmup_stats": warmup,
            }
        elif burnin:
            options["tallies_before"] = (
                warmup.target_gradients[-1],
                warmup.target_evaluations[-1],
            )
        return to_inference_data(
            self._model.to_draws(draws.position[burnin:]),
            kept,
            network_energy=draws.network_energy[burnin:],
            outside_training_data=draws.is_outside[burnin:],
            attrs=attrs,
            **options,
        )


def _acceptance(stats: Any) -> float:
    name = "log_delayed_accept_ratio"
    ratio = getattr(stats, name, stats.log_accept_ratio)
    return float(np.mean(np.exp(np.minimum(ratio, 0.0))))


def _room_for(chunk: Chunk, number: int) -> _Draws:
    def room(x: np.ndarray, dtype: Any = None) -> np.ndarray:
        return np.empty([number, *x.shape[1:]], dtype or x.dtype)

    return _Draws(
        room(chunk.position),
        room(chunk.network_energy),
        room(chunk.radius, bool),
        type(chunk.stats)(*(room(x) for x in chunk.stats)),
    )


def _fill(draws: _Draws, chunk: Chunk, first: int, radius: float) -> None:
    rows = slice(first, first + len(chunk.position))
    draws.position[rows] = chunk.position
    draws.network_energy[rows] = chunk.network_energy
    draws.is_outside[rows] = chunk.radius > radius
    for room, x in zip(draws.stats, chunk.stats, strict=True):
        room[rows] = x


def _pack(chunk: Chunk) -> dict[str, np.ndarray]:
    return {
        "position": chunk.position,
        "network_energy": chunk.network_energy,
        "radius": chunk.radius,
        **{f"stats_{i}": x for i, x in enumerate(chunk.stats)},
        **{f"carry_{i}": x for i, x in enumerate(chunk.carry)},
    }


def _unpack(arrays: dict[str, np.ndarray], stats_type: Any) -> Chunk:
    def numbered(name: str) -> list[np.ndarray]:
        count = sum(key.startswith(name) for key in arrays)
        return [arrays[f"{name}{i}"] for i in range(count)]

    return Chunk(
        arrays["position"],
        arrays["network_energy"],
        arrays["radius"],
        stats_type(*numbered("stats_")),
        numbered("carry_"),
    )
