"""Chunks of draws: however they are cut, the draws are the same to the bit."""

import numpy as np
import pytest
import tensorflow as tf

from tfp_lhnn.evaluation.target import CompiledTarget
from tfp_lhnn.model.model import as_model
from tfp_lhnn.network.latent_hnn import LatentHNN
from tfp_lhnn.sampling.chunk_sampler import ChunkSampler
from tfp_lhnn.sampling.compiled_sampler import SamplerSettings

CHAINS, DIM, DRAWS = 3, 5, 12

START = np.random.default_rng(0).normal(size=(CHAINS, DIM)).astype(np.float32)


def log_prob(q):
    return -0.5 * tf.reduce_sum((q - 1.0) ** 2, axis=-1)


@pytest.fixture(scope="module")
def target():
    return CompiledTarget(as_model(log_prob, START), jit_compile=True)


def network(offset=0.0):
    """Trained by nobody, with a dense base that is not the target's."""
    found = LatentHNN(DIM, (6,), base="dense", seed=1)
    rng = np.random.default_rng(2)
    found.whitening.assign(np.eye(DIM) + 0.1 * rng.normal(size=(DIM, DIM)))
    found.output_layer.kernel.assign(rng.normal(size=(6, DIM)).astype(np.float32))
    found.offset.assign(offset)
    return found


def run(target, chunk_size, network):
    settings = SamplerSettings("delayed_acceptance", CHAINS, chunk_size, 4, 0)
    sampler = ChunkSampler(target, network, 0.4, 2, settings)
    carry = sampler.start(START)
    chunks = []
    for first in range(0, DRAWS, chunk_size):
        is_true = np.zeros(min(chunk_size, DRAWS - first), bool)
        chunks.append(sampler.run(carry, tf.constant([1, 2]), first, is_true))
        carry = chunks[-1].carry
    return chunks


def joined(chunks, name):
    return np.concatenate([getattr(chunk, name) for chunk in chunks])


def test_the_size_of_chunks_changes_no_bit(target):
    small, large = (run(target, size, network()) for size in (5, 12))
    for name in ("position", "network_energy", "radius"):
        one, other = joined(small, name), joined(large, name)
        np.testing.assert_array_equal(one, other)
    for one, other in zip(
        *(
            zip(*(chunk.stats for chunk in chunks), strict=True)
            for chunks in (small, large)
        ),
        strict=True,
    ):
        np.testing.assert_array_equal(np.concatenate(one), np.concatenate(other))
    for one, other in zip(small[-1].carry, large[-1].carry, strict=True):
        np.testing.assert_array_equal(one, other)


def test_energies_and_radii_are_those_of_the_draws(target):
    learned = network()
    (chunk,) = run(target, DRAWS, learned)
    rows = chunk.position.reshape(-1, DIM)
    np.testing.assert_allclose(
        chunk.network_energy.ravel(), learned.potential(rows), rtol=1e-4
    )
    z = learned.gaussian_base.whiten(rows)
    radius = np.linalg.norm(z, axis=-1)
    np.testing.assert_allclose(chunk.radius.ravel(), radius, rtol=1e-4)


def test_a_constant_of_the_energy_changes_no_draw(target):
    (without,) = run(target, DRAWS, network())
    (with_it,) = run(target, DRAWS, network(offset=1e8))
    np.testing.assert_array_equal(with_it.position, without.position)
