"""Every step of `fit` by itself: what it returns, and what it costs."""

import dataclasses
import time
import types
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from tfp_lhnn.evaluation.gradient_ledger import GradientLedger
from tfp_lhnn.evaluation.target import BLOCK, CompiledTarget
from tfp_lhnn.learning.fit_config import FitConfig
from tfp_lhnn.learning.fit_loop import (
    advance_chains,
    judge,
    learn,
    round_size,
    search,
    settle,
)
from tfp_lhnn.learning.fit_state import FitState
from tfp_lhnn.learning.round import Round
from tfp_lhnn.learning.tail_search import Compared, TailSearch
from tfp_lhnn.model.model import as_model
from tfp_lhnn.support.progress import ProgressReporter

from ..counting_target import CountingTarget, skewed

# The base alone is tried first, good or not.
CONFIG = FitConfig(promising_base_error=100.0)
CHAINS, BUDGET = CONFIG.num_chains, 5000
SMALLEST = CONFIG.smallest_round * CHAINS


class Step(NamedTuple):
    """One step: the states before and after it, and gradients counted from outside.

    The ledger goes on; what it had then is `num_points`.
    """

    before: Any
    after: Any
    cost: int
    num_points: int


class Walk(NamedTuple):
    """A fit, step by step; `rounds` has a dict of steps for each."""

    settled: Step
    rounds: list
    sizes: list
    confirmed: list


def settled_state(target, start, budget, config=CONFIG):
    model = as_model(target, np.asarray(start, np.float32))
    ledger = GradientLedger(CompiledTarget(model, jit_compile=False), budget)
    generator = np.random.default_rng(5)
    return settle(model, ledger, generator, (16, 16), ProgressReporter(False), config)


@pytest.fixture(scope="module")
def walk():
    """From starts that are a hundred nats up, all of which is taught to no network."""
    target = CountingTarget()
    state = settled_state(target, [-5.0, 5.0], BUDGET)
    settled = Step(None, state, target.gradients, len(state.ledger.points.log_prob))
    rounds, sizes, confirmed = [], [], []

    def step(name, function):
        nonlocal state
        before, spent = state, target.gradients
        result = function(state)
        state = result[0] if isinstance(result, tuple) else result
        number = len(state.ledger.points.log_prob)
        rounds[-1][name] = Step(before, state, target.gradients - spent, number)
        return result

    for _ in range(3):
        size = round_size(state, CONFIG)
        rounds.append({})
        step("learn", lambda s: learn(s, CONFIG))
        step("advance", lambda s, n=size: advance_chains(s, n, CONFIG))
        step("search", lambda s, n=size: search(s, n, CONFIG))
        _, is_confirmed = step("judge", lambda s: judge(s, CONFIG, time.perf_counter()))
        sizes.append(size)
        confirmed.append(is_confirmed)
    return Walk(settled, rounds, sizes, confirmed)


def rows(position):
    return {tuple(row) for row in np.asarray(position, np.float32)}


# --- settling


def test_settling_ends_with_chains_where_the_mass_is(walk):
    state = walk.settled.after
    assert isinstance(state, FitState)
    assert not np.any(state.pilot.is_far)
    assert state.chains is state.explorers
    assert state.chains.position.shape == (CHAINS, 2)
    np.testing.assert_allclose(
        state.chains.log_prob, skewed(tf.constant(state.chains.position)), rtol=1e-5
    )
    # 0.9 quantile of the potential of exact draws: 4; starts are at a hundred.
    assert np.median(-state.chains.log_prob) < 4.0
    assert np.max(-state.ledger.points.log_prob[:CHAINS]) > 50.0
    (pilot,) = state.rounds
    assert pilot.kind == "pilot"
    assert pilot.num_gradients == walk.settled.cost == walk.settled.num_points


def test_settling_takes_its_share_and_no_more(walk):
    wanted = min(CONFIG.settle_share * BUDGET, CONFIG.settle_points)
    cost = walk.settled.after.pilot.cost
    assert wanted - cost < walk.settled.cost <= wanted
    # With more dimensions, or other settings, more or less.
    for config, most in (
        (FitConfig(settle_points=600), 600),
        (FitConfig(settle_points_per_dim=500), 1000),
        (FitConfig(settle_share=0.2), 200),
    ):
        small = dataclasses.replace(config, num_chains=2)
        budget = 1000 if most == 200 else 10_000
        if most == 1000:
            small = dataclasses.replace(small, settle_points=10)
        state = settled_state(skewed, [0.0, 0.0], budget, small)
        assert most - state.pilot.cost < state.ledger.num_gradients <= most


def cliff(q):
    """Steep, and curved at the bottom alone."""
    return -tf.sqrt(1.0 + 1e6 * tf.reduce_sum(q**2, axis=-1))


@pytest.mark.parametrize(("stragglers", "takes_more"), [(0.5, False), (0.0, True)])
def test_while_too_many_chains_are_far_settling_may_take_more(stragglers, takes_more):
    # One of them is thirty thousand nats up.
    starts = np.zeros((4, 2))
    starts[0] = 20.0
    config = FitConfig(num_chains=4, settle_points=70, stragglers=stragglers)
    state = settled_state(cliff, starts, 2000, config)
    # Two trajectories are 68 gradients.
    assert (state.ledger.num_gradients > 70) == takes_more
    assert state.ledger.num_gradients <= 0.7 * 2000
    # Not for ever: a budget that is too small for it is not all spent up there.
    state = settled_state(cliff, starts, 250, config)
    assert state.ledger.num_gradients <= 0.7 * 250
    assert round_size(state, config) >= config.smallest_round * 4


def test_stragglers_are_put_where_others_are():
    starts = np.zeros((4, 2))
    starts[0] = 20.0
    config = FitConfig(num_chains=4, settle_points=70)
    state = settled_state(cliff, starts, 2000, config)
    np.testing.assert_array_equal(state.pilot.is_far, [True, False, False, False])
    np.testing.assert_array_equal(
        state.chains.position[1:], state.pilot.chains.position[1:]
    )
    assert rows(state.chains.position[:1]) <= rows(state.chains.position[1:])
    expected = cliff(tf.constant(state.chains.position))
    np.testing.assert_allclose(state.chains.log_prob, expected, rtol=1e-4)


# --- how large a round is


def at(spent, budget, acceptances=()):
    """A state that has spent so much, after rounds of such acceptances."""
    rounds = [Round("pilot", 0, 0, np.nan, np.nan, np.nan, 0.1, None, 0.0)]
    rounds += [
        Round("refinement", 0, 0, 0.1, acceptance, 1.0, 0.1, None, 0.0)
        for acceptance in acceptances
    ]
    ledger = types.SimpleNamespace(
        num_gradients=spent, budget=budget, left=budget - spent
    )
    return FitState(
        ledger, None, None, (), None, None, explorers=None, rounds=tuple(rounds)
    )


def test_rounds_grow_with_what_was_spent():
    assert round_size(at(3000, 100_000), CONFIG) == int(0.33 * 3000)
    assert round_size(at(100, 100_000), CONFIG) == SMALLEST
    assert round_size(at(50_000, 100_000), CONFIG) == CONFIG.largest_round


def test_the_last_round_is_a_small_one():
    spent, sizes = 1000, []
    while size := round_size(at(spent, 5000, [0.7]), CONFIG):
        sizes.append(size)
        spent += size
    assert spent == 5000
    # The one before leaves as much as it takes to judge the last network.
    assert sizes[-1] == SMALLEST
    assert all(x >= SMALLEST for x in sizes)
    # Less than two small rounds are one, and less than one is none.
    assert round_size(at(1000, 1000 + 2 * SMALLEST - 1), CONFIG) == 2 * SMALLEST - 1
    assert round_size(at(1000, 1000 + SMALLEST), CONFIG) == SMALLEST
    assert round_size(at(1000, 1000 + SMALLEST - 1), CONFIG) == 0


@pytest.mark.parametrize(
    ("acceptances", "goes_on"),
    [
        ([], True),
        ([0.1], True),  # It is better than nothing.
        ([0.1, 0.2], True),
        ([0.2, 0.21], False),
        ([0.3, 0.1], False),
        ([0.6, 0.3], False),
        ([0.3, 0.6], True),
        ([0.9, 0.85], True),
        ([0.01], False),
    ],
)
def test_a_poor_fit_that_gets_no_better_leaves_a_reserve(acceptances, goes_on):
    spent = 7100
    assert bool(round_size(at(spent, 10_000, acceptances), CONFIG)) is goes_on
    # Of three tenths, and no more.
    assert round_size(at(4000, 10_000, acceptances), CONFIG) > 0
    free = dataclasses.replace(CONFIG, reserve=0.0)
    assert round_size(at(spent, 10_000, acceptances), free) > 0


# --- learning


def test_a_network_learns_from_all_typical_points(walk):
    for one in walk.rounds:
        state, data = one["learn"].before, one["learn"].after.surrogate.data
        assert one["learn"].cost == 0
        potential = -state.ledger.points.log_prob[: one["learn"].num_points]
        highest = np.quantile(-state.chains.log_prob, 0.9) + CONFIG.typical_margin
        is_typical = potential <= highest
        assert np.any(~is_typical)
        np.testing.assert_array_equal(-data.log_prob, potential[is_typical])
        position = state.ledger.points.position[: one["learn"].num_points]
        np.testing.assert_array_equal(data.position, position[is_typical])


def test_the_base_is_tried_first_and_then_a_network(walk):
    selected = [one["learn"].after.surrogate.history.selected for one in walk.rounds]
    steps = [one["learn"].after.surrogate.history.num_steps for one in walk.rounds]
    assert selected == ["base", "network", "network"]
    assert steps[0] == 0 < steps[1] == CONFIG.num_steps
    # Without hope for the base, a network at once.
    state = walk.settled.after
    config = dataclasses.replace(CONFIG, promising_base_error=0.0, num_steps=200)
    history = learn(state, config).surrogate.history
    assert history.num_steps == 200
    # Nothing else has changed.
    assert state.surrogate is None


# --- the chains go on


def test_chains_advance_by_as_many_gradients_as_there_are(walk):
    for one, size in zip(walk.rounds, walk.sizes, strict=True):
        before, after = one["advance"].before, one["advance"].after
        knows_bulk = before.last is not None and before.last.quality.acceptance >= 0.8
        # A block of tempered points and a trajectory are left for the search.
        for_search = max(int(0.25 * size), BLOCK + before.pilot.cost)
        most = max(size - for_search if knows_bulk else size, SMALLEST)
        assert most - CHAINS < one["advance"].cost <= most
        assert after.search is None
        assert after.surrogate is before.surrogate
        # The chains are where the last transition, or a trajectory, led them.
        np.testing.assert_allclose(
            after.chains.log_prob, skewed(tf.constant(after.chains.position)), rtol=1e-5
        )
        assert np.any(after.chains.position != before.chains.position)
    # The chains' share was less than the round at least once, and all of it once.
    shares = [
        one["advance"].cost / size
        for one, size in zip(walk.rounds, walk.sizes, strict=True)
    ]
    assert min(shares) < 0.8
    assert max(shares) > 0.9


def test_without_a_network_nothing_advances(walk):
    state = walk.settled.after
    with pytest.raises(ValueError, match="call `learn` first"):
        advance_chains(state, 200, CONFIG)
    with pytest.raises(ValueError, match="call `learn` first"):
        search(state, 200, CONFIG)
    with pytest.raises(ValueError, match="call `advance_chains` first"):
        judge(walk.rounds[0]["learn"].after, CONFIG, 0.0)


# --- the search along tails


def test_tails_are_searched_where_the_bulk_is_known(walk):
    acceptances = [one["advance"].after.advanced.acceptance for one in walk.rounds]
    assert min(acceptances) < CONFIG.known_acceptance < max(acceptances)
    for one, size, acceptance in zip(walk.rounds, walk.sizes, acceptances, strict=True):
        before, after, cost, _ = one["search"]
        if acceptance < CONFIG.known_acceptance:
            assert after is before
            assert cost == 0
            continue
        # All that was evaluated is told of, and tempered points come first.
        found = after.search
        assert len(found.elsewhere.position) == cost
        num_hot = cost % after.pilot.cost
        assert num_hot == int(0.25 * size) // BLOCK * BLOCK % after.pilot.cost
        assert cost >= BLOCK + after.pilot.cost
        expected = Compared.with_network(
            after.surrogate.network,
            types.SimpleNamespace(
                **{
                    name: getattr(found.elsewhere, name)
                    for name in ("position", "log_prob", "gradient")
                }
            ),
        )
        np.testing.assert_array_equal(found.elsewhere.residual, expected.residual)
        assert after.explorers is found.explorers
        # The chains stay: they were not asked.
        assert after.chains is before.chains


def test_nothing_is_searched_without_gradients(walk):
    state = walk.rounds[-1]["advance"].after
    # A block of points alone, without a trajectory, would tell nothing of tails.
    broke = types.SimpleNamespace(left=BLOCK + state.pilot.cost - 1)
    state = dataclasses.replace(state, ledger=broke)
    assert search(state, 1000, CONFIG) is state


def test_the_last_round_has_gradients_for_a_search_where_the_bulk_is_known(walk):
    state = walk.rounds[-1]["judge"].after
    assert state.last.quality.acceptance >= CONFIG.known_acceptance
    least = SMALLEST + BLOCK + state.pilot.cost
    for left in range(least, 3000, 50):
        ledger = types.SimpleNamespace(left=left, num_gradients=2000, budget=10_000)
        size = round_size(dataclasses.replace(state, ledger=ledger), CONFIG)
        assert size == left or left - size >= least


# --- judging


def test_what_is_said_of_a_network_is_of_points_that_it_has_not_learned_from(walk):
    for one, later in zip(walk.rounds, [*walk.rounds[1:], None], strict=True):
        state = one["judge"].before
        learned = rows(state.surrogate.data.position)
        proposed = rows(state.advanced.position)
        assert len(proposed) > 0.9 * len(state.advanced.position)
        assert not learned & proposed
        if state.search is not None:
            assert not learned & rows(state.search.elsewhere.position)
        # But the next one does.
        if later is not None:
            taught = rows(later["learn"].after.surrogate.data.position)
            assert rows(state.advanced.position[state.advanced.is_accepted]) <= taught


def test_the_verdict_is_what_the_round_measured(walk):
    for one in walk.rounds:
        before, after, cost, num_points = one["judge"]
        assert cost == 0
        advanced, judged, this = before.advanced, after.last, after.rounds[-1]
        accepted = advanced.position[advanced.is_accepted]
        potential = -skewed(tf.constant(accepted)).numpy().astype(float)
        error = potential - before.surrogate.network.potential(accepted).numpy()
        assert judged.quality.acceptance == advanced.acceptance == this.acceptance
        assert judged.quality.energy_error == pytest.approx(np.std(error), rel=1e-3)
        np.testing.assert_allclose(judged.potential, potential, rtol=1e-5)
        np.testing.assert_allclose(judged.residual, error, atol=1e-4)
        assert judged.surrogate is before.surrogate
        assert judged.num_transitions == before.num_transitions
        assert judged.quality.is_open == (
            before.search is None or before.search.is_open
        )
        # The history: nothing was evaluated after it.
        assert after.rounds[:-1] == before.rounds
        assert this.num_gradients == num_points
        assert this.num_points == len(before.surrogate.data)
        assert this.tail_acceptance == judged.quality.tail_acceptance
        # Two rounds' states tell how far out chains go.
        assert len(after.visited) == min(2, len(after.rounds) - 1)
        np.testing.assert_array_equal(after.visited[-1], advanced.state)


def test_proposals_take_several_transitions_only_where_the_bulk_is_known(walk):
    for one in walk.rounds:
        after = one["judge"].after
        knows = after.last.quality.acceptance >= CONFIG.known_acceptance
        assert (after.last.run is not None) == knows
        assert after.num_transitions <= CONFIG.most_transitions
        if not knows:
            assert after.num_transitions == 1
        elif not after.surrogate.is_gaussian:
            expected = np.ceil(after.last.run.correlation_time)
            assert after.num_transitions == np.clip(expected, 1, 10)
    assert walk.rounds[-1]["judge"].after.last.run is not None


@pytest.fixture(scope="module")
def known(walk):
    """The last round's state, as if a search had found nothing."""
    state = walk.rounds[-1]["judge"].before
    assert state.advanced.acceptance > CONFIG.good_acceptance
    fresh = Compared.with_network(state.surrogate.network, state.advanced.states)
    nothing = TailSearch(fresh, False, state.explorers)
    return dataclasses.replace(
        state, search=nothing, last=None, best=None, good_rounds=0
    )


def test_good_rounds_confirm_a_fit_if_they_agree_with_the_one_before(known):
    confirmed, counts, state = [], [], known
    for _ in range(3):
        state, is_confirmed = judge(state, CONFIG, 0.0)
        confirmed.append(is_confirmed)
        counts.append(state.good_rounds)
    # The first has none before it.
    assert counts == [0, 1, 2]
    assert confirmed == [False, False, True]
    assert state.best is state.last
    # One that is not good begins anew, and so does an open tail.
    for search_ in (None, known.search._replace(is_open=True)):
        worse = dataclasses.replace(state, search=search_)
        worse, is_confirmed = judge(worse, CONFIG, 0.0)
        assert worse.good_rounds == 0
        assert not is_confirmed
    # What it takes is for the settings to say.
    state, _ = judge(known, CONFIG, 0.0)
    assert judge(state, FitConfig(good_rounds=1), 0.0)[1]


def test_rounds_that_disagree_confirm_nothing(known, walk):
    state, _ = judge(known, CONFIG, 0.0)
    # The round before had the base alone, which knows nothing of the right tail.
    ignorant = state.last._replace(surrogate=walk.rounds[0]["judge"].before.surrogate)
    assert ignorant.surrogate.is_gaussian
    state = dataclasses.replace(state, last=ignorant, good_rounds=1)
    state, is_confirmed = judge(state, CONFIG, 0.0)
    assert state.last.quality.is_good(CONFIG)
    assert state.good_rounds == 0
    assert not is_confirmed


def test_a_base_that_fits_everywhere_is_confirmed_at_once():
    def gaussian(q):
        return -tf.reduce_sum(q**2, axis=-1)

    state = settled_state(gaussian, [0.0, 0.0], 3000)
    size = round_size(state, CONFIG)
    state = search(advance_chains(learn(state, CONFIG), size, CONFIG), size, CONFIG)
    after, is_confirmed = judge(state, CONFIG, 0.0)
    assert is_confirmed
    # After so many transitions NUTS on a Gaussian forgets its start.
    assert after.num_transitions == 4
    # Not if nobody has looked beyond.
    unseen = dataclasses.replace(state, search=None)
    assert not judge(unseen, CONFIG, 0.0)[1]
    # Nor if that is not good enough.
    strict = dataclasses.replace(CONFIG, sufficient_base_error=0.0)
    assert not judge(state, strict, 0.0)[1]


def test_the_best_network_is_kept(known, walk):
    state, _ = judge(known, CONFIG, 0.0)
    good = state.best
    # A later round with the base alone, at the same points.
    base = walk.rounds[0]["judge"].before
    advanced = base.advanced
    assert advanced.acceptance < 0.9
    worse = dataclasses.replace(state, surrogate=base.surrogate, advanced=advanced)
    worse, _ = judge(worse, CONFIG, 0.0)
    assert worse.best is good
    assert worse.last is not good
