"""The kernel among all that TFP's users combine it with, compiled and not."""

import inspect

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from tensorflow_probability.python.experimental.mcmc import windowed_sampling

import tfp_lhnn

from .helpers import (
    DIM,
    ExactNetwork,
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

STATS = tfp_lhnn.LatentHNNStats._fields
SCALES = np.array([0.2, 1.0, 1.0, 1.0, 5.0])


def normal_log_prob(q):
    """An anisotropic normal density off the origin."""
    scales = tf.constant(SCALES, q.dtype)
    return -0.5 * tf.reduce_sum(((q - 1.0) / scales) ** 2, axis=-1)


def run_both_ways(kernel, state, num_results, **kwargs):
    """Compiled draws; an eager run must be of the same kind.

    The numbers differ: from the same seed XLA draws other random numbers.
    """
    eager = run_chain(kernel, state, 2, jit=False, **kwargs)
    assert_moves(eager[0], state)
    compiled = run_chain(kernel, state, num_results, jit=True, **kwargs)
    tf.nest.assert_same_structure(compiled, eager)
    for a, b in zip(tf.nest.flatten(compiled), tf.nest.flatten(eager), strict=True):
        assert (a.dtype, a.shape[1:]) == (b.dtype, b.shape[1:])
    assert_moves(compiled[0], state)
    return compiled


def assert_moves(draws, state):
    for part, initial in zip(
        tf.nest.flatten(draws), tf.nest.flatten(state), strict=True
    ):
        assert np.isfinite(part).all()
        assert np.any(part != initial)


# sample_chain and resuming.


@pytest.mark.parametrize("jit", [True, False])
def test_sample_chain_without_a_seed(jit):
    kernel = make_kernel(network=small_network(separable=False))
    draws, stats = run_chain(kernel, start(), 3, jit=jit, seed=None)
    assert_moves(draws, start())
    assert type(stats) is tfp_lhnn.LatentHNNStats
    # Every step drew a seed of its own.
    assert len({tuple(seed) for seed in stats.seed.numpy()}) == 3


def test_sample_chain_in_a_graph_with_any_number_of_chains():
    kernel = make_kernel()
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


def test_only_the_cooldown_monitor_and_joint_networks_warn():
    separable, joint = small_network(), small_network(separable=False)
    for network, monitor, is_calibrated in (
        (separable, "none", True),
        (separable, "cooldown", False),
        (joint, "none", False),
        (joint, "cooldown", False),
        # Whatever does not say otherwise is a function of the position alone.
        (ExactNetwork(skewed_log_prob), "none", True),
    ):
        kernel = make_kernel(network=network, error_monitor=monitor)
        assert kernel.is_calibrated is is_calibrated
    with pytest.warns(UserWarning, match=UNCALIBRATED):
        run_chain(make_kernel(), start(), 1, jit=False)


def test_calibrated_chains_do_not_warn(recwarn):
    run_chain(make_kernel(error_monitor="none"), start(), 1, jit=False)
    assert not [w for w in recwarn if UNCALIBRATED in str(w.message)]


class CompiledStep:
    """One compiled transition that counts how often Python traced it."""

    def __init__(self):
        self.function_traces = self.target_traces = 0
        self.kernel = make_kernel(self._target, num_fallback_samples=3)

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


@pytest.fixture(scope="module")
def compiled_step():
    return CompiledStep()


SEEDS = [[11, i] for i in range(6)]


def test_a_resumed_chain_is_the_unbroken_one(compiled_step):
    initial = start()
    results = compiled_step.kernel.bootstrap_results(initial)
    unbroken, unbroken_results = compiled_step(initial, results, SEEDS)
    assert_moves(unbroken, initial)

    first, results = compiled_step(initial, results, SEEDS[:3])
    # To plain arrays and back into the results of a kernel with another network: the
    # results carry the weights.
    arrays = [leaf.numpy() for leaf in tf.nest.flatten(results, expand_composites=True)]
    other = make_kernel(network=small_network(seed=2))
    restored = tf.nest.pack_sequence_as(
        other.bootstrap_results(initial),
        [tf.constant(array) for array in arrays],
        expand_composites=True,
    )
    second, resumed_results = compiled_step(first[-1], restored, SEEDS[3:])
    np.testing.assert_array_equal(tf.concat([first, second], axis=0), unbroken)
    assert_trees_equal(resumed_results, unbroken_results)


def test_sample_chain_resumes_from_state_and_results():
    initial = start()
    kernel = make_kernel(num_fallback_samples=3)
    options = {"jit": False, "return_final_kernel_results": True}
    first = run_chain(kernel, initial, 2, **options)
    other = make_kernel(network=small_network(seed=2), num_fallback_samples=3)
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
    np.testing.assert_array_equal(
        tf.stack(draws), tf.concat([first.all_states, second.all_states], axis=0)
    )
    assert_trees_equal(results, second.final_kernel_results)


def test_one_compilation_serves_other_seeds_states_weights_and_steps(compiled_step):
    initial = start()
    kernel = compiled_step.kernel
    results = kernel.bootstrap_results(initial)
    draws, _ = compiled_step(initial, results, SEEDS)
    before = compiled_step.function_traces, compiled_step.target_traces

    again, _ = compiled_step(initial, results, SEEDS)
    np.testing.assert_array_equal(again, draws)

    other_network = make_kernel(network=small_network(seed=2))
    other_weights = other_network.bootstrap_results(initial).lhnn
    for changed in (
        results._replace(lhnn=other_weights),
        results._replace(step_size=0.5 * results.step_size),
    ):
        other, _ = compiled_step(initial, changed, SEEDS)
        # A single draw may stay where it is, whatever has changed.
        assert np.all(other[-1] != draws[-1])
    other, _ = compiled_step(initial, results, [[12, i] for i in range(6)])
    assert np.all(other[-1] != draws[-1])
    other_state = start(seed=1)
    compiled_step(
        other_state,
        results._replace(target_log_prob=skewed_log_prob(other_state)),
        SEEDS,
    )
    assert (compiled_step.function_traces, compiled_step.target_traces) == before
    assert compiled_step.function_traces == 1


@pytest.mark.parametrize(
    ("error_monitor", "depth", "expected"),
    # One density for the leaves of the network; for the true ones three more with a
    # gradient: at the start of a draw, at the start of a leaf and at its end.
    [("none", 9, 1), ("cooldown", 2, 4), ("cooldown", 9, 4)],
)
def test_the_target_is_traced_a_few_times_whatever_the_depth(
    error_monitor, depth, expected
):
    traced = []

    def log_prob(q):
        traced.append(q)
        return skewed_log_prob(q)

    kernel = make_kernel(
        log_prob,
        small_network(separable=False),
        max_tree_depth=depth,
        error_monitor=error_monitor,
    )
    results = kernel.bootstrap_results(start())
    traced.clear()
    tf.function(kernel.one_step, autograph=False).get_concrete_function(
        start(), results, seed=tf.constant([1, 2])
    )
    assert len(traced) == expected


def test_weights_are_those_of_the_network():
    network = small_network()
    weights = make_kernel(network=network).bootstrap_results(start()).lhnn
    for name in ("trainable", "non_trainable"):
        assert_trees_equal(
            getattr(weights, name),
            [tf.convert_to_tensor(v) for v in getattr(network, name + "_variables")],
        )


# The state.


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("batch_shape", [(), (3,), (2, 3)])
@pytest.mark.parametrize("container", [None, list])
def test_states(container, batch_shape, dtype):
    check_state(container, batch_shape, dtype)


def test_a_tuple_stays_a_tuple():
    check_state(tuple, (3,), np.float64)


def check_state(container, batch_shape, dtype):
    state = start(batch_shape, dtype)
    target, step_size = skewed_log_prob, 0.3
    if container is not None:
        state = container(split(state))
        target, step_size = skewed_parts_log_prob, [0.3, 0.2]
    kernel = make_kernel(
        target,
        step_size=step_size,
        error_monitor="none",
        trajectory_sampling="multinomial",  # almost always moves
    )
    results = kernel.bootstrap_results(state)
    new_state, new_results = kernel.one_step(state, results, seed=[1, 2])

    tf.nest.assert_same_structure(new_state, state)
    assert_same_signature(new_state, state)
    assert_same_signature(new_results, results)
    for field in ("target_log_prob", "log_accept_ratio", "energy", "leapfrogs_taken"):
        assert getattr(new_results, field).shape == batch_shape
    assert new_results.target_log_prob.dtype == dtype
    parts = tf.nest.flatten(new_state)
    np.testing.assert_allclose(new_results.target_log_prob, target(*parts), rtol=1e-5)
    assert np.any(new_results.is_accepted)
    for part, old in zip(parts, tf.nest.flatten(state), strict=True):
        assert np.any(part != old)


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


@pytest.mark.parametrize("error_monitor", ["cooldown", "none"])
def test_parts_and_chain_dimensions_make_no_difference(error_monitor):
    steps = np.array([0.4, 0.2, 0.2, 0.2, 0.2])
    options = {"error_monitor": error_monitor, "max_hnn_energy_diff": 0.5}
    flat = make_kernel(step_size=steps, **options)
    expected, expected_results = by_hand(flat, start([6]))

    in_parts = make_kernel(skewed_parts_log_prob, step_size=[0.4, 0.2], **options)
    state, results = by_hand(in_parts, split(start([6])))
    np.testing.assert_array_equal(join(*state), expected)
    assert_stats_equal(results, expected_results, skip={"step_size"})

    state, results = by_hand(flat, tf.reshape(start([6]), [2, 3, DIM]))
    np.testing.assert_array_equal(tf.reshape(state, [6, DIM]), expected)
    assert results.energy.shape == [2, 3]
    assert_stats_equal(results, expected_results, skip={"step_size"})
    if error_monitor == "cooldown":
        assert np.any(results.num_fallbacks)


def assert_stats_equal(first, second, skip):
    for name in set(STATS) - skip:
        np.testing.assert_array_equal(
            np.ravel(getattr(first, name)), np.ravel(getattr(second, name))
        )


def test_a_chain_does_not_depend_on_its_neighbours_step():
    # One step size for each chain: those with the same one make the same draws.
    state = start()
    shared, _ = by_hand(make_kernel(step_size=0.3), state)
    steps = np.array([[0.3], [0.05], [0.3]])
    own, _ = by_hand(make_kernel(step_size=steps), state)
    np.testing.assert_array_equal(own[0], shared[0])
    np.testing.assert_array_equal(own[2], shared[2])
    assert np.all(own[1] != shared[1])


@pytest.mark.parametrize("separable", [True, False])
@pytest.mark.parametrize("trajectory_sampling", ["slice", "multinomial"])
@pytest.mark.parametrize("error_monitor", ["cooldown", "none"])
def test_modes(error_monitor, trajectory_sampling, separable):
    kernel = make_kernel(
        network=small_network(separable),
        error_monitor=error_monitor,
        trajectory_sampling=trajectory_sampling,
        max_hnn_energy_diff=0.5,
        num_fallback_samples=2,
    )
    state, results = by_hand(kernel, start([8]))
    assert np.isfinite(state).all()
    assert np.mean(state != start([8])) > 0.5
    np.testing.assert_allclose(results.target_log_prob, skewed_log_prob(state))
    falls_back = error_monitor == "cooldown"
    assert np.any(results.num_fallbacks) == falls_back
    assert np.any(results.target_gradients) == falls_back


# Constructor and statistics.


def test_parameters_are_those_of_the_constructor_and_copy_overrides_them():
    kernel = make_kernel(trajectory_sampling="multinomial", name="mine")
    arguments = inspect.signature(tfp_lhnn.LatentHNNNoUTurnSampler).parameters
    assert list(kernel.parameters) == list(arguments)
    copy = kernel.copy(error_monitor="none", step_size=0.1)
    expected = dict(kernel.parameters, error_monitor="none", step_size=0.1)
    assert copy.parameters == expected
    assert (copy.is_calibrated, kernel.is_calibrated) == (True, False)
    assert copy.network is kernel.network
    assert copy.name == "mine"


def test_the_kernel_survives_being_copied_by_wrappers():
    kernel = make_kernel(max_energy_diff=500.0, error_monitor="none")
    wrapped = tfp.mcmc.DualAveragingStepSizeAdaptation(
        tfp.mcmc.TransformedTransitionKernel(kernel, tfp.bijectors.Exp()), 10
    )
    inner = wrapped.inner_kernel.inner_kernel
    assert inner.parameters == kernel.parameters


def test_trace_stats_refuses_foreign_results():
    kernel = tfp.mcmc.NoUTurnSampler(skewed_log_prob, 0.1)
    results = kernel.bootstrap_results(start())
    with pytest.raises(TypeError, match="NUTSKernelResults"):
        tfp_lhnn.trace_stats(start(), results)
    wrapped = tfp.mcmc.SimpleStepSizeAdaptation(kernel, 5)
    with pytest.raises(TypeError, match="SimpleStepSizeAdaptationResults"):
        tfp_lhnn.trace_stats(start(), wrapped.bootstrap_results(start()))


def test_trace_stats_has_everything_but_the_weights():
    results = make_kernel().bootstrap_results(start())
    left_out = {"lhnn", "momentum_distribution", "proposed_state", "proposed_results"}
    assert set(results._fields) - set(STATS) == left_out
    stats = tfp_lhnn.trace_stats(start(), results)
    for name in STATS:
        assert getattr(stats, name) is getattr(results, name)


# The wrappers.


def test_dual_averaging_adapts_a_step_size_for_each_part_and_chain():
    kernel = make_kernel(
        skewed_parts_log_prob, step_size=[np.full([3], 0.3), np.full([3, 1, 1], 0.2)]
    )
    kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(kernel, num_adaptation_steps=20)
    draws, stats = run_both_ways(kernel, split(start()), 30)
    assert isinstance(draws, list)
    for step, shape in zip(stats.step_size, ([30, 3], [30, 3, 1, 1]), strict=True):
        assert step.shape == shape
        assert step.dtype == tf.float64
        steps = step.numpy().reshape(30, 3)
        assert len(np.unique(steps[19])) == 3
        assert np.all(np.diff(steps[:20], axis=0))
        np.testing.assert_array_equal(steps[21:], np.tile(steps[21], [9, 1]))


def test_simple_adaptation_reaches_the_acceptance_that_is_asked_for():
    kernel = make_kernel(
        normal_log_prob,
        ExactNetwork(normal_log_prob),
        step_size=np.float32(0.01),
        error_monitor="none",
        trajectory_sampling="multinomial",
    )
    kernel = tfp.mcmc.SimpleStepSizeAdaptation(
        kernel, 200, target_accept_prob=0.8, adaptation_rate=0.05
    )
    state = start([16], np.float32) + 1.0
    _, stats = run_both_ways(kernel, state, 260)
    assert stats.step_size.shape == [260]
    assert stats.step_size.dtype == tf.float32
    # Leapfrog is stable up to twice the smallest scale, here 0.2.
    assert 0.1 < stats.step_size[-1] < 0.4
    acceptance = np.exp(stats.log_accept_ratio[200:]).mean()
    assert 0.7 < acceptance < 0.9


def test_the_step_size_in_the_results_is_the_one_used():
    kernel = make_kernel(step_size=0.3)
    state = start()
    results = kernel.bootstrap_results(state)
    tiny = results._replace(step_size=tf.constant(1e-6, tf.float64))
    moved, new = kernel.one_step(state, tiny, seed=[1, 2])
    assert 0 < np.max(np.abs(moved - state)) < 1e-4
    assert new.step_size == tiny.step_size


@pytest.mark.parametrize("adapt_outside", [True, False])
def test_transformed_kernel(adapt_outside):
    # A gamma density on positive numbers; the network knows it on the whole line.
    gamma = tfp.distributions.Gamma(
        concentration=tf.constant([2.0, 3.0], tf.float64),
        rate=tf.constant(1.0, tf.float64),
    )
    exp = tfp.bijectors.Exp()

    def log_prob(x):
        return tf.reduce_sum(gamma.log_prob(x), axis=-1)

    seen = []

    def unconstrained(q):
        seen.append(q)
        return log_prob(exp.forward(q)) + exp.forward_log_det_jacobian(q, event_ndims=1)

    kernel = make_kernel(log_prob, ExactNetwork(unconstrained), 0.2)

    def adapt(kernel):
        return tfp.mcmc.DualAveragingStepSizeAdaptation(kernel, 100)

    if adapt_outside:
        kernel = adapt(tfp.mcmc.TransformedTransitionKernel(kernel, exp))
    else:
        kernel = tfp.mcmc.TransformedTransitionKernel(adapt(kernel), exp)
    state = tf.constant(gamma.sample(64, seed=[1, 2]))
    draws, stats = run_both_ways(kernel, state, 300)
    draws = draws[100:]
    # The eager run came first, and the first gradient is that of its start.
    np.testing.assert_allclose(seen[0], tf.math.log(state))
    assert np.all(draws > 0)
    assert len(np.unique(stats.step_size[:100])) > 50
    assert_mean(draws, gamma.mean())
    assert_mean(tf.math.log(draws), tf.math.digamma(gamma.concentration))


def assert_mean(draws, expected):
    """Means over `[draws, chains, dim]` within four standard errors, chains apart."""
    means = np.mean(draws, axis=0)
    error = means.std(axis=0, ddof=1) / np.sqrt(len(means))
    np.testing.assert_array_less(np.abs(means.mean(axis=0) - expected), 4.0 * error)


def mass_kernel(num_estimation_steps, inner=None, **kwargs):
    if inner is None:
        inner = make_kernel(
            normal_log_prob,
            ExactNetwork(normal_log_prob),
            0.1,
            error_monitor="none",
            **kwargs,
        )
    variance = tfp.experimental.stats.RunningVariance.from_stats(
        num_samples=tf.constant(10.0, tf.float64),
        mean=tf.zeros([DIM], tf.float64),
        variance=tf.ones([DIM], tf.float64),
    )
    return tfp.experimental.mcmc.DiagonalMassMatrixAdaptation(
        inner, variance, num_estimation_steps=num_estimation_steps
    )


def trace_mass(state, results):
    """The statistics, and the variances that the momenta have."""
    while not isinstance(results, tfp_lhnn.LatentHNNKernelResults):
        results = results.inner_results
    (momentum,) = results.momentum_distribution.model
    return tfp_lhnn.trace_stats(state, results), momentum.variance()


def exact_normal_draws(num_chains=64):
    normal = np.random.default_rng(3).normal(size=(num_chains, DIM))
    return tf.constant(1.0 + SCALES * normal)


def assert_explores_all_scales(draws, mass):
    """`[draws, chains, dim]` of the normal density, after adaptation."""
    np.testing.assert_allclose(mass[-1, 0], SCALES**-2.0, rtol=0.2)
    assert_mean(draws, np.ones(DIM))
    assert_mean((draws - 1.0) ** 2, SCALES**2.0)
    # The mass evens the scales out: with unit mass they would differ 25 times.
    jumps = np.mean(np.abs(np.diff(draws[-100:], axis=0)), axis=(0, 1)) / SCALES
    assert 0.1 < jumps.min() < jumps.max() < 1.2 * jumps.min()


def test_mass_matrix_adaptation_at_every_step():
    draws, (_, mass) = run_both_ways(
        mass_kernel(None), exact_normal_draws(), 260, trace_fn=trace_mass
    )
    assert len(np.unique(mass[:, 0, 0])) == 260
    assert_explores_all_scales(draws[60:], mass)


def test_mass_matrix_adaptation_once():
    # Compiled, this is what the windows below do.
    kernel = mass_kernel(2)
    _, (_, mass) = run_chain(
        kernel, exact_normal_draws(), 4, jit=False, trace_fn=trace_mass
    )
    np.testing.assert_array_equal(mass[0], 1.0)
    assert np.all(mass[1] != 1.0)
    np.testing.assert_array_equal(mass[2:], [mass[1], mass[1]])


def test_the_mass_makes_the_momenta():
    variance = tfp.experimental.stats.RunningVariance.from_stats(
        num_samples=tf.constant(10.0, tf.float64),
        mean=tf.zeros([DIM], tf.float64),
        variance=tf.constant(SCALES**2),
    )
    kernel = mass_kernel(None, max_tree_depth=1).copy(initial_running_variance=variance)
    state = exact_normal_draws(2000)
    results = kernel.bootstrap_results(state).inner_results
    step = 1e-4
    results = results._replace(step_size=tf.constant(step, tf.float64))
    new_state, results = kernel.inner_kernel.one_step(state, results, seed=[1, 2])
    # A short way is Δt M⁻¹p, which has the variance Δt² M⁻¹.
    moved = (new_state - state)[results.is_accepted] / step
    # The standard error is about 1/sqrt(2 · 1000) = 2.2 %.
    np.testing.assert_allclose(np.std(moved, axis=0), SCALES, rtol=0.1)
    kinetic = results.energy + results.target_log_prob
    np.testing.assert_allclose(np.mean(kinetic), DIM / 2, rtol=0.1)


@pytest.mark.parametrize("num_estimation_steps", [None, 3])
def test_a_joint_network_refuses_a_mass_matrix(num_estimation_steps):
    inner = make_kernel(network=small_network(separable=False))
    kernel = mass_kernel(num_estimation_steps, inner)
    with pytest.raises(ValueError, match=r"joint network.*mass matrix cannot"):
        run_chain(kernel, start(), 2, jit=False)


def test_windowed_adaptation():
    kernel = mass_kernel(100)
    kernel = kernel.copy(
        inner_kernel=tfp.mcmc.DualAveragingStepSizeAdaptation(
            kernel.inner_kernel, num_adaptation_steps=100
        )
    )
    # The windows need this nesting exactly.
    kernel = windowed_sampling.WindowedAdaptation(kernel, num_adaptation_steps=100)
    draws, (stats, mass) = run_both_ways(
        kernel, exact_normal_draws(), 300, trace_fn=trace_mass
    )
    assert len(np.unique(stats.step_size[:100])) > 80
    assert len(np.unique(stats.step_size[101:])) == 1
    assert_explores_all_scales(draws[100:], mass)


INVERSE_TEMPERATURES = np.array([1.0, 0.5, 0.2])


def replica_exchange(adapts):
    """Three temperatures, with or without step-size adaptation inside."""

    def make_kernel_fn(log_prob):
        # One step size for each temperature: [replicas, chains, coordinates].
        step_size = 0.3 / np.sqrt(INVERSE_TEMPERATURES)[:, np.newaxis, np.newaxis]
        kernel = make_kernel(log_prob, network, step_size, error_monitor="none")
        if adapts:
            kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(kernel, 10)
        return kernel

    network = ExactNetwork(skewed_log_prob)
    return tfp.mcmc.ReplicaExchangeMC(
        skewed_log_prob, tf.constant(INVERSE_TEMPERATURES), make_kernel_fn
    )


def test_replica_exchange():
    def trace_fn(state, results):
        return (
            tfp_lhnn.trace_stats(state, results),
            results.post_swap_replica_states,
            results.is_swap_accepted_adjacent,
        )

    draws, (stats, replicas, swapped) = run_both_ways(
        replica_exchange(adapts=True), start(), 30, trace_fn=trace_fn
    )
    assert draws.shape == [30, 3, DIM]
    assert 0.1 < np.mean(swapped) < 1.0
    # Nothing about the old position is left after a swap.
    (replicas,) = replicas
    np.testing.assert_array_equal(draws, replicas[:, 0])
    np.testing.assert_allclose(
        stats.target_log_prob,
        INVERSE_TEMPERATURES[:, np.newaxis] * skewed_log_prob(replicas),
    )
    assert stats.step_size.shape == [30, 3, 1, 1]
    assert np.all(stats.step_size[5] != stats.step_size[0])


def test_replica_exchange_without_adaptation():
    kernel = replica_exchange(adapts=False)
    draws, stats = run_chain(kernel, start(), 2, jit=False)
    assert_moves(draws, start())
    np.testing.assert_array_equal(stats.step_size[0], stats.step_size[1])


def test_reductions_of_a_joint_network():
    kernel = tfp.experimental.mcmc.WithReductions(
        make_kernel(network=small_network(separable=False)),
        tfp.experimental.mcmc.ExpectationsReducer(),
    )

    def trace_fn(state, results):
        mean = kernel.reducer.finalize(results.reduction_results)
        return tfp_lhnn.trace_stats(state, results), mean

    draws, (stats, means) = run_both_ways(kernel, start(), 20, trace_fn=trace_fn)
    np.testing.assert_allclose(means[-1], np.mean(draws, axis=0), rtol=1e-6)
    assert stats.energy.shape == [20, 3]


@pytest.mark.parametrize("jit", [True, False])
def test_experimental_sample_chain(jit):
    kernel = make_kernel(error_monitor="none")

    def sample(state, num_results=3, **kwargs):
        result = tfp.experimental.mcmc.sample_chain(
            kernel,
            num_results,
            state,
            reducer=tfp.experimental.mcmc.ExpectationsReducer(),
            # The reducer's value comes as a third argument.
            trace_fn=lambda *args: (args[0], tfp_lhnn.trace_stats(*args)),
            seed=tf.constant([1, 2]),
            **kwargs,
        )
        return result.trace, result.reduction_results, result.final_kernel_results

    run = tf.function(sample, jit_compile=True, autograph=False) if jit else sample
    (draws, stats), mean, results = run(start())
    assert_moves(draws, start())
    np.testing.assert_allclose(mean, np.mean(draws, axis=0))
    assert stats.target_log_prob.shape == [3, 3]
    _, _, resumed = sample(draws[-1], 1, previous_kernel_results=results)
    assert np.all(resumed.target_evaluations > results.target_evaluations)
    assert_trees_equal(resumed.lhnn, results.lhnn)


def test_progress_bar():
    ticks = []

    def bar(num_results):
        for i in range(num_results):
            ticks.append(i)
            yield

    kernel = tfp.experimental.mcmc.WithReductions(
        make_kernel(error_monitor="none"),
        tfp.experimental.mcmc.ProgressBarReducer(3, bar),
    )
    # It calls Python, which XLA cannot.
    draws, stats = run_chain(kernel, start(), 3, jit=False)
    assert_moves(draws, start())
    assert stats.energy.shape == [3, 3]
    assert ticks == [0, 1, 2]
