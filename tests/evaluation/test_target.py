"""Compiled functions of a target: shared by runs of one density, and of no other."""

import threading

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_lhnn
from tfp_lhnn.evaluation.target import CompiledTarget, compiled_target
from tfp_lhnn.model.model import as_model

from ..xla_constants import number_compiled_in

tfd = tfp.distributions

pytestmark = pytest.mark.filterwarnings("ignore::tfp_lhnn.SamplingWarning")

START = np.zeros([2], np.float32)


def gaussian(mean):
    return lambda q: -0.5 * tf.reduce_sum((q - mean) ** 2, axis=-1)


def functions_of(source, pins=None):
    """The functions that a run would use now."""
    pins = pins or {}
    model = as_model(source, None if pins else START, pins)
    return compiled_target(model, model.probe().log_prob, pins, jit_compile=False)


def test_values_and_gradients_are_those_of_the_density():
    model = as_model(gaussian(1.0), START)
    target = CompiledTarget(model, jit_compile=True)
    q = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    value, gradient = target.evaluate(q)
    np.testing.assert_allclose(value, -0.5 * np.sum((q - 1) ** 2, -1), rtol=1e-5)
    np.testing.assert_allclose(gradient, 1 - q, rtol=1e-5)


GROUP = np.array([0, 1, 1, 2, 0, 2, 1])


def grouped():
    """Observations in three groups; one distribution for many points."""

    @tfd.JointDistributionCoroutineAutoBatched
    def model():
        scale = yield tfd.HalfNormal(1.0, name="scale")
        mean = yield tfd.Sample(tfd.Normal(0.0, scale), 3, name="mean")
        yield tfd.Normal(tf.gather(mean, GROUP), 1.0, name="y")

    return as_model(model, pins={"y": np.linspace(-1, 1, len(GROUP))})


def decorated():
    """A density that its user has made a function of TensorFlow."""

    @tf.function
    def log_prob(q):
        mean = tf.transpose(tf.gather(tf.transpose(q[:, 1:]), GROUP))
        return -tf.reduce_sum(mean**2, axis=-1) - tf.reduce_sum(q**2, axis=-1)

    return as_model(log_prob, np.zeros([4], np.float32))


@pytest.mark.parametrize("make", [grouped, decorated])
def test_a_target_is_not_compiled_anew_for_every_point_or_step(make):
    target = CompiledTarget(make(), jit_compile=True)
    q = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)

    def climb(position, step):
        def body(i, position):
            _, gradient = tfp.math.value_and_gradient(target.log_prob, position)
            return i + 1, position + step * gradient

        return tf.while_loop(lambda i, _: i < 3, body, (0, position))

    def gradient(position):
        return tfp.math.value_and_gradient(target.log_prob, position)

    assert number_compiled_in(gradient, tf.constant(q)) == 0
    assert number_compiled_in(climb, tf.constant(q), tf.constant(0.1)) == 0
    # And it can be run.
    first, second = target.evaluate(q), target.evaluate(q + 1.0)
    assert np.all(np.isfinite(first[1]))
    assert np.all(first[0] != second[0])


def test_functions_of_one_density_are_kept():
    log_prob = gaussian(1.0)
    first = functions_of(log_prob)
    assert functions_of(log_prob) is first
    assert functions_of(gaussian(1.0)) is not first
    # A bound method is another object each time.
    normal = tfd.MultivariateNormalDiag(np.zeros(2, np.float32), np.ones(2, np.float32))
    assert functions_of(normal.log_prob) is functions_of(normal.log_prob)


DATA = np.array([1.0, 2.0], np.float32)


def global_density(q):
    return -0.5 * tf.reduce_sum((q - DATA) ** 2, axis=-1)


class Density:
    """A density whose data is an attribute."""

    def __init__(self):
        self.data = np.array([1.0, 2.0], np.float32)

    def log_prob(self, q):
        return -0.5 * tf.reduce_sum((q - self.data) ** 2, axis=-1)


def rebind_a_global(monkeypatch):
    def change():
        monkeypatch.setitem(globals(), "DATA", DATA + 3.0)

    return (global_density, {}), change


def change_an_attribute(monkeypatch):
    density = Density()

    def change():
        density.data = density.data + 3.0

    return (density.log_prob, {}), change


def change_a_closure(monkeypatch):
    data = np.array([1.0, 2.0], np.float32)

    def change():
        nonlocal data
        data = data + 3.0

    return (lambda q: -0.5 * tf.reduce_sum((q - data) ** 2, axis=-1), {}), change


def change_a_pin_in_place(monkeypatch):
    pin = np.array([1.0, 2.0], np.float32)
    model = tfd.JointDistributionNamedAutoBatched(
        {
            "x": tfd.Sample(tfd.Normal(0.0, 10.0), 2),
            "y": lambda x: tfd.Normal(x, 1.0),
        }
    )

    def change():
        pin[:] += 3.0

    return (model, {"y": pin}), change


CHANGES = [
    rebind_a_global,
    change_an_attribute,
    change_a_closure,
    change_a_pin_in_place,
]


@pytest.mark.parametrize("case", CHANGES)
def test_functions_of_old_data_are_not_used_again(case, monkeypatch):
    (source, pins), change = case(monkeypatch)
    first = functions_of(source, pins)
    x = np.array([[0.5, -0.5]], np.float32)
    value, gradient = first.evaluate(x)
    assert functions_of(source, pins) is first
    change()
    # This is what must not happen to a run.
    np.testing.assert_array_equal(first.evaluate(x)[0], value)
    second = functions_of(source, pins)
    assert second is not first
    assert second.evaluate(x)[0] != value
    np.testing.assert_allclose(second.evaluate(x)[1] - gradient, [[3.0, 3.0]], rtol=0.1)
    assert functions_of(source, pins) is second


# The others are slow, and differ only in what is tested above.
@pytest.mark.parametrize(
    "case",
    [rebind_a_global, *(pytest.param(x, marks=pytest.mark.slow) for x in CHANGES[1:])],
)
def test_a_second_run_has_the_posterior_of_the_new_data(case, monkeypatch):
    (source, pins), change = case(monkeypatch)

    def mean():
        posterior = tfp_lhnn.sample(
            60,
            source,
            **pins,
            initial_state=None if pins else START,
            n_chains=2,
            gradient_budget=500,
            num_burnin_draws=20,
            seed=3,
            hidden_units=(4,),
            jit_compile=False,
        )
        return posterior.posterior["x"].values.mean(axis=(0, 1))

    before = mean()
    change()
    # A standard error is 0.1 or so.
    np.testing.assert_allclose(mean() - before, [3.0, 3.0], atol=0.8)


def test_a_probe_is_finite_somewhere():
    def half(q):
        log_prob = -tf.reduce_sum(q**2, axis=-1)
        return tf.where(q[..., 0] > 30.0, log_prob, np.float32(np.nan))

    probe = as_model(half, START).probe()
    assert np.isfinite(probe.log_prob).any()
    assert probe.num_evaluations > 3


def test_threads_share_the_functions_of_one_density():
    log_prob, found = gaussian(0.5), []
    threads = [
        threading.Thread(target=lambda: found.append(functions_of(log_prob)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(map(id, found))) == 1
