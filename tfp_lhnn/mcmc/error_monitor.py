"""Whose gradient makes a leaf: what a trajectory asks of a monitor, and the plain ones.

Each monitor offers the three functions of `Monitor`: the start of a draw, one leaf, and
the end of the draw. What it has to remember travels in `MonitorState`. Those that
choose between network and target by leaf are `cooldown` and `pointwise`.
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

__all__ = [
    "Leaf",
    "Monitor",
    "MonitorState",
    "NoMonitor",
    "OneSourceMonitor",
    "weigh",
]


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
    """A point of the tree, weighed.

    Attributes:
        point: in phase space.
        log_prob: log of the density that is sampled, there, `[chains]`.
        energy: `H` of that density there, `[chains]`; may be anything where it is not
            finite.
    """

    point: PhasePoint
    log_prob: tf.Tensor
    energy: tf.Tensor


def weigh(
    point: PhasePoint, log_prob: tf.Tensor, inverse_mass: tf.Tensor | None
) -> Leaf:
    """The leaf at a point with a log density."""
    return Leaf(
        point, log_prob, kinetic_energy(point.momentum, inverse_mass) - log_prob
    )


class Monitor(Protocol):
    """What `trajectory` asks of a monitor."""

    def begin_draw(
        self,
        position: tf.Tensor,
        momentum: tf.Tensor,
        log_prob: tf.Tensor,
        state: MonitorState,
    ) -> tuple[Leaf, MonitorState]:
        """The start of a draw, with a gradient from the right source.

        Args:
            position: `[chains, dim]`.
            momentum: `[chains, dim]`.
            log_prob: the target's log density there, known from the last draw,
                `[chains]`.
            state: what the monitor knows.

        Returns:
            The start as the tree's first leaf, and what the monitor knows now.
        """

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
        self,
        position: tf.Tensor,
        momentum: tf.Tensor,
        log_prob: tf.Tensor,
        state: MonitorState,
    ) -> tuple[Leaf, MonitorState]:
        """The network's gradient, anew: a swap may have moved the state."""
        gradient = self.network.gradient(position, momentum)
        start = PhasePoint(position, momentum, gradient)
        return weigh(start, log_prob, self.inverse_mass), state

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
        leaf = weigh(end, self.target.log_prob(end.position), self.inverse_mass)
        calls = state.calls.add(densities=[is_active])
        return leaf, state._replace(calls=calls)

    def end_draw(self, state: MonitorState) -> MonitorState:
        """Nothing to remember."""
        return state


class OneSourceMonitor:
    """Density and gradient from one source: NUTS itself.

    On the target it is plain NUTS; on the network it is NUTS on the learned density,
    which asks nothing of the target.

    Args:
        source: the target, or a separable network.
        inverse_mass: diagonal of `M⁻¹`, `[chains, dim]`; `None` for unit mass.
    """

    def __init__(
        self, source: TargetSource | NetworkSource, inverse_mass: tf.Tensor | None
    ) -> None:
        self.source = source
        self.inverse_mass = inverse_mass

    def begin_draw(
        self,
        position: tf.Tensor,
        momentum: tf.Tensor,
        log_prob: tf.Tensor,
        state: MonitorState,
    ) -> tuple[Leaf, MonitorState]:
        """Evaluates the start, whose gradient nobody has kept."""
        log_prob, gradient = self.source.log_prob_and_gradient(position)
        leaf = weigh(
            PhasePoint(position, momentum, gradient), log_prob, self.inverse_mass
        )
        return leaf, self._count(tf.ones_like(log_prob, dtype=tf.bool), state)

    def leaf(
        self,
        point: PhasePoint,
        step: tf.Tensor,
        reference_energy: tf.Tensor,
        is_active: tf.Tensor,
        state: MonitorState,
    ) -> tuple[Leaf, MonitorState]:
        """One evaluation of value and gradient."""
        del reference_energy
        position, half_momentum = start_step(point, step, self.inverse_mass)
        log_prob, gradient = self.source.log_prob_and_gradient(position)
        momentum = finish_step(half_momentum, gradient, step)
        leaf = weigh(
            PhasePoint(position, momentum, gradient), log_prob, self.inverse_mass
        )
        return leaf, self._count(is_active, state)

    def end_draw(self, state: MonitorState) -> MonitorState:
        """Nothing to remember."""
        return state

    def _count(self, needed: tf.Tensor, state: MonitorState) -> MonitorState:
        if not isinstance(self.source, TargetSource):
            return state
        return state._replace(calls=state.calls.add(gradients=[needed]))
