"""The paper's monitor: true gradients for a while after a bad leaf."""

import tensorflow as tf

from tfp_lhnn.mcmc.error_monitor import Leaf, MonitorState, NoMonitor, weigh
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

    A network leaf with `ε > max_hnn_energy_diff` raises the chain's flag and is redone
    from its start with true gradients; the rest of the tree and the next
    `num_fallback_samples − 1` draws go on with these.

    The target's gradient is computed only when some chain needs it, and so is the
    density beside the network's gradient.

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
        state: MonitorState,
    ) -> tuple[Leaf, MonitorState]:
        """Gives chains in the cool-down their true gradient."""
        in_fallback = state.fallback_remaining > 0
        gradient = self.target.gradient_where(
            in_fallback, position, self.network.gradient(position, momentum)
        )
        start = PhasePoint(position, momentum, gradient, in_fallback)
        calls = state.calls.add(gradients=[in_fallback])
        return weigh(start, log_prob, self.inverse_mass), state._replace(
            in_fallback=in_fallback, calls=calls
        )

    def end_draw(self, state: MonitorState) -> MonitorState:
        """Counts the cool-down on, or starts it.

        The paper counts draws with the flag up and lowers it at `N_lf`; here the draws
        that remain are counted down, which is the same. A chain fires at most once in a
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
        reference_energy: tf.Tensor,
        is_active: tf.Tensor,
        state: MonitorState,
    ) -> tuple[Leaf, MonitorState]:
        """A network leaf, redone with true gradients for the chains that need it.

        Only gradients and densities pass through `tf.cond`: its results are copied, and
        what follows from them is cheaper to compute again.
        """
        by_network = is_active & ~state.in_fallback
        end = leapfrog(point, step, self.inverse_mass, self.network.gradient)
        log_prob = tf.cond(
            tf.reduce_any(by_network),
            lambda: self.target.log_prob(end.position),
            lambda: tf.zeros_like(reference_energy),
        )
        energy = kinetic_energy(end.momentum, self.inverse_mass) - log_prob
        # Negated so that an energy that is not a number fires too.
        fires = by_network & ~(energy - reference_energy <= self.max_hnn_energy_diff)
        in_fallback = state.in_fallback | fires
        by_target = is_active & in_fallback
        is_missing = by_target & ~point.has_true_gradient
        start_gradient, gradient, log_prob = tf.cond(
            tf.reduce_any(by_target),
            lambda: self._true_end(
                by_target, is_missing, point, end.gradient, log_prob, step
            ),
            lambda: (point.gradient, end.gradient, log_prob),
        )
        point = point._replace(gradient=start_gradient, has_true_gradient=by_target)
        return self._leaf(point, gradient, log_prob, step), state._replace(
            in_fallback=in_fallback,
            calls=state.calls.add(
                densities=[by_network], gradients=[is_missing, by_target]
            ),
        )

    def _leaf(
        self,
        point: PhasePoint,
        end_gradient: tf.Tensor,
        log_prob: tf.Tensor,
        step: tf.Tensor,
    ) -> Leaf:
        """The leaf that follows from the gradients at both ends of its step."""
        position, half_momentum = start_step(point, step, self.inverse_mass)
        momentum = finish_step(half_momentum, end_gradient, step)
        end = PhasePoint(position, momentum, end_gradient, point.has_true_gradient)
        return weigh(end, log_prob, self.inverse_mass)

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

        The start's is evaluated for the chains in `is_missing`, if there are any.
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
