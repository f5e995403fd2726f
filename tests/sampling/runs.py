"""Small runs of `sample`, and what tests of checkpoints have in common."""

import os
import subprocess
import sys

import numpy as np

import tfp_lhnn


def sample_from_zero(n_draws, target, *, dim=2, hidden_units=(8,), **settings):
    """`sample` with a small network and a start at the origin."""
    start = np.zeros([dim], np.float32)
    return tfp_lhnn.sample(
        n_draws, target, initial_state=start, hidden_units=hidden_units, **settings
    )


def files(directory):
    return sorted(os.listdir(directory))


def dead_process():
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid
