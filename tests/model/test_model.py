"""Models: the flat density, the user's variables, starts, identity, bad input."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

from tfp_lhnn.model.model import Model, as_model

tfd = tfp.distributions
Root = tfd.JointDistributionCoroutine.Root

EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0])


# Five schools in all six forms, float64; mu before tau wherever there is an order.


def observed(mu, tau, theta):
    return tfd.Normal(mu + tau * theta, ERRORS)


def observed_in_batches(mu, tau, theta):
    loc = mu[..., tf.newaxis] + tau[..., tf.newaxis] * theta
    return tfd.Independent(tfd.Normal(loc, ERRORS), 1)


def named(kind, autobatched):
    y = observed if autobatched else observed_in_batches
    return kind(
        {
            "mu": tfd.Normal(np.float64(0.0), 10.0),
            "tau": tfd.LogNormal(np.float64(1.0), 0.5),
            "theta": tfd.Normal(np.zeros(5), 1.0)
            if autobatched
            else tfd.Sample(tfd.Normal(np.float64(0.0), 1.0), 5),
            "y": lambda mu, tau, theta: y(mu, tau, theta),
        }
    )


def sequential(kind, autobatched):
    model = named(dict, autobatched)
    y = model["y"]
    return kind([*list(model.values())[:3], lambda theta, tau, mu: y(mu, tau, theta)])


def coroutine(kind, autobatched):
    wrap = (lambda d: d) if autobatched else Root

    def run():
        mu = yield wrap(tfd.Normal(np.float64(0.0), 10.0, name="mu"))
        tau = yield wrap(tfd.LogNormal(np.float64(1.0), 0.5, name="tau"))
        prior = tfd.Normal(np.float64(0.0), 1.0)
        theta = yield wrap(tfd.Sample(prior, 5, name="theta"))
        if autobatched:
            yield tfd.Normal(mu + tau * theta, ERRORS, name="y")
        else:
            loc = mu[..., tf.newaxis] + tau[..., tf.newaxis] * theta
            yield tfd.Independent(tfd.Normal(loc, ERRORS), 1, name="y")

    return kind(run)


FORMS = {
    "Named": (named, tfd.JointDistributionNamed, False),
    "NamedAutoBatched": (named, tfd.JointDistributionNamedAutoBatched, True),
    "Sequential": (sequential, tfd.JointDistributionSequential, False),
    "SequentialAutoBatched": (
        sequential,
        tfd.JointDistributionSequentialAutoBatched,
        True,
    ),
    "Coroutine": (coroutine, tfd.JointDistributionCoroutine, False),
    "CoroutineAutoBatched": (
        coroutine,
        tfd.JointDistributionCoroutineAutoBatched,
        True,
    ),
}


def schools_jd(form):
    build, kind, autobatched = FORMS[form]
    return build(kind, autobatched)


@functools.cache
def schools(form):
    jd = schools_jd(form)
    pin = "x" if form.startswith("Sequential") else "y"
    return Model.from_joint_distribution(jd, {pin: EFFECTS})


def schools_density(draws):
    """The log density in (mu, log tau, theta), by SciPy."""
    mu, tau, theta = draws["mu"], draws["tau"], draws["theta"]
    loc = mu[:, np.newaxis] + tau[:, np.newaxis] * theta
    return (
        stats.norm(0, 10).logpdf(mu)
        + stats.norm(1, 0.5).logpdf(np.log(tau))
        + stats.norm.logpdf(theta).sum(-1)
        + stats.norm(loc, ERRORS).logpdf(EFFECTS).sum(-1)
    )


def points(n, dim, seed=0):
    return np.random.default_rng(seed).normal(size=(n, dim))


@pytest.mark.parametrize("form", FORMS)
def test_all_six_forms_have_the_right_density_and_draws(form):
    model = schools(form)
    assert sorted(model.names) == ["mu", "tau", "theta"]
    assert (model.dim, model.dtype) == (7, tf.float64)
    q = points(3, 7)
    draws = model.to_draws(q)
    assert draws["theta"].shape == (3, 5)
    assert draws["tau"].shape == (3,)
    assert (draws["tau"] > 0).all()
    evaluated = tf.function(model.log_prob, autograph=False)(q)
    np.testing.assert_allclose(evaluated, schools_density(draws), rtol=1e-10)
    np.testing.assert_allclose(model.to_flat(draws), q, rtol=1e-12)


@pytest.mark.parametrize("form", ["Named", "CoroutineAutoBatched"])
def test_gradients_compile(form):
    model = schools(form)
    q = points(2, 7)

    @tf.function(jit_compile=True, autograph=False)
    def gradient(q):
        return tfp.math.value_and_gradient(model.log_prob, q)[1]

    step = 1e-5 * np.eye(7)
    for row, compiled in zip(q, gradient(tf.constant(q)).numpy(), strict=True):
        up, down = (
            schools_density(model.to_draws(row + sign * step)) for sign in (1, -1)
        )
        np.testing.assert_allclose(compiled, (up - down) / 2e-5, rtol=1e-5, atol=1e-6)


@functools.cache
def bounded():
    """Bijectors that depend on other variables, and ones that change dimensions."""
    jd = tfd.JointDistributionNamedAutoBatched(
        {
            "low": tfd.Normal(np.float64(0.0), 2.0),
            "between": lambda low: tfd.Uniform(low, low + 3.0),
            "factor": tfd.CholeskyLKJ(3, np.float64(2.0)),
            "y": lambda between: tfd.Normal(between, 1.0),
        }
    )
    return Model.from_joint_distribution(jd, {"y": 0.5})


def test_bijectors_that_depend_on_other_variables():
    model = bounded()
    assert model.dim == 5
    assert model.shapes == {"low": (), "between": (), "factor": (3, 3)}
    q = points(4, 5, seed=1)
    draws = model.to_draws(q.reshape(2, 2, 5))
    assert draws["factor"].shape == (2, 2, 3, 3)
    assert (draws["between"] > draws["low"]).all()
    assert (draws["between"] < draws["low"] + 3).all()
    np.testing.assert_allclose(np.sum(draws["factor"] ** 2, axis=-1), 1.0)
    flat = {name: value.reshape(4, *value.shape[2:]) for name, value in draws.items()}
    np.testing.assert_allclose(model.to_flat(flat), q, rtol=1e-8, atol=1e-8)
    # By hand, but for the factor: its share cancels between two points that have the
    # same one.
    flat["factor"][1] = flat["factor"][0]
    both = model.to_flat(flat)[:2]
    values = model.to_draws(both)
    share = (values["between"] - values["low"]) / 3
    expected = (
        stats.norm(0, 2).logpdf(values["low"])
        - np.log(3)
        + stats.norm.logpdf(values["between"] - 0.5)
        + np.log(3 * share * (1 - share))
    )
    found = tf.function(model.log_prob, autograph=False)(both).numpy()
    np.testing.assert_allclose(found[1] - found[0], expected[1] - expected[0])


def test_draws_come_in_blocks_of_any_number():
    model = schools("NamedAutoBatched")
    for n in (0, 1, 4097):
        q = points(n, 7)
        draws = model.to_draws(q)
        assert draws["theta"].shape == (n, 5)
        assert model.names == ("theta", "tau", "mu")
        np.testing.assert_allclose(draws["tau"], np.exp(q[:, 5]))


def skewed(x):
    return -0.5 * tf.reduce_sum(x**2 * [1.0, 4.0, 9.0], axis=-1) + 0.1 * x[..., 0]


def two_parts(loc, scale):
    loc = tf.convert_to_tensor(loc)
    return -tf.reduce_sum(loc**2, axis=-1) - (scale - 1.0) ** 2


def test_target_of_one_tensor():
    start = np.array([0.5, 0.0, -0.5], np.float32)
    model = Model.from_target(skewed, start)
    assert (model.names, model.shapes, model.dim) == (("x",), {"x": (3,)}, 3)
    assert model.dtype == tf.float32
    assert model.num_evaluations == 0
    q = points(4, 3).astype(np.float32)
    np.testing.assert_allclose(model.log_prob(q), skewed(q), rtol=1e-6)
    draws = model.to_draws(q.reshape(2, 2, 3))
    assert np.shares_memory(draws["x"], q)  # no copy of what may be large
    np.testing.assert_array_equal(draws["x"], q.reshape(2, 2, 3))
    np.testing.assert_array_equal(model.to_flat(start), start[np.newaxis])


@pytest.mark.parametrize("form", [list, tuple, dict])
def test_target_of_many_parts(form):
    state = {"scale": np.float64(2.0), "loc": np.zeros(2)}
    if form is not dict:
        state = form([state["loc"], state["scale"]])
    model = as_model(two_parts, state)
    # A dict goes by keyword: its order needn't be that of the arguments.
    assert model.names == (("scale", "loc") if form is dict else ("x0", "x1"))
    q = points(3, 3)
    draws = model.to_draws(q)
    loc, scale = (draws[name] for name in (sorted(model.names)))
    expected = -np.sum(loc**2, axis=-1) - (scale - 1) ** 2
    np.testing.assert_allclose(model.log_prob(q), expected)
    np.testing.assert_array_equal(model.to_flat(draws), q)


def test_chains_are_told_by_the_value():
    one = Model.from_target(skewed, np.zeros(3, np.float32))
    many = Model.from_target(skewed, np.zeros((4, 3), np.float32))
    scalars = Model.from_target(lambda x: -(x**2), np.zeros(3, np.float32))
    assert (one.dim, many.dim, scalars.dim) == (3, 3, 1)
    # A target that takes chains only gets one point all the same.
    strict = Model.from_target(
        lambda x: -tf.reduce_sum(tf.einsum("ni,ij->nj", x, tf.eye(3)) ** 2, axis=1),
        np.zeros(3, np.float32),
    )
    assert strict.dim == 3


def test_starts_are_the_point_and_dispersed_ones():
    point = np.array([3.0, -1.0, 0.0], np.float32)
    model = Model.from_target(skewed, point)
    starts = model.starts(200, seed=4)
    assert starts.num_evaluations == model.num_evaluations == 200
    assert starts.position.dtype == np.float32
    np.testing.assert_array_equal(starts.position[0], point)
    noise = starts.position[1:] - point
    # 199 x 3 standard normals: five standard errors.
    assert abs(noise.std() - 1) < 5 / np.sqrt(2 * 597)
    assert abs(noise.mean()) < 5 / np.sqrt(597)
    np.testing.assert_allclose(starts.log_prob, skewed(starts.position), rtol=1e-5)
    again, other = model.starts(200, seed=4), model.starts(200, seed=5)
    np.testing.assert_array_equal(again.position, starts.position)
    assert (other.position[1:] != starts.position[1:]).all()


def test_given_states_are_used_first():
    states = points(3, 3).astype(np.float32)
    model = Model.from_target(skewed, states)
    np.testing.assert_array_equal(model.starts(2, seed=0).position, states[:2])
    starts = model.starts(5, seed=0).position
    np.testing.assert_array_equal(starts[:3], states)
    assert (starts[3:] != states[:2]).all()


def half_space(x, edge=0.0):
    inside = tf.reduce_all(x > edge, axis=-1)
    value = -0.5 * tf.reduce_sum(x**2, axis=-1)
    return tf.where(inside, value, tf.constant(-np.inf, x.dtype))


def test_starts_of_no_density_are_replaced():
    model = Model.from_target(half_space, np.full(4, 0.1))
    starts = model.starts(20, seed=0)
    assert (starts.position > 0).all()
    assert len(np.unique(starts.position[:, 0])) == 20
    assert starts.num_evaluations > 20


@pytest.mark.parametrize("start", [-1.0, -40.0])
def test_initial_state_of_no_density(start):
    model = Model.from_target(half_space, np.full(3, start))
    starts = model.starts(4, seed=0)
    assert (starts.position > 0).all()
    assert np.isfinite(starts.log_prob).all()


def test_a_point_support_gives_copies():
    def spike(x):
        at_zero = tf.reduce_all(x == 0.0, axis=-1)
        return tf.where(at_zero, tf.zeros_like(x[..., 0]), -np.inf)

    starts = Model.from_target(spike, np.zeros(2)).starts(3, seed=0)
    np.testing.assert_array_equal(starts.position, np.zeros((3, 2)))


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_no_density_anywhere_is_an_error(bad):
    model = Model.from_target(lambda x: bad + 0 * x[..., 0], np.zeros(2))
    with pytest.raises(ValueError, match="`initial_state`"):
        model.starts(4, seed=0)


def test_evaluations_are_those_counted_outside():
    counted = []

    def count(x):
        counted.append(len(x) if x.ndim == 2 else 1)
        return -np.sum(x**2, axis=-1)

    # A target that hides its shape: it must be called once to be seen.
    model = Model.from_target(
        lambda x: tf.numpy_function(count, [x], x.dtype), np.ones(2)
    )
    assert model.num_evaluations == 1
    spent = model.starts(7, seed=0).num_evaluations
    model.fingerprint()
    # Afresh each time: the data may have changed.
    assert [model.probe().num_evaluations for _ in range(2)] == [3, 3]
    assert spent == 7
    assert model.num_evaluations == sum(counted) == 1 + 7 + 2 * 3


@pytest.mark.parametrize("form", ["NamedAutoBatched", "Sequential"])
def test_starts_from_the_prior(form):
    model = schools(form)
    before = model.num_evaluations
    starts = model.starts(100, seed=3)
    assert starts.num_evaluations == 100 == model.num_evaluations - before
    draws = model.to_draws(starts.position)
    for prior, sample in (
        (stats.norm(0, 10), draws["mu"]),
        (stats.lognorm(0.5, scale=np.e), draws["tau"]),
        (stats.norm(), draws["theta"].ravel()),
    ):
        assert stats.kstest(sample, prior.cdf).pvalue > 1e-3
    again = model.starts(100, seed=3)
    np.testing.assert_array_equal(again.position, starts.position)


def test_joint_distribution_starts_from_given_states():
    state = {"mu": [1.0, 2.0], "tau": [3.0, 4.0], "theta": np.zeros((2, 5))}
    jd = schools_jd("Named")
    model = as_model(jd, state, {"y": EFFECTS})
    draws = model.to_draws(model.starts(2, seed=0).position)
    np.testing.assert_allclose(draws["tau"], [3.0, 4.0])
    # Pinned beforehand, one point, and the structure that TFP gives.
    pinned = jd.experimental_pin(y=EFFECTS)
    one = as_model(pinned, pinned.sample_unpinned(seed=(1, 2)))
    assert one.starts(1, seed=0).position.shape == (1, 7)
    with pytest.raises(ValueError, match=r"`initial_state`: tau .*support"):
        as_model(jd, {"mu": 0.0, "tau": -1.0, "theta": np.zeros(5)}, {"y": EFFECTS})


def test_fingerprint_and_probe_tell_models_apart():
    def regression(data, start=(0.0, 0.0), names=("a", "b")):
        def log_prob(**parts):
            residual = data - parts[names[0]][..., tf.newaxis]
            scale = tf.exp(parts[names[1]])
            return (
                -0.5 * tf.reduce_sum(residual**2, axis=-1) / scale**2
                - len(data) * parts[names[1]]
            )

        state = dict(zip(names, np.array(start), strict=True))
        model = Model.from_target(log_prob, state)
        return model.fingerprint(), tuple(model.probe().log_prob)

    data = points(50, 1)[:, 0]
    assert regression(data) == regression(data)
    changed = data.copy()
    changed[7] += 0.3
    others = [
        regression(changed),
        regression(data, start=(0.0, 0.1)),
        regression(data, names=("a", "c")),
    ]
    assert len({regression(data), *others}) == 4


def test_fingerprint_sees_every_bit_of_the_pins():
    jd = tfd.JointDistributionNamed(
        {"a": tfd.Normal(np.float64(0.0), 1.0), "y": lambda a: tfd.Normal(a, 1.0)}
    )
    first, same, other = (
        as_model(jd, pins={"y": pin}).fingerprint() for pin in (0.5, 0.5, 0.5 + 1e-12)
    )
    assert first == same != other


@pytest.mark.parametrize(
    ("pins", "message"),
    [
        ({}, "`y=data`"),
        ({"z": 1.0}, "z: no variables of the model; it has .*mu.*"),
        ({"y": EFFECTS[:4]}, r"pin `y` has shape \(4,\).*shape \(5,\)"),
        ({"y": np.zeros((9, 5))}, r"tfd.Sample\(..., 9\)"),
        ({"y": EFFECTS * np.nan}, "`y` has NaNs"),
        ({"y": EFFECTS, "mu": 0, "tau": 1, "theta": EFFECTS}, "nothing is left"),
    ],
)
@pytest.mark.parametrize("form", ["Named", "CoroutineAutoBatched"])
def test_bad_pins(form, pins, message):
    with pytest.raises(ValueError, match=message):
        as_model(schools_jd(form), pins=pins)


def test_pins_of_other_types():
    coin = tfd.JointDistributionNamed(
        {
            "p": tfd.Beta(2.0, 2.0),
            "y": lambda p: tfd.Sample(tfd.Bernoulli(probs=p), 3),
        }
    )
    whole = as_model(coin, pins={"y": [1.0, 0.0, 1.0]})
    assert whole.dtype == tf.float32
    with pytest.raises(ValueError, match="`y` has fractions"):
        as_model(coin, pins={"y": [0.5, 0.0, 1.0]})
    with pytest.raises(TypeError, match="expected numbers"):
        as_model(coin, pins={"y": "heads"})


@pytest.mark.parametrize("dtype", [tf.int32, tf.float32])
def test_discrete_variables_are_refused_by_name(dtype):
    jd = tfd.JointDistributionNamed(
        {
            "count": tfd.Bernoulli(probs=0.5, dtype=dtype),
            "rate": tfd.Gamma(2.0, 2.0),
            "y": lambda count, rate: tfd.Normal(rate + tf.cast(count, tf.float32), 1.0),
        }
    )
    with pytest.raises(ValueError, match=r"`count`, a Bernoulli, is discrete"):
        as_model(jd, pins={"y": 0.5})
    assert as_model(jd, pins={"y": 0.5, "count": 1}).names == ("rate",)


def test_models_for_single_points_only_name_the_class_to_use():
    # Batch shapes: TFP would return five log densities.
    with pytest.raises(ValueError, match="JointDistributionNamedAutoBatched"):
        as_model(named(tfd.JointDistributionNamed, True), pins={"y": EFFECTS})

    def single(mix):
        return tfd.JointDistributionSequential(
            [
                tfd.Sample(tfd.Normal(0.0, 1.0), 2, name="x"),
                lambda x: tfd.Normal(mix(x), 1.0, name="y"),
            ]
        )

    good = as_model(single(lambda x: x[..., 0]), pins={"y": 0.0})
    assert good.dim == 2
    for mix in (
        lambda x: x[0],  # a vector where there are many points
        lambda x: tf.reduce_sum(x),  # one number for all points: shapes fit
    ):
        with pytest.raises(ValueError, match="SequentialAutoBatched"):
            as_model(single(mix), pins={"y": 0.0})


def test_more_models_that_are_refused():
    both = tfd.JointDistributionNamed(
        {
            "a": tfd.Normal(0.0, 1.0),
            "b": tfd.Normal(np.float64(0.0), 1.0),
            "y": lambda a: tfd.Normal(a, 1.0),
        }
    )
    with pytest.raises(TypeError, match="a is float32, b is float64"):
        as_model(both, pins={"y": 0.0})
    nested = tfd.JointDistributionNamed(
        {
            "inner": tfd.JointDistributionSequential([tfd.Normal(0.0, 1.0)]),
            "y": tfd.Normal(0.0, 1.0),
        }
    )
    with pytest.raises(ValueError, match="`inner` is itself"):
        as_model(nested, pins={"y": 0.0})
    batch = tfd.JointDistributionNamedAutoBatched(
        {"a": tfd.Normal(tf.zeros(3), 1.0), "y": lambda a: tfd.Normal(a, 1.0)},
        batch_ndims=1,
    )
    with pytest.raises(ValueError, match="batch_ndims=0"):
        as_model(batch, pins={"y": tf.zeros(3)})


@pytest.mark.parametrize(
    ("target", "state", "error", "message"),
    [
        (skewed, None, ValueError, "`initial_state` is missing"),
        (skewed, np.zeros(3, np.int32), TypeError, "int32"),
        (skewed, np.full(3, np.nan, np.float32), ValueError, "x has values"),
        (skewed, [], ValueError, "empty list"),
        (two_parts, {"loc": {"a": np.zeros(2)}, "scale": 1.0}, TypeError, "nested"),
        (two_parts, [np.zeros(2), np.float32(1.0)], TypeError, "float64, float32"),
        (two_parts, {"loc": [0.0, 0.0], "x": 1.0}, TypeError, "'x'"),
        (lambda x: 1.0, np.zeros(3), TypeError, "is a float; expected a Tensor"),
        (
            lambda x: tf.cast(x[..., 0], tf.float32),
            np.zeros(3),
            TypeError,
            "is float32; expected float64",
        ),
        (lambda x: x, np.zeros((2, 3)), ValueError, r"shape \(2, 3\)"),
        (lambda x: tf.reduce_sum(x), np.zeros(3), ValueError, "axis -1"),
        (lambda x: x[1:, 0], np.zeros((4, 3)), ValueError, "one value per chain"),
    ],
)
def test_bad_targets(target, state, error, message):
    with pytest.raises(error, match=message):
        as_model(target, state)


def test_bad_calls():
    model = as_model(skewed, np.zeros(3, np.float32))
    assert as_model(model) is model
    with pytest.raises(TypeError, match="`initial_state` was given with a Model"):
        as_model(model, np.zeros(3))
    with pytest.raises(TypeError, match="unexpected arguments y"):
        as_model(skewed, np.zeros(3, np.float32), {"y": 1.0})
    with pytest.raises(TypeError, match="its `log_prob`"):
        as_model(tfd.Normal(0.0, 1.0), 0.0)
    with pytest.raises(TypeError, match="`q` is float64"):
        model.log_prob(np.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"expected \[n, 3\]"):
        model.log_prob(np.zeros((2, 4), np.float32))
    with pytest.raises(ValueError, match=r"expected \[..., 3\]"):
        model.to_draws(np.zeros(4, np.float32))
    with pytest.raises(ValueError, match=r"x has shape \(4,\)"):
        model.to_flat(np.zeros(4))
    with pytest.raises(ValueError, match="expected x"):
        model.to_flat({"y": np.zeros(3)})
    with pytest.raises(ValueError, match="`n` is 0"):
        model.starts(0, seed=1)
