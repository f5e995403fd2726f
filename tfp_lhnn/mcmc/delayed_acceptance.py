"""LatentHNNDelayedAcceptanceSampler: NUTS on the network, one true density per draw."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lhnn.mcmc import validation
from tfp_lhnn.mcmc.error_monitor import OneSourceMonitor
from tfp_lhnn.mcmc.gradient_source import NetworkSource, TargetCalls, TargetSource
from tfp_lhnn.mcmc.integrator import kinetic_energy
from tfp_lhnn.mcmc.network_kernel import NetworkKernel, Start
from tfp_lhnn.mcmc.randomness import Randomness, draw
from tfp_lhnn.mcmc.results import LatentHNNDelayedAcceptanceResults
from tfp_lhnn.mcmc.trajectory import Progress, TreeState, build_tree

__all__ = ["LatentHNNDelayedAcceptanceSampler"]


class LatentHNNDelayedAcceptanceSampler(NetworkKernel):
    """NUTS on the learned density, corrected by one evaluation of the true one.

    Each draw makes one or more NUTS transitions on `π_θ ∝ exp(−U_θ)`, which do not
    evaluate the target. It then accepts `q → q'` with probability
    `min(1, π(q')π_θ(q) / (π(q)π_θ(q')))`. This costs one density and no gradient per
    draw, and the chain is exact however wrong the network is.

    Chains get stuck where the network is bad. A draw is therefore, with probability
    `true_transition_probability`, a NUTS transition with true gradients instead. One
    random number decides for all chains, whatever their states, so that no chain waits
    for another's true transition.

    The kernel works wherever `tfp.mcmc.NoUTurnSampler` does; see
    `LatentHNNNoUTurnSampler`.

    #### Example

    ```python
    kernel = tfp_lhnn.LatentHNNDelayedAcceptanceSampler(log_prob, network, 0.1)
    kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(
        kernel, num_adaptation_steps=400, target_accept_prob=0.9)
    draws, stats = tfp.mcmc.sample_chain(
        1000, initial_state, kernel=kernel, num_burnin_steps=500,
        trace_fn=tfp_lhnn.trace_stats, seed=[1, 2])
    ```

    Small steps cost no evaluations of the target here, so a target acceptance of 0.9 or
    more is suitable.

    Args:
        target_log_prob_fn: takes the parts of the state, `[batch..., event...]` each,
            and returns their log density `[batch...]`.
        network: a trained separable `tfp_lhnn.LatentHNN`, or anything with its
            `stateless_call`, `trainable_variables` and `non_trainable_variables`. Its
            input is the parts of the state, flattened and concatenated.
        step_size: a value, or a list with one for each part of the state. Each
            broadcasts with its part, so each chain may have its own step size.
        max_tree_depth: a tree has up to `2 ** max_tree_depth` points.
        max_energy_diff: a leaf with a larger energy error is a divergence and stops the
            tree.
        num_surrogate_transitions: NUTS transitions on the network before the target is
            evaluated. An int, an integer Tensor or a `tf.Variable`; the last two can
            change without another compilation.
        true_transition_probability: probability of a transition with true gradients.
        trajectory_sampling: `"slice"` or `"multinomial"`.
        name: prefix of the names of ops.

    Raises:
        TypeError: if the target is not callable, or the network lacks one of these
            attributes.
        ValueError: if a value is out of range, or the network is joint; the message
            names the argument.
    """

    def __init__(
        self,
        target_log_prob_fn: Callable[..., tf.Tensor],
        network: Any,
        step_size: Any,
        max_tree_depth: int = 10,
        max_energy_diff: float = 1000.0,
        num_surrogate_transitions: Any = 1,
        true_transition_probability: float = 0.01,
        trajectory_sampling: str = "multinomial",
        name: str | None = None,
    ) -> None:
        super().__init__(
            {
                "target_log_prob_fn": target_log_prob_fn,
                "network": network,
                "step_size": step_size,
                "max_tree_depth": max_tree_depth,
                "max_energy_diff": max_energy_diff,
                "num_surrogate_transitions": num_surrogate_transitions,
                "true_transition_probability": true_transition_probability,
                "trajectory_sampling": trajectory_sampling,
                "name": name,
            },
            default_name="latent_hnn_delayed_acceptance",
        )
        validation.check_max_energy_diff(max_energy_diff)
        validation.check_num_transitions(
            num_surrogate_transitions, "num_surrogate_transitions"
        )
        validation.check_probability(
            true_transition_probability, "true_transition_probability"
        )
        if not self._is_separable:
            raise ValueError(
                "`network` must be separable: delayed acceptance samples from the "
                "density exp(-U_θ(q)), which a joint network (`separable=False`) does "
                "not have."
            )

    @property
    def is_calibrated(self) -> bool:
        """True: the chain leaves the target exactly invariant.

        NUTS is reversible with respect to the density that it samples, and so are
        several NUTS transitions in a row. That density is the network's, and the
        acceptance ratio corrects for the difference. The choice of a true transition
        does not depend on the state.
        """
        return True

    def bootstrap_results(self, init_state: Any) -> LatentHNNDelayedAcceptanceResults:
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
            return LatentHNNDelayedAcceptanceResults(
                **fields,
                log_delayed_accept_ratio=tf.zeros_like(fields["target_log_prob"]),
                is_true_transition=tf.zeros_like(fields["is_accepted"]),
            )

    def one_step(
        self,
        current_state: Any,
        previous_kernel_results: LatentHNNDelayedAcceptanceResults,
        seed: Any = None,
    ) -> tuple[Any, LatentHNNDelayedAcceptanceResults]:
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
            probability = self._parameters["true_transition_probability"]
            coin_seed, tree_seed, accept_seed = tf.unstack(
                tfp.random.split_seed(seed, n=3)
            )

            def by_network() -> _Transition:
                return self._surrogate_transition(
                    start, previous.step_size, tree_seed, accept_seed
                )

            def by_target() -> _Transition:
                return self._true_transition(start, previous.step_size, tree_seed)

            # With probability 0 or 1, the graph has only one of the two trees.
            if probability == 0:
                transition = by_network()
            elif probability == 1:
                transition = by_target()
            else:
                coin = tf.random.stateless_uniform([], coin_seed)
                transition = tf.cond(coin < probability, by_target, by_network)
            return start.layout.to_state(transition.position), _results(
                start, previous, transition, seed
            )

    def _tree(
        self,
        start: Start,
        step_size: Any,
        source: NetworkSource | TargetSource,
        position: tf.Tensor,
        randomness: Randomness,
    ) -> TreeState:
        monitor = OneSourceMonitor(source, start.inverse_mass)
        settings = self._tree_settings(start, step_size, monitor)
        return build_tree(
            settings, position, start.log_prob, start.monitor_state(), randomness
        )

    def _true_transition(
        self, start: Start, step_size: Any, seed: tf.Tensor
    ) -> "_Transition":
        randomness = draw(seed, start.position, start.inverse_mass)
        tree = self._tree(start, step_size, start.target, start.position, randomness)
        return _Transition(
            position=tree.proposal.position,
            log_prob=tree.proposal.log_prob,
            energy=tree.proposal.energy,
            is_accepted=tree.is_accepted,
            progress=tree.progress,
            log_delayed_accept_ratio=tf.zeros_like(start.log_prob),
            is_true=tf.ones_like(tree.is_accepted),
            calls=tree.monitor.calls,
        )

    def _surrogate_transition(
        self, start: Start, step_size: Any, seed: tf.Tensor, accept_seed: tf.Tensor
    ) -> "_Transition":
        """NUTS on the network, accepted or rejected by one density of the target."""
        path = self._surrogate_path(start, step_size, seed)
        log_prob = start.target.log_prob(path.position)
        start_log_prob, _ = start.network.log_prob_and_gradient(start.position)
        # Values of the same density are subtracted first: they may be large, but their
        # differences are not.
        log_ratio = (log_prob - start.log_prob) - (path.log_prob - start_log_prob)
        # A chain without a finite density at its start accepts any state that has one.
        log_ratio = tf.where(tf.math.is_finite(start.log_prob), log_ratio, 0.0)
        # No chain accepts a state without one.
        is_possible = tf.math.is_finite(log_prob) & tf.math.is_finite(log_ratio)
        log_ratio = tf.where(is_possible, log_ratio, float("-inf"))
        uniform = tf.random.stateless_uniform(
            tf.shape(log_ratio), accept_seed, dtype=log_ratio.dtype
        )
        is_accepted = uniform < tf.exp(log_ratio)
        new_log_prob = tf.where(is_accepted, log_prob, start.log_prob)
        return _Transition(
            position=tf.where(
                is_accepted[:, tf.newaxis], path.position, start.position
            ),
            log_prob=new_log_prob,
            energy=tf.where(is_accepted, path.kinetic, path.initial_kinetic)
            - new_log_prob,
            is_accepted=is_accepted & path.has_moved,
            progress=path.progress,
            log_delayed_accept_ratio=log_ratio,
            is_true=tf.zeros_like(is_accepted),
            calls=start.calls.add(densities=[tf.ones_like(is_accepted)]),
        )

    def _surrogate_path(
        self, start: Start, step_size: Any, seed: tf.Tensor
    ) -> "_SurrogatePath":
        """Makes `num_surrogate_transitions` in a row on the network alone."""

        def transition(index: tf.Tensor | int, position: tf.Tensor) -> _SurrogatePath:
            # TF's generator is a keyed hash: neighbouring seeds give unrelated numbers.
            randomness = draw(seed + tf.stack([0, index]), position, start.inverse_mass)
            tree = self._tree(start, step_size, start.network, position, randomness)
            return _SurrogatePath(
                position=tree.proposal.position,
                log_prob=tree.proposal.log_prob,
                kinetic=tree.proposal.kinetic,
                initial_kinetic=kinetic_energy(randomness.momentum, start.inverse_mass),
                has_moved=tree.is_accepted,
                progress=tree.progress,
            )

        number = self._parameters["num_surrogate_transitions"]
        if not tf.is_tensor(number) and number == 1:
            return transition(0, start.position)
        number = tf.convert_to_tensor(number)
        _, path = tf.while_loop(
            lambda i, _: i < number,
            lambda i, path: (i + 1, path.then(transition(i, path.position))),
            (tf.zeros_like(number), _SurrogatePath.of_no_step(start.position)),
        )
        return path


class _SurrogatePath(NamedTuple):
    """The outcome of transitions on the network.

    Attributes:
        position: `[chains, dim]`.
        log_prob: `−U_θ` there, up to the network's constant, `[chains]`.
        kinetic: kinetic energy of the leaf chosen last, `[chains]`.
        initial_kinetic: that of the momentum drawn last, `[chains]`.
        has_moved: whether any transition left its start, `[chains]`.
        progress: of all trees together.
    """

    position: tf.Tensor
    log_prob: tf.Tensor
    kinetic: tf.Tensor
    initial_kinetic: tf.Tensor
    has_moved: tf.Tensor
    progress: Progress

    @classmethod
    def of_no_step(cls, position: tf.Tensor) -> "_SurrogatePath":
        """A path without any transition yet, at `position`, `[chains, dim]`."""
        zero = tf.zeros_like(position[:, 0])
        false = tf.zeros_like(zero, tf.bool)
        return cls(
            position=position,
            log_prob=zero,
            kinetic=zero,
            initial_kinetic=zero,
            has_moved=false,
            progress=Progress(~false, false, tf.stack([zero, zero])),
        )

    def then(self, following: "_SurrogatePath") -> "_SurrogatePath":
        """Joins this path and the one that followed it."""
        before, after = self.progress, following.progress
        return following._replace(
            has_moved=self.has_moved | following.has_moved,
            progress=Progress(
                has_ended=before.has_ended & after.has_ended,
                is_divergent=before.is_divergent | after.is_divergent,
                sums=before.sums + after.sums,
            ),
        )


class _Transition(NamedTuple):
    """The outcome of either kind of transition, with the results' fields by row."""

    position: tf.Tensor
    log_prob: tf.Tensor
    energy: tf.Tensor
    is_accepted: tf.Tensor
    progress: Progress
    log_delayed_accept_ratio: tf.Tensor
    is_true: tf.Tensor
    calls: TargetCalls


def _results(
    start: Start,
    previous: LatentHNNDelayedAcceptanceResults,
    transition: _Transition,
    seed: tf.Tensor,
) -> LatentHNNDelayedAcceptanceResults:
    progress, calls = transition.progress, transition.calls
    batch = start.layout.to_batch
    return LatentHNNDelayedAcceptanceResults(
        target_log_prob=batch(transition.log_prob),
        step_size=previous.step_size,
        log_accept_ratio=batch(progress.log_mean_accept[0]),
        log_delayed_accept_ratio=batch(transition.log_delayed_accept_ratio),
        is_true_transition=batch(transition.is_true),
        leapfrogs_taken=batch(progress.num_leaves),
        is_accepted=batch(transition.is_accepted),
        reach_max_depth=batch(progress.is_active),
        has_divergence=batch(progress.is_divergent),
        energy=batch(transition.energy),
        seed=seed,
        lhnn=previous.lhnn,
        target_gradients=batch(calls.needed[1]),
        target_evaluations=batch(calls.needed[0]),
        target_gradient_calls=calls.executed[1],
        target_evaluation_calls=calls.executed[0],
        momentum_distribution=previous.momentum_distribution,
    )
