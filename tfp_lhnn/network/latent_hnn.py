"""LatentHNN: a Keras model whose latents sum to a learned Hamiltonian."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfp_lhnn.evaluation.training_data import TrainingData
from tfp_lhnn.network.activations import resolve_activation, serialized_activation
from tfp_lhnn.network.dense_layer import Dense
from tfp_lhnn.network.dtype_policy import checked_dtype_policy
from tfp_lhnn.network.energy_function import energy_function, split_offset
from tfp_lhnn.network.gaussian_base import GaussianBase, fit_gaussian_base
from tfp_lhnn.network.initialisation import initialise_layers
from tfp_lhnn.network.learned_energy import LearnedEnergy
from tfp_lhnn.network.physics_loss import check_last_dimension
from tfp_lhnn.support.arguments import (
    check_count,
    check_network_seed,
    checked_hidden_units,
)

__all__ = ["LARGEST_DENSE_DIM", "LatentHNN"]

# A dense whitening costs dim² multiplications per call, and a few times dim gradients
# to learn. The layers take about 2·dim·units + (layers − 1)·units² multiplications.
# Without a dense whitening the layers have to learn the correlations, and above a
# hundred dimensions they do not. Up to this dimension, its costs are in proportion to
# those of the layers.
LARGEST_DENSE_DIM = 1024

_BASES = ("auto", "dense", "diagonal", "none")


@keras.saving.register_keras_serializable(package="tfp_lhnn")
class LatentHNN(LearnedEnergy):
    """A latent Hamiltonian neural network.

    A fully connected network gives `dim` latents whose sum is the learned energy.

    A *separable* network (the default) sees positions only:
    `H_θ(q, p) = U_θ(q) + ½|p|²`, where

        `U_θ(q) = Σ_i [½ z_i² + energy_scale · net_i(z)] + offset`,
        `z = whitening (q − location)`

    is a Gaussian base plus what the network adds to it. Leapfrog on its gradient is
    reversible and preserves volume, so samplers that use the true energy in their
    weights stay exact however wrong the network is. The base is the standard Gaussian
    until `adapt` or `tfp_lhnn.train` fits it to data.

    A *joint* network (`separable=False`, as published) sees `(q, p)` and has neither
    base nor scaling: `H_θ(q, p) = Σ_i net_i(q, p)`.

    All weights exist after construction. Initial weights follow from `seed`, or from
    `keras.utils.set_random_seed` without one. `compile` and `fit` work as for any Keras
    model, with the physics loss built in (see `compile`); `.keras` files load in Keras'
    safe mode once `tfp_lhnn` has been imported.

    Args:
        dim: number of coordinates of `q`.
        hidden_units: width of each hidden layer.
        activation: `"sine"`, or the name of a Keras activation, or a registered
            function.
        separable: whether the kinetic energy is exact and only the potential learned.
        base: form of the Gaussian base of a separable network: `"dense"`, `"diagonal"`,
            `"none"` (the plain network of `q`), or `"auto"`: dense up to 1024
            dimensions, diagonal beyond. A dense base is a diagonal matrix if that fits
            the data as well.
        seed: integer that fixes the initial weights.
        dtype: `"float32"` or `"float64"`; without it, the dtype in which Keras' global
            policy keeps variables, so that a mixed policy means float32.
        **kwargs: passed to `keras.Model`; `name`, `trainable`.

    Raises:
        TypeError: If `dim` or a width is not an int.
        ValueError: If an argument is out of range; the message names it.
    """

    def __init__(
        self,
        dim: int,
        hidden_units: Sequence[int] = (100, 100, 100),
        activation: str | Callable[[tf.Tensor], tf.Tensor] = "sine",
        separable: bool = True,
        *,
        base: str = "auto",
        seed: int | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(dtype=checked_dtype_policy(dtype), **kwargs)
        check_network_seed(seed)
        check_count("dim", dim, minimum=1)
        self.dim = int(dim)
        self.hidden_units = checked_hidden_units(hidden_units)
        self.activation = resolve_activation(activation)
        self.separable = bool(separable)
        if base not in _BASES:
            raise ValueError(f"`base` is {base!r}; expected one of {_BASES}.")
        self.base = base
        self.seed = None if seed is None else int(seed)
        self.hidden_layers = [
            Dense(units, self.activation, dtype=self.dtype_policy, name=f"hidden_{i}")
            for i, units in enumerate(self.hidden_units)
        ]
        self.output_layer = Dense(
            self.dim, use_bias=False, dtype=self.dtype_policy, name="output"
        )
        self.build((None, self.dim if self.separable else 2 * self.dim))

    @property
    def has_base(self) -> bool:
        """Whether a Gaussian base is part of the potential."""
        return self.separable and self.base != "none"

    @property
    def dense_base(self) -> bool:
        """Whether the whitening is a matrix (else one scale per coordinate)."""
        if self.base == "auto":
            return self.separable and self.dim <= LARGEST_DENSE_DIM
        return self.separable and self.base == "dense"

    def build(self, input_shape: Any = None) -> None:
        """Creates all weights; called by the constructor."""
        if self.built:
            return
        widths = [self.dim if self.separable else 2 * self.dim, *self.hidden_units]
        for layer, width in zip(self._dense_layers, widths, strict=True):
            layer.build((None, width))
        if self.separable:
            self._add_base_weights()
        self.initialise(self.seed)
        if self.has_base:
            # The force of random layers would be meaningless.
            self.silence()

    def _add_base_weights(self) -> None:
        def add(
            name: str, shape: tuple[int, ...], value: str, **kwargs: Any
        ) -> keras.Variable:
            return self.add_weight(
                name=name, shape=shape, initializer=value, trainable=False, **kwargs
            )

        d = self.dim
        if self.has_base:
            self.location = add("location", (d,), "zeros")
            self.whitening = (
                add("whitening", (d, d), "identity")
                if self.dense_base
                else add("whitening", (d,), "ones")
            )
        self.energy_scale = add("energy_scale", (), "ones")
        # Always in float64: float32 would round a large log density to whole nats.
        self.offset = add("offset", (), "zeros", dtype="float64", autocast=False)

    def initialise(self, seed: int | None = None) -> None:
        """Draws new weights for the layers; base and frozen layers stay as they are.

        Args:
            seed: an integer, or `None` for Keras' own global seed.
        """
        initialise_layers(self.hidden_layers, self.output_layer, seed)

    def silence(self) -> None:
        """Makes the layers' output zero, so that the potential is the base alone.

        If the output layer is frozen, `energy_scale` becomes zero instead.

        Raises:
            ValueError: for a joint network, which has no such scale, with a frozen
                output layer.
        """
        if self.output_layer.kernel.trainable:
            self.output_layer.kernel.assign(tf.zeros_like(self.output_layer.kernel))
        elif self.separable:
            self.energy_scale.assign(0.0)
        else:
            raise ValueError("the output layer is frozen and cannot be set to zero.")

    @property
    def is_silent(self) -> bool:
        """Whether the layers' output is zero everywhere."""
        if self.separable and not self.energy_scale.numpy():
            return True
        return not np.any(self.output_layer.kernel.numpy())

    @property
    def _dense_layers(self) -> list[Dense]:
        return [*self.hidden_layers, self.output_layer]

    @property
    def layer_variables(self) -> list[Any]:
        """Weights of the layers, first to last, in a fixed order.

        They equal Keras' `trainable_variables` until a layer is frozen.
        """
        layers = [v for x in self.hidden_layers for v in (x.kernel, x.bias)]
        return [*layers, self.output_layer.kernel]

    @property
    def trained_variables(self) -> list[Any]:
        """Those of `layer_variables` that are not frozen."""
        trainable = {id(variable) for variable in self.trainable_variables}
        return [v for v in self.layer_variables if id(v) in trainable]

    @property
    def base_variables(self) -> list[Any]:
        """Location, whitening, scale and offset, if there are any; never trained."""
        base = [self.location, self.whitening] if self.has_base else []
        return [*base, self.energy_scale, self.offset] if self.separable else []

    def copy_layers(self, other: "LatentHNN") -> None:
        """Copies the layers, their scale and the offset of a separable network.

        The base is not copied. With a standard base, this network becomes `other` in
        the coordinates of the base of `other`.

        Args:
            other: of the same dimension and widths.
        """
        for mine, theirs in zip(
            self.layer_variables, other.layer_variables, strict=True
        ):
            mine.assign(theirs)
        self.energy_scale.assign(other.energy_scale)
        self.offset.assign(other.offset)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments and frozen layers as plain values."""
        frozen = [layer.name for layer in self._dense_layers if not layer.trainable]
        return {
            **super().get_config(),
            **({"frozen_layers": frozen} if frozen else {}),
            "dim": self.dim,
            "hidden_units": list(self.hidden_units),
            "activation": serialized_activation(self.activation),
            "separable": self.separable,
            "base": self.base,
            "seed": self.seed,
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Any = None
    ) -> "LatentHNN":
        """Makes a network of what `get_config` returned; Keras' loading calls it."""
        arguments = dict(config)
        frozen = arguments.pop("frozen_layers", ())
        network = super().from_config(arguments, custom_objects)
        for layer in network._dense_layers:
            if layer.name in frozen:
                layer.trainable = False
        return network

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Latents of a batch; their sum is the learned potential or energy.

        Args:
            inputs: `[..., dim]` positions for a separable network, `[..., 2 dim]`
                positions and momenta, side by side, for a joint one; at least one
                leading dimension.

        Returns:
            Latents, `[..., dim]`.
        """
        width = self.dim if self.separable else 2 * self.dim
        check_last_dimension(inputs, width, "q" if self.separable else "(q, p)")
        varying = self.varying_latents(inputs)
        return varying + self.constant(varying.dtype) / self.dim

    def varying_latents(self, x: tf.Tensor) -> tf.Tensor:
        """As `call`, without the offset."""
        if not self.separable:
            return self.raw_latents(x)
        if not self.has_base:
            return self.energy_scale * self.raw_latents(x)
        z = self.whiten(x)
        return 0.5 * tf.square(z) + self.energy_scale * self.raw_latents(z)

    def constant(self, dtype: Any) -> tf.Tensor:
        """The offset, `[]`; zero for a joint network."""
        return tf.cast(self.offset, dtype) if self.separable else tf.zeros([], dtype)

    def raw_latents(self, x: tf.Tensor) -> tf.Tensor:
        """The output of the layers alone, `[n, dim]`; `x` is the first one's input."""
        for layer in self._dense_layers:
            x = layer(x)
        return x

    def whiten(self, q: tf.Tensor) -> tf.Tensor:
        """Position in the coordinates where the base is standard, `[..., dim]`."""
        centred = q - self.location
        if self.dense_base:
            return tf.matmul(centred, self.whitening, transpose_b=True)
        return centred * self.whitening

    @property
    def gaussian_base(self) -> GaussianBase:
        """The base as it is stored, in NumPy float64."""
        whitening = self.whitening.numpy().astype(np.float64)
        return GaussianBase(self.location.numpy().astype(np.float64), whitening)

    def energy_function(
        self, layers: Sequence[tf.Tensor], base: Sequence[tf.Tensor]
    ) -> Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
        """The learned energy and its force as a pure function of weights, for loops.

        Call it once, outside the loop: it computes all that depends on the weights
        alone.

        Args:
            layers: values of `layer_variables`.
            base: values of `base_variables`.

        Returns:
            A function of `q` and `p`, `[n, dim]` each, to the sum of the latents
            (`U_θ(q)`, or `H_θ(q, p)` of a joint network), `[n]`, and its derivative
            by `q`, `[n, dim]`.
        """
        return energy_function(self, layers, base)

    def split_offset(
        self, base: Sequence[tf.Tensor]
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Separates the constant from the energy, which it would only round.

        Args:
            base: values of `base_variables`.

        Returns:
            The same with a zero `offset`, and the offset, `[]`.
        """
        return split_offset(self, base)

    def adapt(self, data: TrainingData) -> None:
        """Fits the Gaussian base to `data`, in the manner of `Normalization.adapt`.

        A fifth of the trajectories is held out to choose between a diagonal and a dense
        base. Call it before `fit`, since the layers see the base's coordinates.
        """
        fitted, held_out = data.split(0.2, 0)
        self.fit_base(
            fitted.position,
            fitted.momentum_rate,
            fitted.log_prob,
            held_out=(held_out.position, held_out.momentum_rate, held_out.log_prob),
        )

    def fit_base(
        self,
        position: np.ndarray,
        gradient: np.ndarray,
        log_prob: np.ndarray | None = None,
        *,
        held_out: tuple[np.ndarray, np.ndarray, np.ndarray | None] | None = None,
    ) -> None:
        """Fits the Gaussian base by regressing gradients on positions.

        Exact, to rounding, for a Gaussian target. See `fit_gaussian_base`. The layers'
        output is set to zero: the potential is then that of the base. A frozen output
        layer stays as it is.

        Args:
            position: `[n, dim]`.
            gradient: of the target's log density, `[n, dim]`.
            log_prob: the target's log density, `[n]`; without it `offset` stays.
            held_out: position, gradient and log density of points that choose between
                the candidates; without it, a part of the points given.

        Raises:
            ValueError: for points that are not finite, too few, or constant.
        """
        if not self.has_base:
            raise ValueError("fit_base needs a separable network with a base")
        base = fit_gaussian_base(
            position, gradient, log_prob, held_out=held_out, dense=self.dense_base
        )
        if base.location.shape != (self.dim,):
            raise ValueError(
                f"position has {base.location.size} coordinates, "
                f"the network has dim={self.dim}"
            )
        self.location.assign(base.location)
        if self.dense_base and base.whitening.ndim == 1:
            self.whitening.assign(np.diag(base.whitening))
        else:
            self.whitening.assign(base.whitening)
        # What the layers had learned belonged to other coordinates.
        if self.output_layer.kernel.trainable:
            self.silence()
        if log_prob is not None:
            potential = -np.asarray(log_prob, np.float64)
            self.offset.assign(np.median(potential - base.energy(position)))
