"""Clear refusals of bad input."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from .helpers import (
    DIM,
    JOINT_MODES,
    MODES,
    ExactNetwork,
    make_kernel,
    skewed_log_prob,
    skewed_parts_log_prob,
    small_network,
    split,
    start,
)

NAN, INF = float("nan"), float("inf")


each_kernel = pytest.mark.parametrize("mode", ["cooldown", "delayed"])

UNBUILT = keras.Sequential([keras.layers.Dense(DIM)])
STEP_SIZES = [0.0, -0.1, NAN, INF, [0.1, 0.0], [0.1, NAN], np.array([0.1, -0.1])]

# Of both kernels: argument, what it raises with what message, for which values.
IN_BOTH_KERNELS = [
    ("max_tree_depth", ValueError, "`max_tree_depth`", [25, 0, -1]),
    ("max_tree_depth", TypeError, "`max_tree_depth`", [3.0, True]),
    ("target", TypeError, "`target_log_prob_fn` must be callable", [None]),
    ("network", TypeError, "`network` must be a Keras model", ["network"]),
    ("network", ValueError, "`network` has no weights yet", [UNBUILT]),
    ("step_size", ValueError, "`step_size` must be positive", STEP_SIZES),
    ("step_size", ValueError, "`step_size` must be", [tf.constant([[0.1], [-1.0]])]),
    ("step_size", ValueError, "`step_size` is empty", [[]]),
    ("step_size", TypeError, "`step_size` must be a", [0.1 + 0j, tf.constant(1j)]),
    ("step_size", TypeError, "`step_size` must be a number", ["a", None, {"q": 0.1}]),
    # An infinite threshold would let a leaf that is not finite pass.
    ("max_energy_diff", ValueError, "`max_energy_diff` must be pos", [0.0, NAN, INF]),
    ("max_energy_diff", TypeError, "`max_energy_diff` must be a number", ["1"]),
    ("trajectory_sampling", ValueError, "`trajectory_sampling` must", ["sliced"]),
]
IN_ONE_KERNEL = {
    "cooldown": [
        ("max_hnn_energy_diff", ValueError, "_diff` must be", [0.0, -1.0, NAN]),
        ("max_hnn_energy_diff", TypeError, "_diff` must be a number", ["10"]),
        ("max_hnn_energy_diff", ValueError, "must not exceed", [2e3]),
        ("num_fallback_samples", ValueError, "`num_fallback_samples`", [0]),
        ("num_fallback_samples", TypeError, "`num_fallback_samples`", [2.0, True]),
        ("error_monitor", ValueError, "must be one of", ["point", None, ["none"]]),
    ],
    "pointwise": [
        (
            "max_residual",
            ValueError,
            "`max_residual` must be finite",
            [-0.1, NAN, np.inf],
        ),
        ("max_residual", TypeError, "`max_residual` must be a number", ["1", None]),
        ("network_energy_offset", ValueError, "_offset` must be finite", [NAN, -INF]),
        ("network_energy_offset", TypeError, "_offset` must be a number", ["0", None]),
        ("trust_network_fn", TypeError, "_fn` must be callable", ["here", True]),
    ],
    "delayed": [
        (
            "true_transition_probability",
            ValueError,
            "`true_transition_probability` must be between 0 and 1",
            [-0.1, 1.01, NAN, INF],
        ),
        (
            "true_transition_probability",
            TypeError,
            "`true_transition_probability` must be a number",
            ["0.5", None, True],
        ),
        ("num_surrogate_transitions", ValueError, "_transitions`", [0, -1]),
        ("num_surrogate_transitions", TypeError, "_transitions`", [2.0, True]),
        (
            "num_surrogate_transitions",
            TypeError,
            "`num_surrogate_transitions` is (float32|int32 of shape)",
            [tf.constant(2.0), tf.Variable(2.0), tf.constant([1, 2])],
        ),
        ("num_surrogate_transitions", ValueError, "_transitions`", [tf.constant(0)]),
    ],
}


@pytest.mark.parametrize(
    ("mode", "argument", "error", "message", "value"),
    [
        (mode, argument, error, message, value)
        for mode in ("cooldown", "pointwise", "delayed")
        for argument, error, message, values in (
            IN_ONE_KERNEL[mode] + ([] if mode == "pointwise" else IN_BOTH_KERNELS)
        )
        for value in values
    ],
    ids=str,
)
def test_the_constructor_refuses(mode, argument, error, message, value):
    given = {"network": ExactNetwork(skewed_log_prob), argument: value}
    with pytest.raises(error, match=message):
        make_kernel(mode=mode, **given)


@pytest.mark.parametrize("mode", sorted(MODES.keys() - JOINT_MODES))
def test_modes_that_need_a_density_of_the_position_refuse_a_joint_network(mode):
    with pytest.raises(ValueError, match=r"separable.*joint|`separable=False`"):
        make_kernel(network=small_network(separable=False), mode=mode)


@pytest.mark.parametrize(
    ("trusts", "returned"),
    [
        (lambda q: tf.cast(q[..., 0] > 0.0, q.dtype), "float64 of shape (3,)"),
        (lambda q: q > 0.0, "bool of shape (3, 5)"),
        (lambda q: tf.reduce_any(q > 0.0), "bool of shape ()"),
        (lambda q: True, "bool of shape ()"),
    ],
    ids=["floats", "by coordinate", "for all chains", "no tensor"],
)
def test_bootstrap_refuses_a_rule_that_is_not_one_answer_for_each_chain(
    trusts, returned
):
    kernel = make_kernel(mode="pointwise", trust_network_fn=trusts)
    message = re.escape(f"`trust_network_fn` returned {returned}")
    with pytest.raises(ValueError, match=message):
        kernel.bootstrap_results(start())


def test_minus_infinity_asks_for_true_gradients_throughout():
    kernel = make_kernel(max_hnn_energy_diff=-INF)
    state = start()
    _, results = kernel.one_step(state, kernel.bootstrap_results(state), seed=[1, 2])
    np.testing.assert_array_equal(results.num_fallbacks, 1)
    # One for each leaf, and one for the start at each end that the tree grew from.
    extra = results.target_gradients - results.leapfrogs_taken
    assert np.all((extra >= 1) & (extra <= 2))


@each_kernel
def test_shard_axes_are_refused_unless_there_are_none(mode):
    kernel = make_kernel(mode=mode)
    assert kernel.experimental_with_shard_axes(None) is kernel
    assert kernel.experimental_with_shard_axes([None, []]) is kernel
    with pytest.raises(NotImplementedError, match="sharded"):
        kernel.experimental_with_shard_axes(["axis"])


@each_kernel
@pytest.mark.parametrize(
    ("state", "error", "message"),
    [
        ({"q": start()}, TypeError, "`init_state` is a dict"),
        ([[start()], start()], TypeError, "`init_state` is nested"),
        ([], ValueError, "`init_state` is an empty list"),
        (start()[:, :4], ValueError, "`network` has dim=5.*has 4 coordinates"),
        (tf.zeros([2, 6]), ValueError, "`network` has dim=5.*has 6 coordinates"),
        (tf.zeros([2, 5], tf.int32), TypeError, "`init_state` is int32"),
        (np.zeros([2, 5], bool), TypeError, "`init_state` is bool"),
        ("start", TypeError, "`init_state` is string"),
        ([start(), tf.constant(["a"])], TypeError, r"`init_state\[1\]` is string"),
    ],
    ids=[
        "dict",
        "nested",
        "empty",
        "too small",
        "too large",
        "integer",
        "bool",
        "string",
        "string part",
    ],
)
def test_bootstrap_refuses_a_state(state, error, message, mode):
    kernel = make_kernel(target=_sum_of_squares, mode=mode)
    with pytest.raises(error, match=message):
        kernel.bootstrap_results(state)


def _sum_of_squares(*parts):
    return -sum(tf.reduce_sum(tf.square(part), axis=-1) for part in parts)


def test_a_joint_network_has_the_dimension_of_the_positions():
    kernel = make_kernel(target=_sum_of_squares, network=small_network(separable=False))
    with pytest.raises(ValueError, match="`network` has dim=5"):
        kernel.bootstrap_results(tf.zeros([2, 10]))


@each_kernel
@pytest.mark.parametrize(
    ("target", "error"),
    [
        (lambda q: tf.square(q), ValueError),  # no sum over the event: every
        # coordinate would be a chain of its own.
        (lambda q: tf.reduce_sum(q, axis=0), ValueError),
        (lambda q: tf.cast(tf.reduce_sum(q, axis=-1), tf.float32), TypeError),
        (lambda q: tf.zeros([3], tf.int32), TypeError),
        (lambda q: (q, q), ValueError),
    ],
    ids=["no sum", "sum over chains", "other dtype", "integer", "two values"],
)
def test_bootstrap_refuses_what_the_target_returns(target, error, mode):
    with pytest.raises(error, match=r"`target_log_prob_fn` returned|coordinates"):
        make_kernel(target=target, mode=mode).bootstrap_results(start())


@each_kernel
@pytest.mark.parametrize("count", [1, 3])
def test_bootstrap_refuses_a_wrong_number_of_step_sizes(count, mode):
    steps = [np.full([3], 0.1)] * count
    kernel = make_kernel(skewed_parts_log_prob, step_size=steps, mode=mode)
    with pytest.raises(ValueError, match="`step_size`"):
        kernel.bootstrap_results(split(start()))


@each_kernel
def test_bootstrap_refuses_a_step_size_of_another_shape_than_the_part(mode):
    # One per chain needs a dimension for the coordinates: [3, 1].
    kernel = make_kernel(step_size=np.full([3], 0.1), mode=mode)
    with pytest.raises(ValueError, match=r"`step_size`.*shape"):
        kernel.bootstrap_results(start())


@each_kernel
@pytest.mark.parametrize("bad", [NAN, -INF, INF])
def test_a_start_without_density_is_refused(bad, mode):
    def log_prob(q):
        value = skewed_log_prob(q)
        return tf.where(q[..., 0] > 1.0, tf.cast(bad, value.dtype), value)

    kernel = make_kernel(log_prob, mode=mode)
    state = tf.concat([start(), 2.0 * tf.ones([1, DIM], tf.float64)], axis=0)
    with pytest.raises(ValueError, match="`init_state` has a log density that is not"):
        kernel.bootstrap_results(state)

    @tf.function(autograph=False)
    def in_a_graph(state):
        return kernel.bootstrap_results(state).target_log_prob

    with pytest.raises(tf.errors.InvalidArgumentError, match="`init_state` has a log"):
        in_a_graph(state)


WITHOUT_GRADIENT = {
    "constant": lambda q: tf.zeros(tf.shape(q)[:1], q.dtype),
    "stop_gradient": lambda q: skewed_log_prob(tf.stop_gradient(q)),
    "numpy_function": lambda q: tf.ensure_shape(
        tf.numpy_function(lambda q: -np.sum(q**2, axis=-1), [q], q.dtype), [3]
    ),
}


@pytest.mark.parametrize("mode", sorted(MODES))
@pytest.mark.parametrize("name", WITHOUT_GRADIENT)
def test_a_target_without_gradient_is_refused_where_one_may_be_asked_for(name, mode):
    target = CountingTarget(WITHOUT_GRADIENT[name])
    kernel = make_kernel(target, mode=mode)
    if mode in ("none", "delayed"):
        assert np.isfinite(kernel.bootstrap_results(start()).target_log_prob).all()
        return
    with pytest.raises(ValueError, match="`target_log_prob_fn` has no gradient"):
        kernel.bootstrap_results(start())
    assert target.num_evaluations == 0


class CountingTarget:
    """Counts calls with values, which cost; not those that only trace."""

    def __init__(self, log_prob):
        self._log_prob = log_prob
        self.num_evaluations = 0

    def __call__(self, *parts):
        self.num_evaluations += tf.executing_eagerly()
        return self._log_prob(*parts)


@each_kernel
def test_a_target_that_returns_nothing_is_refused(mode):
    kernel = make_kernel(lambda q: None, mode=mode)
    with pytest.raises(TypeError, match="`target_log_prob_fn` returned a NoneType"):
        kernel.bootstrap_results(start())


@each_kernel
def test_a_target_that_takes_a_tensor_for_a_bool_is_refused_in_a_graph(mode):
    def log_prob(q):
        return skewed_log_prob(q) if tf.reduce_all(q > 0.0) else skewed_log_prob(-q)

    kernel = make_kernel(log_prob, mode=mode)
    bootstrap = tf.function(kernel.bootstrap_results, autograph=False)
    with pytest.raises(TypeError, match="`target_log_prob_fn` uses a Tensor where"):
        bootstrap(start())


class MyError(Exception):
    """What only the user's own code raises."""


@each_kernel
def test_an_error_of_the_target_comes_through_with_a_note(mode):
    is_broken = False

    def log_prob(q):
        if is_broken:
            raise MyError("my own words")
        return skewed_log_prob(q)

    kernel = make_kernel(log_prob, mode=mode)
    results = kernel.bootstrap_results(start())
    is_broken = True
    with pytest.raises(MyError, match="my own words") as at_the_start:
        kernel.bootstrap_results(start())
    with pytest.raises(MyError, match="my own words") as in_a_transition:
        kernel.one_step(start(), results, seed=[1, 2])
    for caught in (at_the_start, in_a_transition):
        assert str(caught.value) == "my own words"
        assert_noted(caught, "float64 of shape (3, 5)")


@each_kernel
def test_a_state_of_another_width_than_the_target_takes_is_noted(mode):
    precision = tf.eye(5, dtype=tf.float64)
    kernel = make_kernel(
        lambda q: -tf.reduce_sum(q * tf.matmul(q, precision), axis=-1), mode=mode
    )
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        kernel.bootstrap_results(tf.zeros([2, 4], tf.float64))
    assert_noted(caught, "float64 of shape (2, 4)")


def assert_noted(caught, what):
    (note,) = caught.value.__notes__
    assert note.startswith("Raised by `target_log_prob_fn` when called with")
    assert what in note


@each_kernel
def test_an_event_shape_unknown_before_running_is_refused_by_name(mode):
    kernel = make_kernel(mode=mode)

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None, None])])
    def bootstrap(state):
        return kernel.bootstrap_results(state)

    with pytest.raises(ValueError, match=r"`init_state` has shape \(None, None\)"):
        bootstrap(tf.zeros([3, DIM]))


@each_kernel
def test_an_unknown_number_of_chains_is_no_obstacle(mode):
    kernel = make_kernel(mode=mode, max_tree_depth=1)

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None, DIM])])
    def step(state):
        return kernel.one_step(state, kernel.bootstrap_results(state), seed=[1, 2])

    assert step(tf.zeros([3, DIM]))[0].shape == (3, DIM)
    assert step(tf.zeros([4, DIM]))[0].shape == (4, DIM)
