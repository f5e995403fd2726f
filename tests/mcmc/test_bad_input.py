"""Clear refusals of bad input, and divergences inside a trajectory."""

import re
from typing import NamedTuple

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
    poison,
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
        (tf.zeros([2, 5], tf.int32), TypeError, "int32"),
    ],
    ids=["dict", "nested", "empty", "too small", "too large", "integer"],
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


# Inside a trajectory: a hole in the density, in its gradient or in the network.


class Hole(NamedTuple):
    """What is added inside the hole; tensors, so that one compilation serves all."""

    to_log_prob: float = 0.0
    to_gradient: float = 0.0
    to_network_energy: float = 0.0
    to_network_gradient: float = 0.0


# What is not finite, and what it is instead.
HOLES = [
    (["log_prob"], [NAN, INF, -INF]),
    (["gradient"], [NAN, INF]),
    (["network_energy"], [NAN, INF, -INF]),
    (["network_gradient"], [NAN, -INF]),
    (["network_energy", "network_gradient"], [NAN, INF]),
]


class HoledNetwork(ExactNetwork):
    """Exact but for the hole; its weights are what is added there."""

    def __init__(self, hole, separable):
        super().__init__(smooth_log_prob)
        self.trainable_variables = [hole.to_network_energy, hole.to_network_gradient]
        self.separable = separable

    def stateless_call(self, trainable, non_trainable, x):
        to_energy, to_gradient = trainable
        x = x[:, :2]  # A joint network gets the momenta too.
        energy, _ = super().stateless_call(
            [], non_trainable, poison_hole(x, to_gradient)
        )
        return energy + add_in_hole(x, to_energy)[:, tf.newaxis], non_trainable


def smooth_log_prob(q):
    return -0.5 * tf.reduce_sum(q**2, axis=-1) - 0.2 * q[..., 1]


def in_hole(q):
    """A slab off the middle that trajectories of a normal density often meet."""
    return (q[..., 0] > 0.7) & (q[..., 0] < 1.6)


def add_in_hole(q, amount):
    return tf.where(in_hole(q), amount, 0.0)


def poison_hole(q, amount):
    return poison(q, add_in_hole(q, amount)[..., tf.newaxis])


def make_holed_kernel(hole, separable=True, **settings):
    def log_prob(q):
        value = smooth_log_prob(poison_hole(q, hole.to_gradient))
        return value + add_in_hole(q, hole.to_log_prob)

    return make_kernel(
        log_prob, HoledNetwork(hole, separable), 0.4, max_tree_depth=3, **settings
    )


class Outcome(NamedTuple):
    """What becomes of chains beside a hole.

    Attributes:
        diverges: some trees stop at it.
        is_entered: some chains come to be in it.
        is_rejected: some proposals in it are refused by delayed acceptance.
    """

    diverges: bool
    is_entered: bool
    is_rejected: bool = False


# A place like others: what is wrong with it is never asked, or made good.
UNSEEN = Outcome(diverges=False, is_entered=True)
DIVERGENCE = Outcome(diverges=True, is_entered=False)
REJECTION = Outcome(diverges=False, is_entered=False, is_rejected=True)
# Of two kinds of draws or leaves one stops there and the other does not.
EITHER = Outcome(diverges=True, is_entered=True)

# In the order of `HOLES`.
HOLED_MODES = {
    # The network is exact outside its own hole, so no true gradient is needed anywhere
    # else; and there true gradients repair the leaf. Its energy is never asked for.
    "cooldown": (
        {"mode": "cooldown"},
        [DIVERGENCE, UNSEEN, UNSEEN, UNSEEN, UNSEEN],
    ),
    "cooldown, multinomial and joint": (
        {"mode": "cooldown", "trajectory_sampling": "multinomial", "separable": False},
        [DIVERGENCE, UNSEEN, UNSEEN, UNSEEN, UNSEEN],
    ),
    "cooldown without trust": (
        {"mode": "cooldown", "max_hnn_energy_diff": -INF},
        [DIVERGENCE, DIVERGENCE, UNSEEN, UNSEEN, UNSEEN],
    ),
    # The residual finds an energy that is not finite, but not a gradient alone.
    "pointwise": (
        {"mode": "pointwise"},
        [DIVERGENCE, UNSEEN, UNSEEN, DIVERGENCE, UNSEEN],
    ),
    # Trust in one half of the hole.
    "pointwise by a rule": (
        {"mode": "pointwise", "trust_network_fn": lambda q: q[..., 1] > 0.0},
        [DIVERGENCE, EITHER, UNSEEN, EITHER, EITHER],
    ),
    "none": (
        {"mode": "none"},
        [DIVERGENCE, UNSEEN, UNSEEN, DIVERGENCE, DIVERGENCE],
    ),
    "none, multinomial and joint": (
        {"mode": "none", "trajectory_sampling": "multinomial", "separable": False},
        [DIVERGENCE, UNSEEN, UNSEEN, DIVERGENCE, DIVERGENCE],
    ),
    "delayed": (
        {"mode": "delayed", "num_surrogate_transitions": 2},
        [REJECTION, UNSEEN, DIVERGENCE, DIVERGENCE, DIVERGENCE],
    ),
    "delayed with true transitions": (
        {"mode": "delayed with true transitions", "trajectory_sampling": "slice"},
        # A true transition may lead into the network's hole; the next draw on the
        # network has no density there to be accepted with.
        [
            DIVERGENCE._replace(is_rejected=True),
            EITHER,
            EITHER._replace(is_rejected=True),
            EITHER,
            EITHER._replace(is_rejected=True),
        ],
    ),
}


# What the others do is for the most part what these do.
USUAL_HOLED_MODES = ("cooldown", "pointwise", "none", "delayed with true transitions")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param(
            *case,
            id=name,
            marks=[] if name in USUAL_HOLED_MODES else [pytest.mark.slow],
        )
        for name, case in HOLED_MODES.items()
    ],
)
def test_no_state_is_ever_taken_in_a_hole_of_the_density(settings, expected):
    @tf.function(jit_compile=True, autograph=False)
    def step(state, results, hole, seed):
        return make_holed_kernel(hole, **settings).one_step(state, results, seed=seed)

    initial = np.random.default_rng(5).normal(size=(64, 2)).astype(np.float32)
    initial[:, 0] = -np.abs(initial[:, 0])  # beside the hole
    for (where, values), outcome in zip(HOLES, expected, strict=True):
        for value in values:
            hole = Hole(**{f"to_{what}": value for what in where})
            hole = tf.nest.map_structure(tf.constant, hole)
            state = tf.constant(initial)
            results = make_holed_kernel(hole, **settings).bootstrap_results(state)
            num_divergences = num_in_hole = num_rejected = 0
            for i in range(12):
                state, results = step(state, results, hole, tf.constant([3, i]))
                num_divergences += np.sum(results.has_divergence)
                num_in_hole += np.sum(in_hole(state))
                num_rejected += np.sum(refused(results))
                message = f"{where} {value}, draw {i}"
                assert np.isfinite(state).all(), message
                assert np.isfinite(results.energy).all(), message
                assert not np.isnan(results.log_accept_ratio).any(), message
                # Which is not so for a density in the hole.
                np.testing.assert_allclose(
                    results.target_log_prob, smooth_log_prob(state), atol=1e-5
                )
            counts = Outcome(num_divergences, num_in_hole, num_rejected)
            for count, does_happen in zip(counts, outcome, strict=True):
                assert (count > 20) if does_happen else (count == 0), (message, counts)
    assert step.experimental_get_tracing_count() == 1


def refused(results):
    """Chains whose proposal had no density to be accepted with, `[chains]`."""
    if not hasattr(results, "log_delayed_accept_ratio"):
        return np.zeros(results.energy.shape, bool)
    ratio = results.log_delayed_accept_ratio.numpy()
    assert not np.isnan(ratio).any()
    assert not np.any((ratio == -INF) & results.is_accepted)
    return ratio == -INF


def test_delayed_acceptance_leaves_a_hole_of_the_network_by_true_transitions():
    hole = tf.nest.map_structure(tf.constant, Hole(to_network_energy=NAN))
    state = tf.tile([[1.0, 0.0]], [16, 1])
    assert np.all(in_hole(state))

    stays = make_holed_kernel(hole, mode="delayed")
    new_state, results = stays.one_step(
        state, stays.bootstrap_results(state), seed=[1, 2]
    )
    np.testing.assert_array_equal(new_state, state)
    np.testing.assert_array_equal(results.log_delayed_accept_ratio, -INF)
    np.testing.assert_array_equal(results.log_accept_ratio, -INF)
    assert np.isfinite(results.energy).all()
    assert not np.any(results.is_accepted)

    leaves = stays.copy(true_transition_probability=1.0)
    new_state, _ = leaves.one_step(state, results, seed=[1, 2])
    assert np.mean(in_hole(new_state)) < 0.8
