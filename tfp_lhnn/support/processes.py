"""Which process this is, and whether another one still runs."""

from __future__ import annotations

import os
import pathlib
import re
import socket

__all__ = ["host_name", "is_running", "start_time"]


def host_name() -> str:
    """The name of this host, in characters that any file name may have."""
    return re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:40] or "unknown"


def start_time(pid: int) -> str:
    """When a process of this host began; empty where the system does not tell.

    The text is for comparison only. It differs between two processes that had the same
    id one after the other.

    Args:
        pid: the process's id.
    """
    fields = _status(pid)
    # The 22nd field of proc(5), in clock ticks; the first two are cut off.
    return fields[19] if len(fields) > 19 else ""


def is_running(pid: int, started: str = "") -> bool:
    """Whether a process of this host runs; true if there is no way to know.

    Args:
        pid: the process's id.
        started: its `start_time`; empty if unknown. A process of that id that began at
            another time is another process.
    """
    if os.name != "posix":
        return True  # elsewhere `os.kill` would end the process
    if pid <= 0:
        return False  # these stand for groups of processes
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # it is somebody else's
    fields = _status(pid)
    if fields and fields[0] in "ZX":
        return False  # it has ended, and its parent has not asked yet
    return not (started and fields) or start_time(pid) == started


def _status(pid: int) -> list[str]:
    """What Linux says of a process after its name; empty elsewhere."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    # A name may have spaces and brackets, but nothing after it has.
    return text.rpartition(")")[2].split()
