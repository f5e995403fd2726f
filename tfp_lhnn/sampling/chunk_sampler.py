"""Draws in compiled chunks: one compilation, however many draws and runs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfp_lhnn.evaluation.target import CompiledTarget
from tfp_lhnn.mcmc import (
    LatentHNNDelayedAcceptanceSampler,
    LatentHNNDelayedAcceptanceStats,
    LatentHNNNoUTurnSampler,
    LatentHNNStats,
    trace_stats,
)
from tfp_lhnn.network.latent_hnn import LatentHNN

__all__ = ["Chunk", "ChunkSampler", "SamplerSettings"]


class SamplerSettings(NamedTuple):
    """What a compilation depends on.

    Attributes:
        method: `"delayed_acceptance"` or `"nuts"`.
        num_chains: number of chains.
        chunk_size: most draws in one call.
        max_tree_depth: of the trees on the network.
        true_tree_depth: of the trees on true gradients; 0 if there are none.
    """

    method: str
    num_chains: int
    chunk_size: int
    max_tree_depth: int
    true_tree_depth: int


class Chunk(NamedTuple):
    """Some draws, and what the next ones start from.

    Attributes:
        position: flat and unconstrained, `[draws, chains, dim]`.
        network_energy: `U_θ` there, `[draws, chains]`.
        radius: distance from the centre in the base's coordinates, `[draws, chains]`.
        stats: of `trace_stats`, `[draws, chains]` each.
        carry: plain arrays from which the chain goes on, bit for bit.
    """

    position: np.ndarray
    network_energy: np.ndarray
    radius: np.ndarray
    stats: Any
    carry: list[np.ndarray]


class ChunkSampler:
    """A compiled sampler in the coordinates of the network's base.

    There the target has about unit scale, whatever its correlations. Base and weights
    are variables, so that the next fit of the same shape needs no compilation.

    Args:
        target: the compiled target.
        network: whose shape counts; its weights come with `load`.
        settings: what else is compiled in.
    """

    def __init__(
        self, target: CompiledTarget, network: LatentHNN, settings: SamplerSettings
    ) -> None:
        dim, dtype = target.dim, target.dtype
        self._dtype = dtype
        self._settings = settings
        self._twin = LatentHNN(
            dim, network.hidden_units, network.activation, base="diagonal", seed=0
        )
        self._location = tf.Variable(tf.zeros([dim], dtype), trainable=False)
        self._scale = tf.Variable(tf.eye(dim, dtype=dtype), trainable=False)
        self._step_size = tf.Variable(tf.ones([], dtype), trainable=False)
        self._num_transitions = tf.Variable(1, trainable=False)

        def log_prob(z: tf.Tensor) -> tf.Tensor:
            return target.log_prob(self._to_position(z))

        self._kernel = self._make_kernel(log_prob, is_true=False)
        self._true_kernel = (
            self._make_kernel(log_prob, is_true=True)
            if settings.true_tree_depth
            else None
        )
        jit = {"jit_compile": target.jit_compile, "autograph": False}
        self._bootstrap = tf.function(self._first, **jit)
        self._run = tf.function(self._draws, **jit)
        self._template: Any = None

    def _make_kernel(self, log_prob: Any, is_true: bool) -> Any:
        settings = self._settings
        if settings.method == "nuts":
            return LatentHNNNoUTurnSampler(
                log_prob,
                self._twin,
                1.0,
                max_tree_depth=settings.max_tree_depth,
                error_monitor="none",
                trajectory_sampling="multinomial",
            )
        depth = settings.true_tree_depth if is_true else settings.max_tree_depth
        return LatentHNNDelayedAcceptanceSampler(
            log_prob,
            self._twin,
            1.0,
            max_tree_depth=depth,
            num_surrogate_transitions=self._num_transitions,
            true_transition_probability=1.0 if is_true else 0.0,
        )

    @property
    def stats_type(self) -> Any:
        """Which tuple the statistics are."""
        if self._settings.method == "nuts":
            return LatentHNNStats
        return LatentHNNDelayedAcceptanceStats

    def load(self, network: LatentHNN, step_size: float, num_transitions: int) -> None:
        """Takes over a network, its base and what was tuned.

        Args:
            network: of the shape that was compiled for.
            step_size: in the base's coordinates.
            num_transitions: on the network, for each density of the target.
        """
        base = network.gaussian_base
        scale = base.unwhitening
        if scale.ndim == 1:
            scale = np.diag(scale)
        self._twin.copy_layers(network)
        self._location.assign(tf.cast(base.location, self._dtype))
        self._scale.assign(tf.cast(scale, self._dtype))
        self._step_size.assign(tf.cast(step_size, self._dtype))
        self._num_transitions.assign(num_transitions)
        self._base = base

    def start(self, position: np.ndarray) -> list[np.ndarray]:
        """A carry to start with, from positions `[chains, dim]`; one density each."""
        z = tf.constant(self._base.whiten(position), self._dtype)
        results = self._bootstrap(z)
        self._template = results
        return _arrays((z, results))

    def compile(self) -> None:
        """Compiles ahead of the first chunk; evaluates nothing of the target."""
        settings = self._settings
        shape = (settings.num_chains, self._location.shape[0])
        template = self._structure(shape)
        results = tf.nest.map_structure(
            lambda x: tf.zeros(x.shape, x.dtype), template, expand_composites=True
        )
        self._run(
            tf.zeros(shape, self._dtype),
            results,
            tf.zeros([2], tf.int32),
            tf.constant(0),
            tf.constant(0),
            tf.zeros([settings.chunk_size], tf.bool),
        )

    def run(
        self, carry: list[np.ndarray], seed: tf.Tensor, first: int, is_true: np.ndarray
    ) -> Chunk:
        """Some draws.

        Args:
            carry: of `start`, or of the last chunk.
            seed: of the whole run, `[2]` int32; each draw derives its own from its
                number, so that the size of chunks makes no difference.
            first: number of the first draw.
            is_true: for each draw whether it is made with true gradients, `[draws]`.

        Returns:
            The draws.
        """
        if self._template is None:
            self._template = self._structure(carry[0].shape)
        z, results = tf.nest.pack_sequence_as(
            (carry[0], self._template),
            [tf.constant(x) for x in carry],
            expand_composites=True,
        )
        number = len(is_true)
        flags = np.zeros(self._settings.chunk_size, bool)
        flags[:number] = is_true
        outputs, last = self._run(
            z,
            results,
            seed,
            tf.constant(first),
            tf.constant(number),
            tf.constant(flags),
        )
        position, energy, radius, stats = tf.nest.map_structure(
            lambda x: x.numpy()[:number], outputs
        )
        return Chunk(position, energy, radius, stats, _arrays(last))

    def _structure(self, shape: tuple[int, ...]) -> Any:
        """Kernel results of which only the structure counts: nothing is evaluated."""
        z = tf.TensorSpec(shape, self._dtype)
        return self._bootstrap.get_concrete_function(z).structured_outputs

    def _to_position(self, z: tf.Tensor) -> tf.Tensor:
        return self._location + tf.matmul(z, self._scale, transpose_b=True)

    def _first(self, z: tf.Tensor) -> Any:
        results = self._kernel.bootstrap_results(z)
        return results._replace(step_size=tf.identity(self._step_size))

    def _draws(
        self,
        z: tf.Tensor,
        results: Any,
        seed: tf.Tensor,
        first: tf.Tensor,
        number: tf.Tensor,
        is_true: tf.Tensor,
    ) -> Any:
        size = self._settings.chunk_size
        example = (z, trace_stats(z, results))
        arrays = tf.nest.map_structure(
            lambda x: tf.TensorArray(x.dtype, size, element_shape=x.shape), example
        )

        def step(i: tf.Tensor, z: tf.Tensor, results: Any, arrays: Any) -> Any:
            own = tf.random.experimental.stateless_fold_in(seed, first + i)
            if self._true_kernel is None:
                z, results = self._kernel.one_step(z, results, seed=own)
            else:
                z, results = tf.cond(
                    is_true[i],
                    lambda: self._true_kernel.one_step(z, results, seed=own),
                    lambda: self._kernel.one_step(z, results, seed=own),
                )
            arrays = tf.nest.map_structure(
                lambda array, x: array.write(i, x), arrays, (z, trace_stats(z, results))
            )
            return i + 1, z, results, arrays

        _, z, results, arrays = tf.while_loop(
            lambda i, *_: i < number, step, (tf.constant(0), z, results, arrays)
        )
        draws, stats = tf.nest.map_structure(lambda array: array.stack(), arrays)
        rows = tf.reshape(draws, [-1, draws.shape[-1]])
        shape = draws.shape[:-1]
        outputs = (
            tf.reshape(self._to_position(rows), draws.shape),
            tf.reshape(self._twin.potential(rows), shape),
            tf.norm(draws, axis=-1),
            stats,
        )
        return outputs, (z, results)


def _arrays(structure: Any) -> list[np.ndarray]:
    return [x.numpy() for x in tf.nest.flatten(structure, expand_composites=True)]
