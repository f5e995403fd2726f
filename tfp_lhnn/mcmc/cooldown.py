"""The paper's monitor: true gradients for a while after a bad leaf."""

import tensorflow as tf

from tfp_lhnn.mcmc.driving_energy import DrivingRecord
from tfp_lhnn.mcmc.error_monitor import Leaf, MonitorState, NoMonitor, Reference
from tfp_lhnn.mcmc.gradient_source import NetworkSource, TargetSource
from tfp_lhnn.mcmc.integrator import (
    PhasePoint,
    finish_step,
    kinetic_energy,
    leapfrog,
    start_step,
)

__all__ = ["CooldownMonitor"]


class CooldownMonitor(NoMonitor):
    """The paper's monitor: its Algorithms 1 and 2.

    A network leaf with `ε > max_hnn_energy_diff` is redone from its start with true
    gradients. The rest of the tree and the next `num_fallback_samples − 1` draws of the
    chain use true gradients too.

    The target's gradient is computed only when some chain needs it. The same holds for
    the density at network leaves.

    Args:
        network: source of gradients.
        target: source of densities, and of gradients in the fallback.
        inverse_mass: diagonal of `M⁻¹`, `[chains, dim]`; `None` for unit mass.
        max_hnn_energy_diff: the paper's `Δ_max^hnn`.
        num_fallback_samples: the paper's `N_lf`.
    """

    def __init__(
        self,
        network: NetworkSource,
        target: TargetSource,
        inverse_mass: tf.Tensor | None,
        max_hnn_energy_diff: float,
        num_fallback_samples: int,
    ) -> None:
        super().__init__(network, target, inverse_mass)
        self.max_hnn_energy_diff = max_hnn_energy_diff
        self.num_fallback_samples = num_fallback_samples

    def begin_draw(
        self,
        position: tf.Tensor,
        momentum: tf.Tensor,
        log_prob: tf.Tensor,
        log_height: tf.Tensor,
        state: MonitorState,
    ) -> tuple[Leaf, Reference, MonitorState]:
        """Gives chains in the cool-down their true gradient."""
        in_fallback = (state.fallback_remaining > 0) & tf.math.is_finite(log_prob)
        energy, gradient = self.network.energy_and_gradient(position, momentum)
        gradient = self.target.gradient_where(in_fallback, position, gradient)
        kinetic = kinetic_energy(momentum, self.inverse_mass)
        reference = Reference.at(log_prob, kinetic, log_height, energy)
        zero = tf.zeros_like(log_prob)
        record = DrivingRecord(in_fallback, gap=zero, residual=zero)
        start = PhasePoint(position, momentum, gradient, record.pack())
        calls = state.calls.add(gradients=[in_fallback])
        return (
            reference.start(start, log_prob, num_kinds=2),
            reference,
            state._replace(in_fallback=in_fallback, calls=calls),
        )

    def end_draw(self, state: MonitorState) -> MonitorState:
        """Advances the cool-down, or starts it.

        The paper counts draws since the monitor fired, up to `N_lf`. Here the remaining
        draws are counted down, which is equivalent. A chain fires at most once in a
        draw, because it has true gradients from then on.
        """
        has_fired = state.in_fallback & (state.fallback_remaining == 0)
        return state._replace(
            fallback_remaining=tf.where(
                has_fired,
                self.num_fallback_samples - 1,
                tf.maximum(state.fallback_remaining - 1, 0),
            ),
            num_fallbacks=state.num_fallbacks + tf.cast(has_fired, tf.int32),
        )

    def leaf(
        self,
        point: PhasePoint,
        step: tf.Tensor,
        reference: Reference,
        is_active: tf.Tensor,
        state: MonitorState,
    ) -> tuple[Leaf, MonitorState]:
        """A network leaf, redone with true gradients for the chains that need it.

        Only gradients and densities pass through `tf.cond`. Its results are copied, and
        it is cheaper to recompute what follows from them.
        """
        by_network = is_active & ~state.in_fallback
        end, network_energy = leapfrog(
            point, step, self.inverse_mass, self.network.energy_and_gradient
        )
        log_prob = tf.cond(
            tf.reduce_any(by_network),
            lambda: self.target.log_prob(end.position),
            lambda: tf.zeros_like(reference.log_prob),
        )
        kinetic = kinetic_energy(end.momentum, self.inverse_mass)
        network_error = self._network_error(reference, end, network_energy, kinetic)
        error = reference.energy_error(log_prob, kinetic) + reference.log_height
        # Negated so that a NaN error fires too.
        is_bad = ~(error <= self.max_hnn_energy_diff)
        fires = by_network & is_bad & reference.has_density
        in_fallback = state.in_fallback | fires
        by_target = is_active & in_fallback
        record = DrivingRecord.unpack(point.record)
        is_missing = by_target & ~record.is_true
        start_gradient, gradient, log_prob = tf.cond(
            tf.reduce_any(by_target),
            lambda: self._true_end(
                by_target, is_missing, point, end.gradient, log_prob, step
            ),
            lambda: (point.gradient, end.gradient, log_prob),
        )
        start = PhasePoint(point.position, point.momentum, start_gradient)
        leaf = self._leaf(
            start,
            gradient,
            log_prob,
            step,
            reference,
            network_error,
            record.switch(by_target),
        )
        calls = state.calls.add(
            densities=[by_network], gradients=[is_missing, by_target]
        )
        return leaf, state._replace(in_fallback=in_fallback, calls=calls)

    def _leaf(
        self,
        start: PhasePoint,
        end_gradient: tf.Tensor,
        log_prob: tf.Tensor,
        step: tf.Tensor,
        reference: Reference,
        network_error: tf.Tensor,
        record: DrivingRecord,
    ) -> Leaf:
        """The leaf that follows from the gradients at both ends of its step.

        `network_error` is the error of the network's own leaf; `record` says what drove
        the step.
        """
        position, half_momentum = start_step(start, step, self.inverse_mass)
        momentum = finish_step(half_momentum, end_gradient, step)
        kinetic = kinetic_energy(momentum, self.inverse_mass)
        error = reference.energy_error(log_prob, kinetic)
        driving_error = tf.where(record.is_true, error, network_error) + record.gap
        # The residual is not used after a true leaf: all later leaves are true.
        record = DrivingRecord(record.is_true, record.gap, error - network_error)
        end = PhasePoint(position, momentum, end_gradient, record.pack())
        return Leaf(end, log_prob, kinetic, (driving_error, error))

    def _true_end(
        self,
        needed: tf.Tensor,
        is_missing: tf.Tensor,
        point: PhasePoint,
        gradient: tf.Tensor,
        log_prob: tf.Tensor,
        step: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Start gradient, end gradient and density, true for the chains in `needed`.

        The start gradient is evaluated only for the chains in `is_missing`, if any.
        """
        start_gradient = self.target.gradient_where(
            is_missing, point.position, point.gradient
        )
        position, _ = start_step(
            point._replace(gradient=start_gradient), step, self.inverse_mass
        )
        true_log_prob, true_gradient = self.target.log_prob_and_gradient(position)
        return (
            start_gradient,
            tf.where(needed[:, tf.newaxis], true_gradient, gradient),
            tf.where(needed, true_log_prob, log_prob),
        )
