"""The text of a table's cells, from a record."""

from __future__ import annotations

from benchmarks.markdown import number
from benchmarks.samplers import SAMPLERS
from benchmarks.summary import Record

__all__ = ["bias", "flags", "title", "z"]


def title(record: Record) -> str:
    """Of its sampler."""
    return SAMPLERS[record["sampler"]].title


def bias(record: Record) -> str:
    """b², and its size by chance alone."""
    metrics = record["metrics"]
    return f"{number(metrics['b2'])} ({number(metrics['b2_noise'])})"


def z(record: Record) -> str:
    """The worst z-test, and the verdict on all of them."""
    metrics = record["metrics"]
    worst = max(metrics["z_mean"], metrics["z_sd"])
    verdict = "pass" if metrics["z_pass"] else "**fail**"
    return f"{worst:.1f} of {metrics['z_limit']:.1f}, {verdict}"


def flags(record: Record) -> str:
    """The number of warnings that the sampler itself gave."""
    return str(len(record["warnings"]) or "none")
