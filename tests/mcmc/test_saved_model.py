"""Kernels, networks and results in a SavedModel."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import tfp_lhnn

from .helpers import DIM, MODES, make_kernel, skewed_log_prob, small_network

STATE, SEED = tf.TensorSpec([3, DIM]), tf.TensorSpec([2], tf.int32)


class Sampler(tf.Module):
    """Holds a function that samples, and what is to keep its variables alive."""

    def __init__(self, kernel, held):
        super().__init__()
        self.held = held

        @tf.function(autograph=False, input_signature=[STATE, SEED])
        def step(state, seed):
            return kernel.one_step(state, kernel.bootstrap_results(state), seed=seed)

        self.step = step


LOAD = """
import sys
import numpy as np
import tensorflow as tf
import tfp_lhnn

path, state, out = sys.argv[1:]
model = tf.saved_model.load(path)  # whose variables live as long as it does
state, results = model.step(np.load(state), tf.constant([1, 2]))
np.savez(out, state=state, log_prob=results.target_log_prob)
"""


def make_sampler(held, mode="none"):
    network = small_network()
    kernel = make_kernel(skewed_log_prob, network, mode=mode)
    return Sampler(kernel, kernel if held == "kernel" else network)


@pytest.mark.parametrize("held", ["kernel", "network"])
def test_a_module_that_samples_can_be_saved_and_loaded(held, tmp_path):
    sampler = make_sampler(held)
    state = np.random.default_rng(1).normal(size=(3, DIM)).astype(np.float32)
    expected, results = sampler.step(state, tf.constant([1, 2]))
    assert np.any(expected != state)
    tf.saved_model.save(sampler, str(tmp_path / "model"))
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    draws, loaded_results = loaded.step(state, tf.constant([1, 2]))
    np.testing.assert_array_equal(draws, expected)
    np.testing.assert_array_equal(
        loaded_results.log_accept_ratio, results.log_accept_ratio
    )
    if held == "kernel":  # Another process need not have made a network of this form.
        np.save(tmp_path / "state.npy", state)
        subprocess.run(
            [
                *(sys.executable, "-c", LOAD),
                *(tmp_path / "model", tmp_path / "state.npy", tmp_path / "draws.npz"),
            ],
            check=True,
        )
        with np.load(tmp_path / "draws.npz") as file:
            np.testing.assert_array_equal(file["state"], expected)
            np.testing.assert_array_equal(file["log_prob"], results.target_log_prob)


@pytest.mark.parametrize("mode", sorted(MODES))
def test_a_kernel_and_its_copies_track_what_holds_variables(mode):
    network = small_network()
    step_size = tf.Variable(0.1)
    kernel = make_kernel(network=network, step_size=step_size, mode=mode)
    for each in (kernel, kernel.copy(max_tree_depth=1)):
        children = each._trackable_children()
        assert children["network"] is network
        assert children["step_size"] is step_size
        assert each.parameters.keys() == kernel.parameters.keys()
    other = small_network(seed=2)
    assert kernel.copy(network=other)._trackable_children()["network"] is other
    assert kernel.network is network


def test_a_network_that_is_no_keras_model_is_not_tracked():
    class Plain:
        trainable_variables = non_trainable_variables = ()
        dim = DIM

        def stateless_call(self, trainable, non_trainable, x):
            return x, non_trainable

    kernel = tfp_lhnn.LatentHNNNoUTurnSampler(skewed_log_prob, Plain(), 0.1)
    assert "network" not in kernel._trackable_children()
