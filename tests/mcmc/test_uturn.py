"""The U-turn criterion, and the sub-trees that each leaf is compared with."""

import numpy as np
import pytest
import tensorflow as tf

from tfp_lhnn.mcmc.uturn import (
    SubtreeTables,
    new_checkpoints,
    turns,
    turns_within,
)

DIM = 3


def closed_by(leaf):
    """First leaves of the balanced sub-trees of two or more that end with a leaf."""
    sizes = [2**k for k in range(1, 20) if (leaf + 1) % 2**k == 0]
    return {leaf + 1 - size for size in sizes}


@pytest.mark.parametrize("depth", [1, 2, 3, 8, 11])
def test_when_a_leaf_comes_its_slots_hold_the_leaves_to_compare_with(depth):
    tables = SubtreeTables(depth)
    assert tables.slots.shape == (2 ** (depth - 1), 3)
    assert tables.num_slots <= depth + 1
    kept = {}
    for leaf, (write, first, end) in enumerate(tables.slots):
        kept[int(write)] = leaf
        assert 0 <= write < tables.num_slots
        assert {kept[slot] for slot in range(first, end)} == closed_by(leaf)


def test_an_end_that_comes_back_is_a_turn():
    right = tf.constant([[1.0, 0.0]])
    up, left = tf.constant([[0.0, 1.0]]), -right
    assert not turns(right, right, right).numpy()[0]
    assert turns(right, left, right).numpy()[0]
    assert turns(right, right, left).numpy()[0]
    assert not turns(right, up, right).numpy()[0]  # a right angle is none yet
    assert turns(-right, right, right).numpy()[0]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_stops_a_tree(bad):
    ones = tf.ones([1, 2])
    assert turns(tf.constant([[bad, -bad]]), ones, ones).numpy()[0]


def test_each_chain_turns_for_itself():
    displacement, first, last = np.random.default_rng(1).normal(size=(3, 200, DIM))
    expected = [
        bool(d @ a < 0 or d @ b < 0)
        for d, a, b in zip(displacement, first, last, strict=True)
    ]
    assert 100 < sum(expected) < 200
    np.testing.assert_array_equal(
        turns(*(tf.constant(x) for x in (displacement, first, last))), expected
    )


def test_the_leaves_of_a_growing_tree_are_compared_with_the_right_ones():
    """Against each sub-tree written out, for random leaves."""
    num_leaves, chains = 16, 40
    rng = np.random.default_rng(4)
    # A drift, so that not every chain turns in every sub-tree.
    time = np.arange(num_leaves)[:, np.newaxis, np.newaxis]
    position = rng.normal(size=(num_leaves, chains, DIM)) + time
    momentum = rng.normal(size=(num_leaves, chains, DIM)) + 1.0
    inverse_step = tf.constant(rng.uniform(0.5, 2.0, size=(chains, DIM)))
    tables = SubtreeTables(5)
    checkpoints = new_checkpoints(tables, tf.constant(position[0]))
    seen = []
    for leaf, (write, first, end) in enumerate(tables.slots):
        q, p = tf.constant(position[leaf]), tf.constant(momentum[leaf])
        checkpoints = checkpoints.write(write, q, p)
        slots = tf.constant([first, end])
        ended = tf.constant([True] + [False] * (chains - 1))
        turned = turns_within(checkpoints, slots, q, p, inverse_step, ended)
        expected = np.zeros(chains, bool)
        for other in closed_by(leaf):
            stretch = (position[leaf] - position[other]) * inverse_step
            for ends in (momentum[other], momentum[leaf]):
                expected |= np.sum(stretch * ends, axis=-1) < 0.0
        np.testing.assert_array_equal(turned, expected | ended.numpy())
        seen.append(expected)
    assert not np.any(seen[::2])  # An even leaf closes nothing.
    assert 0.1 < np.mean(seen[1::2]) < 0.9
