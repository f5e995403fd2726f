"""What all densities share: checks of values and shapes, and the digest of arrays."""

import numpy as np
import pytest
import tensorflow as tf

from tfp_lhnn.model import density
from tfp_lhnn.support.state_layout import StateLayout


class Normal:
    """A standard normal density of two variables, `[3]` and a scalar."""

    layout = StateLayout(((3,), ()), list)
    dtype = tf.float64

    def __init__(self, log_prob=None):
        self.shapes = {"a": (3,), "b": ()}
        self._log_prob = log_prob

    def log_prob(self, parts):
        if self._log_prob is not None:
            return self._log_prob(*parts)
        a, b = parts
        return -0.5 * (tf.reduce_sum(a**2, axis=-1) + b**2)


def test_values_are_those_at_the_points():
    q = np.random.default_rng(0).normal(size=(5, 4))
    expected = -0.5 * np.sum(q**2, axis=-1)
    np.testing.assert_allclose(density.evaluate(Normal(), q), expected)
    np.testing.assert_allclose(
        density.batch_log_prob(Normal(), tf.constant(q)), expected
    )


@pytest.mark.parametrize(
    "log_prob", [lambda a, b: tf.reduce_sum(a), lambda a, b: a, lambda a, b: b[:2]]
)
def test_other_shapes_than_one_value_per_point_are_refused(log_prob):
    with pytest.raises(ValueError, match="one value per point"):
        density.trace_batch(Normal(log_prob))


def test_a_number_of_points_is_no_length_of_a_variable():
    assert density.untaken_batch_size(Normal()) == 4
    normal = Normal()
    normal.shapes = {"a": (4, 5), "b": (6,)}
    assert density.untaken_batch_size(normal) == 3


def test_values_of_another_type_are_named():
    value = tf.constant([1.0])
    assert density.checked_value(value, tf.float32, "it") is value
    with pytest.raises(TypeError, match="it is float32; expected float64"):
        density.checked_value(value, tf.float64, "it")
    with pytest.raises(TypeError, match="it is a NoneType; expected a Tensor"):
        density.checked_value(None, tf.float32, "it")
    with pytest.raises(TypeError, match="it is float16; expected float32 or float64"):
        density.check_dtype(tf.float16, "it")


def test_a_digest_sees_every_bit():
    x = np.arange(6.0)
    assert density.digest(x) == density.digest(x.copy())
    changed = x.copy()
    changed[3] = np.nextafter(3.0, 4.0)
    others = [changed, x.reshape(2, 3), x.astype(np.float32), x[::-1]]
    assert len({density.digest(x), *map(density.digest, others)}) == 5
    # The order in memory is none of its business.
    y = np.arange(6.0).reshape(2, 3)
    assert density.digest(y) == density.digest(np.asfortranarray(y))
