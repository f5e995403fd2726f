"""Bad arguments of `sample` and `fit`: named at once, before the target is asked."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_lhnn

START = np.zeros([2], np.float32)


class Normal:
    """A density that says how often it was evaluated."""

    def __init__(self):
        self.calls = 0

    def __call__(self, q):
        def count():
            self.calls += 1
            return np.int32(0)

        with tf.control_dependencies([tf.numpy_function(count, [], tf.int32)]):
            return -0.5 * tf.reduce_sum(tf.identity(q) ** 2, axis=-1)


ARGUMENTS = [
    ({"n_draws": 0}, ValueError, "`n_draws`"),
    ({"n_draws": 1.5}, TypeError, "`n_draws`"),
    ({"n_draws": True}, TypeError, "`n_draws`"),
    ({"n_chains": 0}, ValueError, "`n_chains`"),
    ({"n_chains": "4"}, TypeError, "`n_chains`"),
    ({"gradient_budget": 10}, ValueError, "`gradient_budget` is 10; .* 368 or more"),
    ({"gradient_budget": 1e4}, TypeError, "`gradient_budget`"),
    ({"gradient_budget": -1}, ValueError, "`gradient_budget`"),
    ({"method": "hmc"}, ValueError, "`method`"),
    ({"method": None}, ValueError, "`method`"),
    ({"seed": 1.5}, TypeError, "`seed`"),
    ({"seed": None}, TypeError, "`seed`"),
    ({"seed": [1, 2, 3]}, TypeError, "`seed`"),
    ({"checkpoint": 1}, TypeError, "`checkpoint`"),
    ({"checkpoint": ""}, ValueError, "`checkpoint`"),
    ({"fit": "fit"}, TypeError, "`fit`"),
    ({"config": {"num_chains": 8}}, TypeError, "`config` is a dict"),
    ({"hidden_units": 64}, TypeError, "`hidden_units`"),
    ({"hidden_units": ()}, ValueError, "`hidden_units`"),
    ({"hidden_units": (8, 0)}, ValueError, "`hidden_units"),
    ({"num_burnin_draws": -1}, ValueError, "`num_burnin_draws`"),
    ({"initial_state": None}, ValueError, "`initial_state`"),
    ({"initial_state": [1, 2]}, TypeError, r"`initial_state\[0\]` is int32"),
    ({"initial_state": np.zeros(2, int)}, TypeError, "`initial_state` is int64"),
    ({"initial_state": np.zeros(2, bool)}, TypeError, "`initial_state` is bool"),
    ({"initial_state": np.array(["a", "b"])}, TypeError, "`initial_state`"),
    ({"initial_state": np.zeros(2, complex)}, TypeError, "`initial_state` is complex"),
    ({"initial_state": START * np.nan}, ValueError, "`initial_state`"),
    ({"y": 3.0}, TypeError, "y"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), ARGUMENTS)
def test_bad_arguments_are_named(arguments, error, message):
    target = Normal()
    good = {"n_draws": 10, "model": target, "initial_state": START, "seed": 1}
    with pytest.raises(error, match=message):
        tfp_lhnn.sample(**(good | arguments))
    assert target.calls == 0
    # Those that `fit` has too.
    names = {"initial_state", "gradient_budget", "seed", "hidden_units"}
    if set(arguments) <= names:
        good = {"target_log_prob_fn": target, "initial_state": START, "seed": 1}
        with pytest.raises(error, match=message):
            tfp_lhnn.fit(**(good | arguments))
        assert target.calls == 0


def of_wrong_width(q):
    return -0.5 * tf.reduce_sum((q - np.zeros(3, np.float32)) ** 2, axis=-1)


def with_if(q):
    return q[..., 0] if q[..., 0] > 0 else -q[..., 0]


def through_numpy(q):
    return tf.numpy_function(lambda x: -np.sum(x**2, axis=-1), [q], q.dtype)


def through_eager_numpy(q):
    def density(x):
        return np.float32(-0.5) * np.sum(x.numpy() ** 2, axis=-1)

    value = tf.py_function(density, [q], q.dtype)
    return tf.ensure_shape(value, q.shape[:-1])


class MyError(Exception):
    pass


def raising(q):
    raise MyError("my own")


TARGETS = [
    (lambda q: 0.0 * tf.stop_gradient(q[..., 0]), ValueError, "has no gradient"),
    (lambda q: tf.stop_gradient(-q[..., 0]), ValueError, "has no gradient"),
    (lambda q: tf.zeros(tf.shape(q)[:-1]), ValueError, "has no gradient"),
    (through_numpy, ValueError, "has no gradient"),
    (through_eager_numpy, ValueError, "has no gradient: a tf.py_function"),
    (lambda q: None, TypeError, "`target_log_prob_fn`.*NoneType"),
    (lambda q: 0.0, TypeError, "`target_log_prob_fn`.*float"),
    (with_if, TypeError, "`target_log_prob_fn` uses a Tensor"),
    ("not callable", TypeError, "`model` is a str"),
]


@pytest.mark.parametrize(("target", "error", "message"), TARGETS)
def test_bad_targets_are_named(target, error, message):
    with pytest.raises(error, match=message):
        tfp_lhnn.sample(10, target, initial_state=START, seed=1)


@pytest.mark.parametrize(
    ("target", "error"),
    # NumPy's array does not fit the state, and wants to know its values.
    [(raising, MyError), (of_wrong_width, NotImplementedError)],
)
def test_what_a_target_raises_comes_through_with_a_note_on_the_call(target, error):
    with pytest.raises(error) as caught:
        tfp_lhnn.sample(10, target, initial_state=START, seed=1)
    assert type(caught.value) is error
    (note,) = caught.value.__notes__
    assert "`target_log_prob_fn` when called with float32 of shape (2,)" in note


def test_a_fit_of_another_dimension_is_refused():
    class Network:
        dim = 3

    fitted = object.__new__(tfp_lhnn.Fit)
    object.__setattr__(fitted, "network", Network())
    target = Normal()
    with pytest.raises(ValueError, match="`fit` is of a model of 3 dimensions"):
        tfp_lhnn.sample(10, target, initial_state=START, seed=1, fit=fitted)
    assert target.calls == 0
