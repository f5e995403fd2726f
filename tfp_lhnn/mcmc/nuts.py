"""LatentHNNNoUTurnSampler: the paper's sampler as a TFP transition kernel."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lhnn.mcmc import validation
from tfp_lhnn.mcmc.chain_layout import ChainLayout
from tfp_lhnn.mcmc.cooldown import CooldownMonitor
from tfp_lhnn.mcmc.error_monitor import Monitor, NoMonitor
from tfp_lhnn.mcmc.network_kernel import NetworkKernel, Start
from tfp_lhnn.mcmc.pointwise import PointwiseMonitor, ResidualRule
from tfp_lhnn.mcmc.randomness import Randomness, draw
from tfp_lhnn.mcmc.results import LatentHNNKernelResults
from tfp_lhnn.mcmc.trajectory import TreeState, build_tree
from tfp_lhnn.support.arguments import check_count
from tfp_lhnn.support.state_layout import state_parts

__all__ = ["LatentHNNNoUTurnSampler"]


class LatentHNNNoUTurnSampler(NetworkKernel):
    """NUTS whose leapfrog runs on the gradients of a latent Hamiltonian network.

    Every leaf of the tree is weighted by the true density, at one evaluation per leaf.
    The true gradient is needed only where the network is wrong; `error_monitor` says
    what happens there:

    * `"cooldown"` (the paper's Algorithms 1 and 2): a leaf whose energy error exceeds
      `max_hnn_energy_diff` is redone with true gradients, and so are the rest of the
      tree and the next draws. The switch depends on the tree's earlier leaves, so the
      chain does not leave the target exactly invariant; `docs/algorithm.md` has the
      measured bias.
    * `"pointwise"`: each point uses the network's gradient if the network's energy
      there is right to within `max_residual`, and the true gradient otherwise. The
      choice depends on the position alone, so the chain is exact. Needs a separable
      network.
    * `"none"`: always the network's gradients. The chain is exact for a separable
      network, however wrong that is, but gets stuck where it is wrong.

    The kernel works wherever `tfp.mcmc.NoUTurnSampler` does: in `sample_chain`, the
    adaptation wrappers, `tf.function(jit_compile=True)`. Its results carry the weights
    of the network, so a resumed chain needs nothing else. Trace them with
    `tfp_lhnn.trace_stats`, which leaves out the weights.

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
            `trainable_variables` and `non_trainable_variables`. Its input is the parts
            of the state, flattened and concatenated.
        step_size: a value, or a list with one for each part of the state. Each
            broadcasts with its part, so each chain may have its own step size.
        max_tree_depth: the tree has up to `2 ** max_tree_depth` points.
        max_hnn_energy_diff: the paper's `Δ_max^hnn`, for `"cooldown"`. With minus
            infinity, every draw is one of plain NUTS.
        max_energy_diff: the paper's `Δ_max^lf`: a leaf with a larger energy error is a
            divergence and stops the tree.
        num_fallback_samples: the paper's `N_lf`: true gradients are used for this many
            draws, including the one in which the monitor fired.
        error_monitor: `"cooldown"`, `"pointwise"` or `"none"`.
        trajectory_sampling: `"slice"` (the paper) or `"multinomial"` (TFP, Stan).
        max_residual: for `"pointwise"`: the network is trusted at `q` if
            `|U(q) − U_θ(q) − network_energy_offset|` is at most this.
        network_energy_offset: for `"pointwise"`: a constant difference `U − U_θ`. A
            trained `LatentHNN` needs none.
        trust_network_fn: for `"pointwise"`, your own rule in place of the two above. It
            takes the parts of the state as the network sees them (unconstrained, inside
            `TransformedTransitionKernel`) and returns where the network is trusted,
            `[batch...]` bool. It must depend on its arguments alone.
        name: prefix of the names of ops.

    Raises:
        TypeError: if the target is not callable, or the network lacks one of these
            attributes.
        ValueError: if a value is out of range; the message names the argument.
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
        max_residual: float = 1.0,
        network_energy_offset: float = 0.0,
        trust_network_fn: Callable[..., tf.Tensor] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(
            {
                "target_log_prob_fn": target_log_prob_fn,
                "network": network,
                "step_size": step_size,
                "max_tree_depth": max_tree_depth,
                "max_hnn_energy_diff": max_hnn_energy_diff,
                "max_energy_diff": max_energy_diff,
                "num_fallback_samples": num_fallback_samples,
                "error_monitor": error_monitor,
                "trajectory_sampling": trajectory_sampling,
                "max_residual": max_residual,
                "network_energy_offset": network_energy_offset,
                "trust_network_fn": trust_network_fn,
                "name": name,
            },
            default_name="latent_hnn_nuts",
        )
        validation.check_thresholds(max_hnn_energy_diff, max_energy_diff)
        check_count("num_fallback_samples", num_fallback_samples, 1)
        validation.check_choice(
            error_monitor, "error_monitor", ("cooldown", "pointwise", "none")
        )
        validation.check_residual_rule(
            max_residual, network_energy_offset, trust_network_fn
        )
        if error_monitor == "pointwise" and not self._is_separable:
            raise ValueError(
                'error_monitor="pointwise" needs a separable network; got one with '
                "`separable=False`, whose force depends on the momentum."
            )

    @property
    def is_calibrated(self) -> bool:
        """Whether the chain leaves the target exactly invariant.

        True for `"none"` and `"pointwise"` with a separable network: leapfrog with any
        force that depends on the position alone is reversible and preserves volume, and
        leaves are weighted by the true energy.

        False for a joint network: its force depends on the momentum, so leapfrog has
        neither property. Also false for `"cooldown"`: earlier leaves can change the
        integrator in the middle of a tree, so a tree grown from another of its leaves
        would be different.
        """
        return self._is_separable and self._parameters["error_monitor"] != "cooldown"

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
            fields = self._first_results(init_state)
            if self._parameters["trust_network_fn"] is not None:
                validation.check_trust(
                    self._parameters["trust_network_fn"](*state_parts(init_state)),
                    fields["target_log_prob"],
                )
            zeros = tf.zeros_like(fields["leapfrogs_taken"])
            return LatentHNNKernelResults(
                **fields,
                log_true_accept_ratio=tf.zeros_like(fields["target_log_prob"]),
                fallback_remaining=zeros,
                num_fallbacks=zeros,
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
            previous_kernel_results: results of the last transition or of
                `bootstrap_results`.
            seed: as `tfp.random.sanitize_seed` takes it.

        Returns:
            The new state, in the caller's structure, and the new results.
        """
        with tf.name_scope(self.name + ".one_step"):
            previous = previous_kernel_results
            seed = tfp.random.sanitize_seed(seed)
            start = self._start(current_state, previous)
            randomness = draw(seed, start.position, start.inverse_mass)
            tree = self._grow_tree(start, previous, randomness)
            layout = start.layout
            return layout.to_state(tree.proposal.position), _results(
                layout, previous, tree, seed
            )

    def _grow_tree(
        self, start: Start, previous: LatentHNNKernelResults, randomness: Randomness
    ) -> TreeState:
        return build_tree(
            self._tree_settings(start, previous.step_size, self._monitor(start)),
            start.position,
            start.log_prob,
            start.monitor_state(previous),
            randomness,
        )

    def _monitor(self, start: Start) -> Monitor:
        sources = start.network, start.target, start.inverse_mass
        parameters = self._parameters
        if parameters["error_monitor"] == "none":
            return NoMonitor(*sources)
        if parameters["error_monitor"] == "cooldown":
            return CooldownMonitor(
                *sources,
                parameters["max_hnn_energy_diff"],
                parameters["num_fallback_samples"],
            )
        rule = parameters["trust_network_fn"]
        return PointwiseMonitor(
            *sources,
            ResidualRule(
                parameters["network_energy_offset"], parameters["max_residual"]
            )
            if rule is None
            else start.layout.on_matrix(
                lambda *parts: tf.convert_to_tensor(rule(*parts))
            ),
        )


def _results(
    layout: ChainLayout,
    previous: LatentHNNKernelResults,
    tree: TreeState,
    seed: tf.Tensor,
) -> LatentHNNKernelResults:
    progress, calls = tree.progress, tree.monitor.calls
    batch = layout.to_batch
    log_accept, log_true_accept = tf.unstack(progress.log_mean_accept)
    return LatentHNNKernelResults(
        target_log_prob=batch(tree.proposal.log_prob),
        step_size=previous.step_size,
        log_accept_ratio=batch(log_accept),
        log_true_accept_ratio=batch(log_true_accept),
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
