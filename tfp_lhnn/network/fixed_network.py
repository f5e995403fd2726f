"""A network whose weights are tensors, for compiled functions that many runs share.

A compiled function that reads the variables of a network belongs to that network. One
that gets the weights as arguments serves all networks of the same form, in any number
of threads: it has no state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfp_lhnn.network.latent_hnn import LatentHNN

__all__ = ["FixedNetwork", "NetworkForm", "WhitenedWeights"]


class NetworkForm(NamedTuple):
    """The properties of a separable network with a base that are compiled in.

    Attributes:
        dim: number of coordinates.
        hidden_units: width of each hidden layer.
        activation: of the hidden layers.
        dtype: in which the network computes.
    """

    dim: int
    hidden_units: tuple[int, ...]
    activation: Any
    dtype: str

    @classmethod
    def of(cls, network: LatentHNN) -> NetworkForm:
        """The form of a network."""
        return cls(
            network.dim, network.hidden_units, network.activation, network.compute_dtype
        )

    def network(self) -> LatentHNN:
        """A network of this form on a standard base, with arbitrary weights."""
        return LatentHNN(
            self.dim,
            self.hidden_units,
            self.activation,
            base="diagonal",
            seed=0,
            dtype=self.dtype,
        )


class WhitenedWeights(NamedTuple):
    """Weights of a network in the coordinates where its base is standard.

    Attributes:
        layers: values of `layer_variables`.
        base: values of `base_variables` of a network on a standard diagonal base.
    """

    layers: list[tf.Tensor]
    base: list[tf.Tensor]

    @classmethod
    def of(cls, network: LatentHNN) -> WhitenedWeights:
        """Reads them out of a separable network with a base."""
        zeros = tf.zeros([network.dim], network.compute_dtype)
        scale, offset = network.base_variables[-2:]
        return cls(
            [tf.convert_to_tensor(v) for v in network.layer_variables],
            [
                zeros,
                tf.ones_like(zeros),
                tf.convert_to_tensor(scale),
                tf.convert_to_tensor(offset),
            ],
        )


class FixedNetwork:
    """A separable network with given weights, with the methods that kernels need.

    Args:
        form: a network of the same form.
        weights: in its coordinates.
        temperature: divides the energy, `[]`.
    """

    separable = True

    def __init__(
        self,
        form: LatentHNN,
        weights: WhitenedWeights,
        temperature: tf.Tensor | None = None,
    ) -> None:
        self._form = form
        self._temperature = temperature
        self.dim = form.dim
        self.layer_variables, self.base_variables = weights

    @property
    def trainable_variables(self) -> list[tf.Tensor]:
        """The weights of the layers."""
        return self.layer_variables

    @property
    def non_trainable_variables(self) -> list[tf.Tensor]:
        """Base, scale and offset."""
        return self.base_variables

    def energy_function(
        self, layers: Sequence[tf.Tensor], base: Sequence[tf.Tensor]
    ) -> Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
        """As `LatentHNN.energy_function`."""
        inner = self._form.energy_function(layers, base)
        if self._temperature is None:
            return inner
        temperature = self._temperature

        def energy_and_gradient(
            q: tf.Tensor, p: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor]:
            energy, gradient = inner(q, p)
            inverse = 1.0 / tf.cast(temperature, q.dtype)
            return inverse * energy, inverse * gradient

        return energy_and_gradient

    def split_offset(
        self, base: Sequence[tf.Tensor]
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """As `LatentHNN.split_offset`."""
        return self._form.split_offset(base)

    def potential(self, q: tf.Tensor) -> tf.Tensor:
        """The learned potential over the temperature, `[n]`, of `[n, dim]`."""
        return self.energy_function(self.layer_variables, self.base_variables)(q, q)[0]

    def stateless_call(
        self, trainable: Sequence[tf.Tensor], non_trainable: Sequence[tf.Tensor], x: Any
    ) -> tuple[tf.Tensor, Sequence[tf.Tensor]]:
        """The energy as a single latent, and the state, as in Keras."""
        energy, _ = self.energy_function(trainable, non_trainable)(x, x)
        return energy[:, tf.newaxis], non_trainable
