"""The kernel against a plain recursive implementation of the paper's algorithms."""

import collections

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

import tfp_lhnn
from tfp_lhnn.mcmc import nuts
from tfp_lhnn.mcmc.randomness import draw

from .helpers import assert_trees_equal
from .recursive_nuts import Problem, RecursiveNUTS

MAX_DEPTH = 6


def potential(q):
    """Skewed, curved, steeper than any quadratic; works for NumPy and TensorFlow."""
    x, y = q[..., 0], q[..., 1]
    return 0.25 * x**4 + 0.1 * x**2 - 0.5 * x + (y - 0.3 * x**2) ** 2


def gradient(q):
    x, y = q
    bend = 2.0 * (y - 0.3 * x**2)
    return np.array([x**3 + 0.2 * x - 0.5 - 0.6 * x * bend, bend])


class WrongNetwork:
    """A quadratic energy that fits in the middle and fails outside.

    Args:
        coupling: strength of a term `q·p`, which only a joint network can have.
    """

    trainable_variables = ()
    non_trainable_variables = ()

    def __init__(self, coupling=0.0):
        self.coupling = coupling
        self.separable = coupling == 0.0

    def stateless_call(self, trainable, non_trainable, x):
        del trainable
        q = x[:, :2]
        latents = 0.6 * q**2 - 0.3 * q
        if not self.separable:
            latents += self.coupling * q * x[:, 2:]
        return latents, non_trainable

    def gradient(self, q, p):
        return 1.2 * q - 0.3 + self.coupling * p

    def energy(self, q, p):
        """`H_θ`; a joint one has learned no more of the kinetic energy than this."""
        potential = np.sum(0.6 * q**2 - 0.3 * q)
        return potential + (0.5 * p @ p if self.separable else self.coupling * q @ p)


class RecordingTarget:
    """Keeps, outside the graph, every position that it is evaluated at."""

    def __init__(self):
        self.visited = []

    def __call__(self, q):
        record = tf.numpy_function(lambda q: self.visited.append(q.copy()), [q], [])
        with tf.control_dependencies([record]):
            return -potential(tf.identity(q))


def make_kernel(target, network, problem, **kwargs):
    return tfp_lhnn.LatentHNNNoUTurnSampler(
        target,
        network,
        np.float64(problem.step),
        max_tree_depth=problem.max_depth,
        max_hnn_energy_diff=problem.max_hnn,
        max_energy_diff=problem.max_lf,
        num_fallback_samples=problem.n_lf_max,
        **kwargs,
    )


def make_problem(network, step, max_hnn=1.0, max_lf=1.5, n_lf_max=4):
    return Problem(
        log_prob=lambda q: -potential(q),
        gradient=gradient,
        network_gradient=network.gradient,
        network_energy=network.energy,
        step=step,
        max_depth=MAX_DEPTH,
        max_hnn=max_hnn,
        max_lf=max_lf,
        n_lf_max=n_lf_max,
    )


def stepper(kernel):
    """A compiled transition that shows the tree and the randomness behind it."""

    @tf.function(autograph=False)
    def step(state, results, seed):
        start = kernel._start(state, results)._replace(inverse_mass=None)
        randomness = draw(seed, state, None)
        tree = kernel._grow_tree(start, results, randomness)
        new_results = nuts._results(start.layout, results, tree, seed)
        return new_results, tree._replace(checkpoints=()), randomness

    return step


def directions(randomness, chain):
    return [bool(randomness.is_forward(j)[chain]) for j in range(MAX_DEPTH)]


def reason(tree, results, chain):
    if results.has_divergence[chain]:
        return "divergence"
    return "depth" if tree.progress.is_active[chain] else "u-turn"


def compare(reference, expected, tree, results, chain, n_lf_max):
    """One draw of one chain against the recursion."""
    assert int(tree.progress.num_leaves[chain]) == len(reference.leaves)
    assert float(tree.proposal.weight[chain]) == expected["n"]
    assert reason(tree, results, chain) == expected["reason"]
    assert bool(tree.monitor.in_fallback[chain]) == reference.flag
    remaining = n_lf_max - 1 - reference.n_lf if reference.flag else 0
    assert int(results.fallback_remaining[chain]) == remaining
    assert int(results.num_fallbacks[chain]) == reference.num_fallbacks
    assert int(results.target_gradients[chain]) == reference.gradients
    assert int(results.target_evaluations[chain]) == reference.evaluations
    for end, point in (("left", "minus"), ("right", "plus")):
        np.testing.assert_allclose(
            getattr(tree, end).position[chain], expected[point].q, atol=1e-9
        )
    np.testing.assert_allclose(
        np.exp(results.log_true_accept_ratio[chain]),
        np.mean(reference.accept),
        atol=1e-9,
    )
    np.testing.assert_allclose(
        np.exp(results.log_accept_ratio[chain]),
        np.mean(reference.driving_accept),
        atol=1e-9,
    )
    # The draw is a leaf that the recursion might have chosen.
    candidates = [results_leaf(reference, k) for k in expected["choice"]]
    distances = [np.abs(q - tree.proposal.position[chain]).max() for q in candidates]
    assert min(distances) < 1e-9


def results_leaf(reference, number):
    return reference.q0 if number is None else reference.leaves[number].q


def follow(kernel, problem, num_draws, num_chains, on_draw=lambda *_: None):
    """Runs both side by side; returns how often what happened."""
    step = stepper(kernel)
    state = tf.constant(
        np.random.default_rng(3).normal(size=(num_chains, 2)), tf.float64
    )
    results = kernel.bootstrap_results(state)
    getattr(kernel.target_log_prob_fn, "visited", []).clear()
    references = [RecursiveNUTS(problem) for _ in range(num_chains)]
    events = collections.Counter()
    for i in range(num_draws):
        seed = tf.constant([i, 17])
        new_results, tree, randomness = step(state, results, seed)
        for chain, reference in enumerate(references):
            reference.q0 = state[chain].numpy()
            before = reference.flag, reference.num_fallbacks
            expected = reference.draw(
                reference.q0,
                randomness.momentum[chain].numpy(),
                float(randomness.log_uniform[chain]),
                directions(randomness, chain),
            )
            compare(reference, expected, tree, new_results, chain, problem.n_lf_max)
            events[expected["reason"]] += 1
            events["fired"] += reference.num_fallbacks - before[1]
            events["in cool-down"] += before[0] and reference.flag
            events["ran out"] += before[0] and (
                not reference.flag or reference.num_fallbacks > before[1]
            )
        on_draw(references)
        state, results = tree.proposal.position, new_results
    return events


@pytest.mark.parametrize("coupling", [0.0, 0.15], ids=["separable", "joint"])
def test_leaves_flags_counters_and_tallies_are_those_of_the_paper(coupling):
    network, target = WrongNetwork(coupling), RecordingTarget()
    problem = make_problem(network, step=0.5)
    kernel = make_kernel(target, network, problem)

    def same_leaves(references):
        np.testing.assert_allclose(
            np.concatenate(target.visited), references[0].visited, atol=1e-9
        )
        target.visited.clear()

    events = follow(kernel, problem, 400, 1, same_leaves)
    # Every branch of the algorithms was taken many times.
    assert events["fired"] >= 30
    assert events["in cool-down"] >= 60
    assert events["ran out"] >= 20
    assert events["divergence"] >= 10
    assert events["u-turn"] >= 100


def test_each_chain_of_a_batch_has_its_own_flag_and_counter():
    network = WrongNetwork()
    problem = make_problem(network, step=0.3, max_hnn=1.0)
    kernel = make_kernel(lambda q: -potential(q), network, problem)
    events = follow(kernel, problem, 60, 8)
    assert events["fired"] >= 30
    assert events["ran out"] >= 20


def test_a_transition_is_that_tree():
    network = WrongNetwork()
    kernel = make_kernel(lambda q: -potential(q), network, make_problem(network, 0.3))
    state = tf.constant([[0.3, -0.4], [1.0, 0.2]], tf.float64)
    results = kernel.bootstrap_results(state)
    seed = tf.constant([3, 4])
    expected, tree, _ = stepper(kernel)(state, results, seed)
    new_state, new_results = tf.function(kernel.one_step)(state, results, seed=seed)
    assert_trees_equal(tree.proposal.position, new_state)
    assert_trees_equal(expected, new_results)


def test_small_steps_reach_the_maximal_depth():
    network = WrongNetwork()
    problem = make_problem(network, step=0.02, max_hnn=10.0, max_lf=1000.0)
    kernel = make_kernel(lambda q: -potential(q), network, problem)
    events = follow(kernel, problem, 40, 1)
    assert events["depth"] >= 20


def test_choosing_leaf_by_leaf_has_the_law_of_choosing_between_subtrees():
    """One tree, many choices: frequencies against the recursion's probabilities."""
    network = WrongNetwork()
    problem = make_problem(network, step=0.12, max_hnn=10.0, max_lf=1000.0)
    kernel = make_kernel(lambda q: -potential(q), network, problem)
    num_chains, num_trees = 20_000, 5
    p_values, num_choices = [], []

    @tf.function(autograph=False)
    def many(q0, seed, chain):
        state = tf.tile(q0, [num_chains, 1])
        results = kernel.bootstrap_results(state)
        start = kernel._start(state, results)._replace(inverse_mass=None)
        own = draw(seed, state, None)
        # Same momentum, slice and directions in all chains; only the choices differ.
        shared = own._replace(
            momentum=tf.tile(own.momentum[chain : chain + 1], [num_chains, 1]),
            log_uniform=tf.fill([num_chains], own.log_uniform[chain]),
            directions=tf.fill([num_chains], own.directions[chain]),
        )
        return kernel._grow_tree(start, results, shared), shared

    for i in range(num_trees):
        q0 = np.array([[0.4, -0.2]])
        tree, shared = many(tf.constant(q0), tf.constant([i, 6]), tf.constant(i))
        reference = RecursiveNUTS(problem)
        expected = reference.draw(
            q0[0],
            shared.momentum[0].numpy(),
            float(shared.log_uniform[0]),
            directions(shared, 0),
        )
        reference.q0 = q0[0]
        numbers = list(expected["choice"])
        candidates = np.array([results_leaf(reference, k) for k in numbers])
        probabilities = np.array([expected["choice"][k] for k in numbers])
        distance = np.abs(tree.proposal.position.numpy()[:, None] - candidates).max(-1)
        assert distance.min(-1).max() < 1e-9
        counts = np.bincount(distance.argmin(-1), minlength=len(numbers))
        possible = probabilities > 0
        assert counts[~possible].sum() == 0
        p_values.append(
            stats.chisquare(
                counts[possible], num_chains * probabilities[possible]
            ).pvalue
        )
        num_choices.append(possible.sum())
    assert min(num_choices) >= 4, num_choices  # There was something to choose from.
    # False alarms: five tests at 1e-4.
    assert min(p_values) > 1e-4, p_values
