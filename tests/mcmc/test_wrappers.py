"""Both kernels inside all that TFP's users combine them with, compiled and not."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from tensorflow_probability.python.experimental.mcmc import windowed_sampling

import tfp_lhnn

from .helpers import (
    DIM,
    MODES,
    ExactNetwork,
    assert_moves,
    assert_trees_equal,
    make_kernel,
    run_chain,
    run_compiled_steps,
    skewed_log_prob,
    skewed_parts_log_prob,
    small_network,
    split,
    start,
)

# The cool-down monitor says so; `test_contract` has a test of that.
pytestmark = pytest.mark.filterwarnings(
    "ignore:supplied `TransitionKernel` is not calibrated:UserWarning"
)

each_mode = pytest.mark.parametrize("mode", MODES)

# Compilation takes most of the time, so wrappers are compiled in some modes only, and
# run eagerly in all. Alone, `test_contract` compiles them all.
BOTH_KERNELS = ("cooldown", "delayed with true transitions")
# What the other two do is part of what these do.
each_compiled_mode = pytest.mark.parametrize(
    "mode", [*BOTH_KERNELS, pytest.param("pointwise", marks=pytest.mark.slow)]
)

SCALES = np.array([0.2, 1.0, 1.0, 1.0, 5.0])


def normal_log_prob(q):
    """An anisotropic normal density off the origin."""
    scales = tf.constant(SCALES, q.dtype)
    return -0.5 * tf.reduce_sum(((q - 1.0) / scales) ** 2, axis=-1)


def run_both_ways(kernel, state, num_results, mode, trace_fn=tfp_lhnn.trace_stats):
    """Compiled draws; an eager run must be of the same kind.

    The numbers differ: from the same seed XLA draws other random numbers. The loops of
    `sample_chain` are compiled in one mode, transitions alone in the others.
    """
    eager = run_chain(kernel, state, 2, jit=False, trace_fn=trace_fn)
    assert_moves(eager[0], state)
    if mode == "cooldown":
        compiled = run_chain(kernel, state, num_results, jit=True, trace_fn=trace_fn)
    else:
        compiled = run_compiled_steps(kernel, state, num_results, trace_fn)
    compiled, eager = tuple(compiled), tuple(eager)  # TFP has a type of its own.
    tf.nest.assert_same_structure(compiled, eager)
    for a, b in zip(tf.nest.flatten(compiled), tf.nest.flatten(eager), strict=True):
        assert (a.dtype, a.shape[1:]) == (b.dtype, b.shape[1:])
    assert_moves(compiled[0], state)
    return compiled


def assert_mean(draws, expected):
    """Means over `[draws, chains, dim]` within four standard errors, chains apart."""
    means = np.mean(draws, axis=0)
    error = means.std(axis=0, ddof=1) / np.sqrt(len(means))
    np.testing.assert_array_less(np.abs(means.mean(axis=0) - expected), 4.0 * error)


# Step sizes. Each wrapper comes as a function from the mode to a kernel and a state.


def dual_averaging(mode):
    """A step size for each part and chain."""
    kernel = make_kernel(
        skewed_parts_log_prob,
        step_size=[np.full([3], 0.3), np.full([3, 1, 1], 0.2)],
        mode=mode,
    )
    kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(kernel, num_adaptation_steps=20)
    return kernel, split(start())


@each_compiled_mode
def test_dual_averaging_adapts_a_step_size_for_each_part_and_chain(mode):
    draws, stats = run_both_ways(*dual_averaging(mode), 30, mode)
    assert isinstance(draws, list)
    for step, shape in zip(stats.step_size, ([30, 3], [30, 3, 1, 1]), strict=True):
        assert step.shape == shape
        assert step.dtype == tf.float64
        steps = step.numpy().reshape(30, 3)
        assert len(np.unique(steps[19])) == 3
        assert np.all(np.diff(steps[:20], axis=0))
        np.testing.assert_array_equal(steps[21:], np.tile(steps[21], [9, 1]))


def simple_adaptation(mode):
    kernel = make_kernel(
        normal_log_prob,
        ExactNetwork(normal_log_prob),
        np.float32(0.01),
        mode=mode,
        max_tree_depth=3,
        trajectory_sampling="multinomial",
    )
    kernel = tfp.mcmc.SimpleStepSizeAdaptation(
        kernel, 200, target_accept_prob=0.8, adaptation_rate=0.05
    )
    return kernel, start([16], np.float32) + 1.0


@each_compiled_mode
def test_simple_adaptation_reaches_the_acceptance_that_is_asked_for(mode):
    _, stats = run_both_ways(*simple_adaptation(mode), 260, mode)
    assert stats.step_size.shape == [260]
    assert stats.step_size.dtype == tf.float32
    # Leapfrog is stable up to twice the smallest scale, here 0.2.
    assert 0.1 < stats.step_size[-1] < 0.4
    acceptance = np.exp(stats.log_accept_ratio[200:]).mean()
    assert 0.7 < acceptance < 0.9


# A density on positive numbers.
GAMMA = tfp.distributions.Gamma(
    concentration=tf.constant([2.0, 3.0], tf.float64), rate=np.float64(1.0)
)


def gamma_log_prob(x):
    return tf.reduce_sum(GAMMA.log_prob(x), axis=-1)


def transformed(mode, adapts_outside, seen=None):
    """The network knows the density on the whole line; `seen` gets what it is asked."""
    exp = tfp.bijectors.Exp()

    def unconstrained(q):
        if seen is not None:
            seen.append(q)
        log_det = exp.forward_log_det_jacobian(q, event_ndims=1)
        return gamma_log_prob(exp.forward(q)) + log_det

    kernel = make_kernel(gamma_log_prob, ExactNetwork(unconstrained), 0.2, mode=mode)

    def adapt(kernel):
        return tfp.mcmc.DualAveragingStepSizeAdaptation(kernel, 100)

    if adapts_outside:
        kernel = adapt(tfp.mcmc.TransformedTransitionKernel(kernel, exp))
    else:
        kernel = tfp.mcmc.TransformedTransitionKernel(adapt(kernel), exp)
    return kernel, tf.constant(GAMMA.sample(64, seed=[1, 2]))


@pytest.mark.parametrize(
    ("adapts_outside", "mode"),
    [
        *((outside, mode) for outside in (True, False) for mode in BOTH_KERNELS),
        pytest.param(True, "pointwise", marks=pytest.mark.slow),
    ],
)
def test_transformed_kernel(adapts_outside, mode):
    seen = []
    kernel, state = transformed(mode, adapts_outside, seen)
    draws, stats = run_both_ways(kernel, state, 250, mode)
    draws = draws[100:]
    # The eager run came first, and the network's first energy is that of its start.
    # (Before it the network was traced, to see the shape of its latents.)
    first = next(x for x in seen if hasattr(x, "numpy"))
    np.testing.assert_allclose(first, tf.math.log(state))
    assert np.all(draws > 0)
    assert len(np.unique(stats.step_size[:100])) > 50
    assert_mean(draws, GAMMA.mean())
    assert_mean(tf.math.log(draws), tf.math.digamma(GAMMA.concentration))


# The mass matrix.


def adapt_mass(inner, num_estimation_steps, variance=1.0):
    variance = tfp.experimental.stats.RunningVariance.from_stats(
        num_samples=tf.constant(10.0, tf.float64),
        mean=tf.zeros([DIM], tf.float64),
        variance=tf.constant(variance, tf.float64, [DIM]),
    )
    return tfp.experimental.mcmc.DiagonalMassMatrixAdaptation(
        inner, variance, num_estimation_steps=num_estimation_steps
    )


def normal_kernel(mode, **kwargs):
    network = ExactNetwork(normal_log_prob)
    settings = {"max_tree_depth": 3, **kwargs}
    return make_kernel(normal_log_prob, network, 0.1, mode=mode, **settings)


def mass_adaptation(mode, num_estimation_steps):
    kernel = adapt_mass(normal_kernel(mode), num_estimation_steps)
    return kernel, exact_normal_draws()


def windowed_adaptation(mode):
    # The windows need this nesting exactly.
    kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(
        normal_kernel(mode), num_adaptation_steps=100
    )
    kernel = windowed_sampling.WindowedAdaptation(
        adapt_mass(kernel, 100), num_adaptation_steps=100
    )
    return kernel, exact_normal_draws()


def trace_mass(state, results):
    """The statistics, and the variances that the momenta have."""
    stats = tfp_lhnn.trace_stats(state, results)
    while not hasattr(results, "momentum_distribution"):
        results = results.inner_results
    (momentum,) = results.momentum_distribution.model
    return stats, momentum.variance()


def exact_normal_draws(num_chains=64):
    normal = np.random.default_rng(3).normal(size=(num_chains, DIM))
    return tf.constant(1.0 + SCALES * normal)


def assert_explores_all_scales(draws, mass):
    """`[draws, chains, dim]` of the normal density, after adaptation."""
    np.testing.assert_allclose(mass[-1, 0], SCALES**-2.0, rtol=0.2)
    assert_mean(draws, np.ones(DIM))
    assert_mean((draws - 1.0) ** 2, SCALES**2.0)
    # The mass evens the scales out: with unit mass they would differ 25 times.
    jumps = np.mean(np.abs(np.diff(draws, axis=0)), axis=(0, 1)) / SCALES
    assert 0.1 < jumps.min() < jumps.max() < 1.2 * jumps.min()


@each_compiled_mode
def test_mass_matrix_adaptation_at_every_step(mode):
    draws, (_, mass) = run_both_ways(
        *mass_adaptation(mode, None), 160, mode, trace_mass
    )
    assert len(np.unique(mass[:, 0, 0])) == 160
    assert_explores_all_scales(draws[60:], mass)


@pytest.mark.parametrize("mode", BOTH_KERNELS)
def test_mass_matrix_adaptation_once(mode):
    _, (_, mass) = run_both_ways(*mass_adaptation(mode, 2), 4, mode, trace_mass)
    np.testing.assert_array_equal(mass[0], 1.0)
    assert np.all(mass[1] != 1.0)
    np.testing.assert_array_equal(mass[2:], [mass[1], mass[1]])


@each_compiled_mode
def test_windowed_adaptation(mode):
    draws, (stats, mass) = run_both_ways(
        *windowed_adaptation(mode), 180, mode, trace_mass
    )
    assert len(np.unique(stats.step_size[:100])) > 80
    assert len(np.unique(stats.step_size[101:])) == 1
    assert_explores_all_scales(draws[101:], mass)


@each_mode
def test_the_mass_makes_the_momenta(mode):
    kernel = adapt_mass(normal_kernel(mode, max_tree_depth=1), None, SCALES**2)
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
    kernel = adapt_mass(inner, num_estimation_steps)
    with pytest.raises(ValueError, match=r"joint network.*mass matrix cannot"):
        run_chain(kernel, start(), 2, jit=False)


# Temperatures.

INVERSE_TEMPERATURES = np.array([1.0, 0.5, 0.2])


def replica_exchange(mode, adapts):
    """Three temperatures, with or without step-size adaptation inside."""

    def make_kernel_fn(log_prob):
        # One step size for each temperature: [replicas, chains, coordinates].
        step_size = 0.3 / np.sqrt(INVERSE_TEMPERATURES)[:, np.newaxis, np.newaxis]
        kernel = make_kernel(log_prob, network, step_size, mode=mode)
        if adapts:
            kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(kernel, 10)
        return kernel

    network = ExactNetwork(skewed_log_prob)  # Wrong where it is hot.
    kernel = tfp.mcmc.ReplicaExchangeMC(
        skewed_log_prob, tf.constant(INVERSE_TEMPERATURES), make_kernel_fn
    )
    return kernel, start()


@pytest.mark.parametrize(
    ("adapts", "mode"),
    # The slowest of all to compile.
    [
        *((True, mode) for mode in BOTH_KERNELS),
        pytest.param(False, BOTH_KERNELS[1], marks=pytest.mark.slow),
    ],
)
def test_replica_exchange(adapts, mode):
    def trace_fn(state, results):
        return (
            tfp_lhnn.trace_stats(state, results),
            results.post_swap_replica_states,
            results.is_swap_accepted_adjacent,
        )

    draws, (stats, replicas, swapped) = run_both_ways(
        *replica_exchange(mode, adapts), 30, mode, trace_fn
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
    assert np.all((stats.step_size[5] != stats.step_size[0]) == adapts)


# All of them, eagerly, in the modes in which they are not compiled above.

WRAPPERS = {
    "dual averaging": dual_averaging,
    "simple adaptation": simple_adaptation,
    "adapted transformation": lambda mode: transformed(mode, adapts_outside=True),
    "transformed adaptation": lambda mode: transformed(mode, adapts_outside=False),
    "mass at every step": lambda mode: mass_adaptation(mode, None),
    "mass once": lambda mode: mass_adaptation(mode, 2),
    "windows": windowed_adaptation,
    "replica exchange": lambda mode: replica_exchange(mode, adapts=False),
    "adapted replica exchange": lambda mode: replica_exchange(mode, adapts=True),
}


@pytest.mark.parametrize(
    ("wrapper", "mode"),
    [
        *((wrapper, mode) for wrapper in WRAPPERS for mode in ("none", "delayed")),
        ("transformed adaptation", "pointwise"),
        ("mass once", "pointwise"),
        ("replica exchange", "cooldown"),
        ("replica exchange", "pointwise"),
        ("adapted replica exchange", "pointwise"),
    ],
)
def test_wrappers_in_other_modes(wrapper, mode):
    kernel, state = WRAPPERS[wrapper](mode)
    draws, stats = run_chain(kernel, state, 3, jit=False)
    assert_moves(draws, state)
    steps = tf.nest.flatten(stats.step_size)[0]
    keeps_step = wrapper in ("mass at every step", "mass once", "replica exchange")
    assert np.all(steps[0] == steps[2]) == keeps_step
    assert np.isfinite(stats.energy).all()
    # A density a draw at least, and true gradients where the monitor has to ask for
    # them: the network is exact but where it is hot.
    assert np.all(np.diff(stats.target_evaluations, axis=0) >= 1)
    needs_gradients = "replica" in wrapper and mode in ("cooldown", "pointwise")
    assert np.any(stats.target_gradients) == needs_gradients


# Reductions.


def test_reductions_of_a_joint_network():
    # Those of the others are compiled below: TFP's experimental `sample_chain` makes a
    # `WithReductions` of its reducer.
    check_reductions(make_kernel(network=small_network(separable=False)), jit=True)


@each_mode
def test_reductions(mode):
    check_reductions(make_kernel(mode=mode), jit=False)


def check_reductions(kernel, jit):
    kernel = tfp.experimental.mcmc.WithReductions(
        kernel, tfp.experimental.mcmc.ExpectationsReducer()
    )

    def trace_fn(state, results):
        mean = kernel.reducer.finalize(results.reduction_results)
        return tfp_lhnn.trace_stats(state, results), mean

    draws, (stats, means) = run_chain(kernel, start(), 4, jit=jit, trace_fn=trace_fn)
    assert_moves(draws, start())
    np.testing.assert_allclose(means[-1], np.mean(draws, axis=0), rtol=1e-6)
    assert stats.energy.shape == [4, 3]


@pytest.mark.parametrize(
    ("jit", "mode"),
    [*((True, mode) for mode in BOTH_KERNELS), *((False, mode) for mode in MODES)],
)
def test_experimental_sample_chain(jit, mode):
    kernel = make_kernel(mode=mode)

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


@each_mode
@pytest.mark.parametrize("in_a_graph", [True, False], ids=["graph", "eager"])
def test_progress_bar(in_a_graph, mode):
    ticks = []

    def bar(num_results):
        for i in range(num_results):
            ticks.append(i)
            yield

    kernel = tfp.experimental.mcmc.WithReductions(
        make_kernel(mode=mode), tfp.experimental.mcmc.ProgressBarReducer(3, bar)
    )

    def sample(state):
        return run_chain(kernel, state, 3, jit=False)

    # It calls Python, which XLA cannot.
    run = tf.function(sample, autograph=False) if in_a_graph else sample
    draws, stats = run(start())
    assert_moves(draws, start())
    assert stats.energy.shape == [3, 3]
    assert ticks == [0, 1, 2]
