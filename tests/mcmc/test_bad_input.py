"""Clear refusals of bad input, and divergences inside a trajectory."""

from typing import NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

from .helpers import (
    DIM,
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


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"max_tree_depth": 25}, ValueError, "`max_tree_depth` is 25"),
        ({"target": None}, TypeError, "`target_log_prob_fn` must be callable"),
        ({"network": "network"}, TypeError, "`network` must be a Keras model"),
        (
            {"network": keras.Sequential([keras.layers.Dense(DIM)])},
            ValueError,
            "`network` has no weights yet",
        ),
        ({"step_size": 0.0}, ValueError, "`step_size` must be positive"),
        ({"step_size": -0.1}, ValueError, "`step_size` must be positive"),
        ({"step_size": NAN}, ValueError, "`step_size` must be positive"),
        ({"step_size": INF}, ValueError, "`step_size` must be positive"),
        ({"step_size": [0.1, 0.0]}, ValueError, "`step_size` must be positive"),
        ({"step_size": [0.1, NAN]}, ValueError, "`step_size` must be positive"),
        ({"step_size": tf.constant([[0.1], [-1.0]])}, ValueError, "`step_size`"),
        ({"step_size": np.array([0.1, -0.1])}, ValueError, "`step_size`"),
        ({"step_size": "small"}, TypeError, "`step_size` must be a number"),
        ({"step_size": None}, TypeError, "`step_size` must be a number"),
        ({"step_size": {"q": 0.1}}, TypeError, "`step_size`"),
        ({"step_size": []}, ValueError, "`step_size`"),
        ({"max_hnn_energy_diff": 0.0}, ValueError, "`max_hnn_energy_diff` must be"),
        ({"max_hnn_energy_diff": -1.0}, ValueError, "`max_hnn_energy_diff` must be"),
        ({"max_hnn_energy_diff": NAN}, ValueError, "`max_hnn_energy_diff` must be"),
        ({"max_hnn_energy_diff": "10"}, TypeError, "`max_hnn_energy_diff` must be"),
        ({"max_hnn_energy_diff": 2e3}, ValueError, "must not exceed"),
        ({"max_energy_diff": 0.0}, ValueError, "`max_energy_diff` must be positive"),
        ({"max_energy_diff": NAN}, ValueError, "`max_energy_diff` must be positive"),
        # An infinite threshold would let a leaf that is not finite pass.
        ({"max_energy_diff": INF}, ValueError, "`max_energy_diff` must be positive"),
        ({"num_fallback_samples": 0}, ValueError, "`num_fallback_samples`"),
        ({"num_fallback_samples": 2.0}, TypeError, "`num_fallback_samples`"),
        ({"num_fallback_samples": True}, TypeError, "`num_fallback_samples`"),
        ({"max_tree_depth": 0}, ValueError, "`max_tree_depth`"),
        ({"max_tree_depth": 3.0}, TypeError, "`max_tree_depth`"),
        ({"error_monitor": "pointless"}, ValueError, "`error_monitor` must be one of"),
        ({"error_monitor": None}, ValueError, "`error_monitor` must be one of"),
        ({"error_monitor": ["none"]}, ValueError, "`error_monitor` must be one of"),
        ({"trajectory_sampling": "sliced"}, ValueError, "`trajectory_sampling` must"),
    ],
    ids=str,
)
def test_the_constructor_refuses(arguments, error, message):
    given = {"network": ExactNetwork(skewed_log_prob), **arguments}
    with pytest.raises(error, match=message):
        make_kernel(**given)


def test_minus_infinity_asks_for_true_gradients_throughout():
    kernel = make_kernel(max_hnn_energy_diff=-INF)
    state = start()
    _, results = kernel.one_step(state, kernel.bootstrap_results(state), seed=[1, 2])
    np.testing.assert_array_equal(results.num_fallbacks, 1)
    # One for each leaf, and one for the start at each end that the tree grew from.
    extra = results.target_gradients - results.leapfrogs_taken
    assert np.all((extra >= 1) & (extra <= 2))


def test_shard_axes_are_refused_unless_there_are_none():
    kernel = make_kernel()
    assert kernel.experimental_with_shard_axes(None) is kernel
    assert kernel.experimental_with_shard_axes([None, []]) is kernel
    with pytest.raises(NotImplementedError, match="sharded"):
        kernel.experimental_with_shard_axes(["axis"])


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
def test_bootstrap_refuses_a_state(state, error, message):
    kernel = make_kernel(target=_sum_of_squares)
    with pytest.raises(error, match=message):
        kernel.bootstrap_results(state)


def _sum_of_squares(*parts):
    return -sum(tf.reduce_sum(tf.square(part), axis=-1) for part in parts)


def test_a_joint_network_has_the_dimension_of_the_positions():
    kernel = make_kernel(target=_sum_of_squares, network=small_network(separable=False))
    with pytest.raises(ValueError, match="`network` has dim=5"):
        kernel.bootstrap_results(tf.zeros([2, 10]))


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
def test_bootstrap_refuses_what_the_target_returns(target, error):
    with pytest.raises(error, match=r"`target_log_prob_fn` returned|coordinates"):
        make_kernel(target=target).bootstrap_results(start())


@pytest.mark.parametrize("count", [1, 3])
def test_bootstrap_refuses_a_wrong_number_of_step_sizes(count):
    steps = [np.full([3], 0.1)] * count
    kernel = make_kernel(skewed_parts_log_prob, step_size=steps)
    with pytest.raises(ValueError, match="`step_size`"):
        kernel.bootstrap_results(split(start()))


def test_bootstrap_refuses_a_step_size_of_another_shape_than_the_part():
    # One per chain needs a dimension for the coordinates: [3, 1].
    with pytest.raises(ValueError, match=r"`step_size`.*shape"):
        make_kernel(step_size=np.full([3], 0.1)).bootstrap_results(start())


@pytest.mark.parametrize("bad", [NAN, -INF, INF])
def test_a_start_without_density_is_refused(bad):
    def log_prob(q):
        value = skewed_log_prob(q)
        return tf.where(q[..., 0] > 1.0, tf.cast(bad, value.dtype), value)

    kernel = make_kernel(log_prob)
    state = tf.concat([start(), 2.0 * tf.ones([1, DIM], tf.float64)], axis=0)
    with pytest.raises(ValueError, match="`init_state` has a log density that is not"):
        kernel.bootstrap_results(state)

    @tf.function(autograph=False)
    def in_a_graph(state):
        return kernel.bootstrap_results(state).target_log_prob

    with pytest.raises(tf.errors.InvalidArgumentError, match="`init_state` has a log"):
        in_a_graph(state)


# Inside a trajectory: a hole in the density, in its gradient or in the network's.


class Hole(NamedTuple):
    """What is added inside the hole; tensors, so that one compilation serves all."""

    to_log_prob: float = 0.0
    to_gradient: float = 0.0
    to_network_gradient: float = 0.0


HOLES = {
    "log prob": [NAN, INF, -INF],
    "gradient": [NAN, INF],
    "network gradient": [NAN, -INF],
}


class HoledNetwork(ExactNetwork):
    """Exact but for the hole; its weight is what is added to the gradient there."""

    def __init__(self, amount, separable):
        super().__init__(smooth_log_prob)
        self.trainable_variables = [amount]
        self.separable = separable

    def stateless_call(self, trainable, non_trainable, x):
        x = x[:, :2]  # A joint network gets the momenta too.
        return super().stateless_call([], non_trainable, poison_hole(x, *trainable))


def smooth_log_prob(q):
    return -0.5 * tf.reduce_sum(q**2, axis=-1) - 0.2 * q[..., 1]


def in_hole(q):
    """A slab off the middle that trajectories of a normal density often meet."""
    return (q[..., 0] > 0.7) & (q[..., 0] < 1.6)


def poison_hole(q, amount):
    return poison(q, tf.where(in_hole(q)[..., tf.newaxis], amount, 0.0))


def make_holed_kernel(hole, separable, **kwargs):
    def log_prob(q):
        value = smooth_log_prob(poison_hole(q, hole.to_gradient))
        return tf.where(in_hole(q), value + hole.to_log_prob, value)

    network = HoledNetwork(hole.to_network_gradient, separable)
    return make_kernel(log_prob, network, 0.4, num_fallback_samples=2, **kwargs)


ALL_TRUE = {"max_hnn_energy_diff": -INF}
BY_NETWORK_ONLY = {"error_monitor": "none"}


@pytest.mark.parametrize(
    ("settings", "trajectory_sampling", "unseen"),
    [
        # The network is exact outside its own hole, so no true gradient is needed
        # anywhere else; and there true gradients repair the leaf.
        ({}, "slice", {"gradient", "network gradient"}),
        ({}, "multinomial", {"gradient", "network gradient"}),
        (BY_NETWORK_ONLY, "slice", {"gradient"}),
        (BY_NETWORK_ONLY, "multinomial", {"gradient"}),
        (ALL_TRUE, "slice", {"network gradient"}),
    ],
    ids=["cooldown", "cooldown-multinomial", "none", "none-multinomial", "all-true"],
)
def test_holes_are_divergences_and_never_accepted(
    settings, trajectory_sampling, unseen
):
    separable = trajectory_sampling == "slice"  # One kind of network for each.

    @tf.function(jit_compile=True, autograph=False)
    def step(state, results, hole, seed):
        kernel = make_holed_kernel(
            hole, separable, trajectory_sampling=trajectory_sampling, **settings
        )
        return kernel.one_step(state, results, seed=seed)

    initial = np.random.default_rng(5).normal(size=(64, 2)).astype(np.float32)
    initial[:, 0] = -np.abs(initial[:, 0])  # beside the hole
    for where, values in HOLES.items():
        for value in values:
            hole = Hole(**{"to_" + where.replace(" ", "_"): value})
            hole = tf.nest.map_structure(tf.constant, hole)
            state = tf.constant(initial)
            results = make_holed_kernel(hole, separable).bootstrap_results(state)
            num_divergences = num_in_hole = 0
            for i in range(12):
                state, results = step(state, results, hole, tf.constant([3, i]))
                num_divergences += np.sum(results.has_divergence)
                num_in_hole += np.sum(in_hole(state))
                message = f"{where} {value}, draw {i}"
                assert np.isfinite(state).all(), message
                assert np.isfinite(results.target_log_prob).all(), message
                assert np.isfinite(results.energy).all(), message
                assert not np.isnan(results.log_accept_ratio).any(), message
                np.testing.assert_allclose(
                    results.target_log_prob, smooth_log_prob(state), rtol=1e-5
                )
            if where in unseen:
                # Then the hole is a place like others, and chains do come there.
                assert (num_divergences, num_in_hole > 20) == (0, True), message
            else:
                assert (num_divergences > 20, num_in_hole) == (True, 0), message
            if where == "network gradient":
                assert np.any(results.num_fallbacks) == (settings != BY_NETWORK_ONLY)
    assert step.experimental_get_tracing_count() == 1
