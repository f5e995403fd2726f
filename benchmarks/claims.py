"""The claims that the benchmarks test, with their numbers and verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from benchmarks.gym_problems import gym_problem_names
from benchmarks.metrics import FALSE_ALARM_RATE
from benchmarks.summary import (
    PAPER,
    Record,
    best_nuts,
    break_even,
    cost_for,
    ess_per_gradient_at,
    find,
    fit_slope,
    ratio,
    series,
)

__all__ = ["Claim", "claims"]

_PAPER_DRAWS = 100_000
_MIN_ESS = 100
# A fit that used more of its budget than this ended for lack of it.
_MOST_OF_BUDGET = 0.7
_TAIL_TOLERANCES = {"sd(x9)": 0.05, "P(x9 > 2)": 0.15, "99.9% quantile of x10": 0.20}


class Claim(NamedTuple):
    """A statement and its verdict.

    Attributes:
        text: the statement.
        measured: numbers.
        holds: `None` if a case that it needs is missing or failed.
    """

    text: str
    measured: str
    holds: bool | None


def claims(records: list[Record]) -> list[Claim]:
    """All claims, from the records that there are."""
    return [
        *(_reproduced(records, problem) for problem in PAPER if "rosen" not in problem),
        *(_beaten(records, problem) for problem in PAPER),
        _tail(records, "ours", True),
        _tail(records, "tfp_nuts", False),
        _tail(records, "numpyro_nuts", False),
        *(_against_nuts(records, problem) for problem in PAPER),
        *_seconds(records),
        _gym(records),
        *_slopes(records),
    ]


def _one(records: list[Record], **fields: object) -> Record | None:
    found = find(records, **fields)
    return found[0] if found else None


def _reproduced(records: list[Record], problem: str) -> Claim:
    text = (
        f"{PAPER[problem].title}: cool-down mode within a factor of 3 of the paper's "
        "LHNN-NUTS in ESS per gradient, at 100 000 draws"
    )
    record = _one(records, suite="paper", problem=problem, sampler="published")
    if record is None:
        return Claim(text, "not measured", None)
    value = ess_per_gradient_at(record, _PAPER_DRAWS)
    times = ratio(value, PAPER[problem].lhnn)
    return Claim(
        text,
        f"{value:.3g}, {times:.2g} times the paper's; {_bias(record)}",
        1 / 3 <= times <= 3,
    )


def _beaten(records: list[Record], problem: str) -> Claim:
    goal = 10 if "rosen" in problem else 100
    text = (
        f"{PAPER[problem].title}: delayed acceptance at least {goal} times the paper's "
        "LHNN-NUTS in ESS per gradient at 100 000 draws, training included, with "
        "b² < 0.01"
    )
    record = _one(records, suite="paper", problem=problem, sampler="ours")
    if record is None:
        return Claim(text, "not measured", None)
    metrics = record["metrics"]
    times = ratio(metrics["ess_per_gradient"], PAPER[problem].lhnn)
    is_full = record["num_kept"] >= _PAPER_DRAWS
    return Claim(
        text,
        f"{metrics['ess_per_gradient']:.3g}, {times:.3g} times, with "
        f"{record['num_kept']} draws; {_bias(record)}",
        times >= goal and metrics["b2"] < 0.01 if is_full else None,
    )


def _tail(records: list[Record], sampler: str, is_right: bool) -> Claim:
    text = f"10-D Rosenbrock: {sampler} " + (
        "has the tail right" if is_right else "misses all three tail values"
    )
    record = _one(records, suite="paper", problem="rosenbrock:10", sampler=sampler)
    if record is None:
        return Claim(text, "not measured", None)
    hits, words = [], []
    for name, tolerance in _TAIL_TOLERANCES.items():
        value, truth = record["metrics"][f"tail/{name}"], record["tail_truths"][name]
        hits.append(abs(value / truth - 1.0) <= tolerance)
        words.append(f"{name} {value:.3g} (true {truth:.3g} ± {tolerance:.0%})")
    return Claim(text, ", ".join(words), all(hits) if is_right else not any(hits))


def _against_nuts(records: list[Record], problem: str) -> Claim:
    text = (
        f"{PAPER[problem].title}: for 10 000 effective samples 20 times fewer "
        "gradients and 5 times fewer target calls than the best tuned NUTS; "
        "break-even at 500 effective samples or fewer"
    )
    paper = [record for record in records if record["suite"] == "paper"]
    ours = _one(paper, problem=problem, sampler="ours")
    rivals = [best_nuts(paper, problem, what) for what in ("gradients", "calls")]
    if ours is None or None in rivals:
        return Claim(text, "not measured", None)
    by_gradients, by_calls = rivals
    assert by_gradients is not None
    assert by_calls is not None
    gradients = ratio(
        cost_for(by_gradients, "gradients", 1e4), cost_for(ours, "gradients", 1e4)
    )
    calls = ratio(cost_for(by_calls, "calls", 1e4), cost_for(ours, "calls", 1e4))
    even = break_even(ours, by_gradients, "gradients")
    return Claim(
        text,
        f"{gradients:.3g} times fewer gradients, {calls:.3g} times fewer calls, "
        f"break-even {_number(even)} (against {by_gradients['sampler']}); "
        f"{_bias(ours)}, its {_bias(by_gradients)}",
        gradients >= 20 and calls >= 5 and even <= 500,
    )


def _seconds(records: list[Record]) -> list[Claim]:
    wanted = (
        ("logistic:100000", "numpyro_nuts", 5, "logistic regression, 10⁵ rows"),
        ("logistic:1000000", "numpyro_nuts", 10, "logistic regression, 10⁶ rows"),
        ("padded:10", "tfp_nuts", 20, "target padded to 10 ms"),
    )
    return [_faster(records, *arguments) for arguments in wanted]


def _faster(
    records: list[Record], problem: str, peer: str, goal: float, title: str
) -> Claim:
    text = (
        f"{title}: {goal} times the effective samples per second of {peer}, "
        "everything included, at 10 000 of them"
    )
    ours = _one(records, suite="cost", problem=problem, sampler="ours")
    theirs = _one(records, suite="cost", problem=problem, sampler=peer)
    if ours is None or theirs is None:
        return Claim(text, "not measured", None)
    seconds = [cost_for(record, "seconds", 1e4) for record in (ours, theirs)]
    times = ratio(seconds[1], seconds[0])
    as_run = ratio(
        ours["metrics"]["ess_per_second"], theirs["metrics"]["ess_per_second"]
    )
    return Claim(
        text,
        f"{times:.3g} times ({seconds[0]:.0f} s against {seconds[1]:.0f} s; as run, "
        f"{as_run:.3g} times); {_bias(ours)}, its {_bias(theirs)}",
        times >= goal,
    )


def _gym(records: list[Record]) -> Claim:
    text = (
        "gym: every target right within its z-tests (nominal false alarms of all of a "
        f"run's tests together: {FALSE_ALARM_RATE:g}), or flagged by our diagnostics"
    )
    found = find(records, suite="gym", sampler="ours")
    if not found:
        return Claim(text, "not measured", None)
    # Chains with few effective samples pass any z-test.
    can_tell = [r for r in found if r["metrics"]["ess_min"] >= _MIN_ESS]
    right = [r for r in can_tell if r["metrics"]["z_pass"]]
    others = [r for r in found if r not in right]
    silent = [r["problem"] for r in others if not r["warnings"]]
    ran = {r["problem"].removeprefix("gym:") for r in found}
    missing = [name for name in gym_problem_names() if name not in ran]
    return Claim(
        text,
        f"{len(right)} of {len(found)} right, {len(others) - len(silent)} not and "
        f"flagged, not and not flagged: {', '.join(silent) or 'none'} (below "
        f"{_MIN_ESS} effective samples no run counts as right); not run: "
        f"{', '.join(missing) or 'none'}",
        False if silent else None if missing else True,
    )


def _slopes(records: list[Record]) -> list[Claim]:
    gaussian = [r for r in records if r["problem"].startswith("correlated_gaussian")]
    small = [r for r in records if r["vary"] != "chains" or r["value"] <= 256]
    return [
        _slope(
            gaussian,
            "dim",
            lambda r: r["metrics"]["gradients"],
            "gradients needed grow no faster than linearly in dimension (Gaussian)",
            1.0,
        ),
        _slope(
            records,
            "draws",
            lambda r: r["metrics"]["seconds_sampling"] / r["draws"],
            "time per draw is flat in draws, or falls",
            0.05,
        ),
        _slope(
            small,
            "chains",
            lambda r: r["metrics"]["seconds_sampling"] / r["draws"],
            "time per draw of all chains is sub-linear in chains up to 256",
            0.999,
        ),
    ]


def _slope(
    records: list[Record],
    vary: str,
    value: Callable[[Record], float],
    text: str,
    limit: float,
) -> Claim:
    x, found = series(records, vary, suite="growth", sampler="ours")
    if len(set(x)) < 2:
        return Claim(text, "not measured", None)
    slope = fit_slope(x, [value(record) for record in found])[0]
    worst = max(record["metrics"]["b2"] for record in found)
    cut = [v for v, record in zip(x, found, strict=True) if _is_cut(record)]
    measured = (
        f"slope {slope:.2f} over {vary} {x[0]:g} to {x[-1]:g}; largest b² {worst:.2g}"
    )
    if vary == "dim" and cut:
        # There, the budget is only a lower bound on the gradients needed.
        where = ", ".join(f"{v:g}" for v in cut)
        return Claim(text, f"{measured}; ended by its budget at {where}", None)
    return Claim(text, measured, slope <= limit)


def _is_cut(record: Record) -> bool:
    budget = record["settings"].get("gradient_budget", math.inf)
    return record["metrics"]["gradients"] > _MOST_OF_BUDGET * budget


def _bias(record: Record) -> str:
    metrics = record["metrics"]
    return f"b² {metrics['b2']:.2g} ({metrics['b2_noise']:.2g} by chance)"


def _number(value: float) -> str:
    return "never" if math.isinf(value) else f"{value:.3g}"
