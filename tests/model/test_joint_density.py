"""The density of a joint distribution: unconstrained, pinned, with its Jacobian."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

from tfp_lhnn.model.joint_density import JointDensity

tfd = tfp.distributions

DATA = np.array([0.3, -0.2, 1.0])


def model():
    return tfd.JointDistributionNamedAutoBatched(
        {
            "scale": tfd.LogNormal(np.float64(0.0), 0.5),
            "mean": tfd.Sample(tfd.Normal(np.float64(0.0), 2.0), 3),
            "y": lambda scale, mean: tfd.Normal(mean, scale),
        }
    )


@pytest.fixture(scope="module")
def density():
    return JointDensity(model(), {"y": DATA})


def test_it_has_the_names_and_shapes_of_what_is_not_pinned(density):
    assert set(density.names) == {"scale", "mean"}
    assert density.shapes["mean"] == (3,)
    assert density.shapes["scale"] == ()
    assert density.layout.dim == 4


def test_the_density_is_that_of_the_unconstrained_variables(density):
    q = np.random.default_rng(0).normal(size=(6, 4))
    drawn = dict(zip(density.names, density.constrain(q), strict=True))
    scale, mean = drawn["scale"], drawn["mean"]
    expected = (
        stats.lognorm(0.5).logpdf(scale)
        + stats.norm(0.0, 2.0).logpdf(mean).sum(axis=-1)
        + stats.norm.logpdf(DATA, mean, scale[:, np.newaxis]).sum(axis=-1)
    )
    start = [tf.constant(drawn[name]) for name in density.names]
    parts = density.unconstrain(start)
    np.testing.assert_allclose(density.layout.flatten(parts), q, atol=1e-9)
    # TFP's bijector of a log-normal variable tells the Jacobian, d scale / d q.
    z = parts[density.names.index("scale")]
    bijector = tfd.LogNormal(
        np.float64(0.0), 0.5
    ).experimental_default_event_space_bijector()
    jacobian = bijector.forward_log_det_jacobian(z, 0)
    np.testing.assert_allclose(density.log_prob(parts), expected + jacobian)


def test_draws_from_the_prior_ignore_the_data(density):
    q = density.prior(200, tf.constant([1, 2]))
    drawn = dict(zip(density.names, density.constrain(q), strict=True))
    # False alarms: one in 10 000 each. A scale of 1.5 times would give p = 1e-8.
    assert stats.kstest(drawn["scale"], stats.lognorm(0.5).cdf).pvalue > 1e-4
    assert stats.kstest(drawn["mean"].ravel(), stats.norm(0, 2).cdf).pvalue > 1e-4
    np.testing.assert_array_equal(q, density.prior(200, tf.constant([1, 2])))


def test_its_signature_sees_the_pins_and_the_distributions(density):
    same = JointDensity(model(), {"y": DATA.copy()})
    other = JointDensity(model(), {"y": DATA + 1e-15})
    assert density.signature() == same.signature() != other.signature()


def test_a_pin_that_changes_later_does_not_change_the_density():
    pin = DATA.copy()
    density = JointDensity(model(), {"y": pin})
    parts = density.layout.unflatten(tf.zeros([1, 4], tf.float64))
    before = density.log_prob(parts).numpy()
    pin[:] = 100.0
    np.testing.assert_array_equal(density.log_prob(parts), before)
