"""Whose gradient makes a leaf: the policies of `error_monitor`.

Each monitor offers the two functions that a trajectory needs (`Monitor`): the start of
a draw, and one leaf. What it has to remember travels in `MonitorState`.
"""

from typing import NamedTuple, Protocol

import tensorflow as tf

from tfp_lhnn.mcmc.gradient_source import NetworkSource, TargetCalls, TargetSource
from tfp_lhnn.mcmc.integrator import (
    PhasePoint,
    finish_step,
    kinetic_energy,
    leapfrog,
    start_step,
)

__all__ = ["CooldownMonitor", "Leaf", "Monitor", "MonitorState", "NoMonitor"]


class MonitorState(NamedTuple):
    """What a monitor knows of each chain.

    Attributes:
        in_fallback: whether this tree goes on with true gradients, `[chains]` bool.
        fallback_remaining: draws to be made with true gradients, this one included
            until it ends, `[chains]` int32.
        num_fallbacks: times the monitor fired in draws that have ended, `[chains]`
            int32.
        calls: what has been asked of the target.
    """

    in_fallback: tf.Tensor
    fallback_remaining: tf.Tensor
    num_fallbacks: tf.Tensor
    calls: TargetCalls


class Leaf(NamedTuple):
    """A new end of the tree.

    Attributes:
        point: in phase space.
        log_prob: the target's log density there, `[chains]`.
        energy: true `H` there, `[chains]`; may be anything where it is not finite.
    """

    point: PhasePoint
    log_prob: tf.Tensor
    energy: tf.Tensor


class Monitor(Protocol):
    """What `trajectory` asks of a monitor."""

    def begin_draw(
        self, position: tf.Tensor, momentum: tf.Tensor, state: MonitorState
    ) -> tuple[PhasePoint, MonitorState]:
        """The start of a draw, with a gradient from the right source."""

    def end_draw(self, state: MonitorState) -> MonitorState:
        """What is to be remembered for the next draw."""

    def leaf(
        self,
        point: PhasePoint,
        step: tf.Tensor,
        reference_energy: tf.Tensor,
        is_active: tf.Tensor,
        state: MonitorState,
    ) -> tuple[Leaf, MonitorState]:
        """One leapfrog step.

        Args:
            point: the end of the tree that grows.
            step: signed step sizes, `[chains, 1]` or `[chains, dim]`; zero for the
                chains that are not active.
            reference_energy: `−ln u`, `[chains]`.
            is_active: chains whose tree still grows, `[chains]`; only they count.
            state: what the monitor knows.

        Returns:
            The leaf and what the monitor knows now.
        """


class NoMonitor:
    """Network gradients only.

    Exact for a separable network: the force depends on the position alone and the true
    `H` decides. Where the network is wrong, leaves are rejected and chains stick.

    Args:
        network: source of gradients.
        target: source of densities.
        inverse_mass: diagonal of `M⁻¹`, `[chains, dim]`; `None` for unit mass.
    """

    def __init__(
        self,
        network: NetworkSource,
        target: TargetSource,
        inverse_mass: tf.Tensor | None,
    ) -> None:
        self.network = network
        self.target = target
        self.inverse_mass = inverse_mass

    def begin_draw(
        self, position: tf.Tensor, momentum: tf.Tensor, state: MonitorState
    ) -> tuple[PhasePoint, MonitorState]:
        """The network's gradient, anew: a swap may have moved the state."""
        gradient = self.network.gradient(position, momentum)
        return PhasePoint(position, momentum, gradient), state

    def leaf(
        self,
        point: PhasePoint,
        step: tf.Tensor,
        reference_energy: tf.Tensor,
        is_active: tf.Tensor,
        state: MonitorState,
    ) -> tuple[Leaf, MonitorState]:
        """One density of the target, no gradient."""
        del reference_energy
        end = leapfrog(point, step, self.inverse_mass, self.network.gradient)
        log_prob = self.target.log_prob(end.position)
        energy = kinetic_energy(end.momentum, self.inverse_mass) - log_prob
        calls = state.calls.add(densities=[is_active])
        return Leaf(end, log_prob, energy), state._replace(calls=calls)

    def end_draw(self, state: MonitorState) -> MonitorState:
        """Nothing to remember."""
        return state


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
        self, position: tf.Tensor, momentum: tf.Tensor, state: MonitorState
    ) -> tuple[PhasePoint, MonitorState]:
        """Gives chains in the cool-down their true gradient."""
        in_fallback = state.fallback_remaining > 0
        gradient = self._true_gradient_where(
            in_fallback, position, self.network.gradient(position, momentum)
        )
        point = PhasePoint(position, momentum, gradient, in_fallback)
        calls = state.calls.add(gradients=[in_fallback])
        return point, state._replace(in_fallback=in_fallback, calls=calls)

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
        return Leaf(
            end, log_prob, kinetic_energy(momentum, self.inverse_mass) - log_prob
        )

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
        start_gradient = self._true_gradient_where(
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

    def _true_gradient_where(
        self, needed: tf.Tensor, position: tf.Tensor, otherwise: tf.Tensor
    ) -> tf.Tensor:
        """The target's gradient for the chains in `needed`, if there are any."""

        def evaluate() -> tf.Tensor:
            _, gradient = self.target.log_prob_and_gradient(position)
            return tf.where(needed[:, tf.newaxis], gradient, otherwise)

        return tf.cond(tf.reduce_any(needed), evaluate, lambda: otherwise)
