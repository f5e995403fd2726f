"""Chunks of draws as compiled functions that all runs of a target share."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from tfp_lhnn.evaluation.target import CompiledTarget
from tfp_lhnn.mcmc import (
    LatentHNNDelayedAcceptanceSampler,
    LatentHNNNoUTurnSampler,
    trace_stats,
)
from tfp_lhnn.network.fixed_network import FixedNetwork, NetworkForm, WhitenedWeights
from tfp_lhnn.support.compiled_cache import CompiledFunction

__all__ = ["CompiledSampler", "SamplerSettings", "TunedSampler"]


class SamplerSettings(NamedTuple):
    """The settings that a compilation depends on.

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


class TunedSampler(NamedTuple):
    """The parts of a fit that a compiled sampler takes as arguments, as tensors.

    Attributes:
        weights: of the network, in the coordinates of its base.
        location: of the base, `[dim]`.
        scale: position per whitened unit, `[dim, dim]`.
        step_size: in the base's coordinates, `[]`.
        num_transitions: on the network, for each density of the target, `[]` int32.
    """

    weights: WhitenedWeights
    location: tf.Tensor
    scale: tf.Tensor
    step_size: tf.Tensor
    num_transitions: tf.Tensor

    def to_position(self, z: tf.Tensor) -> tf.Tensor:
        """The unconstrained positions of whitened points, `[n, dim]`."""
        return self.location + tf.matmul(z, self.scale, transpose_b=True)


class CompiledSampler:
    """A sampler in the coordinates of a network's base, compiled once.

    In these coordinates the target has about unit scale, whatever its correlations. The
    sampler has no state: network and tuning are arguments.

    Args:
        target: the compiled target.
        form: of the networks that it takes.
        settings: what else is compiled in.
    """

    def __init__(
        self, target: CompiledTarget, form: NetworkForm, settings: SamplerSettings
    ) -> None:
        self._target = target
        self._form = form
        self._settings = settings
        self._network = form.network()
        self.bootstrap = CompiledFunction(self._first, jit_compile=target.jit_compile)
        self.run = CompiledFunction(self._draws, jit_compile=target.jit_compile)

    def compile(self) -> None:
        """Compiles ahead of the first chunk; evaluates nothing of the target."""
        target, settings = self._target, self._settings
        shape = (settings.num_chains, target.dim)
        tuned = TunedSampler(
            WhitenedWeights.of(self._network),
            tf.zeros([target.dim], target.dtype),
            tf.eye(target.dim, dtype=target.dtype),
            tf.ones([], target.dtype),
            tf.constant(1),
        )
        z = tf.zeros(shape, target.dtype)
        results = tf.nest.map_structure(
            lambda x: tf.zeros(x.shape, x.dtype),
            self.structure(tuned, z),
            expand_composites=True,
        )
        zero = tf.constant(0)
        flags = tf.zeros([settings.chunk_size], tf.bool)
        # No draws are asked for.
        self.run(tuned, z, results, tf.zeros([2], tf.int32), zero, zero, flags)

    def structure(self, tuned: TunedSampler, z: tf.Tensor) -> Any:
        """Kernel results of valid structure only; nothing is evaluated."""
        return self.bootstrap.trace(tuned, z).structured_outputs

    def _kernel(self, tuned: TunedSampler, *, is_true: bool) -> Any:
        settings = self._settings
        network = FixedNetwork(self._network, tuned.weights)

        def log_prob(z: tf.Tensor) -> tf.Tensor:
            return self._target.log_prob(tuned.to_position(z))

        if settings.method == "nuts":
            return LatentHNNNoUTurnSampler(
                log_prob,
                network,
                tuned.step_size,
                max_tree_depth=settings.max_tree_depth,
                error_monitor="none",
                trajectory_sampling="multinomial",
            )
        depth = settings.true_tree_depth if is_true else settings.max_tree_depth
        return LatentHNNDelayedAcceptanceSampler(
            log_prob,
            network,
            tuned.step_size,
            max_tree_depth=depth,
            num_surrogate_transitions=tuned.num_transitions,
            true_transition_probability=1.0 if is_true else 0.0,
        )

    def _first(self, tuned: TunedSampler, z: tf.Tensor) -> Any:
        return self._kernel(tuned, is_true=False).bootstrap_results(z)

    def _draws(
        self,
        tuned: TunedSampler,
        z: tf.Tensor,
        results: Any,
        seed: tf.Tensor,
        first: tf.Tensor,
        number: tf.Tensor,
        is_true: tf.Tensor,
    ) -> Any:
        size = self._settings.chunk_size
        kernel = self._kernel(tuned, is_true=False)
        true_kernel = (
            self._kernel(tuned, is_true=True)
            if self._settings.true_tree_depth
            else None
        )
        # Without the constant, which would round the energy in the network's dtype.
        base, offset = self._network.split_offset(tuned.weights.base)
        energy_and_gradient = self._network.energy_function(tuned.weights.layers, base)

        def seen(z: tf.Tensor, results: Any) -> Any:
            # One draw at a time, so that no bit depends on the size of chunks.
            energy, _ = energy_and_gradient(z, z)
            return (
                tuned.to_position(z),
                energy + tf.cast(offset, energy.dtype),
                tf.norm(z, axis=-1),
                trace_stats(z, results),
            )

        arrays = tf.nest.map_structure(
            lambda x: tf.TensorArray(x.dtype, size, element_shape=x.shape),
            seen(z, results),
        )

        def step(i: tf.Tensor, z: tf.Tensor, results: Any, arrays: Any) -> Any:
            own = tf.random.experimental.stateless_fold_in(seed, first + i)
            if true_kernel is None:
                z, results = kernel.one_step(z, results, seed=own)
            else:
                z, results = tf.cond(
                    is_true[i],
                    lambda: true_kernel.one_step(z, results, seed=own),
                    lambda: kernel.one_step(z, results, seed=own),
                )
            arrays = tf.nest.map_structure(
                lambda array, x: array.write(i, x), arrays, seen(z, results)
            )
            return i + 1, z, results, arrays

        _, z, results, arrays = tf.while_loop(
            lambda i, *_: i < number, step, (tf.constant(0), z, results, arrays)
        )
        outputs = tf.nest.map_structure(lambda array: array.stack(), arrays)
        return outputs, (z, results)
