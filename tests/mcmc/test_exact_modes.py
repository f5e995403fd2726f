"""Do the two exact schemes leave the target as it is, whatever the network?

As in `test_exactness.py`, chains start from exact draws; one transition, and several,
must give exact draws again. The networks range from good to absurd. The same tests find
out what is not exact: delayed acceptance without its acceptance step, and a monitor
whose choice depends on more than the position.
"""

from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

import tfp_lhnn

from . import statistics
from .statistics import FALSE_ALARM_RATE, Transitions


class Problem(NamedTuple):
    """A target, its exact draws, a test of them, and a step that suits it."""

    log_prob: Any
    draws: Any
    p_value: Any
    dim: int
    step_size: float


LINE = Problem(
    statistics.gumbel_log_prob,
    statistics.gumbel_draws,
    statistics.gumbel_p_value,
    dim=1,
    step_size=0.7,
)
SPACE = Problem(
    statistics.three_gumbels_log_prob,
    statistics.three_gumbels_draws,
    statistics.three_gumbels_p_value,
    dim=3,
    step_size=0.5,
)


class BlendedNetwork:
    """Good, wrong or discontinuous by its weights, so that one compilation serves all.

    Args:
        log_prob: of the target, `[n, dim] -> [n]`.
    """

    # How much of each: the target's own energy, a smooth error, a wrong energy, jumps.
    BLENDS = {  # noqa: RUF012
        "good": [1.0, 0.2, 0.0, 0.0],
        "wrong": [0.0, 0.0, 1.0, 0.0],
        "discontinuous": [0.0, 0.0, 1.0, 1.0],
    }
    non_trainable_variables = ()

    def __init__(self, log_prob):
        self.log_prob = log_prob
        self.blend = tf.Variable(self.BLENDS["good"])
        self.trainable_variables = [self.blend]

    def kinds(self):
        """Becomes one kind of network after the other, and says which."""
        for name, blend in self.BLENDS.items():
            self.blend.assign(blend)
            yield name

    def stateless_call(self, trainable, non_trainable, q):
        wave = tf.sin(2.0 * q)
        # Wrong centre, wrong scale, wrong tails.
        wrong = 0.3 * (q - 0.4) ** 2 + 0.5 * tf.abs(q - 1.0)
        # Steps of the energy that no force tells of, and a step of the force.
        jumps = tf.cast(q > 0.3, q.dtype) - 0.6 * tf.cast(tf.abs(q + 1) < 0.4, q.dtype)
        jumps += 0.4 * tf.nn.relu(-q)
        shares = tf.unstack(tf.cast(trainable[0], q.dtype))
        error = sum(
            share * tf.reduce_sum(term, axis=-1)
            for share, term in zip(shares[1:], (wave, wrong, jumps), strict=True)
        )
        energy = error - shares[0] * self.log_prob(q)
        return energy[:, tf.newaxis], non_trainable

    def surrogate_log_prob(self, q):
        return -self.stateless_call(self.trainable_variables, (), q)[0][:, 0]


class UntrainedNetwork(tfp_lhnn.LatentHNN):
    """Random weights; a new `LatentHNN` would be a standard Gaussian."""

    def __init__(self, dim):
        super().__init__(dim, hidden_units=(8,), seed=1)
        self.initialise(1)

    def kinds(self):
        yield "untrained"


def make_network(problem, is_trained):
    return (
        BlendedNetwork(problem.log_prob)
        if is_trained
        else UntrainedNetwork(problem.dim)
    )


def assert_conserved(problem, start, end, what):
    p_value = problem.p_value(start, end)
    print(what, f"p = {p_value:.2g}, moved {np.mean(np.abs(end - start)):.2f}")
    assert p_value > FALSE_ALARM_RATE, what
    # A chain that stands still conserves everything.
    assert np.mean(np.abs(end - start)) > 0.2, what


def mean_delayed_acceptance(traces):
    """Over the transitions that were not true ones."""
    ratios = [
        trace.log_delayed_accept_ratio
        for trace in traces
        if not trace.is_true_transition[0]
    ]
    return np.mean(np.minimum(1.0, np.exp(ratios)))


@pytest.mark.parametrize(
    ("problem", "dtype", "sampling", "options", "is_trained"),
    [
        (LINE, tf.float32, "multinomial", {"true_transition_probability": 0.0}, True),
        (LINE, tf.float64, "slice", {"true_transition_probability": 0.3}, True),
        pytest.param(
            SPACE,
            tf.float32,
            "multinomial",
            {"true_transition_probability": 0.0, "num_surrogate_transitions": 3},
            True,
            marks=pytest.mark.slow,
        ),
        # The network computes in single precision, the chain in double.
        (SPACE, tf.float64, "slice", {"true_transition_probability": 0.3}, False),
    ],
    ids=["line", "line-mixed", "space-three-in-a-row", "space-mixed-untrained"],
)
def test_delayed_acceptance_is_exact(problem, dtype, sampling, options, is_trained):
    network = make_network(problem, is_trained)
    kernel = tfp_lhnn.LatentHNNDelayedAcceptanceSampler(
        problem.log_prob,
        network,
        problem.step_size,
        max_tree_depth=4,
        trajectory_sampling=sampling,
        **options,
    )
    assert kernel.is_calibrated
    transitions = Transitions(kernel)
    start = problem.draws()
    is_mixed = options["true_transition_probability"] > 0.0
    for kind in network.kinds():
        states, traces = transitions.run(start, dtype, num_steps=4)
        assert_conserved(problem, start, states[0], f"{kind}, one step")
        assert_conserved(problem, start, states[-1], f"{kind}, four steps")
        assert not traces[0].is_true_transition[0]
        if is_mixed:
            # One coin decides for all chains: another seed shows its other side.
            (end,), (trace,) = transitions.run(start, dtype, seed=31)
            assert trace.is_true_transition[0]
            assert_conserved(problem, start, end, f"{kind}, one true step")
        acceptance = mean_delayed_acceptance(traces)
        print(f"{kind}: delayed acceptance {acceptance:.3f}")
        # With the bad networks the acceptance step has much to put right.
        assert acceptance > 0.85 if kind == "good" else 0.1 < acceptance < 0.9, kind


def in_stripes(q):
    """A rule that has nothing to do with where the network is good."""
    return tf.sin(3.0 * tf.reduce_sum(q, axis=-1)) > 0.0


@pytest.mark.parametrize(
    ("problem", "dtype", "sampling", "options", "is_trained"),
    [
        # The thresholds are such that both sources have a share in all networks.
        (LINE, tf.float32, "slice", {"max_residual": 0.15}, True),
        (LINE, tf.float64, "multinomial", {"trust_network_fn": in_stripes}, True),
        pytest.param(
            SPACE,
            tf.float32,
            "multinomial",
            {"max_residual": 0.4, "network_energy_offset": 0.1},
            True,
            marks=pytest.mark.slow,
        ),
        (SPACE, tf.float64, "slice", {"trust_network_fn": in_stripes}, False),
    ],
    ids=["line-residual", "line-rule", "space-residual", "space-rule-untrained"],
)
def test_the_pointwise_monitor_is_exact(problem, dtype, sampling, options, is_trained):
    network = make_network(problem, is_trained)
    kernel = tfp_lhnn.LatentHNNNoUTurnSampler(
        problem.log_prob,
        network,
        problem.step_size,
        max_tree_depth=4,
        error_monitor="pointwise",
        trajectory_sampling=sampling,
        **options,
    )
    assert kernel.is_calibrated
    transitions = Transitions(kernel)
    start = problem.draws()
    for kind in network.kinds():
        states, traces = transitions.run(start, dtype, num_steps=4)
        assert_conserved(problem, start, states[0], f"{kind}, one step")
        assert_conserved(problem, start, states[-1], f"{kind}, four steps")
        leaves = sum(np.sum(trace.leapfrogs_taken) for trace in traces)
        share = np.sum(traces[-1].num_fallbacks) / leaves
        print(f"{kind}: true gradients at {share:.2f} of the leaves")
        assert 0.05 < share < 0.95, kind


@pytest.mark.parametrize("problem", [LINE, SPACE], ids=["line", "space"])
def test_without_the_acceptance_step_delayed_acceptance_is_found_out(problem):
    """What remains is NUTS on the learned density, here as a target of its own."""
    network = BlendedNetwork(problem.log_prob)
    transitions = Transitions(
        tfp_lhnn.LatentHNNNoUTurnSampler(
            network.surrogate_log_prob,
            network,
            problem.step_size,
            max_tree_depth=4,
            error_monitor="none",
        )
    )
    start = problem.draws()
    for kind in network.kinds():  # Even with the good network.
        (end,), _ = transitions.run(start, tf.float32)
        p_value = problem.p_value(start, end)
        print(f"{kind}: p = {p_value:.2g}")
        assert p_value < FALSE_ALARM_RATE, kind


def test_a_monitor_that_looks_back_is_found_out():
    """The paper's monitor: what it has met decides whose gradients come next."""
    network = BlendedNetwork(LINE.log_prob)
    network.blend.assign(network.BLENDS["wrong"])
    kernel = tfp_lhnn.LatentHNNNoUTurnSampler(
        LINE.log_prob,
        network,
        LINE.step_size,
        max_tree_depth=4,
        error_monitor="cooldown",
        max_hnn_energy_diff=1.0,
    )
    assert not kernel.is_calibrated
    start = LINE.draws()
    (end,), _ = Transitions(kernel).run(start, tf.float32)
    p_value = LINE.p_value(start, end)
    print(f"p = {p_value:.2g}")
    assert p_value < FALSE_ALARM_RATE
