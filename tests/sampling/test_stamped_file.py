"""Files of a checkpoint know whose they are: strangers, swaps, changed contents."""

import json
import shutil
import tracemalloc

import numpy as np
import pytest

from tfp_lhnn.sampling.checkpoint import Checkpoint
from tfp_lhnn.sampling.stamped_file import read_stamped, write_stamped

IDENTITY = {"model": "abc", "seed": 3, "step_size": 0.1}


def filled(path, identity=IDENTITY):
    with Checkpoint(path, identity) as checkpoint:
        for index in range(3):
            checkpoint.append(index, {"draws": np.arange(index, 9.0)})
        checkpoint.save("fit", {"step_size": 0.5})
    return path


@pytest.mark.parametrize("identity", [IDENTITY | {"seed": 4}, IDENTITY])
@pytest.mark.parametrize("name", ["chunk_000001.npz", "fit.npz"])
def test_a_file_of_another_run_is_refused(tmp_path, identity, name):
    path = filled(tmp_path / "run")
    other = filled(tmp_path / "other", identity)
    shutil.copy(other / name, path / name)
    checkpoint = Checkpoint(path, IDENTITY)
    message = rf"{name} belongs to another run.*Put the right file back"
    with pytest.raises(ValueError, match=message):
        _ = checkpoint.load("fit") and checkpoint.num_chunks


@pytest.mark.parametrize("source", ["chunk_000000.npz", "fit.npz"])
def test_a_file_under_another_name_is_refused(tmp_path, source):
    path = filled(tmp_path / "run")
    shutil.copy(path / source, path / "chunk_000002.npz")
    message = rf"chunk_000002\.npz is not what its name says.*{source}.*Put the right"
    with pytest.raises(ValueError, match=message):
        _ = Checkpoint(path, IDENTITY).num_chunks


@pytest.mark.parametrize("fields", [{}, {"format_version": 2}, {"format_version": 1}])
def test_a_foreign_file_is_refused(tmp_path, fields):
    filled(tmp_path)
    np.savez(tmp_path / "chunk_000001.npz", position=np.zeros(3), **fields)
    with pytest.raises(
        ValueError, match=r"000001\.npz is damaged or foreign.*delete it and all"
    ):
        _ = Checkpoint(tmp_path, IDENTITY).num_chunks


def stored_fields(directory):
    """A chunk of a new run in the directory, and what it holds."""
    path = filled(directory) / "chunk_000001.npz"
    with np.load(path) as saved:
        return path, dict(saved)


def test_changed_contents_are_refused(tmp_path):
    path, fields = stored_fields(tmp_path)
    fields["array_draws"][0] += 1.0
    np.savez(path, **fields)  # with a valid checksum of its own, as a zip file
    with pytest.raises(ValueError, match=r"000001\.npz is damaged.*checksum"):
        _ = Checkpoint(tmp_path, IDENTITY).num_chunks


def test_a_chunk_that_is_a_zip_bomb_is_refused(tmp_path):
    path, fields = stored_fields(tmp_path)
    fields["array_draws"] = np.zeros(10**7)
    np.savez_compressed(path, **fields)
    assert path.stat().st_size < 200_000
    del fields
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"000001\.npz is damaged.*compressed"):
            _ = Checkpoint(tmp_path, IDENTITY).num_chunks
        assert tracemalloc.get_traced_memory()[1] < 2e6
    finally:
        tracemalloc.stop()


def test_a_changed_run_id_is_refused(tmp_path):
    filled(tmp_path)
    path = tmp_path / "manifest.json"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps(fields | {"run_id": "0" * 32}))
    with pytest.raises(ValueError, match=r"manifest\.json.*checksum.*begin the run"):
        Checkpoint(tmp_path, IDENTITY)


SPECS = {"draws": ((None, 4), "float32"), "count": ((), "int64")}


def stamped(tmp_path, **arrays):
    draws = np.zeros((7, 4), np.float32)
    path = tmp_path / "chunk_000000.npz"
    write_stamped(path, "run 1", {"draws": draws, "count": 3} | arrays)
    return path


def test_arrays_of_the_expected_shapes_are_read(tmp_path):
    path = stamped(tmp_path)
    assert read_stamped(path, "run 1", "", SPECS)["draws"].shape == (7, 4)
    exact = SPECS | {"draws": ((7, 4), np.float32)}
    assert int(read_stamped(path, "run 1", "", exact)["count"]) == 3
    assert read_stamped(path, "run 1", "").keys() == SPECS.keys()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"draws": np.zeros((7, 5), "f")}, r"draws.npy is float32 of shape \(7, 5\)"),
        ({"draws": np.zeros(28, "f")}, r"expected float32 of shape \(any, 4\)"),
        ({"draws": np.zeros((7, 4))}, "draws.npy is float64"),
        ({"count": np.zeros(1, int)}, r"count.npy is int64 .* shape \(\)"),
        ({"more": 1}, "has the arrays count, draws, more; expected count, draws"),
    ],
)
def test_arrays_of_other_shapes_or_names_are_refused(tmp_path, arrays, message):
    path = stamped(tmp_path, **arrays)
    with pytest.raises(ValueError, match=rf"chunk_000000.*{message}.*Delete it\."):
        read_stamped(path, "run 1", "Delete it.", SPECS)


def test_a_missing_array_is_named(tmp_path):
    path = tmp_path / "chunk_000000.npz"
    write_stamped(path, "run 1", {"draws": np.zeros((7, 4), np.float32)})
    with pytest.raises(ValueError, match="has the arrays draws; expected count, draws"):
        read_stamped(path, "run 1", "", SPECS)


def test_a_large_array_in_place_of_a_small_one_takes_no_memory(tmp_path):
    path = stamped(tmp_path, draws=np.zeros((10**6, 5), np.float32))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"shape \(1000000, 5\)"):
            read_stamped(path, "run 1", "", SPECS)
        assert tracemalloc.get_traced_memory()[1] < 2e6
    finally:
        tracemalloc.stop()


def test_whose_it_is_comes_before_its_shapes(tmp_path):
    path = stamped(tmp_path, draws=np.zeros(3))
    with pytest.raises(ValueError, match="belongs to another run"):
        read_stamped(path, "run 2", "", SPECS)


@pytest.mark.parametrize(
    "array", ["", "text", np.array(["a", "bcd"]), np.zeros((0, 3)), 1.5, True]
)
def test_every_kind_of_array_has_a_checksum(tmp_path, array):
    path = tmp_path / "fit.npz"
    write_stamped(path, "run 1", {"it": array})
    found = read_stamped(path, "run 1", "")["it"]
    np.testing.assert_array_equal(found, array)
    assert found.dtype == np.asarray(array).dtype
