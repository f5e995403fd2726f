"""NUTS on a network alone has the draws of the network's density."""

import numpy as np
import pytest
from scipy import stats

from tfp_lhnn.learning.surrogate_chain import (
    NUM_DRAWS,
    SurrogateRun,
    adapted_step,
    run_surrogate_chain,
    surrogate_proposals,
)
from tfp_lhnn.network.latent_hnn import LatentHNN

CHAINS, DIM = 16, 2

# A false alarm in 10 000 for each comparison.
LIMIT = stats.norm.isf(0.5e-4)


def skewed_network():
    """One hidden unit: `U(z) = ½|z|² + 1.5 log(1 + e^{2 z_0})`, and a base off zero."""
    network = LatentHNN(DIM, (1,), "softplus", seed=0)
    network.hidden_layers[0].kernel.assign([[2.0], [0.0]])
    network.hidden_layers[0].bias.assign([0.0])
    network.output_layer.kernel.assign([[1.5, 0.0]])
    network.location.assign([5.0, -5.0])
    return network


def truth(temperature):
    """Mean and variance of both coordinates, by quadrature."""
    x = np.linspace(-12, 12, 20_001)
    energy = 0.5 * x**2 + 1.5 * np.logaddexp(0.0, 2.0 * x)
    weight = np.exp(-(energy - energy.min()) / temperature)
    weight /= weight.sum()
    mean = np.sum(weight * x)
    return (mean, np.sum(weight * (x - mean) ** 2)), (0.0, temperature)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_draws_are_those_of_the_tempered_density(temperature):
    network = skewed_network()
    start = np.zeros((CHAINS, DIM), np.float32)
    run = run_surrogate_chain(
        network, start, np.array([1, 2]), largest_step=1.5, temperature=temperature
    )
    assert run.position.shape == (NUM_DRAWS, CHAINS, DIM)
    assert 0.0 < run.step_size <= 1.5
    assert run.leapfrogs_per_draw >= 1.0
    for i, (mean, variance) in enumerate(truth(temperature)):
        x = run.position[..., i].astype(float)
        # Chains are independent, so that their means give the standard error.
        for values, expected in ((x, mean), ((x - mean) ** 2, variance)):
            by_chain = values.mean(axis=0)
            error = by_chain.std(ddof=1) / np.sqrt(CHAINS)
            t = (by_chain.mean() - expected) / error
            assert abs(t) < stats.t.isf(0.5e-4, CHAINS - 1), (i, t)
            # Power: a quarter of a standard deviation would be seen.
            assert error < 0.25 * np.sqrt(variance) * max(1.0, np.sqrt(2 * variance))


def test_the_same_seed_has_the_same_draws_and_steps_stay_short():
    network = skewed_network()
    start = np.zeros((CHAINS, DIM), np.float32)
    one, same, other = (
        run_surrogate_chain(network, start, np.array(seed), largest_step=0.05)
        for seed in ([1, 2], [1, 2], [3, 4])
    )
    np.testing.assert_array_equal(one.position, same.position)
    assert np.any(one.position != other.position)
    assert one.step_size <= 0.05 + 1e-7


def test_correlation_times_tell_how_many_draws_make_an_effective_one():
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((400, 8, 1))
    assert 0.7 < SurrogateRun(draws, 0.5, 7.0).correlation_time < 1.5
    for i in range(1, 400):
        draws[i] = 0.8 * draws[i - 1] + 0.6 * draws[i]
    # (1 + 0.8) / (1 - 0.8)
    assert 6.0 < SurrogateRun(draws, 0.5, 7.0).correlation_time < 13.0


MEANS = np.array([300.0, -1000.0])


def test_correlation_times_know_no_common_centre():
    rng = np.random.default_rng(0)
    # The second coordinate is slow, the first is not; both are independent of means.
    draws = rng.standard_normal((400, 8, 2))
    for i in range(1, 400):
        draws[i, :, 1] = 0.8 * draws[i - 1, :, 1] + 0.6 * draws[i, :, 1]
    centred = SurrogateRun(draws, 0.5, 7.0).correlation_time
    assert centred > 4.0
    moved = SurrogateRun(draws + MEANS, 0.5, 7.0).correlation_time
    assert moved == pytest.approx(centred, rel=1e-6)
    # Of the squares: slow scale, fast sign.
    sign = rng.choice([-1.0, 1.0], size=(400, 8))
    draws[:, :, 1] = np.abs(draws[:, :, 1]) * sign
    slow = SurrogateRun(draws, 0.5, 7.0).correlation_time
    assert slow > 2.0
    moved = SurrogateRun(draws + MEANS, 0.5, 7.0).correlation_time
    assert moved == pytest.approx(slow, rel=1e-6)


# --- proposals


def energy(z):
    """Of `skewed_network`, in its base's coordinates, `[n, dim] -> [n]`."""
    z = z.astype(float)
    return 0.5 * np.sum(z**2, axis=-1) + 1.5 * np.logaddexp(0.0, 2.0 * z[:, 0])


@pytest.mark.parametrize("num_transitions", [1, 2, 5])
def test_the_gain_of_proposals_is_the_networks_own(num_transitions):
    network = skewed_network()
    start = 2.0 * np.random.default_rng(3).standard_normal((CHAINS, DIM))
    start = start.astype(np.float32)
    new, gain = surrogate_proposals(
        network, start, 0.5, num_transitions, np.array([1, 2])
    )
    assert new.shape == (CHAINS, DIM)
    assert gain.dtype == np.float64
    # Energies of up to 40 nats in single precision.
    np.testing.assert_allclose(gain, energy(start) - energy(new), atol=1e-4)
    assert np.std(gain) > 0.5
    position = [
        network.gaussian_base.unwhiten(z).astype(np.float32) for z in (start, new)
    ]
    learned = [network.potential(q).numpy() for q in position]
    np.testing.assert_allclose(gain, learned[0] - learned[1], atol=1e-3)


def test_proposals_are_those_of_their_seed():
    network = skewed_network()
    start = np.zeros((CHAINS, DIM), np.float32)
    (one, gain), (same, same_gain), (other, _), (later, _) = (
        surrogate_proposals(network, start, 0.5, number, np.array(seed))
        for number, seed in ((1, [1, 2]), (1, [1, 2]), (1, [3, 4]), (2, [1, 2]))
    )
    np.testing.assert_array_equal(one, same)
    np.testing.assert_array_equal(gain, same_gain)
    assert np.any(one != other)
    # A second transition goes on from the first.
    assert np.any(one != later)


def test_several_transitions_forget_more_than_one():
    network = skewed_network()
    start = np.full((512, DIM), 2.0, np.float32)
    lengths = [
        surrogate_proposals(network, start, 0.1, number, np.array([1, 2]))[0]
        for number in (1, 4)
    ]
    (mean, _), _ = truth(1.0)
    off = [abs(np.mean(z[:, 0]) - mean) for z in lengths]
    # 512 independent chains of unit width: five standard errors.
    assert off[1] < 5.0 / np.sqrt(512) < off[0]


def test_proposals_keep_the_networks_density():
    network = skewed_network()
    # Draws by inversion of the distribution on a fine grid.
    x = np.linspace(-12, 12, 20_001)
    weight = np.exp(-0.5 * x**2 - 1.5 * np.logaddexp(0.0, 2.0 * x))
    cdf = np.cumsum(weight) / weight.sum()
    rng = np.random.default_rng(4)
    start = np.stack(
        [np.interp(rng.uniform(size=4000), cdf, x), rng.standard_normal(4000)], axis=-1
    )
    for number in (1, 3):
        new, _ = surrogate_proposals(
            network, start.astype(np.float32), 0.6, number, np.array([1, 2])
        )
        # A false alarm in a million.
        p = stats.kstest(new[:, 0], lambda v: np.interp(v, x, cdf)).pvalue
        assert p > 1e-6
        assert stats.kstest(new[:, 1], stats.norm.cdf).pvalue > 1e-6
        assert np.mean(np.abs(new - start)) > 0.3
    # A standard normal density would be found out.
    assert stats.kstest(start[:, 0], stats.norm.cdf).pvalue < 1e-6


# --- steps of proposals


def with_a_well(depth=40.0):
    """A standard normal density, and a deep well a tenth as wide, at `z_0 = 2.4`.

    The rim is two to three nats high: some trajectories in a hundred get over it from
    zero.
    """
    network = LatentHNN(DIM, (2,), "tanh", seed=0)
    network.hidden_layers[0].kernel.assign([[10.0, 10.0], [0.0, 0.0]])
    network.hidden_layers[0].bias.assign([-22.0, -26.0])
    half = 0.5 * depth
    network.output_layer.kernel.assign([[-half, 0.0], [half, 0.0]])
    return network


def step_from(network, place, seed=(1, 2), largest_step=2.0):
    start = np.tile(np.asarray(place, np.float32), (CHAINS, 1))
    return adapted_step(network, start, np.array(seed), largest_step=largest_step)


def test_a_well_elsewhere_has_no_part_in_the_step():
    network, plain = with_a_well(), with_a_well(depth=0.0)
    here = step_from(network, [0.0, 0.0])
    # Dual averaging is within a tenth of its limit, either time.
    assert here == pytest.approx(step_from(plain, [0.0, 0.0]), rel=0.25)
    # There, steps must be short, and a chain from here ends there.
    there = step_from(network, [2.4, 0.0])
    assert there < 0.3 * here
    run = run_surrogate_chain(
        network, np.zeros((CHAINS, DIM), np.float32), np.array([1, 2]), largest_step=2.0
    )
    assert np.mean(run.position[-1, :, 0] > 2.0) > 0.9
    assert run.step_size < 0.3 * here


def test_every_transition_begins_at_the_start():
    # A hill instead of the well: steps must be short on its slope, and a chain that
    # begins there has left it after one.
    network, slope = with_a_well(depth=-40.0), [2.2, 0.0]
    start = np.tile(np.asarray(slope, np.float32), (CHAINS, 1))
    run = run_surrogate_chain(network, start, np.array([1, 2]), largest_step=2.0)
    assert run.step_size > 0.5
    assert step_from(network, slope) < 0.1


def test_steps_of_proposals_are_no_longer_than_allowed():
    network = with_a_well()
    assert step_from(network, [0.0, 0.0]) > 0.1
    assert step_from(network, [0.0, 0.0], largest_step=0.05) <= 0.05 + 1e-7
    one, same, other = (
        step_from(network, [0.0, 0.0], x) for x in ((1, 2), (1, 2), (3, 4))
    )
    assert one == same != other
