"""Parts of monitors and trees by hand: references, counters, rules and progress."""

import math

import numpy as np
import tensorflow as tf

from tfp_lhnn.mcmc.cooldown import CooldownMonitor
from tfp_lhnn.mcmc.error_monitor import MonitorState, Reference
from tfp_lhnn.mcmc.gradient_source import TargetCalls
from tfp_lhnn.mcmc.pointwise import ResidualRule
from tfp_lhnn.mcmc.trajectory import Progress

NAN, INF = math.nan, math.inf


def test_energies_are_measured_from_the_start():
    log_prob = tf.constant([-3e8, -1.0, NAN, -INF], tf.float64)
    zero = tf.zeros_like(log_prob)
    reference = Reference.at(log_prob, zero + 2.0, zero - 0.5, zero + 4.0)
    np.testing.assert_array_equal(reference.has_density, [True, True, False, False])
    # A start without a density is in a slice of no height.
    np.testing.assert_array_equal(reference.log_height, [-0.5, -0.5, -INF, -INF])
    there = tf.constant([-3e8 - 0.25, -1.25, -7.0, -7.0], tf.float64)
    error = reference.energy_error(there, zero + 2.5)
    np.testing.assert_allclose(error, [0.75, 0.75, 7.5, 7.5])
    np.testing.assert_allclose(reference.network_error(zero + 4.5, zero + 2.5), 1.0)


def test_the_cool_down_is_counted_in_draws():
    # By the paper a chain that fires has N draws with true gradients, this one too.
    monitor = CooldownMonitor(None, None, None, 10.0, num_fallback_samples=4)
    calls = TargetCalls.of(tf.zeros([2, 4], tf.int32), tf.zeros([2], tf.int32))
    state = MonitorState(
        in_fallback=tf.constant([True, True, False, True]),
        fallback_remaining=tf.constant([0, 3, 0, 1]),
        num_fallbacks=tf.constant([5, 5, 5, 5]),
        calls=calls,
    )
    # The first has fired in this draw; the second and the last fired before.
    after = monitor.end_draw(state)
    np.testing.assert_array_equal(after.fallback_remaining, [3, 2, 0, 0])
    np.testing.assert_array_equal(after.num_fallbacks, [6, 5, 5, 5])


def test_a_residual_is_trusted_up_to_its_bound():
    rule = ResidualRule(offset=2.0, max_residual=0.5)
    log_prob = tf.constant([-10.0, -10.0, -10.0, NAN, -INF, -10.0])
    energy = tf.constant([5.0, 5.5, 5.75, 5.0, 5.0, INF])
    # U less the network's energy, of which the constant is 3: 2, 1.5, 1.25.
    trusted = rule(log_prob, energy, tf.constant(3.0))
    np.testing.assert_array_equal(trusted, [True, True, False, False, False, False])


def test_the_mean_acceptance_is_one_of_leaves():
    progress = Progress(
        has_ended=tf.constant([False, True]),
        is_divergent=tf.constant([False, True]),
        sums=tf.constant([[4.0, 2.0], [4.0, 1.0], [1.0, 0.0]]),
    )
    np.testing.assert_array_equal(progress.num_leaves, [4, 2])
    np.testing.assert_allclose(
        tf.exp(progress.log_mean_accept), [[1.0, 0.5], [0.25, 0.0]]
    )
