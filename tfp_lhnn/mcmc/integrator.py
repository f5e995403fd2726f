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
        record: whose energy `gradient` belongs to, as `DrivingRecord` packs it,
            `[chains, 3]`; `()` where one source serves all points, so that nothing has
            to be carried.
    """

    position: tf.Tensor
    momentum: tf.Tensor
    gradient: tf.Tensor
    record: Any = ()


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
    energy_and_gradient: Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
) -> tuple[PhasePoint, tf.Tensor]:
    """One step with one new gradient.

    With a gradient of the position alone the step is reversible and preserves volume,
    however wrong the gradient is. A joint network depends on the momentum too; the
    momentum at the new position does not exist before its gradient does, so it gets the
    one half-way.

    Args:
        point: where the step starts.
        step: signed step sizes, `[chains, 1]` or `[chains, dim]`.
        inverse_mass: diagonal of `M⁻¹`, `[chains, dim]`; `None` for unit mass.
        energy_and_gradient: maps positions and momenta, `[chains, dim]` each, to an
            energy, `[chains]`, and `∂H/∂q`, `[chains, dim]`.

    Returns:
        The point at the end of the step, and the energy that came with its gradient.
    """
    position, half_momentum = start_step(point, step, inverse_mass)
    energy, gradient = energy_and_gradient(position, half_momentum)
    momentum = finish_step(half_momentum, gradient, step)
    return PhasePoint(position, momentum, gradient), energy


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
