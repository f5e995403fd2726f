"""The only file that touches TFP's private modules.

`DiagonalMassMatrixAdaptation` and `WindowedAdaptation` insist on a momentum
distribution built by TFP's own helper, which TFP does not export.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow_probability.python.experimental.mcmc import preconditioning_utils

__all__ = ["DiagonalMomentum", "inverse_mass_parts", "unit_momentum"]


class DiagonalMomentum(tf.experimental.ExtensionType):
    """A normal momentum with a diagonal mass matrix, as TFP's adaptation sees it.

    TFP's own object is four distributions deep, and every `tf.while_loop` takes it
    apart and builds it anew: more than a second of tracing for a chain. This one holds
    the numbers and builds TFP's only when adaptation asks for it.

    Attributes:
        inverse_mass: the diagonal for each part of the state, `[batch..., event...]`.
        batch_rank: how many leading dimensions are chains.
    """

    # Registers the type with TensorFlow, so that a SavedModel can name it.
    __name__ = "tfp_lhnn.DiagonalMomentum"

    inverse_mass: tuple[tf.Tensor, ...]
    batch_rank: int

    @property
    def model(self) -> Sequence[Any]:
        """TFP's distribution of each part; adaptation replaces their scales."""
        batch_shape = tf.shape(self.inverse_mass[0])[: self.batch_rank]
        static = self.inverse_mass[0].shape[: self.batch_rank]
        return preconditioning_utils.make_momentum_distribution(
            list(self.inverse_mass),
            static if static.is_fully_defined() else batch_shape,
            running_variance_parts=list(self.inverse_mass),
        ).model

    def copy(self, model: Sequence[Any]) -> "DiagonalMomentum":
        """The momentum with the distributions that adaptation has made."""
        return DiagonalMomentum(
            tuple(
                tf.reshape(diagonal, tf.shape(old))
                for diagonal, old in zip(
                    _diagonals(model), self.inverse_mass, strict=True
                )
            ),
            self.batch_rank,
        )


def unit_momentum(
    state_parts: Sequence[tf.Tensor], batch_rank: int
) -> DiagonalMomentum:
    """The standard normal momentum for a state.

    Args:
        state_parts: parts of the state, `[batch..., event...]` each.
        batch_rank: how many leading dimensions are chains.
    """
    return DiagonalMomentum(tuple(tf.ones_like(p) for p in state_parts), batch_rank)


def inverse_mass_parts(momentum_distribution: Any) -> list[tf.Tensor]:
    """Diagonals of the inverse mass matrix, `[batch..., ...]` for each part.

    Args:
        momentum_distribution: a `DiagonalMomentum`, or what TFP's adaptation put in its
            place.
    """
    if isinstance(momentum_distribution, DiagonalMomentum):
        return list(momentum_distribution.inverse_mass)
    return _diagonals(momentum_distribution.model)


def _diagonals(model: Sequence[Any]) -> list[tf.Tensor]:
    return [
        # BatchBroadcast -> TransformedDistribution (a reshape) -> the normal itself,
        # whose precision is the variance of the position.
        part.distribution.distribution.precision.diag_part()
        for part in model
    ]
