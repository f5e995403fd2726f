"""Runs suites, case by case, and stores what they measured.

    python -m benchmarks.run --suite smoke           # under five minutes
    python -m benchmarks.run --suite all --jobs 2    # some hours on two cores
    python -m benchmarks.run --suite paper --only rosenbrock
    python -m benchmarks.run --suite growth --list   # what would run
    python -m benchmarks.run --resume FILE --jobs 2  # what a stopped run lacks

With several jobs, cases of suites that measure time still run alone, before all others.
The others take more seconds. Their counts stay the same, except for chaotic fits, since
threads add in another order.

Each run has one JSON file, which is rewritten after every case. So a stopped run can be
reported, and resumed if neither machine nor sources have changed. `python -m
benchmarks.report` makes tables and figures from these files.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import pathlib
from typing import Any

from benchmarks.case import run_apart, run_here
from benchmarks.stored_run import StoredRun, write
from benchmarks.suites import SUITES, Case

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
    parser.add_argument(
        "--resume",
        type=pathlib.Path,
        metavar="FILE",
        help="go on with a run that was stopped: its suites' cases that it lacks",
    )
    parser.add_argument("--list", action="store_true", help="only show the cases")
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.case:
        case = Case(**json.loads(args.case[0]))
        write(pathlib.Path(args.case[1]), run_here(case))
        return
    if args.resume:
        try:
            stored = StoredRun.resume(args.resume)
        except (OSError, ValueError) as error:
            parser.error(str(error))
    else:
        names = _ALL if "all" in args.suite else args.suite
        stored = StoredRun.begin(names, args.output)
    cases = [
        case for case in stored.missing if any(part in case.key for part in args.only)
    ]
    if args.list:
        for case in cases:
            print(case.key, f"{case.chains} x {case.draws}", case.options)
    elif cases:
        run_cases(stored, cases, args.jobs)
        print(f"results: {stored.path}")


def run_cases(stored: StoredRun, cases: list[Case], jobs: int = 1) -> None:
    """Runs all cases, those that measure time first, and stores their records."""
    alone = [case for case in cases if case.suite in _TIMED]
    others = [case for case in cases if case.suite not in _TIMED]
    count = 0
    for group, at_once in ((alone, 1), (others, jobs)):
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            running = [pool.submit(run_apart, case) for case in group]
            for future in concurrent.futures.as_completed(running):
                record = future.result()
                stored.add(record | {"jobs": at_once})
                count += 1
                line = f"[{count}/{len(cases)}] {record['key']}: {_line(record)}"
                print(line, flush=True)


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


if __name__ == "__main__":
    main()
