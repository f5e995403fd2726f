"""The layout of a state with many parts."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tfp_lhnn.support.state_layout import StateLayout, state_parts

Pair = collections.namedtuple("Pair", ["scale", "matrix"])


def _parts(batch_shape):
    rng = np.random.default_rng(0)
    shapes = [(), (3,), (2, 2)]
    return [tf.constant(rng.normal(size=(*batch_shape, *s))) for s in shapes]


@pytest.mark.parametrize("batch_shape", [(), (5,), (4, 5)])
def test_round_trip_restores_every_part(batch_shape):
    parts = _parts(batch_shape)
    layout = StateLayout.from_state(parts, batch_rank=len(batch_shape))
    flat = layout.flatten(parts)
    assert layout.sizes == (1, 3, 4)
    assert layout.dim == 8
    assert flat.shape == (*batch_shape, 8)
    np.testing.assert_array_equal(flat[..., 0], parts[0])
    np.testing.assert_array_equal(flat[..., 1:4], parts[1])
    for part, back in zip(parts, layout.unflatten(flat), strict=True):
        assert back.shape == part.shape
        np.testing.assert_array_equal(back, part)


def test_layout_serves_any_batch_rank_after_it_was_made():
    layout = StateLayout.from_state(_parts((5,)), batch_rank=1)
    flat = layout.flatten(_parts((7, 5)))
    assert flat.shape == (7, 5, 8)
    assert [part.shape.rank for part in layout.unflatten(flat)] == [2, 3, 4]


def test_single_vector_part_makes_no_ops():
    with tf.Graph().as_default() as graph:
        state = tf.zeros([5, 3])
        layout = StateLayout.from_state(state, batch_rank=1)
        before = len(graph.get_operations())
        assert layout.flatten(state) is state
        assert layout.unflatten(state)[0] is state
        assert layout.restore(state) is state
        assert len(graph.get_operations()) == before


@pytest.mark.parametrize("make", [list, tuple, lambda p: Pair(*p)])
def test_restore_gives_back_the_callers_container(make):
    state = make(_parts((5,))[::2])
    layout = StateLayout.from_state(state, batch_rank=1)
    restored = layout.restore(layout.flatten(state))
    assert type(restored) is type(state)
    np.testing.assert_array_equal(restored[1], state[1])


def test_bare_tensor_comes_back_bare_even_when_reshaped():
    state = tf.range(5.0)
    layout = StateLayout.from_state(state, batch_rank=1)
    assert layout.flatten(state).shape == (5, 1)
    np.testing.assert_array_equal(layout.restore(layout.flatten(state)), state)


def test_xla_and_unknown_batch_size():
    layout = StateLayout.from_state(_parts((5,)), batch_rank=1)

    @tf.function(
        jit_compile=True,
        input_signature=[
            tf.TensorSpec([None, *p.shape[1:]], p.dtype) for p in _parts((5,))
        ],
    )
    def round_trip(*parts):
        return layout.unflatten(2.0 * layout.flatten(parts))

    for part, doubled in zip(_parts((6,)), round_trip(*_parts((6,))), strict=True):
        np.testing.assert_array_equal(doubled, 2.0 * part)


def test_on_flat_passes_the_parts():
    parts = _parts((5,))
    layout = StateLayout.from_state(parts, batch_rank=1)
    fn = layout.on_flat(lambda a, b, c: a + b[:, 0] + c[:, 1, 1])
    expected = parts[0] + parts[1][:, 0] + parts[2][:, 1, 1]
    np.testing.assert_array_equal(fn(layout.flatten(parts)), expected)


@pytest.mark.parametrize(
    ("state", "error", "message"),
    [
        ({"a": tf.zeros([2])}, TypeError, "`q` is a dict"),
        ([tf.zeros([2]), [tf.zeros([2])]], TypeError, "part 1 is a list"),
        ([tf.zeros([2]), {"a": 1.0}], TypeError, "part 1 is a dict"),
        ([tf.zeros([2]), tf.zeros([2], tf.float64)], TypeError, "float32, float64"),
        (object(), TypeError, "`q` is a object"),
        ([tf.zeros([2]), None], TypeError, r"`q\[1\]` is a NoneType"),
        ([], ValueError, "empty list"),
        (tf.constant([1, 2]), TypeError, "`q` is int32; expected floating-point"),
        (np.arange(3), TypeError, "`q` is int64"),
        (tf.constant([True]), TypeError, "`q` is bool"),
        ("abc", TypeError, "`q` is string"),
        (tf.constant([1j]), TypeError, "`q` is complex128"),
        ([0.0, 1], TypeError, r"`q\[1\]` is int32"),
        (tf.ragged.constant([[1.0], [1.0, 2.0]]), TypeError, "is a RaggedTensor"),
        (tf.sparse.from_dense([[1.0]]), TypeError, "is a SparseTensor"),
    ],
)
def test_bad_states_are_named(state, error, message):
    with pytest.raises(error, match=message):
        state_parts(state, "q")


def test_layout_refuses_parts_that_do_not_fit():
    with pytest.raises(ValueError, match="`q` has shape"):
        StateLayout.from_state(tf.zeros([]), batch_rank=1, name="q")
    with pytest.raises(ValueError, match=r"`q\[1\]` has shape \(4, 2\)"):
        StateLayout.from_state([tf.zeros([5]), tf.zeros([4, 2])], 1, name="q")
    layout = StateLayout.from_state(tf.zeros([5, 3]), batch_rank=1)
    with pytest.raises(ValueError, match="2 parts; expected 1"):
        layout.flatten([tf.zeros([5, 3]), tf.zeros([5])])
    with pytest.raises(ValueError, match=r"last dimensions to be \[3\]"):
        layout.flatten(tf.zeros([5, 4]))


@pytest.mark.parametrize("shape", [[5, None], [None, None], None])
def test_unknown_event_shape_is_refused_while_tracing(shape):
    @tf.function(input_signature=[tf.TensorSpec(shape)], autograph=False)
    def trace(state):
        return StateLayout.from_state(state, batch_rank=1, name="q").flatten(state)

    with pytest.raises(ValueError, match="known before running"):
        trace(tf.zeros([5, 3]))
