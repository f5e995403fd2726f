"""Calls of targets: whose exceptions come through, and which have no gradient."""

import numpy as np
import pytest
import tensorflow as tf

from tfp_lhnn.support.target_calls import call_target, lost_gradient, missing_gradient

SPEC = tf.TensorSpec([3, 2], tf.float32)


def normal(q):
    return -0.5 * tf.reduce_sum(q**2, axis=-1)


def traced(target, names=None):
    function = tf.function(
        lambda q: call_target(target, [q], names=names), autograph=False
    )
    return function.get_concrete_function(SPEC)


class Unusual(Exception):
    """With a constructor that nothing but its author could call."""

    def __init__(self, *, code):
        super().__init__(f"code {code}")
        self.code = code


@pytest.mark.parametrize("is_traced", [True, False])
def test_an_exception_of_the_target_comes_through_as_it_is(is_traced):
    mine = Unusual(code=7)

    def target(q):
        raise mine

    call = traced if is_traced else lambda target: call_target(target, [tf.ones([3])])
    for _ in range(3):  # one object each time, and one note
        with pytest.raises(Unusual) as raised:
            call(target)
        assert raised.value is mine
    (note,) = mine.__notes__
    shape = "(3, 2)" if is_traced else "(3,)"
    called = f"`target_log_prob_fn` when called with float32 of shape {shape}"
    assert note.startswith(f"Raised by {called}.")
    assert ("was being traced" in note) is is_traced


def test_interrupts_are_no_business_of_ours():
    def target(q):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as raised:
        call_target(target, [tf.ones([3])])
    assert not hasattr(raised.value, "__notes__")


def test_arguments_by_name_are_named():
    def target(*, scale, loc):
        return scale - loc

    parts = [tf.constant([3.0]), tf.constant([1.0])]
    assert call_target(target, parts, ["scale", "loc"]).numpy() == 2.0
    with pytest.raises(TypeError, match="unexpected keyword") as raised:
        call_target(target, parts, ["scale", "width"])
    (note,) = raised.value.__notes__
    assert "scale: float32 of shape (1,), width: float32 of shape (1,)" in note


@pytest.mark.parametrize(
    "target",
    [
        lambda q: normal(q) if q[0, 0] > 0 else q[:, 0],
        lambda q: normal(q) * bool(q[0, 0] > 0),
        lambda q: sum(row for row in q),
    ],
    ids=["if", "bool", "for"],
)
def test_a_tensor_as_a_python_value_is_a_type_error_that_names_the_target(target):
    for trace in (traced, lambda target: missing_gradient(target, [SPEC])):
        with pytest.raises(TypeError, match="`target_log_prob_fn` uses a Tensor"):
            trace(target)


@pytest.mark.parametrize(
    ("target", "error"),
    [
        (lambda q: np.asarray(q), NotImplementedError),
        (lambda q: q.numpy(), AttributeError),
        (lambda q: float(q[0, 0]), TypeError),
    ],
)
def test_use_of_values_while_tracing_is_explained(target, error):
    with pytest.raises(error) as raised:
        traced(target)
    assert "being traced: Tensors have no values" in raised.value.__notes__[0]


def of_numpy(q):
    value = tf.numpy_function(
        lambda q: -0.5 * (q**2).sum(axis=-1).astype(np.float32), [q], tf.float32
    )
    return tf.ensure_shape(value, q.shape[:1])


def of_python(function):
    def target(q):
        value = tf.py_function(function, [q], tf.float32)
        return tf.ensure_shape(value, q.shape[:1])

    return target


@tf.custom_gradient
def of_numpy_with_a_gradient(q):
    return of_numpy(q), lambda upstream: -upstream[:, tf.newaxis] * q


numpy_in_python = of_python(lambda q: -0.5 * (q.numpy() ** 2).sum(axis=-1))
WITHOUT = {
    "constant": lambda q: tf.zeros([3]),
    "stop_gradient": lambda q: normal(tf.stop_gradient(q)),
    "numpy_function": of_numpy,
    "integers": lambda q: tf.cast(tf.cast(normal(q), tf.int32), tf.float32),
    "argmax": lambda q: tf.cast(tf.argmax(q, axis=-1), tf.float32),
}
WITH = {
    "plain": normal,
    "custom_gradient": of_numpy_with_a_gradient,
    "py_function": of_python(normal),
    "tf.function": tf.function(normal),
    "loop": lambda q: tf.while_loop(
        lambda i, x: i < 3, lambda i, x: (i + 1, x + normal(q)), [0, tf.zeros([3])]
    )[1],
    "in part": lambda q: q[:, 0] + of_numpy(q),
    "flat": lambda q: 0.0 * normal(q),
}


@pytest.mark.parametrize("name", WITHOUT)
def test_a_target_without_a_gradient_is_seen_by_tracing(name):
    assert "does not depend on the state" in missing_gradient(WITHOUT[name], [SPEC])


@pytest.mark.parametrize("name", WITH)
def test_a_target_with_a_gradient_is_let_through(name):
    assert missing_gradient(WITH[name], [SPEC]) is None
    assert lost_gradient(WITH[name], [tf.zeros([3, 2])]) is None
    assert lost_gradient(WITH[name], [tf.ones([3, 2])]) is None


def test_one_part_with_a_gradient_is_enough():
    parts = [SPEC, tf.TensorSpec([3], tf.float32)]
    assert missing_gradient(lambda q, s: normal(q), parts) is None
    assert missing_gradient(lambda q, s: tf.zeros([3]), parts) is not None


@pytest.mark.parametrize("value", [None, 1.0, "text", tf.constant([1, 2, 3])])
def test_what_is_no_density_is_for_others_to_judge(value):
    assert missing_gradient(lambda q: value, [SPEC]) is None
    assert lost_gradient(lambda q: value, [tf.ones([3, 2])]) is None


@pytest.mark.parametrize(
    "target",
    [
        numpy_in_python,
        # In the midst of other operations, and inside a loop.
        lambda q: 2.0 * numpy_in_python(tf.reshape(q, [3, 2]) * 2.0) + 1.0,
        lambda q: tf.map_fn(lambda row: numpy_in_python(row[tf.newaxis])[0], q),
    ],
)
def test_numpy_in_a_py_function_shows_when_it_is_run(target):
    assert missing_gradient(target, [SPEC]) is None
    assert "py_function computes it with NumPy" in lost_gradient(
        target, [tf.ones([3, 2])]
    )


def test_a_density_without_py_function_is_not_evaluated():
    calls = []

    def counted(q):
        calls.append(tf.executing_eagerly())
        with tf.control_dependencies(
            [tf.numpy_function(lambda: calls.append("run"), [], [])]
        ):
            return tf.identity(normal(q))

    assert lost_gradient(counted, [tf.ones([3, 2])]) is None
    assert calls == [False]


def test_an_error_of_the_density_itself_is_no_lost_gradient():
    def target(q):
        with tf.control_dependencies([tf.debugging.assert_less(q, 0.0)]):
            return numpy_in_python(q)

    with pytest.raises(tf.errors.InvalidArgumentError):
        lost_gradient(target, [tf.ones([3, 2])])
