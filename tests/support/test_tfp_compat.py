"""The momentum that adaptation of a mass matrix is given, by formulas of NumPy."""

import types

import numpy as np
import pytest
import tensorflow as tf

from tfp_lhnn.support.tfp_compat import (
    DiagonalMomentum,
    inverse_mass_parts,
    unit_momentum,
)

CHAINS = 3
SHAPES = ((CHAINS, 2), (CHAINS,), (CHAINS, 2, 2))


def parts(seed):
    """Positive numbers for a state of three parts, one of them a scalar."""
    generator = np.random.default_rng(seed)
    return [generator.uniform(0.2, 5.0, shape) for shape in SHAPES]


def momentum(seed=0):
    return DiagonalMomentum(tuple(tf.constant(x) for x in parts(seed)), batch_rank=1)


def assert_parts(found, expected):
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, strict=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_unit_momentum_is_one_everywhere(dtype):
    state = [tf.constant(x.astype(dtype)) for x in parts(0)]
    unit = unit_momentum(state, 1)
    assert unit.batch_rank == 1
    assert_parts(inverse_mass_parts(unit), [np.ones(s, dtype) for s in SHAPES])


def test_the_model_is_normal_with_the_mass_as_variance():
    model = momentum().model
    assert [tuple(part.batch_shape) for part in model] == [(CHAINS,)] * 3
    generator = np.random.default_rng(1)
    for part, inverse_mass in zip(model, parts(0), strict=True):
        p = generator.normal(size=inverse_mass.shape)
        density = 0.5 * (np.log(inverse_mass / (2.0 * np.pi)) - inverse_mass * p**2)
        expected = density.reshape(CHAINS, -1).sum(axis=-1)
        np.testing.assert_allclose(part.log_prob(p), expected, rtol=1e-12)


def test_a_copy_has_the_scales_of_the_model_it_is_given():
    before = momentum()
    after = before.copy(momentum(seed=7).model)
    assert isinstance(after, DiagonalMomentum)
    assert after.batch_rank == before.batch_rank
    assert_parts(after.inverse_mass, parts(7))
    # The old one is as it was.
    assert_parts(before.inverse_mass, parts(0))


def test_what_adaptation_puts_in_its_place_is_read_too():
    """TFP's object has a `model` and no numbers; each diagonal comes back flat."""
    theirs = types.SimpleNamespace(model=momentum(seed=7).model)
    flat = [x.reshape(CHAINS, -1) for x in parts(7)]
    found = [tf.reshape(x, [CHAINS, -1]) for x in inverse_mass_parts(theirs)]
    assert_parts(found, flat)


def test_graphs_take_and_return_it():
    @tf.function(autograph=False)
    def doubled(x):
        return DiagonalMomentum(tuple(2.0 * p for p in x.inverse_mass), x.batch_rank)

    found = doubled(momentum())
    assert found.batch_rank == 1
    assert_parts(inverse_mass_parts(found), [2.0 * x for x in parts(0)])
