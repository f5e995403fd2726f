"""The layers of a network: Keras' dense layer without unsuitable features."""

from typing import Any, NoReturn

import keras

__all__ = ["QUANTIZE_MESSAGE", "Dense"]

QUANTIZE_MESSAGE = (
    "`quantize` is not supported by a LatentHNN: leapfrog needs the gradient of a "
    "smooth energy. For a cheaper network choose fewer `hidden_units`."
)


# It has the name of Keras' own layer, by which `.keras` files address the weights.
class Dense(keras.layers.Dense):
    """Keras' dense layer, in whole precision and with one kernel."""

    def enable_lora(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuses: samplers and `train` read the one kernel of a layer."""
        raise NotImplementedError(
            "`enable_lora` is not supported by a LatentHNN: samplers and `train` read "
            "one kernel per layer. Freeze layers instead (`layer.trainable = False`), "
            "or go on from the present weights with `train(..., warm_start=True)`."
        )

    def quantize(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuses: gradients of a rounded energy do not conserve it."""
        raise NotImplementedError(QUANTIZE_MESSAGE)
