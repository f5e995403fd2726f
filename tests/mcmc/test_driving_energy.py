"""The error of leapfrog itself: its bookkeeping, and what step-size adaptation sees."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_lhnn
from tfp_lhnn.mcmc.driving_energy import DrivingRecord

from .helpers import run_compiled_steps

NUM_CHAINS, NUM_STEPS = 50, 20


def random_energies(seed=0):
    """Errors since the start in both energies, and the source at each point."""
    rng = np.random.default_rng(seed)
    true, network = np.cumsum(rng.normal(size=(2, NUM_STEPS, NUM_CHAINS)), axis=1)
    true[0] = network[0] = 0.0
    return true, network, rng.random((NUM_STEPS, NUM_CHAINS)) < 0.5


def first_record(is_true):
    zero = tf.zeros([NUM_CHAINS], tf.float64)
    return DrivingRecord(tf.constant(is_true), gap=zero, residual=zero)


def test_a_record_comes_out_of_its_tensor_as_it_went_in():
    true, network, is_true = random_energies()
    record = DrivingRecord(
        tf.constant(is_true[0]), tf.constant(true[1]), tf.constant(network[1])
    )
    assert record.pack().shape == (NUM_CHAINS, 3)
    for before, after in zip(record, DrivingRecord.unpack(record.pack()), strict=True):
        np.testing.assert_array_equal(before, after)


def test_pointwise_each_step_changes_the_mean_of_its_two_energies():
    true, network, is_true = random_energies()
    record, expected = first_record(is_true[0]), np.zeros(NUM_CHAINS)
    for i in range(1, NUM_STEPS):
        record = record.follow(
            tf.constant(is_true[i]), tf.constant((true - network)[i])
        )
        for source in (is_true[i - 1], is_true[i]):
            change = np.where(
                source, true[i] - true[i - 1], network[i] - network[i - 1]
            )
            expected += 0.5 * change
        driving = np.where(is_true[i], true[i], network[i]) + record.gap
        np.testing.assert_allclose(driving, expected, atol=1e-12)
    assert np.abs(expected - true[-1]).min() > 1e-3  # It is another energy.


def test_cooldown_each_step_changes_the_energy_of_its_source():
    true, network, is_true = random_energies()
    record, expected = first_record(is_true[0]), np.zeros(NUM_CHAINS)
    for i in range(1, NUM_STEPS):
        # The source of a step is known only when its end is.
        record = record.switch(tf.constant(is_true[i]))
        expected += np.where(
            is_true[i], true[i] - true[i - 1], network[i] - network[i - 1]
        )
        driving = np.where(is_true[i], true[i], network[i]) + record.gap
        np.testing.assert_allclose(driving, expected, atol=1e-12)
        record = record._replace(residual=tf.constant((true - network)[i]))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_point_without_network_energy_leaves_the_sum_finite(bad):
    record = first_record(np.zeros(NUM_CHAINS, bool))
    everywhere = tf.ones([NUM_CHAINS], tf.bool)
    unknown = tf.fill([NUM_CHAINS], tf.cast(bad, tf.float64))
    there = record.follow(everywhere, unknown)
    np.testing.assert_array_equal(there.gap, 0.0)
    back = there.follow(~everywhere, tf.fill([NUM_CHAINS], tf.cast(0.7, tf.float64)))
    np.testing.assert_allclose(back.gap, 0.7)
    np.testing.assert_array_equal(there.switch(~everywhere).gap, 0.0)


# Step-size adaptation with a network that is wrong by a nat.


def gaussian(q):
    return -0.5 * tf.reduce_sum(q**2, axis=-1)


class WavyNetwork:
    """The energy of a 2-D Gaussian and a wave of one nat: no step mends that."""

    trainable_variables = non_trainable_variables = ()
    dim = 2

    def __init__(self, separable=True):
        self.separable = separable

    def stateless_call(self, trainable, non_trainable, x):
        energy = -gaussian(x) + tf.sin(2.0 * x[:, 0])  # of momenta too, if joint
        return energy[:, tf.newaxis], non_trainable


MODES = {
    "none": {"error_monitor": "none"},
    "none, multinomial and joint": {
        "error_monitor": "none",
        "trajectory_sampling": "multinomial",
        "network": WavyNetwork(separable=False),
    },
    "cooldown": {"error_monitor": "cooldown"},
    "pointwise, half of the leaves true": {
        "error_monitor": "pointwise",
        "max_residual": 0.7,
        "trajectory_sampling": "multinomial",
    },
    "delayed": {},
}
# Where every leaf is the network's, the mean true acceptance is 0.745 with ever
# smaller steps: an acceptance of 0.8 is out of reach.
TARGET_ACCEPTANCE = 0.8


def adapted_step(settings, **adaptation):
    """The step size, and the leaves of a draw at the end, means over chains."""
    kernel = (
        tfp_lhnn.LatentHNNNoUTurnSampler
        if settings
        else tfp_lhnn.LatentHNNDelayedAcceptanceSampler
    )(
        gaussian,
        step_size=np.float32(0.5),
        max_tree_depth=7,
        **{"network": WavyNetwork(), **settings},
    )
    kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(
        kernel, 200, target_accept_prob=TARGET_ACCEPTANCE, **adaptation
    )
    state = tf.constant(np.random.default_rng(2).normal(size=(32, 2)), tf.float32)
    _, stats = run_compiled_steps(kernel, state, 250)
    return float(stats.step_size[-1]), float(np.mean(stats.leapfrogs_taken[-50:]))


@pytest.mark.parametrize("settings", MODES.values(), ids=MODES)
def test_the_step_does_not_collapse_where_the_network_is_wrong(settings):
    step, leaves = adapted_step(settings)
    assert 0.4 < step < 1.3
    assert leaves < 10


def test_by_the_true_energy_it_would():
    step, leaves = adapted_step(
        MODES["none"],
        log_accept_prob_getter_fn=lambda results: results.log_true_accept_ratio,
    )
    assert step < 0.1
    assert leaves > 50
