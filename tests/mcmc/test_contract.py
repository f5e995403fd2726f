"""Both kernels as TFP wants them: chains, resuming, states, the constructor."""

import inspect

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_lhnn

from ..xla_constants import number_compiled_in
from .helpers import (
    DIM,
    JOINT_MODES,
    MODES,
    ExactNetwork,
    assert_moves,
    assert_trees_equal,
    join,
    make_kernel,
    run_chain,
    skewed_log_prob,
    skewed_parts_log_prob,
    small_network,
    split,
    start,
)

# The cool-down monitor says so, and has its own test below.
UNCALIBRATED = "supplied `TransitionKernel` is not calibrated"
pytestmark = pytest.mark.filterwarnings(f"ignore:{UNCALIBRATED}:UserWarning")

each_mode = pytest.mark.parametrize("mode", MODES)

STATS = {
    tfp_lhnn.LatentHNNNoUTurnSampler: tfp_lhnn.LatentHNNStats,
    tfp_lhnn.LatentHNNDelayedAcceptanceSampler: (
        tfp_lhnn.LatentHNNDelayedAcceptanceStats
    ),
}


# sample_chain and resuming.


@pytest.mark.parametrize(
    ("jit", "mode"),
    [
        *((False, mode) for mode in MODES),
        *((True, mode) for mode in ("cooldown", "delayed")),
        # Below, `compiled_step` compiles them all, but with seeds.
        *(
            pytest.param(True, mode, marks=pytest.mark.slow)
            for mode in ("pointwise", "none", "delayed with true transitions")
        ),
    ],
)
def test_sample_chain_without_a_seed(jit, mode):
    kernel = make_kernel(mode=mode)
    draws, stats = run_chain(kernel, start(), 4, jit=jit, seed=None)
    assert_moves(draws, start())
    assert type(stats) is STATS[type(kernel)]
    # Every step drew a seed of its own.
    assert len({tuple(seed) for seed in stats.seed.numpy()}) == 4


# The others take no gradient of the target.
@pytest.mark.parametrize(
    "mode", ["cooldown", "pointwise", "delayed with true transitions"]
)
def test_a_step_is_not_compiled_anew_for_every_state_seed_or_step_size(mode):
    # What its gradient takes from the call looks to XLA as if it came from the state.
    decorated = tf.function(lambda q: skewed_log_prob(tf.transpose(tf.transpose(q))))

    def step(state, seed, step_size):
        network = ExactNetwork(lambda q: skewed_log_prob(0.9 * q))
        kernel = make_kernel(decorated, network, step_size, mode=mode)
        results = kernel.bootstrap_results(state)
        state, results = kernel.one_step(state, results, seed=seed)
        return state, tf.nest.flatten(results, expand_composites=True)

    arguments = tf.constant(start()), tf.constant([1, 2]), tf.constant(0.3, tf.float64)
    assert number_compiled_in(step, *arguments) == 0


@each_mode
def test_sample_chain_in_a_graph_with_any_number_of_chains(mode):
    kernel = make_kernel(mode=mode)
    eager, _ = run_chain(kernel, start(), 2, jit=False)

    @tf.function(
        input_signature=[tf.TensorSpec([None, DIM], tf.float64)], autograph=False
    )
    def sample(state):
        return run_chain(kernel, state, 2, jit=False)

    for _ in range(2):
        draws, stats = sample(start())
        np.testing.assert_allclose(draws, eager, rtol=1e-4, atol=1e-5)
    assert stats.target_log_prob.shape == [2, 3]
    draws, _ = sample(start([4]))
    assert draws.shape == [2, 4, DIM]


@each_mode
def test_calibrated_are_all_but_the_cooldown_monitor_and_joint_networks(mode):
    separable, joint = small_network(), small_network(separable=False)
    is_calibrated = mode != "cooldown"
    assert make_kernel(network=separable, mode=mode).is_calibrated is is_calibrated
    # Whatever does not say otherwise is a function of the position alone.
    exact = ExactNetwork(skewed_log_prob)
    assert make_kernel(network=exact, mode=mode).is_calibrated is is_calibrated
    if mode in JOINT_MODES:
        assert make_kernel(network=joint, mode=mode).is_calibrated is False


@each_mode
def test_only_chains_that_are_not_calibrated_warn(mode, recwarn):
    run_chain(make_kernel(mode=mode), start(), 1, jit=False)
    warned = [w for w in recwarn if UNCALIBRATED in str(w.message)]
    assert len(warned) == (mode == "cooldown")


class CompiledStep:
    """One compiled transition that counts how often Python traced it."""

    def __init__(self, mode):
        self.mode = mode
        self.function_traces = self.target_traces = 0
        self.kernel = make_kernel(self._target, mode=mode)

        def step(state, results, seed):
            self.function_traces += 1
            return self.kernel.one_step(state, results, seed=seed)

        self._step = tf.function(step, jit_compile=True, autograph=False)

    def _target(self, q):
        self.target_traces += 1
        return skewed_log_prob(q)

    def __call__(self, state, results, seeds):
        """The states and the last results of one step for each seed."""
        states = []
        for seed in seeds:
            state, results = self._step(state, results, tf.constant(seed))
            states.append(state)
        return tf.stack(states), results


@pytest.fixture(scope="module", params=MODES)
def compiled_step(request):
    return CompiledStep(request.param)


SEEDS = [[11, i] for i in range(8)]


def test_a_resumed_chain_is_the_unbroken_one(compiled_step):
    initial = start()
    results = compiled_step.kernel.bootstrap_results(initial)
    unbroken, unbroken_results = compiled_step(initial, results, SEEDS)
    assert_moves(unbroken, initial)

    first, results = compiled_step(initial, results, SEEDS[:3])
    # To plain arrays and back into the results of a kernel with another network: the
    # results carry the weights.
    arrays = [leaf.numpy() for leaf in tf.nest.flatten(results, expand_composites=True)]
    other = make_kernel(network=small_network(seed=2), mode=compiled_step.mode)
    restored = tf.nest.pack_sequence_as(
        other.bootstrap_results(initial),
        [tf.constant(array) for array in arrays],
        expand_composites=True,
    )
    second, resumed_results = compiled_step(first[-1], restored, SEEDS[3:])
    np.testing.assert_array_equal(tf.concat([first, second], axis=0), unbroken)
    assert_trees_equal(resumed_results, unbroken_results)


def test_one_compilation_serves_other_seeds_states_weights_and_steps(compiled_step):
    initial = start()
    kernel = compiled_step.kernel
    results = kernel.bootstrap_results(initial)
    draws, _ = compiled_step(initial, results, SEEDS)
    before = compiled_step.function_traces, compiled_step.target_traces

    again, _ = compiled_step(initial, results, SEEDS)
    np.testing.assert_array_equal(again, draws)

    other_network = make_kernel(network=small_network(seed=2), mode=compiled_step.mode)
    other_weights = other_network.bootstrap_results(initial).lhnn
    for changed in (
        results._replace(lhnn=other_weights),
        results._replace(step_size=0.5 * results.step_size),
    ):
        other, _ = compiled_step(initial, changed, SEEDS)
        # A single draw may stay where it is, whatever has changed.
        assert np.all(other[-1] != draws[-1])
    other, _ = compiled_step(initial, results, [[12, i] for i in range(8)])
    assert np.all(other[-1] != draws[-1])
    other_state = start(seed=1)
    compiled_step(
        other_state,
        results._replace(target_log_prob=skewed_log_prob(other_state)),
        SEEDS,
    )
    assert (compiled_step.function_traces, compiled_step.target_traces) == before
    assert compiled_step.function_traces == 1


@each_mode
def test_sample_chain_resumes_from_state_and_results(mode):
    initial = start()
    kernel = make_kernel(mode=mode)
    options = {"jit": False, "return_final_kernel_results": True}
    first = run_chain(kernel, initial, 2, **options)
    other = make_kernel(network=small_network(seed=2), mode=mode)
    second = run_chain(
        other,
        first.all_states[-1],
        2,
        seed=(3, 4),
        previous_kernel_results=first.final_kernel_results,
        **options,
    )
    # By hand, with the seeds that the two runs say they had.
    state, results = initial, kernel.bootstrap_results(initial)
    draws = []
    for seed in tf.concat([first.trace.seed, second.trace.seed], axis=0):
        state, results = kernel.one_step(state, results, seed=seed)
        draws.append(state)
    assert_moves(tf.stack(draws), initial)
    np.testing.assert_array_equal(
        tf.stack(draws), tf.concat([first.all_states, second.all_states], axis=0)
    )
    assert_trees_equal(results, second.final_kernel_results)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # The leaves; for the true ones three more with a gradient: at the start of a
        # draw, at the start of a leaf and at its end.
        ({"mode": "cooldown"}, 4),
        # The leaves, and with a gradient the start and, again, the leaves.
        ({"mode": "pointwise"}, 3),
        ({"mode": "pointwise", "trust_network_fn": lambda q: q[..., 0] > 0.0}, 3),
        ({"mode": "none"}, 1),
        # The proposal; in a true transition the start and the leaves.
        ({"mode": "delayed"}, 1),
        ({"mode": "delayed", "num_surrogate_transitions": 5}, 1),
        ({"mode": "delayed with true transitions"}, 3),
        ({"mode": "delayed", "true_transition_probability": 1.0}, 2),
    ],
    # Not from the values: every worker must have the same names.
    ids=[
        "cooldown",
        "pointwise",
        "pointwise by a rule",
        "none",
        "delayed",
        "delayed, five in a row",
        "delayed with true transitions",
        "true transitions alone",
    ],
)
def test_the_target_is_traced_a_few_times_whatever_the_depth(settings, expected):
    traced = []

    def log_prob(q):
        traced.append(q)
        return skewed_log_prob(q)

    kernel = make_kernel(log_prob, max_tree_depth=9, **settings)
    results = kernel.bootstrap_results(start())
    traced.clear()
    tf.function(kernel.one_step, autograph=False).get_concrete_function(
        start(), results, seed=tf.constant([1, 2])
    )
    assert len(traced) == expected


@each_mode
def test_weights_are_those_of_the_network(mode):
    network = small_network()
    weights = make_kernel(network=network, mode=mode).bootstrap_results(start()).lhnn
    for name in ("trainable", "non_trainable"):
        assert_trees_equal(
            getattr(weights, name),
            [tf.convert_to_tensor(v) for v in getattr(network, name + "_variables")],
        )


# The state.


@each_mode
@pytest.mark.parametrize(
    ("container", "batch_shape", "dtype"),
    [
        (None, (), np.float32),
        (None, (3,), np.float64),
        (None, (2, 3), np.float32),
        (list, (), np.float64),
        (list, (3,), np.float32),
        (list, (2, 3), np.float64),
        (tuple, (3,), np.float64),
    ],
)
def test_states(container, batch_shape, dtype, mode):
    state = start(batch_shape, dtype)
    target, step_size = skewed_log_prob, 0.3
    if container is not None:
        state = container(split(state))
        target, step_size = skewed_parts_log_prob, [0.3, 0.2]
    kernel = make_kernel(
        target,
        step_size=step_size,
        mode=mode,
        trajectory_sampling="multinomial",  # almost always moves
    )
    results = kernel.bootstrap_results(state)
    new_state, new_results = by_hand(kernel, state)

    tf.nest.assert_same_structure(new_state, state)
    assert_same_signature(new_state, state)
    assert_same_signature(new_results, results)
    for field in ("target_log_prob", "log_accept_ratio", "energy", "leapfrogs_taken"):
        assert getattr(new_results, field).shape == batch_shape
    assert new_results.target_log_prob.dtype == dtype
    parts = tf.nest.flatten(new_state)
    np.testing.assert_allclose(new_results.target_log_prob, target(*parts), rtol=1e-5)
    assert_moves(new_state, state)


def assert_same_signature(first, second):
    """The loops of TFP want every leaf to keep its type and shape."""
    tf.nest.assert_same_structure(first, second, expand_composites=True)
    for a, b in zip(
        tf.nest.flatten(first, expand_composites=True),
        tf.nest.flatten(second, expand_composites=True),
        strict=True,
    ):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)


def by_hand(kernel, state, num_steps=3):
    results = kernel.bootstrap_results(state)
    for i in range(num_steps):
        state, results = kernel.one_step(state, results, seed=[5, i])
    return state, results


@each_mode
def test_parts_and_chain_dimensions_make_no_difference(mode):
    steps = np.array([0.4, 0.2, 0.2, 0.2, 0.2])
    flat = make_kernel(step_size=steps, mode=mode)
    expected, expected_results = by_hand(flat, start([6]))
    assert np.all(np.any(expected != start([6]), axis=0))

    in_parts = make_kernel(skewed_parts_log_prob, step_size=[0.4, 0.2], mode=mode)
    state, results = by_hand(in_parts, split(start([6])))
    np.testing.assert_array_equal(join(*state), expected)
    assert_stats_equal(results, expected_results)

    state, results = by_hand(flat, tf.reshape(start([6]), [2, 3, DIM]))
    np.testing.assert_array_equal(tf.reshape(state, [6, DIM]), expected)
    assert results.energy.shape == [2, 3]
    assert_stats_equal(results, expected_results)
    if mode in ("cooldown", "pointwise"):
        assert np.any(results.num_fallbacks)


def test_the_users_rule_of_trust_sees_the_parts_of_the_state():
    def trusts(q):
        return q[..., 0] > 0.0

    def trusts_parts(scalar, matrix):
        assert matrix.shape[-2:] == (2, 2)
        return scalar > 0.0

    settings = {"mode": "pointwise", "step_size": 0.2}
    flat = make_kernel(trust_network_fn=trusts, **settings)
    expected, expected_results = by_hand(flat, start([6]))
    in_parts = make_kernel(
        skewed_parts_log_prob, trust_network_fn=trusts_parts, **settings
    )
    state, results = by_hand(in_parts, split(tf.reshape(start([6]), [2, 3, DIM])))
    np.testing.assert_array_equal(tf.reshape(join(*state), [6, DIM]), expected)
    assert_stats_equal(results, expected_results)
    assert np.any(results.num_fallbacks)


def assert_stats_equal(first, second):
    """All but the step sizes, whose structure is the state's."""
    first, second = (tfp_lhnn.trace_stats(None, results) for results in (first, second))
    for name in set(first._fields) - {"step_size"}:
        np.testing.assert_array_equal(
            np.ravel(getattr(first, name)), np.ravel(getattr(second, name))
        )


@each_mode
def test_a_chain_does_not_depend_on_its_neighbours_step(mode):
    # One step size for each chain: those with the same one make the same draws.
    state = start()
    shared, _ = by_hand(make_kernel(step_size=0.3, mode=mode), state, 4)
    steps = np.array([[0.3], [0.05], [0.3]])
    own, _ = by_hand(make_kernel(step_size=steps, mode=mode), state, 4)
    np.testing.assert_array_equal(own[0], shared[0])
    np.testing.assert_array_equal(own[2], shared[2])
    assert np.all(own[1] != shared[1])


@each_mode
def test_the_step_size_in_the_results_is_the_one_used(mode):
    kernel = make_kernel(step_size=0.3, mode=mode)
    state = start()
    results = kernel.bootstrap_results(state)
    tiny = results._replace(step_size=tf.constant(1e-6, tf.float64))
    moved, new = kernel.one_step(state, tiny, seed=[1, 2])
    assert 0 < np.max(np.abs(moved - state)) < 1e-4
    assert new.step_size == tiny.step_size


@pytest.mark.parametrize("trajectory_sampling", ["slice", "multinomial"])
@pytest.mark.parametrize(
    ("mode", "separable"),
    [*((mode, True) for mode in MODES), *((mode, False) for mode in JOINT_MODES)],
)
def test_modes(mode, separable, trajectory_sampling):
    kernel = make_kernel(
        network=small_network(separable),
        mode=mode,
        trajectory_sampling=trajectory_sampling,
    )
    state, results = by_hand(kernel, start([8]))
    assert np.isfinite(state).all()
    assert np.mean(state != start([8])) > 0.5
    np.testing.assert_allclose(results.target_log_prob, skewed_log_prob(state))
    needs_gradients = mode not in ("none", "delayed")
    assert np.any(results.target_gradients) == needs_gradients


# Constructor and statistics.


@pytest.mark.parametrize(
    ("mode", "changes"),
    [
        ("cooldown", {"error_monitor": "none"}),
        ("delayed", {"true_transition_probability": 0.25}),
    ],
    ids=["cooldown", "delayed"],
)
def test_parameters_are_those_of_the_constructor_and_copy_overrides_them(mode, changes):
    kernel = make_kernel(mode=mode, max_energy_diff=500.0, name="mine")
    assert list(kernel.parameters) == list(inspect.signature(type(kernel)).parameters)
    copy = kernel.copy(step_size=0.1, **changes)
    assert type(copy) is type(kernel)
    assert copy.parameters == {**kernel.parameters, "step_size": 0.1, **changes}
    assert copy.parameters != kernel.parameters
    assert copy.is_calibrated
    assert copy.network is kernel.network
    assert copy.name == "mine"


@each_mode
def test_the_kernel_survives_being_copied_by_wrappers(mode):
    kernel = make_kernel(max_energy_diff=500.0, mode=mode)
    wrapped = tfp.mcmc.DualAveragingStepSizeAdaptation(
        tfp.mcmc.TransformedTransitionKernel(kernel, tfp.bijectors.Exp()), 10
    )
    inner = wrapped.inner_kernel.inner_kernel
    assert type(inner) is type(kernel)
    assert inner.parameters == kernel.parameters


def test_trace_stats_refuses_foreign_results():
    kernel = tfp.mcmc.NoUTurnSampler(skewed_log_prob, 0.1)
    results = kernel.bootstrap_results(start())
    with pytest.raises(TypeError, match="NUTSKernelResults"):
        tfp_lhnn.trace_stats(start(), results)
    wrapped = tfp.mcmc.SimpleStepSizeAdaptation(kernel, 5)
    with pytest.raises(TypeError, match="SimpleStepSizeAdaptationResults"):
        tfp_lhnn.trace_stats(start(), wrapped.bootstrap_results(start()))


@each_mode
def test_trace_stats_has_everything_but_the_weights(mode):
    kernel = make_kernel(mode=mode)
    results = kernel.bootstrap_results(start())
    stats = tfp_lhnn.trace_stats(start(), results)
    assert type(stats) is STATS[type(kernel)]
    left_out = {"lhnn", "momentum_distribution", "proposed_state", "proposed_results"}
    assert set(results._fields) - set(stats._fields) == left_out
    for name in stats._fields:
        assert getattr(stats, name) is getattr(results, name)
