"""The ledger: what was asked of the target, each point once, and what it cost."""

import numpy as np
import pytest
import tensorflow as tf

from tfp_lhnn.evaluation.gradient_ledger import EvaluatedPoints, GradientLedger
from tfp_lhnn.evaluation.target import BLOCK

CHAINS = 4


class Target:
    """Half of a normal density; counts what it evaluates."""

    dtype = tf.float32

    def __init__(self):
        self.blocks = []

    def evaluate(self, position):
        self.blocks.append(len(position))
        log_prob = -0.5 * np.sum(position**2, axis=-1)
        log_prob[position[:, 0] < 0] = np.nan
        return log_prob.astype(np.float32), -position


@pytest.fixture
def ledger():
    return GradientLedger(Target(), budget=200, num_densities=3)


def points(number, seed=0):
    return np.random.default_rng(seed).normal(size=(number, 2)).astype(np.float32)


def test_everything_is_counted_once(ledger):
    ledger.evaluate_chains(points(CHAINS))
    ledger.evaluate(points(2 * BLOCK, 1))
    ledger.add(EvaluatedPoints(points(8), np.zeros(8), points(8), np.zeros(8, int)))
    ledger.count_densities(5)
    assert ledger.target.blocks == [CHAINS, BLOCK, BLOCK]
    assert ledger.num_gradients == CHAINS + 2 * BLOCK + 8 == len(ledger.points.log_prob)
    assert ledger.num_evaluations == ledger.num_gradients + 3 + 5
    assert ledger.left == 200 - ledger.num_gradients


def test_points_come_back_as_they_were_evaluated(ledger):
    first = ledger.evaluate_chains(points(CHAINS))
    then = ledger.evaluate(points(BLOCK, 1))
    together = ledger.points
    for one, other, all_of_them in zip(first[:3], then[:3], together[:3], strict=True):
        np.testing.assert_array_equal(np.concatenate([one, other]), all_of_them)


def test_data_to_learn_from_leaves_out_what_is_not_finite(ledger):
    asked = ledger.evaluate_chains(points(CHAINS))
    ledger.evaluate(points(BLOCK, 1))
    finite = ledger.points.is_finite
    assert 0 < np.sum(finite) < len(finite)
    np.testing.assert_array_equal(finite[:CHAINS], asked.position[:, 0] >= 0)
    data = ledger.data()
    np.testing.assert_array_equal(data.position, ledger.points.position[finite])
    assert data.num_dropped == np.sum(~finite)
    assert data.num_gradients == ledger.num_gradients


def test_every_trajectory_has_a_number_of_its_own(ledger):
    ledger.evaluate_chains(points(CHAINS))
    ledger.evaluate(points(BLOCK, 1))
    # Two points of each of four trajectories, twice.
    for _ in range(2):
        ledger.add(
            EvaluatedPoints(points(8), np.zeros(8), points(8), np.arange(8) % CHAINS)
        )
    first = CHAINS + BLOCK
    expected = [*range(first), *(first + np.tile(range(CHAINS), 2))]
    expected += [*(first + CHAINS + np.tile(range(CHAINS), 2))]
    np.testing.assert_array_equal(ledger.points.trajectory, expected)
    # So that what is held out shares none with what is learned from.
    own = ledger.data().trajectory
    np.testing.assert_array_equal(own, np.array(expected)[ledger.points.is_finite])


def test_data_may_be_of_what_is_low_enough_alone(ledger):
    ledger.evaluate(points(4 * BLOCK, 1))
    log_prob = ledger.points.log_prob
    finite = log_prob[np.isfinite(log_prob)]
    assert 0 < np.sum(finite >= -1.0) < len(finite)
    data = ledger.data(1.0)
    np.testing.assert_array_equal(data.log_prob, finite[finite >= -1.0])
    # What is not finite was dropped, and what is too high was not asked for.
    assert data.num_dropped == np.sum(np.isnan(log_prob))
    np.testing.assert_array_equal(ledger.data().log_prob, finite)
