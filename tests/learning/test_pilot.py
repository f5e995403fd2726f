"""Trajectories of the pilot: where its chains go on, and where they stay."""

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lhnn.learning.pilot import (
    NUM_LEAPFROG_STEPS,
    Pace,
    Pilot,
    compile_trajectories,
)
from tfp_lhnn.network.gaussian_base import GaussianBase

CHAINS = 64


def log_prob(position):
    """Two independent normals, of standard deviations 1 and 0.1."""
    return -0.5 * tf.reduce_sum((position / [1.0, 0.1]) ** 2, axis=-1)


def evaluate(position):
    position = tf.constant(position)
    return [x.numpy() for x in tfp.math.value_and_gradient(log_prob, position)]


def run_once(step):
    """Starts, the pilot after one trajectory of given steps, and the acceptance."""
    rng = np.random.default_rng(3)
    starts = (rng.normal(size=(CHAINS, 2)) * [1.0, 0.1]).astype(np.float32)
    pilot = Pilot(
        compile_trajectories(log_prob, jit_compile=False),
        evaluate,
        starts,
        rng,
        dense=False,
        temperature=1.5,
    )
    plain = GaussianBase(np.zeros(2), np.ones(2))
    acceptance = pilot.run(Pace(plain, np.full(CHAINS, step), np.zeros((CHAINS, 2))))
    return starts, pilot, acceptance


def test_chains_do_not_go_where_a_diverging_trajectory_leads():
    # Three times as long as leapfrog is stable at: energies grow a thousandfold from
    # leaf to leaf, and are finite all the same.
    starts, pilot, acceptance = run_once(0.6)
    points = pilot.last_points
    assert np.all(np.isfinite(points.log_prob))
    assert np.median(points.log_prob) < -1e6
    assert np.median(acceptance) < 0.01
    stays = np.all(pilot.position == starts, axis=-1)
    assert np.mean(stays) > 0.95
    # Those that move do so to a leaf about as likely as their start.
    log_prob_now = evaluate(pilot.position)[0]
    assert np.min(log_prob_now - evaluate(starts)[0]) > -20.0
    # What was evaluated is kept, wherever it lies.
    assert pilot.num_gradients == CHAINS * (1 + NUM_LEAPFROG_STEPS)


def test_chains_move_if_steps_are_stable():
    starts, pilot, acceptance = run_once(0.05)
    assert np.median(acceptance) > 0.9
    # Of nine points of equal weight the start is one.
    stays = np.all(pilot.position == starts, axis=-1)
    assert np.mean(stays) < 0.3
    # By their random lengths steps are 0.035 to 0.055 long.
    assert np.max(np.abs(pilot.position - starts)[:, 0]) < 0.06 * NUM_LEAPFROG_STEPS * 5
