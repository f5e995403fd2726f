"""NUTS on the network alone: what it costs is nothing of the target."""

import functools
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lhnn.mcmc import LatentHNNDelayedAcceptanceSampler
from tfp_lhnn.network.latent_hnn import LatentHNN
from tfp_lhnn.support.arviz_import import az

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


class _TemperedNetwork:
    """A network whose energy is divided by a temperature that can be set.

    Args:
        network: separable.
    """

    separable = True

    def __init__(self, network: LatentHNN) -> None:
        self.network = network
        self.temperature = tf.Variable(1.0, trainable=False)
        self.dim = network.dim

    @property
    def trainable_variables(self) -> list[Any]:
        """Those of the network."""
        return self.network.trainable_variables

    @property
    def non_trainable_variables(self) -> list[Any]:
        """Those of the network and, last, the temperature."""
        return [*self.network.non_trainable_variables, self.temperature]

    def energy_function(self, trainable: Any, non_trainable: Any) -> Any:
        """As `LatentHNN.energy_function`."""
        *non_trainable, temperature = non_trainable
        inner = self.network.energy_function(trainable, non_trainable)

        def energy_and_gradient(
            q: tf.Tensor, p: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor]:
            energy, gradient = inner(q, p)
            beta = 1.0 / tf.cast(temperature, q.dtype)
            return beta * energy, beta * gradient

        return energy_and_gradient

    def stateless_call(self, trainable: Any, non_trainable: Any, x: tf.Tensor) -> Any:
        """Latents and the unchanged state, as Keras has it."""
        energy, _ = self.energy_function(trainable, non_trainable)(x, x)
        return energy[:, tf.newaxis], non_trainable

    def log_prob(self, q: tf.Tensor) -> tf.Tensor:
        """Log of the learned density at the temperature, up to a constant, `[n]`."""
        weights = self.trainable_variables, self.non_trainable_variables
        values = [[tf.convert_to_tensor(v) for v in group] for group in weights]
        return -self.energy_function(*values)(q, q)[0]


# One compilation serves all rounds of a fit and all fits of the same shapes: the
# weights are variables of a twin of the network, overwritten before each run.
@functools.lru_cache(maxsize=8)
def _compiled(
    dim: int,
    hidden_units: tuple[int, ...],
    activation: Any,
    num_chains: int,
) -> tuple[_TemperedNetwork, Any]:
    twin = _TemperedNetwork(
        LatentHNN(dim, hidden_units, activation, base="diagonal", seed=0)
    )

    @tf.function(jit_compile=True, autograph=False)
    def run(
        start: tf.Tensor, step_size: tf.Tensor, largest_step: tf.Tensor, seed: tf.Tensor
    ) -> Any:
        kernel = LatentHNNDelayedAcceptanceSampler(
            twin.log_prob,
            twin,
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

    start, step = (tf.TensorSpec(s, tf.float32) for s in ([num_chains, dim], []))
    return twin, run.get_concrete_function(
        start, step, step, tf.TensorSpec([2], tf.int32)
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
    twin, run = _compiled(
        network.dim, network.hidden_units, network.activation, len(start)
    )
    twin.network.copy_layers(network)
    twin.temperature.assign(temperature)
    draws, step, leapfrogs = run(
        tf.constant(start, tf.float32),
        tf.constant(min(_FIRST_STEP, largest_step), tf.float32),
        tf.constant(largest_step, tf.float32),
        tf.constant(seed, tf.int32),
    )
    return SurrogateRun(draws.numpy(), float(step), float(leapfrogs))
