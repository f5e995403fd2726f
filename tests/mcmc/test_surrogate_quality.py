"""What 4 000 gradients buy: delayed acceptance as good as NUTS, at no more gradients.

Delayed acceptance is exact with any network; with a good one it must also mix like NUTS
on the true gradients, at the same step size and depth.
"""

from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_lhnn

NUM_GRADIENTS = 4000
NUM_TRAJECTORIES = 40


class Problem(NamedTuple):
    """A target with settings that suit it.

    Attributes:
        log_prob: the target.
        dim: number of coordinates.
        spread: half width of the box, about the origin, where trajectories start.
        training_step: leapfrog step of the trajectories.
        hidden_units: of the network.
        step_size: of the samplers.
        num_chains: and the next two: so many that a ratio of two effective sample sizes
            has a standard error of 4% or less (measured by comparing batches of
            chains).
        num_draws: kept, per chain.
        num_burn_in: dropped, per chain.
        acceptance: what is asked of the network.
    """

    log_prob: Any
    dim: int
    spread: float
    training_step: float
    hidden_units: tuple[int, ...]
    step_size: float
    num_chains: int
    num_draws: int
    num_burn_in: int
    acceptance: float


def eight_gaussians():
    return Problem(
        tfp_lhnn.targets.eight_gaussians().log_prob,
        dim=2,
        spread=6.0,  # The modes lie on a circle of radius 4.
        training_step=0.3,
        hidden_units=(32, 32),
        step_size=0.8,
        num_chains=400,
        num_draws=300,
        num_burn_in=20,
        acceptance=0.95,
    )


def logistic_regression():
    """1000 rows, neighbouring features correlated by one half; prior N(0, I)."""
    dim, generator = 24, np.random.default_rng(1)
    lag = np.abs(np.subtract.outer(np.arange(dim), np.arange(dim)))
    features = generator.normal(size=(1000, dim)) @ np.linalg.cholesky(0.5**lag).T
    features = (features - features.mean(0)) / features.std(0)
    logits = features @ generator.normal(scale=0.5, size=dim)
    labels = generator.random(1000) < 1.0 / (1.0 + np.exp(-logits))
    # The likelihood of a row is the logistic function of its signed logit.
    signed = tf.constant(features * np.where(labels, 1.0, -1.0)[:, None], tf.float32)

    def log_prob(q):
        log_likelihood = tf.math.log_sigmoid(tf.matmul(q, signed, transpose_b=True))
        return tf.reduce_sum(log_likelihood, axis=-1) - 0.5 * tf.reduce_sum(q**2, -1)

    return Problem(
        log_prob,
        dim=dim,
        spread=0.5,  # Posterior standard deviations are 0.12, means up to 1.
        training_step=0.08,
        hidden_units=(64, 64),
        step_size=0.06,
        num_chains=80,
        num_draws=200,
        num_burn_in=40,
        acceptance=0.9,
    )


def trained_network(problem):
    """From trajectories that start where no one has looked for the mode before.

    Returns:
        The network, and the ends of the trajectories, `[NUM_TRAJECTORIES, dim]`.
    """
    box = (NUM_TRAJECTORIES, problem.dim)
    starts = np.random.default_rng(3).uniform(-problem.spread, problem.spread, box)
    data = tfp_lhnn.simulate_training_data(
        problem.log_prob,
        tf.constant(starts, tf.float32),
        num_trajectories=NUM_TRAJECTORIES,
        num_steps=NUM_GRADIENTS // NUM_TRAJECTORIES - 1,
        step_size=problem.training_step,
        seed=1,
    )
    assert data.num_gradients <= NUM_GRADIENTS
    assert data.num_dropped == 0
    network = tfp_lhnn.LatentHNN(problem.dim, problem.hidden_units)
    history = tfp_lhnn.train(network, data, seed=2, num_steps=3000)
    print(f"energy error {history.energy_error:.2g} nats, {history.seconds:.0f} s")
    return network, data.position.reshape(NUM_TRAJECTORIES, -1, problem.dim)[:, -1]


def sample(problem, kernel, ends, trace_fn):
    """Draws and trace after burn-in, NumPy arrays `[draws, chains, ...]`."""

    @tf.function(jit_compile=True, autograph=False)
    def run(start):
        return tfp.mcmc.sample_chain(
            problem.num_draws,
            start,
            kernel=kernel,
            num_burnin_steps=problem.num_burn_in,
            trace_fn=trace_fn,
            seed=[1, 2],
        )

    draws, trace = run(tf.repeat(ends, problem.num_chains // len(ends), axis=0))
    return draws.numpy(), trace.numpy()


def effective_sample_sizes(draws):
    """Per draw, of positions and of their squared deviations; means over coordinates.

    Means, since the smallest of 24 noisy figures says more about the noise.
    """
    return np.array(
        [
            np.mean(
                tfp.mcmc.effective_sample_size(
                    x, filter_beyond_positive_pairs=True, cross_chain_dims=1
                )
            )
            / np.prod(draws.shape[:2])
            for x in (draws, (draws - draws.mean((0, 1))) ** 2)
        ]
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "make_problem",
    [eight_gaussians, logistic_regression],
)
def test_delayed_acceptance_mixes_like_nuts(make_problem):
    problem = make_problem()
    network, ends = trained_network(problem)

    def delayed_acceptance(true_transition_probability):
        return tfp_lhnn.LatentHNNDelayedAcceptanceSampler(
            problem.log_prob,
            network,
            problem.step_size,
            max_tree_depth=7,
            true_transition_probability=true_transition_probability,
        )

    draws, log_ratio = sample(
        problem,
        delayed_acceptance(0.0),
        ends,
        lambda _, results: results.log_delayed_accept_ratio,
    )
    acceptance = np.mean(np.minimum(1.0, np.exp(log_ratio)))
    print(f"delayed acceptance {acceptance:.3f}")
    assert acceptance > problem.acceptance
    ours = effective_sample_sizes(draws)
    kernels = {
        "our tree": delayed_acceptance(1.0),
        # It has another rule for U-turns, so its trees are longer at times.
        "TFP's": tfp.mcmc.NoUTurnSampler(
            problem.log_prob, problem.step_size, max_tree_depth=7
        ),
    }
    for name, kernel in kernels.items():
        draws, _ = sample(problem, kernel, ends, lambda _, r: r.leapfrogs_taken)
        ratio = ours / effective_sample_sizes(draws)
        print(f"ESS per draw {ours}, over that of NUTS ({name}) {ratio}")
        assert np.all(np.abs(ratio - 1.0) < 0.2), name
