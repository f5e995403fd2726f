"""Transitions of the target's chains on a young network: exact, and paid for."""

import types

import numpy as np
import pytest
import tensorflow as tf

from tfp_lhnn.evaluation.gradient_ledger import GradientLedger
from tfp_lhnn.evaluation.target import CompiledTarget
from tfp_lhnn.learning.advance import advance
from tfp_lhnn.learning.fit_config import FitConfig
from tfp_lhnn.learning.pilot import ChainStates, Pilot
from tfp_lhnn.learning.surrogate import Surrogate
from tfp_lhnn.model.model import as_model
from tfp_lhnn.network.latent_hnn import LatentHNN

from ..counting_target import CountingTarget, skewed
from .exact_draws import FALSE_ALARM_RATE, moved, p_value, skewed_draws

CHAINS = 20_000
# Without true trajectories, and with them after every second proposal.
PLAIN = FitConfig(low_acceptance=0.0)
ASSISTED = FitConfig(low_acceptance=1.0)


def wrong_surrogate(selected):
    """Of wrong centre and width, and, if it is no base alone, with random hills."""
    network = LatentHNN(2, (8,), seed=1)
    if selected == "network":
        network.initialise(1)
        network.energy_scale.assign(3.0)
    network.location.assign([0.8, 0.2])
    network.whitening.assign([[0.7, 0.0], [-0.5, 1.2]])
    history = types.SimpleNamespace(selected=selected)
    return Surrogate(network, network.gaussian_base, history, None, 1.0)


class Forgetful:
    """Proposes as another does, and does not tell of its own density."""

    def __init__(self, surrogate):
        self._surrogate = surrogate
        self.adapted_step = surrogate.adapted_step

    def propose(self, *args):
        proposal, gain = self._surrogate.propose(*args)
        return proposal, np.zeros_like(gain)


@pytest.fixture(scope="module")
def target():
    """Compiled once."""
    return CompiledTarget(as_model(skewed, skewed_draws(CHAINS)), jit_compile=True)


def run(target, surrogate, config, *, num_transitions=1, seed=5):
    """Exact draws, what a few transitions make of them, and what happened."""
    ledger = GradientLedger(target, 10**7)
    generator = np.random.default_rng(seed)
    # The pilot's steps have nothing to do with the chains.
    pilot = Pilot(
        ledger, skewed_draws(CHAINS, 9), generator, dense=True, temperature=1.5
    )
    start = skewed_draws(CHAINS)
    chains = ChainStates(*ledger.evaluate_chains(start)[:3])
    number = 2 * CHAINS + (pilot.cost if config is ASSISTED else 0)
    chains, advanced = advance(
        surrogate, chains, pilot, ledger, number, num_transitions, config, generator
    )
    np.testing.assert_array_equal(target.evaluate(chains.position)[0], chains.log_prob)
    return start, chains.position, advanced


@pytest.mark.parametrize("selected", ["network", "base"])
@pytest.mark.parametrize("config", [PLAIN, ASSISTED], ids=["plain", "assisted"])
@pytest.mark.parametrize("num_transitions", [1, 3])
def test_the_target_stays_as_it_is(target, selected, config, num_transitions):
    surrogate = wrong_surrogate(selected)
    start, end, advanced = run(
        target, surrogate, config, num_transitions=num_transitions
    )
    p = p_value(start, end)
    print(f"p = {p:.2g}, moved {moved(start, end):.2f}, {advanced.acceptance:.3f}")
    assert p > FALSE_ALARM_RATE
    # The states in between, too: quality is measured at them.
    assert p_value(start, advanced.state[:CHAINS]) > FALSE_ALARM_RATE
    # Chains that stand still leave everything as it is.
    assert moved(start, end) > 0.5
    # The acceptance step has much to put right.
    assert 0.2 < advanced.acceptance < 0.8
    assert p_value(start, advanced.position[:CHAINS]) < FALSE_ALARM_RATE


@pytest.mark.parametrize("selected", ["network", "base"])
def test_without_the_networks_own_density_it_would_not(target, selected):
    surrogate = Forgetful(wrong_surrogate(selected))
    start, end, advanced = run(target, surrogate, PLAIN)
    assert advanced.acceptance > 0.2
    assert p_value(start, end) < FALSE_ALARM_RATE


def test_acceptance_is_what_is_counted(target):
    _, _, advanced = run(target, wrong_surrogate("network"), PLAIN)
    share = np.mean(advanced.is_accepted)
    # Four standard errors of 40 000 coins: a false alarm in 16 000.
    assert share == pytest.approx(advanced.acceptance, abs=4.0 * 0.5 / 200.0)
    # Chains are where they went, and nowhere else.
    first, second = np.split(advanced.is_accepted, 2)
    went = np.split(advanced.position, 2)[1][second]
    np.testing.assert_array_equal(advanced.state[CHAINS:][second], went)
    np.testing.assert_array_equal(
        advanced.state[CHAINS:][~second], advanced.state[:CHAINS][~second]
    )
    start = skewed_draws(CHAINS)
    np.testing.assert_array_equal(advanced.state[:CHAINS][~first], start[~first])


# --- what it costs


FEW = 4


class Scripted:
    """A network that proposes what it is told to, and its density as well.

    Args:
        shift: of a proposal from where the chain is, `[dim]`.
        gain: of the network's log density.
    """

    def __init__(self, shift, gain=0.0):
        self._shift = np.asarray(shift, np.float32)
        self._gain = gain
        self.asked = []

    def adapted_step(self, position, generator):
        return 0.5

    def propose(self, position, step_size, num_transitions, generator):
        self.asked.append((step_size, num_transitions))
        gain = np.full(len(position), self._gain, np.float64)
        return position + self._shift, gain


class WatchedPilot(Pilot):
    """Remembers what had been spent whenever it ran, and how it did."""

    def run_from(self, chains, pace=None, *, exact=False):
        assert exact
        self.seen.append(self._ledger.num_gradients)
        return super().run_from(chains, pace, exact=exact)

    @classmethod
    def of(cls, ledger):
        generator = np.random.default_rng(1)
        start = skewed_draws(FEW)
        pilot = cls(ledger, start, generator, dense=True, temperature=1.5)
        pilot.seen = []
        return pilot


@pytest.fixture(scope="module")
def counted():
    """A target that counts, compiled once."""
    count = CountingTarget()
    return count, CompiledTarget(as_model(count, skewed_draws(FEW)), False)


def spend(counted, surrogate, number, budget=10_000, config=None):
    """Advances four chains; what happened, the ledger and the pilot."""
    count, target = counted
    ledger = GradientLedger(target, budget)
    before = count.gradients
    pilot = WatchedPilot.of(ledger)
    first = ledger.num_gradients
    chains, advanced = advance(
        surrogate,
        pilot.chains,
        pilot,
        ledger,
        number,
        3,
        config or FitConfig(),
        np.random.default_rng(2),
    )
    assert count.gradients - before == ledger.num_gradients
    assert ledger.num_gradients - first <= number
    assert ledger.num_gradients <= budget
    spent = FEW + len(advanced.log_prob) + pilot.cost * len(pilot.seen)
    assert ledger.num_gradients == spent
    assert chains.position.shape == (FEW, 2)
    return advanced, ledger, pilot


STAY, FAR = (0.0, 0.0), (30.0, -30.0)
# A proposal of four chains, and a trajectory of them.
COST = 8 * FEW


def test_good_proposals_are_followed_by_no_trajectory(counted):
    surrogate = Scripted(STAY)
    advanced, ledger, pilot = spend(counted, surrogate, 10 * FEW + 3)
    assert pilot.seen == []
    assert surrogate.asked == [(0.5, 3)] * 10
    assert advanced.acceptance == 1.0
    assert np.all(advanced.is_accepted)
    assert ledger.num_gradients == FEW + 10 * FEW


def test_true_trajectories_follow_every_second_bad_proposal(counted):
    advanced, ledger, pilot = spend(counted, Scripted(FAR), 6 * FEW + 3 * COST + 3)
    assert not np.any(advanced.is_accepted)
    cycle = 2 * FEW + COST
    np.testing.assert_array_equal(pilot.seen, 3 * FEW + cycle * np.arange(3))
    # They move the chains on, and do not count as transitions on the network.
    assert len(advanced.log_prob) == 6 * FEW
    np.testing.assert_array_equal(advanced.state[:FEW], advanced.state[FEW : 2 * FEW])
    assert np.any(advanced.state[FEW : 2 * FEW] != advanced.state[2 * FEW : 3 * FEW])
    assert ledger.num_gradients == FEW + 3 * cycle


def test_what_is_low_is_for_the_settings_to_say(counted):
    # Twice as far from its density as all its proposals: accepted one in e times.
    surrogate = Scripted(STAY, gain=1.0)
    for low, runs in ((0.3, 0), (0.4, 1)):
        config = FitConfig(low_acceptance=low)
        advanced, _, pilot = spend(counted, surrogate, 3 * FEW + COST, config=config)
        assert advanced.acceptance == pytest.approx(np.exp(-1.0))
        assert (len(pilot.seen) > 0) == runs


@pytest.mark.parametrize("extra", [0, FEW - 1, FEW, COST - 1, COST])
def test_neither_the_number_nor_the_budget_is_exceeded(counted, extra):
    # `spend` looks at that; here, that nothing which could be spent is left.
    number = 2 * FEW + extra
    for limits in ((number, 10_000), (10_000, FEW + number)):
        _, ledger, pilot = spend(counted, Scripted(FAR), *limits)
        assert FEW + number - ledger.num_gradients < FEW
        assert len(pilot.seen) == (extra == COST)


# --- where there is no density


class Walled:
    """A normal density; without any, or without a gradient, on either side."""

    dtype = tf.float32

    def __init__(self, log_prob, slope):
        self._log_prob, self._slope = log_prob, slope

    def evaluate(self, position):
        log_prob = -0.5 * np.sum(position**2, axis=-1)
        gradient = -position
        outside = position[:, 0] > 5.0
        log_prob[outside] = self._log_prob
        gradient[outside, 1] = self._slope
        return log_prob, gradient


@pytest.mark.parametrize("gain", [0.0, -1e6])
@pytest.mark.parametrize(
    ("log_prob", "slope"),
    [(np.nan, 0.0), (-np.inf, 0.0), (np.inf, 0.0), (0.0, np.nan), (0.0, np.inf)],
)
def test_a_point_without_density_is_never_accepted(log_prob, slope, gain):
    ledger = GradientLedger(Walled(log_prob, slope), 1000)
    start = np.zeros((FEW, 2), np.float32)
    chains = ChainStates(*ledger.evaluate_chains(start)[:3])
    surrogate = Scripted((6.0, 0.0), gain)
    chains, advanced = advance(
        surrogate, chains, None, ledger, 8 * FEW, 1, PLAIN, np.random.default_rng(3)
    )
    assert not np.any(advanced.is_accepted)
    assert advanced.acceptance == 0.0
    np.testing.assert_array_equal(chains.position, start)
    np.testing.assert_array_equal(advanced.state_log_prob, 0.0)
    # They are paid for, and are nothing to learn from.
    assert ledger.num_gradients == 9 * FEW
    assert len(ledger.data()) == FEW


@pytest.mark.parametrize("gain", [np.nan, -np.inf, np.inf])
def test_nor_is_one_of_which_the_network_says_nothing(gain):
    ledger = GradientLedger(Walled(0.0, 0.0), 1000)
    start = np.zeros((FEW, 2), np.float32)
    chains = ChainStates(*ledger.evaluate_chains(start)[:3])
    surrogate = Scripted(STAY, gain)
    _, advanced = advance(
        surrogate, chains, None, ledger, 8 * FEW, 1, PLAIN, np.random.default_rng(3)
    )
    assert not np.any(advanced.is_accepted)


def test_fresh_residuals_are_of_what_was_accepted(target):
    network = LatentHNN(2, (4,))
    _, _, advanced = run(target, wrong_surrogate("base"), PLAIN)
    accepted = advanced.position[advanced.is_accepted]
    potential = -skewed(tf.constant(accepted)).numpy()
    # An untrained network is a standard normal density.
    expected = potential - 0.5 * np.sum(accepted**2, axis=-1)
    residual = advanced.fresh_residual(network)
    np.testing.assert_allclose(residual, expected, rtol=1e-4, atol=1e-4)
