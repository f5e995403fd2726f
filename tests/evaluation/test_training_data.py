"""Training data: splits, files, bad input."""

import numpy as np
import pytest
import tensorflow as tf

from tfp_lhnn.evaluation.training_data import TrainingData


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
