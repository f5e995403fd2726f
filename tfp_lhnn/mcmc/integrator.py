"""Leapfrog in phase space, whoever supplies the gradient."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

__all__ = [
    "PhasePoint",
    "finish_step",
    "kinetic_energy",
    "leapfrog",
    "select_chains",
    "start_step",
]


class PhasePoint(NamedTuple):
    """A point of a trajectory, for every chain.

    Attributes:
        position: `[chains, dim]`.
        momentum: `[chains, dim]`.
        gradient: `∂H/∂q` that the next step starts with, `[chains, dim]`; the end
            gradient of one step is the start gradient of the next.
        has_true_gradient: `[chains]`, whether `gradient` is the target's own; `()`
            where one source serves all points, so that nothing has to be carried.
    """

    position: tf.Tensor
    momentum: tf.Tensor
    gradient: tf.Tensor
    has_true_gradient: Any = ()


def kinetic_energy(momentum: tf.Tensor, inverse_mass: tf.Tensor | None) -> tf.Tensor:
    """`½ pᵀM⁻¹p`, without the constant of the normal density, `[chains]`.

    Args:
        momentum: `[chains, dim]`.
        inverse_mass: diagonal of `M⁻¹`, `[chains, dim]`; `None` for unit mass.
    """
    square = tf.square(momentum)
    if inverse_mass is not None:
        square = square * inverse_mass
    return 0.5 * tf.reduce_sum(square, axis=-1)


def start_step(
    point: PhasePoint, step: tf.Tensor, inverse_mass: tf.Tensor | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Half a kick and a whole drift.

    Args:
        point: where the step starts.
        step: signed step sizes, `[chains, 1]` or `[chains, dim]`.
        inverse_mass: diagonal of `M⁻¹`, `[chains, dim]`; `None` for unit mass.

    Returns:
        The new position and the momentum half-way, `[chains, dim]` each.
    """
    half_momentum = point.momentum - 0.5 * step * point.gradient
    velocity = half_momentum if inverse_mass is None else inverse_mass * half_momentum
    return point.position + step * velocity, half_momentum


def finish_step(
    half_momentum: tf.Tensor, gradient: tf.Tensor, step: tf.Tensor
) -> tf.Tensor:
    """The second half of the kick: the momentum at the new position."""
    return half_momentum - 0.5 * step * gradient


def leapfrog(
    point: PhasePoint,
    step: tf.Tensor,
    inverse_mass: tf.Tensor | None,
    gradient_fn: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
) -> PhasePoint:
    """One step with one new gradient.

    With a gradient of the position alone the step is reversible and preserves volume,
    however wrong the gradient is. A joint network depends on the momentum too; the
    momentum at the new position does not exist before its gradient does, so it gets the
    one half-way.

    Args:
        point: where the step starts.
        step: signed step sizes, `[chains, 1]` or `[chains, dim]`.
        inverse_mass: diagonal of `M⁻¹`, `[chains, dim]`; `None` for unit mass.
        gradient_fn: `(position, momentum) -> ∂H/∂q`, all `[chains, dim]`.

    Returns:
        The point at the end of the step.
    """
    position, half_momentum = start_step(point, step, inverse_mass)
    gradient = gradient_fn(position, half_momentum)
    return PhasePoint(position, finish_step(half_momentum, gradient, step), gradient)


def select_chains(condition: tf.Tensor, first: Any, second: Any) -> Any:
    """`tf.where` by chain on two structures of `[chains]` and `[chains, dim]` tensors.

    Args:
        condition: `[chains]` bool.
        first: what the chains with a true condition get.
        second: what the others get; the same structure.

    Returns:
        The same structure.
    """

    def select(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        return tf.where(
            condition[:, tf.newaxis] if a.shape.rank > 1 else condition, a, b
        )

    return tf.nest.map_structure(select, first, second)
