"""Training trajectories: integrator, tally, holes, splits, files, bad input."""

import numpy as np
import pytest
import tensorflow as tf

from tfp_lhnn.evaluation.training_data import TrainingData
from tfp_lhnn.learning.simulation import simulate_training_data

# Unequal scales and a skew term: a symmetric density would hide a wrong sign.
SCALES = np.array([1.0, 0.5, 2.0])


def skewed_log_prob(q):
    scales = tf.cast(SCALES, q.dtype)
    z = q / scales
    return -0.5 * tf.reduce_sum(z**2, axis=-1) - 0.1 * tf.exp(z[..., 0])


def skewed_gradient(q):
    z = q / SCALES
    gradient = -z / SCALES
    gradient[..., 0] -= 0.1 * np.exp(z[..., 0]) / SCALES[0]
    return gradient


def starts(n=6, dtype=np.float64):
    return np.random.default_rng(1).normal(size=(n, 3)).astype(dtype)


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


def toy(n=12, trajectories=6, dtype=np.float64, dim=2, num_dropped=0):
    rng = np.random.default_rng(n)
    q, p, g = rng.normal(size=(3, n, dim)).astype(dtype)
    return TrainingData(
        position=q,
        momentum=p,
        position_rate=p,
        momentum_rate=g,
        log_prob=rng.normal(size=n).astype(dtype),
        trajectory=np.arange(n) * trajectories // n,
        num_gradients=n + num_dropped,
        num_dropped=num_dropped,
    )


# --- the dynamics


def test_first_segment_is_leapfrog_from_the_starts(data):
    q, p = by_trajectory(data), by_trajectory(data, "momentum")
    np.testing.assert_array_equal(q[:, 0], starts())
    x, v = q[:, 0], p[:, 0]
    for i in range(1, 6):
        v = v + 0.1 * skewed_gradient(x)
        x = x + 0.2 * v
        v = v + 0.1 * skewed_gradient(x)
        np.testing.assert_allclose(q[:, i], x, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(p[:, i], v, rtol=1e-12, atol=1e-12)


def test_rates_are_the_exact_derivatives_at_each_point(data):
    gradient = skewed_gradient(data.position)
    np.testing.assert_allclose(data.momentum_rate, gradient, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(data.position_rate, data.momentum)
    np.testing.assert_allclose(data.log_prob, skewed_log_prob(data.position))


def test_every_segment_begins_at_the_end_or_the_start_of_the_last():
    # A step near the stability limit of the narrowest scale, so that both outcomes are
    # common; 23 steps leave a shorter last segment.
    length, step = 4, 0.9
    data = simulate_training_data(
        skewed_log_prob, starts(40), 40, 23, step, seed=5, num_leapfrog_steps=length
    )
    q, p = by_trajectory(data), by_trajectory(data, "momentum")
    origin, counts = q[:, 0], {"accepted": 0, "rejected": 0}
    for end in range(length, 23, length):
        # Leapfrog is reversible: one step back from the next segment's first point
        # gives the place where that segment began.
        x, v = q[:, end + 1], p[:, end + 1]
        back = x - step * (v - 0.5 * step * skewed_gradient(x))
        stayed = np.all(np.isclose(back, origin, atol=1e-9), axis=-1)
        moved = np.all(np.isclose(back, q[:, end], atol=1e-9), axis=-1)
        assert np.all(stayed ^ moved)
        counts["accepted"] += moved.sum()
        counts["rejected"] += stayed.sum()
        origin = back
    assert min(counts.values()) > 10


def test_chained_trajectories_leave_a_gaussian_invariant():
    # 400 chains from exact draws: after each Metropolis test they are exact draws
    # again, independent across chains, so that the errors below are known.
    # Without the tests, this step would inflate the narrowest variance five times.
    scales = np.array([1.0, 0.5, 2.0])
    exact = np.random.default_rng(2).normal(size=(400, 3)) * scales
    data = simulate_training_data(
        lambda q: -0.5 * tf.reduce_sum((q / scales) ** 2, axis=-1),
        exact, 400, 41, 0.9, seed=7, num_leapfrog_steps=4,
    )  # fmt: skip
    q, p = by_trajectory(data), by_trajectory(data, "momentum")
    x, v = q[:, 41], p[:, 41]
    final = x - 0.9 * (v + 0.5 * 0.9 * x / scales**2)  # the state after 10 tests
    assert np.mean(np.abs(final - exact)) > 0.5  # it has moved
    z = final / scales
    # Five standard errors, for six statistics: a false alarm in 10⁵ seeds.
    np.testing.assert_allclose(z.mean(axis=0), 0.0, atol=5 / np.sqrt(400))
    np.testing.assert_allclose(z.var(axis=0), 1.0, atol=5 * np.sqrt(2 / 400))


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


# --- split, concatenate, from_gradients


def test_split_takes_whole_trajectories():
    data = toy(n=300, trajectories=20, num_dropped=7)
    train, held_out = data.split(0.2, seed=1)
    assert not set(train.trajectory) & set(held_out.trajectory)
    assert len(set(held_out.trajectory)) == 4
    assert len(train) + len(held_out) == 300
    assert train.num_gradients + held_out.num_gradients == data.num_gradients
    assert train.num_dropped + held_out.num_dropped == 7
    both = np.concatenate([train.position, held_out.position])
    np.testing.assert_array_equal(
        np.unique(both, axis=0), np.unique(data.position, axis=0)
    )
    assert_same(data.split(0.2, seed=1)[1], held_out)
    assert set(data.split(0.2, seed=2)[1].trajectory) != set(held_out.trajectory)


def test_split_of_few_trajectories_takes_points():
    train, held_out = toy(n=100, trajectories=4).split(0.25, seed=1)
    assert (len(train), len(held_out)) == (75, 25)
    assert len(set(held_out.trajectory)) > 1


@pytest.mark.parametrize("fraction", [1e-6, 0.5, 1 - 1e-6])
@pytest.mark.parametrize("n", [2, 5, 11])
def test_split_leaves_neither_side_empty(fraction, n):
    train, held_out = toy(n=n, trajectories=n).split(fraction, seed=0)
    assert len(train) + len(held_out) == n


def test_split_is_not_carried_away_by_one_long_trajectory():
    long = toy(n=1000, trajectories=1)
    singles = toy(n=200, trajectories=200)
    both = TrainingData.concatenate([long, singles])
    for seed in range(5):
        assert len(both.split(0.1, seed)[1]) == 120


def test_concatenate_keeps_trajectories_apart():
    a, b = toy(n=12, trajectories=6, num_dropped=2), toy(n=10, trajectories=5)
    both = TrainingData.concatenate([a, b, a.split(0.3, 0)[0]])
    assert len(set(both.trajectory)) == 6 + 5 + 4
    np.testing.assert_array_equal(both.position[12:22], b.position)
    assert both.num_gradients == 14 + 10 + 10
    assert both.num_dropped == 4


def test_from_gradients_draws_momenta_and_drops_holes():
    q = np.random.default_rng(0).normal(size=(4000, 3)).astype(np.float32)
    g, log_prob = -q.copy(), -0.5 * np.sum(q**2, axis=-1)
    g[5, 1], log_prob[9] = np.nan, -np.inf
    data = TrainingData.from_gradients(q, g, tf.constant(log_prob), seed=1)
    assert (len(data), data.num_gradients, data.num_dropped) == (3998, 4000, 2)
    assert data.momentum.dtype == np.float32
    np.testing.assert_array_equal(data.momentum_rate, -data.position)
    np.testing.assert_allclose(data.momentum.mean(axis=0), 0.0, atol=5 / np.sqrt(4000))
    np.testing.assert_allclose(data.momentum.var(axis=0), 1.0, atol=0.12)
    assert len(set(data.trajectory)) == 3998
    assert_same(data, TrainingData.from_gradients(q, g, log_prob, seed=1))
    tied = TrainingData.from_gradients(
        q, g, log_prob, 1, trajectory=np.arange(4000) % 7
    )
    assert len(set(tied.trajectory)) == 7


# --- files


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_save_and_load_bit_for_bit(tmp_path, dtype):
    path = tmp_path / "data"
    data = toy(dtype=dtype, num_dropped=3)
    toy(n=5).save(path)
    data.save(path)  # replaces
    assert_same(TrainingData.load(str(path)), data)
    assert [file.name for file in tmp_path.iterdir()] == ["data"]


def test_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "data.npz"
    toy().save(path)

    def broken(file, **_):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", broken)
    with pytest.raises(OSError, match="disk full"):
        toy(n=5).save(path)
    assert_same(TrainingData.load(path), toy())
    assert [file.name for file in tmp_path.iterdir()] == ["data.npz"]


def _resave(path, **changes):
    toy().save(path)
    with np.load(path) as saved:
        fields = dict(saved) | changes
    np.savez(path, **{k: v for k, v in fields.items() if v is not None})


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.write_bytes(b""), "is not a TrainingData file"),
        (lambda path: path.write_bytes(b"no zip at all"), "is not a TrainingData file"),
        (lambda path: np.savez(path, x=1), "no format_version, position"),
        (lambda path: _resave(path, momentum=None), "no momentum"),
        (lambda path: _resave(path, format_version=2), "version 2; expected 1"),
        (lambda path: _resave(path, log_prob=np.array([None])), "not a TrainingData"),
        (lambda path: _resave(path, log_prob=np.zeros(3)), "bad.*`log_prob` has shape"),
        (lambda path: _resave(path, num_gradients=[1, 2]), "holds bad TrainingData"),
    ],
)
def test_foreign_and_damaged_files_are_named(tmp_path, spoil, message):
    path = tmp_path / "odd.npz"
    spoil(path)
    with pytest.raises(ValueError, match=rf"odd\.npz.*{message}"):
        TrainingData.load(path)


def test_damaged_byte_and_missing_file(tmp_path):
    path = tmp_path / "odd.npz"
    toy().save(path)
    content = bytearray(path.read_bytes())
    content[200] ^= 0xFF  # inside the first array's data
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"odd\.npz is not a TrainingData file"):
        TrainingData.load(path)
    with pytest.raises(FileNotFoundError, match="absent"):
        TrainingData.load(tmp_path / "absent.npz")


# --- bad input


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


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"position": np.zeros([0, 2])}, ValueError, r"`position` has shape \(0, 2\)"),
        ({"position": np.zeros(12)}, ValueError, r"`position` has shape \(12,\)"),
        ({"position": np.zeros([12, 2], int)}, TypeError, "`position` is int64"),
        ({"momentum": np.zeros([12, 3])}, ValueError, "`momentum` has shape"),
        ({"position_rate": np.zeros([11, 2])}, ValueError, "`position_rate` has shape"),
        (
            {"momentum_rate": np.full([12, 2], np.nan)},
            ValueError,
            "`momentum_rate` has",
        ),
        ({"momentum": np.zeros([12, 2], "f")}, TypeError, "`momentum` is float32"),
        ({"log_prob": np.zeros([12, 1])}, ValueError, "`log_prob` has shape"),
        ({"trajectory": np.zeros(12)}, TypeError, "`trajectory` is float64"),
        ({"trajectory": np.zeros(3, int)}, ValueError, "`trajectory` has shape"),
        ({"num_gradients": 11}, ValueError, "`num_gradients` is 11; expected 12"),
        ({"num_gradients": 12.0}, TypeError, "`num_gradients` is 12.0"),
        ({"num_dropped": -1}, ValueError, "`num_dropped` is -1"),
    ],
)
def test_inconsistent_data_is_refused(changes, error, message):
    with pytest.raises(error, match=message):
        TrainingData(**vars(toy()) | changes)


@pytest.mark.parametrize("fraction", [0, 1, 0.0, 1.0, -0.1, 1.5, np.nan, "0.1", None])
def test_bad_held_out_fraction(fraction):
    with pytest.raises(ValueError, match="`held_out_fraction` is"):
        toy().split(fraction, seed=0)


def test_other_bad_input():
    with pytest.raises(ValueError, match="one point cannot be split"):
        toy(n=1, trajectories=1).split(0.5, seed=0)
    with pytest.raises(ValueError, match="`parts` is empty"):
        TrainingData.concatenate([])
    with pytest.raises(TypeError, match=r"`parts\[1\]` is a dict"):
        TrainingData.concatenate([toy(), {}])
    with pytest.raises(ValueError, match=r"`parts\[1\]` has dim 3; expected 2"):
        TrainingData.concatenate([toy(), toy(dim=3)])
    with pytest.raises(TypeError, match=r"`parts\[1\]` is float32; expected float64"):
        TrainingData.concatenate([toy(), toy(dtype=np.float32)])
    q = np.zeros([4, 2])
    with pytest.raises(ValueError, match="`gradient` has shape"):
        TrainingData.from_gradients(q, q[:2], q[:, 0], seed=0)
    with pytest.raises(ValueError, match="`trajectory` has shape"):
        TrainingData.from_gradients(q, q, q[:, 0], seed=0, trajectory=[1])
    with pytest.raises(ValueError, match="none of the 4 points is finite"):
        TrainingData.from_gradients(q, q, q[:, 0] - np.inf, seed=0)
