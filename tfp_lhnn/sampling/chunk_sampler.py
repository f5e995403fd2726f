"""The draws of one run, chunk by chunk."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfp_lhnn.evaluation.target import CompiledTarget
from tfp_lhnn.mcmc import trace_stats
from tfp_lhnn.network.fixed_network import NetworkForm, WhitenedWeights
from tfp_lhnn.network.latent_hnn import LatentHNN
from tfp_lhnn.sampling.compiled_sampler import (
    CompiledSampler,
    SamplerSettings,
    TunedSampler,
)

__all__ = ["Chunk", "ChunkSampler", "compiled_sampler"]


class Chunk(NamedTuple):
    """Some draws, and what the next ones start from.

    Attributes:
        position: flat and unconstrained, `[draws, chains, dim]`.
        network_energy: `U_θ` there, `[draws, chains]`.
        radius: distance from the centre in the base's coordinates, `[draws, chains]`.
        stats: of `trace_stats`, `[draws, chains]` each.
        carry: plain arrays from which the chain continues, bit for bit.
    """

    position: np.ndarray
    network_energy: np.ndarray
    radius: np.ndarray
    stats: Any
    carry: list[np.ndarray]


def compiled_sampler(
    target: CompiledTarget, form: NetworkForm, settings: SamplerSettings
) -> CompiledSampler:
    """The sampler for networks of a form, compiled once for a target."""
    return target.compiled(
        (settings, form), lambda: CompiledSampler(target, form, settings)
    )


class ChunkSampler:
    """The sampler of one run.

    Args:
        target: the compiled target.
        network: separable, with a base.
        step_size: in the base's coordinates.
        num_transitions: on the network, for each density of the target.
        settings: of the compiled sampler.
    """

    def __init__(
        self,
        target: CompiledTarget,
        network: LatentHNN,
        step_size: float,
        num_transitions: int,
        settings: SamplerSettings,
    ) -> None:
        self._dtype = target.dtype
        self._chunk_size = settings.chunk_size
        self._base = network.gaussian_base
        scale = self._base.unwhitening
        self._tuned = TunedSampler(
            WhitenedWeights.of(network),
            tf.constant(self._base.location, self._dtype),
            tf.constant(np.diag(scale) if scale.ndim == 1 else scale, self._dtype),
            tf.constant(step_size, self._dtype),
            tf.constant(num_transitions, tf.int32),
        )
        self._compiled = compiled_sampler(target, NetworkForm.of(network), settings)

    def start(self, position: np.ndarray) -> list[np.ndarray]:
        """The `carry` for the first chunk; evaluates one density for each chain.

        Args:
            position: of finite density, `[chains, dim]`.
        """
        z = tf.constant(self._base.whiten(position), self._dtype)
        return _arrays((z, self._compiled.bootstrap(self._tuned, z)))

    def run(
        self, carry: list[np.ndarray], seed: tf.Tensor, first: int, is_true: np.ndarray
    ) -> Chunk:
        """Makes some draws.

        Args:
            carry: from `start`, or from the last chunk.
            seed: of the whole run, `[2]` int32. Each draw derives its own from its
                number, so that the size of chunks makes no difference.
            first: number of the first draw.
            is_true: for each draw whether it is made with true gradients, `[draws]`.

        Returns:
            The draws.
        """
        template = self._structure(carry[0].shape)
        z, results = tf.nest.pack_sequence_as(
            (carry[0], template),
            [tf.constant(x) for x in carry],
            expand_composites=True,
        )
        number = len(is_true)
        flags = np.zeros(self._chunk_size, bool)
        flags[:number] = is_true
        outputs, last = self._compiled.run(
            self._tuned,
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

    def example(self, num_draws: int, num_chains: int) -> Chunk:
        """A chunk with valid shapes and dtypes only; nothing is evaluated.

        Args:
            num_draws: in the chunk.
            num_chains: number of chains.
        """
        dtype = self._dtype.as_numpy_dtype
        z = np.zeros([num_chains, self._base.location.size], dtype)
        results = self._structure(z.shape)
        scalars = np.zeros([num_draws, num_chains], dtype)
        leaves = tf.nest.flatten(results, expand_composites=True)
        stats = trace_stats(z, results)
        return Chunk(
            np.zeros([num_draws, *z.shape], dtype),
            scalars,
            scalars,
            type(stats)(*(_zeros(x, [num_draws]) for x in stats)),
            [z, *(_zeros(x, []) for x in leaves)],
        )

    def _structure(self, shape: tuple[int, ...]) -> Any:
        return self._compiled.structure(self._tuned, tf.zeros(shape, self._dtype))


def _zeros(like: tf.Tensor, leading: list[int]) -> np.ndarray:
    return np.zeros([*leading, *like.shape], like.dtype.as_numpy_dtype)


def _arrays(structure: Any) -> list[np.ndarray]:
    return [x.numpy() for x in tf.nest.flatten(structure, expand_composites=True)]
