"""What the kernels share: arguments, the start of a chain, the mass."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lhnn.mcmc import validation
from tfp_lhnn.mcmc.chain_layout import ChainLayout
from tfp_lhnn.mcmc.error_monitor import Monitor, MonitorState
from tfp_lhnn.mcmc.gradient_source import (
    NetworkSource,
    TargetCalls,
    TargetSource,
    network_weights,
)
from tfp_lhnn.mcmc.network_check import check_dimension, check_network
from tfp_lhnn.mcmc.proposal import TRAJECTORY_SAMPLING
from tfp_lhnn.mcmc.results import MASS_NEEDS_SEPARABLE, UnitMass
from tfp_lhnn.mcmc.trajectory import Settings
from tfp_lhnn.mcmc.uturn import SubtreeTables
from tfp_lhnn.support import tfp_compat
from tfp_lhnn.support.arguments import check_count
from tfp_lhnn.support.state_layout import state_parts
from tfp_lhnn.support.target_calls import call_target

__all__ = ["NetworkKernel", "Start"]


class Start(NamedTuple):
    """What a transition starts from, with one row for each chain.

    Attributes:
        layout: converts between the caller's state and rows.
        position: `[chains, dim]`.
        log_prob: the target's log density there, `[chains]`.
        inverse_mass: diagonal of `M⁻¹`, `[chains, dim]`; `None` for unit mass.
        network: the network with the weights that the results carry.
        target: the target on rows.
        calls: counts of the target's evaluations so far.
    """

    layout: ChainLayout
    position: tf.Tensor
    log_prob: tf.Tensor
    inverse_mass: tf.Tensor | None
    network: NetworkSource
    target: TargetSource
    calls: TargetCalls

    def monitor_state(self, results: Any = None) -> MonitorState:
        """What a monitor knows at the start of the draw.

        Args:
            results: of the last transition, if they carry the counters of a monitor.
        """
        if results is None:
            remaining = fired = tf.zeros_like(self.log_prob, dtype=tf.int32)
        else:
            remaining = self.layout.to_rows(results.fallback_remaining)
            fired = self.layout.to_rows(results.num_fallbacks)
        return MonitorState(
            in_fallback=tf.zeros_like(remaining, dtype=tf.bool),
            fallback_remaining=remaining,
            num_fallbacks=fired,
            calls=self.calls,
        )


class NetworkKernel(tfp.mcmc.TransitionKernel, tf.__internal__.tracking.Trackable):
    """Base of the NUTS kernels with a network; handles the arguments that they share.

    TensorFlow finds the variables of the network, and of other arguments, through the
    kernel: a `tf.Module` with a kernel as an attribute can be saved.

    Args:
        parameters: all arguments of the constructor, under their names; `copy` rebuilds
            a kernel from them.
        default_name: prefix of the names of ops, if there is no `name`.
    """

    def __init__(self, parameters: dict[str, Any], default_name: str) -> None:
        self._parameters = parameters
        self._default_name = default_name
        validation.check_target(self.target_log_prob_fn)
        check_network(self.network)
        validation.check_step_size(self.step_size)
        check_count("max_tree_depth", parameters["max_tree_depth"], 1)
        validation.check_depth(parameters["max_tree_depth"])
        validation.check_choice(
            parameters["trajectory_sampling"],
            "trajectory_sampling",
            tuple(TRAJECTORY_SAMPLING),
        )
        self._tables = SubtreeTables(parameters["max_tree_depth"])
        for name, value in parameters.items():
            if isinstance(value, tf.__internal__.tracking.Trackable):
                self._track_trackable(value, name)

    @property
    def parameters(self) -> dict[str, Any]:
        """All arguments of the constructor; `copy` rebuilds the kernel from them."""
        return self._parameters

    @property
    def target_log_prob_fn(self) -> Callable[..., tf.Tensor]:
        """The target's log density."""
        return self._parameters["target_log_prob_fn"]

    @property
    def network(self) -> Any:
        """The network whose weights `bootstrap_results` reads."""
        return self._parameters["network"]

    @property
    def step_size(self) -> Any:
        """Step size that `bootstrap_results` starts with."""
        return self._parameters["step_size"]

    @property
    def name(self) -> str:
        """Prefix of the names of ops."""
        return self._parameters["name"] or self._default_name

    @property
    def _is_separable(self) -> bool:
        return bool(getattr(self.network, "separable", True))

    @property
    def _may_need_gradients(self) -> bool:
        """Whether some draw may need the target's gradient."""
        return (
            self._parameters.get("error_monitor") != "none"
            and self._parameters.get("true_transition_probability") != 0
        )

    def experimental_with_shard_axes(
        self, shard_axis_names: Sequence[Any] | None
    ) -> "NetworkKernel":
        """Refuses sharded parts of the state: the network needs whole positions."""
        if any(name for name in shard_axis_names or ()):
            raise NotImplementedError(
                f"`shard_axis_names` is {shard_axis_names}; a state whose parts are "
                "sharded is not supported, since the network needs whole positions. "
                "Chains can be sharded."
            )
        return self

    def _first_results(self, init_state: Any) -> dict[str, Any]:
        """The fields that the results of all kernels share, at the start of a chain."""
        parts = state_parts(init_state, "init_state")
        if self._may_need_gradients:
            validation.check_gradient(self.target_log_prob_fn, parts)
        log_prob = validation.target_value(self.target_log_prob_fn, parts)
        validation.check_log_prob(log_prob, parts)
        layout = ChainLayout(init_state, log_prob)
        check_dimension(self.network, layout.dim, log_prob.dtype)
        step_size = validation.step_size_tensors(self.step_size, log_prob.dtype)
        layout.step_to_matrix(step_size)  # Refuses a wrong number of step sizes.
        zeros = tf.zeros_like(log_prob, dtype=tf.int32)
        false = tf.zeros_like(log_prob, dtype=tf.bool)
        return {
            "target_log_prob": log_prob,
            "step_size": step_size,
            "log_accept_ratio": tf.zeros_like(log_prob),
            "leapfrogs_taken": zeros,
            "is_accepted": false,
            "reach_max_depth": false,
            "has_divergence": false,
            "energy": -log_prob,
            "seed": tf.zeros([2], tf.int32),
            "lhnn": network_weights(self.network),
            "target_gradients": zeros,
            "target_evaluations": tf.ones_like(zeros),
            "target_gradient_calls": tf.zeros([], tf.int32),
            "target_evaluation_calls": tf.ones([], tf.int32),
            "momentum_distribution": (
                tfp_compat.unit_momentum(parts, log_prob.shape.rank)
                if self._is_separable
                else UnitMass()
            ),
        }

    def _start(self, current_state: Any, previous: Any) -> Start:
        layout = ChainLayout(current_state, previous.target_log_prob)
        rows = layout.to_rows
        return Start(
            layout=layout,
            position=layout.to_matrix(current_state),
            log_prob=rows(previous.target_log_prob),
            inverse_mass=self._inverse_mass(layout, previous.momentum_distribution),
            network=NetworkSource(self.network, previous.lhnn),
            target=TargetSource(
                layout.on_matrix(
                    lambda *parts: call_target(self.target_log_prob_fn, parts)
                )
            ),
            calls=TargetCalls.of(
                tf.stack(
                    [
                        rows(previous.target_evaluations),
                        rows(previous.target_gradients),
                    ]
                ),
                tf.stack(
                    [previous.target_evaluation_calls, previous.target_gradient_calls]
                ),
            ),
        )

    def _tree_settings(
        self, start: Start, step_size: Any, monitor: Monitor
    ) -> Settings:
        return Settings(
            step=start.layout.step_to_matrix(step_size),
            max_energy_diff=self._parameters["max_energy_diff"],
            max_tree_depth=self._parameters["max_tree_depth"],
            tables=self._tables,
            weights=TRAJECTORY_SAMPLING[self._parameters["trajectory_sampling"]],
            monitor=monitor,
        )

    def _inverse_mass(
        self, layout: ChainLayout, momentum_distribution: Any
    ) -> tf.Tensor | None:
        if isinstance(momentum_distribution, UnitMass):
            return None
        if not self._is_separable:
            raise ValueError(MASS_NEEDS_SEPARABLE)
        return layout.columns_to_matrix(
            tfp_compat.inverse_mass_parts(momentum_distribution)
        )
