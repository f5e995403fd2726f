"""Padding: work that makes a density as slow as desired, but not harder to learn.

A loop of matrix products enters the density with weight 1e-30, so that XLA cannot drop
it and the value stays the same. Its gradient is such a loop too, so value and gradient
together cost twice the value. Each point has its own work: ten points cost ten times as
much as one, as with a simulator.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.problem import Problem

__all__ = ["padded"]

_ROWS, _WIDTH = 16, 64
_WEIGHT = 1e-30
_CALIBRATION_STEPS = 400


def padded(problem: Problem, milliseconds: float) -> Problem:
    """The same density, where one value of one point takes that long on this machine.

    Args:
        problem: what to slow down.
        milliseconds: of one density of one point, compiled; more than `problem` takes.
    """
    num_steps = max(1, round(milliseconds / _milliseconds_per_step(problem.dim)))
    weights, embedding = _matrices(problem.dim)
    make_jax = problem.make_jax_log_prob

    def make_jax_log_prob() -> Any:
        assert make_jax is not None
        density, pad = make_jax(), _jax_padding(weights, embedding, num_steps)
        return lambda q: density(q) + _WEIGHT * pad(q)

    pad = _tf_padding(weights, embedding, num_steps)
    return dataclasses.replace(
        problem,
        name=f"{problem.name}_{milliseconds:g}ms",
        log_prob=lambda q: problem.log_prob(q) + _WEIGHT * pad(q),
        make_jax_log_prob=None if make_jax is None else make_jax_log_prob,
        source=f"{problem.source}; padded by {num_steps} products",
    )


def _matrices(dim: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    weights = np.linalg.qr(generator.normal(size=(_WIDTH, _WIDTH)))[0]
    embedding = 0.1 * generator.normal(size=(dim, _ROWS * _WIDTH))
    return weights.astype(np.float32), embedding.astype(np.float32)


def _tf_padding(weights: np.ndarray, embedding: np.ndarray, num_steps: int) -> Any:
    matrix, inputs = tf.constant(weights), tf.constant(embedding)

    def work(q: tf.Tensor) -> tf.Tensor:
        x = tf.reshape(tf.matmul(q, inputs), [-1, _WIDTH])
        x = tf.while_loop(
            lambda i, _: i < num_steps,
            # An orthogonal matrix keeps numbers in range without any other work.
            lambda i, x: (i + 1, tf.matmul(x, matrix)),
            (0, x),
        )[1]
        return tf.reduce_sum(tf.reshape(x, [-1, _ROWS * _WIDTH]), axis=-1)

    @tf.custom_gradient
    def pad(q: tf.Tensor) -> Any:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            # Not the derivative, but as much work, with a negligible weight.
            return upstream[:, tf.newaxis] * tf.tanh(work(q + 1.0))[:, tf.newaxis] + (
                tf.zeros_like(q)
            )

        return work(q), gradient

    return pad


def _jax_padding(weights: np.ndarray, embedding: np.ndarray, num_steps: int) -> Any:
    import jax
    import jax.numpy as jnp

    matrix, inputs = jnp.asarray(weights), jnp.asarray(embedding)

    def work(q: Any) -> Any:
        x = (q @ inputs).reshape(_ROWS, _WIDTH)
        return jnp.sum(jax.lax.fori_loop(0, num_steps, lambda _, x: x @ matrix, x))

    @jax.custom_vjp
    def pad(q: Any) -> Any:
        return work(q)

    def backward(q: Any, upstream: Any) -> tuple[Any]:
        return (upstream * jnp.tanh(work(q + 1.0)) + jnp.zeros_like(q),)

    pad.defvjp(lambda q: (work(q), q), backward)
    return pad


@functools.cache
def _milliseconds_per_step(dim: int) -> float:
    """Time of the padding of one point, the fastest of some: other load only adds."""
    pad = _tf_padding(*_matrices(dim), _CALIBRATION_STEPS)
    run = tf.function(pad, jit_compile=True, autograph=False)
    q = tf.zeros([4, dim])  # as many as chains usually are
    run(q)
    seconds = []
    for _ in range(20):
        began = time.perf_counter()
        run(q).numpy()
        seconds.append(time.perf_counter() - began)
    return 1e3 * min(seconds) / (_CALIBRATION_STEPS * int(q.shape[0]))
