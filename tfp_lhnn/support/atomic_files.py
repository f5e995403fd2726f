"""How all files are written: atomically."""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import os
import pathlib
import re
from collections.abc import Callable
from typing import BinaryIO, NamedTuple

from tfp_lhnn.support.processes import host_name

__all__ = ["TemporaryName", "flush_directory", "write_atomically"]

# Tells apart the files that threads of one process write.
_numbers = itertools.count()

# The most letters of the target's name in a temporary name, which otherwise may be too
# long for a file system.
_MOST_LETTERS = 40

_TEMPORARY = re.compile(
    r"\.(?P<target>.+)\.(?P<host>[A-Za-z0-9-]+)\.(?P<pid>\d{1,9})\.\d+\.tmp"
)


class TemporaryName(NamedTuple):
    """What the name of a temporary file says.

    Attributes:
        target: the name of the file that it was to become, perhaps cut short.
        host: where its writer runs.
        pid: its writer.
    """

    target: str
    host: str
    pid: int

    @classmethod
    def parse(cls, name: str) -> TemporaryName | None:
        """Reads the name of a file; `None` if it is not one of our temporary files."""
        match = _TEMPORARY.fullmatch(name)
        if match is None:
            return None
        return cls(match["target"], match["host"], int(match["pid"]))


def write_atomically(
    path: str | os.PathLike[str],
    write: Callable[[BinaryIO], object],
    *,
    durable: bool = False,
) -> None:
    """Writes a file that appears under its name only when it is complete.

    Until then it lies beside its target, under a name that no other thread, process or
    host uses. If anything goes wrong, the target is unchanged.

    Args:
        path: the file.
        write: writes the contents to the open file that it is given.
        durable: whether the contents and the name are on the disk, safe from a power
            cut, when this returns.

    Raises:
        OSError: if the file cannot be written.
    """
    path = pathlib.Path(path)
    file = _open_beside(path)
    temporary = pathlib.Path(file.name)
    try:
        with file:
            write(file)
            if durable:
                # Otherwise the name may reach the disk before the contents do.
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
        if durable:
            # Otherwise a power cut may undo the renaming.
            flush_directory(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def flush_directory(path: str | os.PathLike[str]) -> None:
    """Waits until the names in a directory are on the disk.

    Args:
        path: the directory.

    Raises:
        OSError: if that fails.
    """
    if os.name != "posix":
        return  # Windows has no such call for directories
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems can't do it for directories.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _open_beside(path: pathlib.Path) -> io.BufferedWriter:
    """Opens a new file in the directory of `path`: renames work on one disk only."""
    while True:
        name = f"{path.name[:_MOST_LETTERS]}.{host_name()}.{os.getpid()}"
        temporary = path.with_name(f".{name}.{next(_numbers)}.tmp")
        # A dead process of the same id may have left one.
        with contextlib.suppress(FileExistsError):
            return open(temporary, "xb")
