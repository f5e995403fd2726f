"""In which precision a network works."""

from typing import Any

import keras

__all__ = ["checked_dtype_policy"]

_DTYPES = ("float32", "float64")


def checked_dtype_policy(dtype: Any) -> Any:
    """The Keras policy of a network, which computes in the dtype of its weights.

    Half precision has three digits: the energy differences of leapfrog drown in their
    rounding. So a global mixed policy, which is meant for other models, is passed over
    for the dtype of its variables.

    Args:
        dtype: name, policy or config of a policy; `None` for Keras' global one.

    Returns:
        A `keras.DTypePolicy` of float32 or float64 throughout.

    Raises:
        ValueError: If it is another one.
    """
    source = "`dtype`"
    if dtype is None:
        source = "Keras' global dtype policy"
        dtype = keras.config.dtype_policy().variable_dtype
    policy = keras.dtype_policies.get(dtype)
    if policy.compute_dtype not in _DTYPES or policy.name not in _DTYPES:
        raise ValueError(
            f"{source} is {policy.name!r}; a LatentHNN computes in float32 or "
            'float64: pass `dtype="float32"` or `dtype="float64"`.'
        )
    return policy
