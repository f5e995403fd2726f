"""Runs suites, case by case, and stores what they measured.

    python -m benchmarks.run --suite smoke           # under five minutes
    python -m benchmarks.run --suite all --jobs 2    # some hours on two cores
    python -m benchmarks.run --suite paper --only rosenbrock
    python -m benchmarks.run --suite growth --list   # what would run

With several jobs, cases of suites whose point is time still run alone, before all
others. Of the others seconds grow; counts stay, but for chaotic fits, since threads add
in another order.

One JSON file for each run, written anew after every case, so that a stopped run can be
reported. `python -m benchmarks.report` makes tables and figures of them.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import json
import math
import os
import pathlib
from typing import Any

from benchmarks.case import run_apart, run_here
from benchmarks.environment import environment
from benchmarks.suites import SUITES, Case, suite

__all__ = ["main"]

RESULTS = pathlib.Path(__file__).parent / "results"
_ALL = [name for name in SUITES if name != "smoke"]
_TIMED = ("cost", "growth")


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--suite", nargs="+", choices=[*SUITES, "all"], default=["all"])
    parser.add_argument(
        "--only",
        nargs="+",
        default=[""],
        help="run cases whose key contains this, or one of these",
    )
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS)
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        help=f"cases at a time, of all suites but {' and '.join(_TIMED)}",
    )
    parser.add_argument("--list", action="store_true", help="only show the cases")
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.case:
        case = Case(**json.loads(args.case[0]))
        _write(pathlib.Path(args.case[1]), run_here(case))
        return
    names = _ALL if "all" in args.suite else args.suite
    cases = [
        case
        for name in names
        for case in suite(name)
        if any(part in case.key for part in args.only)
    ]
    if args.list:
        for case in cases:
            print(case.key, f"{case.chains} x {case.draws}", case.options)
    elif cases:
        run_cases(names, cases, args.output, args.jobs)


def run_cases(
    names: list[str], cases: list[Case], folder: pathlib.Path, jobs: int = 1
) -> pathlib.Path:
    """Runs the cases of these suites and returns the file with what they gave."""
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    path = folder / f"{names[0] if len(names) == 1 else 'suites'}-{stamp}.json"
    result: dict[str, Any] = {
        "suites": names,
        "environment": environment(),
        "skipped": [],
        "cases": [],
    }
    alone = [case for case in cases if case.suite in _TIMED]
    others = [case for case in cases if case.suite not in _TIMED]
    for group, at_once in ((alone, 1), (others, jobs)):
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            # In the order of the group, whichever ends first.
            for case, record in zip(group, pool.map(run_apart, group), strict=True):
                result["cases"].append(record | {"jobs": at_once})
                if record["status"] == "skipped":
                    result["skipped"].append(f"{case.key}: {record['reason']}")
                _write(path, result)
                done = f"{len(result['cases'])}/{len(cases)}"
                print(f"[{done}] {case.key}: {_line(record)}", flush=True)
    print(f"results: {path}")
    return path


def _line(record: dict[str, Any]) -> str:
    if record["status"] != "ok":
        return f"{record['status']}: {record['reason']}"
    metrics = record["metrics"]
    return (
        f"{record['seconds_wall']:.0f} s, ESS {metrics['ess_min']:.0f}, "
        f"{metrics['gradients']:.0f} gradients, "
        f"{metrics['ess_per_gradient']:.3g} per gradient, b² {metrics['b2']:.2g} "
        f"({metrics['b2_noise']:.2g} by chance)"
    )


def _write(path: pathlib.Path, content: dict[str, Any]) -> None:
    """All or nothing: a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(_finite(content), indent=1, allow_nan=False))
    os.replace(temporary, path)


def _finite(content: Any) -> Any:
    """The same with `None` for what JSON has no number for."""
    if isinstance(content, dict):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_finite(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        return None
    return content


if __name__ == "__main__":
    main()
