"""Where densities and gradients come from: the network or the target."""

from collections.abc import Callable, Sequence
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
    """Reads the weights out of a network, as the kernel results carry them."""
    if hasattr(network, "layer_variables"):
        # In an order that does not change when a layer is frozen.
        return NetworkWeights(
            *(
                [tf.convert_to_tensor(v) for v in variables]
                for variables in (network.layer_variables, network.base_variables)
            )
        )
    return NetworkWeights(
        trainable=[tf.convert_to_tensor(v) for v in network.trainable_variables],
        non_trainable=[
            tf.convert_to_tensor(v) for v in network.non_trainable_variables
        ],
    )


class NetworkSource:
    """The learned energy and its gradient as a pure function of explicit weights.

    Args:
        network: anything with Keras' `stateless_call(trainable, non_trainable, x)` that
            maps `[n, dim]` positions (or `[n, 2 dim]` positions and momenta, if it says
            `separable = False`) to latents. One that has an `energy_function` of its
            own, as `LatentHNN` has, is asked for that instead; one that has a
            `split_offset` is asked for its constant.
        weights: the weights to call it with; read once, outside all loops.

    Attributes:
        is_separable: whether the energy is a potential, `U_θ(q)`; else `H_θ(q, p)`.
        offset: constant of the learned energy, `[]`. It has no gradient. The energies
            here are without it, because a large constant would round what varies.
        energy_and_gradient: maps `[chains, dim]` positions and momenta to the sum of
            the latents less `offset`, `[chains]`, and its derivative by the position,
            `[chains, dim]`.
    """

    def __init__(self, network: Any, weights: NetworkWeights) -> None:
        self.is_separable = bool(getattr(network, "separable", True))
        self.offset = tf.zeros([])
        if hasattr(network, "split_offset"):
            non_trainable, self.offset = network.split_offset(weights.non_trainable)
            weights = NetworkWeights(weights.trainable, non_trainable)
        self.energy_and_gradient: Callable[
            [tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]
        ] = (
            network.energy_function(*weights)
            if hasattr(network, "energy_function")
            else _autodiff(network, weights)
        )

    def log_prob_and_gradient(self, position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """`offset − U_θ`, `[chains]`, and the gradient of `U_θ`; if it is separable.

        The same form as `TargetSource.log_prob_and_gradient`, so that the network can
        stand in for the target.
        """
        energy, gradient = self.energy_and_gradient(position, position)
        return -energy, gradient


def _autodiff(
    network: Any, weights: NetworkWeights
) -> Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
    is_separable = bool(getattr(network, "separable", True))

    def energy(position: tf.Tensor, momentum: tf.Tensor) -> tf.Tensor:
        inputs = position if is_separable else tf.concat([position, momentum], axis=-1)
        dtype = getattr(network, "compute_dtype", None) or position.dtype
        latents, _ = network.stateless_call(
            weights.trainable, weights.non_trainable, tf.cast(inputs, dtype)
        )
        return tf.reduce_sum(tf.cast(latents, position.dtype), axis=-1)

    def energy_and_gradient(
        position: tf.Tensor, momentum: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(position)
            value = energy(position, momentum)
        return value, tape.gradient(
            value, position, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )

    return energy_and_gradient


class TargetCalls(NamedTuple):
    """What has been asked of the target: densities first, gradients second.

    A gradient at one point for one chain counts one; an evaluation that returns value
    and gradient counts once in each. The target runs for all chains together whenever
    any chain needs it; `executed` counts those runs.

    Attributes:
        needed: by each chain, `[2, chains]` int32; one tensor, since every tensor that
            a loop carries costs it an operation.
        executed: for all chains together, `[2]` int32.
    """

    needed: tf.Tensor
    executed: tf.Tensor

    def add(
        self, densities: Sequence[tf.Tensor] = (), gradients: Sequence[tf.Tensor] = ()
    ) -> "TargetCalls":
        """Counts some runs, each with a mask of the chains that needed it.

        Args:
            densities: masks of runs without a gradient, `[chains]` bool.
            gradients: masks of runs with one.
        """
        needed = tf.zeros_like(self.needed[0])
        executed = tf.zeros([], tf.int32)
        totals = []
        for masks in (gradients, densities):
            for mask in masks:
                needed += tf.cast(mask, tf.int32)
                executed += tf.cast(tf.reduce_any(mask), tf.int32)
            totals.append((needed, executed))
        (with_gradient, gradient_runs), (all_needed, all_runs) = totals
        return TargetCalls(
            self.needed + tf.stack([all_needed, with_gradient]),
            self.executed + tf.stack([all_runs, gradient_runs]),
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
        # For one chain, `tf.vectorized_map` in a target makes a sparse gradient.
        return log_prob, -tf.convert_to_tensor(gradient)

    def gradient_where(
        self, needed: tf.Tensor, position: tf.Tensor, otherwise: tf.Tensor
    ) -> tf.Tensor:
        """The gradient of `−log π` for the chains in `needed`, if there are any.

        Args:
            needed: `[chains]` bool.
            position: `[chains, dim]`.
            otherwise: what the other chains get, `[chains, dim]`.
        """

        def evaluate() -> tf.Tensor:
            _, gradient = self.log_prob_and_gradient(position)
            return tf.where(needed[:, tf.newaxis], gradient, otherwise)

        return tf.cond(tf.reduce_any(needed), evaluate, lambda: otherwise)
