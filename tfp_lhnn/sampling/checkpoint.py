"""A run on disk: finished pieces as plain arrays, safe from a kill at any moment."""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np

from tfp_lhnn.sampling.manifest import (
    MANIFEST,
    ProbeValues,
    Value,
    check_manifest,
    checked_identity,
    write_manifest,
)
from tfp_lhnn.sampling.run_lock import LOCK_NAMES, RunLock
from tfp_lhnn.sampling.stamped_file import read_stamped, write_stamped
from tfp_lhnn.support.atomic_files import TemporaryName, flush_directory
from tfp_lhnn.support.npz_files import Spec
from tfp_lhnn.support.processes import host_name, is_running

__all__ = ["Checkpoint", "ProbeValues"]

_ITEM_NAME = re.compile(r"(?!chunk_\d)[a-z][a-z0-9_]*")
# Files that are written here. Other files in the directory are never deleted.
_TARGET = re.compile(r"manifest\.json|[a-z][a-z0-9_]*\.npz")
_PROBE = ".probe.tmp"

_CHUNK_REMEDY = (
    "Put the right file back, or delete it and all chunks of higher numbers to go on "
    "from there."
)
_ITEM_REMEDY = "Put the right file back, or delete the directory to begin the run anew."


class Checkpoint:
    """A directory that keeps what a run has finished.

    It holds `manifest.json`, which says what run this is, named items (`fit.npz`), and
    numbered chunks (`chunk_000012.npz`). Every file is written under a temporary name
    and is on the disk before it gets its own. So whenever the process or the machine
    stops, the directory holds either the old state or the new one. Nothing that is read
    is executed. Every file holds its run's identifier and its own name. A file in the
    place of another one is refused.

    Only one object at a time can have a directory open. It holds a lock until `close`,
    the end of a `with` block, or until it is deleted.

    Attributes:
      directory: The path.
      identity: What defines the run.
    """

    def __init__(
        self, directory: str | os.PathLike[str], identity: Mapping[str, Value]
    ) -> None:
        """Opens a checkpoint, or makes one in a directory that is missing or empty.

        Args:
          directory: The path; missing parents are made.
          identity: What tells the run from any other (model, network, seed, settings),
            by name. The version of this package is added. Values of the density are
            given as `ProbeValues`, which have a tolerance.

        Raises:
          TypeError: If an entry of `identity` is not a str, an int, a float or
            `ProbeValues`.
          ValueError: If the directory belongs to another run, holds files of another
            origin, or its manifest is damaged.
          BlockingIOError: If another process, or another object, has it open.
          OSError: If the directory can't be made or written to, or is a file.
        """
        self.directory = pathlib.Path(directory)
        self.identity = checked_identity(identity)
        self._num_chunks: int | None = None  # counted when first asked for
        # Checked before the lock is taken: the lock makes a file, and a directory that
        # is no checkpoint must not be changed.
        self._check_origin(self._list_or_make())
        self._lock = self._locked()
        try:
            self._run = self._opened()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets others open the directory; afterwards, this object can only read."""
        self._lock.release()

    def _locked(self) -> RunLock:
        try:
            return RunLock(self.directory)
        except BlockingIOError:
            raise
        except OSError as error:
            raise self._explained(error) from error

    def _opened(self) -> str:
        """Checks or makes the manifest, with the lock held; returns its identifier."""
        names = self._list_or_make()
        self._check_origin(names)
        if MANIFEST in names:
            run = check_manifest(self.directory, self.identity)
            self._check_writable()
        else:
            self._check_writable()
            run = self._new_run()
        for name in names:
            if _is_abandoned(name):
                (self.directory / name).unlink(missing_ok=True)
        return run

    def _new_run(self) -> str:
        try:
            return write_manifest(self.directory, self.identity)
        except OSError as error:
            safe = "nothing had been stored before"
            raise _unwritten(self.directory / MANIFEST, error, safe) from error

    def _check_origin(self, names: list[str]) -> None:
        foreign = [name for name in names if not _is_ours(name)]
        if foreign and MANIFEST not in names:
            raise ValueError(
                f"{self.directory} is no checkpoint: it has no {MANIFEST}, but "
                f"other files, such as {', '.join(foreign[:3])}. Give a new or an "
                "empty directory; nothing here was changed."
            )

    def _list_or_make(self) -> list[str]:
        try:
            if not self.directory.exists():
                self.directory.mkdir(parents=True, exist_ok=True)
                flush_directory(self.directory.parent)
            return sorted(os.listdir(self.directory))
        except OSError as error:
            raise self._explained(error) from error

    def _check_writable(self) -> None:
        """Checks that files can be made, before the first chunk is computed."""
        probe = self.directory / _PROBE
        try:
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise self._explained(error) from error

    def _explained(self, error: OSError) -> OSError:
        """The same error with the directory and a remedy in it."""
        return OSError(
            error.errno,
            f"cannot use this as a checkpoint directory ({error.strerror or error}); "
            "give one that can be made, read and written",
            str(self.directory),
        )

    def save(self, name: str, arrays: Mapping[str, Any]) -> None:
        """Stores a named item, which replaces any item of the same name.

        Args:
          name: Lower-case letters, digits and underscores, but no chunk's name like
            `chunk_0`.
          arrays: Arrays, numbers or strings by name; no Python objects.

        Raises:
          ValueError: If the name is not allowed, or there are Python objects.
          OSError: If writing fails, as on a full disk; the old item is kept.
        """
        self._write(self._item_path(name), arrays)

    def load(self, name: str) -> dict[str, np.ndarray] | None:
        """Reads a named item.

        Args:
          name: As given to `save`.

        Returns:
          The arrays by name; None if nothing has been saved by that name.

        Raises:
          ValueError: If the file is damaged.
        """
        path = self._item_path(name)
        return read_stamped(path, self._run, _ITEM_REMEDY) if path.exists() else None

    @property
    def num_chunks(self) -> int:
        """The number of chunks without a gap, from number 0 on.

        The first call reads all of them, so that damage is found before a run
        continues.

        Raises:
          ValueError: If one of them is damaged; the message names the file.
        """
        if self._num_chunks is None:
            count = self._num_files()
            for index in range(count):
                self._read_chunk(index)
            self._num_chunks = count
        return self._num_chunks

    def append(self, index: int, arrays: Mapping[str, Any]) -> None:
        """Stores the next chunk; it is safe once this returns.

        Args:
          index: Its number, which must be `num_chunks`, to catch a caller that is out
            of step.
          arrays: Arrays, numbers or strings by name; no Python objects.

        Raises:
          ValueError: If it is not the next chunk, or there are Python objects.
          OSError: If writing fails, as on a full disk; all earlier chunks are kept, and
            the message says how to continue.
        """
        if index != self.num_chunks:
            raise ValueError(
                f"`index` is {index}; expected {self.num_chunks}, the next chunk of "
                f"{self.directory}."
            )
        self._write(self._chunk_path(index), arrays)
        self._num_chunks = index + 1

    def read(
        self, index: int, expected: Mapping[str, Spec] | None = None
    ) -> dict[str, np.ndarray]:
        """Reads one chunk.

        Args:
          index: Its number.
          expected: Shape and dtype of each of its arrays, by name; None in a shape
            stands for any size. They are compared before an array is read.

        Returns:
          The arrays by name.

        Raises:
          IndexError: If there is no such chunk.
          ValueError: If the file is damaged, or has other arrays than expected.
        """
        if not 0 <= index < self.num_chunks:
            raise IndexError(
                f"`index` is {index}; {self.directory} has {self.num_chunks} chunks."
            )
        return self._read_chunk(index, expected)

    def chunks(self) -> Iterator[dict[str, np.ndarray]]:
        """Reads the chunks in order, one at a time."""
        for index in range(self.num_chunks):
            yield self.read(index)

    def _num_files(self) -> int:
        count = 0
        while self._chunk_path(count).exists():
            count += 1
        return count

    def _chunk_path(self, index: int) -> pathlib.Path:
        return self.directory / f"chunk_{index:06d}.npz"

    def _item_path(self, name: str) -> pathlib.Path:
        return self.directory / f"{_checked_name(name)}.npz"

    def _read_chunk(
        self, index: int, expected: Mapping[str, Spec] | None = None
    ) -> dict[str, np.ndarray]:
        path = self._chunk_path(index)
        return read_stamped(path, self._run, _CHUNK_REMEDY, expected)

    def _write(self, path: pathlib.Path, arrays: Mapping[str, Any]) -> None:
        """Writes a file; explains what is left if that fails."""
        if not self._lock.is_held:
            raise ValueError(
                f"{self.directory} is not open for writing: the checkpoint was closed, "
                "or its lock file removed. Open it again to go on."
            )
        try:
            write_stamped(path, self._run, arrays)
        except OSError as error:
            safe = f"what was stored before is safe, with {self._num_files()} chunks"
            raise _unwritten(path, error, safe) from error


def _unwritten(path: pathlib.Path, error: OSError, safe: str) -> OSError:
    """The same error with the file, what is safe, and a remedy in it."""
    return OSError(
        error.errno,
        f"cannot write this file of a checkpoint: {error.strerror or error}; {safe}; "
        "once there is room, go on by the same call",
        str(path),
    )


def _temporary(name: str) -> TemporaryName | None:
    """The parsed name of a temporary file of a checkpoint; `None` for other files."""
    temporary = TemporaryName.parse(name)
    is_ours = temporary is not None and _TARGET.fullmatch(temporary.target)
    return temporary if is_ours else None


def _is_ours(name: str) -> bool:
    """Whether a file may lie in the directory of a checkpoint without a manifest."""
    return name in (*LOCK_NAMES, _PROBE) or _temporary(name) is not None


def _is_abandoned(name: str) -> bool:
    """Whether the writer of a temporary file is surely gone."""
    temporary = _temporary(name)
    if temporary is None or temporary.host != host_name():
        return False
    # This process has written nothing yet, so a file with its id is of an earlier
    # process that had the same id.
    return temporary.pid == os.getpid() or not is_running(temporary.pid)


def _checked_name(name: str) -> str:
    if not _ITEM_NAME.fullmatch(name):
        raise ValueError(
            f"`name` is {name!r}; expected lower-case letters, digits and underscores, "
            "and not that of a chunk."
        )
    return name
