"""sample: from a model to a posterior in one call."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import arviz as az
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lhnn._arguments import check_count, checked_hidden_units, stateless_seed
from tfp_lhnn._chunk_sampler import Chunk, ChunkSampler, SamplerSettings
from tfp_lhnn._compiled_target import CompiledTarget, compiled_target
from tfp_lhnn._fit_file import fit_from_arrays, fit_to_arrays
from tfp_lhnn.arviz import to_inference_data
from tfp_lhnn.checkpoint import Checkpoint
from tfp_lhnn.diagnostics import summarize, warn
from tfp_lhnn.fit_result import Fit
from tfp_lhnn.model import Model, as_model
from tfp_lhnn.progress import ProgressReporter
from tfp_lhnn.warmup import fit_model

__all__ = ["sample"]

_METHODS = ("delayed_acceptance", "nuts")

# Draws that chains take from the network's density to the target's; a density each.
_NUM_BURNIN_DRAWS = 100

# Progress about fifty times in a run, in chunks that are neither so small that calls
# cost more than draws nor so large that much is lost by a crash.
_CHUNKS = 50
_CHUNK_SIZES = (10, 1000)

_TREE_DEPTH = 8
# True transitions, which only a poor fit needs, have shorter trajectories.
_TRUE_TREE_DEPTH = 6


def sample(
    n_draws: int,
    model: Any,
    *,
    initial_state: Any = None,
    n_chains: int = 4,
    gradient_budget: int = 10_000,
    method: str = "delayed_acceptance",
    seed: Any,
    progress: bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    fit: Fit | None = None,
    hidden_units: tuple[int, ...] = (64, 64, 64),
    num_burnin_draws: int = _NUM_BURNIN_DRAWS,
    keep_warmup: bool = False,
    jit_compile: bool = True,
    **pins: Any,
) -> az.InferenceData:
    """Draws from a posterior whose gradients are expensive.

    Learns the model from at most `gradient_budget` true gradients (see
    `tfp_lhnn.fit`), then samples it exactly: NUTS on the network, and one true density
    per draw and chain that accepts or rejects. If the fit is poor, what is left of the
    budget is spent on transitions with true gradients, spread evenly over the draws.

    Args:
        n_draws: draws of each chain.
        model: a `target_log_prob_fn` with an `initial_state`, or a
            `tfd.JointDistribution*` whose observed variables are given as keywords.
        initial_state: one point, or one for each of some chains; see
            `tfp_lhnn.Model.from_target`. A joint distribution needs none.
        n_chains: number of chains.
        gradient_budget: most true gradients, of all chains and phases. It is never
            exceeded.
        method: `"delayed_acceptance"`: one density per draw; or `"nuts"`: one density
            per leaf of the tree, more robust where the network is wrong. Both are
            exact.
        seed: an int, a pair of ints, or an integer Tensor `[2]`.
        progress: whether to show progress; `None`: in terminals and notebooks.
        checkpoint: a directory. Every chunk of draws is on disk before the next
            begins; the same call later goes on from there, and ends with the same
            draws, bit for bit.
        fit: of an earlier run with this model; nothing is learned then.
        hidden_units: widths of the network's hidden layers.
        num_burnin_draws: draws before those kept.
        keep_warmup: whether these are returned too.
        jit_compile: whether XLA compiles the target; `False` for targets that it
            cannot take.
        **pins: observed variables of a joint distribution, by name.

    Returns:
        `posterior` under the model's names, `sample_stats`, and attributes with the
        costs of all phases. See `tfp_lhnn.to_inference_data` and
        `tfp_lhnn.summarize`; what that warns of is also issued as warnings.

    Raises:
        TypeError: if an argument has the wrong type.
        ValueError: if an argument is out of range, the model lacks pins, no start has a
            finite density, or the checkpoint is another run's.
        OSError: if the checkpoint cannot be written; what is finished stays readable.
    """
    began = time.perf_counter()
    check_count("n_draws", n_draws, 1)
    check_count("n_chains", n_chains, 1)
    check_count("num_burnin_draws", num_burnin_draws, 0)
    checked_hidden_units(hidden_units)
    if method not in _METHODS:
        raise ValueError(f"`method` is {method!r}; expected one of {_METHODS}.")
    if fit is not None and not isinstance(fit, Fit):
        raise TypeError(f"`fit` is a {type(fit).__name__}; expected a tfp_lhnn.Fit.")
    density = as_model(model, initial_state, pins)
    if fit is not None and fit.network.dim != density.dim:
        raise ValueError(
            f"`fit` is of a model of {fit.network.dim} dimensions; this one has "
            f"{density.dim}."
        )
    target = compiled_target(density, pins, jit_compile)
    reporter = ProgressReporter(progress)
    words = stateless_seed(seed, "sample")
    store = None
    if checkpoint is not None:
        store = Checkpoint(
            checkpoint,
            {
                "model": density.fingerprint(),
                "seed": " ".join(str(word) for word in words.numpy()),
                "network": _network_identity(fit, hidden_units),
                "gradient_budget": gradient_budget,
                "method": method,
                "n_chains": n_chains,
                "n_draws": n_draws,
                "num_burnin_draws": num_burnin_draws,
                "jit_compile": int(jit_compile),
            },
        )

    def make_fit() -> Fit:
        return fit_model(
            density,
            target,
            gradient_budget,
            seed=words,
            hidden_units=hidden_units,
            reporter=reporter,
        )

    is_own = fit is None
    if fit is None:
        fit = _stored_fit(store, make_fit) if store is not None else make_fit()
    run = _Run(
        density,
        target,
        fit,
        _Plan.of(
            n_draws, num_burnin_draws, n_chains, method, gradient_budget, fit, is_own
        ),
        words,
        store,
        reporter,
    )
    began_sampling = time.perf_counter()
    draws = run.draws()
    ended = time.perf_counter()
    posterior = run.inference_data(
        draws,
        keep_warmup,
        {
            "method": method,
            "gradient_budget": gradient_budget,
            # Of a fit that was given too: somebody has paid for it.
            "fit_gradients": fit.num_gradients,
            "fit_evaluations": fit.num_evaluations,
            "fit_is_good": int(fit.is_good),
            "fit_is_confirmed": int(fit.is_confirmed),
            "fit_message": fit.message,
            "fit_energy_error": fit.energy_error,
            "fit_acceptance": fit.acceptance,
            "num_surrogate_transitions": fit.num_surrogate_transitions,
            "nuts_gradients_per_effective_sample": (
                fit.nuts_gradients_per_effective_sample
            ),
            "seconds": ended - began,
            "seconds_fit": began_sampling - began,
            "seconds_sampling": ended - began_sampling,
        },
    )
    warn(summarize(posterior), stacklevel=3)
    return posterior


class _Plan(NamedTuple):
    """What is to be drawn.

    Attributes:
        num_draws: of each chain, the burn-in included.
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
    ) -> _Plan:
        number = n_draws + num_burnin_draws
        is_true = np.zeros(number, bool)
        if method == "delayed_acceptance" and not fit.is_good:
            left = budget - (fit.num_gradients if is_own else 0)
            # The start and every leaf of the deepest tree, so that the budget holds
            # whatever the trees turn out to be. Which draws are true is fixed before
            # the first: no state has a say in it.
            affordable = left // (n_chains * 2**_TRUE_TREE_DEPTH)
            count = min(number, affordable)
            is_true[np.linspace(0, number, count, endpoint=False).astype(int)] = True
        size = int(np.clip(number // _CHUNKS, *_CHUNK_SIZES))
        return cls(
            number,
            num_burnin_draws,
            SamplerSettings(
                method,
                n_chains,
                min(size, number),
                _TREE_DEPTH,
                _TRUE_TREE_DEPTH if np.any(is_true) else 0,
                fit.num_surrogate_transitions,
            ),
            is_true,
        )


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


class _Run:
    """Sampling, from a fit to the posterior."""

    def __init__(
        self,
        model: Model,
        target: CompiledTarget,
        fit: Fit,
        plan: _Plan,
        seed: tf.Tensor,
        store: Checkpoint | None,
        reporter: ProgressReporter,
    ) -> None:
        self._model = model
        self._fit = fit
        self._plan = plan
        self._store = store
        self._reporter = reporter
        self._seed = tfp.random.sanitize_seed(seed, salt="draws")
        key = (plan.settings, fit.network.hidden_units, fit.network.activation)
        if key not in target.samplers:
            target.samplers[key] = ChunkSampler(target, fit.network, plan.settings)
        self._sampler: ChunkSampler = target.samplers[key]
        self._sampler.load(fit.network, fit.step_size)

    def draws(self) -> _Draws:
        """Makes what is still to be made, and puts all together."""
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
        assert draws is not None
        return draws

    def _chunk(
        self, index: int, first: int, done: int, carry: list[np.ndarray] | None
    ) -> Chunk:
        if self._store is not None and index < done:
            return _unpack(self._store.read(index), self._sampler.stats_type)
        if carry is None:
            rows = np.arange(self._plan.settings.num_chains) % len(self._fit.states)
            carry = self._sampler.start(self._fit.states[rows])
        size = self._plan.settings.chunk_size
        chunk = self._sampler.run(
            carry, self._seed, first, self._plan.is_true[first : first + size]
        )
        if self._store is not None:
            self._store.append(index, _pack(chunk))
        return chunk

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


def _stored_fit(store: Checkpoint, make: Callable[[], Fit]) -> Fit:
    """The fit of the run that is resumed, or a new one, stored before it is used."""
    arrays = store.load("fit")
    if arrays is None:
        store.save("fit", fit_to_arrays(make()))
        arrays = store.load("fit")
        assert arrays is not None
    # Also the new one goes through the file, so that both are the same to the bit.
    return fit_from_arrays(arrays)


def _network_identity(fit: Fit | None, hidden_units: tuple[int, ...]) -> str:
    if fit is None:
        return f"to be trained, hidden_units={tuple(hidden_units)}"
    digest = hashlib.sha256()
    for weight in fit.network.get_weights():
        digest.update(np.ascontiguousarray(weight).tobytes())
    return digest.hexdigest()
