"""How far out points are, and which of them to go on from."""

import numpy as np
import pytest

from tfp_lhnn.learning.frontier import Yardstick, frontier


def test_the_frontier_has_the_farthest_points_and_both_branches_of_a_ridge():
    rng = np.random.default_rng(4)
    along = rng.uniform(size=400)
    # One branch is ahead of the other: all of the farthest points are on it.
    is_ahead = np.arange(400) % 2 == 0
    along = np.where(is_ahead, 10.0, 8.0) * along
    z = np.stack([along, np.where(is_ahead, 2.0, -2.0)], axis=-1)
    z += 0.1 * rng.normal(size=z.shape)
    distance = np.abs(z[:, 0])
    chosen, reach = frontier(z, distance, 16)
    farthest = np.argsort(-distance)[:16]
    assert reach == pytest.approx(np.mean(distance[farthest]))
    assert np.all(is_ahead[farthest])
    assert len(np.unique(chosen)) == len(chosen) == 16
    assert set(farthest[:8]) <= set(chosen)
    # The rest is spread over what is far out: some on either branch.
    assert 3 <= np.sum(~is_ahead[chosen]) <= 8
    assert np.min(distance[chosen]) >= 0.7 * reach
    # Also the first few are of both kinds: at times there is use for these alone.
    assert np.any(is_ahead[chosen[:4]])
    assert np.any(~is_ahead[chosen[:4]])
    few, their_reach = frontier(z[:5], distance[:5], 16)
    np.testing.assert_array_equal(few, np.argsort(-distance[:5]))
    assert their_reach == pytest.approx(np.mean(distance[:5]))
    none, nowhere = frontier(z[:0], distance[:0], 16)
    assert len(none) == nowhere == 0


def test_outward_is_away_from_the_centre_where_a_point_is_farthest_out():
    yardstick = Yardstick(np.array([1.0, 0.0]), np.array([1.0, 10.0]))
    z = np.array([[-2.0, 5.0], [2.0, 50.0]])
    np.testing.assert_allclose(yardstick.distance(z), [3.0, 5.0])
    np.testing.assert_allclose(yardstick.outward(z), [[-1.0, 0.0], [0.0, 1.0]])
