"""The compiled loop: what it computes, whatever the padding, and what it leaves."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfp_lhnn
from tfp_lhnn.network import training_loop
from tfp_lhnn.network.training_loop import Recipe, TrainingLoop
from tfp_lhnn.network.training_steps import LossCurve, Points
from tfp_lhnn.support.compiled_cache import BuildOnce

RECIPE = Recipe(
    learning_rate=0.01,
    num_steps=40,
    weight_decay=0.03,
    value_weight=0.1,
    jit_compile=False,
)
SCALE = np.array([1.0, 2.0])


def make_points(n, seed=0):
    x = np.random.default_rng(seed).normal(size=(n, 2))
    return Points(x, np.cos(x), np.sum(np.sin(x), axis=-1))


def make_network(unit=1.0, **kwargs):
    network = tfp_lhnn.LatentHNN(2, (6,), dtype="float64", **kwargs)
    network.initialise(3)
    if network.separable:
        network.energy_scale.assign(unit)
    return network


def make_rows(steps=5, n=30):
    return np.random.default_rng(1).integers(0, n, size=(steps, 8))


def make_loop(network, points, held_out, recipe=RECIPE):
    return TrainingLoop(network, points, held_out, gradient_scale=SCALE, recipe=recipe)


def losses(network, points):
    """Losses and held-out errors by hand, in units of the energy scale."""
    unit = network.energy_scale.numpy()
    with tf.GradientTape() as tape:
        x = tf.constant(points.inputs)
        tape.watch(x)
        value = tf.reduce_sum(network.raw_latents(x), axis=-1)
    gradient_error = tape.gradient(value, x) - points.gradient / unit
    value_error = value - points.value / unit
    value_error -= tf.reduce_mean(value_error)
    scaled = gradient_error / (SCALE / unit)
    by_gradient, by_value = (
        tf.reduce_mean(tf.sqrt(1.0 + tf.square(e)) - 1.0) for e in (scaled, value_error)
    )
    squared = tf.reduce_mean(tf.square(unit * gradient_error))
    return by_gradient, by_value, squared, unit * tf.math.reduce_std(value_error)


@pytest.mark.parametrize("unit", [1.0, 3.0])
def test_no_step_measures_and_changes_nothing(unit):
    network, held_out = make_network(unit), make_points(7, 1)
    before = network.get_weights()
    curve = make_loop(network, make_points(30), held_out).run(make_rows(), 0)
    for a, b in zip(before, network.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    by_gradient, by_value, squared, energy = losses(network, held_out)
    expected = LossCurve(0.0, 0.0, by_gradient + 0.1 * by_value, squared, energy)
    np.testing.assert_allclose(curve, expected, rtol=1e-10)


def test_steps_are_those_of_the_optimiser():
    points, rows = make_points(30), make_rows()
    network, other = make_network(2.0), make_network(2.0)
    curve = make_loop(network, points, make_points(7, 1)).run(rows, 3)

    optimizer = keras.optimizers.AdamW(
        keras.optimizers.schedules.CosineDecay(0.01, 40), weight_decay=0.03
    )
    seen = []
    for row in rows[:3]:
        batch = Points(*(x[row] for x in points))
        with tf.GradientTape() as tape:
            by_gradient, by_value, *_ = losses(other, batch)
            loss = by_gradient + 0.1 * by_value
        variables = other.layer_variables
        optimizer.apply(tape.gradient(loss, variables), variables)
        seen.append((by_gradient, by_value))
    for a, b in zip(network.layer_variables, other.layer_variables, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(curve[:2], np.mean(seen, axis=0), rtol=1e-6)


def test_calls_go_on_where_the_last_one_stopped():
    points, held_out, rows = make_points(30), make_points(7, 1), make_rows(6)
    networks = [make_network(), make_network()]
    make_loop(networks[0], points, held_out).run(rows, 6)
    loop = make_loop(networks[1], points, held_out)
    loop.run(rows, 2)
    saved = loop.weights()
    loop.run(np.roll(rows, -2, axis=0), 4)
    for a, b in zip(*(n.layer_variables for n in networks), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
    loop.restore(saved)
    for a, b in zip(networks[1].layer_variables, saved, strict=True):
        np.testing.assert_array_equal(a, b)


def test_padding_changes_nothing(monkeypatch):
    results = []
    for capacity in (32, 64):
        monkeypatch.setattr(training_loop, "_SMALLEST_CAPACITY", capacity)
        network = make_network()
        loop = make_loop(network, make_points(30), make_points(4, 1))
        curve = loop.run(make_rows(), 5)
        results.append([*curve, *(v.numpy().ravel() for v in network.layer_variables)])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_alike_networks_share_one_compiled_loop(monkeypatch):
    made = []
    compiled = training_loop._CompiledLoop
    monkeypatch.setattr(
        training_loop, "_CompiledLoop", lambda form: made.append(form) or compiled(form)
    )
    monkeypatch.setattr(training_loop, "_loops", BuildOnce(2))

    def run(network, num_points):
        points = make_points(num_points)
        make_loop(network, points, make_points(7, 1)).run(make_rows(), 1)
        return len(made)

    assert run(make_network(), 30) == 1
    assert run(make_network(seed=9, base="diagonal"), 40) == 1
    network = make_network()
    network.hidden_layers[0].trainable = False
    assert run(network, 30) == 2
