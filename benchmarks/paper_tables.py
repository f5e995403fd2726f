"""Sections of the report on the paper's posteriors."""

from __future__ import annotations

import math

from benchmarks import summary
from benchmarks.cells import bias, flags, title, z
from benchmarks.markdown import number, table
from benchmarks.summary import Record

__all__ = ["paper_section", "peers_section", "seeds_section"]


def paper_section(records: list[Record]) -> str:
    """A table for each of the paper's posteriors."""
    parts = []
    paper = summary.find(records, suite="paper")
    for problem in dict.fromkeys(record["problem"] for record in paper):
        rows = [_paper_row(r) for r in paper if r["problem"] == problem]
        heading = f"### {problem}"
        if problem in summary.PAPER:
            row = summary.PAPER[problem]
            for name, gradients, value in (
                ("paper: LHNN-NUTS", row.lhnn_gradients, row.lhnn),
                ("paper: NUTS, fixed step", row.nuts_gradients, row.nuts),
            ):
                blank = ["-"] * (len(_PAPER_HEAD) - 6)
                times = number(summary.ratio(value, row.lhnn))
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
    row = summary.PAPER.get(record["problem"])
    times = summary.ratio(metrics["ess_per_gradient"], row.lhnn) if row else math.nan
    kept = summary.ratio(metrics["ess_min"], metrics["gradients_kept"])
    seconds = (f"{metrics[f'seconds_{n}']:.1f}" for n in ("compiling", "warmup"))
    return [
        title(record),
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
        number(summary.ess_per_gradient_at(record, 100_000)),
        bias(record),
        z(record),
        number(metrics["r_hat"]),
        f"{', '.join(seconds)}, {metrics['seconds_sampling']:.1f}",
        flags(record),
    ]


def _tails(records: list[Record], problem: str) -> str:
    found = [r for r in records if r["problem"] == problem and r["tail_truths"]]
    if not found:
        return ""
    names = list(found[0]["tail_truths"])
    rows = [[title(record), *_tail_cells(record), bias(record)] for record in found]
    rows.insert(0, ["truth", *_tail_truths(found[0]), "0"])
    return "\n\n" + table(["tail", *names, "b² (by chance)"], rows)


def _tail_truths(record: Record) -> list[str]:
    return [number(value) for value in record["tail_truths"].values()]


def _tail_cells(record: Record) -> list[str]:
    return [number(record["metrics"][f"tail/{n}"]) for n in record["tail_truths"]]


def seeds_section(records: list[Record]) -> str:
    """Whether another seed would give a different result."""
    seeds, found = summary.series(records, "seed", suite="seeds")
    if not found:
        return ""
    first = found[0]
    rows = [["truth", "-", "-", "-", *_tail_truths(first), "0", "-", "-"]]
    for seed, record in zip(seeds, found, strict=True):
        metrics = record["metrics"]
        rows.append(
            [
                f"{seed:g}",
                f"{record['chains']} x {record['draws']}",
                number(metrics["gradients"]),
                number(metrics["ess_min"]),
                *_tail_cells(record),
                bias(record),
                z(record),
                flags(record),
            ]
        )
    head = ["seed", "chains x draws", "gradients", "ESS", *first["tail_truths"]]
    head += ["b² (by chance)", "worst z", "own warnings"]
    return f"## Other seeds: {first['problem']}, {title(first)}\n\n" + table(head, rows)


def peers_section(records: list[Record]) -> str:
    """Costs of ours and of the best tuned NUTS for 10 000 effective samples."""
    paper = [record for record in records if record["suite"] == "paper"]
    rows = []
    for ours in summary.find(paper, sampler="ours"):
        for what in ("gradients", "calls", "seconds"):
            rival = summary.best_nuts(paper, ours["problem"], what)
            if rival is None:
                continue
            costs = [summary.cost_for(record, what, 1e4) for record in (ours, rival)]
            rows.append(
                [
                    ours["problem"],
                    what,
                    number(costs[0]),
                    f"{number(costs[1])} ({title(rival)})",
                    number(summary.ratio(costs[1], costs[0])),
                    number(summary.break_even(ours, rival, what)),
                    f"{bias(ours)}; {bias(rival)}",
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
