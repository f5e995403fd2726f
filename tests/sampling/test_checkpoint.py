"""Checkpoints: what is on disk after kills, full disks, damage and strangers."""

import errno
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import tfp_lhnn
from tfp_lhnn.sampling import manifest
from tfp_lhnn.sampling.checkpoint import Checkpoint
from tfp_lhnn.support.processes import host_name

from .runs import dead_process, files

IDENTITY = {"model": "abc", "seed": 3, "step_size": 0.1}


def chunk(index, n=50):
    rng = np.random.default_rng(index)
    return {
        "draws": rng.normal(size=(n, 4, 3)).astype(np.float32),
        "is_accepted": rng.uniform(size=(n, 4)) < 0.5,
        "num_gradients": index,
    }


def assert_chunk(arrays, index, n=50):
    expected = chunk(index, n)
    assert set(arrays) == set(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].dtype == np.asarray(array).dtype


def filled(directory, n=3):
    checkpoint = Checkpoint(directory, IDENTITY)
    for index in range(n):
        checkpoint.append(index, chunk(index))
    return checkpoint


def test_chunks_come_back_bit_by_bit(tmp_path):
    path = tmp_path / "new" / "run"
    filled(path)
    again = Checkpoint(path, IDENTITY)
    assert again.num_chunks == 3
    for index, arrays in enumerate(again.chunks()):
        assert_chunk(arrays, index)
    assert_chunk(again.read(1), 1)
    again.append(3, chunk(3))
    again.close()
    assert Checkpoint(path, IDENTITY).num_chunks == 4
    assert files(path) == [*(f"chunk_{i:06d}.npz" for i in range(4)), "manifest.json"]


def test_items(tmp_path):
    checkpoint = Checkpoint(tmp_path, IDENTITY)
    assert checkpoint.load("fit") is None
    checkpoint.save("fit", {"step_size": 0.25, "format_version": np.arange(3)})
    checkpoint.save("fit", {"step_size": 0.5, "file": np.array(["a", "ü"])})
    checkpoint.close()
    checkpoint = Checkpoint(tmp_path, IDENTITY)
    loaded = checkpoint.load("fit")
    assert set(loaded) == {"step_size", "file"}
    assert loaded["step_size"] == 0.5
    assert loaded["file"].tolist() == ["a", "ü"]
    assert checkpoint.num_chunks == 0
    checkpoint.save("nothing", {})
    assert checkpoint.load("nothing") == {}
    for name in ("Fit", "a/b", "", ".fit", "chunk_000000"):
        with pytest.raises(ValueError, match="`name` is"):
            checkpoint.save(name, {})


def test_out_of_step(tmp_path):
    checkpoint = filled(tmp_path, 2)
    for index in (0, 1, 3, -1):
        with pytest.raises(ValueError, match="expected 2, the next chunk"):
            checkpoint.append(index, chunk(index + 1))
    for index in (-1, 2):
        with pytest.raises(IndexError, match="has 2 chunks"):
            checkpoint.read(index)


def test_a_gap_ends_the_run_of_chunks(tmp_path):
    filled(tmp_path, 4)
    (tmp_path / "chunk_000002.npz").unlink()
    with Checkpoint(tmp_path, IDENTITY) as checkpoint:
        assert checkpoint.num_chunks == 2
        checkpoint.append(2, chunk(2))
    assert Checkpoint(tmp_path, IDENTITY).num_chunks == 4


def test_python_objects_are_refused_both_ways(tmp_path):
    checkpoint = Checkpoint(tmp_path, IDENTITY)
    with pytest.raises(ValueError, match="bad: Python objects"):
        checkpoint.append(0, {"bad": np.array([{}], object)})
    assert files(tmp_path) == [".lock", "manifest.json"]
    np.savez(
        tmp_path / "fit.npz",
        format_version=2,
        array_a=np.array([{}], object),
        allow_pickle=True,
    )
    with pytest.raises(ValueError, match=r"fit\.npz is damaged"):
        checkpoint.load("fit")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 4}, "seed is 3 there and 4 here"),
        ({"model": "abd"}, "model is abc there and abd here"),
        ({"step_size": 0.1 + 1e-15}, "step_size is 0.1 there"),
        ({"extra": 1}, "extra is not given there and 1 here"),
    ],
)
def test_another_run_is_refused(tmp_path, changes, message):
    filled(tmp_path)
    before = files(tmp_path)
    with pytest.raises(ValueError, match=message) as raised:
        Checkpoint(tmp_path, IDENTITY | changes)
    assert "another directory, or delete this one" in str(raised.value)
    assert ("seed" in str(raised.value)) is ("seed" in changes)
    assert files(tmp_path) == before


def test_types_do_not_matter_but_values_do(tmp_path):
    Checkpoint(tmp_path, IDENTITY | {"nan": float("nan"), "flag": True})
    same = {
        "model": np.str_("abc"),
        "seed": np.int64(3),
        "step_size": np.float64(0.1),
        "nan": np.nan,
        "flag": np.bool_(True) + 0,
    }
    Checkpoint(tmp_path, same)
    with pytest.raises(TypeError, match=r"`identity\['seed'\]` is a list"):
        Checkpoint(tmp_path, {"seed": [1]})


def test_another_version_is_refused(tmp_path, monkeypatch):
    filled(tmp_path)
    monkeypatch.setattr(manifest, "__version__", "9.9")
    with pytest.raises(ValueError, match=r"tfp_lhnn version is .* there and 9.9 here"):
        Checkpoint(tmp_path, IDENTITY)


@pytest.mark.parametrize("text", ["", "{}", '{"package": "other"}', "[1]", "\x00"])
def test_damaged_manifest(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(ValueError, match=r"manifest\.json is not"):
        Checkpoint(tmp_path, IDENTITY)


def test_foreign_files_are_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / ".thesis.tex.1.tmp").write_text("more of it")
    before = files(tmp_path)
    with pytest.raises(ValueError, match=r"no checkpoint.*thesis\.tex"):
        Checkpoint(tmp_path, IDENTITY)
    assert files(tmp_path) == before
    # In a checkpoint they don't matter.
    path = tmp_path / "run"
    filled(path)
    (path / "notes.txt").write_text("a good run")
    assert Checkpoint(path, IDENTITY).num_chunks == 3
    assert "notes.txt" in files(path)


def test_what_a_kill_leaves_is_cleared_away(tmp_path):
    # Before the manifest: as good as new.
    dead = f"{host_name()}.{dead_process()}.0.tmp"
    (tmp_path / f".manifest.json.{dead}").write_text('{"pack')
    (tmp_path / ".probe.tmp").touch()
    filled(tmp_path, 1)
    torn = (tmp_path / "chunk_000000.npz").read_bytes()[:100]
    (tmp_path / f".chunk_000001.npz.{dead}").write_bytes(torn)
    assert Checkpoint(tmp_path, IDENTITY).num_chunks == 1
    assert files(tmp_path) == ["chunk_000000.npz", "manifest.json"]


def test_what_a_living_process_writes_is_left_alone(tmp_path):
    filled(tmp_path, 1)
    living = [
        f".chunk_000001.npz.{host_name()}.{os.getppid()}.0.tmp",
        f".chunk_000001.npz.another-host.{dead_process()}.0.tmp",
    ]
    for name in living:
        (tmp_path / name).write_text("half a chu")
    assert Checkpoint(tmp_path, IDENTITY).num_chunks == 1
    assert files(tmp_path) == sorted([*living, "chunk_000000.npz", "manifest.json"])


def test_damage_is_found_and_named(tmp_path):
    filled(tmp_path)
    path = tmp_path / "chunk_000001.npz"
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    noticed = 0
    for _ in range(150):
        bad = bytearray(good)
        bad[rng.integers(len(bad))] ^= 1 << rng.integers(8)
        path.write_bytes(bad)
        try:
            arrays = Checkpoint(tmp_path, IDENTITY).read(1)
        except ValueError as error:
            noticed += "chunk_000001.npz is damaged" in str(error)
        else:  # bits that mean nothing (dates) may be anything
            assert_chunk(arrays, 1)
    assert noticed > 100
    for end in (0, 10, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:end])
        with pytest.raises(ValueError, match=r"chunk_000001\.npz is damaged"):
            _ = Checkpoint(tmp_path, IDENTITY).num_chunks
    path.write_bytes(good)
    assert Checkpoint(tmp_path, IDENTITY).num_chunks == 3


def test_no_directory_to_be_had(tmp_path):
    file = tmp_path / "file"
    file.touch()
    for path in (file, file / "below"):
        with pytest.raises(NotADirectoryError, match="checkpoint directory") as raised:
            Checkpoint(path, IDENTITY)
        assert str(path) in str(raised.value)


@pytest.mark.parametrize("new", [True, False])
def test_unwritable_directory(tmp_path, monkeypatch, new):
    if not new:
        filled(tmp_path)

    # By hand: the tests may run as root, who may write anywhere.
    def refuse(self, *_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(pathlib.Path, "touch", refuse)
    with pytest.raises(PermissionError, match="cannot use this") as raised:
        Checkpoint(tmp_path, IDENTITY)
    assert str(tmp_path) in str(raised.value)


@pytest.mark.parametrize("at", ["fsync", "replace"])
def test_full_disk(tmp_path, monkeypatch, at):
    checkpoint = filled(tmp_path)
    before = files(tmp_path)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, at, full)
        with pytest.raises(OSError, match=r"with 3 chunks.*same call") as raised:
            checkpoint.append(3, chunk(3))
        with pytest.raises(OSError, match=r"fit\.npz"):
            checkpoint.save("fit", {"a": 1})
    assert raised.value.errno == errno.ENOSPC
    assert "chunk_000003.npz" in str(raised.value)
    assert files(tmp_path) == before
    assert [int(c["num_gradients"]) for c in checkpoint.chunks()] == [0, 1, 2]
    checkpoint.append(3, chunk(3))
    checkpoint.close()
    assert_chunk(Checkpoint(tmp_path, IDENTITY).read(3), 3)


def test_a_write_that_stops_half_way(tmp_path):
    checkpoint = filled(tmp_path)
    before = files(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The system itself cuts the file off, as a full disk does.
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(OSError, match="with 3 chunks"):
            checkpoint.append(3, chunk(3, n=10_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert files(tmp_path) == before
    checkpoint.close()
    assert Checkpoint(tmp_path, IDENTITY).num_chunks == 3


def test_data_reach_the_disk_before_their_name(tmp_path, monkeypatch):
    checkpoint = filled(tmp_path, 0)
    events = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(descriptor):
        events.append(("fsync", os.readlink(f"/proc/self/fd/{descriptor}")))
        real_fsync(descriptor)

    def replace(source, target):
        events.append(("replace", str(target)))
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    checkpoint.append(0, chunk(0))
    final = str(tmp_path / "chunk_000000.npz")
    where = events.index(("replace", final))
    (kind, temporary) = events[where - 1]
    assert kind == "fsync"
    assert os.path.basename(temporary).startswith(".chunk_000000.npz.")
    assert events[where + 1] == ("fsync", str(tmp_path))


# A package without its __init__, which would import TensorFlow: six seconds each.
IMPORT = """
import os, sys, types
package = types.ModuleType("tfp_lhnn")
package.__path__ = [sys.argv[2]]
sys.modules["tfp_lhnn"] = package
import numpy as np
from tfp_lhnn.sampling.checkpoint import Checkpoint
"""
WRITER = """
checkpoint = Checkpoint(sys.argv[1], {"seed": 1})
print("ready", flush=True)
for index in range(checkpoint.num_chunks, 100_000):
    rng = np.random.default_rng(index)
    checkpoint.append(index, {"draws": rng.normal(size=(5000 + index, 10))})
"""


def test_kills_leave_a_prefix(tmp_path):
    path = tmp_path / "run"
    package = os.path.dirname(tfp_lhnn.__file__)
    rng = np.random.default_rng()  # the moments can't be repeated anyway
    num_chunks = num_kills = num_torn = 0
    # Until some kills have met a write, without which the test would show nothing.
    while num_kills < 6 or (num_torn < 2 and num_kills < 40):
        writer = subprocess.Popen(
            [sys.executable, "-c", IMPORT + WRITER, str(path), package],
            stdout=subprocess.PIPE,
        )
        try:
            assert writer.stdout.readline() == b"ready\n"
            time.sleep(rng.uniform(0.0, 0.15))
        finally:
            writer.send_signal(signal.SIGKILL)
            writer.communicate()
        num_kills += 1
        num_torn += any(name.endswith(".tmp") for name in files(path))
        checkpoint = Checkpoint(path, {"seed": 1})
        assert not any(name.endswith(".tmp") for name in files(path))
        assert checkpoint.num_chunks >= num_chunks
        num_chunks = checkpoint.num_chunks
        for index, arrays in enumerate(checkpoint.chunks()):
            expected = np.random.default_rng(index).normal(size=(5000 + index, 10))
            np.testing.assert_array_equal(arrays["draws"], expected)
        checkpoint.close()
    assert num_chunks > 0
    assert num_torn > 0
