"""The density of a callable: which shapes its arguments have, and what it returns."""

import numpy as np
import pytest
import tensorflow as tf

from tfp_lhnn.model.target_density import TargetDensity


def normal(*parts, **named):
    parts = [*parts, *named.values()]
    flat = [tf.reshape(part, [tf.shape(part)[0], -1]) for part in parts]
    return -0.5 * tf.reduce_sum(tf.concat(flat, axis=-1) ** 2, axis=-1)


@pytest.mark.parametrize(
    ("state", "names", "shapes"),
    [
        (np.zeros((7, 3)), ("x",), [(3,)]),
        ([np.zeros((7, 3)), np.zeros((7, 2, 2))], ("x0", "x1"), [(3,), (2, 2)]),
        ({"a": np.zeros((7, 3)), "b": np.zeros(7)}, ("a", "b"), [(3,), ()]),
    ],
)
def test_names_and_shapes_are_read_off_the_state(state, names, shapes):
    density = TargetDensity(normal, state)
    assert density.names == names
    assert list(density.shapes.values()) == shapes
    assert density.num_evaluations == 0
    assert density.dtype == tf.float64
    q = np.random.default_rng(0).normal(size=(5, density.layout.dim))
    value = density.log_prob(density.layout.unflatten(tf.constant(q)))
    np.testing.assert_allclose(value, -0.5 * np.sum(q**2, axis=-1))
    # There are no constraints.
    parts = density.constrain(q)
    np.testing.assert_array_equal(np.concatenate(parts, axis=-1), q)
    assert density.prior(3, tf.constant([1, 2])) is None


def test_one_point_is_a_state_too():
    density = TargetDensity(lambda q: -tf.reduce_sum(q**2, axis=-1), np.zeros(3))
    assert density.shapes == {"x": (3,)}


@pytest.mark.parametrize(
    ("state", "error", "message"),
    [
        (None, ValueError, "`initial_state` is missing"),
        (np.zeros(3, int), TypeError, "`initial_state` is int64"),
        (np.zeros(3, bool), TypeError, "`initial_state` is bool"),
        (np.array(["a"]), TypeError, "`initial_state`"),
        (np.zeros(3, np.float16), TypeError, "`initial_state` is float16"),
        ([np.zeros(3), [np.zeros(3)]], TypeError, "`initial_state` is nested"),
    ],
)
def test_bad_states_are_named(state, error, message):
    with pytest.raises(error, match=message):
        TargetDensity(normal, state)


def if_on_a_tensor(q):
    return -tf.reduce_sum(q**2, axis=-1) if tf.reduce_all(q > 0) else 0.0 * q[..., 0]


def own_exception(q):
    raise KeyError("mine")


@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        (lambda q: None, TypeError, "`target_log_prob_fn`.* is a NoneType"),
        (lambda q: tf.cast(q[..., 0], tf.float32), TypeError, "float32; expected flo"),
        (lambda q: q, ValueError, r"`target_log_prob_fn` .*\(5, 3\)"),
        (if_on_a_tensor, TypeError, "`target_log_prob_fn` uses a Tensor"),
        (own_exception, KeyError, "mine"),
    ],
)
def test_bad_targets_are_named_before_anything_is_spent(target, error, message):
    with pytest.raises(error, match=message) as caught:
        TargetDensity(target, np.zeros((5, 3)))
    if error is KeyError:
        assert any("target_log_prob_fn" in note for note in caught.value.__notes__)


def test_a_target_that_hides_its_shape_is_asked_once():
    calls = []

    def hidden(q):
        def numpy_density(x):
            calls.append(len(x))
            return -np.sum(x**2, axis=-1)

        return tf.numpy_function(numpy_density, [q], q.dtype)

    density = TargetDensity(hidden, np.zeros((5, 3)))
    assert density.shapes == {"x": (3,)}
    assert density.num_evaluations == sum(calls) == 5
