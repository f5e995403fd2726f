"""`to_inference_data`: groups, shapes, tallies of each draw, attributes, netCDF."""

import collections
import warnings

import matplotlib
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_lhnn
from tfp_lhnn.posterior.inference_data import az, to_inference_data

DRAWS, CHAINS = 6, 3


def make_stats(delayed=True, shape=(DRAWS, CHAINS), **fields):
    """Statistics by hand; each draw costs 2 gradients and 3 densities."""
    tally = np.arange(1, shape[0] + 1, dtype=np.int32)
    tally = np.broadcast_to(tally.reshape(-1, *[1] * (len(shape) - 1)), shape)
    log_prob = -np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    values = {
        "target_log_prob": log_prob,
        "step_size": np.linspace(0.1, 0.2, shape[0]),
        "log_accept_ratio": np.full(shape, 0.5, np.float32),
        "leapfrogs_taken": np.full(shape, 5, np.int32),
        "is_accepted": np.ones(shape, bool),
        "reach_max_depth": np.zeros(shape, bool),
        "has_divergence": np.zeros(shape, bool),
        "energy": 1.0 - log_prob,
        "seed": np.zeros((shape[0], 2), np.int32),
        "target_gradients": 2 * tally,
        "target_evaluations": 3 * tally + 1,
        "target_gradient_calls": tally.reshape(shape[0], -1)[:, 0],
        "target_evaluation_calls": tally.reshape(shape[0], -1)[:, 0],
    }
    if delayed:
        values["log_delayed_accept_ratio"] = np.full(shape, np.log(0.25), np.float32)
        values["is_true_transition"] = np.zeros(shape, bool)
        kind = tfp_lhnn.LatentHNNDelayedAcceptanceStats
    else:
        values["log_true_accept_ratio"] = np.full(shape, 0.5, np.float32)
        values["fallback_remaining"] = np.zeros(shape, np.int32)
        values["num_fallbacks"] = np.zeros(shape, np.int32)
        kind = tfp_lhnn.LatentHNNStats
    return kind(**values | fields)


def make_draws(*event, shape=(DRAWS, CHAINS)):
    size = np.prod((*shape, *event), dtype=int)
    return np.arange(size, dtype=np.float32).reshape(*shape, *event)


@pytest.fixture(scope="module")
def sampled():
    """A short run of each kernel, with a network that has learned nothing."""

    def log_prob(q):
        return -0.5 * tf.reduce_sum(q**2, axis=-1)

    network = tfp_lhnn.LatentHNN(2, (4,))
    network.initialise(0)
    runs = {}
    for name, kernel in (
        (
            "delayed",
            tfp_lhnn.LatentHNNDelayedAcceptanceSampler(
                log_prob,
                network,
                0.3,
                max_tree_depth=4,
                true_transition_probability=0.3,
            ),
        ),
        (
            "plain",
            tfp_lhnn.LatentHNNNoUTurnSampler(
                log_prob, network, 0.3, max_tree_depth=4, error_monitor="pointwise"
            ),
        ),
    ):
        sample = tf.function(tfp.mcmc.sample_chain, autograph=False)
        runs[name] = sample(
            40,
            tf.ones([3, 2]),
            kernel=kernel,
            num_burnin_steps=0,
            trace_fn=tfp_lhnn.trace_stats,
            seed=tf.constant([1, 2]),
        )
    return runs


class TestSampled:
    @pytest.mark.parametrize("kind", ["delayed", "plain"])
    def test_everything_is_there(self, sampled, kind):
        draws, stats = sampled[kind]
        post = to_inference_data(draws, stats)
        np.testing.assert_array_equal(
            post.posterior["x"], np.swapaxes(draws.numpy(), 0, 1)
        )
        s = post.sample_stats
        assert {s[name].dims for name in s} == {("chain", "draw")}
        np.testing.assert_array_equal(s["lp"], np.transpose(stats.target_log_prob))
        np.testing.assert_allclose(
            s["lp"], -0.5 * (post.posterior["x"] ** 2).sum("x_dim_0"), rtol=1e-5
        )
        # Of all draws, and of the three densities that started the chains.
        assert int(s["target_gradients"].sum()) == post.attrs["target_gradients"]
        evaluations = int(s["target_evaluations"].sum())
        assert evaluations + 3 == post.attrs["target_evaluations"]
        assert ("delayed_acceptance_rate" in s) == (kind == "delayed")
        # A tree of depth j has at most 2^j - 1 leaves, and more than 2^(j-1) - 1.
        leaves, depth = s["n_steps"].values, s["tree_depth"].values
        assert (leaves <= 2**depth - 1).all()
        assert (leaves > 2.0 ** (depth - 1) - 1).all()

    def test_fallbacks_are_the_draws_with_true_gradients(self, sampled):
        s = to_inference_data(*sampled["delayed"]).sample_stats
        np.testing.assert_array_equal(s["fallback"], s["target_gradients"] > 0)
        assert 0 < s["fallback"].values.mean() < 1
        surrogate = ~s["fallback"].values
        assert (s["target_evaluations"].values[surrogate] == 1).all()

    def test_arviz_takes_it(self, sampled):
        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        draws, stats = sampled["delayed"]
        post = to_inference_data(draws, stats)
        summary = az.summary(post)
        assert list(summary.index) == ["x[0]", "x[1]"]
        assert np.isfinite(summary["r_hat"]).all()
        with warnings.catch_warnings():
            # ArviZ on the newest matplotlib.
            warnings.simplefilter("ignore")
            assert az.plot_trace(post).shape == (1, 2)
            assert az.plot_energy(post) is not None
            plt.gcf().canvas.draw()
        plt.close("all")


class TestStats:
    def test_values_by_hand(self):
        shape = (DRAWS, CHAINS)
        true = np.zeros(shape, bool)
        true[2] = True
        ratio = np.full(shape, np.log(0.25))
        ratio[0] = 3.0
        stats = make_stats(is_true_transition=true, log_delayed_accept_ratio=ratio)
        s = to_inference_data(make_draws(2), stats).sample_stats
        np.testing.assert_array_equal(s["fallback"].values, true.T)
        np.testing.assert_allclose(
            s["delayed_acceptance_rate"].values,
            np.where(np.arange(6) == 0, 1, 0.25)[None].repeat(3, 0),
        )
        assert (s["acceptance_rate"] == 1.0).all()  # exp(0.5) is above one
        assert (s["tree_depth"] == 3).all()
        assert (s["n_steps"] == 5).all()
        np.testing.assert_allclose(s["step_size"][1], np.linspace(0.1, 0.2, DRAWS))
        assert s["diverging"].dtype == bool
        assert s["reached_max_treedepth"].dtype == bool

    @pytest.mark.parametrize(
        ("leaves", "depth"),
        [(1, 1), (2, 2), (3, 2), (4, 3), (7, 3), (8, 4), (1023, 10)],
    )
    def test_tree_depth(self, leaves, depth):
        stats = make_stats(leapfrogs_taken=np.full((DRAWS, CHAINS), leaves, np.int32))
        s = to_inference_data(make_draws(), stats).sample_stats
        assert (s["tree_depth"] == depth).all()

    def test_fallback_of_the_plain_kernel_is_a_growing_tally(self):
        gradients = np.zeros((DRAWS, CHAINS), np.int32)
        gradients[2:, 1] = 4
        gradients[4:, 1] = 5
        stats = make_stats(delayed=False, target_gradients=gradients)
        s = to_inference_data(make_draws(2), stats).sample_stats
        assert "delayed_acceptance_rate" not in s
        assert np.argwhere(s["fallback"].values).tolist() == [[1, 2], [1, 4]]
        assert s["target_gradients"].values[1].tolist() == [0, 0, 4, 0, 1, 0]

    def test_optional_fields(self):
        energy = make_draws()
        s = to_inference_data(
            make_draws(2),
            make_stats(),
            network_energy=energy,
            outside_training_data=energy > 5.0,
        ).sample_stats
        np.testing.assert_array_equal(s["network_energy"], energy.T)
        assert s["outside_training_data"].values.sum() == (energy > 5).sum()

    @pytest.mark.parametrize(
        ("steps", "expected"),
        [
            (np.full(DRAWS, 0.3), [0.3] * CHAINS),
            (np.full((DRAWS, CHAINS, 1), [[1.0], [2.0], [3.0]]), [1.0, 2.0, 3.0]),
            (np.full((DRAWS, 2), [1.0, 4.0]), [2.0] * CHAINS),
            ([np.full((DRAWS, 1, 2), [1.0, 4.0])], [2.0] * CHAINS),
            # Steps of a space that the draws are not in.
            (np.full((DRAWS, 7), 0.5), [0.5] * CHAINS),
            ([np.full(DRAWS, 1.0), np.full(DRAWS, 4.0)], [2.0] * CHAINS),
        ],
    )
    def test_step_sizes_of_many_shapes(self, steps, expected):
        s = to_inference_data(make_draws(2), make_stats(step_size=steps)).sample_stats
        for chain, value in enumerate(expected):
            np.testing.assert_allclose(s["step_size"][chain], value)


class TestTallies:
    def test_first_draw_of_a_fresh_kernel(self):
        s = to_inference_data(make_draws(2), make_stats()).sample_stats
        assert (s["target_gradients"] == 2).all()
        assert (s["target_evaluations"] == 3).all()

    def test_first_draw_after_others(self):
        before = (np.array([2, 1, 0]), 2)
        post = to_inference_data(make_draws(2), make_stats(), tallies_before=before)
        assert post.sample_stats["target_gradients"].values[:, 0].tolist() == [0, 1, 2]
        assert (post.sample_stats["target_evaluations"][:, 0] == 2).all()

    def test_totals_are_of_all_chains_and_phases(self):
        post = to_inference_data(
            make_draws(2),
            make_stats(),
            attrs={"fit_gradients": 1000, "fit_evaluations": 2000},
        )
        assert post.attrs["target_gradients"] == 1000 + CHAINS * 2 * DRAWS
        assert post.attrs["target_evaluations"] == 2000 + CHAINS * (3 * DRAWS + 1)

    def test_totals_given_are_kept(self):
        post = to_inference_data(
            make_draws(2), make_stats(), attrs={"target_gradients": 7}
        )
        assert post.attrs["target_gradients"] == 7

    @pytest.mark.parametrize("is_fresh", [True, False])
    def test_warm_up_that_the_tallies_go_on_from_or_not(self, is_fresh):
        warmup = make_stats(delayed=False)
        stats = make_stats()
        if not is_fresh:
            stats = stats._replace(
                target_gradients=stats.target_gradients + 2 * DRAWS,
                target_evaluations=stats.target_evaluations + 3 * DRAWS,
            )
        post = to_inference_data(
            make_draws(2),
            stats,
            warmup_draws=make_draws(2) + 1.0,
            warmup_stats=warmup,
        )
        for group in (post.sample_stats, post.warmup_sample_stats):
            assert (group["target_gradients"] == 2).all()
            assert (group["target_evaluations"] == 3).all()
        np.testing.assert_array_equal(
            post.warmup_posterior["x"], post.posterior["x"] + 1.0
        )
        assert post.attrs["target_gradients"] == CHAINS * 2 * 2 * DRAWS
        starts = 2 if is_fresh else 1
        assert post.attrs["target_evaluations"] == CHAINS * (3 * 2 * DRAWS + starts)

    def test_warm_up_draws_alone(self):
        post = to_inference_data(
            make_draws(2), make_stats(), warmup_draws=make_draws(2, shape=(2, CHAINS))
        )
        assert post.warmup_posterior.sizes["draw"] == 2
        assert "warmup_sample_stats" not in post.groups()


class TestDraws:
    def test_parts_mappings_and_namedtuples(self):
        a, b = make_draws(), make_draws(2, 4)
        State = collections.namedtuple("State", ["a", "b"])
        for draws, names in (
            ([a, b], ["x0", "x1"]),
            ((tf.constant(a), b), ["x0", "x1"]),
            ({"a": a, "b": b}, ["a", "b"]),
            (State(a, b), ["a", "b"]),
        ):
            post = to_inference_data(draws, make_stats()).posterior
            assert list(post) == names
            assert post[names[0]].shape == (CHAINS, DRAWS)
            np.testing.assert_array_equal(post[names[1]], np.swapaxes(b, 0, 1))

    def test_names_dims_and_coords(self):
        post = to_inference_data(
            make_draws(2),
            make_stats(),
            var_names=["beta"],
            dims={"beta": ["covariate"]},
            coords={"covariate": ["age", "height"]},
        )
        assert post.posterior["beta"].dims == ("chain", "draw", "covariate")
        assert list(az.summary(post, kind="stats").index) == [
            "beta[age]",
            "beta[height]",
        ]

    @pytest.mark.parametrize("event", [(), (1,), (2,)])
    def test_one_chain_without_a_dimension(self, event):
        shape = (DRAWS,)
        post = to_inference_data(
            make_draws(*event, shape=shape), make_stats(shape=shape)
        )
        assert post.posterior["x"].shape == (1, DRAWS, *event)
        assert post.sample_stats["lp"].shape == (1, DRAWS)

    def test_two_chain_dimensions_become_one(self):
        shape = (DRAWS, 2, 3)
        post = to_inference_data(make_draws(4, shape=shape), make_stats(shape=shape))
        assert post.posterior["x"].shape == (6, DRAWS, 4)
        assert post.sample_stats["lp"].shape == (6, DRAWS)
        np.testing.assert_array_equal(
            post.posterior["x"][4, 2], make_draws(4, shape=shape)[2, 1, 1]
        )
        assert (post.sample_stats["target_gradients"] == 2).all()

    def test_no_copies(self):
        draws = make_draws(2)
        post = to_inference_data(draws, make_stats())
        assert np.shares_memory(post.posterior["x"].values, draws)

    def test_more_chains_than_draws_is_no_reason_to_warn(self):
        shape = (2, 5)
        post = to_inference_data(make_draws(2, shape=shape), make_stats(shape=shape))
        assert post.posterior.sizes["chain"] == 5


def test_net_cdf_and_back(tmp_path):
    post = to_inference_data(
        make_draws(2),
        make_stats(),
        warmup_draws=make_draws(2),
        warmup_stats=make_stats(),
        network_energy=make_draws(),
        outside_training_data=make_draws() > 3.0,
        attrs={
            "seconds": np.float32(1.5),
            "method": "delayed_acceptance",
            "fit_is_good": True,
            "fit_gradients": np.int64(9),
            "fit_message": None,
            "fit_energy_error": np.float64("nan"),
        },
    )
    assert "fit_message" not in post.attrs
    path = str(tmp_path / "post.nc")
    post.to_netcdf(path)
    loaded = az.from_netcdf(path)
    assert set(loaded.groups()) == set(post.groups())
    for group in post.groups():
        for name, values in post[group].items():
            np.testing.assert_array_equal(loaded[group][name], values, err_msg=name)
            assert loaded[group][name].dtype == values.dtype, name
    assert set(loaded.attrs) == set(post.attrs)
    for name, value in post.attrs.items():
        np.testing.assert_equal(loaded.attrs[name], value)
    assert loaded.attrs["inference_library"] == "tfp_lhnn"
    assert loaded.attrs["tensorflow_version"] == tf.__version__
    assert loaded.attrs["fit_is_good"] == 1


@pytest.mark.parametrize(
    ("error", "message", "changes"),
    [
        (TypeError, "`stats` is a dict; .*trace_stats", {"stats": {}}),
        (TypeError, "`warmup_stats` is a list", {"warmup_stats": []}),
        (
            ValueError,
            r"`draws` has shape \(5, 3, 2\).*\(6, 3\)",
            {"draws": np.ones((5, 3, 2))},
        ),
        (
            ValueError,
            r"`draws\['x1'\]` has shape \(6,\)",
            {"draws": [make_draws(), np.ones(6)]},
        ),
        (ValueError, "`draws` is empty", {"draws": {}}),
        (ValueError, "`var_names` is .*1 different", {"var_names": ["a", "b"]}),
        (TypeError, "`var_names` is 'ab'", {"var_names": "ab"}),
        (
            ValueError,
            "`draws` has the names",
            {"draws": {"a": make_draws()}, "var_names": ["b"]},
        ),
        (ValueError, "`dims` is for z", {"dims": {"z": ["k"]}}),
        (TypeError, "`tallies_before` is 3", {"tallies_before": 3}),
        (TypeError, "float64; expected integers", {"tallies_before": (0.0, 1.0)}),
        (ValueError, "for 2 chains", {"tallies_before": (np.zeros(2, int), 1)}),
        (ValueError, "target_gradients` falls by 1", {"tallies_before": (3, 1)}),
        (ValueError, "`network_energy` has shape", {"network_energy": np.ones(6)}),
        (
            TypeError,
            "`outside_training_data` is float64",
            {"outside_training_data": np.ones((6, 3))},
        ),
        (TypeError, r"`attrs\['a'\]` is a dict", {"attrs": {"a": {}}}),
        (
            ValueError,
            "`stats.energy` has shape",
            {"stats": make_stats(energy=np.ones(6))},
        ),
        (
            ValueError,
            "has 2 chains; `stats` has 3",
            {"warmup_stats": make_stats(shape=(4, 2))},
        ),
        (
            ValueError,
            "one draw or more",
            {"stats": make_stats(target_log_prob=np.ones((0, 3)))},
        ),
    ],
)
def test_bad_input(error, message, changes):
    arguments = {"draws": make_draws(2), "stats": make_stats()} | changes
    with pytest.raises(error, match=message):
        to_inference_data(**arguments)
