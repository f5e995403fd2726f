"""The only file that touches TFP's private modules.

`DiagonalMassMatrixAdaptation` and `WindowedAdaptation` insist on a momentum
distribution built by TFP's own helper, which TFP does not export.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow_probability.python.experimental.mcmc import preconditioning_utils

__all__ = ["inverse_mass_parts", "unit_momentum_distribution"]


def unit_momentum_distribution(
    state_parts: Sequence[tf.Tensor], batch_shape: tf.TensorShape | tf.Tensor
) -> Any:
    """The standard normal momentum in the form that TFP's adaptation replaces.

    Args:
        state_parts: parts of the state, `[batch..., event...]` each.
        batch_shape: shape of the chains.

    Returns:
        A `tfd.JointDistributionSequential` that is a composite tensor.
    """
    return preconditioning_utils.make_momentum_distribution(
        list(state_parts), batch_shape
    )


def inverse_mass_parts(momentum_distribution: Any) -> list[tf.Tensor]:
    """Diagonals of the inverse mass matrix, `[batch..., size]` for each part."""
    return [
        # BatchBroadcast -> TransformedDistribution (a reshape) -> the normal itself,
        # whose precision is the variance of the position.
        part.distribution.distribution.precision.diag_part()
        for part in momentum_distribution.model
    ]
