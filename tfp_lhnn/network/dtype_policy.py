"""The precision in which a network computes."""

from typing import Any

import keras

__all__ = ["checked_dtype_policy"]

_DTYPES = ("float32", "float64")


def checked_dtype_policy(dtype: Any) -> Any:
    """The Keras policy of a network, which computes in the dtype of its weights.

    Half precision has three digits, too few for the energy differences of leapfrog. A
    global mixed policy is meant for other models; only its dtype of variables is used.

    Args:
        dtype: name, policy or config of a policy; `None` for Keras' global one.

    Returns:
        A `keras.DTypePolicy` of float32 or float64 throughout.

    Raises:
        ValueError: If `dtype` means any other policy.
    """
    source = "`dtype`"
    if dtype is None:
        source = "Keras' global dtype policy"
        dtype = keras.config.dtype_policy().variable_dtype
    try:
        policy = keras.dtype_policies.get(dtype)
    except (TypeError, ValueError):
        policy = None
    if policy is None or policy.name not in _DTYPES:
        name = dtype if policy is None else policy.name
        raise ValueError(
            f"{source} is {name!r}; a LatentHNN computes in float32 or float64: pass "
            '`dtype="float32"` or `dtype="float64"`.'
        )
    return policy
