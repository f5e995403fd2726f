"""Checks of the network that a kernel is given; none of them evaluates anything."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

__all__ = ["check_dimension", "check_latents", "check_network"]

_WHOLE_PRECISION = ("float32", "float64")


def check_network(network: Any) -> None:
    """Refuses what lacks Keras' pure call, has not been built, or is too coarse."""
    needed = ("stateless_call", "trainable_variables", "non_trainable_variables")
    missing = [name for name in needed if not hasattr(network, name)]
    if missing:
        raise TypeError(
            f"`network` must be a Keras model such as tfp_lhnn.LatentHNN; got "
            f"{type(network).__name__}, which has no {', '.join(missing)}."
        )
    if not getattr(network, "built", True):
        raise ValueError(
            "`network` has no weights yet: call it once on a batch of positions before "
            "making a kernel of it."
        )
    for layer in (network, *getattr(network, "layers", ())):
        dtype = getattr(layer, "compute_dtype", "float32")
        if dtype not in _WHOLE_PRECISION:
            raise ValueError(
                f"`network` computes in {dtype}, whose rounding is larger than the "
                "energy errors of leapfrog; expected float32 or float64 throughout "
                "(is a mixed policy set? Build the network with `dtype='float32'`)."
            )
    width = _input_width(network)
    if not hasattr(network, "energy_function") and width is not None:
        check_latents(network, width, _compute_dtype(network))


def check_dimension(network: Any, dim: int, dtype: tf.DType) -> None:
    """Refuses a network that cannot serve positions of a chain.

    Args:
        network: what `check_network` has passed.
        dim: number of coordinates of a position.
        dtype: of the positions.
    """
    network_dim = getattr(network, "dim", dim)
    if network_dim != dim:
        raise ValueError(
            f"`network` has dim={network_dim}, but a state of the chain has {dim} "
            "coordinates (all parts, flattened)."
        )
    width = dim if getattr(network, "separable", True) else 2 * dim
    known = _input_width(network)
    if known not in (None, width):
        raise ValueError(
            f"`network` takes inputs of width {known}, but a state of the chain has "
            f"{dim} coordinates (all parts, flattened); expected {width}."
        )
    if not hasattr(network, "energy_function") and known is None:
        check_latents(network, width, _compute_dtype(network) or dtype)


def check_latents(network: Any, width: int, dtype: Any) -> None:
    """Refuses a network that does not give a row of latents for each position.

    Args:
        network: anything with Keras' pure call.
        width: of its inputs.
        dtype: of its inputs.
    """
    rows = width + 1  # So that rows and columns cannot be taken for each other.

    def call(x: tf.Tensor) -> Any:
        return network.stateless_call(
            network.trainable_variables, network.non_trainable_variables, x
        )

    try:
        structure = (
            tf.function(call, autograph=False)
            .get_concrete_function(tf.TensorSpec([rows, width], dtype or tf.float32))
            .structured_outputs
        )
    except Exception as error:
        error.add_note(f"Raised by `network` on inputs of shape [{rows}, {width}].")
        raise
    latents = structure[0] if isinstance(structure, Sequence) else structure
    shape = getattr(latents, "shape", None)
    if shape is None or not shape.is_compatible_with([rows, None]):
        raise ValueError(
            f"`network` returns shape {shape} for inputs of shape [{rows}, {width}]; "
            f"expected [{rows}, k], a row of latents for each position."
        )


def _compute_dtype(network: Any) -> str | None:
    """The dtype that a network computes in, if it has one of its own."""
    return getattr(network, "compute_dtype", None)


def _input_width(network: Any) -> int | None:
    """Width of the inputs, where the network says it: Keras models do once built."""
    dim = getattr(network, "dim", None)
    if dim is not None:
        return dim if getattr(network, "separable", True) else 2 * dim
    try:
        shape = network.input_shape
    except (AttributeError, ValueError):
        return None
    is_matrix = isinstance(shape, tuple) and len(shape) == 2
    return shape[1] if is_matrix and isinstance(shape[1], int) else None
