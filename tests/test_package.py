"""What an import of the package costs and brings, each in a fresh process."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

import tfp_lhnn

# TFP and Keras load their parts when they are first touched. "Importing TFP" is what
# a user who samples has loaded anyway: the modules that TFP's own NUTS lives in, and
# the Keras that holds the network.
_IMPORT_TFP = """
import time, warnings
import keras
import tensorflow as tf
import tensorflow_probability as tfp
keras.Model, tfp.mcmc.NoUTurnSampler, tfp.distributions.Normal
tfp.experimental.mcmc.DiagonalMassMatrixAdaptation
"""


def run_python(code):
    return subprocess.run(
        [sys.executable, "-c", _IMPORT_TFP + code],
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def fresh_import():
    """Output of a process that imports TFP, then the package, warnings being errors."""
    done = run_python(
        "import sys\n"
        "before = set(sys.modules)\n"
        "begin = time.perf_counter()\n"
        "warnings.simplefilter('error')\n"
        "import tfp_lhnn\n"
        "print(time.perf_counter() - begin)\n"
        "print(*sorted(set(sys.modules) - before))\n"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_import_warns_of_nothing_and_takes_half_a_second_at_most(fresh_import):
    assert float(fresh_import[0]) < 0.5


def test_the_import_adds_neither_arviz_nor_matplotlib(fresh_import):
    # Keras itself loads matplotlib where it is installed; the package adds nothing.
    added = {name.partition(".")[0] for name in fresh_import[1].split()}
    assert "tfp_lhnn" in added
    assert not added & {"arviz", "matplotlib", "xarray"}


def test_all_names_what_there_is():
    assert len(set(tfp_lhnn.__all__)) == len(tfp_lhnn.__all__)
    missing = [name for name in tfp_lhnn.__all__ if not hasattr(tfp_lhnn, name)]
    assert not missing


def test_types_are_shipped():
    assert (Path(tfp_lhnn.__file__).parent / "py.typed").is_file()


def test_the_version_is_that_of_the_metadata():
    assert tfp_lhnn.__version__ == importlib.metadata.version("tfp_lhnn")
