"""`summarize`: each warning provoked alone, and none where all is well."""

import math
import re
import warnings

import numpy as np
import pytest

from tfp_lhnn.posterior import diagnostics
from tfp_lhnn.posterior.diagnostics import SamplingWarning, Summary, summarize, warn
from tfp_lhnn.posterior.inference_data import az
from tfp_lhnn.posterior.remedies import MAX_ENERGY_DRIFT

CHAINS, DRAWS = 4, 300


def good_run():
    """Independent draws of a fast, accepted, well-trained run, as parts to spoil."""
    generator = np.random.default_rng(3)
    shape = (CHAINS, DRAWS)
    x = generator.normal(size=(*shape, 2))
    lp = -0.5 * (x**2).sum(axis=-1)
    fallback = generator.uniform(size=shape) < 0.01
    return {
        "posterior": {"x": x, "y": generator.normal(size=shape)},
        "sample_stats": {
            "lp": lp,
            "energy": 0.5 * generator.chisquare(2, size=shape) - lp,
            "diverging": np.zeros(shape, bool),
            "reached_max_treedepth": np.zeros(shape, bool),
            "fallback": fallback,
            "delayed_acceptance_rate": np.where(fallback, 1.0, 0.9),
            "network_energy": -lp + 0.1 * generator.normal(size=shape),
            "outside_training_data": generator.uniform(size=shape) < 0.02,
        },
        "attrs": {
            "target_gradients": 2_400,
            "target_evaluations": 4_000,
            "fit_gradients": 2_000,
            "fit_is_good": 1,
            "fit_message": "all well",
            "nuts_gradients_per_effective_sample": 20.0,
        },
    }


def to_data(run):
    return az.InferenceData(
        posterior=az.dict_to_dataset(run["posterior"]),
        sample_stats=az.dict_to_dataset(run["sample_stats"]),
        attrs=run["attrs"],
    )


def chain_one_is_frozen(run):
    run["posterior"]["x"][1, 100:180] = run["posterior"]["x"][1, 100]
    run["posterior"]["y"][1, 100:180] = run["posterior"]["y"][1, 100]


def chain_two_moves_seldom(run):
    for name, values in run["posterior"].items():
        # Every fifth draw is new; runs are short, and the mean hardly suffers.
        run["posterior"][name][2] = np.repeat(values[2, ::5], 5, axis=0)


def modes_apart(run):
    run["posterior"]["y"][0] += 1.0


def slow_variable(run):
    steps = np.random.default_rng(1).normal(size=(CHAINS, DRAWS))
    for i in range(1, DRAWS):
        steps[:, i] = 0.9 * steps[:, i - 1] + math.sqrt(0.19) * steps[:, i]
    run["posterior"]["y"] = steps


def slow_energy(run):
    energy = run["sample_stats"]["energy"]
    run["sample_stats"]["energy"] = np.sort(energy, axis=1)


def drifting_error(run):
    drift = np.linspace(0.0, 1.5, DRAWS)
    run["sample_stats"]["network_energy"] = (
        run["sample_stats"]["network_energy"] + drift
    )


def set_statistic(name, value):
    def spoil(run):
        array = run["sample_stats"][name]
        array.ravel()[: int(value * array.size)] = True

    return spoil


def poor_fit(run):
    run["attrs"] |= {
        "fit_is_good": 0,
        "fit_message": (
            "The fit is poor: held-out error 3.2 nats. Try a larger `gradient_budget`."
        ),
    }


def low_acceptance(run):
    rate = run["sample_stats"]["delayed_acceptance_rate"]
    run["sample_stats"]["delayed_acceptance_rate"] = np.where(rate < 1.0, 0.2, 1.0)


def infinite_variable(run):
    run["posterior"]["y"][3, 3] = np.inf


# Each with what the message must say: the number, and the remedy.
SPOILT = [
    (chain_one_is_frozen, r"Chain 1 is stuck: .* for 79 in a row.*gradient_budget"),
    (chain_two_moves_seldom, r"Chain 2 is stuck: it moved in 19\.7%.*gradient_budget"),
    (modes_apart, r"R-hat is 1\.\d+ for y, .* 1 of 3 variables.*more draws.*modes"),
    (slow_variable, r"The bulk ESS is \d+ for y; expected 400 .*times as many draws"),
    (slow_energy, r"BFMI is 0\.0\d.*Reparametrise"),
    (drifting_error, r"drifted by -1 nats.*gradient_budget"),
    (set_statistic("diverging", 0.01), r"12 of 1200 draws diverged.*step size"),
    (set_statistic("reached_max_treedepth", 0.2), r"20\.0% .*Raise `max_tree_depth`"),
    (set_statistic("outside_training_data", 0.3), r"3\d\.\d% .*outside.*dispersed"),
    (set_statistic("fallback", 0.8), r"8\d\.\d% .*true gradients.*gradient_budget"),
    (poor_fit, r"The fit is poor: held-out error 3\.2 nats\. Try.*gradient_budget"),
    (low_acceptance, r"accepted 20\.0% of the network's .*gradient_budget"),
    (infinite_variable, r"No ESS could be computed for y"),
]


@pytest.mark.parametrize(("spoil", "message"), SPOILT)
def test_each_warning_alone(spoil, message):
    run = good_run()
    spoil(run)
    found = summarize(to_data(run)).warnings
    matching = [text for text in found if re.search(message, text)]
    assert len(matching) == 1, found
    # What slows a variable down shows in R-hat and the tails as well.
    related = {
        "slow_variable": ("R-hat", "tail"),
        "chain_one_is_frozen": ("ESS", "R-hat"),
        "modes_apart": ("ESS",),
    }
    allowed = related.get(getattr(spoil, "__name__", ""), ())
    others = [text for text in found if text not in matching]
    assert all(any(word in text for word in allowed) for text in others), others


def test_no_warning_where_all_is_well():
    summary = summarize(to_data(good_run()))
    assert summary.warnings == ()
    assert str(summary).endswith("No warnings.")


def test_numbers_are_those_of_arviz():
    data = to_data(good_run())
    summary = summarize(data)
    expected = az.summary(data, round_to="none")
    assert list(summary.table.index) == list(expected.index) == ["x[0]", "x[1]", "y"]
    for column in ("mean", "sd", "mcse_mean", "ess_bulk", "ess_tail", "r_hat"):
        np.testing.assert_allclose(
            summary.table[column], expected[column], rtol=1e-9, err_msg=column
        )
    assert summary.worst_r_hat == pytest.approx(expected["r_hat"].max())
    assert summary.min_ess_bulk == pytest.approx(expected["ess_bulk"].min())
    assert summary.min_ess_tail == pytest.approx(expected["ess_tail"].min())
    assert summary.bfmi == pytest.approx(az.bfmi(data).min())


def test_statistics_by_hand():
    run = good_run()
    stats = run["sample_stats"]
    summary = summarize(to_data(run))
    assert summary.fallbacks == stats["fallback"].sum() > 0
    assert summary.fallback_share == pytest.approx(stats["fallback"].mean())
    # True transitions are accepted always and say nothing of the network.
    assert summary.delayed_acceptance == pytest.approx(0.9)
    error = -stats["lp"] - stats["network_energy"]
    assert summary.network_energy_error == pytest.approx(error.std())
    assert summary.network_energy_drift == pytest.approx(
        error[:, 200:].mean() - error[:, :100].mean()
    )
    assert summary.ess_per_gradient == pytest.approx(summary.min_ess_bulk / 2_400)
    assert summary.ess_per_target_call == pytest.approx(summary.min_ess_bulk / 4_000)


@pytest.mark.parametrize(
    ("fit", "total", "nuts", "expected"),
    [
        # 400 effective samples for 400 gradients: one each; NUTS takes 21, saves 20.
        (2_000, 2_400, 21.0, 100.0),
        (0, 400, 21.0, 0.0),
        (2_000, 2_400, 1.0, math.inf),
        (2_000, 2_400, 0.5, math.inf),
        (2_000, 2_400, None, math.nan),
        (None, 2_400, 21.0, math.nan),
    ],
)
def test_break_even(fit, total, nuts, expected, monkeypatch):
    monkeypatch.setattr(diagnostics.az, "ess", lambda *args, **kwargs: 400.0)
    run = good_run()
    values = {
        "fit_gradients": fit,
        "target_gradients": total,
        "nuts_gradients_per_effective_sample": nuts,
    }
    run["attrs"] = {name: value for name, value in values.items() if value is not None}
    summary = summarize(to_data(run))
    assert summary.break_even == pytest.approx(expected, nan_ok=True)
    assert ("never" in str(summary)) == (expected == math.inf)


class TestLittleIsKnown:
    def test_posterior_alone(self):
        data = az.InferenceData(posterior=az.dict_to_dataset(good_run()["posterior"]))
        summary = summarize(data)
        assert summary.warnings == ()
        assert summary.num_draws == DRAWS
        for name in ("divergences", "network_energy_error", "ess_per_gradient", "bfmi"):
            assert math.isnan(getattr(summary, name)), name
        assert "nan" not in str(summary)

    def test_plain_kernel_without_network_energy(self):
        run = good_run()
        for name in (
            "network_energy",
            "outside_training_data",
            "delayed_acceptance_rate",
        ):
            del run["sample_stats"][name]
        summary = summarize(to_data(run))
        assert summary.warnings == ()
        assert math.isnan(summary.delayed_acceptance)
        assert math.isnan(summary.network_energy_drift)
        assert summary.divergences == 0

    def test_one_chain(self):
        posterior = {name: x[:1] for name, x in good_run()["posterior"].items()}
        summary = summarize(az.InferenceData(posterior=az.dict_to_dataset(posterior)))
        assert math.isnan(summary.worst_r_hat)
        # 300 draws are fewer than 400 effective ones.
        one_chain, bulk, tail = summary.warnings
        assert "one chain" in one_chain
        assert "bulk ESS" in bulk
        assert "tail ESS" in tail

    @pytest.mark.parametrize("num", [1, 2, 3])
    def test_very_few_draws(self, num):
        run = good_run()
        for group in ("posterior", "sample_stats"):
            run[group] = {name: x[:2, :num] for name, x in run[group].items()}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "More chains")
            data = to_data(run)
        summary = summarize(data)
        assert any("No ESS" in message for message in summary.warnings)
        assert str(summary)

    def test_chains_that_never_move(self):
        run = good_run()
        for name, x in run["posterior"].items():
            run["posterior"][name] = np.repeat(x[:, :1], DRAWS, axis=1)
        run["sample_stats"]["energy"] = np.ones((CHAINS, DRAWS))
        found = summarize(to_data(run)).warnings
        (stuck,) = (message for message in found if "is stuck" in message)
        assert stuck.startswith("Chain 0 is stuck")
        others = ", ".join(str(chain) for chain in range(1, CHAINS))
        assert f"{CHAINS - 1} more chains are stuck ({others})." in stuck

    def test_a_constant_variable_is_no_reason_to_warn(self):
        run = good_run()
        run["posterior"]["corner"] = np.zeros((CHAINS, DRAWS))
        summary = summarize(to_data(run))
        assert summary.warnings == ()
        assert math.isfinite(summary.worst_r_hat)

    def test_no_gradients_at_all(self):
        run = good_run()
        run["attrs"] = {"target_gradients": 0}
        assert summarize(to_data(run)).ess_per_gradient == math.inf


def test_seldom_accepted_alike_in_all_chains_is_not_a_stuck_chain():
    run = good_run()
    generator = np.random.default_rng(0)
    for chain in range(CHAINS):
        # Accepts 30 %: the longest run without a move is some 15 draws.
        last = np.maximum.accumulate(
            np.where(generator.uniform(size=DRAWS) < 0.3, np.arange(DRAWS), 0)
        )
        for x in run["posterior"].values():
            x[chain] = x[chain, last]
    found = summarize(to_data(run)).warnings
    assert not any("stuck" in message for message in found)


def test_a_small_or_a_noisy_drift_is_none():
    run = good_run()
    noise = np.random.default_rng(5).normal(size=(CHAINS, DRAWS))
    lp = run["sample_stats"]["lp"]
    run["sample_stats"]["network_energy"] = -lp + 60.0 * noise
    summary = summarize(to_data(run))
    assert abs(summary.network_energy_drift) > MAX_ENERGY_DRIFT
    assert not any("drift" in text for text in summary.warnings)
    run["sample_stats"]["network_energy"] = -lp + np.linspace(0.0, 0.3, DRAWS)
    summary = summarize(to_data(run))
    assert summary.network_energy_drift == pytest.approx(-0.2, abs=0.01)
    assert not any("drift" in text for text in summary.warnings)


def test_warn_issues_each_once():
    run = good_run()
    poor_fit(run)
    low_acceptance(run)
    summary = summarize(to_data(run))
    with pytest.warns(SamplingWarning) as record:
        warn(summary)
    assert [str(entry.message) for entry in record] == list(summary.warnings)
    assert len(record) == 2
    assert record[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn(summarize(to_data(good_run())))


def test_text_is_a_compact_block():
    run = good_run()
    poor_fit(run)
    lines = str(summarize(to_data(run))).splitlines()
    assert lines[0].split() == ["draws", "4", "chains", "x", "300"]
    assert lines[-1].startswith("WARNING: The fit is poor")
    assert any(re.fullmatch(r"target gradients +2,400", line) for line in lines)
    assert all(len(line) <= 72 for line in lines[:-1])


def test_a_summary_is_frozen():
    summary = summarize(to_data(good_run()))
    assert isinstance(summary, Summary)
    with pytest.raises(AttributeError):
        summary.break_even = 0.0


def test_bad_input():
    with pytest.raises(TypeError, match="`inference_data` is a dict; expected arviz"):
        summarize({})
    with pytest.raises(ValueError, match="no group `posterior`"):
        summarize(az.InferenceData())
