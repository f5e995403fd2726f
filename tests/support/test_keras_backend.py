"""Another backend of Keras than TensorFlow is refused at import."""

import os
import subprocess
import sys

import pytest

from tfp_lhnn.support import keras_backend

# Stands in for a Keras that was imported with another backend, which need not be here.
OTHER_KERAS = """
import sys, types
keras = sys.modules["keras"] = types.ModuleType("keras")
keras.config = types.SimpleNamespace(backend=lambda: "jax")
"""


def import_with(backend, before=""):
    return subprocess.run(
        [sys.executable, "-c", f"{before}\nimport tfp_lhnn"],
        env={**os.environ, "KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_another_backend_is_named_before_it_is_imported(backend):
    done = import_with(backend)
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: KERAS_BACKEND is '{backend}'. tfp_lhnn needs")
    assert "keras/src" not in done.stderr


def test_a_keras_that_runs_on_another_backend_is_named():
    done = import_with("", OTHER_KERAS)
    assert "ImportError: the backend of Keras is 'jax'. tfp_lhnn needs" in done.stderr


def test_tensorflow_is_accepted():
    done = import_with("tensorflow")
    assert done.returncode == 0, done.stderr


def test_what_is_refused_is_named_with_its_source():
    keras_backend._refuse("tensorflow", "it")
    with pytest.raises(ImportError, match=r"it is 'torch'.*KERAS_BACKEND"):
        keras_backend._refuse("torch", "it")
