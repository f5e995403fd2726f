"""LatentHNNNoUTurnSampler: the paper's sampler as a TFP transition kernel."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lhnn import _tfp_compat
from tfp_lhnn._arguments import check_count
from tfp_lhnn._state_parts import state_parts
from tfp_lhnn.mcmc import validation
from tfp_lhnn.mcmc.chain_layout import ChainLayout
from tfp_lhnn.mcmc.error_monitor import (
    CooldownMonitor,
    Monitor,
    MonitorState,
    NoMonitor,
)
from tfp_lhnn.mcmc.gradient_source import (
    NetworkSource,
    TargetCalls,
    TargetSource,
    network_weights,
)
from tfp_lhnn.mcmc.integrator import kinetic_energy
from tfp_lhnn.mcmc.proposal import TRAJECTORY_SAMPLING
from tfp_lhnn.mcmc.randomness import Randomness, draw
from tfp_lhnn.mcmc.results import (
    MASS_NEEDS_SEPARABLE,
    LatentHNNKernelResults,
    UnitMass,
)
from tfp_lhnn.mcmc.trajectory import Settings, TreeState, build_tree
from tfp_lhnn.mcmc.uturn import SubtreeTables

__all__ = ["LatentHNNNoUTurnSampler"]


class LatentHNNNoUTurnSampler(tfp.mcmc.TransitionKernel):
    """NUTS whose leapfrog runs on the gradients of a latent Hamiltonian network.

    The true density weighs every leaf of the tree, at one evaluation per leaf; its
    gradient is needed only where the network is wrong. `error_monitor` says what
    happens there:

    * `"cooldown"` (the paper's Algorithms 1 and 2): a leaf whose energy error exceeds
      `max_hnn_energy_diff` is redone with true gradients, and so are the rest of the
      tree and the next draws. The switch depends on what the tree met, so the chain is
      not exactly invariant; `docs/algorithm.md` has the measured bias.
    * `"none"`: network gradients always. Exact for a separable network, however wrong
      it is; but where it is wrong, chains stick.

    The kernel goes wherever `tfp.mcmc.NoUTurnSampler` goes: `sample_chain`, the
    adaptation wrappers, `tf.function(jit_compile=True)`. Its results carry the weights
    of the network, so a resumed chain needs nothing else; trace them with
    `tfp_lhnn.trace_stats`, which leaves the weights out.

    #### Example

    ```python
    kernel = tfp_lhnn.LatentHNNNoUTurnSampler(log_prob, network, step_size=0.1)
    kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(kernel, num_adaptation_steps=400)
    draws, stats = tfp.mcmc.sample_chain(
        1000, initial_state, kernel=kernel, num_burnin_steps=500,
        trace_fn=tfp_lhnn.trace_stats, seed=[1, 2])
    ```

    Args:
        target_log_prob_fn: takes the parts of the state, `[batch..., event...]` each,
            and returns their log density `[batch...]`.
        network: a trained `tfp_lhnn.LatentHNN`, or anything with its `stateless_call`,
            `trainable_variables` and `non_trainable_variables`. It sees the parts of
            the state, flattened, side by side.
        step_size: a value, or a list of one for each part of the state; each broadcasts
            with its part, so a chain may have its own.
        max_tree_depth: the tree has up to `2 ** max_tree_depth` points.
        max_hnn_energy_diff: the paper's `Δ_max^hnn`, for `"cooldown"`. Minus infinity
            makes every draw one of plain NUTS.
        max_energy_diff: the paper's `Δ_max^lf`: a leaf with a larger energy error is a
            divergence and stops the tree.
        num_fallback_samples: the paper's `N_lf`: the monitor stays with true gradients
            for this many draws, the one in which it fired included.
        error_monitor: `"cooldown"` or `"none"`.
        trajectory_sampling: `"slice"` (the paper) or `"multinomial"` (TFP, Stan).
        name: prefix of the names of ops.

    Raises:
        TypeError: for a target that is not callable, or a network without the calls.
        ValueError: for values out of range; the message names the argument.
    """

    def __init__(
        self,
        target_log_prob_fn: Callable[..., tf.Tensor],
        network: Any,
        step_size: Any,
        max_tree_depth: int = 10,
        max_hnn_energy_diff: float = 10.0,
        max_energy_diff: float = 1000.0,
        num_fallback_samples: int = 20,
        error_monitor: str = "cooldown",
        trajectory_sampling: str = "slice",
        name: str | None = None,
    ) -> None:
        self._parameters = {
            "target_log_prob_fn": target_log_prob_fn,
            "network": network,
            "step_size": step_size,
            "max_tree_depth": max_tree_depth,
            "max_hnn_energy_diff": max_hnn_energy_diff,
            "max_energy_diff": max_energy_diff,
            "num_fallback_samples": num_fallback_samples,
            "error_monitor": error_monitor,
            "trajectory_sampling": trajectory_sampling,
            "name": name,
        }
        validation.check_target(target_log_prob_fn)
        validation.check_network(network)
        validation.check_step_size(step_size)
        validation.check_thresholds(max_hnn_energy_diff, max_energy_diff)
        check_count("max_tree_depth", max_tree_depth, 1)
        validation.check_depth(max_tree_depth)
        check_count("num_fallback_samples", num_fallback_samples, 1)
        validation.check_choice(error_monitor, "error_monitor", ("cooldown", "none"))
        validation.check_choice(
            trajectory_sampling, "trajectory_sampling", tuple(TRAJECTORY_SAMPLING)
        )
        self._tables = SubtreeTables(max_tree_depth)

    @property
    def parameters(self) -> dict[str, Any]:
        """Arguments of the constructor, all of them: `copy` rebuilds the kernel."""
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
        return self._parameters["name"] or "latent_hnn_nuts"

    @property
    def is_calibrated(self) -> bool:
        """Whether the chain leaves the target exactly invariant.

        True for `error_monitor="none"` with a separable network: leapfrog with a force
        of the position alone is reversible and preserves volume, whatever the force,
        and the true energy decides.

        False for a joint network, whose force depends on the momentum and has neither
        property; and for `"cooldown"`, which changes the integrator in mid-tree because
        of what the tree met, so that a tree grown from its other leaves would not be
        the same.
        """
        return self._is_separable and self._parameters["error_monitor"] == "none"

    @property
    def _is_separable(self) -> bool:
        return bool(getattr(self.network, "separable", True))

    def experimental_with_shard_axes(
        self, shard_axis_names: Sequence[Any] | None
    ) -> "LatentHNNNoUTurnSampler":
        """Accepts that nothing is sharded; the network needs whole positions."""
        if any(name for name in shard_axis_names or ()):
            raise NotImplementedError(
                f"`shard_axis_names` is {shard_axis_names}; a state whose parts are "
                "sharded is not supported, since the network needs whole positions. "
                "Chains can be sharded."
            )
        return self

    def bootstrap_results(self, init_state: Any) -> LatentHNNKernelResults:
        """Results to start a chain with: one density for each chain, no gradient.

        Args:
            init_state: a Tensor, or a list or tuple of Tensors, `[batch..., event...]`.

        Returns:
            The results.

        Raises:
            TypeError: for a state that is nested or a dict.
            ValueError: for a state that does not fit the network or the target, or
                that has no finite density (where values are known).
        """
        with tf.name_scope(self.name + ".bootstrap_results"):
            parts = state_parts(init_state, "init_state")
            log_prob = tf.convert_to_tensor(self.target_log_prob_fn(*parts))
            validation.check_log_prob(log_prob, parts)
            layout = ChainLayout(init_state, log_prob)
            validation.check_dimension(self.network, layout.dim)
            step_size = tf.nest.map_structure(
                lambda s: tf.convert_to_tensor(s, log_prob.dtype, name="step_size"),
                self.step_size,
            )
            layout.step_to_matrix(step_size)  # Refuses a wrong number of step sizes.
            zeros = tf.zeros_like(log_prob, dtype=tf.int32)
            false = tf.zeros_like(log_prob, dtype=tf.bool)
            return LatentHNNKernelResults(
                target_log_prob=log_prob,
                step_size=step_size,
                log_accept_ratio=tf.zeros_like(log_prob),
                leapfrogs_taken=zeros,
                is_accepted=false,
                reach_max_depth=false,
                has_divergence=false,
                energy=-log_prob,
                seed=tf.zeros([2], tf.int32),
                lhnn=network_weights(self.network),
                fallback_remaining=zeros,
                num_fallbacks=zeros,
                target_gradients=zeros,
                target_evaluations=tf.ones_like(zeros),
                target_gradient_calls=tf.zeros([], tf.int32),
                target_evaluation_calls=tf.ones([], tf.int32),
                momentum_distribution=(
                    _tfp_compat.unit_momentum(parts, log_prob.shape.rank)
                    if self._is_separable
                    else UnitMass()
                ),
            )

    def one_step(
        self,
        current_state: Any,
        previous_kernel_results: LatentHNNKernelResults,
        seed: Any = None,
    ) -> tuple[Any, LatentHNNKernelResults]:
        """One transition of every chain.

        Args:
            current_state: a Tensor, or a list or tuple of Tensors,
                `[batch..., event...]`.
            previous_kernel_results: of the last transition, or `bootstrap_results`.
            seed: as `tfp.random.sanitize_seed` takes it.

        Returns:
            The new state, in the caller's structure, and the new results.
        """
        with tf.name_scope(self.name + ".one_step"):
            previous = previous_kernel_results
            seed = tfp.random.sanitize_seed(seed)
            layout = ChainLayout(current_state, previous.target_log_prob)
            position = layout.to_matrix(current_state)
            inverse_mass = self._inverse_mass(layout, previous.momentum_distribution)
            tree = self._grow_tree(
                layout,
                position,
                previous,
                inverse_mass,
                draw(seed, position, inverse_mass),
            )
            return layout.to_state(tree.proposal.position), _results(
                layout, previous, tree, seed
            )

    def _grow_tree(
        self,
        layout: ChainLayout,
        position: tf.Tensor,
        previous: LatentHNNKernelResults,
        inverse_mass: tf.Tensor | None,
        randomness: Randomness,
    ) -> TreeState:
        momentum = randomness.momentum
        log_prob = layout.to_rows(previous.target_log_prob)
        monitor = self._monitor(layout, previous, inverse_mass)
        start, monitor_state = monitor.begin_draw(
            position, momentum, _monitor_state(layout, previous)
        )
        settings = Settings(
            step=layout.step_to_matrix(previous.step_size),
            max_energy_diff=self._parameters["max_energy_diff"],
            max_tree_depth=self._parameters["max_tree_depth"],
            tables=self._tables,
            weights=TRAJECTORY_SAMPLING[self._parameters["trajectory_sampling"]],
            monitor=monitor,
        )
        energy = kinetic_energy(momentum, inverse_mass) - log_prob
        tree = build_tree(settings, start, log_prob, energy, monitor_state, randomness)
        return tree._replace(monitor=monitor.end_draw(tree.monitor))

    def _monitor(
        self,
        layout: ChainLayout,
        previous: LatentHNNKernelResults,
        inverse_mass: tf.Tensor | None,
    ) -> Monitor:
        network = NetworkSource(self.network, previous.lhnn)
        target = TargetSource(layout.on_matrix(self.target_log_prob_fn))
        if self._parameters["error_monitor"] == "none":
            return NoMonitor(network, target, inverse_mass)
        return CooldownMonitor(
            network,
            target,
            inverse_mass,
            self._parameters["max_hnn_energy_diff"],
            self._parameters["num_fallback_samples"],
        )

    def _inverse_mass(
        self, layout: ChainLayout, momentum_distribution: Any
    ) -> tf.Tensor | None:
        if isinstance(momentum_distribution, UnitMass):
            return None
        if not self._is_separable:
            raise ValueError(MASS_NEEDS_SEPARABLE)
        return layout.columns_to_matrix(
            _tfp_compat.inverse_mass_parts(momentum_distribution)
        )


def _monitor_state(
    layout: ChainLayout, previous: LatentHNNKernelResults
) -> MonitorState:
    remaining = layout.to_rows(previous.fallback_remaining)
    return MonitorState(
        in_fallback=tf.zeros_like(remaining, dtype=tf.bool),
        fallback_remaining=remaining,
        num_fallbacks=layout.to_rows(previous.num_fallbacks),
        calls=TargetCalls(
            tf.stack(
                [
                    layout.to_rows(previous.target_evaluations),
                    layout.to_rows(previous.target_gradients),
                ]
            ),
            tf.stack(
                [previous.target_evaluation_calls, previous.target_gradient_calls]
            ),
        ),
    )


def _results(
    layout: ChainLayout,
    previous: LatentHNNKernelResults,
    tree: TreeState,
    seed: tf.Tensor,
) -> LatentHNNKernelResults:
    progress, calls = tree.progress, tree.monitor.calls
    mean_accept = progress.accept_sum / tf.cast(
        progress.num_leaves, progress.accept_sum.dtype
    )
    batch = layout.to_batch
    return LatentHNNKernelResults(
        target_log_prob=batch(tree.proposal.log_prob),
        step_size=previous.step_size,
        log_accept_ratio=batch(tf.math.log(mean_accept)),
        leapfrogs_taken=batch(progress.num_leaves),
        is_accepted=batch(tree.is_accepted),
        reach_max_depth=batch(progress.is_active),
        has_divergence=batch(progress.is_divergent),
        energy=batch(tree.proposal.energy),
        seed=seed,
        lhnn=previous.lhnn,
        fallback_remaining=batch(tree.monitor.fallback_remaining),
        num_fallbacks=batch(tree.monitor.num_fallbacks),
        target_gradients=batch(calls.needed[1]),
        target_evaluations=batch(calls.needed[0]),
        target_gradient_calls=calls.executed[1],
        target_evaluation_calls=calls.executed[0],
        momentum_distribution=previous.momentum_distribution,
    )
