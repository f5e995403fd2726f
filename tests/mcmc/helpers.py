"""Small targets, stand-in networks and runners for the tests of the kernel."""

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_lhnn

DIM = 5
# One scalar and one matrix, side by side: DIM coordinates.
EVENT_SHAPES = ((), (2, 2))


def skewed_log_prob(q):
    """`[..., DIM] -> [...]`: unequal scales and skewed, so that no sign can hide."""
    z = q / tf.constant([1.0, 0.5, 2.0, 1.0, 0.7], q.dtype)
    return -0.5 * tf.reduce_sum(z**2, axis=-1) - 0.2 * tf.exp(z[..., 0] - z[..., 1])


def join(scalar, matrix):
    """The two parts of `EVENT_SHAPES` as one `[..., DIM]` tensor."""
    batch_shape = tf.shape(scalar)
    rows = tf.reshape(matrix, tf.concat([batch_shape, [DIM - 1]], axis=0))
    return tf.concat([scalar[..., tf.newaxis], rows], axis=-1)


def skewed_parts_log_prob(scalar, matrix):
    """`skewed_log_prob` of a state in two parts."""
    return skewed_log_prob(join(scalar, matrix))


def start(batch_shape=(3,), dtype=np.float64, seed=0):
    """A state of one tensor, `[batch..., DIM]`, near the mode."""
    normal = np.random.default_rng(seed).normal(size=(*batch_shape, DIM))
    return tf.constant(0.3 * normal, dtype)


def split(q):
    """A `[..., DIM]` tensor as the two parts of `EVENT_SHAPES`."""
    return [q[..., 0], tf.reshape(q[..., 1:], [*q.shape[:-1], 2, 2])]


def small_network(separable=True, seed=1, **kwargs):
    """A standard Gaussian and, drawn with the seed, something wrong on top."""
    network = tfp_lhnn.LatentHNN(
        DIM, hidden_units=(4,), separable=separable, seed=seed, **kwargs
    )
    # A new network is its base alone; here the weights must matter.
    network.initialise(seed)
    return network


class ExactNetwork:
    """What a network needs to offer, and no more: the target's own energy.

    Args:
        log_prob: `[n, dim] -> [n]`.
    """

    trainable_variables = ()
    non_trainable_variables = ()

    def __init__(self, log_prob):
        self._log_prob = log_prob

    def stateless_call(self, trainable, non_trainable, x):
        del trainable
        return -self._log_prob(x)[:, tf.newaxis], non_trainable


@tf.custom_gradient
def poison(q, amount):
    """`q` itself, with `amount` added to whatever gradient flows back to it."""
    return tf.identity(q), lambda upstream: (upstream + amount, None)


# Both kernels with all their monitors. The thresholds are such that `small_network` is
# trusted in some places and not in others.
MODES = {
    "cooldown": {"max_hnn_energy_diff": 0.5, "num_fallback_samples": 3},
    "pointwise": {"error_monitor": "pointwise", "max_residual": 0.5},
    "none": {"error_monitor": "none"},
    "delayed": {"true_transition_probability": 0.0},
    "delayed with true transitions": {"true_transition_probability": 0.5},
}
# Those that need a density of the position alone refuse a joint network.
JOINT_MODES = ("cooldown", "none")


def make_kernel(
    target=skewed_log_prob, network=None, step_size=0.3, *, mode="cooldown", **kwargs
):
    """A kernel with trees small enough for tests, in one of `MODES`."""
    kernel = (
        tfp_lhnn.LatentHNNDelayedAcceptanceSampler
        if mode.startswith("delayed")
        else tfp_lhnn.LatentHNNNoUTurnSampler
    )
    return kernel(
        target,
        small_network() if network is None else network,
        step_size,
        **{"max_tree_depth": 2, **MODES[mode], **kwargs},
    )


def run_chain(
    kernel,
    state,
    num_results,
    *,
    jit,
    seed=(1, 2),
    trace_fn=tfp_lhnn.trace_stats,
    **kwargs,
):
    """`sample_chain`, compiled by XLA or eagerly."""

    def sample(state):
        return tfp.mcmc.sample_chain(
            num_results,
            state,
            kernel=kernel,
            trace_fn=trace_fn,
            seed=None if seed is None else tf.constant(seed),
            **kwargs,
        )

    if jit:
        sample = tf.function(sample, jit_compile=True, autograph=False)
    return sample(state)


def run_compiled_steps(kernel, state, num_results, trace_fn=tfp_lhnn.trace_stats):
    """The same from a loop in Python around one compiled transition.

    The loops of `sample_chain` take half as long again to compile.
    """

    @tf.function(jit_compile=True, autograph=False)
    def step(state, results, seed):
        state, results = kernel.one_step(state, results, seed=seed)
        return state, results, trace_fn(state, results)

    # As `sample_chain` does: a number would be a constant of the compiled function.
    results = tf.nest.map_structure(
        tf.convert_to_tensor, kernel.bootstrap_results(state), expand_composites=True
    )
    draws = []
    for i in range(num_results):
        state, results, trace = step(state, results, tf.constant([i, 2]))
        draws.append((state, trace))
    assert step.experimental_get_tracing_count() == 1
    return tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *draws)


def assert_moves(draws, state):
    """All draws are finite, and every part of the state changes."""
    for part, initial in zip(
        tf.nest.flatten(draws), tf.nest.flatten(state), strict=True
    ):
        assert np.isfinite(part).all()
        assert np.any(part != initial)


def assert_trees_equal(first, second):
    """Bit for bit, leaf by leaf."""
    tf.nest.assert_same_structure(first, second, expand_composites=True)
    for a, b in zip(
        tf.nest.flatten(first, expand_composites=True),
        tf.nest.flatten(second, expand_composites=True),
        strict=True,
    ):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
