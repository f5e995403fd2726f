"""Where densities and gradients come from: the network or the target."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_probability as tfp

__all__ = [
    "NetworkSource",
    "NetworkWeights",
    "TargetCalls",
    "TargetSource",
    "network_weights",
]


class NetworkWeights(NamedTuple):
    """The weights of a network as tensors, in Keras' own order.

    Attributes:
        trainable: values of `trainable_variables`.
        non_trainable: values of `non_trainable_variables`.
    """

    trainable: list[tf.Tensor]
    non_trainable: list[tf.Tensor]


def network_weights(network: Any) -> NetworkWeights:
    """Reads the weights out of a Keras model, as the kernel results carry them."""
    return NetworkWeights(
        trainable=[tf.convert_to_tensor(v) for v in network.trainable_variables],
        non_trainable=[
            tf.convert_to_tensor(v) for v in network.non_trainable_variables
        ],
    )


class NetworkSource:
    """The gradient of the learned energy as a pure function of explicit weights.

    Args:
        network: anything with Keras' `stateless_call(trainable, non_trainable, x)` that
            maps `[n, dim]` positions (or `[n, 2 dim]` positions and momenta, if it says
            `separable = False`) to latents. One that has a `gradient_function` of its
            own, as `LatentHNN` has, is asked for that instead.
        weights: the weights to call it with; read once, outside all loops.

    Attributes:
        gradient: maps `[chains, dim]` positions and momenta to `∂H_θ/∂q`, `[chains,
            dim]`.
    """

    def __init__(self, network: Any, weights: NetworkWeights) -> None:
        self.gradient: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] = (
            network.gradient_function(*weights)
            if hasattr(network, "gradient_function")
            else _autodiff(network, weights)
        )


def _autodiff(
    network: Any, weights: NetworkWeights
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    is_separable = bool(getattr(network, "separable", True))

    def energy(position: tf.Tensor, momentum: tf.Tensor) -> tf.Tensor:
        inputs = position if is_separable else tf.concat([position, momentum], axis=-1)
        dtype = getattr(network, "compute_dtype", None) or position.dtype
        latents, _ = network.stateless_call(
            weights.trainable, weights.non_trainable, tf.cast(inputs, dtype)
        )
        return tf.cast(tf.reduce_sum(latents, axis=-1), position.dtype)

    def gradient(position: tf.Tensor, momentum: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(position)
            value = energy(position, momentum)
        return tape.gradient(
            value, position, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )

    return gradient


class TargetCalls(NamedTuple):
    """What has been asked of the target.

    A gradient at one point for one chain counts one; an evaluation that returns value
    and gradient counts once in each. The target runs for all chains together whenever
    any chain needs it: `gradient_calls` and `evaluation_calls` count those runs.

    Attributes:
        gradients: needed by each chain, `[chains]` int32.
        evaluations: densities needed by each chain, `[chains]` int32.
        gradient_calls: batched gradients executed, `[]` int32.
        evaluation_calls: batched densities executed, with or without a gradient, `[]`.
    """

    gradients: tf.Tensor
    evaluations: tf.Tensor
    gradient_calls: tf.Tensor
    evaluation_calls: tf.Tensor

    def add_evaluation(self, needed: tf.Tensor) -> "TargetCalls":
        """A density for the chains in `needed` (`[chains]`), run if there are any."""
        return TargetCalls(
            self.gradients,
            self.evaluations + tf.cast(needed, tf.int32),
            self.gradient_calls,
            self.evaluation_calls + tf.cast(tf.reduce_any(needed), tf.int32),
        )

    def add_gradient(self, needed: tf.Tensor) -> "TargetCalls":
        """A density with its gradient, likewise."""
        calls = self.add_evaluation(needed)
        return TargetCalls(
            self.gradients + tf.cast(needed, tf.int32),
            calls.evaluations,
            self.gradient_calls + tf.cast(tf.reduce_any(needed), tf.int32),
            calls.evaluation_calls,
        )


class TargetSource:
    """The target on flat positions.

    Args:
        log_prob: maps `[chains, dim]` to `[chains]`.
    """

    def __init__(self, log_prob: Callable[[tf.Tensor], tf.Tensor]) -> None:
        self.log_prob = log_prob

    def log_prob_and_gradient(self, position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """`log π`, `[chains]`, and the gradient of `−log π`, `[chains, dim]`."""
        log_prob, gradient = tfp.math.value_and_gradient(self.log_prob, position)
        return log_prob, -gradient
