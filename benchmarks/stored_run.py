"""The file of one run, which is rewritten after every case and can be resumed."""

from __future__ import annotations

import datetime
import json
import math
import os
import pathlib
import subprocess
from typing import Any

from benchmarks.environment import environment
from benchmarks.suites import Case, suite

__all__ = ["StoredRun", "write"]

_ROOT = pathlib.Path(__file__).parent.parent
# What a result depends on; how it is stored and reported may change within a run.
_SOURCES = (
    "tfp_lhnn",
    "benchmarks/samplers",
    *(
        f"benchmarks/{name}.py"
        for name in (
            "case",
            "gym_problems",
            "jax_densities",
            "logistic",
            "metrics",
            "padding",
            "problem",
            "problems",
            "suites",
        )
    ),
)


class StoredRun:
    """The records of a run so far, in a file that always holds all of them."""

    def __init__(self, path: pathlib.Path, result: dict[str, Any]) -> None:
        self.path = path
        self._result = result
        self._all = [case for name in result["suites"] for case in suite(name)]
        self._rank = {case.key: i for i, case in enumerate(self._all)}

    @classmethod
    def begin(cls, suites: list[str], folder: pathlib.Path) -> StoredRun:
        """Begins a new run, named by its suites and the time."""
        stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
        name = suites[0] if len(suites) == 1 else "suites"
        result: dict[str, Any] = {
            "suites": suites,
            "environment": environment(),
            "cases": [],
        }
        return cls(folder / f"{name}-{stamp}.json", result)

    @classmethod
    def resume(cls, path: pathlib.Path) -> StoredRun:
        """Resumes a run that was stopped.

        Raises:
            ValueError: if machine, versions or sources have changed since the run
                began, so that the file would mix two runs.
        """
        result = json.loads(path.read_text())
        then, now = result["environment"], environment()
        changed = [
            f"{name} ({then.get(name)} then, {now.get(name)} now)"
            for name in sorted(then.keys() | now.keys())
            if name not in ("date", "commit") and then.get(name) != now.get(name)
        ]
        if changed:
            raise ValueError(f"{path} cannot be resumed: changed {', '.join(changed)}.")
        _require_sources_of(then["commit"], path)
        sittings = result.setdefault("resumed", [])
        sittings.append(f"{now['date']}, commit {now['commit']}")
        return cls(path, result)

    @property
    def missing(self) -> list[Case]:
        """Cases of the run's suites that have no record yet."""
        keys = {record["key"] for record in self._result["cases"]}
        return [case for case in self._all if case.key not in keys]

    def add(self, record: dict[str, Any]) -> None:
        """Stores a case's record; records are in the order of the suites."""
        records = self._result["cases"]
        records.append(record)
        records.sort(key=lambda other: self._rank[other["key"]])
        write(self.path, self._result)


def write(path: pathlib.Path, content: dict[str, Any]) -> None:
    """Writes atomically: a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(_finite(content), indent=1, allow_nan=False))
    os.replace(temporary, path)


def _require_sources_of(commit: str, path: pathlib.Path) -> None:
    found = subprocess.run(
        ["git", "diff", "--stat", commit, "--", *_SOURCES],
        cwd=_ROOT,
        capture_output=True,
        text=True,
    )
    if found.returncode:
        raise ValueError(
            f"{path} cannot be resumed: git cannot compare the sources with those of "
            f"its commit, {commit}: {found.stderr.strip()}"
        )
    if found.stdout:
        raise ValueError(
            f"{path} cannot be resumed: the sources are not those of its commit, "
            f"{commit}:\n{found.stdout}"
        )


def _finite(content: Any) -> Any:
    """The content with `None` for numbers that JSON does not have."""
    if isinstance(content, dict):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_finite(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        return None
    return content
