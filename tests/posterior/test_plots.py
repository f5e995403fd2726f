"""Plots: what they show, what they cost, and that pyplot knows nothing of them."""

import io

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import tensorflow as tf
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import tfp_lhnn
from tfp_lhnn.posterior import plots
from tfp_lhnn.posterior.inference_data import az

CHAINS, DRAWS = 3, 40


def make_history(num_steps=500, **fields):
    step = np.arange(0, num_steps + 1, 250)
    falling = np.exp(-step / 300.0)
    values = {
        "step": step,
        "gradient_loss": np.where(step == 0, np.nan, falling),
        "value_loss": falling,
        "held_out_gradient_error": falling,
        "held_out_energy_error": 2.0 * falling,
        "energy_error": 0.25,
        "gradient_error": 0.1,
        "base_energy_error": 3.0,
        "selected": "network",
        "num_steps": num_steps,
        "seconds": 1.0,
    }
    return tfp_lhnn.TrainingHistory(**values | fields)


def make_run(posterior=None, **stats):
    generator = np.random.default_rng(0)
    shape = (CHAINS, DRAWS)
    lp = -generator.chisquare(2, size=shape)
    fallback = np.zeros(shape, bool)
    fallback[1, [3, 17]] = True
    values = {"lp": lp, "network_energy": 0.5 - lp, "fallback": fallback} | stats
    if posterior is None:
        posterior = {"a": generator.normal(size=(*shape, 3)), "b": lp}
    return az.InferenceData(
        posterior=az.dict_to_dataset(posterior),
        sample_stats=az.dict_to_dataset(
            {name: value for name, value in values.items() if value is not None}
        ),
    )


def labels_of(axes):
    return axes.get_legend_handles_labels()[1]


def is_drawn(figure):
    """Draws it, so that what matplotlib finds at the last moment is found here."""
    assert isinstance(figure, Figure)
    figure.canvas.draw()
    return all(axes.get_xlabel() and axes.get_ylabel() for axes in figure.axes)


class TestTraining:
    def test_one_history(self):
        figure = plots.plot_training(make_history())
        energy, gradient = figure.axes
        assert is_drawn(figure)
        assert "nats" in energy.get_ylabel()
        curve = energy.lines[0]
        np.testing.assert_array_equal(curve.get_xdata(), [0, 250, 500])
        np.testing.assert_allclose(
            curve.get_ydata(), 2.0 * np.exp([0, -250 / 300, -500 / 300])
        )
        assert labels_of(energy) == ["held out", "Gaussian base alone", "kept"]
        assert labels_of(gradient) == ["held out", "training loss", "kept"]

    def test_rounds_follow_each_other_and_are_in_the_legend_once(self):
        figure = plots.plot_training([None, make_history(), make_history(250), None])
        energy, _ = figure.axes
        assert is_drawn(figure)
        assert len(labels_of(energy)) == 3
        ends = [
            line.get_xdata()[-1] for line in energy.lines if len(line.get_xdata()) == 1
        ]
        assert ends == [500, 750]

    def test_no_base_and_no_steps(self):
        history = make_history(
            0, base_energy_error=np.nan, gradient_loss=np.array([np.nan])
        )
        figure = plots.plot_training([history, make_history()])
        assert is_drawn(figure)
        assert labels_of(figure.axes[0]) == ["held out", "kept"]

    def test_bad_input(self):
        with pytest.raises(ValueError, match="holds no TrainingHistory"):
            plots.plot_training([None])
        with pytest.raises(TypeError, match="holds a float; expected TrainingHistory"):
            plots.plot_training([1.0])


class TestEnergyConservation:
    @pytest.fixture
    def counted(self):
        """A target that counts the points at which it is asked."""

        class Target:
            densities = gradients = 0

            def __call__(self, q):
                @tf.custom_gradient
                def log_prob(q):
                    self.densities += len(q)

                    def gradient(upstream):
                        self.gradients += len(q)
                        return -upstream[:, tf.newaxis] * q

                    return -0.5 * tf.reduce_sum(q**2, axis=-1), gradient

                return log_prob(q)

        return Target()

    class ExactNetwork:
        """Knows the standard normal's gradient, times a factor."""

        def __init__(self, factor=1.0):
            self.factor = factor

        def potential_gradient(self, q, p):
            del p
            return self.factor * q

    def test_cost_is_as_documented(self, counted):
        start = np.ones((3, 2), np.float32)
        figure = plots.plot_energy_conservation(
            counted, self.ExactNetwork(), start, start, 0.1, 7
        )
        assert counted.gradients == 3 * (7 + 1)
        assert counted.densities == 2 * 3 * (7 + 1)
        assert is_drawn(figure)

    def test_energies(self, counted):
        figure = plots.plot_energy_conservation(
            counted, self.ExactNetwork(2.0), [1.0, 0.0], [0.0, 1.0], 0.1, 20
        )
        (axes,) = figure.axes
        true, wrong = (line.get_ydata() for line in axes.lines[:2])
        assert labels_of(axes) == ["true gradients", "network gradients"]
        assert "nats" in axes.get_ylabel()
        # The oscillator's leapfrog conserves q² (1 - h²/4) + p², so that H - H₀ is
        # (q² - q₀²) h²/8, with |q|² between 0 and 2 here.
        assert np.abs(true).max() < 0.1**2 / 4
        q, p = np.array([1.0, 0.0]), np.array([0.0, 1.0])
        for i in range(21):
            assert wrong[i] == pytest.approx(0.5 * (q @ q + p @ p) - 1.0, abs=1e-5)
            p = p - 0.1 * q
            q = q + 0.1 * p
            p = p - 0.1 * q
        assert np.abs(wrong).max() > 0.1

    def test_a_real_network(self):
        network = tfp_lhnn.LatentHNN(2, (4,), separable=False)
        figure = plots.plot_energy_conservation(
            lambda q: -0.5 * tf.reduce_sum(q**2, axis=-1),
            network,
            np.ones((2, 2)),
            np.ones((2, 2)),
            0.1,
            3,
        )
        assert is_drawn(figure)

    @pytest.mark.parametrize(
        ("error", "message", "changes"),
        [
            (
                ValueError,
                r"`position` has shape \(3,\) .*`momentum` \(2,\)",
                {"position": np.ones(3)},
            ),
            (ValueError, "`num_steps` is 0", {"num_steps": 0}),
            (ValueError, "`step_size` is -1", {"step_size": -1.0}),
        ],
    )
    def test_bad_input(self, counted, error, message, changes):
        arguments = {
            "position": np.ones(2),
            "momentum": np.ones(2),
            "step_size": 0.1,
            "num_steps": 3,
        } | changes
        with pytest.raises(error, match=message):
            plots.plot_energy_conservation(counted, self.ExactNetwork(), **arguments)


class TestNetworkError:
    def test_sampled_and_held_out(self):
        figure = plots.plot_network_error(
            make_run(), held_out=(np.arange(4.0), np.array([0.0, 1.0, 0.0, 1.0]))
        )
        (axes,) = figure.axes
        assert is_drawn(figure)
        sampled, held_out = (points.get_offsets() for points in axes.collections)
        assert sampled.shape == (CHAINS * DRAWS, 2)
        np.testing.assert_allclose(sampled[:, 1], -0.5)  # U - U_θ
        np.testing.assert_allclose(
            sampled[:, 0], -make_run().sample_stats["lp"].values.ravel()
        )
        np.testing.assert_allclose(held_out[:, 0], np.arange(4.0))
        assert labels_of(axes)[1] == "held out (sd 0.5 nats)"

    def test_many_draws_are_thinned(self):
        shape = (2, 10_000)
        run = make_run(
            posterior={"a": np.zeros(shape)},
            lp=np.zeros(shape),
            network_energy=np.zeros(shape),
            fallback=np.zeros(shape, bool),
        )
        figure = plots.plot_network_error(run)
        assert len(figure.axes[0].collections[0].get_offsets()) == 5000

    def test_infinite_energies_do_not_matter(self):
        energy = np.zeros((CHAINS, DRAWS))
        energy[0, 0] = np.inf
        assert is_drawn(plots.plot_network_error(make_run(network_energy=energy)))

    def test_bad_input(self):
        with pytest.raises(ValueError, match="no `network_energy` in `sample_stats`"):
            plots.plot_network_error(make_run(network_energy=None))
        with pytest.raises(ValueError, match="2 potentials and 3 errors"):
            plots.plot_network_error(make_run(), held_out=(np.ones(2), np.ones(3)))


class TestFallbacks:
    def test_where_they_are(self):
        run = make_run()
        figure = plots.plot_fallbacks(run)
        plane, raster = figure.axes
        assert is_drawn(figure)
        assert (plane.get_xlabel(), plane.get_ylabel()) == ("a[0]", "a[1]")
        network, true = (points.get_offsets() for points in plane.collections)
        assert len(network) == CHAINS * DRAWS - 2
        np.testing.assert_allclose(true, run.posterior["a"].values[1, [3, 17], :2])
        (lines,) = raster.collections
        middles = [line.mean(axis=0) for line in lines.get_segments()]
        np.testing.assert_allclose(middles, [[3, 1], [17, 1]])

    @pytest.mark.parametrize(
        ("var_names", "expected"),
        [(["b"], ("draw", "b")), (["b", "a"], ("b", "a[0]")), (None, ("a[0]", "a[1]"))],
    )
    def test_names(self, var_names, expected):
        plane, _ = plots.plot_fallbacks(make_run(), var_names).axes
        assert (plane.get_xlabel(), plane.get_ylabel()) == expected

    @pytest.mark.parametrize("share", [False, True])
    def test_none_and_all(self, share):
        run = make_run(fallback=np.full((CHAINS, DRAWS), share))
        figure = plots.plot_fallbacks(run)
        assert is_drawn(figure)
        assert ("none" in [text.get_text() for text in figure.axes[1].texts]) != share

    def test_names_are_no_formulas(self):
        run = make_run(posterior={"$x^": np.zeros((CHAINS, DRAWS, 2))})
        assert is_drawn(plots.plot_fallbacks(run))

    def test_bad_input(self):
        with pytest.raises(
            ValueError, match="`var_names` has z; the posterior has a, b"
        ):
            plots.plot_fallbacks(make_run(), ["z"])
        with pytest.raises(ValueError, match="no `fallback`"):
            plots.plot_fallbacks(make_run(fallback=None))


def test_axes_given_are_used():
    figure = Figure()
    grid = figure.subplots(2, 2)
    assert plots.plot_training(make_history(), ax=grid[0]) is figure
    assert plots.plot_network_error(make_run(), ax=grid[1, 0]) is figure
    assert all(axes.get_title() for axes in (*grid[0], grid[1, 0]))
    assert not grid[1, 1].get_title()
    assert isinstance(grid[1, 1], Axes)
    with pytest.raises(ValueError, match="expected 2 matplotlib Axes"):
        plots.plot_fallbacks(make_run(), ax=grid[0, 0])
    with pytest.raises(ValueError, match="expected 1 matplotlib Axes"):
        plots.plot_network_error(make_run(), ax="here")


def test_pyplot_is_left_alone(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("pyplot was used")

    for name in ("figure", "subplots", "gca", "gcf", "show", "switch_backend"):
        monkeypatch.setattr(plt, name, refuse)
    backend = matplotlib.get_backend(auto_select=False)
    for figure in (
        plots.plot_training(make_history()),
        plots.plot_network_error(make_run()),
        plots.plot_fallbacks(make_run()),
    ):
        figure.savefig(io.BytesIO(), format="png")
    assert not plt.get_fignums()
    assert matplotlib.get_backend(auto_select=False) == backend
