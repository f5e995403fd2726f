"""Weights of leaves, and the choice among them."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tfp_lhnn.mcmc.proposal import (
    TRAJECTORY_SAMPLING,
    MultinomialWeights,
    Proposal,
    SliceWeights,
    choose,
)

INF = float("inf")
# Errors of leaves; those that are not finite have been made infinite by then.
ERRORS = np.array([-0.7, 0.0, 0.4, INF, -2.0])
EXPECTED = {
    "slice": np.array([1.0, 1.0, 0.0, 0.0, 1.0]),
    "multinomial": np.exp(-ERRORS),
}
each_rule = pytest.mark.parametrize("name", sorted(TRAJECTORY_SAMPLING))


def as_weights(name, errors):
    rule = TRAJECTORY_SAMPLING[name]
    return rule, tf.unstack(rule.leaf(tf.constant(errors)))


def in_numbers(name, weight):
    """A weight as a number, whatever its unit."""
    return np.exp(weight) if name == "multinomial" else np.asarray(weight)


@each_rule
def test_weights_of_leaves_and_of_sets(name):
    rule, weights = as_weights(name, ERRORS)
    np.testing.assert_allclose(
        [in_numbers(name, weight) for weight in weights], EXPECTED[name]
    )
    total = tf.constant(rule.nothing, tf.float64)
    for weight, expected in zip(weights, np.cumsum(EXPECTED[name]), strict=True):
        total = rule.add(total, weight)
        np.testing.assert_allclose(in_numbers(name, total), expected)
    np.testing.assert_allclose(in_numbers(name, rule.start), 1.0)


@each_rule
def test_two_empty_sets_are_an_empty_set_and_nothing_of_it_is_chosen(name):
    rule = TRAJECTORY_SAMPLING[name]
    nothing = tf.fill([3], rule.nothing)
    total = rule.add(nothing, nothing)
    np.testing.assert_array_equal(total, nothing)
    uniform = tf.constant([0.0, 0.5, 0.999])
    assert not np.any(rule.is_chosen(uniform, nothing, total))
    start = tf.fill([3], rule.start)
    assert not np.any(rule.is_chosen(uniform, nothing, start))
    # Anything beside an empty set is chosen: a start without density is left.
    assert np.all(rule.is_chosen(uniform, start, nothing))
    np.testing.assert_array_equal(rule.add(start, nothing), start)
    np.testing.assert_array_equal(rule.add(nothing, start), start)


def test_a_slice_has_a_height_and_multinomial_weights_have_none():
    log_uniform = tf.constant([-0.1, -3.0])
    np.testing.assert_array_equal(SliceWeights.log_height(log_uniform), log_uniform)
    np.testing.assert_array_equal(MultinomialWeights.log_height(log_uniform), 0.0)


@each_rule
@pytest.mark.parametrize("ratio", [0.3, 0.8, 1.0, 2.5])
def test_an_event_has_the_probability_of_its_ratio(name, ratio):
    rule = TRAJECTORY_SAMPLING[name]
    unit = np.log if name == "multinomial" else np.asarray
    uniform = tf.constant((np.arange(10_000) + 0.5) / 10_000)  # a grid, not chance
    share = np.mean(
        rule.is_chosen(uniform, tf.constant(unit(3.0 * ratio)), tf.constant(unit(3.0)))
    )
    np.testing.assert_allclose(share, min(ratio, 1.0), atol=1e-4)


@each_rule
def test_one_leaf_after_the_other_has_the_law_of_all_at_once(name):
    """Chi-squared over 100 000 choices; a false alarm in 10⁴ of each."""
    rule, weights = as_weights(name, ERRORS)
    n = 100_000
    uniform = np.random.default_rng(7).random((len(ERRORS), n))
    chosen, total = np.full(n, -1), tf.fill([n], tf.cast(rule.nothing, tf.float64))
    for i, weight in enumerate(weights):
        weight = tf.fill([n], weight)
        total = rule.add(total, weight)
        is_new = rule.is_chosen(tf.constant(uniform[i]), weight, total)
        chosen = np.where(is_new, i, chosen)
    counts = np.bincount(chosen, minlength=len(ERRORS))
    law = EXPECTED[name] / EXPECTED[name].sum()
    possible = law > 0.0
    assert counts[~possible].sum() == 0
    assert stats.chisquare(counts[possible], n * law[possible]).pvalue > 1e-4
    # Power: the weights of the other rule would be found out.
    (other,) = EXPECTED.keys() - {name}
    wrong = EXPECTED[other] + 0.01
    wrong = wrong[possible] / wrong[possible].sum()
    assert stats.chisquare(counts[possible], n * wrong).pvalue < 1e-9


def test_choosing_takes_all_of_a_leaf_and_the_given_weight():
    def proposal(sign):
        ones = tf.constant([1.0, 2.0]) * sign
        return Proposal(tf.stack([ones, ones], 1), tf.stack([ones, 3.0 * ones]), ones)

    is_new, weight = tf.constant([True, False]), tf.constant([5.0, 6.0])
    chosen = choose(is_new, proposal(1.0), proposal(-1.0), weight)
    np.testing.assert_array_equal(chosen.position, [[1.0, 1.0], [-2.0, -2.0]])
    np.testing.assert_array_equal(chosen.log_prob, [1.0, -2.0])
    np.testing.assert_array_equal(chosen.kinetic, [3.0, -6.0])
    np.testing.assert_array_equal(chosen.energy, [2.0, -4.0])
    np.testing.assert_array_equal(chosen.weight, weight)
