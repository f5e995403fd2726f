"""Targets with exact draws, and tests of whether a transition leaves them as they are.

The chains start from exact draws, so that after an exact transition they are exact
draws again. Two tests look at that:

* Kolmogorov-Smirnov: the chains' distribution against the exact one.
* Flows: as many chains must cross a threshold upwards as downwards. Given the number of
  crossings, those upwards are binomial with probability one half, exactly and in the
  far tail too. What has not moved makes no noise here, so that small errors are seen
  which the other test cannot see.

P-values are multiplied by the number of tests made (Bonferroni), so that all of them
together raise a false alarm with at most the probability that one is compared with.
"""

import functools

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

tfd = tfp.distributions

NUM_DRAWS = 100_000
FALSE_ALARM_RATE = 1e-6
# By the Dvoretzky-Kiefer-Wolfowitz inequality a CDF that is off by this much is found
# out with near certainty; by half as much, about half the time.
DETECTABLE = 2.0 * np.sqrt(np.log(2.0 / FALSE_ALARM_RATE) / (2.0 * NUM_DRAWS))

# Thresholds of the flows; beyond the outermost lie a hundred draws.
LEVELS = (0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999)


def gumbel_log_prob(q):
    """Skewed, one tail exponential and one double exponential; all coordinates."""
    return tf.reduce_sum(-q - tf.exp(-q), axis=-1)


def gumbel_draws(seed=(1, 2)):
    """`[NUM_DRAWS, 1]`, float64."""
    draws = tfd.Gumbel(np.float64(0), 1).sample([NUM_DRAWS, 1], seed=list(seed))
    return draws.numpy()


def three_gumbels_log_prob(q):
    """Correlated and skewed: Gumbel variables that lean on each other."""
    x, y, z = tf.unstack(q, axis=-1)
    return gumbel_log_prob(tf.stack([x, y - 0.7 * x, 2.0 * (z + 0.5 * y)], axis=-1))


def three_gumbels_draws(seed=(1, 2)):
    """`[NUM_DRAWS, 3]`, float64."""
    e = tfd.Gumbel(np.float64(0), 1).sample([NUM_DRAWS, 3], seed=list(seed)).numpy()
    x = e[:, 0]
    y = e[:, 1] + 0.7 * x
    return np.stack([x, y, e[:, 2] / 2.0 - 0.5 * y], axis=-1)


def flow_p_values(start, end, thresholds):
    """P-values of the flows across `thresholds`, `[k]`, of chains `[n]`."""
    was_above, is_above = (x > np.reshape(thresholds, [-1, 1]) for x in (start, end))
    up = np.sum(is_above & ~was_above, axis=1)
    down = np.sum(was_above & ~is_above, axis=1)
    # Two-sided; no crossing at all gives one.
    return np.minimum(1.0, 2.0 * stats.binom.cdf(np.minimum(up, down), up + down, 0.5))


def gumbel_ks_p_value(draws):
    return stats.kstest(np.ravel(draws), stats.gumbel_r.cdf).pvalue


def gumbel_p_value(start, end):
    """Of all tests together that `end` is what `start` was: exact Gumbel draws."""
    flows = flow_p_values(np.ravel(start), np.ravel(end), stats.gumbel_r.ppf(LEVELS))
    return _together([gumbel_ks_p_value(end), *flows])


# The coordinates and random directions.
DIRECTIONS = np.concatenate([np.eye(3), np.random.default_rng(5).normal(size=(8, 3))])


def three_gumbels_p_value(start, end):
    """The same for `three_gumbels_draws`, on projections and against other draws."""
    p_values = []
    for direction, (other, thresholds) in zip(DIRECTIONS, _references(), strict=True):
        first, last = start @ direction, end @ direction
        p_values.append(stats.ks_2samp(last, other).pvalue)
        p_values.extend(flow_p_values(first, last, thresholds))
    return _together(p_values)


@functools.cache
def _references():
    """Other draws, projected, and the thresholds from them, by direction."""
    projections = DIRECTIONS @ three_gumbels_draws(seed=(3, 4)).T
    return [(other, np.quantile(other, LEVELS)) for other in projections]


def _together(p_values):
    return min(1.0, len(p_values) * min(p_values))


class Transitions:
    """A kernel compiled once, for as many starts, weights and seeds as there are.

    Args:
        kernel: its results carry the weights of its network, which may therefore change
            between two runs.
    """

    def __init__(self, kernel):
        self.kernel = kernel
        self._one_step = tf.function(kernel.one_step, jit_compile=True, autograph=False)

    def run(self, start, dtype, num_steps=1, seed=30):
        """Transitions with a fresh seed each.

        Args:
            start: `[n, dim]`.
            dtype: of the state.
            num_steps: how many.
            seed: of the first one; it counts up.

        Returns:
            The states after each transition, in float64 (no rounding on the way), and
            the results of each.
        """
        state = tf.constant(start, dtype)
        results = self.kernel.bootstrap_results(state)
        states, traces = [], []
        for i in range(num_steps):
            state, results = self._one_step(
                state, results, seed=tf.constant([seed + i, 4])
            )
            states.append(state.numpy().astype(np.float64))
            traces.append(results)
        return states, traces
