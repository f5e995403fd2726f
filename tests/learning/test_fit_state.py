"""What two rounds of a fit say of each other's networks."""

import types

import numpy as np
import pytest
import tensorflow as tf

from tfp_lhnn.learning.advance import Advance
from tfp_lhnn.learning.fit_config import FitConfig
from tfp_lhnn.learning.fit_state import Judged
from tfp_lhnn.learning.quality import Quality, assess
from tfp_lhnn.learning.surrogate_chain import SurrogateRun
from tfp_lhnn.learning.tail_search import Compared, TailSearch
from tfp_lhnn.network.gaussian_base import GaussianBase

NUM_STATES, NUM_ELSEWHERE = 400, 200
BASE = GaussianBase(np.array([3.0]), np.array([2.0]))
CONFIG = FitConfig()


def potential(x):
    """The target: a Gaussian up to two, and flat, a heavy tail, beyond."""
    return 0.5 * np.minimum(np.abs(x), 2.0) ** 2


def ignorant(x):
    """A network that is exact where it goes, and knows nothing of the tail."""
    return 0.5 * x**2


def well_informed(x):
    """Knows the tail too, with ripples all over that cost it some acceptance."""
    return potential(x) + 0.3 * np.sin(40.0 * x)


def with_a_well(x):
    """Knows the tail, and a well that nobody else does."""
    return potential(x) - 8.0 * (np.abs(x + 1.0) < 0.3)


class Round:
    """A round of a fit: a network was asked at states, and elsewhere."""

    def __init__(self, learned, own, elsewhere, acceptance):
        own, elsewhere = own[:, np.newaxis], elsewhere[:, np.newaxis]
        self.advanced = Advance(
            own,
            -potential(own[:, 0]),
            own,
            np.zeros(len(own)),
            np.ones(len(own), bool),
            own,
            -potential(own[:, 0]),
            own,
        )
        network = types.SimpleNamespace(
            dim=1, potential=lambda q: tf.constant(learned(q[:, 0]))
        )
        residual = self.advanced.fresh_residual(network)
        there = potential(elsewhere[:, 0]) - learned(elsewhere[:, 0])
        points = Compared(elsewhere, -potential(elsewhere[:, 0]), elsewhere, there)
        self.search = TailSearch(points, False, None)
        quality = assess(
            acceptance,
            residual,
            potential(own[:, 0]),
            there,
            potential(elsewhere[:, 0]),
            is_open=False,
        )
        surrogate = types.SimpleNamespace(network=network)
        self.judged = Judged(
            surrogate, 1, quality, residual, potential(own[:, 0]), None
        )

    def does_as_well_as(self, earlier):
        return self.judged.does_as_well_as(earlier.judged, self.advanced, self.search)


@pytest.fixture(name="bulk")
def fixture_bulk():
    return np.clip(np.random.default_rng(1).standard_normal(NUM_STATES), -2.0, 2.0)


@pytest.fixture(name="tail")
def fixture_tail():
    return np.random.default_rng(2).uniform(2.0, 9.0, NUM_ELSEWHERE)


def test_a_network_that_knows_more_of_a_tail_does_better(bulk, tail):
    # The first one's round was blind: it is found to be nearly perfect.
    first = Round(ignorant, bulk, bulk[:NUM_ELSEWHERE], 0.99)
    second = Round(well_informed, bulk, tail, 0.85)
    assert first.judged.quality.is_good(CONFIG)
    assert second.does_as_well_as(first)
    # And the other way round, at the same points, it does not.
    blind = Round(ignorant, bulk, tail, 0.99)
    assert not blind.does_as_well_as(second)


def test_without_a_search_the_proposals_alone_count(bulk, tail):
    first = Round(ignorant, bulk, bulk[:NUM_ELSEWHERE], 0.99)
    second = Round(well_informed, bulk, tail, 0.85)
    # Nothing of the tail was met.
    assert not second.judged.does_as_well_as(first.judged, second.advanced, None)


def test_a_later_network_that_is_worse_is_not_taken(bulk, tail):
    first = Round(well_informed, bulk, tail, 0.85)
    # Its chains propose a well most of the time, and are rejected.
    in_well = np.where(np.arange(NUM_STATES) % 8 == 0, bulk, -1.0 + 0.1 * bulk)
    second = Round(with_a_well, in_well, tail, 0.3)
    assert not second.does_as_well_as(first)


def test_of_equals_the_later_one_is_taken(bulk, tail):
    first = Round(well_informed, bulk, bulk[:NUM_ELSEWHERE], 0.85)
    assert Round(well_informed, bulk, tail, 0.84).does_as_well_as(first)
    assert not Round(well_informed, bulk, tail, 0.75).does_as_well_as(first)


def test_where_the_target_has_no_density_nothing_counts(bulk, tail):
    first = Round(well_informed, bulk, tail, 0.85)
    second = Round(well_informed, bulk, tail, 0.85)
    lost = np.full(NUM_STATES, -np.inf)
    advanced = second.advanced._replace(log_prob=lost)
    # Those points elsewhere are left, and are enough.
    assert second.judged.does_as_well_as(first.judged, advanced, second.search)
    assert not second.judged.does_as_well_as(first.judged, advanced, None)


def test_a_network_of_which_no_proposal_was_accepted_is_never_better(bulk, tail):
    known = Round(ignorant, bulk, tail, 0.5)
    lost = Round(ignorant, bulk, tail, 0.5)
    nothing = np.zeros(0)
    lost.judged = lost.judged._replace(
        residual=nothing, quality=Quality(0.0, np.inf, 0.0, 1.0, True)
    )
    assert not lost.does_as_well_as(known)
    assert known.does_as_well_as(lost)


# --- whether two rounds agree


def judged(learned, draws=None, *, quality=None, selected="network", num_steps=3000):
    """A network of positions `q = 3 + z / 2`, with draws in its coordinates."""
    surrogate = types.SimpleNamespace(
        network=types.SimpleNamespace(
            dim=1, potential=lambda q: tf.constant(learned(q[:, 0]))
        ),
        base=BASE,
        is_gaussian=selected == "base",
        history=types.SimpleNamespace(selected=selected, num_steps=num_steps),
    )
    nothing = np.zeros(0)
    run = None if draws is None else SurrogateRun(draws, 0.5, 7.0)
    return Judged(surrogate, 1, quality, nothing, nothing, run)


def with_a_tail(share, height):
    """Draws of which so many lie beyond ten, and a network that moved there."""
    number = 2000
    z = np.zeros((number // 4, 4, 1))
    z.reshape(-1)[: int(share * number)] = 20.0  # q = 13

    def learned(q):
        return np.where(q > 10.0, height, 0.0) + 7.0

    return judged(learned, z)


def flat(q):
    return np.zeros(q.shape)


@pytest.mark.parametrize(
    ("share", "height", "agrees"),
    # More than half a percent of the draws, moved by more than a nat, is a tail that
    # the network before did not know. A constant is nothing.
    [(0.004, 5.0, True), (0.01, 5.0, False), (0.01, -5.0, False), (0.01, 0.9, True)],
)
def test_networks_agree_if_few_draws_moved(share, height, agrees):
    assert with_a_tail(share, height).agrees_with(judged(flat)) is agrees


def test_what_the_earlier_network_does_elsewhere_is_nobodys_business():
    now = judged(flat, np.zeros((100, 4, 1)))
    before = judged(lambda q: np.where(q > 10.0, 50.0, 0.0))
    assert now.agrees_with(before)


def test_without_draws_nobody_agrees():
    assert not judged(flat).agrees_with(judged(flat))


EVEN = Quality(0.88, 0.2, 0.87, 0.0, False)


def base(acceptance, num_steps, quality=EVEN):
    quality = quality._replace(acceptance=acceptance)
    return judged(flat, quality=quality, selected="base", num_steps=num_steps)


def test_a_base_is_settled_if_no_network_is_better_and_it_gains_little():
    now, last = base(0.88, 3000), base(0.87, 0)
    assert EVEN.is_even(CONFIG)
    assert now.is_settled_since(last, CONFIG)
    # No network was tried.
    assert not base(0.88, 0).is_settled_since(last, CONFIG)
    # It gained much.
    assert not now.is_settled_since(base(0.84, 0), CONFIG)
    assert now.is_settled_since(base(0.84, 0), FitConfig(small_gain=0.05))
    # One of them was a network.
    network = judged(flat, quality=EVEN)
    assert not now.is_settled_since(network, CONFIG)
    assert not network.is_settled_since(last, CONFIG)
    # Its errors are uneven.
    uneven = base(0.88, 3000, EVEN._replace(tail_acceptance=0.7))
    assert not uneven.is_settled_since(last, CONFIG)
