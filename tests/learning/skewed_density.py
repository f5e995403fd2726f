"""A density for simulated trajectories, with its gradient by hand in NumPy."""

import numpy as np

# Unequal scales and a skew term: a symmetric density would hide a wrong sign.
SCALES = np.array([1.0, 0.5, 2.0])


def skewed_gradient(q):
    """`[..., 3] -> [..., 3]`, of `-½ |z|² - 0.1 exp(z_0)` with `z = q / SCALES`."""
    z = q / SCALES
    gradient = -z / SCALES
    gradient[..., 0] -= 0.1 * np.exp(z[..., 0]) / SCALES[0]
    return gradient


def starts(n=6, dtype=np.float64):
    return np.random.default_rng(1).normal(size=(n, 3)).astype(dtype)
