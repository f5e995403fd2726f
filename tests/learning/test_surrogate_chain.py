"""NUTS on a network alone has the draws of the network's density."""

import numpy as np
import pytest
from scipy import stats

from tfp_lhnn.learning.surrogate_chain import (
    NUM_DRAWS,
    SurrogateRun,
    run_surrogate_chain,
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
