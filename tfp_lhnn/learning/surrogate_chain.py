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

__all__ = [
    "NUM_DRAWS",
    "TARGET_ACCEPTANCE",
    "SurrogateRun",
    "adapted_step",
    "run_surrogate_chain",
    "surrogate_proposals",
]

# Draws kept, of every chain, and the acceptance that steps are adapted to.
NUM_DRAWS = 128
TARGET_ACCEPTANCE = 0.9

_FIRST_STEP = 0.3
# Draws in which the step is adapted, and draws that follow before any are kept.
_NUM_ADAPTATION_STEPS = 150
_NUM_SETTLING_STEPS = 37
# Transitions, all from the same points, in which their step is adapted: dual averaging
# of sixteen chains is within a tenth of its limit after so many.
_NUM_TRIALS = 50


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
        centred = chains - chains.mean(axis=(1, 2), keepdims=True)
        values = np.concatenate([chains, centred**2])
        ess = [float(az.ess(x.T)) for x in values]
        number = self.position.shape[0] * self.position.shape[1]
        return number / max(np.nanmin(ess), 1.0)


class _Steps(NamedTuple):
    """What the compiled loop of transitions is to do.

    Attributes:
        number: transitions, int32.
        num_adaptation: the first so many of them adapt the step, int32.
        returns: whether each begins where the first did, bool.
    """

    number: Any
    num_adaptation: Any
    returns: Any


# One compilation serves all rounds of a fit, and all fits of the same shapes.
_compiled = BuildOnce(8)


def _compile(form: NetworkForm) -> CompiledFunction:
    """Transitions as a function of weights, temperature, start, steps and seed."""
    network = form.network()

    def run(
        weights: WhitenedWeights,
        temperature: tf.Tensor,
        start: tf.Tensor,
        step_size: tf.Tensor,
        largest_step: tf.Tensor,
        steps: _Steps,
        seed: tf.Tensor,
    ) -> Any:
        fixed = FixedNetwork(network, weights, temperature)

        def set_step(results: Any, step_size: tf.Tensor) -> Any:
            # Without adaptation TFP would set a step of its own.
            adapted = tf.minimum(step_size, largest_step)
            kept = tf.where(steps.num_adaptation > 0, adapted, results.step_size)
            return results._replace(step_size=kept)

        kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(
            LatentHNNDelayedAcceptanceSampler(
                lambda q: -fixed.potential(q),
                fixed,
                step_size,
                true_transition_probability=0.0,
            ),
            steps.num_adaptation,
            target_accept_prob=TARGET_ACCEPTANCE,
            step_size_setter_fn=set_step,
        )
        first = kernel.bootstrap_results(start)
        first_log_prob = first.inner_results.target_log_prob
        draws = tf.TensorArray(start.dtype, NUM_DRAWS, element_shape=start.shape)
        # XLA must know the element's shape before the loop begins.
        draws = draws.unstack(tf.zeros([NUM_DRAWS, *start.shape], start.dtype))

        def transition(
            i: tf.Tensor, z: tf.Tensor, results: Any, leaves: tf.Tensor, draws: Any
        ) -> Any:
            inner = results.inner_results
            z = tf.where(steps.returns, start, z)
            log_prob = tf.where(steps.returns, first_log_prob, inner.target_log_prob)
            results = results._replace(
                inner_results=inner._replace(target_log_prob=log_prob)
            )
            own = tf.random.experimental.stateless_fold_in(seed, i)
            z, results = kernel.one_step(z, results, seed=own)
            taken = tf.cast(results.inner_results.leapfrogs_taken, tf.float32)
            row = i - steps.number + NUM_DRAWS
            leaves += tf.where(row >= 0, tf.reduce_mean(taken), 0.0)
            draws = draws.write(tf.maximum(row, 0), z)
            return i + 1, z, results, leaves, draws

        _, _, results, leaves, draws = tf.while_loop(
            lambda i, *_: i < steps.number,
            transition,
            (tf.constant(0), start, first, tf.constant(0.0), draws),
        )
        inner = results.inner_results
        return (
            draws.stack(),
            inner.target_log_prob - first_log_prob,
            inner.step_size,
            leaves / tf.cast(tf.minimum(steps.number, NUM_DRAWS), tf.float32),
        )

    return CompiledFunction(run, jit_compile=True)


def _run(
    network: LatentHNN,
    start: np.ndarray,
    step_size: float,
    seed: np.ndarray,
    steps: _Steps,
    *,
    largest_step: float = np.inf,
    temperature: float = 1.0,
) -> Any:
    form = NetworkForm.of(network)
    run = _compiled.get((form, len(start)), lambda: _compile(form))
    return run(
        WhitenedWeights.of(network),
        tf.constant(temperature, form.dtype),
        tf.constant(start, form.dtype),
        tf.constant(step_size, form.dtype),
        tf.constant(largest_step, form.dtype),
        _Steps(*(tf.constant(x) for x in steps)),
        tf.constant(seed, tf.int32),
    )


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
    settling = _NUM_ADAPTATION_STEPS + _NUM_SETTLING_STEPS
    draws, _, step, leapfrogs = _run(
        network,
        start,
        min(_FIRST_STEP, largest_step),
        seed,
        _Steps(settling + NUM_DRAWS, _NUM_ADAPTATION_STEPS, False),
        largest_step=largest_step,
        temperature=temperature,
    )
    return SurrogateRun(draws.numpy(), float(step), float(leapfrogs))


def adapted_step(
    network: LatentHNN, start: np.ndarray, seed: np.ndarray, *, largest_step: float
) -> float:
    """The step size for transitions from given points, each made from there.

    A chain of the network's own would tell of wells that only the network has.

    Args:
        network: separable, with a base.
        start: in the base's coordinates, `[chains, dim]`.
        seed: `[2]` int.
        largest_step: that adaptation may find.
    """
    _, _, step, _ = _run(
        network,
        start,
        min(_FIRST_STEP, largest_step),
        seed,
        _Steps(_NUM_TRIALS, _NUM_TRIALS - 1, True),
        largest_step=largest_step,
    )
    return float(step)


def surrogate_proposals(
    network: LatentHNN,
    start: np.ndarray,
    step_size: float,
    num_transitions: int,
    seed: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Where NUTS transitions on the network lead to.

    Args:
        network: separable, with a base.
        start: in the base's coordinates, `[chains, dim]`.
        step_size: of leapfrog.
        num_transitions: one or more.
        seed: `[2]` int.

    Returns:
        The points, `[chains, dim]`, and by how much the network's log density is larger
        there than at the start, `[chains]`.
    """
    draws, gain, _, _ = _run(
        network, start, step_size, seed, _Steps(num_transitions, 0, False)
    )
    return draws[-1].numpy(), gain.numpy().astype(np.float64)
