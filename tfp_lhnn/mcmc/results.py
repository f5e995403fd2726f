"""What a transition returns beside the state, and what to trace of it."""

import collections
from typing import Any, NamedTuple

import tensorflow as tf

from tfp_lhnn.mcmc.gradient_source import NetworkWeights

__all__ = [
    "LatentHNNDelayedAcceptanceResults",
    "LatentHNNDelayedAcceptanceStats",
    "LatentHNNKernelResults",
    "LatentHNNStats",
    "NoProposal",
    "UnitMass",
    "trace_stats",
]


class NoProposal(collections.namedtuple("NoProposal", [])):
    """Stands where `ReplicaExchangeMC` wants a proposal to blank out; holds nothing."""

    __slots__ = ()

    def _replace(self, **fields: Any) -> "NoProposal":
        """Takes any field in silence: mass-matrix adaptation sets one on proposals."""
        del fields
        return self


class UnitMass(NamedTuple):
    """Stands for the momentum distribution where the mass cannot be changed."""

    @property
    def model(self) -> Any:
        """What TFP's adaptation reads in order to change the mass."""
        raise ValueError(MASS_NEEDS_SEPARABLE)


MASS_NEEDS_SEPARABLE = (
    "a joint network (`separable=False`) has learned the kinetic energy ½|p|² with the "
    "potential, so the mass matrix cannot be adapted. Train a separable network, or "
    "leave the mass matrix alone and adapt the step size only."
)


class LatentHNNKernelResults(NamedTuple):
    """Results of one `LatentHNNNoUTurnSampler` transition.

    Attributes:
        target_log_prob: log density at the new state, `[batch]`.
        step_size: as given to the kernel or set by step-size adaptation.
        log_accept_ratio: log of the mean over the tree's leaves of `min(1, exp(−D))`,
            `[batch]`. `D` is the error of leapfrog itself: the change since the start,
            summed up by steps, of the energy whose gradient drives it (the network's on
            network leaves, the target's on true ones). Step-size adaptation reads it.
        log_true_accept_ratio: the same with the error in the *true* energy, by which
            leaves are weighed, `[batch]`. What it has less than the other is the
            network's fault, which no step mends.
        leapfrogs_taken: leaves of the tree, `[batch]` int32; one redone with true
            gradients counts once.
        is_accepted: whether the new state is another leaf than the start, `[batch]`.
        reach_max_depth: whether the tree was still growing at the end, `[batch]`.
        has_divergence: whether a leaf stopped the tree by its energy, `[batch]`.
        energy: the Hamiltonian `H = −log π(q) + ½ pᵀM⁻¹p` of the chosen leaf,
            `[batch]`: large where the density is small, as in Stan and ArviZ. (TFP's
            own NUTS reports minus that.)
        seed: the seed of the transition.
        lhnn: the model: weights of the network as tensors.
        fallback_remaining: draws still to be made with true gradients, `[batch]` int32.
        num_fallbacks: times the monitor has fired, cumulative, `[batch]` int32.
        target_gradients: gradients of the target that each chain needed, cumulative,
            `[batch]` int32.
        target_evaluations: densities that each chain needed, cumulative, `[batch]`
            int32. An evaluation of value and gradient counts once in each.
        target_gradient_calls: gradients executed, each for all chains at once,
            cumulative, `[]` int32.
        target_evaluation_calls: densities executed, alike, `[]` int32.
        momentum_distribution: distribution of the momentum; its inverse covariance is
            the mass matrix's inverse that `DiagonalMassMatrixAdaptation` sets.
        proposed_state: empty; `ReplicaExchangeMC` wants the field.
        proposed_results: empty; `ReplicaExchangeMC` wants the field.
    """

    target_log_prob: tf.Tensor
    step_size: Any
    log_accept_ratio: tf.Tensor
    log_true_accept_ratio: tf.Tensor
    leapfrogs_taken: tf.Tensor
    is_accepted: tf.Tensor
    reach_max_depth: tf.Tensor
    has_divergence: tf.Tensor
    energy: tf.Tensor
    seed: tf.Tensor
    lhnn: NetworkWeights
    fallback_remaining: tf.Tensor
    num_fallbacks: tf.Tensor
    target_gradients: tf.Tensor
    target_evaluations: tf.Tensor
    target_gradient_calls: tf.Tensor
    target_evaluation_calls: tf.Tensor
    momentum_distribution: Any
    proposed_state: tuple[()] = ()
    proposed_results: NoProposal = NoProposal()


class LatentHNNStats(NamedTuple):
    """What `trace_stats` keeps of each draw; fields as in `LatentHNNKernelResults`."""

    target_log_prob: tf.Tensor
    step_size: Any
    log_accept_ratio: tf.Tensor
    log_true_accept_ratio: tf.Tensor
    leapfrogs_taken: tf.Tensor
    is_accepted: tf.Tensor
    reach_max_depth: tf.Tensor
    has_divergence: tf.Tensor
    energy: tf.Tensor
    seed: tf.Tensor
    fallback_remaining: tf.Tensor
    num_fallbacks: tf.Tensor
    target_gradients: tf.Tensor
    target_evaluations: tf.Tensor
    target_gradient_calls: tf.Tensor
    target_evaluation_calls: tf.Tensor


class LatentHNNDelayedAcceptanceResults(NamedTuple):
    """Results of one `LatentHNNDelayedAcceptanceSampler` transition.

    Attributes:
        target_log_prob: log density at the new state, `[batch]`.
        step_size: as given to the kernel or set by step-size adaptation.
        log_accept_ratio: log of the mean over the leaves of `min(1, exp(H₀ − H))` with
            the energy of the density that the tree was built on: the network's, or, in
            a true transition, the target's, `[batch]`. Step-size adaptation reads it.
        log_delayed_accept_ratio: `log π(q')π_θ(q) / (π(q)π_θ(q'))` of the proposal
            `q'`, `[batch]`; minus infinity where that is no finite number. Zero in a
            true transition, which has nothing to correct, and for a chain that starts
            without a finite density.
        is_true_transition: whether true gradients were used, `[batch]` bool; the same
            for all chains.
        leapfrogs_taken: leaves of all trees of the draw, `[batch]` int32.
        is_accepted: whether the new state is another than the start, `[batch]`.
        reach_max_depth: whether a tree was still growing at its end, `[batch]`.
        has_divergence: whether a leaf stopped a tree by its energy, `[batch]`.
        energy: `−log π(q) + ½ pᵀM⁻¹p` at the new state, with the momentum that the
            tree gave it, `[batch]`: large where the density is small, as in Stan and
            ArviZ.
        seed: the seed of the transition.
        lhnn: the model: weights of the network as tensors.
        target_gradients: gradients of the target that each chain needed, cumulative,
            `[batch]` int32.
        target_evaluations: densities that each chain needed, cumulative, `[batch]`
            int32. An evaluation of value and gradient counts once in each.
        target_gradient_calls: gradients executed, each for all chains at once,
            cumulative, `[]` int32.
        target_evaluation_calls: densities executed, alike, `[]` int32.
        momentum_distribution: distribution of the momentum; its inverse covariance is
            the mass matrix's inverse that `DiagonalMassMatrixAdaptation` sets.
        proposed_state: empty; `ReplicaExchangeMC` wants the field.
        proposed_results: empty; `ReplicaExchangeMC` wants the field.
    """

    target_log_prob: tf.Tensor
    step_size: Any
    log_accept_ratio: tf.Tensor
    log_delayed_accept_ratio: tf.Tensor
    is_true_transition: tf.Tensor
    leapfrogs_taken: tf.Tensor
    is_accepted: tf.Tensor
    reach_max_depth: tf.Tensor
    has_divergence: tf.Tensor
    energy: tf.Tensor
    seed: tf.Tensor
    lhnn: NetworkWeights
    target_gradients: tf.Tensor
    target_evaluations: tf.Tensor
    target_gradient_calls: tf.Tensor
    target_evaluation_calls: tf.Tensor
    momentum_distribution: Any
    proposed_state: tuple[()] = ()
    proposed_results: NoProposal = NoProposal()


class LatentHNNDelayedAcceptanceStats(NamedTuple):
    """What `trace_stats` keeps; see `LatentHNNDelayedAcceptanceResults`."""

    target_log_prob: tf.Tensor
    step_size: Any
    log_accept_ratio: tf.Tensor
    log_delayed_accept_ratio: tf.Tensor
    is_true_transition: tf.Tensor
    leapfrogs_taken: tf.Tensor
    is_accepted: tf.Tensor
    reach_max_depth: tf.Tensor
    has_divergence: tf.Tensor
    energy: tf.Tensor
    seed: tf.Tensor
    target_gradients: tf.Tensor
    target_evaluations: tf.Tensor
    target_gradient_calls: tf.Tensor
    target_evaluation_calls: tf.Tensor


_STATS: dict[type, Any] = {
    LatentHNNKernelResults: LatentHNNStats,
    LatentHNNDelayedAcceptanceResults: LatentHNNDelayedAcceptanceStats,
}

# Where TFP's wrappers keep the results of the kernel inside them.
_INNER_FIELDS = ("inner_results", "post_swap_replica_results")


def trace_stats(
    state: Any, results: Any, *reductions: Any
) -> LatentHNNStats | LatentHNNDelayedAcceptanceStats:
    """A `trace_fn` for `tfp.mcmc.sample_chain`: everything but the model.

    Tracing all results would store every weight of the network once per draw.

    Args:
        state: the chain's state; not traced, since `sample_chain` returns it anyway.
        results: results of one of our kernels, alone or inside any of TFP's wrappers.
        *reductions: what `tfp.experimental.mcmc.sample_chain` adds for its reducers;
            not traced, since it returns them anyway.

    Returns:
        The statistics of one draw.

    Raises:
        TypeError: if there are no results of our kernels inside `results`.
    """
    del state, reductions
    inner = results
    while type(inner) not in _STATS:
        for field in _INNER_FIELDS:
            if hasattr(inner, field):
                inner = getattr(inner, field)
                break
        else:
            raise TypeError(
                "`results` must hold those of a kernel of tfp_lhnn; got "
                f"{type(results).__name__}, in which there are none."
            )
    stats = _STATS[type(inner)]
    return stats(*(getattr(inner, name) for name in stats._fields))
