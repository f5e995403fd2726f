"""Checks of a network: how long true trajectories go on, and what is paid for them.

The pilot is a stand-in whose trajectories end at given places.
"""

import numpy as np
import pytest
import tensorflow as tf

from tfp_lhnn.evaluation.gradient_ledger import EvaluatedPoints, GradientLedger
from tfp_lhnn.evaluation.target import BLOCK
from tfp_lhnn.learning.fit_check import check
from tfp_lhnn.learning.pilot import ChainStates
from tfp_lhnn.learning.stiffness import largest_frequencies, stable_step
from tfp_lhnn.learning.surrogate_chain import SurrogateRun
from tfp_lhnn.learning.tail_search import Mass
from tfp_lhnn.network.latent_hnn import LatentHNN

CHAINS, LEAVES = 4, 8


class Target:
    """Counts what it evaluates."""

    dtype = tf.float64

    def __init__(self, log_prob):
        self._log_prob = log_prob
        self.count = 0

    def evaluate(self, position):
        self.count += len(position)
        return self._log_prob(position), np.zeros_like(position)


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


def run_check(log_prob, factor, budget, *, largest_step=np.inf, expedition_gradients=0):
    draws = np.random.default_rng(1).standard_normal((64, 16, 2))
    run = SurrogateRun(draws, 0.5, 7.0)
    target = Target(log_prob)
    ledger = GradientLedger(target, budget)
    start = np.zeros((BLOCK, 2))
    ledger.add(EvaluatedPoints(start, start[:, 0], start, np.zeros(BLOCK, int)))
    pilot = MarchingPilot(ledger, log_prob, factor, largest_step)
    generator = np.random.default_rng(2)
    origin = np.zeros((CHAINS, 2))
    result, reached = check(
        LatentHNN(2, (4,)),  # untrained: its base, a standard normal density
        run,
        run,
        ChainStates(origin, log_prob(origin), origin),
        pilot,
        ledger,
        4 * BLOCK,
        expedition_gradients,
        generator,
        [Mass(draws.reshape(-1, 2), np.ones(64 * 16))],
    )
    if pilot.starts:
        # The stand-in's chains stay where they begin, and that comes back.
        np.testing.assert_array_equal(reached.position[~pilot.is_hot], pilot.starts[-1])
    else:
        np.testing.assert_array_equal(reached.position, origin)
    return result, pilot, ledger, target


def test_a_target_that_the_network_knows_is_looked_at_once():
    result, pilot, ledger, target = run_check(gaussian, 1.5, 10_000)
    assert pilot.runs == [True]
    assert target.count == 4 * BLOCK
    assert ledger.num_gradients == 5 * BLOCK + pilot.cost
    assert len(result.position) == 4 * BLOCK + pilot.cost
    assert result.num_own == 3 * BLOCK
    # The network is in float32, and the energies are below ten.
    np.testing.assert_allclose(result.residual, 0.0, atol=1e-5)
    assert result.quality.is_good


@pytest.mark.parametrize(
    ("affordable", "factor", "expected"), [(0, 1.2, 4), (6, 1.13, 6)]
)
def test_trajectories_go_on_as_long_as_they_get_out(affordable, factor, expected):
    result, pilot, ledger, _ = run_check(
        heavy_tailed, factor, 10_000, expedition_gradients=affordable * CHAINS * LEAVES
    )
    # All that the check may cost, and only the first time without the hot ones.
    assert len(pilot.runs) == expected
    assert pilot.runs == [True] + [False] * (len(pilot.runs) - 1)
    assert result.quality.is_open
    assert result.quality.escaped > 0.1
    assert not result.quality.is_good
    assert ledger.num_gradients == 5 * BLOCK + len(pilot.runs) * pilot.cost
    # Each run began where the last one ended, beyond five sds pushed outwards.
    assert np.max(np.abs(result.position)) > 2.0 * factor ** len(pilot.runs)
    np.testing.assert_allclose(np.abs(pilot.paces[-1].push), [[3.0, 0.0]] * CHAINS)


def test_the_first_trajectories_from_the_frontier_are_pushed_outwards():
    _, pilot, _, _ = run_check(gaussian, 1.5, 10_000)
    push = pilot.paces[0].push
    np.testing.assert_allclose(np.linalg.norm(push, axis=-1), [3.0, 0.0, 3.0, 0.0])
    # Along the coordinate in which a start is farthest out, away from the centre.
    (starts,) = pilot.starts
    axis = np.argmax(np.abs(starts), axis=-1)
    away = np.sign(starts[np.arange(2), axis])
    np.testing.assert_allclose(push[~pilot.is_hot][np.arange(2), axis], 3.0 * away)


def test_no_trajectory_starts_in_a_well_that_only_the_network_has():
    _, pilot, _, _ = run_check(walled, 1.5, 10_000)
    first = pilot.starts[0]
    assert len(first) == CHAINS // 2
    # A sixth of the network's draws lie behind the wall, and some of the farthest.
    assert np.all(first[:, 0] <= 1.0)
    assert np.all(np.max(np.abs(first), axis=-1) > 1.5)


def test_trajectories_do_not_run_away_from_what_the_network_visits():
    result, pilot, _, _ = run_check(
        heavy_tailed, 1.5, 10_000, expedition_gradients=20 * CHAINS * LEAVES
    )
    # Its chain's draws end at about 3.5: three times that, and once more.
    assert len(pilot.runs) < 10
    assert 5.0 < np.max(np.abs(result.position)) < 1.5 * 3.0 * 4.0
    assert not result.quality.is_open
    assert not result.quality.is_good


def test_trajectories_that_diverge_have_seen_nothing():
    result, pilot, ledger, _ = run_check(heavy_tailed, 1.5, 10_000, largest_step=0.2)
    # Of a curvature of one: too long twice, then short enough to see the tail.
    steps = [np.max(pace.step) for pace in pilot.paces]
    np.testing.assert_allclose(steps[:3], [0.9, 0.4, 0.16], rtol=1e-3)
    assert result.quality.escaped > 0.1
    assert not result.quality.is_good
    # What they have evaluated is paid for all the same.
    assert ledger.num_gradients == 5 * BLOCK + len(pilot.runs) * pilot.cost


def test_a_network_is_not_good_if_all_trajectories_diverge():
    result, pilot, _, _ = run_check(gaussian, 1.5, 10_000, largest_step=0.0)
    assert len(pilot.runs) == 4
    assert result.quality.is_open
    assert not result.quality.is_good


def test_wells_that_only_a_network_has_are_no_mass():
    position = np.array([[0.0], [1.0], [50.0]])
    mass = Mass.of_draws(position, np.array([0.0, np.log(2.0), 40.0]))
    np.testing.assert_allclose(mass.weight, [2.0, 1.0, 0.0], atol=1e-12)
    nowhere = Mass.of_draws(position, np.full(3, np.inf))
    np.testing.assert_array_equal(nowhere.weight, 0.0)


@pytest.mark.parametrize("spare", [0, 1, 2])
def test_the_budget_ends_an_expedition(spare):
    cost = CHAINS * LEAVES
    budget = 5 * BLOCK + spare * cost + cost - 1
    _, pilot, ledger, _ = run_check(heavy_tailed, 1.5, budget)
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
