"""NUTS on the network alone: what it costs is nothing of the target."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lhnn.mcmc import LatentHNNDelayedAcceptanceSampler
from tfp_lhnn.network.fixed_network import (
    FixedNetwork,
    NetworkForm,
    WhitenedWeights,
)
from tfp_lhnn.network.latent_hnn import LatentHNN
from tfp_lhnn.support.arviz_import import az
from tfp_lhnn.support.compiled_cache import BuildOnce, CompiledFunction

__all__ = ["NUM_DRAWS", "TARGET_ACCEPTANCE", "SurrogateRun", "run_surrogate_chain"]

# Draws kept, of every chain, and the acceptance that steps are adapted to.
NUM_DRAWS = 128
TARGET_ACCEPTANCE = 0.9

_FIRST_STEP = 0.3
# Draws in which the step is adapted, and draws that follow before any are kept.
_NUM_ADAPTATION_STEPS = 150
_NUM_SETTLING_STEPS = 37


class SurrogateRun(NamedTuple):
    """Draws from the learned density, in the base's coordinates.

    Attributes:
        position: `[draws, chains, dim]`.
        step_size: that adaptation found.
        leapfrogs_per_draw: mean over chains and draws.
    """

    position: np.ndarray
    step_size: float
    leapfrogs_per_draw: float

    @property
    def correlation_time(self) -> float:
        """Draws per effective one, of the slowest coordinate or its square."""
        chains = np.moveaxis(self.position.astype(np.float64), 2, 0)
        values = np.concatenate([chains, (chains - chains.mean()) ** 2])
        ess = [float(az.ess(x.T)) for x in values]
        number = self.position.shape[0] * self.position.shape[1]
        return number / max(np.nanmin(ess), 1.0)


# One compilation serves all rounds of a fit, and all fits of the same shapes.
_compiled = BuildOnce(8)


def _compile(form: NetworkForm) -> CompiledFunction:
    """The chain as a function of weights, temperature, start, steps and seed."""
    network = form.network()

    def run(
        weights: WhitenedWeights,
        temperature: tf.Tensor,
        start: tf.Tensor,
        step_size: tf.Tensor,
        largest_step: tf.Tensor,
        seed: tf.Tensor,
    ) -> Any:
        fixed = FixedNetwork(network, weights, temperature)
        kernel = LatentHNNDelayedAcceptanceSampler(
            lambda q: -fixed.potential(q),
            fixed,
            step_size,
            true_transition_probability=0.0,
        )
        kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(
            kernel,
            _NUM_ADAPTATION_STEPS,
            target_accept_prob=TARGET_ACCEPTANCE,
            step_size_setter_fn=lambda results, step_size: results._replace(
                step_size=tf.minimum(step_size, largest_step)
            ),
        )
        draws, trace = tfp.mcmc.sample_chain(
            NUM_DRAWS,
            start,
            kernel=kernel,
            num_burnin_steps=_NUM_ADAPTATION_STEPS + _NUM_SETTLING_STEPS,
            trace_fn=lambda _, results: (
                results.inner_results.step_size,
                results.inner_results.leapfrogs_taken,
            ),
            seed=seed,
        )
        steps, leapfrogs = trace
        return draws, steps[-1], tf.reduce_mean(tf.cast(leapfrogs, tf.float32))

    return CompiledFunction(run, jit_compile=True)


def run_surrogate_chain(
    network: LatentHNN,
    start: np.ndarray,
    seed: np.ndarray,
    *,
    largest_step: float,
    temperature: float = 1.0,
) -> SurrogateRun:
    """Draws from `π_θ^(1/T)` of a network, with the step size adapted.

    Args:
        network: separable, with a base.
        start: in the base's coordinates, `[chains, dim]`.
        seed: `[2]` int.
        largest_step: that adaptation may find.
        temperature: `T`.

    Returns:
        The draws and the step size.
    """
    form = NetworkForm.of(network)
    run = _compiled.get(form, lambda: _compile(form))
    draws, step, leapfrogs = run(
        WhitenedWeights.of(network),
        tf.constant(temperature, form.dtype),
        tf.constant(start, form.dtype),
        tf.constant(min(_FIRST_STEP, largest_step), form.dtype),
        tf.constant(largest_step, form.dtype),
        tf.constant(seed, tf.int32),
    )
    return SurrogateRun(draws.numpy(), float(step), float(leapfrogs))
