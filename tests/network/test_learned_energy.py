"""Energies, potentials and forces of whatever gives latents and a constant."""

import numpy as np
import pytest
import tensorflow as tf

from tfp_lhnn.network.learned_energy import LearnedEnergy

Q = np.random.default_rng(0).normal(size=(4, 3))


class Quadratic(LearnedEnergy):
    """`U(q) = Σ q_i² + 1e9`, computed in single precision."""

    def __init__(self):
        super().__init__(dtype="float32")
        self.dim, self.separable = 3, True

    def varying_latents(self, x):
        assert x.dtype == tf.float32
        return x**2

    def constant(self, dtype):
        return tf.constant(1e9, dtype)


def test_the_constant_is_added_in_the_precision_of_the_caller():
    model = Quadratic()
    expected = np.sum(Q**2, axis=-1)
    # Single precision has numbers 64 apart there.
    np.testing.assert_allclose(model.potential(Q) - 1e9, expected, atol=1e-5)
    energy = model.energy(Q, 2.0 * Q)
    np.testing.assert_allclose(energy - 1e9, 3.0 * expected, atol=1e-5)
    latents = model.latents(Q)
    assert latents.dtype == tf.float64
    np.testing.assert_allclose(tf.reduce_sum(latents, -1) - 1e9, expected, atol=1e-5)


def test_forces_do_not_know_the_constant():
    model = Quadratic()
    np.testing.assert_allclose(model.potential_gradient(Q), 2.0 * Q, rtol=1e-6)
    velocity, force = model.time_derivatives(Q, 0.5 * Q)
    np.testing.assert_allclose(velocity, 0.5 * Q)
    np.testing.assert_allclose(force, -2.0 * Q, rtol=1e-6)


def test_any_leading_dimensions_will_do():
    model = Quadratic()
    assert model.potential(Q[0]).shape == ()
    assert model.potential(Q.reshape(2, 2, 3)).shape == (2, 2)
    with pytest.raises(ValueError, match=r"`q` has shape \(4, 2\)"):
        model.potential(Q[:, :2])
