"""The pointwise monitor: the position alone decides between network and target.

Its force is a function of the position: `∇U_θ` where the network is trusted and `∇U`
elsewhere, with a jump in between. Leapfrog with any such force is reversible and
preserves volume, so the chain is exact (`docs/algorithm.md`).
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from tfp_lhnn.mcmc.driving_energy import DrivingRecord
from tfp_lhnn.mcmc.error_monitor import Leaf, MonitorState, Reference
from tfp_lhnn.mcmc.gradient_source import NetworkSource, TargetSource
from tfp_lhnn.mcmc.integrator import (
    PhasePoint,
    finish_step,
    kinetic_energy,
    start_step,
)

__all__ = ["PointwiseMonitor", "ResidualRule"]


class ResidualRule(NamedTuple):
    """Trusts the network where `|U(q) − U_θ(q) − offset| ≤ max_residual`.

    Along an unbroken run of trusted points, the network adds at most twice
    `max_residual` to the error of leapfrog in the true energy.

    Attributes:
        offset: `c`, a constant difference `U − U_θ`, which has no gradient. A trained
            `LatentHNN` needs none.
        max_residual: `τ`.
    """

    offset: float
    max_residual: float

    def __call__(
        self, log_prob: tf.Tensor, energy: tf.Tensor, energy_offset: tf.Tensor
    ) -> tf.Tensor:
        """Whether the network is trusted, `[chains]` bool.

        Args:
            log_prob: of the target, `[chains]`.
            energy: the network's, less its constant, `[chains]`.
            energy_offset: that constant, `[]`.

        Returns:
            False where `log_prob` or `energy` is not finite.
        """
        # The two terms that may be large are subtracted first.
        residual = -log_prob - tf.cast(energy_offset, log_prob.dtype) - energy
        return tf.abs(residual - self.offset) <= self.max_residual


class PointwiseMonitor:
    """The network's gradient where a rule of the position trusts it, else the true one.

    The target's gradient is computed only when some chain needs it.

    Args:
        network: source of gradients; separable.
        target: source of densities, and of gradients where the network is not trusted.
        inverse_mass: diagonal of `M⁻¹`, `[chains, dim]`; `None` for unit mass.
        rule: a `ResidualRule`, or a function of positions, `[chains, dim]`, that says
            where the network is trusted, `[chains]` bool.
    """

    def __init__(
        self,
        network: NetworkSource,
        target: TargetSource,
        inverse_mass: tf.Tensor | None,
        rule: ResidualRule | Callable[[tf.Tensor], tf.Tensor],
    ) -> None:
        self.network = network
        self.target = target
        self.inverse_mass = inverse_mass
        self.rule = rule

    def begin_draw(
        self,
        position: tf.Tensor,
        momentum: tf.Tensor,
        log_prob: tf.Tensor,
        log_height: tf.Tensor,
        state: MonitorState,
    ) -> tuple[Leaf, Reference, MonitorState]:
        """Evaluates true gradients where the rule asks; the density is known."""
        energy, gradient = self.network.energy_and_gradient(position, momentum)
        if isinstance(self.rule, ResidualRule):
            by_target = ~self.rule(log_prob, energy, self.network.offset)
        else:
            by_target = ~self.rule(position)
        by_target &= tf.math.is_finite(log_prob)
        gradient = self.target.gradient_where(by_target, position, gradient)
        # If the network's energy at the start is not finite, its errors are measured
        # from zero. The record's residual is then not finite either, which means
        # unknown.
        reference = Reference.at(
            log_prob,
            kinetic_energy(momentum, self.inverse_mass),
            log_height,
            tf.where(tf.math.is_finite(energy), energy, 0.0),
        )
        record = DrivingRecord(
            by_target,
            gap=tf.zeros_like(energy),
            residual=energy - reference.network_energy,
        )
        start = PhasePoint(position, momentum, gradient, record.pack())
        return (
            reference.start(start, log_prob, num_kinds=2),
            reference,
            state._replace(calls=state.calls.add(gradients=[by_target])),
        )

    def leaf(
        self,
        point: PhasePoint,
        step: tf.Tensor,
        reference: Reference,
        is_active: tf.Tensor,
        state: MonitorState,
    ) -> tuple[Leaf, MonitorState]:
        """One density, and a gradient (with its density again) where it is needed.

        A user's rule does not need the density, so a point that it does not trust needs
        only one evaluation, of value and gradient together.
        """
        position, half_momentum = start_step(point, step, self.inverse_mass)
        if isinstance(self.rule, ResidualRule):
            by_density = is_active
            log_prob = self.target.log_prob(position)
            energy, gradient = self.network.energy_and_gradient(
                _after(log_prob, position), half_momentum
            )
            is_trusted = self.rule(log_prob, energy, self.network.offset)
            is_trusted |= ~reference.has_density
        else:
            energy, gradient = self.network.energy_and_gradient(position, half_momentum)
            is_trusted = self.rule(position) | ~reference.has_density
            by_density = is_active & is_trusted
            log_prob = tf.cond(
                tf.reduce_any(by_density),
                lambda: self.target.log_prob(position),
                lambda: tf.zeros_like(energy),
            )
        by_target = is_active & ~is_trusted
        log_prob, gradient = tf.cond(
            tf.reduce_any(by_target),
            lambda: self._true_where(by_target, position, log_prob, gradient),
            lambda: (log_prob, gradient),
        )
        momentum = finish_step(half_momentum, gradient, step)
        kinetic = kinetic_energy(momentum, self.inverse_mass)
        error = reference.energy_error(log_prob, kinetic)
        network_error = reference.network_error(energy, kinetic)
        record = DrivingRecord.unpack(point.record).follow(
            by_target, error - network_error
        )
        driving_error = tf.where(by_target, error, network_error) + record.gap
        end = PhasePoint(position, momentum, gradient, record.pack())
        leaf = Leaf(end, log_prob, kinetic, (driving_error, error))
        return leaf, state._replace(
            num_fallbacks=state.num_fallbacks + tf.cast(by_target, tf.int32),
            calls=state.calls.add(densities=[by_density], gradients=[by_target]),
        )

    def end_draw(self, state: MonitorState) -> MonitorState:
        """Nothing to remember."""
        return state

    def _true_where(
        self,
        needed: tf.Tensor,
        position: tf.Tensor,
        log_prob: tf.Tensor,
        gradient: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Density and gradient, the target's own for the chains in `needed`."""
        true_log_prob, true_gradient = self.target.log_prob_and_gradient(position)
        return (
            tf.where(needed, true_log_prob, log_prob),
            tf.where(needed[:, tf.newaxis], true_gradient, gradient),
        )


def _after(log_prob: tf.Tensor, position: tf.Tensor) -> tf.Tensor:
    """The position, `[chains, dim]`, but not before the density is known.

    XLA on a CPU hands what could run side by side to its thread pool, which takes
    longer than the sums of a few chains.
    """
    zero = tf.where(tf.math.is_finite(log_prob), 0.0 * log_prob, 0.0)
    return position + zero[:, tf.newaxis]
