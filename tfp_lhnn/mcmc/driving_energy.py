"""The energy error of leapfrog itself, where two sources take turns to drive it.

A step with the gradient of one source conserves the energy of that source, up to an
error that shrinks with the step. What the two energies differ by is no fault of the
step, so an error is summed up along the trajectory, each step's measured in the energy
that drove it. Where a step has the gradient of one source at its start and of the other
at its end, the mean of both energies drove it.
"""

from typing import NamedTuple

import tensorflow as tf

__all__ = ["DrivingRecord"]


class DrivingRecord(NamedTuple):
    """What an end of the tree knows of the energies that drove it, `[chains]` each.

    The sum of the errors is kept as the change, since the start of the draw, of the
    energy of the present source, plus `gap`. As long as the source stays the same, only
    the change moves; where the source changes, `gap` takes up the difference.

    Attributes:
        is_true: whether the source here is the target, bool; else the network.
        gap: the sum of the errors minus the change of the source's energy.
        residual: change of the target's energy since the start minus that of the
            network's; not finite where the network has no energy.
    """

    is_true: tf.Tensor
    gap: tf.Tensor
    residual: tf.Tensor

    @classmethod
    def unpack(cls, packed: tf.Tensor) -> "DrivingRecord":
        """From `[chains, 3]`."""
        is_true, gap, residual = tf.unstack(packed, axis=1)
        return cls(is_true > 0.0, gap, residual)

    def pack(self) -> tf.Tensor:
        """`[chains, 3]`: one tensor, since each that a loop carries costs it time."""
        is_true = tf.cast(self.is_true, self.gap.dtype)
        return tf.stack([is_true, self.gap, self.residual], axis=1)

    def switch(self, is_true: tf.Tensor) -> "DrivingRecord":
        """The same point with another source for the step that starts here.

        Args:
            is_true: whether that is the target, `[chains]` bool.
        """
        residual = tf.where(tf.math.is_finite(self.residual), self.residual, 0.0)
        return DrivingRecord(
            is_true, self.gap + self._difference(is_true, residual), self.residual
        )

    def follow(self, is_true: tf.Tensor, residual: tf.Tensor) -> "DrivingRecord":
        """The end of a step that starts here.

        Args:
            is_true: whether the target's gradient is taken there, `[chains]` bool.
            residual: there, `[chains]`.
        """
        # Without an energy of the network at one end, the other end's stands in.
        first = tf.where(tf.math.is_finite(self.residual), self.residual, residual)
        last = tf.where(tf.math.is_finite(residual), residual, self.residual)
        gap = self.gap + self._difference(is_true, 0.5 * (first + last))
        return DrivingRecord(is_true, gap, residual)

    def _difference(self, is_true: tf.Tensor, residual: tf.Tensor) -> tf.Tensor:
        """What changes `gap` where the source changes, and zero elsewhere."""
        change = tf.where(is_true, -residual, residual)
        return tf.where(tf.not_equal(is_true, self.is_true), change, 0.0)
