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
        counts: `[2, chains + 1]` int32: what each chain needed, and in the last column
            the runs for all chains together. One tensor, since every tensor that a loop
            carries costs it an operation.
    """

    counts: tf.Tensor

    @classmethod
    def of(cls, needed: tf.Tensor, executed: tf.Tensor) -> "TargetCalls":
        """Of needs, `[2, chains]`, and runs for all chains, `[2]`; both int32."""
        return cls(tf.concat([needed, executed[:, tf.newaxis]], axis=1))

    @property
    def needed(self) -> tf.Tensor:
        """By each chain, `[2, chains]` int32."""
        return self.counts[:, :-1]

    @property
    def executed(self) -> tf.Tensor:
        """For all chains together, `[2]` int32."""
        return self.counts[:, -1]

    def add(
        self, densities: Sequence[tf.Tensor] = (), gradients: Sequence[tf.Tensor] = ()
    ) -> "TargetCalls":
        """Counts some runs, each with a mask of the chains that needed it.

        Args:
            densities: masks of runs without a gradient, `[chains]` bool.
            gradients: masks of runs with one.
        """
        new = tf.zeros_like(self.counts[0])
        totals = []
        for masks in (gradients, densities):
            for mask in masks:
                with_any = tf.concat([mask, tf.reduce_any(mask, keepdims=True)], axis=0)
                new += tf.cast(with_any, tf.int32)
            totals.append(new)
        with_gradient, of_all = totals
        return TargetCalls(self.counts + tf.stack([of_all, with_gradient]))


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
