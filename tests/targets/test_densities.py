"""Each target's density, draws and moments against one another.

Statistical tests compare with a bound whose chance of a false alarm, for a fresh
seed, is `FALSE_ALARM`; seeds are fixed, so a failure is repeatable.
"""

import functools
import math
from statistics import NormalDist

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lhnn import targets

tfd = tfp.distributions

FALSE_ALARM = 1e-6
NUM_DRAWS = 60_000

FACTORIES = {
    "eight_gaussians": targets.eight_gaussians,
    "gaussian_mixture_1d": targets.gaussian_mixture_1d,
    "standard_gaussian": lambda: targets.standard_gaussian(3),
    "ill_conditioned_gaussian": targets.ill_conditioned_gaussian,
    "funnel": lambda: targets.funnel(4),
    "rough_well": lambda: targets.rough_well(20),
    "coarse_rough_well": lambda: targets.rough_well(3, eta=0.5),
    "rosenbrock_2": lambda: targets.rosenbrock(2),
    "rosenbrock": targets.rosenbrock,
    "allen_cahn": targets.allen_cahn,
}
# Their squares have tails so long that a sample variance, and x times the gradient,
# is far from normal at any affordable number of draws.
HEAVY_TAILED = {"funnel", "rosenbrock_2", "rosenbrock"}

every_target = pytest.mark.parametrize("name", FACTORIES)


@functools.cache
def make(name):
    return FACTORIES[name]()


@functools.cache
def exact_draws(name):
    return make(name).sample(NUM_DRAWS, seed=[20, 26])


def z_bound(num_tests):
    return -NormalDist().inv_cdf(FALSE_ALARM / (2 * num_tests))


def dkwm_bound(num_draws):
    """The Dvoretzky-Kiefer-Wolfowitz-Massart bound of |F_n - F|."""
    return math.sqrt(math.log(2 / FALSE_ALARM) / (2 * num_draws))


def stein_z_scores(log_prob, draws, bounded):
    """z-scores of E[h(a·x) ∂_i log π + h'(a·x) a_i] = 0, for each i and several a.

    The directions `a` are the coordinates and the differences of neighbours, in
    which chains are stiff, besides the constant function E[∂_i log π] = 0. `h` is
    the identity, or tanh for a bounded test function.
    """
    dim = draws.shape[1]
    directions = np.concatenate([np.eye(dim), np.diff(np.eye(dim), axis=0)])
    h = draws @ directions.T
    if bounded:
        h = np.tanh(h)
    slope = 1 - h**2 if bounded else np.ones_like(h)
    h = np.concatenate([h, np.ones_like(h[:, :1])], axis=1)
    slope = np.concatenate([slope, np.zeros_like(h[:, :1])], axis=1)
    directions = np.concatenate([directions, np.zeros([1, dim])])
    score = tfp.math.value_and_gradient(log_prob, tf.constant(draws))[1].numpy()

    mean = h.T @ score / len(draws) + directions * slope.mean(axis=0)[:, None]
    square = (
        (h**2).T @ score**2 / len(draws)
        + 2 * directions * ((h * slope).T @ score) / len(draws)
        + directions**2 * (slope**2).mean(axis=0)[:, None]
    )
    return mean / np.sqrt((square - mean**2) / len(draws))


@every_target
def test_draws_obey_steins_identity(name):
    z = stein_z_scores(make(name).log_prob, exact_draws(name), name in HEAVY_TAILED)
    assert np.abs(z).max() < z_bound(z.size)


def funnel_without_normaliser(q):
    return targets.funnel(4).log_prob(q) + 1.5 * q[..., 0]


def stiffer_rosenbrock(q):
    extra = 5.0 * (q[..., 1:] - q[..., :-1] ** 2) ** 2 / 20.0
    return targets.rosenbrock().log_prob(q) - tf.reduce_sum(extra, axis=-1)


def stiffer_allen_cahn(q):
    extra = 0.05 * (q[..., 1:] - q[..., :-1]) ** 2 / (2 / 25)
    return targets.allen_cahn().log_prob(q) - tf.reduce_sum(extra, axis=-1)


@pytest.mark.parametrize(
    ("name", "wrong_log_prob"),
    [
        ("funnel", funnel_without_normaliser),
        ("coarse_rough_well", targets.rough_well(3, eta=0.55).log_prob),
        ("rosenbrock", stiffer_rosenbrock),
        ("allen_cahn", stiffer_allen_cahn),
    ],
)
def test_steins_identity_has_power(name, wrong_log_prob):
    z = stein_z_scores(wrong_log_prob, exact_draws(name), name in HEAVY_TAILED)
    assert np.abs(z).max() > z_bound(z.size)


@every_target
def test_draws_have_the_stated_moments(name):
    target, draws = make(name), exact_draws(name)
    if name.startswith("rosenbrock"):
        keep = slice(0, target.dim - 1)  # the last: a square of a long tail
    elif name == "funnel":
        keep = slice(0, 1)
    else:
        keep = slice(None)
    centred = (draws - target.mean)[:, keep]
    variance = target.variance[keep]
    mean_z = centred.mean(axis=0) / np.sqrt(variance / NUM_DRAWS)
    spread = (centred**2).std(axis=0) / math.sqrt(NUM_DRAWS)
    variance_z = ((centred**2).mean(axis=0) - variance) / spread
    bound = z_bound(2 * variance.size)
    assert np.abs(mean_z).max() < bound
    assert np.abs(variance_z).max() < bound
    assert not target.mean_standard_error.any()
    assert not target.variance_standard_error.any()
    assert target.mean.shape == target.variance_standard_error.shape == (target.dim,)


def normal_cdf(x):
    return tf.math.erfc(-np.asarray(x) / math.sqrt(2)).numpy() / 2


def largest_cdf_error(draws, points, cdf):
    empirical = np.searchsorted(np.sort(draws), points, side="right") / len(draws)
    return np.abs(empirical - cdf).max()


def eight_gaussians_cdf(t):
    centres = 4 * np.cos(np.pi * np.arange(8) / 4)
    return normal_cdf(t[:, None] - centres).mean(axis=1)


def funnel_tail_cdf(t):
    v, weight = np.polynomial.hermite_e.hermegauss(80)
    return normal_cdf(t[:, None] * np.exp(-1.5 * v)) @ (weight / weight.sum())


@pytest.mark.parametrize(
    ("name", "coordinate", "cdf"),
    [
        ("eight_gaussians", 0, eight_gaussians_cdf),
        ("eight_gaussians", 1, eight_gaussians_cdf),
        (
            "gaussian_mixture_1d",
            0,
            lambda t: (normal_cdf((t - 1) / 0.35) + normal_cdf((t + 1) / 0.35)) / 2,
        ),
        ("standard_gaussian", 2, normal_cdf),
        ("ill_conditioned_gaussian", 0, lambda t: normal_cdf(t / 0.1)),
        ("ill_conditioned_gaussian", 4, lambda t: normal_cdf(t / 10)),
        ("funnel", 0, lambda t: normal_cdf(t / 3)),
        ("funnel", 3, funnel_tail_cdf),
        # The ripple moves the CDF by no more than its height times its period.
        ("rough_well", 19, normal_cdf),
        ("rosenbrock_2", 0, lambda t: normal_cdf((t - 1) / math.sqrt(10))),
    ],
)
def test_draws_have_the_known_marginal(name, coordinate, cdf):
    points = np.linspace(-40, 40, 16_001)
    error = largest_cdf_error(exact_draws(name)[:, coordinate], points, cdf(points))
    assert error < dkwm_bound(NUM_DRAWS)


@pytest.mark.parametrize("name", ["rough_well", "rosenbrock", "allen_cahn"])
def test_grid_draws_are_not_lattice_valued(name):
    assert len(np.unique(exact_draws(name)[:, 0])) > 0.999 * NUM_DRAWS


def mixture(locations, scale):
    return tfd.MixtureSameFamily(
        tfd.Categorical(logits=tf.zeros(len(locations), tf.float64)),
        tfd.MultivariateNormalDiag(tf.constant(locations, tf.float64), scale),
    )


@pytest.mark.parametrize(
    ("name", "log_prob"),
    [
        (
            "eight_gaussians",
            mixture(
                [[4 * math.cos(a), 4 * math.sin(a)] for a in np.arange(8) * np.pi / 4],
                tf.ones(2, tf.float64),
            ).log_prob,
        ),
        (
            "gaussian_mixture_1d",
            mixture([[-1.0], [1.0]], tf.constant([0.35], tf.float64)).log_prob,
        ),
        ("standard_gaussian", lambda q: np.sum(tfd.Normal(0.0, 1.0).log_prob(q), -1)),
        (
            "ill_conditioned_gaussian",
            tfd.MultivariateNormalDiag(
                scale_diag=tf.sqrt(tf.constant([0.01, 0.1, 1, 10, 100], tf.float64))
            ).log_prob,
        ),
        (
            "funnel",
            lambda q: (
                tfd.Normal(np.float64(0), 3).log_prob(q[:, 0])
                + np.sum(
                    tfd.Normal(np.float64(0), np.exp(q[:, :1] / 2)).log_prob(q[:, 1:]),
                    axis=-1,
                )
            ),
        ),
        (
            "rough_well",
            lambda q: [
                -sum(x**2 / 2 + 0.01 * math.cos(x / 0.01) for x in r) for r in q
            ],
        ),
        (
            "rosenbrock",
            lambda q: [
                -sum(
                    (100 * (r[i + 1] - r[i] ** 2) ** 2 + (1 - r[i]) ** 2) / 20
                    for i in range(9)
                )
                for r in q
            ],
        ),
        (
            "allen_cahn",
            lambda q: [
                -sum((r[i + 1] - r[i]) ** 2 / (2 / 25) for i in range(24))
                - sum((1 - u**2) ** 2 for u in r) / 50
                for r in q
            ],
        ),
    ],
)
def test_log_prob_is_the_formula(name, log_prob):
    q = exact_draws(name)[:50]
    np.testing.assert_allclose(make(name).log_prob(q), log_prob(q), rtol=1e-6)


@every_target
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_log_prob_keeps_batch_dimensions_and_dtype(name, batch):
    target = make(name)
    q = exact_draws(name)[: math.prod(batch)].reshape(*batch, target.dim)
    flat = target.log_prob(q.reshape(-1, target.dim)).numpy()
    value = target.log_prob(q)
    assert value.dtype == tf.float64
    np.testing.assert_allclose(value.numpy(), flat.reshape(batch), rtol=1e-12)
    single = target.log_prob(q.astype(np.float32))
    assert single.dtype == tf.float32
    np.testing.assert_allclose(single.numpy(), value.numpy(), rtol=1e-3, atol=1e-3)


@every_target
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_xla_equals_eager(name, dtype):
    target = make(name)
    q = tf.constant(exact_draws(name)[:7].astype(dtype))
    compiled = tf.function(
        lambda q: tfp.math.value_and_gradient(target.log_prob, q),
        jit_compile=True,
        autograph=False,
    )
    tolerance = 1e-3 if dtype == np.float32 else 1e-9
    eager = tfp.math.value_and_gradient(target.log_prob, q)
    for actual, expected in zip(compiled(q), eager, strict=True):
        assert actual.dtype == q.dtype
        np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


@every_target
def test_draws_are_determined_by_the_seed(name):
    target = make(name)
    assert target.has_exact_sampler
    draws = target.sample(5, seed=[1, 2])
    assert draws.shape == (5, target.dim)
    assert draws.dtype == np.float64
    np.testing.assert_array_equal(draws, target.sample(5, seed=tf.constant([1, 2])))
    np.testing.assert_array_equal(target.sample(5, seed=3), target.sample(5, seed=3))
    for other in (3, [2, 1]):
        assert not np.any(draws == target.sample(5, seed=other))


def test_target_without_exact_sampler_says_so():
    known = targets.standard_gaussian(2)
    target = targets.Target("mine", 2, known.log_prob_fn, known.moments_fn)
    assert not target.has_exact_sampler
    with pytest.raises(NotImplementedError, match="'mine' has no exact sampler"):
        target.sample(1, seed=0)


@pytest.mark.parametrize("factory", [targets.rosenbrock, targets.allen_cahn])
def test_dim_may_be_a_numpy_integer(factory):
    target = factory(np.int64(4))
    assert target.sample(2, seed=0).shape == (2, 4)
    assert target.mean.shape == (4,)


def test_moments_cannot_be_overwritten():
    with pytest.raises(ValueError, match="read-only"):
        targets.rosenbrock(2).mean[0] = 0.0


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: targets.rosenbrock(1), ValueError, "`dim` is 1; expected 2"),
        (lambda: targets.funnel(1), ValueError, "`dim` is 1; expected 2"),
        (lambda: targets.allen_cahn(0), ValueError, "`dim` is 0; expected 2"),
        (lambda: targets.standard_gaussian(0), ValueError, "`dim` is 0; expected 1"),
        (lambda: targets.rough_well(2.5), TypeError, "`dim` is 2.5; expected an int"),
        (lambda: targets.rough_well(eta=0.0), ValueError, "`eta` is 0.0"),
        (lambda: targets.rough_well(eta=math.nan), ValueError, "`eta` is nan"),
        (lambda: targets.rough_well(eta="x"), ValueError, "`eta` is 'x'"),
        (lambda: targets.ill_conditioned_gaussian([]), ValueError, "`variances` is"),
        (lambda: targets.ill_conditioned_gaussian([1, -1]), ValueError, "`variances`"),
        (lambda: make("funnel").sample(0, seed=1), ValueError, "`n` is 0"),
        (lambda: make("funnel").sample(1.5, seed=1), TypeError, "`n` is 1.5"),
        (lambda: make("funnel").sample(1, seed="x"), TypeError, "`seed` is 'x'"),
        (lambda: make("funnel").log_prob([1.0, 2.0]), ValueError, r"\[..., 4\]"),
        (lambda: make("funnel").log_prob(1.0), ValueError, r"\[..., 4\]"),
        (lambda: make("funnel").log_prob([1, 2, 3, 4]), TypeError, "dtype int32"),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
