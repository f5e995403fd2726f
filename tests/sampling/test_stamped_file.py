"""Files of a checkpoint know whose they are: strangers, swaps, changed contents."""

import json
import shutil

import numpy as np
import pytest

from tfp_lhnn.sampling.checkpoint import Checkpoint

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
    with pytest.raises(ValueError, match=r"000001\.npz is damaged.*delete it and all"):
        _ = Checkpoint(tmp_path, IDENTITY).num_chunks


def test_changed_contents_are_refused(tmp_path):
    filled(tmp_path)
    path = tmp_path / "chunk_000001.npz"
    with np.load(path) as saved:
        fields = dict(saved)
    fields["array_draws"][0] += 1.0
    np.savez(path, **fields)  # with a valid checksum of its own, as a zip file
    with pytest.raises(ValueError, match=r"000001\.npz is damaged.*checksum"):
        _ = Checkpoint(tmp_path, IDENTITY).num_chunks


def test_a_changed_run_id_is_refused(tmp_path):
    filled(tmp_path)
    path = tmp_path / "manifest.json"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps(fields | {"run_id": "0" * 32}))
    with pytest.raises(ValueError, match=r"manifest\.json.*checksum.*begin the run"):
        Checkpoint(tmp_path, IDENTITY)
