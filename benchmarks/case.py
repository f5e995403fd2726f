"""Runs one case, in this process or in a separate one."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from typing import Any

from benchmarks.problem import Job
from benchmarks.samplers import SAMPLERS, missing_packages
from benchmarks.suites import Case

__all__ = ["run_apart", "run_here"]


def run_apart(case: Case) -> dict[str, Any]:
    """The record of a case, run in a separate process.

    A crash or a timeout gives a record too: `status` is `"ok"`, `"skipped"` or
    `"failed"`, with a `reason`.
    """
    record: dict[str, Any] = {"key": case.key, **dataclasses.asdict(case)}
    missing = missing_packages(case.sampler)
    if missing:
        reason = f"not installed: {', '.join(missing)}"
        return record | {"status": "skipped", "reason": reason}
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "record.json"
        argument = json.dumps(dataclasses.asdict(case))
        with subprocess.Popen(
            [sys.executable, "-m", "benchmarks.run", "--case", argument, str(path)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                errors = process.communicate(timeout=case.limit)[1]
                failure = _last_line(errors)
            except subprocess.TimeoutExpired:
                # Kills the process and its children, which are in its process group.
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                failure = f"took more than {case.limit:.0f} s"
        record["seconds_wall"] = time.perf_counter() - began
        if path.exists():
            return record | json.loads(path.read_text())
    return record | {"status": "failed", "reason": failure}


def run_here(case: Case) -> dict[str, Any]:
    """What `run_apart` adds to a case's own fields."""
    try:
        return _measured(case)
    except NotImplementedError as error:  # a density without a JAX version
        return {"status": "skipped", "reason": str(error)}
    except Exception as error:
        traceback.print_exc()
        return {"status": "failed", "reason": f"{type(error).__name__}: {error}"}


def _measured(case: Case) -> dict[str, Any]:
    # TensorFlow is slow to import, and the parent needs none of it.
    from benchmarks.metrics import measure
    from benchmarks.problems import make_problem

    problem = make_problem(case.problem)
    sampler = SAMPLERS[case.sampler].load()
    before = _megabytes()
    job = Job(problem, case.chains, case.draws, case.seed)
    run = sampler(job, **case.options)
    peak = _megabytes()
    return {
        "status": "ok",
        "name": problem.name,
        "dim": problem.dim,
        "source": problem.source,
        "metrics": measure(problem, run),
        "tail_truths": {name: x[0] for name, x in problem.truth.tails.items()},
        "settings": run.settings,
        "warnings": list(run.warnings),
        "num_kept": int(run.draws.shape[0] * run.draws.shape[1]),
        "memory_mb": peak,
        "memory_before_mb": before,
    }


def _megabytes() -> float:
    """The peak memory of this process so far."""
    scale = 1024.0 if sys.platform != "darwin" else 1024.0**2
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale


def _last_line(errors: str) -> str:
    lines = [line for line in errors.splitlines() if line.strip()]
    return lines[-1] if lines else "ended without a word"
