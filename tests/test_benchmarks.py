"""The report's arithmetic on a small result whose numbers can be worked out by hand."""

import json
import math
import pathlib
import re
import statistics
import subprocess
import threading
import time

import numpy as np
import pytest

from benchmarks import (
    claims,
    metrics,
    paper_tables,
    report,
    run,
    stored_run,
    suites,
    summary,
)
from benchmarks.problem import Problem, Run, Seconds, Tally, Truth
from benchmarks.samplers import SAMPLERS
from benchmarks.stored_run import StoredRun

RESULT = pathlib.Path(__file__).parent / "data" / "benchmark_result.json"


@pytest.fixture(scope="module")
def records():
    return summary.load([RESULT])[1]


def one(records, **fields):
    (record,) = summary.find(records, **fields)
    return record


def ours(records):
    return one(records, suite="paper", problem="eight_gaussians", sampler="ours")


def rival(records):
    return one(records, suite="paper", problem="eight_gaussians", sampler="tfp_nuts")


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        # Of ours: 2000 gradients once; a density per effective sample.
        ("gradients", 2000),
        ("calls", 2000 + 10_000),
        ("seconds", 20 + 10),
    ],
)
def test_cost_for_10000_effective_samples(records, what, expected):
    assert summary.cost_for(ours(records), what, 1e4) == pytest.approx(expected)


def test_best_nuts_needs_least_for_10000_effective_samples(records):
    # TFP: 10 000 + 40 per ESS; NumPyro: 20 000 + 30 per ESS.
    best = summary.best_nuts(records, "eight_gaussians", "gradients")
    assert best["sampler"] == "numpyro_nuts"
    assert summary.cost_for(best, "gradients", 1e4) == pytest.approx(320_000)
    assert summary.best_nuts(records, "funnel", "gradients") is None


def test_break_even(records):
    # In seconds: 20 + E / 1000 against 5 + E / 200.
    even = summary.break_even(ours(records), rival(records), "seconds")
    assert even == pytest.approx(15 / (1 / 200 - 1 / 1000))
    assert summary.break_even(ours(records), rival(records), "gradients") == 0.0
    assert math.isinf(summary.break_even(rival(records), ours(records), "gradients"))


def test_ess_per_gradient_at_other_numbers_of_draws(records):
    # 10 000 draws have 1000 / (10 000 + 40 000) from 8000; at 80 000, ten times both.
    value = summary.ess_per_gradient_at(rival(records), 80_000)
    assert value == pytest.approx(10_000 / (10_000 + 400_000))


def test_slope_of_a_power_law():
    slope, factor = summary.fit_slope([1, 10, 100], [3, 30 * 10, 300 * 100])
    assert slope == pytest.approx(2)
    assert factor == pytest.approx(3)
    with pytest.raises(ValueError, match="two different points"):
        summary.fit_slope([2, 2], [1, 1])


def test_predicted_seconds_add_the_time_of_calls(records):
    record = one(records, problem="padded:10", sampler="tfp_nuts")
    # 1000 + 50 per ESS gradients, of two densities' time; 20 s + 1 s per ESS before.
    expected = 20 + 100 + 0.09 * 2 * (1000 + 5000)
    assert summary.predicted_seconds(record, 10, 100, 100) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [(6, 3, 2), (1, 0, math.inf), (0, 0, math.nan), (None, 1, math.nan)],
)
def test_ratio(first, second, expected):
    assert summary.ratio(first, second) == pytest.approx(expected, nan_ok=True)


def test_claims(records):
    found = {claim.text: claim for claim in claims.claims(records)}

    def claim(*words):
        (match,) = (
            c for text, c in found.items() if all(word in text for word in words)
        )
        return match

    # 26 900 ESS of 100 000 draws, 100 000 gradients: ten times 0.0269.
    reproduced = claim("eight Gaussians", "cool-down")
    assert "10 times" in reproduced.measured
    assert reproduced.holds is False
    beaten = claim("eight Gaussians", "at least 100 times")  # 5 / 0.0269
    assert "186 times" in beaten.measured
    assert beaten.holds is True
    # 320 000 / 2000 and 320 000 / 12 000.
    fewer = claim("eight Gaussians", "best tuned NUTS")
    assert "160 times fewer gradients, 26.7 times fewer calls" in fewer.measured
    assert fewer.holds is True
    assert claim("ours has the tail right").holds is True
    assert claim("tfp_nuts misses all three").holds is True
    assert claim("numpyro_nuts misses all three").holds is None
    # 20 s + 0.01 s per ESS against 20 s + 1 s per ESS.
    padded = claim("padded to 10 ms")
    assert f"{10_020 / 120:.3g} times" in padded.measured
    assert padded.holds is True
    gym = claim("gym")
    assert gym.measured.startswith("1 of 3 right, 1 not and flagged")
    assert "gym:silent" in gym.measured
    assert gym.holds is False
    assert "slope 0.50" in claim("dimension").measured
    assert claim("dimension").holds is True
    # Up to 256 only: seconds 1, 4, 16 for chains 1, 16, 256.
    assert "slope 0.50" in claim("chains up to 256").measured
    assert claim("flat in draws").holds is None


def test_page_names_what_was_left_out_and_every_bias(records, tmp_path):
    report.main(["--results", str(RESULT), "--output", str(tmp_path)])
    page = (tmp_path / "benchmarks.md").read_text()
    assert "skipped: paper/eight_gaussians/blackjax_nuts: not installed" in page
    assert "failed: paper/funnel/ours: took more than 600 s" in page
    assert "paper: LHNN-NUTS" in page
    assert "0.002 (0.001)" in page
    assert list((tmp_path / "figures").glob("bench_growth_dim_*.png"))
    assert (tmp_path / "figures" / "bench_paper.png").exists()
    assert not re.search(r"\bnan\b", page)


def test_other_seeds_have_a_table_with_their_tails(records):
    record = one(records, problem="rosenbrock:10", sampler="ours")
    others = [
        record | {"suite": "seeds", "vary": "seed", "value": seed, "draws": 2000}
        for seed in (2, 1)
    ]
    lines = paper_tables.seeds_section(others).splitlines()
    assert lines[0].startswith("## Other seeds: rosenbrock:10")
    # Head, rule, the truth, and the seeds in their order.
    assert [line.split(" | ")[0] for line in lines[4:]] == ["| truth", "| 1", "| 2"]
    truth, measured = (
        [float(cell) for cell in line.split(" | ")[4:7]] for line in lines[4:6]
    )
    assert truth == pytest.approx(list(record["tail_truths"].values()), rel=0.01)
    tails = [record["metrics"][f"tail/{name}"] for name in record["tail_truths"]]
    assert measured == pytest.approx(tails, rel=0.01)
    assert paper_tables.seeds_section(records) == ""


def test_a_run_is_one_file_and_cases_that_measure_time_run_alone_and_first(
    monkeypatch, tmp_path
):
    at_once, most = 0, {}
    lock = threading.Lock()

    def fake(case):
        nonlocal at_once
        with lock:
            at_once += 1
            most[case.suite] = max(most.get(case.suite, 0), at_once)
        time.sleep(0.01)
        with lock:
            at_once -= 1
        return {"key": case.key, "suite": case.suite, "status": "failed", "reason": ""}

    monkeypatch.setattr(run, "run_apart", fake)
    names = ["paper", "cost", "growth", "budget"]
    run.main(["--suite", *names, "--jobs", "2", "--output", str(tmp_path)])
    assert most == {"paper": 2, "cost": 1, "growth": 1, "budget": 2}
    (result,), _ = summary.load(summary.stored(tmp_path))
    assert result["suites"] == names
    ran = [case["suite"] for case in result["cases"]]
    assert list(dict.fromkeys(ran)) == names
    assert list(most) == ["cost", "growth", "paper", "budget"]
    assert all(
        case["jobs"] == (1 if case["suite"] in ("cost", "growth") else 2)
        for case in result["cases"]
    )


def not_run(case):
    named = {"key": case.key, "suite": case.suite}
    return named | {"status": "failed", "reason": "not run"}


def stopped_run(monkeypatch, folder, **changes):
    """A run of suite seeds that lacks its last case."""
    monkeypatch.setattr(run, "run_apart", not_run)
    stored = StoredRun.begin(["seeds"], folder)
    run.run_cases(stored, stored.missing[:-1])
    content = json.loads(stored.path.read_text())
    content["environment"] |= changes
    stored.path.write_text(json.dumps(content))
    return stored.path


def test_a_resumed_run_does_what_was_missing(monkeypatch, tmp_path):
    path = stopped_run(monkeypatch, tmp_path)
    before = json.loads(path.read_text())
    ran = []
    monkeypatch.setattr(stored_run, "_require_sources_of", lambda *_: None)
    monkeypatch.setattr(
        run, "run_apart", lambda case: ran.append(case.key) or not_run(case)
    )
    run.main(["--resume", str(path)])
    cases = suites.suite("seeds")
    assert ran == [cases[-1].key]
    after = json.loads(path.read_text())
    assert after["cases"][:-1] == before["cases"]
    assert [record["key"] for record in after["cases"]] == [x.key for x in cases]
    assert after["environment"] == before["environment"]
    assert len(after["resumed"]) == 1
    assert after["resumed"][0] in report.page([after], [], [])


def test_two_machines_versions_or_sources_are_not_one_run(
    monkeypatch, tmp_path, capsys
):
    path = stopped_run(monkeypatch, tmp_path / "a", keras="2.0")
    with pytest.raises(SystemExit):
        run.main(["--resume", str(path)])
    assert "keras (2.0 then" in capsys.readouterr().err
    path = stopped_run(monkeypatch, tmp_path / "b", commit="no such commit")
    with pytest.raises(SystemExit):
        run.main(["--resume", str(path)])
    assert "no such commit" in capsys.readouterr().err


def test_resuming_compares_the_sources_with_the_commit(monkeypatch, tmp_path):
    def git(*words):
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert not done.returncode, done.stderr
        return done.stdout.strip()

    for name in ("benchmarks", "tfp_lhnn"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.py").write_text("1")
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    commit = git("rev-parse", "HEAD")
    monkeypatch.setattr(stored_run, "_ROOT", tmp_path)
    (tmp_path / "benchmarks" / "report.py").write_text("2")
    stored_run._require_sources_of(commit, tmp_path)
    (tmp_path / "tfp_lhnn" / "report.py").write_text("2")
    with pytest.raises(ValueError, match="sources are not those of its commit"):
        stored_run._require_sources_of(commit, tmp_path)


def test_the_last_record_of_each_case_counts(tmp_path):
    """Runs that were stopped, or of a part of a suite, add up."""

    def write(name, **numbers):
        cases = [{"key": key, "number": n} for key, n in numbers.items()]
        (tmp_path / f"{name}.json").write_text(json.dumps({"cases": cases}))

    write("smoke-20260401-000000", d=1)
    assert [p.stem for p in summary.stored(tmp_path)] == ["smoke-20260401-000000"]
    write("paper-20260301-000000", a=1, b=1)
    write("gym-20260302-000000", c=1)
    write("paper-20260303-000000", b=2)
    results, records = summary.load(summary.stored(tmp_path))
    assert len(results) == 3
    assert {r["key"]: r["number"] for r in records} == {"a": 1, "b": 2, "c": 1}


def normal_problem(draws):
    """Standard normal quantities, and a run of these draws."""
    dim = draws.shape[-1]
    zeros, ones = np.zeros(dim), np.ones(dim)
    truth = Truth(
        zeros,
        zeros,
        ones,
        zeros,
        np.sqrt(2.0) * ones,
        {"P(x0 > 0)": (0.5, lambda x: float(np.mean(x[:, 0] > 0)))},
    )
    problem = Problem(
        "normal", dim, None, None, lambda n, s: None, lambda x: x, truth, "analytic"
    )
    costs = Tally(100, 10), Tally(400, 40)
    return problem, Run(draws, *costs, Seconds(1.0, 2.0, 4.0), {})


def test_metrics_of_independent_draws():
    draws = np.random.default_rng(1).standard_normal((4, 2000, 3))
    found = metrics.measure(*normal_problem(draws))
    assert found["gradients"] == 500
    assert found["calls"] == 550
    assert found["seconds"] == 7.0
    assert found["ess_min"] == pytest.approx(8000, rel=0.15)
    ess = found["ess_min"]
    assert found["gradients_for_10000_ess"] == pytest.approx(100 + 400 * 1e4 / ess)
    assert found["calls_for_10000_ess"] == pytest.approx(110 + 440 * 1e4 / ess)
    assert found["b2"] < found["b2_noise_95"]
    # Expectation of the largest of six squares of normals, over 8000.
    assert found["b2_noise"] == pytest.approx(2.9 / 8000, rel=0.3)
    assert found["num_z"] == 6
    assert found["z_limit"] == pytest.approx(
        statistics.NormalDist().inv_cdf(1 - 1e-3 / 12)
    )
    assert found["z_pass"] == 1.0
    assert found["tail/P(x0 > 0)"] == pytest.approx(0.5, abs=0.03)
    names = {metric.name for metric in metrics.METRICS}
    assert names == {name for name in found if not name.startswith("tail/")}


@pytest.mark.parametrize(("shift", "scale"), [(0.3, 1.0), (0.0, 0.8)])
def test_metrics_see_a_bias(shift, scale):
    draws = shift + scale * np.random.default_rng(1).standard_normal((4, 2000, 3))
    found = metrics.measure(*normal_problem(draws))
    assert found["z_pass"] == 0.0
    assert found["b2"] > 10 * found["b2_noise_95"]


def test_chains_that_never_move_have_one_effective_sample():
    found = metrics.measure(*normal_problem(np.ones((4, 100, 1))))
    assert found["ess_min"] == 1.0
    assert found["ess_min_squares"] == 1.0


def test_cases_have_unique_keys_and_known_samplers():
    names = [name for name in suites.SUITES if name not in ("gym", "smoke")]
    cases = [case for name in names for case in suites.suite(name)]
    assert len({case.key for case in cases}) == len(cases)
    assert {case.sampler for case in cases} == set(SAMPLERS)


def test_missing_peer_is_skipped_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.case.missing_packages", lambda name: ["blackjax"])
    case = suites.Case("paper", "eight_gaussians", "blackjax_nuts", 4, 10, {})
    stored = StoredRun.begin(["paper"], tmp_path)
    run.run_cases(stored, [case])
    results, records = summary.load([stored.path])
    page = report.page(results, records, [])
    assert f"- skipped: {case.key}: not installed: blackjax\n" in page


def test_the_page_says_which_run_its_cases_are_of(tmp_path):
    again = json.loads(RESULT.read_text())
    again["environment"]["commit"] = "0123456789"
    again["cases"] = [c for c in again["cases"] if c["suite"] == "cost"][:1]
    path = tmp_path / "again.json"
    path.write_text(json.dumps(again))
    results, records = summary.load([RESULT, path])
    page = report.page(results, records, [])
    assert "commit unknown: 8 of `paper`, 3 of `gym`, 1 of `cost`, 7 of" in page
    assert "; commit 0123456: 1 of `cost`." in page
    assert "runs:" not in report.page(results[:1], records, [])


def test_slope_of_fits_that_their_budget_ended_is_no_evidence(records):
    cut = [record | {"settings": {"gradient_budget": 100}} for record in records[-9:]]
    (claim,) = (c for c in claims.claims(cut) if "dimension" in c.text)
    assert claim.holds is None
    assert "ended by its budget" in claim.measured
