"""The hash that stands in for a generator inside the tree, and what a draw begins with.

Every statistical test here has a false alarm in a million (`SMALLEST`); there are about
thirty. The same tests find out the hash without its last step, a mere counter.
"""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tfp_lhnn.mcmc.randomness import counted_uniform, draw

SMALLEST = 1e-6
NUM_KEYS, NUM_COUNTS = 2**15, 2**15
DTYPES = [tf.float32, tf.float64]
KEYS = np.random.default_rng(11).integers(0, 2**32, NUM_KEYS, dtype=np.uint32)
CELLS = 16


def hashed(keys, count, dtype=tf.float64):
    return counted_uniform(tf.constant(keys), tf.constant(count), dtype).numpy()


def merely_counted(keys, count, dtype=tf.float64):
    """What there is before the finalizer: to be found out."""
    del dtype
    steps = np.atleast_1d(count).astype(np.uint32) * np.uint32(0x9E3779B9)
    return (keys + steps) / 2.0**32


def by_count(generator, key):
    """Numbers of one key for many counts."""
    return generator(np.array([key]), np.arange(NUM_COUNTS))


def uniformity(x):
    return stats.kstest(x, "uniform").pvalue


def independence(x, y):
    """Of two sequences: chi-squared over a table of 256 cells."""
    table, _, _ = np.histogram2d(x, y, bins=CELLS, range=[[0, 1], [0, 1]])
    return stats.chisquare(table.ravel()).pvalue


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("count", [0, 1, 1022, 2**24])
def test_over_keys_numbers_are_uniform(count, dtype):
    numbers = hashed(KEYS, count, dtype)
    assert numbers.dtype == dtype.as_numpy_dtype
    assert numbers.min() >= 0.0
    assert numbers.max() < 1.0
    assert uniformity(numbers) > SMALLEST


@pytest.mark.parametrize("key", [0, 1, 2**32 - 1, 123_456_789])
def test_over_counts_numbers_are_uniform(key):
    numbers = by_count(hashed, np.uint32(key))
    assert uniformity(numbers) > SMALLEST
    # And not evenly spread, as those of a counter are: variance of their sums.
    sums = numbers.reshape(-1, 8).sum(axis=1)
    assert uniformity(stats.irwinhall.cdf(sums, 8)) > SMALLEST


@pytest.mark.parametrize("lag", [1, 2, 3, 512])
def test_the_numbers_of_a_key_are_independent(lag):
    assert independence(hashed(KEYS, 5), hashed(KEYS, 5 + lag)) > SMALLEST


@pytest.mark.parametrize("distance", [1, 2, 2**16, 2**31])
def test_the_numbers_of_neighbouring_keys_are_independent(distance):
    others = KEYS + np.uint32(distance)
    assert independence(hashed(KEYS, 5), hashed(others, 5)) > SMALLEST


def test_keys_that_differ_in_one_bit_differ_in_half_of_the_bits():
    """Each of 32 × 24 flips has a chance of a half; worst of these, normal tails."""
    bits = (hashed(KEYS, 3) * 2.0**32).astype(np.uint32)
    shares = []
    for i in range(32):
        others = (hashed(KEYS ^ np.uint32(1 << i), 3) * 2.0**32).astype(np.uint32)
        changed = (bits ^ others)[:, np.newaxis] >> np.arange(8, 32) & 1
        shares.append(changed.mean(axis=0))
    z = 2.0 * np.sqrt(NUM_KEYS) * (np.array(shares) - 0.5)
    # The finalizer is known for a bias of a few tenths of a percent, no more.
    assert np.abs(z).max() < 2.0 * np.sqrt(NUM_KEYS) * 0.01 + 6.0


def test_the_tests_find_out_a_counter():
    sums = by_count(merely_counted, np.uint32(1)).reshape(-1, 8).sum(axis=1)
    assert uniformity(stats.irwinhall.cdf(sums, 8)) < 1e-12
    x = merely_counted(KEYS, 5)
    assert independence(x, merely_counted(KEYS, 6)) < 1e-12
    assert independence(x, merely_counted(KEYS + np.uint32(1), 5)) < 1e-12
    assert uniformity(0.98 * x) < 1e-9  # a bias of two percent, too


def test_double_precision_has_all_bits_and_single_the_first_24():
    double, single = (hashed(KEYS, 9, dtype) for dtype in (tf.float64, tf.float32))
    bits = double * 2.0**32
    np.testing.assert_array_equal(bits, np.floor(bits))
    assert np.mean(bits % 256 != 0) > 0.9
    np.testing.assert_array_equal(single, np.floor(double * 2.0**24) / 2.0**24)


# What a draw begins with.

LIKE = tf.zeros([20_000, 3], tf.float64)


def test_a_draw_begins_with_independent_normal_and_uniform_numbers():
    randomness = draw(tf.constant([5, 6]), LIKE, None)
    momentum = randomness.momentum.numpy()
    columns = [*stats.norm.cdf(momentum).T, np.exp(randomness.log_uniform)]
    for i, column in enumerate(columns):
        assert uniformity(column) > SMALLEST
        for other in columns[:i]:
            assert independence(column, other) > SMALLEST
    assert np.isfinite(randomness.log_uniform).all()
    assert np.max(randomness.log_uniform) <= 0.0


def test_each_doubling_has_a_coin_of_its_own():
    """Heads, and heads twice in a row, by binomial tests."""
    randomness = draw(tf.constant([5, 6]), LIKE, None)
    coins = np.array([randomness.is_forward(tf.constant(j)) for j in range(24)])
    n = coins.shape[1]
    for j in range(24):
        assert stats.binomtest(coins[j].sum(), n).pvalue > SMALLEST
        same = np.sum(coins[j] == coins[j - 1])
        assert stats.binomtest(same, n).pvalue > SMALLEST


def test_a_mass_scales_momenta_and_nothing_else():
    inverse_mass = tf.constant([[4.0, 1.0, 0.25]], tf.float64) * tf.ones_like(LIKE)
    plain, scaled = (draw(tf.constant([5, 6]), LIKE, m) for m in (None, inverse_mass))
    np.testing.assert_allclose(scaled.momentum, plain.momentum * [0.5, 1.0, 2.0])
    for name in ("log_uniform", "directions", "merge_key", "leaf_key"):
        np.testing.assert_array_equal(getattr(scaled, name), getattr(plain, name))


def test_another_seed_gives_other_numbers():
    first, second = (draw(tf.constant([5, i]), LIKE, None) for i in (6, 7))
    for a, b in zip(first, second, strict=True):
        assert np.mean(np.asarray(a) == np.asarray(b)) < 0.01
