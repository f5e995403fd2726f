"""TFP's own NUTS: with dual averaging, and with windowed adaptation of its mass."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from benchmarks.problem import Job, Run, Seconds, Tally
from benchmarks.samplers.chunks import Chain

__all__ = ["nuts", "windowed_nuts"]

tfd = tfp.distributions


def nuts(
    job: Job,
    *,
    num_warmup: int = 1000,
    chunk: int = 50,
    target_accept_prob: float = 0.8,
) -> Run:
    """`tfp.mcmc.NoUTurnSampler` with `DualAveragingStepSizeAdaptation`.

    It costs a gradient for each leapfrog step, and one for each chain at the start.
    """
    kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(
        tfp.mcmc.NoUTurnSampler(job.problem.log_prob, step_size=0.1),
        # The rest of the warm-up runs at the final step.
        num_adaptation_steps=int(0.8 * num_warmup),
        target_accept_prob=target_accept_prob,
    )
    chain = Chain(kernel, tf.constant(job.starts), _trace, chunk)
    warmup = chain.advance(num_warmup, job.seed)
    kept = chain.advance(job.num_draws, job.seed + 1)
    return Run(
        kept.draws,
        Tally(job.num_chains + int(warmup.trace["leapfrogs"].sum())),
        Tally(int(kept.trace["leapfrogs"].sum())),
        Seconds(chain.compiling, warmup.seconds, kept.seconds),
        {
            "num_warmup": warmup.draws.shape[1],
            "step_size": float(np.mean(kept.trace["step_size"][-1])),
            "leapfrogs_per_draw": float(np.mean(kept.trace["leapfrogs"])),
        },
    )


def _trace(_: Any, results: Any) -> dict[str, tf.Tensor]:
    return {
        "leapfrogs": results.inner_results.leapfrogs_taken,
        "step_size": results.new_step_size,
    }


class _Flat(tfd.Distribution):
    """A density on flat positions, with those methods that the sampler needs."""

    def __init__(self, dim: int, log_prob: Callable[[Any], Any]) -> None:
        parameters = {"dim": dim, "log_prob": log_prob}
        self._dim, self._density = dim, log_prob
        super().__init__(
            dtype=tf.float32,
            reparameterization_type=tfd.FULLY_REPARAMETERIZED,
            validate_args=False,
            allow_nan_stats=True,
            parameters=parameters,
        )

    def _batch_shape(self) -> tf.TensorShape:
        return tf.TensorShape([])

    def _event_shape(self) -> tf.TensorShape:
        return tf.TensorShape([self._dim])

    def _event_shape_tensor(self) -> tf.Tensor:
        return tf.constant([self._dim])

    def _default_event_space_bijector(self) -> tfp.bijectors.Bijector:
        return tfp.bijectors.Identity()

    def _log_prob(self, value: tf.Tensor) -> tf.Tensor:
        return self._density(value)

    def _sample_n(self, n: int, seed: Any = None) -> tf.Tensor:
        # Used only for shapes: the chains have their own starts.
        return tf.random.stateless_normal(
            tf.concat([[n], [self._dim]], axis=0), tfp.random.sanitize_seed(seed)
        )


def windowed_nuts(
    job: Job,
    *,
    num_warmup: int = 1000,
) -> Run:
    """`tfp.experimental.mcmc.windowed_adaptive_nuts`.

    Its warm-up is counted from its own trace, by `discard_tuning=False`. It is one
    compiled call, so compilation appears in the total only. The rest is divided between
    warm-up and draws by their leapfrog steps in lockstep.
    """
    problem = job.problem
    model = tfd.JointDistributionSequential([_Flat(problem.dim, problem.log_prob)])
    starts = [tf.constant(job.starts)]

    @tf.function(jit_compile=True, autograph=False)
    def run(seed: tf.Tensor) -> Any:
        return tfp.experimental.mcmc.windowed_adaptive_nuts(
            job.num_draws,
            model,
            n_chains=job.num_chains,
            num_adaptation_steps=num_warmup,
            current_state=starts,
            discard_tuning=False,
            trace_fn=lambda state, bijector, is_adapting, results: {
                "leapfrogs": results.leapfrogs_taken,
                "step_size": results.step_size,
            },
            seed=seed,
        )

    began = time.perf_counter()
    draws, trace = run(tf.constant([job.seed, 5]))
    draws = np.asarray(draws[0]).swapaxes(0, 1)
    seconds = time.perf_counter() - began
    leapfrogs = np.asarray(trace["leapfrogs"])  # [draws, chains]
    lockstep = leapfrogs.max(axis=1).astype(np.int64)
    share = lockstep[:num_warmup].sum() / max(1, lockstep.sum())
    return Run(
        draws[:, num_warmup:],
        Tally(job.num_chains + int(leapfrogs[:num_warmup].sum())),
        Tally(int(leapfrogs[num_warmup:].sum())),
        Seconds(0.0, float(share * seconds), float((1.0 - share) * seconds)),
        {
            "num_warmup": num_warmup,
            "step_size": float(np.mean(trace["step_size"][-1])),
            "leapfrogs_per_draw": float(np.mean(leapfrogs[num_warmup:])),
        },
    )
