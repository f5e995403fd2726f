"""`sample`: from a model to a posterior, in one call and in several."""

import dataclasses
import errno
import os
import signal
import subprocess
import sys
import time
import tracemalloc
import warnings

import arviz as az
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

import tfp_lhnn
from tfp_lhnn.evaluation.target import CompiledTarget
from tfp_lhnn.learning import stiffness, surrogate_chain
from tfp_lhnn.model.model import as_model
from tfp_lhnn.network.fixed_network import NetworkForm
from tfp_lhnn.sampling import checkpoint
from tfp_lhnn.sampling.chunk_sampler import ChunkSampler, compiled_sampler
from tfp_lhnn.sampling.sampling_run import sampler_settings

from ..counting_target import CountingTarget, funnel, skewed
from .runs import sample_from_zero

tfd = tfp.distributions
SMALL = (16, 16)

# Short runs have few effective draws, and say so.
pytestmark = pytest.mark.filterwarnings("ignore::tfp_lhnn.SamplingWarning")


@pytest.fixture(scope="module")
def counted():
    """A run of 300 draws with a target that counts its own calls."""
    target = CountingTarget()
    settings = {"n_chains": 3, "gradient_budget": 3000, "hidden_units": SMALL}
    options = {"jit_compile": False, "keep_warmup": True}
    return target, sample_from_zero(300, target, seed=5, **settings, **options)


def test_the_costs_are_those_counted_from_outside(counted):
    target, posterior = counted
    assert posterior.attrs["target_gradients"] == target.gradients <= 3000
    assert posterior.attrs["target_evaluations"] == target.evaluations


def test_it_looks_as_arviz_wants_it(counted, tmp_path):
    _, posterior = counted
    assert posterior.posterior["x"].shape == (3, 300, 2)
    assert posterior.warmup_posterior["x"].shape == (3, 100, 2)
    names = (
        "diverging tree_depth n_steps energy lp acceptance_rate step_size fallback "
        "target_gradients target_evaluations delayed_acceptance_rate network_energy"
    )
    for name in names.split():
        assert posterior.sample_stats[name].shape == (3, 300), name
    # A good fit: one density a draw, and no gradient.
    np.testing.assert_array_equal(posterior.sample_stats["target_evaluations"], 1)
    np.testing.assert_array_equal(posterior.sample_stats["target_gradients"], 0)
    assert np.isfinite(az.summary(posterior)["mean"]).all()
    path = tmp_path / "posterior.nc"
    posterior.to_netcdf(str(path))
    again = az.from_netcdf(str(path))
    assert again.attrs["target_gradients"] == posterior.attrs["target_gradients"]
    np.testing.assert_array_equal(again.posterior["x"], posterior.posterior["x"])


def test_the_statistics_belong_to_the_draws(counted):
    _, posterior = counted
    q = posterior.posterior["x"].values.reshape(-1, 2)
    lp = posterior.sample_stats["lp"].values.reshape(-1)
    np.testing.assert_allclose(lp, skewed(tf.constant(q)), rtol=1e-4, atol=1e-4)
    energy = posterior.sample_stats["network_energy"].values.reshape(-1)
    assert np.std(lp + energy) < 0.5


def z_scores(draws, truth):
    """`[chains, draws]` against a mean, by ArviZ's own standard error."""
    error = float(az.mcse(draws, method="mean"))
    return (draws.mean() - truth) / error


# Every comparison with the truth fails by chance once in 10 000 runs.
LIMIT = stats.norm.isf(0.5e-4)


def test_the_posterior_is_right(counted):
    _, posterior = counted
    x = posterior.posterior["x"].values.astype(float)
    euler = 0.5772156649
    assert abs(z_scores(x[..., 0], euler)) < LIMIT
    assert abs(z_scores(x[..., 1], 0.8 * euler)) < LIMIT
    variance = np.pi**2 / 6
    assert abs(z_scores((x[..., 0] - euler) ** 2, variance)) < LIMIT


@pytest.mark.slow
def test_nuts_is_right_even_with_a_fit_that_knows_little():
    """`method="nuts"`: a density per leaf, and no gradient after the fit."""
    posterior = sample_from_zero(
        1000, skewed, gradient_budget=500, method="nuts", seed=8
    )
    x = posterior.posterior["x"].values.astype(float)
    euler = 0.5772156649
    assert abs(z_scores(x[..., 0], euler)) < LIMIT
    assert abs(z_scores(x[..., 1], 0.8 * euler)) < LIMIT
    assert abs(z_scores((x[..., 0] - euler) ** 2, np.pi**2 / 6)) < LIMIT
    stats_ = posterior.sample_stats
    assert posterior.attrs["target_gradients"] == posterior.attrs["fit_gradients"]
    # Every leaf is weighed by its true density.
    assert np.all(stats_["target_evaluations"] >= stats_["n_steps"])


class Traces:
    """Counts how often Python sees the target."""

    def __init__(self):
        self.count = 0

    def __call__(self, q):
        self.count += 1
        return skewed(q)


def run_traced(target, seed, **kwargs):
    few = {"n_chains": 2, "gradient_budget": 700, "num_burnin_draws": 10}
    return sample_from_zero(20, target, seed=seed, **few, **kwargs)


def num_compiled_functions():
    return [
        sum(function.num_traces for function in cache.values())
        for cache in (surrogate_chain._compiled, stiffness._compiled)
    ]


@pytest.mark.parametrize("method", ["delayed_acceptance", "nuts"])
def test_compiling_ahead_evaluates_nothing_and_is_what_a_run_needs(method):
    target = CountingTarget()
    model = as_model(target, np.zeros([3, 2], np.float32))
    compiled = CompiledTarget(model, jit_compile=False)
    network = tfp_lhnn.LatentHNN(2, SMALL, seed=1)
    settings = sampler_settings(50, 3, method)
    before = target.evaluations
    shared = compiled_sampler(compiled, NetworkForm.of(network), settings)
    shared.compile()
    assert target.evaluations == before
    sampler = ChunkSampler(compiled, network, 0.5, 2, settings)
    carry = sampler.start(np.zeros([3, 2], np.float32))
    chunk = sampler.run(carry, tf.constant([1, 2]), 0, np.zeros(10, bool))
    assert chunk.position.shape == (10, 3, 2)
    assert shared.run.num_traces == 1


def test_a_second_run_compiles_nothing():
    target = Traces()
    first = run_traced(target, 1)
    traces, num_compiled = target.count, num_compiled_functions()
    second = run_traced(target, 2)
    # Only what is not compiled sees it again: the shape of the state (for one point, as
    # one of many, for many), whether it has a gradient, whether it has the values that
    # it had, the starts.
    assert target.count - traces <= 6
    assert num_compiled_functions() == num_compiled
    assert np.any(second.posterior["x"] != first.posterior["x"])
    again = run_traced(target, 1)
    np.testing.assert_array_equal(again.posterior["x"], first.posterior["x"])


def half(bad):
    """A normal density where the first coordinate is positive, and none elsewhere."""

    def log_prob(q):
        value = -0.5 * tf.reduce_sum(q**2, axis=-1)
        return tf.where(q[..., 0] > 0.0, value, np.float32(bad))

    return log_prob


@pytest.fixture(scope="module")
def half_fits():
    """Fits to the same density, which is NaN, or zero, on half of the space."""
    start = np.ones([2], np.float32)
    return [
        tfp_lhnn.fit(half(bad), start, 700, seed=1, hidden_units=(8,))
        for bad in (np.nan, -np.inf)
    ]


def test_states_of_a_fit_have_density_and_nan_is_no_density(half_fits):
    one, other = half_fits
    assert np.all(one.states[:, 0] > 0)
    np.testing.assert_array_equal(one.states, other.states)
    assert one.acceptance == other.acceptance
    assert one.data.num_dropped == other.data.num_dropped > 0


@pytest.mark.parametrize("all_bad", [False, True])
def test_chains_start_with_density_whatever_the_fit_says(half_fits, all_bad):
    fitted = half_fits[0]
    states = fitted.states.copy()
    states[: None if all_bad else 2, 0] *= -1.0
    posterior = tfp_lhnn.sample(
        20,
        half(np.nan),
        initial_state=np.ones([2], np.float32),
        seed=2,
        gradient_budget=700,
        num_burnin_draws=0,
        jit_compile=False,
        fit=dataclasses.replace(fitted, states=states),
    )
    assert np.all(posterior.posterior["x"][..., 0] > 0)
    assert np.all(np.isfinite(posterior.sample_stats["lp"]))
    # Three to know the density by, four at the states, more to find starts.
    beside = posterior.attrs["target_evaluations"] - fitted.num_evaluations
    assert beside - 4 * (1 + 20) >= 3 + 4 + (4 if all_bad else 0)


ERRORS = np.array([15.0, 10, 16, 11, 9, 11, 10, 18], np.float32)


def eight_schools():
    effects = [28.0, 8, -3, 7, -1, 1, 18, 12]
    model = tfd.JointDistributionNamedAutoBatched(
        {
            "mu": tfd.Normal(0.0, 5.0),
            "tau": tfd.HalfNormal(5.0),
            "z": tfd.Sample(tfd.Normal(0.0, 1.0), 8),
            "y": lambda z, tau, mu: tfd.Normal(mu + tau * z, ERRORS),
        }
    )
    return model, np.array(effects, np.float32)


def test_a_joint_distribution_keeps_its_names_shapes_and_constraints():
    model, effects = eight_schools()
    posterior = tfp_lhnn.sample(
        400,
        model,
        n_chains=4,
        gradient_budget=2000,
        seed=2,
        y=effects,
        hidden_units=SMALL,
    )
    draws = posterior.posterior
    assert set(draws) == {"mu", "tau", "z"}
    assert draws["z"].shape == (4, 400, 8)
    assert np.all(draws["tau"] > 0)
    assert posterior.attrs["target_gradients"] <= 2000
    # Quadrature over mu and tau (z integrates out): y_i ~ N(mu, tau^2 + s_i^2).
    mu, tau = np.meshgrid(np.linspace(-25, 35, 601), np.linspace(0.005, 30, 1200))
    scale = np.sqrt(
        tau[..., None] ** 2 + np.array([15.0, 10, 16, 11, 9, 11, 10, 18]) ** 2
    )
    log = stats.norm.logpdf(effects, mu[..., None], scale).sum(-1)
    log += stats.norm.logpdf(mu, 0, 5) + stats.norm.logpdf(tau, 0, 5)
    weight = np.exp(log - log.max())
    for name, grid in (("mu", mu), ("tau", tau)):
        truth = np.sum(weight * grid) / np.sum(weight)
        z = z_scores(draws[name].values.astype(float), truth)
        assert abs(z) < LIMIT, (name, z)


def test_a_poor_fit_warns_and_spends_the_rest_of_the_budget_on_true_gradients():
    few = {"n_chains": 2, "gradient_budget": 1500, "num_burnin_draws": 10}
    with pytest.warns(tfp_lhnn.SamplingWarning, match="poor"):
        posterior = sample_from_zero(50, funnel, dim=8, seed=3, **few)
    spent = posterior.attrs["target_gradients"]
    assert posterior.attrs["fit_gradients"] < spent <= 1500
    assert posterior.sample_stats["fallback"].values.any()


RUN = """
import sys, warnings
import numpy as np
import tensorflow as tf
import tfp_lhnn
def target(q):
    return tf.reduce_sum(-q - tf.exp(-q), axis=-1)
def run(fit, directory):
    return tfp_lhnn.sample(
        400, target, initial_state=np.zeros([2], np.float32), n_chains=2, seed=7,
        gradient_budget=700, hidden_units=(8,), fit=fit, checkpoint=directory)
"""
CHILD = """
warnings.simplefilter("ignore")
run(tfp_lhnn.Fit.load(sys.argv[1]) if sys.argv[1] else None, sys.argv[2])
"""


@pytest.fixture(scope="module")
def unbroken():
    """The run of `RUN` in this process, its fit, and its draws in one go."""
    names = {}
    exec(RUN, names)
    start = np.zeros([2], np.float32)
    fitted = tfp_lhnn.fit(names["target"], start, 700, seed=3, hidden_units=(8,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tfp_lhnn.SamplingWarning)
        draws = names["run"](fitted, None).posterior["x"].values
    return names["run"], fitted, draws


def kill_at(fit_path, directory, number):
    """Kills a run as soon as it has that many files in its checkpoint."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUN + CHILD, str(fit_path), str(directory)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while process.poll() is None:
        if len(list(directory.glob("*.npz"))) >= number:
            os.kill(process.pid, signal.SIGKILL)
        time.sleep(0.001)
    assert process.returncode == -signal.SIGKILL


def test_a_run_that_was_killed_goes_on_to_the_same_draws(unbroken, tmp_path):
    run, fitted, draws = unbroken
    fitted.save(tmp_path / "fit")
    directory = tmp_path / "run"
    kill_at(tmp_path / "fit", directory, 7)
    assert 7 <= len(list(directory.glob("chunk_*.npz"))) < 50
    resumed = run(fitted, directory).posterior["x"].values
    np.testing.assert_array_equal(resumed, draws)


def test_a_full_disk_in_the_middle_loses_nothing(unbroken, tmp_path, monkeypatch):
    run, fitted, draws = unbroken
    append, chunks = checkpoint.Checkpoint.append, []

    def append_until_full(self, index, arrays):
        if len(chunks) == 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        chunks.append(index)
        append(self, index, arrays)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.Checkpoint, "append", append_until_full)
        with pytest.raises(OSError, match="No space left"):
            run(fitted, tmp_path / "run")
    assert len(list((tmp_path / "run").glob("chunk_*.npz"))) == 5
    resumed = run(fitted, tmp_path / "run").posterior["x"].values
    np.testing.assert_array_equal(resumed, draws)


@pytest.mark.slow
def test_twenty_kills_at_random_moments(unbroken, tmp_path):
    run, fitted, draws = unbroken
    fitted.save(tmp_path / "fit")
    rng = np.random.default_rng(1)
    for i in range(20):
        directory = tmp_path / f"run {i}"
        kill_at(tmp_path / "fit", directory, rng.integers(0, 48))
        resumed = run(fitted, directory).posterior["x"].values
        np.testing.assert_array_equal(resumed, draws)


@pytest.mark.slow
def test_a_run_killed_during_its_fit_begins_anew(unbroken, tmp_path):
    run, _, _ = unbroken
    draws = run(None, tmp_path / "unbroken").posterior["x"].values
    kill_at("", tmp_path / "killed", 0)
    np.testing.assert_array_equal(
        run(None, tmp_path / "killed").posterior["x"].values, draws
    )


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    target = Traces()
    first = run_traced(target, 1, checkpoint=tmp_path / "run")
    again = run_traced(target, 1, checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(again.posterior["x"], first.posterior["x"])
    with pytest.raises(ValueError, match="seed"):
        run_traced(target, 2, checkpoint=tmp_path / "run")
    other = tfp_lhnn.FitConfig(num_steps=300)
    with pytest.raises(ValueError, match="network"):
        run_traced(target, 1, checkpoint=tmp_path / "run", config=other)
    with pytest.raises(ValueError, match="log density has changed"):
        run_traced(lambda q: 2.0 * skewed(q), 1, checkpoint=tmp_path / "run")


@pytest.mark.slow
def test_a_million_draws_need_three_times_their_size():
    """Arrays of Python and NumPy, at their peak: 64 chains, 10 dimensions."""

    def target(q):
        return -0.5 * tf.reduce_sum(q**2, axis=-1)

    start = np.zeros([10], np.float32)
    fitted = tfp_lhnn.fit(target, start, 800, seed=1, hidden_units=(8,))
    arguments = {"initial_state": start, "n_chains": 64, "seed": 1, "fit": fitted}
    tfp_lhnn.sample(1000, target, **arguments)  # compiles
    tracemalloc.start()
    posterior = tfp_lhnn.sample(15_625, target, **arguments)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * posterior.posterior["x"].nbytes


@pytest.mark.slow
def test_a_fit_can_be_used_again():
    target = Traces()
    start = np.zeros([2], np.float32)
    fitted = tfp_lhnn.fit(target, start, 700, seed=1, hidden_units=(8,))
    posterior = run_traced(target, 4, fit=fitted)
    assert posterior.attrs["fit_gradients"] == fitted.num_gradients
    assert posterior.attrs["target_gradients"] == fitted.num_gradients


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n_draws": 0}, ValueError, "`n_draws`"),
        ({"n_chains": 0}, ValueError, "`n_chains`"),
        ({"method": "hmc"}, ValueError, "`method`"),
        ({"gradient_budget": 10}, ValueError, "`gradient_budget` is 10"),
        ({"initial_state": None}, ValueError, "`initial_state`"),
        ({"seed": "one"}, TypeError, "`seed`"),
        ({"fit": 3}, TypeError, "`fit`"),
        ({"y": 1.0}, TypeError, "only the variables of a"),
        ({"hidden_units": ()}, ValueError, "`hidden_units`"),
    ],
)
def test_bad_arguments(arguments, error, message):
    valid = {"n_draws": 5, "initial_state": np.zeros([2], np.float32), "seed": 1}
    valid |= arguments
    with pytest.raises(error, match=message):
        tfp_lhnn.sample(valid.pop("n_draws"), skewed, **valid)


def test_no_start_of_finite_density():
    def nowhere(q):
        return tf.reduce_sum(q, axis=-1) * 0.0 - np.inf

    with pytest.raises(ValueError, match="`initial_state`"):
        tfp_lhnn.sample(5, nowhere, initial_state=np.zeros([2], np.float32), seed=1)


def test_an_unwritable_checkpoint_fails_before_any_work(tmp_path):
    (tmp_path / "file").write_text("in the way")
    target = Traces()
    with pytest.raises(OSError, match="file"):
        run_traced(target, 1, checkpoint=tmp_path / "file")
