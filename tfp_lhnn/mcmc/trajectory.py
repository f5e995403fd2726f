"""The No-U-Turn tree: doublings outside, leaves inside, no recursion.

The same tree as Hoffman and Gelman's Algorithm 3 builds by recursion: leaves come in
the same order, and a leaf is compared with the first leaf of every sub-tree that it
closes (`uturn`). Choosing among leaves one by one, as they come, has the same law as
choosing between the halves of each sub-tree.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from tfp_lhnn.mcmc.error_monitor import Leaf, Monitor, MonitorState, Reference
from tfp_lhnn.mcmc.integrator import PhasePoint, select_chains
from tfp_lhnn.mcmc.proposal import LeafWeights, Proposal, choose
from tfp_lhnn.mcmc.randomness import Randomness, counted_uniform
from tfp_lhnn.mcmc.uturn import (
    Checkpoints,
    SubtreeTables,
    new_checkpoints,
    turns,
    turns_within,
)

__all__ = ["Progress", "Settings", "TreeState", "build_tree"]


class Settings(NamedTuple):
    """What stays fixed while a tree grows.

    Attributes:
        step: step sizes, `[1, 1]`, `[1, dim]` or `[chains, dim]`.
        max_energy_diff: a leaf with `ε` above it stops the tree (`Δ_max^lf`).
        max_tree_depth: number of doublings.
        tables: of `SubtreeTables(max_tree_depth)`.
        weights: how leaves are weighed.
        monitor: whose gradients are used.
    """

    step: tf.Tensor
    max_energy_diff: float
    max_tree_depth: int
    tables: SubtreeTables
    weights: type[LeafWeights]
    monitor: Monitor


class Progress(NamedTuple):
    """How far each chain's tree has come.

    Attributes:
        has_ended: it grows no more, `[chains]` bool.
        is_divergent: a leaf stopped it by its energy, `[chains]` bool.
        sums: over the leaves, `[kinds + 1, chains]`: first their number, then, for each
            of a leaf's `errors`, `min(1, exp(H₀ − H))`. One tensor, since each that a
            loop carries costs it time; whole numbers are exact in it up to 2²⁴.
    """

    has_ended: tf.Tensor
    is_divergent: tf.Tensor
    sums: tf.Tensor

    @property
    def is_active(self) -> tf.Tensor:
        """It still grows, `[chains]` bool."""
        return ~self.has_ended

    @property
    def num_leaves(self) -> tf.Tensor:
        """Leapfrog steps taken, `[chains]` int32."""
        return tf.cast(self.sums[0], tf.int32)

    @property
    def log_mean_accept(self) -> tf.Tensor:
        """Log of the mean of `min(1, exp(H₀ − H))` over the leaves, `[kinds, chains]`.

        As in a leaf's `errors`: first with the energy that drives leapfrog, last with
        that of the density which is sampled.
        """
        return tf.math.log(self.sums[1:] / self.sums[0])


class TreeState(NamedTuple):
    """The tree after some doublings.

    Attributes:
        depth: number of doublings, `[]` int32.
        left: end with the smallest time.
        right: end with the largest time.
        proposal: the next draw, as far as it is known.
        is_accepted: whether it is another point than the start, `[chains]`.
        progress: of each chain.
        checkpoints: room for the U-turn check; carried so that it is allocated once.
        monitor: state of the monitor.
    """

    depth: tf.Tensor
    left: PhasePoint
    right: PhasePoint
    proposal: Proposal
    is_accepted: tf.Tensor
    progress: Progress
    checkpoints: Checkpoints
    monitor: MonitorState


class _SubtreeState(NamedTuple):
    """The new half of a tree after some leaves; fields as in `TreeState`."""

    leaf: tf.Tensor
    point: PhasePoint
    proposal: Proposal
    progress: Progress
    checkpoints: Checkpoints
    monitor: MonitorState


def build_tree(
    settings: Settings,
    position: tf.Tensor,
    log_prob: tf.Tensor,
    monitor_state: MonitorState,
    randomness: Randomness,
) -> TreeState:
    """Doubles the tree until every chain has made a U-turn, diverged or had enough.

    Args:
        settings: what stays fixed.
        position: where the draw starts, `[chains, dim]`.
        log_prob: the target's log density there, `[chains]`.
        monitor_state: what the monitor remembers of the last draw.
        randomness: all that is random.

    Returns:
        The finished tree.
    """
    log_height = settings.weights.log_height(randomness.log_uniform)
    first, reference, monitor_state = settings.monitor.begin_draw(
        position, randomness.momentum, log_prob, log_height, monitor_state
    )
    start = first.point
    nowhere = tf.zeros_like(log_height, dtype=tf.bool)
    initial = TreeState(
        depth=tf.zeros([], tf.int32),
        left=start,
        right=start,
        proposal=Proposal(
            start.position,
            tf.stack([first.log_prob, first.kinetic]),
            tf.where(
                reference.has_density,
                _fill_like(log_height, settings.weights.start),
                _fill_like(log_height, settings.weights.nothing),
            ),
        ),
        is_accepted=nowhere,
        progress=Progress(
            has_ended=nowhere,
            is_divergent=nowhere,
            sums=tf.zeros_like(tf.stack([first.errors[0], *first.errors])),
        ),
        checkpoints=new_checkpoints(settings.tables, start.position),
        monitor=monitor_state,
    )

    def grows(tree: TreeState) -> tf.Tensor:
        return (tree.depth < settings.max_tree_depth) & tf.reduce_any(
            tree.progress.is_active
        )

    def double(tree: TreeState) -> tuple[TreeState]:
        return (_double(settings, reference, randomness, tree),)

    (tree,) = tf.while_loop(grows, double, (initial,))
    return tree._replace(monitor=settings.monitor.end_draw(tree.monitor))


def _double(
    settings: Settings,
    reference: Reference,
    randomness: Randomness,
    tree: TreeState,
) -> TreeState:
    """Adds as many leaves as there are, at one end or the other."""
    is_forward = randomness.is_forward(tree.depth)
    step = tf.where(is_forward[:, tf.newaxis], settings.step, -settings.step)
    half = _build_subtree(settings, step, reference, randomness, tree, is_forward)
    # A half that was stopped gives no draw: its other end might not lead back here.
    is_complete = half.progress.is_active
    is_new = is_complete & settings.weights.is_chosen(
        counted_uniform(randomness.merge_key, tree.depth, step.dtype),
        half.proposal.weight,
        tree.proposal.weight,
    )
    left = select_chains(is_forward, tree.left, half.point)
    right = select_chains(is_forward, half.point, tree.right)
    turned = turns(
        (right.position - left.position) / settings.step, left.momentum, right.momentum
    )
    return TreeState(
        depth=tree.depth + 1,
        left=left,
        right=right,
        proposal=choose(
            is_new,
            half.proposal,
            tree.proposal,
            settings.weights.add(tree.proposal.weight, half.proposal.weight),
        ),
        is_accepted=tree.is_accepted | is_new,
        progress=half.progress._replace(has_ended=half.progress.has_ended | turned),
        checkpoints=half.checkpoints,
        monitor=half.monitor,
    )


def _build_subtree(
    settings: Settings,
    step: tf.Tensor,
    reference: Reference,
    randomness: Randomness,
    tree: TreeState,
    is_forward: tf.Tensor,
) -> _SubtreeState:
    """The new half: `2 ** depth` leaves, or fewer if every chain stops."""
    num_leaves = tf.bitwise.left_shift(1, tree.depth)
    inverse_step = 1.0 / step
    slots = tf.constant(settings.tables.slots)
    initial = _SubtreeState(
        leaf=tf.zeros([], tf.int32),
        point=select_chains(is_forward, tree.right, tree.left),
        proposal=tree.proposal._replace(
            weight=_fill_like(reference.log_height, settings.weights.nothing)
        ),
        progress=tree.progress,
        checkpoints=tree.checkpoints,
        monitor=tree.monitor,
    )

    def grows(half: _SubtreeState) -> tf.Tensor:
        return (half.leaf < num_leaves) & tf.reduce_any(half.progress.is_active)

    def add_leaf(half: _SubtreeState) -> tuple[_SubtreeState]:
        is_active = half.progress.is_active
        # Chains that are done stand still, so that the target sees no wild positions.
        leaf, monitor = settings.monitor.leaf(
            half.point,
            tf.where(is_active[:, tf.newaxis], step, 0.0),
            reference,
            is_active,
            half.monitor,
        )
        errors = _slice_errors(leaf, reference)
        error = errors[-1]
        # Counted on from the leaves of earlier halves: no count comes twice in a draw.
        uniform = counted_uniform(
            randomness.leaf_key, num_leaves - 1 + half.leaf, error.dtype
        )
        leaf_slots = slots[half.leaf]
        end = leaf.point
        # Written first and read afterwards, so that XLA can update it in place. The
        # slots that are read are not the one that is written.
        checkpoints = half.checkpoints.write(leaf_slots[0], end.position, end.momentum)
        progress = _advance(
            half.progress,
            leaf,
            is_divergent=[e > settings.max_energy_diff for e in errors],
            # Without a density at the start, on to the first leaf with one.
            may_stop=reference.has_density,
        )
        has_ended = turns_within(
            checkpoints,
            leaf_slots[1:],
            end.position,
            end.momentum,
            inverse_step,
            progress.has_ended,
        )
        return (
            _SubtreeState(
                leaf=half.leaf + 1,
                point=end,
                proposal=_add_to_proposal(
                    settings.weights, half.proposal, leaf, error, is_active, uniform
                ),
                progress=progress._replace(has_ended=has_ended),
                checkpoints=checkpoints,
                monitor=monitor,
            ),
        )

    (half,) = tf.while_loop(grows, add_leaf, (initial,))
    return half


def _fill_like(values: tf.Tensor, number: float) -> tf.Tensor:
    return tf.fill(tf.shape(values), tf.cast(number, values.dtype))


def _slice_errors(leaf: Leaf, reference: Reference) -> list[tf.Tensor]:
    """`ε = H + ln u` in each of the energies, `[chains]` each.

    Infinite where anything about the leaf is not finite. Zero for all other leaves of a
    chain that started without a density: they count alike.
    """

    def slice_error(error: tf.Tensor) -> tf.Tensor:
        # A gradient or position that is not finite makes the kinetic energy so too.
        value = tf.where(reference.has_density, error + reference.log_height, 0.0)
        return tf.where(tf.math.is_finite(error), value, float("inf"))

    return [slice_error(error) for error in leaf.errors]


def _add_to_proposal(
    weights: type[LeafWeights],
    proposal: Proposal,
    leaf: Leaf,
    error: tf.Tensor,
    is_active: tf.Tensor,
    uniform: tf.Tensor,
) -> Proposal:
    """Takes a leaf into the set and chooses it with its share of the weight."""
    weight = tf.where(
        is_active, weights.leaf(error), tf.cast(weights.nothing, error.dtype)
    )
    total = weights.add(proposal.weight, weight)
    new = Proposal(leaf.point.position, tf.stack([leaf.log_prob, leaf.kinetic]), weight)
    return choose(weights.is_chosen(uniform, weight, total), new, proposal, total)


def _advance(
    progress: Progress,
    leaf: Leaf,
    is_divergent: Sequence[tf.Tensor],
    may_stop: tf.Tensor,
) -> Progress:
    """Counts a leaf for the chains that are active, and ends those that diverge.

    The last of `is_divergent`, `[chains]` each, belongs to the energy of the density
    that is sampled: it stops the tree, unless the chain is not in `may_stop`. The mean
    of acceptance in each energy takes a leaf that diverges in that energy as zero, and
    for the chains that may not stop, which have no energy to start from, any leaf.
    """
    # A number comes second: in a graph it takes the dtype of what comes first.
    summands = [tf.ones_like(leaf.kinetic)] + [
        tf.where(may_stop & ~diverges, tf.exp(tf.minimum(-error, 0.0)), 0.0)
        for error, diverges in zip(leaf.errors, is_divergent, strict=True)
    ]
    has_stopped = progress.is_active & is_divergent[-1] & may_stop
    return Progress(
        has_ended=progress.has_ended | has_stopped,
        is_divergent=progress.is_divergent | has_stopped,
        sums=progress.sums + tf.where(progress.is_active, tf.stack(summands), 0.0),
    )
