"""The energy as a function of explicit weights, against autodiff of the network."""

import numpy as np
import pytest
import tensorflow as tf

import tfp_lhnn
from tfp_lhnn.network.energy_function import energy_function, split_offset

OPTIONS = [
    {},
    {"base": "diagonal"},
    {"base": "none"},
    {"separable": False},
    # Not elementwise: each output depends on all inputs of its layer.
    {"activation": "softmax"},
]


def make_network(hidden_units=(6, 4), dtype="float64", **options):
    """With a base that is neither centred nor round, an offset, and random layers."""
    network = tfp_lhnn.LatentHNN(3, hidden_units, dtype=dtype, **options)
    network.initialise(2)
    if network.has_base:
        rng = np.random.default_rng(0)
        network.location.assign(rng.normal(size=3))
        network.whitening.assign(rng.normal(size=network.whitening.shape))
    if network.separable:
        network.energy_scale.assign(0.7)
        network.offset.assign(-3.0)
    return network


def weights(network):
    return [
        [tf.constant(v.numpy()) for v in variables]
        for variables in (network.layer_variables, network.base_variables)
    ]


def phase_space(dtype=np.float64):
    generator = np.random.default_rng(1)
    return tf.constant(generator.normal(size=(2, 5, 3)).astype(dtype))


def expected_values(network, q, p):
    """The energy and its derivative by `q`, from the latents by autodiff."""
    with tf.GradientTape() as tape:
        tape.watch(q)
        inputs = q if network.separable else tf.concat([q, p], axis=-1)
        energy = tf.reduce_sum(network(inputs), axis=-1)
    return energy, tape.gradient(energy, q)


@pytest.mark.parametrize("hidden_units", [(5,), (6, 4), (5, 6, 7)], ids=str)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_energy_function_is_energy_and_gradient(hidden_units, options):
    """What leapfrog loops call, against autodiff of the latents."""
    network = make_network(hidden_units, **options)
    q, p = phase_space()
    expected, expected_gradient = expected_values(network, q, p)
    values = weights(network)
    network.initialise(99)  # The weights given count, not those stored.
    energy, gradient = energy_function(network, *values)(q, p)
    np.testing.assert_allclose(energy, expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_float32(options):
    network = make_network(dtype="float32", **options)
    q, p = phase_space(np.float32)
    expected = expected_values(network, q, p)
    for x, y in zip(network.energy_function(*weights(network))(q, p), expected):  # noqa: B905
        assert x.dtype == tf.float32
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("options", OPTIONS[:4], ids=str)
def test_results_have_the_dtype_of_positions(options):
    network = make_network(dtype="float32", **options)
    q, p = phase_space(np.float64)
    energy, gradient = network.energy_function(*weights(network))(q, p)
    assert energy.dtype == gradient.dtype == tf.float64
    single = network.energy_function(*weights(network))(
        tf.cast(q, tf.float32), tf.cast(p, tf.float32)
    )
    np.testing.assert_allclose(energy, single[0], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(gradient, single[1], rtol=1e-4, atol=1e-4)


def test_momenta_matter_to_a_joint_network_alone():
    q, p = phase_space()
    for separable in (True, False):
        network = make_network(separable=separable)
        function = network.energy_function(*weights(network))
        is_same = np.array_equal(function(q, p)[0], function(q, 2.0 * p)[0])
        assert is_same == separable


@pytest.mark.parametrize("options", OPTIONS[:4], ids=str)
def test_what_split_offset_takes_out_is_what_is_missing(options):
    network = make_network(**options)
    q, p = phase_space()
    layers, base = weights(network)
    rest, offset = split_offset(network, base)
    assert offset.numpy() == (-3.0 if network.separable else 0.0)
    whole = network.energy_function(layers, base)(q, p)
    part = network.energy_function(layers, rest)(q, p)
    np.testing.assert_allclose(part[0] + offset, whole[0], rtol=1e-12)
    np.testing.assert_array_equal(part[1], whole[1])


def test_weights_of_another_form_are_refused():
    layers, base = weights(make_network())
    with pytest.raises(ValueError, match="7 weights where 5 were given"):
        energy_function(make_network((5, 6, 7)), layers, base)
    with pytest.raises(ValueError, match="2 weights where 4 were given"):
        energy_function(make_network(base="none"), layers, base)
