"""Checks of a kernel's arguments, one by one."""

import pytest
import tensorflow as tf

from tfp_lhnn.mcmc import validation
from tfp_lhnn.mcmc.network_check import check_dimension, check_network
from tfp_lhnn.mcmc.network_kernel import NetworkKernel
from tfp_lhnn.mcmc.nuts import LatentHNNNoUTurnSampler
from tfp_lhnn.network.latent_hnn import LatentHNN


@pytest.mark.parametrize(
    ("step_size", "error"),
    [
        (0.0, ValueError),
        (-1.0, ValueError),
        (float("nan"), ValueError),
        ([], ValueError),
        ([[0.1]], TypeError),
        ("0.1", TypeError),
        (True, TypeError),
        (0.1j, TypeError),
        (None, TypeError),
        (tf.constant(1), TypeError),
    ],
)
def test_bad_steps_are_named(step_size, error):
    with pytest.raises(error, match="`step_size`"):
        validation.check_step_size(step_size)


def test_steps_get_the_dtype_of_the_state():
    validation.check_step_size([0.1, tf.constant(0.2)])
    steps = validation.step_size_tensors([0.1, 1], tf.float64)
    assert [step.dtype for step in steps] == [tf.float64] * 2
    with pytest.raises(TypeError, match="`step_size` is float32; expected float64"):
        validation.step_size_tensors(tf.constant(0.1), tf.float64)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (0, ValueError),
        (1.0, TypeError),
        (tf.constant(2.0), TypeError),
        (True, TypeError),
    ],
)
def test_numbers_of_transitions_are_counts(value, error):
    with pytest.raises(error, match="`number`"):
        validation.check_num_transitions(value, "number")
    validation.check_num_transitions(tf.constant(3), "number")


def test_probabilities_depths_and_choices():
    for value in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="`p`"):
            validation.check_probability(value, "p")
    with pytest.raises(ValueError, match="`max_tree_depth`"):
        validation.check_depth(100)
    with pytest.raises(ValueError, match=r"`way` .*'left'"):
        validation.check_choice("up", "way", ("left", "right"))
    with pytest.raises(ValueError, match="`max_hnn_energy_diff`"):
        validation.check_thresholds(10.0, 1.0)


def test_a_target_must_return_a_tensor():
    parts = [tf.zeros([3, 2])]
    with pytest.raises(TypeError, match="`target_log_prob_fn` returned a NoneType"):
        validation.target_value(lambda q: None, parts)
    with pytest.raises(ValueError, match="`target_log_prob_fn` has no gradient"):
        validation.check_gradient(lambda q: tf.zeros([3]), parts)
    validation.check_gradient(lambda q: tf.reduce_sum(q, axis=-1), parts)


def test_a_network_must_fit_the_state():
    network = LatentHNN(2, (3,), seed=0)
    check_network(network)
    check_dimension(network, 2, tf.float32)
    with pytest.raises(ValueError, match="2"):
        check_dimension(network, 5, tf.float32)
    with pytest.raises(TypeError, match="`network` must be a Keras model"):
        check_network("network")


def test_a_kernel_is_made_of_its_parameters():
    network = LatentHNN(2, (3,), seed=0)
    kernel = LatentHNNNoUTurnSampler(lambda q: -tf.reduce_sum(q**2, -1), network, 0.1)
    assert isinstance(kernel, NetworkKernel)
    again = kernel.copy(step_size=0.2)
    assert again.step_size == 0.2
    assert again.network is network
    assert again.parameters == kernel.parameters | {"step_size": 0.2}
