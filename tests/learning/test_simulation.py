"""Training data by hand: tally, seeds, states, holes in the target, bad input."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfp_lhnn import targets
from tfp_lhnn.learning.simulation import simulate_training_data
from tfp_lhnn.network.latent_hnn import LatentHNN
from tfp_lhnn.network.physics_loss import physics_arrays

from .skewed_density import SCALES, skewed_gradient, starts


def skewed_log_prob(q):
    scales = tf.cast(SCALES, q.dtype)
    z = q / scales
    return -0.5 * tf.reduce_sum(z**2, axis=-1) - 0.1 * tf.exp(z[..., 0])


def by_trajectory(data, name="position"):
    """[trajectories, points, ...] of data from which nothing was dropped."""
    array = getattr(data, name)
    return array.reshape(data.trajectory.max() + 1, -1, *array.shape[1:])


@pytest.fixture(scope="module")
def data():
    return simulate_training_data(
        skewed_log_prob, starts(), 6, 17, 0.2, seed=3, num_leapfrog_steps=5
    )


def assert_same(a, b):
    for name in ("position", "momentum", "position_rate", "momentum_rate", "log_prob"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), strict=True)
    np.testing.assert_array_equal(a.trajectory, b.trajectory, strict=True)
    assert (a.num_gradients, a.num_dropped) == (b.num_gradients, b.num_dropped)


# --- what the data are


def test_rates_are_the_exact_derivatives_at_each_point(data):
    np.testing.assert_array_equal(by_trajectory(data)[:, 0], starts())
    gradient = skewed_gradient(data.position)
    np.testing.assert_allclose(data.momentum_rate, gradient, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(data.position_rate, data.momentum)
    np.testing.assert_allclose(data.log_prob, skewed_log_prob(data.position))


# --- the tally


def test_gradients_counted_from_outside_equal_the_tally():
    rows = {"value": 0, "gradient": 0}

    def count(kind, x):
        rows[kind] += len(x)
        return x

    @tf.custom_gradient
    def counted(q):
        value = skewed_log_prob(
            tf.ensure_shape(
                tf.numpy_function(lambda x: count("value", x), [q], q.dtype), q.shape
            )
        )

        def gradient(upstream):
            z = tf.numpy_function(lambda x: count("gradient", x), [q], q.dtype)
            return upstream[:, tf.newaxis] * -tf.ensure_shape(z, q.shape)

        return value, gradient

    data = simulate_training_data(
        counted, starts(4), 4, 9, 0.1, 0, num_leapfrog_steps=3, jit_compile=False
    )
    assert rows == {"value": 40, "gradient": 40}
    assert data.num_gradients == len(data) + data.num_dropped == 40


def test_xla_takes_what_it_can_and_says_what_to_do_otherwise():
    def opaque(q):
        q = tf.py_function(lambda x: x, [q], q.dtype)
        return -tf.reduce_sum(tf.ensure_shape(q, [2, 3]) ** 2, axis=-1)

    with pytest.raises(tf.errors.OpError) as raised:
        simulate_training_data(opaque, starts(2), 2, 2, 0.1, 0)
    assert "jit_compile=False" in raised.value.__notes__[0]


# --- seeds, dtypes, states


def test_a_seed_decides_everything_and_xla_nothing(data):
    def run(seed, jit_compile):
        return simulate_training_data(
            skewed_log_prob, starts(), 6, 17, 0.2, seed,
            num_leapfrog_steps=5, jit_compile=jit_compile,
        )  # fmt: skip

    assert_same(run(3, True), data)
    plain = run(3, False)
    np.testing.assert_allclose(plain.position, data.position, rtol=1e-9, atol=1e-9)
    assert_same(run(tf.constant([3, 0]), False), plain)
    assert_same(run([3, 0], False), plain)
    assert not np.allclose(run(4, False).momentum, plain.momentum)


def test_repeated_calls_do_not_set_off_the_retracing_alarm(caplog):
    for seed in range(6):  # TensorFlow complains at the fifth
        simulate_training_data(
            skewed_log_prob, starts(2), 2, 2, 0.1, seed, jit_compile=False
        )
    assert "retracing" not in caplog.text


def test_float32_one_start_many_trajectories():
    start = starts(1, np.float32)[0]
    data = simulate_training_data(skewed_log_prob, start, 20, 200, 0.1, seed=0)
    assert data.dtype == np.float32
    assert data.num_gradients == 4020 == data.num_points
    assert data.trajectory.dtype == np.int32
    np.testing.assert_array_equal(np.bincount(data.trajectory), 201)
    first = by_trajectory(data)[:, 0]
    np.testing.assert_array_equal(first, np.broadcast_to(start, first.shape))
    assert len(np.unique(by_trajectory(data, "momentum")[:, 0], axis=0)) == 20


def test_rows_are_reused_in_turn():
    data = simulate_training_data(skewed_log_prob, starts(2), 5, 1, 0.1, seed=0)
    np.testing.assert_array_equal(by_trajectory(data)[:, 0], starts(2)[[0, 1, 0, 1, 0]])


def test_state_of_many_parts_is_flattened_in_order(data):
    def log_prob(a, b):
        assert a.shape == (6,)
        assert b.shape == (6, 1, 2)
        return skewed_log_prob(tf.concat([a[:, tf.newaxis], b[:, 0]], axis=-1))

    state = (starts()[:, 0], starts()[:, tf.newaxis, 1:])
    parts = simulate_training_data(log_prob, state, 6, 17, 0.2, 3, num_leapfrog_steps=5)
    np.testing.assert_allclose(parts.position, data.position, rtol=1e-9, atol=1e-9)


# --- holes in the target


@pytest.mark.parametrize("hole", [np.nan, -np.inf])
@pytest.mark.parametrize("jit_compile", [True, False])
def test_holes_are_dropped_counted_and_left(hole, jit_compile):
    def log_prob(q):
        value = skewed_log_prob(q)
        return tf.where(q[:, 1] > 0.2, tf.constant(hole, q.dtype), value)

    q0 = -np.abs(starts(8))
    q0[3, 1] = 1.0  # one start lies in the hole
    data = simulate_training_data(log_prob, q0, 8, 60, 0.3, 1, jit_compile=jit_compile)
    assert data.num_gradients == 8 * 61 == len(data) + data.num_dropped
    assert data.position[:, 1].max() <= 0.2
    # Each segment is given up at its first bad point, so most points stay.
    assert 10 < data.num_dropped < 8 * 61 // 2
    assert np.sum(data.trajectory == 3) > 20  # it went on from another start


def test_overflow_is_a_hole():
    data = simulate_training_data(
        lambda q: -tf.reduce_sum(q**4, axis=-1), starts(4, np.float32), 4, 50, 3.0, 0
    )
    assert data.num_dropped > 0
    assert data.num_gradients == len(data) + data.num_dropped == 204


def test_no_finite_start_stops_before_the_first_step():
    calls = []

    def log_prob(q):
        nan = tf.numpy_function(lambda x: calls.append(1) or x * np.nan, [q], q.dtype)
        return skewed_log_prob(q) + tf.reduce_sum(tf.ensure_shape(nan, q.shape), -1)

    with pytest.raises(ValueError, match=r"target_log_prob_fn.*\n?.*initial_state"):
        simulate_training_data(log_prob, starts(), 6, 500, 0.1, 0, jit_compile=False)
    assert len(calls) == 1


def _loss_of_plain_fit(data):
    network = LatentHNN(data.dim, (8,), seed=0)
    network.compile(keras.optimizers.Adam(1e-3), jit_compile=False)
    history = network.fit(*physics_arrays(data), verbose=0).history
    return history["loss"][-1]


def test_what_diverges_on_a_curved_target_is_left_out_and_counted():
    q = 3.0 * np.random.default_rng(0).normal(size=(40, 10)).astype(np.float32)
    # Steps ten times too long for such starts.
    data = simulate_training_data(
        targets.rosenbrock(10).log_prob, q, 40, 40, 0.05, seed=1, jit_compile=False
    )
    assert data.num_gradients == 40 * 41 == len(data) + data.num_dropped
    assert data.num_dropped > 200
    assert len(data) > 600
    # No steeper than the starts, by and large.
    first = np.abs(data.momentum_rate[np.diff(data.trajectory, prepend=-1) > 0])
    assert np.max(np.abs(data.momentum_rate)) < 2.0 * np.max(first)
    assert np.isfinite(_loss_of_plain_fit(data))


def test_starts_of_gradients_beyond_any_use_are_left_out_and_counted():
    q = starts(20, np.float32)
    q[:3] *= 1e7
    data = simulate_training_data(
        lambda q: -tf.reduce_sum(q**4, axis=-1), q, 20, 10, 0.05, 1, jit_compile=False
    )
    assert data.num_dropped == 3
    assert np.max(np.abs(data.position)) < 10.0
    assert set(data.trajectory) == set(range(20))
    assert np.isfinite(_loss_of_plain_fit(data))


# --- bad input


def _through_numpy(q):
    value = tf.numpy_function(lambda x: x[:, 0], [q], q.dtype)
    return tf.ensure_shape(value, [q.shape[0]])


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"step_size": 0.0}, ValueError, "`step_size` is 0.0"),
        ({"step_size": -1}, ValueError, "`step_size` is -1"),
        ({"step_size": np.nan}, ValueError, "`step_size` is nan"),
        ({"step_size": np.inf}, ValueError, "`step_size` is inf"),
        ({"step_size": "0.1"}, TypeError, "`step_size` is '0.1'"),
        ({"step_size": [0.1, 0.2]}, TypeError, "`step_size` is .* one number"),
        ({"num_trajectories": 0}, ValueError, "`num_trajectories` is 0"),
        ({"num_trajectories": 2.0}, TypeError, "`num_trajectories` is 2.0"),
        ({"num_steps": 0}, ValueError, "`num_steps` is 0"),
        ({"num_steps": True}, TypeError, "`num_steps` is True"),
        ({"num_leapfrog_steps": -3}, ValueError, "`num_leapfrog_steps` is -3"),
        ({"num_leapfrog_steps": "a"}, TypeError, "`num_leapfrog_steps` is 'a'"),
        ({"seed": None}, TypeError, "`seed` is None"),
        ({"seed": 1.5}, TypeError, "`seed` is 1.5"),
        ({"seed": [1, 2, 3]}, TypeError, r"`seed` is \[1, 2, 3\]"),
        ({"initial_state": {"q": 1.0}}, TypeError, "`initial_state` is a dict"),
        ({"initial_state": np.zeros([2, 3], int)}, TypeError, "is int64; expected fl"),
        ({"initial_state": np.zeros([])}, ValueError, r"shape \(\); expected \[starts"),
        ({"initial_state": np.zeros([2, 3, 4])}, ValueError, r"shape \(2, 3, 4\)"),
        ({"initial_state": np.zeros([3, 3])}, ValueError, "3 starts .* 1 to 2 "),
        ({"initial_state": np.zeros([0, 3])}, ValueError, "has 0 starts"),
        ({"initial_state": np.zeros([2, 0])}, ValueError, "in 0 dimensions"),
        ({"initial_state": [0.0, 0.0]}, ValueError, r"`initial_state\[0\]` has shape"),
        (
            {"initial_state": [np.zeros([2]), np.zeros([1, 3])]},
            ValueError,
            r"`initial_state\[1\]` has shape \(1, 3\)",
        ),
        (
            {"target_log_prob_fn": lambda q: tf.reduce_sum(q)},
            ValueError,
            r"`target_log_prob_fn` returned shape \(\); expected \[2\]",
        ),
        ({"target_log_prob_fn": lambda q: q}, ValueError, r"returned shape \(2, 3\)"),
        ({"target_log_prob_fn": lambda q: None}, TypeError, "returned a NoneType"),
        (
            {"target_log_prob_fn": lambda q: tf.cast(q[:, 0], tf.float32)},
            TypeError,
            "returned float32; expected float64",
        ),
        (
            {"target_log_prob_fn": lambda q: tf.zeros([2], q.dtype)},
            ValueError,
            "`target_log_prob_fn` has no gradient",
        ),
        (
            {"target_log_prob_fn": lambda q: skewed_log_prob(tf.stop_gradient(q))},
            ValueError,
            "`target_log_prob_fn` has no gradient",
        ),
        (
            {"target_log_prob_fn": _through_numpy},
            ValueError,
            "`target_log_prob_fn` has no gradient",
        ),
        (
            {"target_log_prob_fn": lambda q: q[:, 0] if q[0, 0] > 0 else -q[:, 0]},
            TypeError,
            "`target_log_prob_fn` uses a Tensor where Python needs a value",
        ),
        ({"target_log_prob_fn": None}, TypeError, "`target_log_prob_fn` is a NoneType"),
        ({"initial_state": np.zeros([2, 3], bool)}, TypeError, "`.*_state` is bool"),
        ({"initial_state": "zeros"}, TypeError, "`initial_state` is string"),
        ({"initial_state": ["a", "b"]}, TypeError, r"`initial_state\[0\]` is string"),
        ({"initial_state": np.zeros([2, 3], "c8")}, TypeError, "is complex64"),
    ],
)
def test_bad_arguments_of_simulate_are_named(changes, error, message):
    arguments = {
        "target_log_prob_fn": skewed_log_prob,
        "initial_state": starts(2),
        "num_trajectories": 2,
        "num_steps": 3,
        "step_size": 0.1,
        "seed": 0,
    }
    with pytest.raises(error, match=message):
        simulate_training_data(**arguments | changes)


class TargetError(Exception):
    pass


def _raises(q):
    raise TargetError("as it is")


def test_an_exception_of_the_target_comes_through_with_a_note():
    with pytest.raises(TargetError, match="as it is") as raised:
        simulate_training_data(_raises, starts(2), 2, 3, 0.1, 0)
    assert raised.value.__notes__ == [
        "Raised by `target_log_prob_fn` when called with float64 of shape (2, 3). It "
        "was being traced: Tensors have no values then."
    ]


def test_a_state_of_another_width_than_the_targets_is_named():
    with pytest.raises(Exception, match="3") as raised:
        simulate_training_data(skewed_log_prob, starts(2)[:, :2], 2, 3, 0.1, 0)
    assert "float64 of shape (2, 2)" in raised.value.__notes__[0]
