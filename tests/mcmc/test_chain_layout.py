"""The state of all chains as one matrix, and the way back."""

import numpy as np
import pytest
import tensorflow as tf

from tfp_lhnn.mcmc.chain_layout import ChainLayout

# Two parts, of shapes [3] and [], with 2 x 4 chains.
A = tf.reshape(tf.range(24.0), [2, 4, 3])
B = tf.reshape(tf.range(100.0, 108.0), [2, 4])


def layout():
    return ChainLayout([A, B], tf.zeros([2, 4]))


def test_there_is_a_row_for_each_chain_and_a_way_back():
    matrix = layout().to_matrix([A, B])
    assert matrix.shape == (8, 4)
    np.testing.assert_array_equal(matrix[5], [15.0, 16.0, 17.0, 105.0])
    back = layout().to_state(matrix)
    assert isinstance(back, list)
    for one, other in zip(back, (A, B), strict=True):
        np.testing.assert_array_equal(one, other)
    values = tf.range(8.0)
    assert layout().to_batch(values).shape == (2, 4)
    np.testing.assert_array_equal(layout().to_rows(layout().to_batch(values)), values)


def test_one_tensor_of_vectors_is_its_own_matrix():
    state = tf.ones([5, 3])
    plain = ChainLayout(state, tf.zeros([5]))
    assert plain.dim == 3
    assert plain.to_matrix(state) is state
    assert plain.to_state(state) is state


def test_a_target_of_parts_becomes_one_of_the_matrix():
    def target(a, b):
        assert a.shape == (2, 4, 3)
        assert b.shape == (2, 4)
        return tf.reduce_sum(a, axis=-1) + b

    on_matrix = layout().on_matrix(target)
    matrix = layout().to_matrix([A, B])
    np.testing.assert_allclose(on_matrix(matrix), tf.reduce_sum(matrix, axis=-1))


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (0.5, [[0.5]]),
        ([0.5, 0.25], [[0.5, 0.5, 0.5, 0.25]]),
        ([[1.0, 2.0, 3.0], 0.25], np.tile([1.0, 2.0, 3.0, 0.25], (8, 1))),
    ],
)
def test_steps_are_as_small_a_matrix_as_will_do(steps, expected):
    steps = (
        [tf.constant(x) for x in steps]
        if isinstance(steps, list)
        else (tf.constant(steps))
    )
    np.testing.assert_array_equal(layout().step_to_matrix(steps), expected)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([tf.ones([])] * 3, "has 3 values; expected one, or one for each of the 2"),
        ([tf.ones([2]), tf.ones([])], r"shape \(2,\), which does not broadcast"),
    ],
)
def test_steps_that_do_not_fit_are_refused(steps, message):
    with pytest.raises(ValueError, match=message):
        layout().step_to_matrix(steps)
