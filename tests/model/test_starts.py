"""Starts: where chains begin, all of them with a finite density."""

import numpy as np
import pytest

from tfp_lhnn.model.starts import find_starts

DIM = 3


def found(evaluate, first, given=None, seed=0):
    """The starts, and how many densities were asked for."""
    asked = []

    def counted(q):
        asked.append(len(q))
        return evaluate(q)

    starts = find_starts(
        counted, np.asarray(first, float), given, np.random.default_rng(seed)
    )
    assert starts.num_evaluations == sum(asked)
    np.testing.assert_array_equal(starts.log_prob, evaluate(starts.position))
    assert np.isfinite(starts.log_prob).all()
    assert starts.position.shape == np.shape(first)
    return starts


def normal(q):
    return -0.5 * np.sum(q**2, axis=-1)


def test_points_that_are_good_stay_and_cost_one_density_each():
    first = np.random.default_rng(1).normal(size=(6, DIM))
    starts = found(normal, first)
    np.testing.assert_array_equal(starts.position, first)
    assert starts.num_evaluations == 6


@pytest.mark.parametrize("bad", [np.nan, -np.inf, np.inf])
def test_points_without_density_are_replaced_by_neighbours_of_others(bad):
    def half(q):
        return np.where(q[:, 0] > 0, normal(q), bad)

    first = np.random.default_rng(1).normal(size=(40, DIM))
    starts = found(half, first)
    assert np.all(starts.position[:, 0] > 0)
    # Those that were good are among them, and nobody's copy.
    good = first[first[:, 0] > 0]
    np.testing.assert_array_equal(starts.position[: len(good)], good)
    assert len(np.unique(starts.position, axis=0)) == 40


def test_all_kinds_of_no_density_are_alike():
    def half(bad):
        return lambda q: np.where(q[:, 0] > 0, normal(q), bad)

    first = np.random.default_rng(1).normal(size=(10, DIM))
    nan, zero = (found(half(bad), first) for bad in (np.nan, -np.inf))
    np.testing.assert_array_equal(nan.position, zero.position)


def test_a_density_that_is_finite_nowhere_near_is_searched_for():
    def far(q):
        return np.where(np.all(np.abs(q - 40.0) < 60.0, axis=-1), normal(q), np.nan)

    given = np.full((1, DIM), -30.0)
    starts = found(far, np.repeat(given, 4, axis=0), given)
    assert starts.num_evaluations > 4


def test_copies_are_the_last_resort():
    point = np.ones(DIM)

    def spike(q):
        return np.where(np.all(q == point, axis=-1), 0.0, -np.inf)

    starts = found(spike, [point, point + 1, point + 2])
    np.testing.assert_array_equal(starts.position, np.tile(point, (3, 1)))


def test_a_density_that_is_finite_nowhere_is_refused():
    with pytest.raises(ValueError, match="`initial_state`"):
        find_starts(
            lambda q: np.full(len(q), np.nan),
            np.zeros((4, DIM)),
            None,
            np.random.default_rng(0),
        )


def test_a_point_that_is_not_finite_is_none():
    starts = found(lambda q: np.zeros(len(q)), [[np.inf] * DIM, [0.0] * DIM])
    assert np.isfinite(starts.position).all()
