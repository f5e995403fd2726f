"""The tallies against a target that counts its own calls, outside the graph."""

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

import tfp_lhnn

from .helpers import ExactNetwork

DIM = 2


class CountingTarget:
    """A skewed density that counts, in Python, how often it really runs."""

    def __init__(self):
        self.evaluations = 0
        self.gradients = 0

    def _count(self, name):
        def count():
            setattr(self, name, getattr(self, name) + 1)

        return tf.numpy_function(count, [], [])

    def __call__(self, q):
        @tf.custom_gradient
        def log_prob(q):
            with tf.control_dependencies([self._count("evaluations")]):
                value = gumbel_log_prob(q)

            def gradient(upstream):
                with tf.control_dependencies([self._count("gradients")]):
                    return upstream[..., tf.newaxis] * (tf.exp(-q) - 1.0)

            return value, gradient

        return log_prob(q)


def gumbel_log_prob(q):
    return tf.reduce_sum(-q - tf.exp(-q), axis=-1)


class GaussianNetwork:
    """Right in the middle of a Gumbel density and wrong in its left tail."""

    trainable_variables = ()
    non_trainable_variables = ()

    def stateless_call(self, trainable, non_trainable, x):
        del trainable
        return 0.3 * x**2, non_trainable


class Draw(NamedTuple):
    """One draw: where it began, what it returned, and what it cost the target."""

    start: np.ndarray
    results: Any
    evaluations: int
    gradients: int


def run(kernel, state, num_draws):
    """The draws of a chain, in a graph."""
    target = kernel.target_log_prob_fn
    step = tf.function(kernel.one_step, autograph=False)
    results = kernel.bootstrap_results(state)
    draws = []
    for i in range(num_draws):
        before = target.evaluations, target.gradients
        start = state.numpy()
        state, results = step(state, results, seed=tf.constant([i, 3]))
        cost = target.evaluations - before[0], target.gradients - before[1]
        draws.append(Draw(start, results, *cost))
    assert_executed(results, target)
    return draws


def assert_executed(results, target):
    """What the results say was executed is what the target has counted."""
    assert int(results.target_evaluation_calls) == target.evaluations
    assert int(results.target_gradient_calls) == target.gradients


def assert_paid_by_one_chain(results, target):
    """The only chain needed all that was executed."""
    np.testing.assert_array_equal(results.target_evaluations, [target.evaluations])
    np.testing.assert_array_equal(results.target_gradients, [target.gradients])


def assert_shared_by_a_batch(results, target):
    """No chain needs more than was executed, and they do not all need the same."""
    assert np.max(results.target_gradients) <= target.gradients
    assert np.max(results.target_evaluations) <= target.evaluations
    assert np.sum(results.target_gradients) >= target.gradients
    assert len(set(results.target_gradients.numpy())) > 1


def make_kernel(target, monitor, **kwargs):
    return tfp_lhnn.LatentHNNNoUTurnSampler(
        target,
        GaussianNetwork(),
        0.7,
        max_tree_depth=4,
        max_hnn_energy_diff=1.0,
        num_fallback_samples=3,
        error_monitor=monitor,
        **kwargs,
    )


# The monitors.


@pytest.mark.parametrize("sampling", ["slice", "multinomial"])
def test_one_chain_pays_for_what_it_needs(sampling):
    target = CountingTarget()
    kernel = make_kernel(target, "cooldown", trajectory_sampling=sampling)
    *_, last = run(kernel, tf.zeros([1, DIM]), 60)
    assert last.results.num_fallbacks[0] >= 5
    assert target.gradients >= 20
    assert_paid_by_one_chain(last.results, target)


def test_a_batch_pays_whenever_any_chain_needs_it():
    target = CountingTarget()
    *_, last = run(make_kernel(target, "cooldown"), tf.zeros([6, DIM]), 40)
    assert_shared_by_a_batch(last.results, target)


# What the network's energy is off by in the middle: a Gumbel variable has U(0) = 1.
OFFSET = 1.0 * DIM
MAX_RESIDUAL = 0.3


def trusted_by_residual(q):
    """The rule once more, by hand."""
    residual = np.sum(q + np.exp(-q) - 0.3 * q**2, axis=-1) - OFFSET
    return np.abs(residual) <= MAX_RESIDUAL


def trusted_by_user(q):
    return q[..., 0] > -0.3


POINTWISE_RULES = {
    "residual": (
        {"network_energy_offset": OFFSET, "max_residual": MAX_RESIDUAL},
        trusted_by_residual,
    ),
    "user's": ({"trust_network_fn": trusted_by_user}, trusted_by_user),
}


@pytest.mark.parametrize("rule", POINTWISE_RULES)
def test_one_chain_pays_where_the_network_is_not_trusted(rule):
    settings, trusts = POINTWISE_RULES[rule]
    target = CountingTarget()
    draws = run(make_kernel(target, "pointwise", **settings), tf.zeros([1, DIM]), 60)
    results = draws[-1].results
    assert_paid_by_one_chain(results, target)
    num_leaves = sum(int(draw.results.leapfrogs_taken[0]) for draw in draws)
    num_true_leaves = int(results.num_fallbacks[0])
    num_true_starts = sum(not trusts(draw.start)[0] for draw in draws)
    # Both happen often, to leaves and to starts.
    assert 20 <= num_true_leaves <= num_leaves - 20
    assert 5 <= num_true_starts <= len(draws) - 5
    assert target.gradients == num_true_leaves + num_true_starts
    # The residual needs a density at every leaf, to which a gradient adds another; a
    # rule that asks for none has either the one or the other. And that of the start.
    extra = num_true_leaves if rule == "residual" else 0
    assert target.evaluations == 1 + num_leaves + num_true_starts + extra


@pytest.mark.parametrize("rule", POINTWISE_RULES)
def test_a_batch_pays_where_the_network_is_not_trusted_for_some_chain(rule):
    settings, _ = POINTWISE_RULES[rule]
    target = CountingTarget()
    *_, last = run(make_kernel(target, "pointwise", **settings), tf.zeros([6, DIM]), 30)
    assert_shared_by_a_batch(last.results, target)
    assert len(set(last.results.num_fallbacks.numpy())) > 1


def test_without_a_monitor_no_gradient_is_ever_computed():
    target = CountingTarget()
    *_, last = run(make_kernel(target, "none"), tf.zeros([6, DIM]), 20)
    assert target.gradients == 0
    assert target.evaluations > 20
    assert np.all(last.results.target_gradients == 0)


@pytest.mark.parametrize("monitor", ["cooldown", "pointwise"])
def test_a_good_network_needs_no_gradient_either(monitor):
    target = CountingTarget()
    kernel = tfp_lhnn.LatentHNNNoUTurnSampler(
        target,
        ExactNetwork(gumbel_log_prob),
        0.3,
        max_tree_depth=4,
        error_monitor=monitor,
    )
    *_, last = run(kernel, tf.zeros([1, DIM]), 20)
    assert target.gradients == 0
    assert_paid_by_one_chain(last.results, target)


def test_plain_nuts_pays_one_gradient_a_leaf_and_one_a_draw():
    target = CountingTarget()
    kernel = make_kernel(target, "cooldown").copy(
        max_hnn_energy_diff=-np.inf, num_fallback_samples=1000
    )
    first, *draws = run(kernel, tf.zeros([1, DIM]), 20)
    # Only the first draw begins with the network.
    assert first.evaluations > first.gradients
    for draw in draws:
        # The gradient at the start is not kept from the last draw.
        assert draw.gradients == int(draw.results.leapfrogs_taken[0]) + 1
        assert draw.evaluations == draw.gradients


# Delayed acceptance.


def make_delayed_kernel(target, probability, **kwargs):
    return tfp_lhnn.LatentHNNDelayedAcceptanceSampler(
        target,
        **{
            "network": GaussianNetwork(),
            "step_size": 0.5,
            "max_tree_depth": 4,
            "true_transition_probability": probability,
            **kwargs,
        },
    )


@pytest.mark.parametrize("num_surrogate_transitions", [1, 3])
def test_delayed_acceptance_pays_one_density_a_draw(num_surrogate_transitions):
    target = CountingTarget()
    kernel = make_delayed_kernel(
        target, 0.0, num_surrogate_transitions=num_surrogate_transitions
    )
    draws = run(kernel, tf.zeros([4, DIM]), 20)
    assert {(draw.evaluations, draw.gradients) for draw in draws} == {(1, 0)}
    results = draws[-1].results
    # And that of the start of the chain.
    np.testing.assert_array_equal(results.target_evaluations, 21)
    np.testing.assert_array_equal(results.target_gradients, 0)
    assert not np.any([draw.results.is_true_transition for draw in draws])
    # It did go on and off.
    accepted = np.array([draw.results.is_accepted for draw in draws])
    assert 0.2 < accepted.mean() < 1.0
    assert np.mean(results.leapfrogs_taken) >= num_surrogate_transitions


@pytest.mark.parametrize("value", [1, 3])
def test_the_number_of_surrogate_transitions_may_be_a_variable(value):
    """The draws are those of the same int."""
    number = tf.Variable(0)
    kernels = [
        make_delayed_kernel(CountingTarget(), 0.0, num_surrogate_transitions=n)
        for n in (number, value)
    ]
    number.assign(value)
    draws, expected = (run(kernel, tf.zeros([4, DIM]), 5) for kernel in kernels)
    for one, other in zip(draws, expected, strict=True):
        for name in ("target_log_prob", "leapfrogs_taken", "log_accept_ratio"):
            np.testing.assert_array_equal(
                getattr(one.results, name), getattr(other.results, name)
            )


def test_no_chain_pays_for_the_true_transition_of_another():
    target = CountingTarget()
    draws = run(make_delayed_kernel(target, 0.3), tf.zeros([4, DIM]), 40)
    needed = {"evaluations": np.ones(4, int), "gradients": np.zeros(4, int)}
    kinds = []
    for draw in draws:
        results = draw.results
        is_true = results.is_true_transition.numpy()
        assert len(set(is_true)) == 1  # The same for all chains.
        kinds.append(is_true[0])
        if is_true[0]:
            # The start and the leaves, of which the longest tree has most.
            pays = results.leapfrogs_taken.numpy() + 1
            assert draw.gradients == draw.evaluations == pays.max()
            needed["gradients"] += pays
        else:
            pays = 1
            assert (draw.evaluations, draw.gradients) == (1, 0)
        needed["evaluations"] += pays
        np.testing.assert_array_equal(results.target_gradients, needed["gradients"])
        np.testing.assert_array_equal(results.target_evaluations, needed["evaluations"])
    assert 5 < sum(kinds) < 35
    # Trees of different sizes: otherwise the largest would show nothing.
    assert len(set(needed["gradients"])) > 1


FALSE_ALARM_RATE = 1e-6


def test_the_share_of_true_transitions_is_the_probability():
    num_draws, probability = 20_000, 0.3
    kernel = make_delayed_kernel(gumbel_log_prob, probability, max_tree_depth=1)

    @tf.function(jit_compile=True, autograph=False)
    def sample():
        return tfp.mcmc.sample_chain(
            num_draws,
            tf.zeros([1, DIM]),
            kernel=kernel,
            trace_fn=lambda _, results: results.is_true_transition[0],
            seed=[1, 2],
        )[1]

    is_true = sample().numpy()

    def p_value(probability):
        return stats.binomtest(int(is_true.sum()), num_draws, probability).pvalue

    assert p_value(probability) > FALSE_ALARM_RATE
    # It would find out a share that is off by 0.02.
    assert max(p_value(probability - 0.02), p_value(probability + 0.02)) < 1e-3
    # A coin has no memory: pairs of true transitions, apart from their overlaps.
    pairs = is_true[::2] & is_true[1::2]
    test = stats.binomtest(int(pairs.sum()), len(pairs), probability**2)
    assert test.pvalue > FALSE_ALARM_RATE


def test_with_probability_one_it_is_plain_nuts():
    target = CountingTarget()
    # The network is of no use.
    nowhere = ExactNetwork(lambda q: tf.fill(tf.shape(q)[:1], np.float32(np.nan)))
    kernel = make_delayed_kernel(target, 1.0, network=nowhere)
    draws = run(kernel, tf.zeros([4, DIM]), 10)
    for draw in draws:
        assert np.all(draw.results.is_true_transition)
        np.testing.assert_array_equal(draw.results.log_delayed_accept_ratio, 0.0)
        assert draw.gradients == np.max(draw.results.leapfrogs_taken) + 1
        assert draw.evaluations == draw.gradients
    # Trees of many sizes.
    assert len(set(np.ravel([draw.results.leapfrogs_taken for draw in draws]))) > 3

    # The other kernel without trust makes the same draws of the same randomness: the
    # second of the three seeds is the tree's.
    plain = make_kernel(gumbel_log_prob, "cooldown").copy(
        step_size=0.5, max_hnn_energy_diff=-np.inf, trajectory_sampling="multinomial"
    )
    step = tf.function(plain.one_step, autograph=False)
    for i, (draw, following) in enumerate(itertools.pairwise(draws)):
        state = tf.constant(draw.start)
        _, seed, _ = tf.unstack(tfp.random.split_seed(tf.constant([i, 3]), n=3))
        state, results = step(state, plain.bootstrap_results(state), seed=seed)
        np.testing.assert_allclose(state, following.start, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(
            results.leapfrogs_taken, draw.results.leapfrogs_taken
        )
