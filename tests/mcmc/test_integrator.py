"""Leapfrog: analytic trajectories, reversibility, volume."""

import numpy as np
import pytest
import tensorflow as tf

from tfp_lhnn.mcmc.integrator import (
    PhasePoint,
    finish_step,
    kinetic_energy,
    leapfrog,
    select_chains,
    start_step,
)

STEP = 0.3


def oscillator(q, p):
    del p
    return 0.5 * tf.reduce_sum(q**2, axis=-1), q


def jumping(q, p):
    """A force that is the gradient of nothing, and jumps; a spring confines it."""
    del p
    twist = tf.stack([tf.sin(3.0 * q[:, 1]), tf.cos(q[:, 0])], axis=1)
    return q[:, 0], q + tf.where(q[:, :1] > 0.1, twist, -twist)


def with_momentum(q, p):
    """A force as a joint network may have it."""
    return q[:, 0], q + 0.3 * p


def points(n=7, seed=0):
    q, p = np.random.default_rng(seed).normal(size=(2, n, 2))
    return tf.constant(q), tf.constant(p)


def trajectory(q, p, force, step, num_steps, inverse_mass=None):
    point = PhasePoint(q, p, force(q, p)[1])
    for _ in range(num_steps):
        point, energy = leapfrog(point, step, inverse_mass, force)
    return point, energy


def signed(step, n=7):
    return tf.fill([n, 1], tf.constant(step, tf.float64))


@pytest.mark.parametrize("num_steps", [1, 2, 50])
def test_a_harmonic_oscillator_turns_by_a_known_angle(num_steps):
    """`cos θ = 1 − h²/2`, on an ellipse with the half-axis `√(1 − h²/4)`."""
    q, p = points()
    end, energy = trajectory(q, p, oscillator, signed(STEP), num_steps)
    angle = num_steps * np.arccos(1.0 - STEP**2 / 2.0)
    axis = np.sqrt(1.0 - STEP**2 / 4.0)
    cos, sin = np.cos(angle), np.sin(angle)
    np.testing.assert_allclose(end.position, q * cos + p / axis * sin, atol=1e-12)
    np.testing.assert_allclose(end.momentum, p * cos - axis * q * sin, atol=1e-12)
    np.testing.assert_array_equal(end.gradient, end.position)
    np.testing.assert_allclose(energy, 0.5 * np.sum(end.position**2, axis=-1))


def test_a_mass_is_a_change_of_coordinates():
    """With `M⁻¹ = s²`, `q / s` and `s p` move as with unit mass and its force."""
    q, p = points()
    scale = np.array([[0.5, 3.0]])
    inverse_mass = tf.constant(np.broadcast_to(scale**2, q.shape))

    def scaled(q, p):
        energy, gradient = oscillator(q / scale, p)
        return energy, gradient / scale

    end, _ = trajectory(q * scale, p / scale, scaled, signed(STEP), 20, inverse_mass)
    plain, _ = trajectory(q, p, oscillator, signed(STEP), 20)
    np.testing.assert_allclose(end.position / scale, plain.position, atol=1e-12)
    np.testing.assert_allclose(end.momentum * scale, plain.momentum, atol=1e-12)
    np.testing.assert_allclose(
        kinetic_energy(end.momentum, inverse_mass), kinetic_energy(plain.momentum, None)
    )


def test_half_the_step_has_a_quarter_of_the_error():
    q, p = points()

    def error(step):
        end, _ = trajectory(q, p, oscillator, signed(step), round(1.2 / step))
        return np.abs(end.position - (q * np.cos(1.2) + p * np.sin(1.2))).max()

    assert 3.9 < error(0.1) / error(0.05) < 4.1


def test_any_force_of_the_position_leads_back():
    q, p = points()
    end, _ = trajectory(q, p, jumping, signed(STEP), 30)
    assert np.abs(end.position - q).min() > 1e-3
    back, _ = trajectory(end.position, end.momentum, jumping, signed(-STEP), 30)
    np.testing.assert_allclose(back.position, q, atol=1e-9)
    np.testing.assert_allclose(back.momentum, p, atol=1e-9)


def test_a_force_of_the_momentum_does_not():
    q, p = points()
    end, _ = trajectory(q, p, with_momentum, signed(STEP), 30)
    back, _ = trajectory(end.position, end.momentum, with_momentum, signed(-STEP), 30)
    assert np.abs(back.position - q).max() > 1e-2


def volumes(force):
    """Determinants of the derivative of five steps, `[chains]`."""
    z = tf.concat(points(), axis=1)
    with tf.GradientTape() as tape:
        tape.watch(z)
        end, _ = trajectory(z[:, :2], z[:, 2:], force, signed(STEP), 5)
        moved = tf.concat([end.position, end.momentum], axis=1)
    return tf.linalg.det(tape.batch_jacobian(moved, z)).numpy()


def test_any_force_of_the_position_preserves_volume():
    np.testing.assert_allclose(volumes(jumping), 1.0, atol=1e-10)


def test_a_force_of_the_momentum_changes_volume():
    assert np.all(np.abs(volumes(with_momentum) - 1.0) > 0.1)


def test_a_step_of_zero_stands_still():
    q, p = points()
    point = PhasePoint(q, p, jumping(q, p)[1])
    position, half = start_step(point, signed(0.0), None)
    np.testing.assert_array_equal(position, q)
    np.testing.assert_array_equal(finish_step(half, point.gradient, signed(0.0)), p)


def test_chains_are_selected_in_every_field_and_empty_ones_pass():
    q, p = points()
    is_first = tf.constant([True, False] * 3 + [True])
    first, second = PhasePoint(q, p, q), PhasePoint(-q, -p, q)
    chosen = select_chains(is_first, first, second)
    sign = np.where(is_first, 1.0, -1.0)[:, np.newaxis]
    np.testing.assert_array_equal(chosen.position, sign * q)
    np.testing.assert_array_equal(chosen.momentum, sign * p)
    assert chosen.record == ()
    by_row = select_chains(is_first, tf.ones([7]), tf.zeros([7]))
    np.testing.assert_array_equal(by_row, is_first)
