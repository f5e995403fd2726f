"""Searches along tails: how long true trajectories go on, and what is paid for them.

The pilot is a stand-in whose trajectories end at given places.
"""

import numpy as np
import pytest
import tensorflow as tf

from tfp_lhnn.evaluation.gradient_ledger import EvaluatedPoints, GradientLedger
from tfp_lhnn.learning.pilot import ChainStates
from tfp_lhnn.learning.stiffness import largest_frequencies, stable_step
from tfp_lhnn.learning.tail_search import Compared, search_tails
from tfp_lhnn.network.latent_hnn import LatentHNN

CHAINS, LEAVES = 4, 8
# Where the target's chains have been, and other points of a round; all are paid for.
NUM_STATES, NUM_FRESH = 2048, 64
BEFORE = NUM_STATES + NUM_FRESH


class MarchingPilot:
    """Every trajectory ends so many times as far out as it began, on the first axis."""

    cost = CHAINS * LEAVES

    def __init__(self, ledger, log_prob, factor, largest_step=np.inf):
        self._ledger = ledger
        self._log_prob = log_prob
        self._factor = factor
        self._largest_step = largest_step
        self.is_hot = np.arange(CHAINS) % 2 == 1
        # Whether the hot ones were left at the origin, where all are at first; where
        # the others began; and how.
        self.runs = []
        self.starts = []
        self.paces = []

    def run_from(self, chains, pace):
        np.testing.assert_allclose(chains.log_prob, self._log_prob(chains.position))
        assert chains.position.shape == chains.gradient.shape == (CHAINS, 2)
        self.runs.append(np.all(chains.position[self.is_hot] == 0.0))
        self.starts.append(chains.position[~self.is_hot])
        self.paces.append(pace)
        end = np.tile([self._factor, 1.0] * chains.position, (LEAVES, 1))
        is_stable = np.max(pace.step) <= self._largest_step
        if not is_stable:
            end[:] = np.nan
        points = EvaluatedPoints(
            end, self._log_prob(end), np.zeros_like(end), np.arange(len(end))
        )
        self._ledger.add(points)
        return chains, np.full(CHAINS, float(is_stable)), points


def gaussian(position):
    return -0.5 * np.sum(position**2, axis=-1)


def heavy_tailed(position):
    """As the network says in the middle, and flat farther out along the first axis."""
    return gaussian(np.clip(position, [-2.0, -np.inf], [2.0, np.inf]))


def walled(position):
    """As the network says on one side of a wall, and next to nothing behind it."""
    return gaussian(position) - 50.0 * (position[..., 0] > 1.0)


def points_of(log_prob, position):
    zero = np.zeros_like(position)
    return EvaluatedPoints(position, log_prob(position), zero, np.arange(len(position)))


def run_search(
    log_prob, factor, budget, *, largest_step=np.inf, affordable=0, states=None
):
    """A search of an untrained network: its base, a standard normal density."""
    network = LatentHNN(2, (4,))
    draws = np.random.default_rng(1).standard_normal((BEFORE, 2))
    states = draws[:NUM_STATES] if states is None else states(draws[:NUM_STATES])
    ledger = GradientLedger(None, budget)
    evaluated = [points_of(log_prob, x) for x in (states, draws[NUM_STATES:])]
    for points in evaluated:
        ledger.add(points)
    at_states, fresh = (Compared.with_network(network, x) for x in evaluated)
    pilot = MarchingPilot(ledger, log_prob, factor, largest_step)
    origin = np.zeros((CHAINS, 2))
    found = search_tails(
        network,
        at_states,
        fresh,
        [states[:100]],
        ChainStates(origin, log_prob(origin), origin),
        pilot,
        ledger,
        affordable,
        np.random.default_rng(2),
    )
    cold = found.explorers.position[~pilot.is_hot]
    # The stand-in's chains stay where they begin, and that comes back.
    expected = pilot.starts[-1] if pilot.starts else origin[~pilot.is_hot]
    np.testing.assert_array_equal(cold, expected)
    # All that trajectories evaluated is told of, after what was evaluated before.
    np.testing.assert_array_equal(found.elsewhere.position[:NUM_FRESH], fresh.position)
    assert len(found.elsewhere.position) == NUM_FRESH + len(pilot.runs) * pilot.cost
    # And is paid for, also if nothing came of it.
    assert ledger.num_gradients == BEFORE + len(pilot.runs) * pilot.cost
    return found, pilot, ledger


def share_escaped(found):
    """Of the points off the chains, where the network is two nats too high."""
    return np.mean(found.elsewhere.residual < -2.0)


def test_a_target_that_the_network_knows_is_looked_at_once():
    found, pilot, _ = run_search(gaussian, 1.5, 10_000)
    assert pilot.runs == [True]
    assert not found.is_open
    # The network is in float32, and the energies are below twenty.
    np.testing.assert_allclose(found.elsewhere.residual, 0.0, atol=1e-5)


@pytest.mark.parametrize(
    ("affordable", "factor", "expected"), [(0, 1.2, 4), (6, 1.13, 6)]
)
def test_trajectories_go_on_as_long_as_they_get_out(affordable, factor, expected):
    found, pilot, _ = run_search(
        heavy_tailed, factor, 10_000, affordable=affordable * CHAINS * LEAVES
    )
    # All that the search may cost, and only the first time without the hot ones.
    assert len(pilot.runs) == expected
    assert pilot.runs == [True] + [False] * (len(pilot.runs) - 1)
    assert found.is_open
    assert share_escaped(found) > 0.1
    # Each run began where the last one ended, beyond five sds pushed outwards.
    farthest = np.max(np.abs(found.elsewhere.position))
    assert farthest > 2.0 * factor ** len(pilot.runs)
    np.testing.assert_allclose(np.abs(pilot.paces[-1].push), [[3.0, 0.0]] * CHAINS)


def test_the_first_trajectories_from_the_frontier_are_pushed_outwards():
    _, pilot, _ = run_search(gaussian, 1.5, 10_000)
    push = pilot.paces[0].push
    np.testing.assert_allclose(np.linalg.norm(push, axis=-1), [3.0, 0.0, 3.0, 0.0])
    # Along the coordinate in which a start is farthest out, away from the centre.
    (starts,) = pilot.starts
    axis = np.argmax(np.abs(starts), axis=-1)
    away = np.sign(starts[np.arange(2), axis])
    np.testing.assert_allclose(push[~pilot.is_hot][np.arange(2), axis], 3.0 * away)


def test_no_trajectory_starts_in_a_well_that_only_the_network_has():
    # The chains never go there; a sixth of the other points lie behind the wall, and
    # some of the farthest.
    def before_the_wall(draws):
        return np.where(draws > [1.0, np.inf], -draws, draws)

    _, pilot, _ = run_search(walled, 1.5, 10_000, states=before_the_wall)
    first = pilot.starts[0]
    assert len(first) == CHAINS // 2
    assert np.all(first[:, 0] <= 1.0)
    assert np.all(np.max(np.abs(first), axis=-1) > 1.5)


def test_trajectories_do_not_run_away_from_where_the_chains_go():
    found, pilot, _ = run_search(
        heavy_tailed, 1.5, 10_000, affordable=20 * CHAINS * LEAVES
    )
    # The chains' states end at about 3.5: three times that, and once more.
    assert len(pilot.runs) < 10
    farthest = np.max(np.abs(found.elsewhere.position))
    assert 5.0 < farthest < 1.5 * 3.0 * 4.0
    assert not found.is_open
    assert share_escaped(found) > 0.1


def test_trajectories_that_diverge_have_seen_nothing():
    found, pilot, _ = run_search(heavy_tailed, 1.5, 10_000, largest_step=0.2)
    # Of a curvature of one: too long twice, then short enough to see the tail.
    steps = [np.max(pace.step) for pace in pilot.paces]
    np.testing.assert_allclose(steps[:3], [0.9, 0.4, 0.16], rtol=1e-3)
    assert share_escaped(found) > 0.1


def test_a_tail_is_open_if_all_trajectories_diverge():
    found, pilot, _ = run_search(gaussian, 1.5, 10_000, largest_step=0.0)
    assert len(pilot.runs) == 4
    assert found.is_open


@pytest.mark.parametrize("spare", [0, 1, 2])
def test_the_budget_ends_a_search(spare):
    cost = CHAINS * LEAVES
    budget = BEFORE + spare * cost + cost - 1
    _, pilot, ledger = run_search(heavy_tailed, 1.5, budget)
    assert len(pilot.runs) == spare
    assert ledger.left == cost - 1


def hilly_network(dim, seed):
    """Under a correlated base, hills that are stiffer than it in places."""
    rng = np.random.default_rng(seed)
    network = LatentHNN(dim, (8,), seed=seed)
    network.location.assign(rng.standard_normal(dim))
    network.whitening.assign(np.eye(dim) + 0.5 * rng.standard_normal((dim, dim)))
    kernel = network.output_layer.kernel
    kernel.assign(rng.standard_normal(kernel.shape))
    network.energy_scale.assign(20.0)
    return network


def exact_frequencies(network, position):
    """Roots of the largest curvatures, in size, of the whitened Hessian, `[n]`."""
    q = tf.constant(position)
    with tf.GradientTape() as tape:
        tape.watch(q)
        gradient = network.potential_gradient(q)
    inverse = np.linalg.inv(network.gaussian_base.whitening)
    hessian = inverse.T @ tape.batch_jacobian(gradient, q).numpy() @ inverse
    return np.sqrt(np.max(np.abs(np.linalg.eigvalsh(hessian)), axis=-1))


# Seven are padded to eight points, sixteen are not.
@pytest.mark.parametrize("number", [7, 16])
def test_frequencies_are_those_of_the_hessian(number):
    network = hilly_network(3, 5)
    position = np.random.default_rng(6).standard_normal((number, 3))
    exact = exact_frequencies(network, position)
    assert np.ptp(exact) > 1.0
    found = largest_frequencies(network, position, np.random.default_rng(7))
    # Twenty iterations leave something of a curvature nearly as large as the largest.
    np.testing.assert_allclose(np.median(found / exact), 1.0, rtol=1e-3)
    np.testing.assert_allclose(found, exact, rtol=0.1)


def test_frequencies_are_those_of_the_network_at_hand():
    position = np.random.default_rng(6).standard_normal((16, 3))
    for network in (hilly_network(3, 5), hilly_network(3, 8)):
        found = largest_frequencies(network, position, np.random.default_rng(7))
        exact = exact_frequencies(network, position)
        np.testing.assert_allclose(np.median(found / exact), 1.0, rtol=1e-3)


def test_without_layers_every_frequency_is_one():
    network = hilly_network(3, 5)
    network.silence()
    position = np.random.default_rng(6).standard_normal((16, 3))
    found = largest_frequencies(network, position, np.random.default_rng(7))
    np.testing.assert_array_equal(found, 1.0)
    np.testing.assert_allclose(exact_frequencies(network, position), 1.0, rtol=1e-5)


def test_a_step_is_stable_where_the_potential_is_stiffest():
    network = hilly_network(3, 5)
    position = np.random.default_rng(6).standard_normal((500, 3))
    stiffest = np.quantile(exact_frequencies(network, position), 0.98)
    step = stable_step(network, position, np.random.default_rng(7))
    assert step == pytest.approx(1.0 / stiffest, rel=0.02)
