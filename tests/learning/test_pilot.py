"""Trajectories of the pilot: where its chains go on, and where they stay."""

import numpy as np
import tensorflow as tf

from tfp_lhnn.evaluation.gradient_ledger import GradientLedger
from tfp_lhnn.evaluation.target import CompiledTarget
from tfp_lhnn.learning.pilot import NUM_LEAPFROG_STEPS, ChainStates, Pace, Pilot
from tfp_lhnn.model.model import as_model
from tfp_lhnn.network.gaussian_base import GaussianBase

from ..counting_target import skewed
from .exact_draws import FALSE_ALARM_RATE, moved, p_value, skewed_draws

CHAINS = 64


def log_prob(position):
    """Two independent normals, of standard deviations 1 and 0.1."""
    return -0.5 * tf.reduce_sum((position / [1.0, 0.1]) ** 2, axis=-1)


def run_once(step):
    """Starts, ends of one trajectory, its acceptance and its points."""
    rng = np.random.default_rng(3)
    starts = (rng.normal(size=(CHAINS, 2)) * [1.0, 0.1]).astype(np.float32)
    target = CompiledTarget(as_model(log_prob, starts), jit_compile=False)
    ledger = GradientLedger(target, budget=10_000)
    pilot = Pilot(ledger, starts, rng, dense=False, temperature=1.5)
    plain = GaussianBase(np.zeros(2), np.ones(2))
    pace = Pace(plain, np.full(CHAINS, step), np.zeros((CHAINS, 2)))
    before = pilot.chains
    reached, acceptance, points = pilot.run_from(before, pace)
    # Its own chains are where they were.
    assert pilot.chains is before
    np.testing.assert_array_equal(before.position, starts)
    # What was evaluated is kept, wherever it lies, and paid for.
    assert pilot.num_gradients == CHAINS * (1 + NUM_LEAPFROG_STEPS)
    assert ledger.num_gradients == ledger.num_evaluations == pilot.num_gradients
    np.testing.assert_array_equal(ledger.points.log_prob[CHAINS:], points.log_prob)
    return starts, reached.position, acceptance, points


def test_chains_do_not_go_where_a_diverging_trajectory_leads():
    # Three times as long as leapfrog is stable at: energies grow a thousandfold from
    # leaf to leaf, and are finite all the same.
    starts, ends, acceptance, points = run_once(0.6)
    assert np.all(np.isfinite(points.log_prob))
    assert np.median(points.log_prob) < -1e6
    assert np.median(acceptance) < 0.01
    stays = np.all(ends == starts, axis=-1)
    assert np.mean(stays) > 0.95
    # Those that move do so to a leaf about as likely as their start.
    gain = log_prob(ends) - log_prob(starts)
    assert np.min(gain) > -20.0


def test_chains_move_if_steps_are_stable():
    starts, ends, acceptance, _ = run_once(0.05)
    assert np.median(acceptance) > 0.9
    # Of nine points of equal weight the start is one.
    stays = np.all(ends == starts, axis=-1)
    assert np.mean(stays) < 0.3
    # By their random lengths steps are 0.035 to 0.055 long.
    assert np.max(np.abs(ends - starts)[:, 0]) < 0.06 * NUM_LEAPFROG_STEPS * 5


def test_trajectories_run_in_double_precision():
    starts = np.random.default_rng(3).normal(size=(CHAINS, 2)) + 3.0

    def wide(position):
        return -0.5 * tf.reduce_sum(position**2, axis=-1) - 1e8

    target = CompiledTarget(as_model(wide, starts), jit_compile=False)
    ledger = GradientLedger(target, budget=10_000)
    rng = np.random.default_rng(4)
    pilot = Pilot(ledger, starts, rng, dense=True, temperature=1.5)
    for _ in range(2):
        pilot.run()
    ends, acceptance, points = pilot.run_from(pilot.chains)
    assert points.log_prob.dtype == ends.position.dtype == np.float64
    # In single precision such densities are eight nats apart.
    assert np.median(acceptance) > 0.5
    assert np.std(points.log_prob) < 20.0


# --- exact transitions


def test_exact_trajectories_leave_the_target_as_it_is():
    start = skewed_draws(20_000)
    target = CompiledTarget(as_model(skewed, start), jit_compile=True)
    ledger = GradientLedger(target, budget=10**8)
    rng = np.random.default_rng(3)
    pilot = Pilot(ledger, start, rng, dense=True, temperature=1.5)
    exact = pilot.chains
    acceptances = []
    for _ in range(5):
        exact, acceptance, _ = pilot.run_from(exact, exact=True)
        acceptances.append(np.mean(acceptance))
        # Of the hot chains as of the others. Steps are tuned as they go, and if each
        # chain had its own, the last of these would be far off.
        assert p_value(start, exact.position) > FALSE_ALARM_RATE
    assert moved(start, exact.position) > 0.5
    # There is something to be rejected.
    assert min(acceptances) < 0.8
    # Power: the trajectories of the pilot itself are found out.
    reached, _, _ = pilot.run_from(pilot.chains)
    assert p_value(start, reached.position) < FALSE_ALARM_RATE


def test_an_exact_trajectory_ends_at_its_end_or_nowhere():
    rng = np.random.default_rng(3)
    starts = (rng.normal(size=(CHAINS, 2)) * [1.0, 0.1]).astype(np.float32)
    # One is far up, and is not sent downhill.
    starts[5] = 40.0
    target = CompiledTarget(as_model(log_prob, starts), jit_compile=False)
    ledger = GradientLedger(target, budget=10_000)
    pilot = Pilot(ledger, starts, rng, dense=False, temperature=1.5)
    pace = Pace(
        GaussianBase(np.zeros(2), np.ones(2)),
        np.full(CHAINS, 0.15),
        np.zeros((CHAINS, 2)),
    )
    before = ChainStates(*(x.copy() for x in pilot.chains))
    before.position[9] = 1e4
    before.log_prob[9] = log_prob(before.position)[9]
    reached, _, points = pilot.run_from(before, pace, exact=True)
    last = points.position.reshape(NUM_LEAPFROG_STEPS, CHAINS, 2)[-1]
    stays = np.all(reached.position == before.position, axis=-1)
    ends = np.all(reached.position == last, axis=-1)
    assert np.all(stays | ends)
    assert np.sum(stays) > 2
    assert np.sum(ends) > CHAINS // 2
    np.testing.assert_allclose(log_prob(reached.position), reached.log_prob, rtol=1e-5)
