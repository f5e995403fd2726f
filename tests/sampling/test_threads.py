"""Runs in threads of one process have the draws of runs one after the other."""

import threading

import numpy as np
import pytest
import tensorflow as tf

from .runs import sample_from_zero

pytestmark = pytest.mark.filterwarnings("ignore::tfp_lhnn.SamplingWarning")


def skewed(q):
    """Two coordinates that no Gaussian fits, so that networks are trained."""
    return tf.reduce_sum(-q - tf.exp(-q), axis=-1)


def run(target, seed):
    few = {"n_chains": 2, "gradient_budget": 900, "num_burnin_draws": 10}
    posterior = sample_from_zero(30, target, seed=seed, progress=False, **few)
    attrs = posterior.attrs
    return (
        posterior.posterior["x"].values,
        posterior.sample_stats["network_energy"].values,
        attrs["target_gradients"],
        attrs["target_evaluations"],
    )


# They share all compiled functions: those of networks, and those of the target.
RUNS = [(skewed, 1), (skewed, 2)]


def test_threads_do_not_disturb_each_other():
    serial = [run(*arguments) for arguments in RUNS]
    together = [None] * len(RUNS)

    def work(i):
        together[i] = run(*RUNS[i])

    threads = [threading.Thread(target=work, args=[i]) for i in range(len(RUNS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, other in zip(serial, together, strict=True):
        for x, y in zip(one, other, strict=True):
            np.testing.assert_array_equal(x, y)
    # They are different runs.
    assert np.all(serial[0][0] != serial[1][0])
