"""Which leaf of the tree becomes the next draw."""

from typing import NamedTuple, Protocol

import tensorflow as tf
import tensorflow_probability as tfp

__all__ = [
    "TRAJECTORY_SAMPLING",
    "LeafWeights",
    "MultinomialWeights",
    "Proposal",
    "SliceWeights",
    "choose",
]


class Proposal(NamedTuple):
    """The leaf chosen so far from a set of leaves, with the weight of the set.

    Attributes:
        position: `[chains, dim]`.
        log_prob_and_kinetic: log of the density that is sampled, and the kinetic
            energy, there, `[2, chains]`; one tensor, since each that a loop carries
            costs it an operation.
        weight: of all leaves in the set, as a `LeafWeights` measures it, `[chains]`.
    """

    position: tf.Tensor
    log_prob_and_kinetic: tf.Tensor
    weight: tf.Tensor

    @property
    def log_prob(self) -> tf.Tensor:
        """Log of the density that is sampled, `[chains]`."""
        return self.log_prob_and_kinetic[0]

    @property
    def kinetic(self) -> tf.Tensor:
        """Kinetic energy of the leaf, `[chains]`."""
        return self.log_prob_and_kinetic[1]

    @property
    def energy(self) -> tf.Tensor:
        """`H` of that density, `[chains]`."""
        return self.kinetic - self.log_prob


class LeafWeights(Protocol):
    """How much a leaf counts, in whatever unit (counts, or logarithms)."""

    nothing: float
    start: float

    @staticmethod
    def log_height(log_uniform: tf.Tensor) -> tf.Tensor:
        """Log of the slice's height relative to the start's density, `[chains]`."""

    @staticmethod
    def leaf(energy_error: tf.Tensor) -> tf.Tensor:
        """Weight of a leaf with energy error `ε = H + ln u`, `[chains]`."""

    @staticmethod
    def add(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
        """Weight of two sets together, `[chains]`."""

    @staticmethod
    def is_chosen(uniform: tf.Tensor, weight: tf.Tensor, total: tf.Tensor) -> tf.Tensor:
        """An event of probability `min(1, weight / total)`, never for no weight."""


class SliceWeights:
    """Counts of leaves in the slice `u ≤ exp(−H)` (Hoffman and Gelman; the paper)."""

    nothing = 0.0
    start = 1.0

    @staticmethod
    def log_height(log_uniform: tf.Tensor) -> tf.Tensor:
        """`ln u = ln Uniform(0, 1) − H₀`."""
        return log_uniform

    @staticmethod
    def leaf(energy_error: tf.Tensor) -> tf.Tensor:
        """One if the leaf is in the slice, `ε ≤ 0`, else zero."""
        return tf.cast(energy_error <= 0.0, energy_error.dtype)

    @staticmethod
    def add(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
        """Sum of the counts."""
        return first + second

    @staticmethod
    def is_chosen(uniform: tf.Tensor, weight: tf.Tensor, total: tf.Tensor) -> tf.Tensor:
        """Multiplied out, so that an empty set is no division by zero."""
        return uniform * total < weight


class MultinomialWeights:
    """Logarithms of `exp(H₀ − H)` (Betancourt; Stan, TFP)."""

    nothing = float("-inf")
    start = 0.0

    @staticmethod
    def log_height(log_uniform: tf.Tensor) -> tf.Tensor:
        """No slice: errors are measured from the start itself."""
        return tf.zeros_like(log_uniform)

    @staticmethod
    def leaf(energy_error: tf.Tensor) -> tf.Tensor:
        """`H₀ − H`."""
        return -energy_error

    @staticmethod
    def add(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
        """`log(e^first + e^second)`."""
        # Of two empty sets TFP's sum is no number.
        is_empty = tf.math.is_inf(first)
        return tf.where(is_empty, second, tfp.math.log_add_exp(first, second))

    @staticmethod
    def is_chosen(uniform: tf.Tensor, weight: tf.Tensor, total: tf.Tensor) -> tf.Tensor:
        """Of two empty sets the ratio is no number, and compares as false."""
        # Not in logarithms: XLA on a CPU evaluates a generator under a logarithm
        # element by element, which made the whole tree three times slower.
        return uniform < tf.exp(weight - total)


TRAJECTORY_SAMPLING: dict[str, type[LeafWeights]] = {
    "slice": SliceWeights,
    "multinomial": MultinomialWeights,
}


def choose(
    is_new: tf.Tensor, new: Proposal, old: Proposal, weight: tf.Tensor
) -> Proposal:
    """The new proposal for the chains in `is_new` (`[chains]`), else the old one."""
    return Proposal(
        position=tf.where(is_new[:, tf.newaxis], new.position, old.position),
        log_prob_and_kinetic=tf.where(
            is_new, new.log_prob_and_kinetic, old.log_prob_and_kinetic
        ),
        weight=weight,
    )
