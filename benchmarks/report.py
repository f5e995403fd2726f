"""Makes docs/benchmarks.md and its figures from stored results, nothing by hand.

python -m benchmarks.report                        # the last record of each case
python -m benchmarks.report --results FILE... --output FOLDER
"""

from __future__ import annotations

import argparse
import collections
import os
import pathlib
from collections.abc import Callable

from benchmarks.cells import bias, flags, title, z
from benchmarks.claims import claims
from benchmarks.figures import draw_figures
from benchmarks.markdown import number, table
from benchmarks.metrics import METRICS
from benchmarks.paper_tables import paper_section, peers_section, seeds_section
from benchmarks.run import RESULTS
from benchmarks.samplers import SAMPLERS
from benchmarks.summary import (
    Record,
    cost_for,
    find,
    load,
    predicted_seconds,
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
        paper_section(records),
        peers_section(records),
        _gym(records),
        _cost(records),
        _growth(records),
        _budget(records),
        seeds_section(records),
        _figures(figures),
        _left_out(records),
        _metrics(),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _environment(results: list[Record]) -> str:
    if not results:
        return ""
    rows = {}
    for result in results:
        for name, value in result["environment"].items():
            if value not in rows.setdefault(name, []):
                rows[name].append(value)
    resumed = [sitting for result in results for sitting in result.get("resumed", [])]
    if resumed:
        rows["resumed"] = resumed
    versions = table(
        ["", ""], [[name, "; ".join(map(str, v))] for name, v in rows.items()]
    )
    # Without the suites that a stopped run has not reached.
    names = dict.fromkeys(
        case["suite"] for result in results for case in result["cases"]
    )
    suites = ", ".join(f"`{name}`" for name in names)
    together = dict.fromkeys(
        f"`{case['suite']}`"
        for result in results
        for case in result["cases"]
        if case["jobs"] > 1
    )
    if together:
        suites += (
            f". Of {', '.join(together)} several cases ran at a time: seconds there "
            "are larger than they would be alone"
        )
    if any("smoke" in result["suites"] for result in results):
        suites += " (tiny runs: they show that all works, their numbers mean nothing)"
    return f"## Environment\n\nSuites: {suites}.{_origins(results)}\n\n{versions}"


def _origins(results: list[Record]) -> str:
    """Which of several runs each case is from: the last one that has it."""
    if len(results) < 2:
        return ""
    last = {
        case["key"]: i for i, result in enumerate(results) for case in result["cases"]
    }
    runs = []
    for i, result in enumerate(results):
        counts = collections.Counter(
            case["suite"] for case in result["cases"] if last[case["key"]] == i
        )
        cases = ", ".join(f"{count} of `{name}`" for name, count in counts.items())
        commit = result["environment"]["commit"][:7]
        runs.append(f"commit {commit}: {cases or 'none'}")
    return f" Cases from {len(results)} runs: {'; '.join(runs)}."


def _claims(records: list[Record]) -> str:
    verdicts = {True: "yes", False: "**no**", None: "not measured"}
    rows = [[c.text, c.measured, verdicts[c.holds]] for c in claims(records)]
    return "## What has to be shown\n\n" + table(
        ["statement", "measured", "holds"], rows
    )


Cell = Callable[[Record], str]


def _metric(name: str) -> Cell:
    """The cell of a metric."""
    return lambda record: number(record["metrics"][name])


# Columns: their heads, and the functions that make a cell from a record.
_GYM: dict[str, Cell] = {
    "problem": lambda record: record["problem"],
    "dim": lambda record: str(record["dim"]),
    "sampler": title,
    "gradients": _metric("gradients"),
    "ESS": _metric("ess_min"),
    "ESS / gradient": _metric("ess_per_gradient"),
    "b² (by chance)": bias,
    "worst z": z,
    "R-hat": _metric("r_hat"),
    "seconds": lambda record: f"{record['metrics']['seconds']:.0f}",
    "own warnings": flags,
}
_COST: dict[str, Cell] = {
    "target": lambda record: record["problem"],
    "sampler": title,
    **{name: _metric(name) for name in ("gradients", "densities")},
    "ESS": _metric("ess_min"),
    "seconds": _metric("seconds"),
    "ESS / s": _metric("ess_per_second"),
    "s for 10 000 ESS": lambda record: number(cost_for(record, "seconds", 1e4)),
    "b² (by chance)": bias,
    "worst z": z,
}


def _section(heading: str, records: list[Record], columns: dict[str, Cell]) -> str:
    rows = [[cell(record) for cell in columns.values()] for record in records]
    return f"## {heading}\n\n" + table(list(columns), rows)


def _gym(records: list[Record]) -> str:
    found = find(records, suite="gym")
    return _section("inference_gym", found, _GYM) if found else ""


def _cost(records: list[Record]) -> str:
    found = find(records, suite="cost")
    if not found:
        return ""
    return _section("Expensive targets", found, _COST) + _predicted(records)


def _predicted(records: list[Record]) -> str:
    lines = []
    for sampler in ("ours", "tfp_nuts"):
        x, found = series(records, "milliseconds", suite="cost", sampler=sampler)
        if found and x[-1] < 100.0:
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
            title(record),
            number(record["metrics"]["gradients"]),
            number(record["metrics"]["ess_min"]),
            number(record["metrics"]["seconds_warmup"]),
            number(record["metrics"]["seconds_sampling"]),
            number(record["memory_mb"]),
            number(record["memory_mb"] - record["memory_before_mb"]),
            bias(record),
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
            bias(record),
            z(record),
            flags(record),
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


def _left_out(records: list[Record]) -> str:
    lines = [
        f"- {status}: {record['key']}: {record['reason']}"
        for status in ("skipped", "failed")
        for record in records
        if record["status"] == status
    ]
    return "## Skipped and failed\n\n" + ("\n".join(lines) or "None.")


def _metrics() -> str:
    rows = [[m.name, m.unit, m.direction, m.meaning] for m in METRICS]
    return "## Metrics in the results\n\n" + table(
        ["name", "unit", "better", "meaning"], rows
    )


if __name__ == "__main__":
    main()
