"""Exact draws of the skewed density, and a test that chains still are such draws.

As in `tests/mcmc`: chains start from exact draws, so that after an exact transition
they are exact draws again. P-values are those of all tests together, by Bonferroni.
"""

import numpy as np
from scipy import stats

from ..mcmc.statistics import LEVELS, flow_p_values

FALSE_ALARM_RATE = 1e-6


def skewed_draws(number, seed=1):
    """`[number, 2]`: a Gumbel variable, and a normal one that leans on it."""
    rng = np.random.default_rng(seed)
    x = rng.gumbel(size=number)
    y = 0.8 * x + rng.normal(scale=0.5, size=number)
    return np.stack([x, y], axis=-1).astype(np.float32)


def p_value(start, end):
    """That `end` is what `start` was: exact draws, `[n, 2]`, of the skewed density."""
    p_values = []
    levels = [stats.gumbel_r.ppf(LEVELS), stats.norm.ppf(LEVELS)]
    cdfs = stats.gumbel_r.cdf, stats.norm.cdf
    first, last = _independent(start), _independent(end)
    for one, other, cdf, level in zip(first, last, cdfs, levels, strict=True):
        p_values.append(stats.kstest(other, cdf).pvalue)
        p_values.extend(flow_p_values(one, other, level))
    # What the two have to do with each other, at independent halves.
    sums, others = (last[0] + last[1])[::2], (first[0] + first[1])[1::2]
    p_values.append(stats.ks_2samp(sums, others).pvalue)
    return min(1.0, len(p_values) * min(p_values))


def moved(start, end):
    """How far, on average."""
    return np.mean(np.abs(end - start))


def _independent(draws):
    x, y = np.asarray(draws, np.float64).T
    return x, (y - 0.8 * x) / 0.5
