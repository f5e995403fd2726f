"""A hole in the density, in its gradient or in the network, on the way or at the start.

No chain ever takes a state without a finite density. One that starts there, where that
could not be known in time to refuse it, leaves.
"""

from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from .helpers import ExactNetwork, make_kernel, poison

NAN, INF = float("nan"), float("inf")


class Hole(NamedTuple):
    """What is added inside the hole; tensors, so that one compilation serves all."""

    to_log_prob: float = 0.0
    to_gradient: float = 0.0
    to_network_energy: float = 0.0
    to_network_gradient: float = 0.0


# What is not finite, and what it is instead.
HOLES = [
    (["log_prob"], [NAN, INF, -INF]),
    (["gradient"], [NAN, INF]),
    (["network_energy"], [NAN, INF, -INF]),
    (["network_gradient"], [NAN, -INF]),
    (["network_energy", "network_gradient"], [NAN, INF]),
]


class HoledNetwork(ExactNetwork):
    """Exact but for the hole; its weights are what is added there."""

    def __init__(self, hole, separable):
        super().__init__(smooth_log_prob)
        self.trainable_variables = [hole.to_network_energy, hole.to_network_gradient]
        self.separable = separable

    def stateless_call(self, trainable, non_trainable, x):
        to_energy, to_gradient = trainable
        x = x[:, :2]  # A joint network gets the momenta too.
        energy, _ = super().stateless_call(
            [], non_trainable, poison_hole(x, to_gradient)
        )
        return energy + add_in_hole(x, to_energy)[:, tf.newaxis], non_trainable


def smooth_log_prob(q):
    return -0.5 * tf.reduce_sum(q**2, axis=-1) - 0.2 * q[..., 1]


def in_hole(q):
    """A slab off the middle that trajectories of a normal density often meet."""
    return (q[..., 0] > 0.7) & (q[..., 0] < 1.6)


def add_in_hole(q, amount):
    return tf.where(in_hole(q), amount, 0.0)


def poison_hole(q, amount):
    return poison(q, add_in_hole(q, amount)[..., tf.newaxis])


def make_holed_kernel(hole, separable=True, **settings):
    def log_prob(q):
        value = smooth_log_prob(poison_hole(q, hole.to_gradient))
        return value + add_in_hole(q, hole.to_log_prob)

    return make_kernel(
        log_prob, HoledNetwork(hole, separable), 0.4, max_tree_depth=3, **settings
    )


class Outcome(NamedTuple):
    """What becomes of chains beside a hole.

    Attributes:
        diverges: some trees stop at it.
        is_entered: some chains come to be in it.
        is_rejected: some proposals in it are refused by delayed acceptance.
    """

    diverges: bool
    is_entered: bool
    is_rejected: bool = False


# A place like others: what is wrong with it is never asked, or made good.
UNSEEN = Outcome(diverges=False, is_entered=True)
DIVERGENCE = Outcome(diverges=True, is_entered=False)
REJECTION = Outcome(diverges=False, is_entered=False, is_rejected=True)
# Of two kinds of draws or leaves one stops there and the other does not.
EITHER = Outcome(diverges=True, is_entered=True)

# In the order of `HOLES`.
HOLED_MODES = {
    # The network is exact outside its own hole, so no true gradient is needed anywhere
    # else; and there true gradients repair the leaf. Its energy is never asked for.
    "cooldown": (
        {"mode": "cooldown"},
        [DIVERGENCE, UNSEEN, UNSEEN, UNSEEN, UNSEEN],
    ),
    "cooldown, multinomial and joint": (
        {"mode": "cooldown", "trajectory_sampling": "multinomial", "separable": False},
        [DIVERGENCE, UNSEEN, UNSEEN, UNSEEN, UNSEEN],
    ),
    "cooldown without trust": (
        {"mode": "cooldown", "max_hnn_energy_diff": -INF},
        [DIVERGENCE, DIVERGENCE, UNSEEN, UNSEEN, UNSEEN],
    ),
    # The residual finds an energy that is not finite, but not a gradient alone.
    "pointwise": (
        {"mode": "pointwise"},
        [DIVERGENCE, UNSEEN, UNSEEN, DIVERGENCE, UNSEEN],
    ),
    # Trust in one half of the hole.
    "pointwise by a rule": (
        {"mode": "pointwise", "trust_network_fn": lambda q: q[..., 1] > 0.0},
        [DIVERGENCE, EITHER, UNSEEN, EITHER, EITHER],
    ),
    "none": (
        {"mode": "none"},
        [DIVERGENCE, UNSEEN, UNSEEN, DIVERGENCE, DIVERGENCE],
    ),
    "none, multinomial and joint": (
        {"mode": "none", "trajectory_sampling": "multinomial", "separable": False},
        [DIVERGENCE, UNSEEN, UNSEEN, DIVERGENCE, DIVERGENCE],
    ),
    "delayed": (
        {"mode": "delayed", "num_surrogate_transitions": 2},
        [REJECTION, UNSEEN, DIVERGENCE, DIVERGENCE, DIVERGENCE],
    ),
    "delayed with true transitions": (
        {"mode": "delayed with true transitions", "trajectory_sampling": "slice"},
        # A true transition may lead into the network's hole; the next draw on the
        # network has no density there to be accepted with.
        [
            DIVERGENCE._replace(is_rejected=True),
            EITHER,
            EITHER._replace(is_rejected=True),
            EITHER,
            EITHER._replace(is_rejected=True),
        ],
    ),
}


# What the others do is for the most part what these do.
USUAL_HOLED_MODES = ("cooldown", "pointwise", "none", "delayed with true transitions")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param(
            *case,
            id=name,
            marks=[] if name in USUAL_HOLED_MODES else [pytest.mark.slow],
        )
        for name, case in HOLED_MODES.items()
    ],
)
def test_no_state_is_ever_taken_in_a_hole_of_the_density(settings, expected):
    @tf.function(jit_compile=True, autograph=False)
    def step(state, results, hole, seed):
        return make_holed_kernel(hole, **settings).one_step(state, results, seed=seed)

    initial = np.random.default_rng(5).normal(size=(64, 2)).astype(np.float32)
    initial[:, 0] = -np.abs(initial[:, 0])  # beside the hole
    for (where, values), outcome in zip(HOLES, expected, strict=True):
        for value in values:
            hole = Hole(**{f"to_{what}": value for what in where})
            hole = tf.nest.map_structure(tf.constant, hole)
            state = tf.constant(initial)
            results = make_holed_kernel(hole, **settings).bootstrap_results(state)
            num_divergences = num_in_hole = num_rejected = 0
            for i in range(12):
                state, results = step(state, results, hole, tf.constant([3, i]))
                num_divergences += np.sum(results.has_divergence)
                num_in_hole += np.sum(in_hole(state))
                num_rejected += np.sum(refused(results))
                message = f"{where} {value}, draw {i}"
                assert np.isfinite(state).all(), message
                assert np.isfinite(results.energy).all(), message
                assert not np.isnan(results.log_accept_ratio).any(), message
                # Which is not so for a density in the hole.
                np.testing.assert_allclose(
                    results.target_log_prob, smooth_log_prob(state), atol=1e-5
                )
            counts = Outcome(num_divergences, num_in_hole, num_rejected)
            for count, does_happen in zip(counts, outcome, strict=True):
                assert (count > 20) if does_happen else (count == 0), (message, counts)
    assert step.experimental_get_tracing_count() == 1


def refused(results):
    """Chains whose proposal had no density to be accepted with, `[chains]`."""
    if not hasattr(results, "log_delayed_accept_ratio"):
        return np.zeros(results.energy.shape, bool)
    ratio = results.log_delayed_accept_ratio.numpy()
    assert not np.isnan(ratio).any()
    assert not np.any((ratio == -INF) & results.is_accepted)
    return ratio == -INF


def test_delayed_acceptance_leaves_a_hole_of_the_network_by_true_transitions():
    hole = tf.nest.map_structure(tf.constant, Hole(to_network_energy=NAN))
    state = tf.tile([[1.0, 0.0]], [16, 1])
    assert np.all(in_hole(state))

    stays = make_holed_kernel(hole, mode="delayed")
    new_state, results = stays.one_step(
        state, stays.bootstrap_results(state), seed=[1, 2]
    )
    np.testing.assert_array_equal(new_state, state)
    np.testing.assert_array_equal(results.log_delayed_accept_ratio, -INF)
    np.testing.assert_array_equal(results.log_accept_ratio, -INF)
    assert np.isfinite(results.energy).all()
    assert not np.any(results.is_accepted)

    leaves = stays.copy(true_transition_probability=1.0)
    new_state, _ = leaves.one_step(state, results, seed=[1, 2])
    assert np.mean(in_hole(new_state)) < 0.8


# A start without density, which compiled functions cannot refuse.
STUCK_MODES = {
    "cooldown": {"mode": "cooldown", "max_hnn_energy_diff": 10.0},
    "pointwise": {"mode": "pointwise"},
    "pointwise by a rule": {
        "mode": "pointwise",
        "trust_network_fn": lambda q: q[..., 1] > 1.0,
        "trajectory_sampling": "multinomial",
    },
    "none, multinomial": {"mode": "none", "trajectory_sampling": "multinomial"},
    "delayed with true transitions": {"mode": "delayed with true transitions"},
}


@pytest.mark.parametrize("settings", STUCK_MODES.values(), ids=STUCK_MODES.keys())
def test_a_chain_without_density_moves_to_the_first_that_it_meets(settings):
    """Half of the space has none, NaN or -inf; the network leads out of it."""

    def log_prob(q):
        bad = tf.where(q[..., 1] > 0.0, NAN, -INF)
        return tf.where(q[..., 0] > 0.0, bad, smooth_log_prob(q))

    kernel = make_kernel(
        log_prob, ExactNetwork(smooth_log_prob), 0.3, max_tree_depth=4, **settings
    )
    normal = np.random.default_rng(8).normal(size=(64, 2))
    # The one half of the chains deep in the void, the other as usual.
    normal[:, 0] = np.abs(normal[:, 0]) + 2.0
    normal[::2, 0] = -np.abs(normal[::2, 0])
    state = tf.constant(normal, tf.float32)
    results = bootstrap_unchecked(kernel, state)
    step = tf.function(kernel.one_step, autograph=False)
    was_in_void = np.asarray(state)[:, 0] > 0.0
    assert was_in_void.sum() == 32
    for i in range(40):
        state, results = step(state, results, seed=tf.constant([i, 4]))
        in_void = np.asarray(state)[:, 0] > 0.0
        # Nobody enters, and who is in there has not moved.
        assert not np.any(in_void & ~was_in_void)
        assert not np.any(in_void & np.asarray(results.is_accepted))
        assert not np.isnan(results.log_accept_ratio).any()
        assert np.isfinite(np.asarray(results.energy)[~in_void]).all()
        np.testing.assert_array_equal(
            np.isfinite(results.target_log_prob), ~in_void, str(i)
        )
        was_in_void = in_void
    assert not in_void.any()


def bootstrap_unchecked(kernel, state):
    """As a compiled `bootstrap_results` gives it, which XLA leaves without checks."""
    results = kernel.bootstrap_results(tf.zeros_like(state) - 1.0)
    log_prob = kernel.target_log_prob_fn(state)
    return results._replace(target_log_prob=log_prob, energy=-log_prob)


def test_what_a_compiled_bootstrap_gives_is_that():
    """Which shows that such a start is possible, and what it looks like."""
    kernel = make_holed_kernel(Hole(to_log_prob=NAN), mode="none")
    state = tf.constant([[1.0, 0.0], [-1.0, 0.0]])
    compiled = tf.function(kernel.bootstrap_results, jit_compile=True, autograph=False)
    expected = bootstrap_unchecked(kernel, state)
    for name in ("target_log_prob", "energy", "target_evaluations"):
        np.testing.assert_array_equal(
            getattr(compiled(state), name), getattr(expected, name)
        )
