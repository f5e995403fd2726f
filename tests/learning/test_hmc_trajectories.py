"""The chained trajectories themselves, from a density whose gradient is written out."""

import numpy as np
import pytest
import tensorflow as tf

from tfp_lhnn.learning.hmc_trajectories import simulate_points

from .skewed_density import SCALES, skewed_gradient, starts


def skewed_log_prob(q):
    z = q / SCALES
    return -0.5 * np.sum(z**2, axis=-1) - 0.1 * np.exp(z[..., 0])


def skewed_density(q):
    z = q / SCALES
    log_prob = -0.5 * tf.reduce_sum(z**2, axis=-1) - 0.1 * tf.exp(z[:, 0])
    slope = tf.stack([0.1 * tf.exp(z[:, 0]), *[tf.zeros_like(z[:, 0])] * 2], axis=-1)
    return log_prob, -(z + slope) / SCALES


def simulate(density, q, num_steps, step_size, num_leapfrog_steps=20, seed=3):
    """Points as arrays `[trajectories, time, ...]`, and which are usable."""
    points, is_usable = simulate_points(
        density,
        tf.constant(q),
        tf.constant([seed, 0]),
        num_steps=num_steps,
        num_leapfrog_steps=num_leapfrog_steps,
        step_size=step_size,
        jit_compile=False,
    )
    shape = (len(q), num_steps + 1)
    arrays = (x.reshape(*shape, *x.shape[1:]) for x in points)
    return type(points)(*arrays), is_usable.reshape(shape)


@pytest.fixture(scope="module")
def points():
    points, is_usable = simulate(skewed_density, starts(), 17, 0.2, 5)
    assert is_usable.all()
    return points


def test_first_segment_is_leapfrog_from_the_starts(points):
    q, p = points.position, points.momentum
    np.testing.assert_array_equal(q[:, 0], starts())
    x, v = q[:, 0], p[:, 0]
    for i in range(1, 6):
        v = v + 0.1 * skewed_gradient(x)
        x = x + 0.2 * v
        v = v + 0.1 * skewed_gradient(x)
        np.testing.assert_allclose(q[:, i], x, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(p[:, i], v, rtol=1e-12, atol=1e-12)


def test_densities_and_gradients_are_those_at_each_point(points):
    expected = skewed_gradient(points.position)
    np.testing.assert_allclose(points.gradient, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(points.log_prob, skewed_log_prob(points.position))


def test_energy_is_kept_to_the_square_of_the_step():
    def error(step_size):
        # One segment of length one.
        num_steps = round(1.0 / step_size)
        points, _ = simulate(skewed_density, starts(), num_steps, step_size, num_steps)
        energy = 0.5 * np.sum(points.momentum**2, axis=-1) - points.log_prob
        return np.max(np.abs(energy - energy[:, :1]))

    ratio = error(0.1) / error(0.05)
    assert 3.5 < ratio < 4.5


def test_every_segment_begins_at_the_end_or_the_start_of_the_last():
    # A step near the stability limit of the narrowest scale, so that both outcomes are
    # common; 23 steps leave a shorter last segment.
    length, step = 4, 0.9
    points, _ = simulate(skewed_density, starts(40), 23, step, length, seed=5)
    q, p = points.position, points.momentum
    origin, counts = q[:, 0], {"accepted": 0, "rejected": 0}
    for end in range(length, 23, length):
        # Leapfrog is reversible: one step back from the next segment's first point
        # gives the place where that segment began.
        x, v = q[:, end + 1], p[:, end + 1]
        back = x - step * (v - 0.5 * step * skewed_gradient(x))
        stayed = np.all(np.isclose(back, origin, atol=1e-9), axis=-1)
        moved = np.all(np.isclose(back, q[:, end], atol=1e-9), axis=-1)
        assert np.all(stayed ^ moved)
        counts["accepted"] += moved.sum()
        counts["rejected"] += stayed.sum()
        origin = back
    assert min(counts.values()) > 10


def test_chained_trajectories_leave_a_gaussian_invariant():
    # 400 chains from exact draws: after each Metropolis test they are exact draws
    # again, independent across chains, so that the errors below are known.
    # Without the tests, this step would inflate the narrowest variance five times.
    exact = np.random.default_rng(2).normal(size=(400, 3)) * SCALES

    def density(q):
        return -0.5 * tf.reduce_sum((q / SCALES) ** 2, axis=-1), -q / SCALES**2

    points, _ = simulate(density, exact, 41, 0.9, 4, seed=7)
    x, v = points.position[:, 41], points.momentum[:, 41]
    final = x - 0.9 * (v + 0.5 * 0.9 * x / SCALES**2)  # the state after 10 tests
    assert np.mean(np.abs(final - exact)) > 0.5  # it has moved
    z = final / SCALES
    # Five standard errors, for six statistics: a false alarm in 10⁵ seeds.
    np.testing.assert_allclose(z.mean(axis=0), 0.0, atol=5 / np.sqrt(400))
    np.testing.assert_allclose(z.var(axis=0), 1.0, atol=5 * np.sqrt(2 / 400))


def test_a_large_constant_changes_nothing():
    """In float32, kinetic energies beside 10^7 would be rounded to whole nats."""

    def density(constant):
        def value_and_gradient(q):
            log_prob = tf.round(-64.0 * tf.reduce_sum(q**2, axis=-1)) / 4.0
            return log_prob + constant, -32.0 * q

        return value_and_gradient

    # Energies in quarters of a nat: with 2^21 added they are exact in float32.
    q = starts(40).astype(np.float32)
    plain, _ = simulate(density(0.0), q, 30, 0.3, 3)
    high, _ = simulate(density(2.0**21), q, 30, 0.3, 3)
    np.testing.assert_array_equal(high.position, plain.position)
    np.testing.assert_array_equal(high.log_prob - 2.0**21, plain.log_prob)


def test_a_segment_ends_where_it_diverges():
    # Just beyond the limit of 2 / sqrt(400), so that the energy grows without bound.
    step = 0.105

    def density(q):
        return -200.0 * tf.reduce_sum(q**2, axis=-1), -400.0 * q

    points, is_usable = simulate(density, starts(4), 40, step, 40)
    energy = 0.5 * np.sum(points.momentum**2, axis=-1) - points.log_prob
    assert 4 < np.sum(~is_usable) < 40 * 4
    assert is_usable[:, 0].all()
    for chain in range(4):
        start = 0
        for i in range(1, 41):
            # A segment begins at the first point after an unusable one. It starts at
            # the place of the first, with the momentum that one step back has.
            if not is_usable[chain, i - 1]:
                x, v = points.position[chain, i], points.momentum[chain, i]
                half = v + 0.5 * step * 400.0 * x
                back = x - step * half
                np.testing.assert_allclose(back, points.position[chain, 0], atol=1e-9)
                momentum = half + 0.5 * step * 400.0 * back
                start = 0.5 * momentum @ momentum + 200.0 * back @ back
            elif i == 1:
                start = energy[chain, 0]
            has_diverged = energy[chain, i] - start > 1000.0
            assert is_usable[chain, i] == (not has_diverged)


@pytest.mark.parametrize(("size", "is_kept"), [(1e15, True), (1e17, False)])
def test_gradients_whose_squares_overflow_are_not_usable(size, is_kept):
    def density(q):
        return -0.5 * tf.reduce_sum(q**2, axis=-1), tf.where(q > 10.0, -size, -q)

    q = np.array([[20.0], [1.0], [-1.0]], np.float32)
    points, is_usable = simulate(density, q, 1, 1e-20, 2)
    np.testing.assert_array_equal(is_usable[:, 0], [is_kept, True, True])
    # Without a start of its own it begins at that of another.
    begins = points.position[0, 1, 0]
    np.testing.assert_allclose(begins, 20.0 if is_kept else 1.0)


def test_without_a_usable_start_no_step_is_made():
    calls = []

    def density(q):
        tf.numpy_function(lambda: calls.append(1), [], [])
        return tf.reduce_sum(q, axis=-1) * np.nan, q

    _, is_usable = simulate(density, starts(2), 50, 0.1)
    assert not is_usable.any()
    assert len(calls) == 1
