"""Makes docs/benchmarks.md and its figures of stored results; nothing is typed by hand.

python -m benchmarks.report                        # the last record of each case
python -m benchmarks.report --results FILE... --output FOLDER
"""

from __future__ import annotations

import argparse
import math
import os
import pathlib

from benchmarks.claims import claims
from benchmarks.figures import draw_figures
from benchmarks.markdown import number, table
from benchmarks.metrics import METRICS
from benchmarks.run import RESULTS
from benchmarks.samplers import SAMPLERS
from benchmarks.summary import (
    PAPER,
    Record,
    best_nuts,
    break_even,
    cost_for,
    ess_per_gradient_at,
    find,
    load,
    predicted_seconds,
    ratio,
    series,
    stored,
)

__all__ = ["main", "page"]

_DOCS = pathlib.Path(__file__).parent.parent / "docs"


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--results", nargs="+", type=pathlib.Path, default=[RESULTS])
    parser.add_argument("--output", type=pathlib.Path, default=_DOCS)
    args = parser.parse_args(arguments)
    paths: list[pathlib.Path] = []
    for path in args.results:
        paths += stored(path) if path.is_dir() else [path]
    if not paths:
        parser.error("there are no results; run `python -m benchmarks.run` first.")
    results, records = load(paths)
    figures = args.output / "figures"
    drawn = draw_figures(records, figures)
    target = args.output / "benchmarks.md"
    links = [
        (os.path.relpath(figures / name, args.output), text) for name, text in drawn
    ]
    target.write_text(page(results, records, links))
    print(f"{target}, {len(drawn)} figures")


def page(
    results: list[Record], records: list[Record], figures: list[tuple[str, str]]
) -> str:
    """The whole page, in Markdown."""
    sections = [
        "# Benchmarks\n\nMade by `python -m benchmarks.report` from stored results. A "
        "gradient is one value and gradient of one chain's point; calls are gradients "
        "and densities; warm-up, pilot and training are included unless a column says "
        "`kept`. ESS is the smallest bulk ESS over coordinates. b² stands beside what "
        "chance alone gives. z-tests take errors as normal: for skewed or heavy-tailed "
        "quantities they fail more often than their nominal rate says.",
        _environment(results),
        _claims(records),
        _paper(records),
        _peers(records),
        _gym(records),
        _cost(records),
        _growth(records),
        _budget(records),
        _figures(figures),
        _left_out(results, records),
        _metrics(),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _title(record: Record) -> str:
    return SAMPLERS[record["sampler"]].title


def _bias(record: Record) -> str:
    metrics = record["metrics"]
    return f"{number(metrics['b2'])} ({number(metrics['b2_noise'])})"


def _z(record: Record) -> str:
    metrics = record["metrics"]
    worst = max(metrics["z_mean"], metrics["z_sd"])
    verdict = "pass" if metrics["z_pass"] else "**fail**"
    return f"{worst:.1f} of {metrics['z_limit']:.1f}, {verdict}"


def _flags(record: Record) -> str:
    return str(len(record["warnings"]) or "none")


def _environment(results: list[Record]) -> str:
    if not results:
        return ""
    rows = {}
    for result in results:
        for name, value in result["environment"].items():
            if value not in rows.setdefault(name, []):
                rows[name].append(value)
    versions = table(
        ["", ""], [[name, "; ".join(map(str, v))] for name, v in rows.items()]
    )
    names = dict.fromkeys(result["suite"] for result in results)
    suites = ", ".join(f"`{name}`" for name in names)
    together = dict.fromkeys(
        f"`{result['suite']}`"
        for result in results
        if int(result["environment"].get("jobs", 1)) > 1
    )
    if together:
        suites += (
            f". Of {', '.join(together)} several cases ran at a time: seconds there "
            "are larger than alone, for all samplers alike"
        )
    if any(result["suite"] == "smoke" for result in results):
        suites += " (tiny runs: they show that all works, their numbers mean nothing)"
    return f"## Environment\n\nSuites: {suites}.\n\n{versions}"


def _claims(records: list[Record]) -> str:
    verdicts = {True: "yes", False: "**no**", None: "not measured"}
    rows = [[c.text, c.measured, verdicts[c.holds]] for c in claims(records)]
    return "## What has to be shown\n\n" + table(
        ["statement", "measured", "holds"], rows
    )


def _paper(records: list[Record]) -> str:
    parts = []
    paper = find(records, suite="paper")
    for problem in dict.fromkeys(record["problem"] for record in paper):
        rows = [_paper_row(r) for r in paper if r["problem"] == problem]
        heading = f"### {problem}"
        if problem in PAPER:
            row = PAPER[problem]
            for name, gradients, value in (
                ("paper: LHNN-NUTS", row.lhnn_gradients, row.lhnn),
                ("paper: NUTS, fixed step", row.nuts_gradients, row.nuts),
            ):
                blank = ["-"] * (len(_PAPER_HEAD) - 6)
                times = number(ratio(value, row.lhnn))
                rows.append(
                    [name, "-", number(gradients), "-", number(value), times, *blank]
                )
        parts.append(f"{heading}\n\n{table(_PAPER_HEAD, rows)}{_tails(paper, problem)}")
    if not parts:
        return ""
    return "## The paper's posteriors\n\n" + "\n\n".join(parts)


_PAPER_HEAD = [
    "sampler",
    "chains x draws",
    "gradients",
    "kept",
    "ESS / gradient",
    "times the paper's LHNN-NUTS",
    "ESS / kept gradient",
    "densities",
    "ESS x",
    "ESS x²",
    "ESS / gradient at 100 000 draws",
    "b² (by chance)",
    "worst z",
    "R-hat",
    "seconds: compile, warm-up, draws",
    "own warnings",
]


def _paper_row(record: Record) -> list[str]:
    metrics = record["metrics"]
    row = PAPER.get(record["problem"])
    times = ratio(metrics["ess_per_gradient"], row.lhnn) if row else math.nan
    kept = ratio(metrics["ess_min"], metrics["gradients_kept"])
    seconds = (f"{metrics[f'seconds_{n}']:.1f}" for n in ("compiling", "warmup"))
    return [
        _title(record),
        f"{record['chains']} x {record['num_kept'] // record['chains']}",
        number(metrics["gradients"]),
        number(metrics["gradients_kept"]),
        number(metrics["ess_per_gradient"]),
        number(times),
        number(kept),
        number(metrics["densities"]),
        f"{number(metrics['ess_min'])} (mean {number(metrics['ess_mean'])})",
        f"{number(metrics['ess_min_squares'])} "
        f"(mean {number(metrics['ess_mean_squares'])})",
        number(ess_per_gradient_at(record, 100_000)),
        _bias(record),
        _z(record),
        number(metrics["r_hat"]),
        f"{', '.join(seconds)}, {metrics['seconds_sampling']:.1f}",
        _flags(record),
    ]


def _tails(records: list[Record], problem: str) -> str:
    found = [r for r in records if r["problem"] == problem and r["tail_truths"]]
    if not found:
        return ""
    names = list(found[0]["tail_truths"])
    rows = [["truth", *(number(found[0]["tail_truths"][n]) for n in names), "0"]]
    for record in found:
        values = [number(record["metrics"][f"tail/{name}"]) for name in names]
        rows.append([_title(record), *values, _bias(record)])
    return "\n\n" + table(["tail", *names, "b² (by chance)"], rows)


def _peers(records: list[Record]) -> str:
    paper = [record for record in records if record["suite"] == "paper"]
    rows = []
    for ours in find(paper, sampler="ours"):
        for what in ("gradients", "calls", "seconds"):
            rival = best_nuts(paper, ours["problem"], what)
            if rival is None:
                continue
            costs = [cost_for(record, what, 1e4) for record in (ours, rival)]
            rows.append(
                [
                    ours["problem"],
                    what,
                    number(costs[0]),
                    f"{number(costs[1])} ({_title(rival)})",
                    number(ratio(costs[1], costs[0])),
                    number(break_even(ours, rival, what)),
                    f"{_bias(ours)}; {_bias(rival)}",
                ]
            )
    if not rows:
        return ""
    head = [
        "problem",
        "cost",
        "delayed acceptance",
        "best tuned NUTS",
        "times fewer",
        "break-even, ESS",
        "b² (by chance), ours; its",
    ]
    return "## For 10 000 effective samples, warm-up and training included\n\n" + table(
        head, rows
    )


def _gym(records: list[Record]) -> str:
    found = find(records, suite="gym")
    if not found:
        return ""
    rows = [
        [
            record["problem"],
            str(record["dim"]),
            _title(record),
            number(record["metrics"]["gradients"]),
            number(record["metrics"]["ess_min"]),
            number(record["metrics"]["ess_per_gradient"]),
            _bias(record),
            _z(record),
            number(record["metrics"]["r_hat"]),
            f"{record['metrics']['seconds']:.0f}",
            _flags(record),
        ]
        for record in found
    ]
    head = ["problem", "dim", "sampler", "gradients", "ESS", "ESS / gradient"]
    head += ["b² (by chance)", "worst z", "R-hat", "seconds", "own warnings"]
    return "## inference_gym\n\n" + table(head, rows)


def _cost(records: list[Record]) -> str:
    found = find(records, suite="cost")
    if not found:
        return ""
    rows = [
        [
            record["problem"],
            _title(record),
            number(record["metrics"]["gradients"]),
            number(record["metrics"]["densities"]),
            number(record["metrics"]["ess_min"]),
            number(record["metrics"]["seconds"]),
            number(record["metrics"]["ess_per_second"]),
            number(cost_for(record, "seconds", 1e4)),
            _bias(record),
            _z(record),
        ]
        for record in found
    ]
    head = ["target", "sampler", "gradients", "densities", "ESS", "seconds"]
    head += ["ESS / s", "s for 10 000 ESS", "b² (by chance)", "worst z"]
    return "## Expensive targets\n\n" + table(head, rows) + _predicted(records)


def _predicted(records: list[Record]) -> str:
    lines = []
    for sampler in ("ours", "tfp_nuts"):
        x, found = series(records, "milliseconds", suite="cost", sampler=sampler)
        if found:
            seconds = predicted_seconds(found[-1], x[-1], 100.0, 1e4)
            lines.append(f"{SAMPLERS[sampler].title}: {number(seconds)} s")
    if not lines:
        return ""
    return (
        "\n\nAt 100 ms a density, predicted from counts and not run, 10 000 effective "
        f"samples take: {'; '.join(lines)}."
    )


def _growth(records: list[Record]) -> str:
    found = find(records, suite="growth")
    rows = [
        [
            record["problem"],
            f"{record['vary']} {record['value']:g}",
            _title(record),
            number(record["metrics"]["gradients"]),
            number(record["metrics"]["ess_min"]),
            number(record["metrics"]["seconds_warmup"]),
            number(record["metrics"]["seconds_sampling"]),
            number(record["memory_mb"]),
            number(record["memory_mb"] - record["memory_before_mb"]),
            _bias(record),
        ]
        for record in found
    ]
    if not rows:
        return ""
    head = ["problem", "varied", "sampler", "gradients", "ESS", "s of warm-up"]
    head += ["s of draws", "peak MB", "of that by the run", "b² (by chance)"]
    return "## Growth\n\n" + table(head, rows)


def _budget(records: list[Record]) -> str:
    rows = [
        [
            record["problem"],
            number(record["value"]),
            number(record["metrics"]["gradients"]),
            number(record["metrics"]["ess_min"]),
            number(record["metrics"]["ess_per_gradient"]),
            _bias(record),
            _z(record),
            _flags(record),
        ]
        for record in find(records, suite="budget")
    ]
    if not rows:
        return ""
    head = ["problem", "budget", "gradients used", "ESS", "ESS / gradient"]
    head += ["b² (by chance)", "worst z", "own warnings"]
    return "## Budgets\n\n" + table(head, rows)


def _figures(figures: list[tuple[str, str]]) -> str:
    if not figures:
        return ""
    return "## Figures\n\n" + "\n\n".join(
        f"![{caption}]({path})" for path, caption in figures
    )


def _left_out(results: list[Record], records: list[Record]) -> str:
    skipped = [line for result in results for line in result["skipped"]]
    failed = [
        f"{record['key']}: {record['reason']}"
        for record in records
        if record["status"] == "failed"
    ]
    lines = [f"- skipped: {line}" for line in skipped]
    lines += [f"- failed: {line}" for line in failed]
    return "## Skipped and failed\n\n" + ("\n".join(lines) or "None.")


def _metrics() -> str:
    rows = [[m.name, m.unit, m.direction, m.meaning] for m in METRICS]
    return "## Metrics in the results\n\n" + table(
        ["name", "unit", "better", "meaning"], rows
    )


if __name__ == "__main__":
    main()
