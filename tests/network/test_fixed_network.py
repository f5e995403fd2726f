"""A network with given weights is the network itself in its base's coordinates."""

import numpy as np
import pytest
import tensorflow as tf

from tfp_lhnn.network.fixed_network import FixedNetwork, NetworkForm, WhitenedWeights
from tfp_lhnn.network.latent_hnn import LatentHNN


def trained_like(base, dtype="float32"):
    """A network none of whose weights has its first value."""
    network = LatentHNN(3, (5, 4), base=base, seed=1, dtype=dtype)
    rng = np.random.default_rng(2)
    for variable in network.weights:
        noise = rng.normal(scale=0.3, size=variable.shape)
        variable.assign(variable.numpy() + noise.astype(variable.numpy().dtype))
    return network


@pytest.mark.parametrize("base", ["dense", "diagonal"])
def test_it_has_the_potential_of_the_network(base):
    network = trained_like(base, "float64")
    weights = WhitenedWeights.of(network)
    fixed = FixedNetwork(NetworkForm.of(network).network(), weights)
    q = np.random.default_rng(3).normal(size=(7, 3))
    z = tf.constant(network.gaussian_base.whiten(q))
    np.testing.assert_allclose(fixed.potential(z), network.potential(q), rtol=1e-10)
    # The gradient by z, from that by q.
    _, gradient = fixed.energy_function(*weights)(z, z)
    by_position = network.potential_gradient(q).numpy()
    expected = network.gaussian_base.whiten_gradient(by_position)
    np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-9)


def test_a_temperature_divides_the_energy():
    network = trained_like("dense")
    form, weights = NetworkForm.of(network).network(), WhitenedWeights.of(network)
    z = tf.random.stateless_normal([4, 3], [1, 2])
    plain = FixedNetwork(form, weights)
    hot = FixedNetwork(form, weights, temperature=tf.constant(2.5))
    for one, other in zip(
        plain.energy_function(*weights)(z, z),
        hot.energy_function(*weights)(z, z),
        strict=True,
    ):
        np.testing.assert_allclose(one, 2.5 * other, rtol=1e-6)


def test_networks_of_one_form_serve_each_other():
    one, other = trained_like("dense"), trained_like("diagonal")
    assert NetworkForm.of(one) == NetworkForm.of(other)
    assert hash(NetworkForm.of(one)) == hash(NetworkForm.of(other))
    assert NetworkForm.of(one) != NetworkForm.of(LatentHNN(3, (5,), seed=0))
    shapes = [
        [x.shape for x in tf.nest.flatten(WhitenedWeights.of(n))] for n in (one, other)
    ]
    assert shapes[0] == shapes[1]


def test_the_constant_can_be_taken_out():
    network = trained_like("dense")
    network.offset.assign(1234.5)
    form, weights = NetworkForm.of(network).network(), WhitenedWeights.of(network)
    fixed = FixedNetwork(form, weights)
    base, offset = fixed.split_offset(weights.base)
    z = tf.random.stateless_normal([4, 3], [1, 2])
    without = fixed.energy_function(weights.layers, base)(z, z)[0]
    np.testing.assert_allclose(offset, 1234.5)
    np.testing.assert_allclose(without + 1234.5, fixed.potential(z), rtol=1e-5)
