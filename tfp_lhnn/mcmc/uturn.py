"""The U-turn criterion, on a whole tree and on every sub-tree of a growing one."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

__all__ = ["Checkpoints", "SubtreeTables", "new_checkpoints", "turns", "turns_within"]


def turns(
    displacement: tf.Tensor,
    first_momentum: tf.Tensor,
    last_momentum: tf.Tensor,
) -> tf.Tensor:
    """Whether either end of a stretch has begun to come back, `[chains]`.

    `Δq·p` at both ends: the criterion of Hoffman and Gelman, and the same after any
    linear change of coordinates, so it serves every mass matrix.

    Args:
        displacement: position at the end with the larger time minus that at the other,
            in units of the step, `[chains, dim]`.
        first_momentum: at one end, `[chains, dim]`.
        last_momentum: at the other end, `[chains, dim]`.
    """
    first = tf.reduce_sum(displacement * first_momentum, axis=-1)
    last = tf.reduce_sum(displacement * last_momentum, axis=-1)
    return ~((first >= 0.0) & (last >= 0.0))


class SubtreeTables:
    """Which earlier leaves a leaf is compared with, worked out once in Python.

    Leaf `n` closes one balanced sub-tree for each trailing 1 of `n` in binary. The
    first leaves of these sub-trees have even numbers. An even leaf `n` is kept in a
    slot, whose number is how many 1s `n / 2` has. Then sub-trees that are still open
    never share a slot, and those that one leaf closes lie in neighbouring slots. So
    `log2` of the number of leaves is room enough.

    Args:
        max_tree_depth: number of doublings; the largest sub-tree has half the leaves.

    Attributes:
        num_slots: how many leaves are kept.
        slots: `[leaves, 3]`, for each leaf the slot it is written to, the first slot it
            is compared with, and the slot after the last; the last two are the same
            where there is nothing to compare.
    """

    def __init__(self, max_tree_depth: int) -> None:
        leaves = range(2 ** (max_tree_depth - 1))
        open_slots = [(leaf // 2).bit_count() for leaf in leaves]
        num_closed = [(leaf ^ (leaf + 1)).bit_count() - 1 for leaf in leaves]
        # Odd leaves open no sub-tree. They are written to a slot that is never read.
        self.num_slots = max(open_slots) + 2
        self.slots = np.array(
            [
                (self.num_slots - 1 if leaf % 2 else slot, slot - closed + 1, slot + 1)
                for leaf, slot, closed in zip(
                    leaves, open_slots, num_closed, strict=True
                )
            ],
            np.int32,
        )


class Checkpoints(NamedTuple):
    """First leaves of the open sub-trees.

    Attributes:
        points: TensorArray of `[chains, 2 dim]`, position and momentum side by side.
    """

    points: tf.TensorArray

    def write(
        self, slot: tf.Tensor, position: tf.Tensor, momentum: tf.Tensor
    ) -> "Checkpoints":
        """Keeps a leaf, `[chains, dim]` each."""
        return Checkpoints(
            self.points.write(slot, tf.concat([position, momentum], axis=1))
        )


def new_checkpoints(tables: SubtreeTables, like: tf.Tensor) -> Checkpoints:
    """Room for the open sub-trees of positions shaped `like`, `[chains, dim]`."""
    points = tf.concat([like, like], axis=1)
    array = tf.TensorArray(
        like.dtype,
        size=tables.num_slots,
        clear_after_read=False,
        element_shape=points.shape,
    )
    # XLA must know the element's shape before the loop begins.
    shape = tf.concat([[tables.num_slots], tf.shape(points)], axis=0)
    return Checkpoints(array.unstack(tf.zeros(shape, like.dtype)))


def turns_within(
    checkpoints: Checkpoints,
    slots: tf.Tensor,
    position: tf.Tensor,
    momentum: tf.Tensor,
    inverse_step: tf.Tensor,
    has_ended: tf.Tensor,
) -> tf.Tensor:
    """Whether a tree has ended or any sub-tree that a leaf closes has turned.

    Args:
        checkpoints: first leaves of the open sub-trees.
        slots: where the slots to compare with begin, and before which they end, `[2]`
            int32; there are none if the two are the same.
        position: of the leaf, `[chains, dim]`.
        momentum: of the leaf, `[chains, dim]`.
        inverse_step: one over the signed step, `[chains, 1]` or `[chains, dim]`: makes
            displacement run with the time and weighs coordinates as their steps do.
        has_ended: what is true already, `[chains]` bool.

    Returns:
        `[chains]` bool.
    """
    dim = position.shape[1]

    def compare(left: tf.Tensor, ended: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        first = checkpoints.points.read(left[0])
        displacement = (position - first[:, :dim]) * inverse_step
        ended |= turns(displacement, first[:, dim:], momentum)
        return tf.add(left, [1, 0]), ended

    _, has_ended = tf.while_loop(
        lambda left, _: left[0] < left[1], compare, (slots, has_ended)
    )
    return has_ended
