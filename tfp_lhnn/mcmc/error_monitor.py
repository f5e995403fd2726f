"""Monitors: they decide whether the network or the target gives a leaf's gradient.

A trajectory asks a monitor for three things (`Monitor`): the start of a draw, one leaf
after the other, and the end of the draw. What a monitor has to remember travels in
`MonitorState`. This file has the monitors that do not choose. The modules `cooldown`
and `pointwise` have those that do.
"""

from typing import Any, NamedTuple, Protocol

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
    "Reference",
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
        kinetic: kinetic energy there, `[chains]`.
        errors: changes of energy since the start of the draw, `[chains]` each. The last
            is for `H` of the density that is sampled, the first for the energy whose
            gradient drives leapfrog. There is one where these are the same. A change
            may be NaN or infinite of either sign; all of that means infinite.
    """

    point: PhasePoint
    log_prob: tf.Tensor
    kinetic: tf.Tensor
    errors: tuple[tf.Tensor, ...]


class Reference(NamedTuple):
    """The start of a draw: energies are measured from it, `[chains]` each.

    Numbers of one kind are subtracted from each other before anything is added. In
    single precision a log density near -10⁶ is known to a sixteenth of a nat, and a
    sum with it is no better.

    A chain may start where the target has no finite density, if that was not known in
    time to refuse it. Its draw goes to the first leaves that have one: they are all in
    a slice of no height. The target is not asked for gradients on the way, since it has
    none to give there.

    Attributes:
        log_prob: log of the density that is sampled; zero where it is not finite.
        kinetic: kinetic energy.
        log_height: log of the slice's height relative to the start, `ln u + H₀`; minus
            infinity for a chain without a density.
        network_energy: `U_θ`, or `H_θ` of a joint network; `()` if nobody asks.
    """

    log_prob: tf.Tensor
    kinetic: tf.Tensor
    log_height: tf.Tensor
    network_energy: Any = ()

    @classmethod
    def at(
        cls,
        log_prob: tf.Tensor,
        kinetic: tf.Tensor,
        log_height: tf.Tensor,
        network_energy: Any = (),
    ) -> "Reference":
        """The start with a log density that may be anything; else as the attributes."""
        has_density = tf.math.is_finite(log_prob)
        # A number comes second: in a graph it takes the dtype of what comes first.
        return cls(
            tf.where(has_density, log_prob, 0.0),
            kinetic,
            tf.where(has_density, log_height, float("-inf")),
            network_energy,
        )

    @property
    def has_density(self) -> tf.Tensor:
        """Whether the chain starts where its density is finite, `[chains]` bool."""
        # Not a field, since each tensor that a loop sees costs it time.
        return tf.math.is_finite(self.log_height)

    def energy_error(self, log_prob: tf.Tensor, kinetic: tf.Tensor) -> tf.Tensor:
        """`H − H₀` of the density that is sampled, `[chains]`."""
        return (kinetic - self.kinetic) + (self.log_prob - log_prob)

    def network_error(self, energy: tf.Tensor, kinetic: tf.Tensor) -> tf.Tensor:
        """The same of a separable network with `U_θ` given, `[chains]`."""
        return (kinetic - self.kinetic) + (energy - self.network_energy)

    def start(self, point: PhasePoint, log_prob: tf.Tensor, num_kinds: int) -> Leaf:
        """The start as a leaf, without any error; `log_prob` as it is, `[chains]`."""
        errors = (tf.zeros_like(self.kinetic),) * num_kinds
        return Leaf(point, log_prob, self.kinetic, errors)


class Monitor(Protocol):
    """What `trajectory` asks of a monitor."""

    def begin_draw(
        self,
        position: tf.Tensor,
        momentum: tf.Tensor,
        log_prob: tf.Tensor,
        log_height: tf.Tensor,
        state: MonitorState,
    ) -> tuple[Leaf, Reference, MonitorState]:
        """The start of a draw, with a gradient from the right source.

        Args:
            position: `[chains, dim]`.
            momentum: `[chains, dim]`.
            log_prob: the target's log density there, known from the last draw,
                `[chains]`.
            log_height: of the slice, relative to the start, `[chains]`.
            state: what the monitor knows.

        Returns:
            The start as the tree's first leaf, what energies are measured from, and
            what the monitor knows now.
        """

    def end_draw(self, state: MonitorState) -> MonitorState:
        """What is to be remembered for the next draw."""

    def leaf(
        self,
        point: PhasePoint,
        step: tf.Tensor,
        reference: Reference,
        is_active: tf.Tensor,
        state: MonitorState,
    ) -> tuple[Leaf, MonitorState]:
        """One leapfrog step.

        Args:
            point: the end of the tree that grows.
            step: signed step sizes, `[chains, 1]` or `[chains, dim]`; zero for the
                chains that are not active.
            reference: what energies are measured from.
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
        log_height: tf.Tensor,
        state: MonitorState,
    ) -> tuple[Leaf, Reference, MonitorState]:
        """The network's gradient, anew: a swap may have moved the state."""
        energy, gradient = self.network.energy_and_gradient(position, momentum)
        kinetic = kinetic_energy(momentum, self.inverse_mass)
        reference = Reference.at(log_prob, kinetic, log_height, energy)
        start = PhasePoint(position, momentum, gradient)
        return reference.start(start, log_prob, num_kinds=2), reference, state

    def leaf(
        self,
        point: PhasePoint,
        step: tf.Tensor,
        reference: Reference,
        is_active: tf.Tensor,
        state: MonitorState,
    ) -> tuple[Leaf, MonitorState]:
        """One density of the target, no gradient."""
        end, energy = leapfrog(
            point, step, self.inverse_mass, self.network.energy_and_gradient
        )
        log_prob = self.target.log_prob(end.position)
        kinetic = kinetic_energy(end.momentum, self.inverse_mass)
        errors = (
            self._network_error(reference, end, energy, kinetic),
            reference.energy_error(log_prob, kinetic),
        )
        calls = state.calls.add(densities=[is_active])
        return Leaf(end, log_prob, kinetic, errors), state._replace(calls=calls)

    def end_draw(self, state: MonitorState) -> MonitorState:
        """Nothing to remember."""
        return state

    def _network_error(
        self,
        reference: Reference,
        end: PhasePoint,
        energy: tf.Tensor,
        kinetic: tf.Tensor,
    ) -> tf.Tensor:
        """`H_θ` at the end of a step minus that at the start of the draw, `[chains]`.

        `energy` is a joint network's with the momentum half-way, which is not enough.
        """
        if self.network.is_separable:
            return reference.network_error(energy, kinetic)
        energy, _ = self.network.energy_and_gradient(end.position, end.momentum)
        return energy - reference.network_energy


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
        log_height: tf.Tensor,
        state: MonitorState,
    ) -> tuple[Leaf, Reference, MonitorState]:
        """Evaluates the start, whose gradient nobody has kept."""
        log_prob, gradient = self.source.log_prob_and_gradient(position)
        kinetic = kinetic_energy(momentum, self.inverse_mass)
        reference = Reference.at(log_prob, kinetic, log_height)
        start = PhasePoint(position, momentum, gradient)
        leaf = reference.start(start, log_prob, num_kinds=1)
        everywhere = tf.ones_like(log_prob, dtype=tf.bool)
        return leaf, reference, self._count(everywhere, state)

    def leaf(
        self,
        point: PhasePoint,
        step: tf.Tensor,
        reference: Reference,
        is_active: tf.Tensor,
        state: MonitorState,
    ) -> tuple[Leaf, MonitorState]:
        """One evaluation of value and gradient."""
        position, half_momentum = start_step(point, step, self.inverse_mass)
        log_prob, gradient = self.source.log_prob_and_gradient(position)
        end = PhasePoint(position, finish_step(half_momentum, gradient, step), gradient)
        kinetic = kinetic_energy(end.momentum, self.inverse_mass)
        error = reference.energy_error(log_prob, kinetic)
        return Leaf(end, log_prob, kinetic, (error,)), self._count(is_active, state)

    def end_draw(self, state: MonitorState) -> MonitorState:
        """Nothing to remember."""
        return state

    def _count(self, needed: tf.Tensor, state: MonitorState) -> MonitorState:
        if not isinstance(self.source, TargetSource):
            return state
        return state._replace(calls=state.calls.add(gradients=[needed]))
