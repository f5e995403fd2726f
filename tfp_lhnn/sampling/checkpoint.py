"""A run on disk: finished pieces as plain arrays, safe from a kill at any moment."""

from __future__ import annotations

import errno
import json
import numbers
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tfp_lhnn._version import __version__
from tfp_lhnn.support.npz_files import read_npz, write_npz

__all__ = ["Checkpoint"]

# Raised when the layout of the directory or of a file changes its meaning.
_FORMAT_VERSION = 1
_MANIFEST = "manifest.json"
_ITEM_NAME = re.compile(r"(?!chunk_\d)[a-z][a-z0-9_]*")
# What an interrupted write leaves behind: nothing else is ever deleted.
_TEMPORARY = re.compile(
    r"\.{1,2}(manifest\.json|probe|[a-z][a-z0-9_]*\.npz)\.\d+(\.tmp\.\d+)?\.tmp"
)
# Before the name of each array, so that no name can clash with a field of ours.
_PREFIX = "array_"

Value = str | int | float


class Checkpoint:
    """A directory that keeps what a run has finished.

    It holds `manifest.json`, which says what run this is, named items (`fit.npz`), and
    numbered chunks (`chunk_000012.npz`). Every file is complete under another name,
    and on the disk, before it gets its own: whenever the process or the machine stops,
    the directory holds either the old state or the new one. Nothing read is executed.

    One process at a time may write.

    Attributes:
      directory: The path.
      identity: What the run is made of.
    """

    def __init__(
        self, directory: str | os.PathLike[str], identity: Mapping[str, Value]
    ) -> None:
        """Opens a checkpoint, or makes one in a directory that is missing or empty.

        Args:
          directory: The path; missing parents are made.
          identity: What makes a run this run and no other (model, network, seed,
            settings), by name; the version of this package is added.

        Raises:
          TypeError: If an entry of `identity` is not a str, an int or a float.
          ValueError: If the directory belongs to another run, holds files of another
            origin, or its manifest is damaged.
          OSError: If the directory can't be made or written to, or is a file.
        """
        self.directory = pathlib.Path(directory)
        self.identity = _checked_identity(identity)
        self._num_chunks: int | None = None  # counted when first asked for
        names = self._list_or_make()
        if _MANIFEST in names:
            self._check_manifest()
        else:
            foreign = [name for name in names if not _TEMPORARY.fullmatch(name)]
            if foreign:
                raise ValueError(
                    f"{self.directory} is no checkpoint: it has no {_MANIFEST}, but "
                    f"other files, such as {', '.join(foreign[:3])}. Give a new or an "
                    "empty directory; nothing here was changed."
                )
        self._check_writable()
        if _MANIFEST not in names:
            self._write(_MANIFEST, self._write_manifest)
        for name in names:
            if _TEMPORARY.fullmatch(name):
                (self.directory / name).unlink(missing_ok=True)

    def _list_or_make(self) -> list[str]:
        try:
            if not self.directory.exists():
                self.directory.mkdir(parents=True)
                _fsync(self.directory.parent)
            return sorted(os.listdir(self.directory))
        except OSError as error:
            raise self._explained(error) from error

    def _check_writable(self) -> None:
        """Finds out now, not when the first chunk is done."""
        probe = self.directory / f".probe.{os.getpid()}.tmp"
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

    def _write_manifest(self, path: pathlib.Path) -> None:
        manifest = {
            "package": "tfp_lhnn",
            "format_version": _FORMAT_VERSION,
            "package_version": __version__,
            "identity": self.identity,
        }
        path.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")

    def _check_manifest(self) -> None:
        path = self.directory / _MANIFEST
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
            if manifest["package"] != "tfp_lhnn":
                raise ValueError(f"its package is {manifest['package']!r}")
            found = {
                "checkpoint format": manifest["format_version"],
                "tfp_lhnn version": manifest["package_version"],
                **manifest["identity"],
            }
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is not a checkpoint's manifest: {error}") from (
                error
            )
        expected = {
            "checkpoint format": _FORMAT_VERSION,
            "tfp_lhnn version": __version__,
            **self.identity,
        }
        differences = [
            f"{name} is {found.get(name, 'not given')} there and "
            f"{expected.get(name, 'not given')} here"
            for name in {**expected, **found}
            # `repr`, for which NaN equals itself.
            if repr(found.get(name)) != repr(expected.get(name))
        ]
        if differences:
            raise ValueError(
                f"the checkpoint in {self.directory} is of another run: "
                f"{'; '.join(differences)}. Give the arguments of that run to go on "
                "with it; else give another directory, or delete this one."
            )

    def save(self, name: str, arrays: Mapping[str, Any]) -> None:
        """Stores a named item, in place of the one that had the name.

        Args:
          name: Lower-case letters, digits and underscores; no `chunk_0`.
          arrays: Arrays, numbers or strings by name; no Python objects.

        Raises:
          ValueError: If the name can't be one, or there are Python objects.
          OSError: If the disk is full, or the like; the old item is still there.
        """
        file = f"{_checked_name(name)}.npz"
        self._write(file, lambda path: _write_arrays(path, arrays))

    def load(self, name: str) -> dict[str, np.ndarray] | None:
        """Reads a named item.

        Args:
          name: As given to `save`.

        Returns:
          The arrays by name; None if nothing has been saved by that name.

        Raises:
          ValueError: If the file is damaged.
        """
        path = self.directory / f"{_checked_name(name)}.npz"
        return _read_arrays(path) if path.exists() else None

    @property
    def num_chunks(self) -> int:
        """How many chunks there are without a gap, from number 0 on.

        The first call reads each of them, so that damage shows before a run goes on.

        Raises:
          ValueError: If one of them is damaged; the message names the file.
        """
        if self._num_chunks is None:
            count = self._num_files()
            for index in range(count):
                _read_arrays(self._chunk_path(index))
            self._num_chunks = count
        return self._num_chunks

    def append(self, index: int, arrays: Mapping[str, Any]) -> None:
        """Stores the next chunk; it is safe once this returns.

        Args:
          index: Its number, which must be `num_chunks`: a caller that is out of step
            is stopped here.
          arrays: Arrays, numbers or strings by name; no Python objects.

        Raises:
          ValueError: If it is not the next chunk, or there are Python objects.
          OSError: If the disk is full, or the like; all chunks before it are still
            there, and the message says how to go on.
        """
        if index != self.num_chunks:
            raise ValueError(
                f"`index` is {index}; expected {self.num_chunks}, the next chunk of "
                f"{self.directory}."
            )
        path = self._chunk_path(index)
        self._write(path.name, lambda path: _write_arrays(path, arrays))
        self._num_chunks = index + 1

    def read(self, index: int) -> dict[str, np.ndarray]:
        """Reads one chunk.

        Args:
          index: Its number.

        Returns:
          The arrays by name.

        Raises:
          IndexError: If there is no such chunk.
          ValueError: If the file is damaged.
        """
        if not 0 <= index < self.num_chunks:
            raise IndexError(
                f"`index` is {index}; {self.directory} has {self.num_chunks} chunks."
            )
        return _read_arrays(self._chunk_path(index))

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

    def _write(self, name: str, write: Callable[[pathlib.Path], None]) -> None:
        """Writes a file; explains what is left if that fails."""
        path = self.directory / name
        try:
            _write_durably(path, write)
        except OSError as error:
            safe = f"what was stored before is safe, with {self._num_files()} chunks"
            if name == _MANIFEST:
                safe = "nothing had been stored before"
            raise OSError(
                error.errno,
                f"cannot write this file of a checkpoint: {error.strerror or error}; "
                f"{safe}; once there is room, go on by the same call",
                str(path),
            ) from error


def _write_durably(path: pathlib.Path, write: Callable[[pathlib.Path], None]) -> None:
    """Lets `write` make a file, and gives it its name when it is on the disk."""
    # In the same directory, because a rename is atomic on one file system only.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        # Otherwise the name may reach the disk before the contents do.
        _fsync(temporary)
        os.replace(temporary, path)
        # Otherwise a power cut may undo the renaming of a file declared safe.
        _fsync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _fsync(path: pathlib.Path) -> None:
    if path.is_dir() and os.name != "posix":
        return  # Windows has no such call for directories
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems can't do it for directories.
        if not path.is_dir() or error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _write_arrays(path: pathlib.Path, arrays: Mapping[str, Any]) -> None:
    fields = {f"{_PREFIX}{name}": np.asarray(array) for name, array in arrays.items()}
    objects = [
        name for name, array in arrays.items() if np.asarray(array).dtype.hasobject
    ]
    if objects:
        raise ValueError(
            f"{', '.join(objects)}: Python objects; expected arrays of numbers or text."
        )
    names = np.array(list(arrays), dtype=np.str_)
    write_npz(path, _FORMAT_VERSION, {"names": names, **fields})


def _read_arrays(path: pathlib.Path) -> dict[str, np.ndarray]:
    kind = "complete checkpoint"
    try:
        names = read_npz(path, _FORMAT_VERSION, ["names"], kind)["names"].tolist()
        fields = [f"{_PREFIX}{name}" for name in names]
        arrays = read_npz(path, _FORMAT_VERSION, fields, kind)
    except OSError:
        raise
    except Exception as error:  # readers of a damaged file raise almost anything
        raise ValueError(
            f"{path} is damaged ({error}). Delete it and all chunks of higher numbers "
            "to go on from there."
        ) from error
    return {name: arrays[field] for name, field in zip(names, fields, strict=True)}


def _checked_name(name: str) -> str:
    if not _ITEM_NAME.fullmatch(name):
        raise ValueError(
            f"`name` is {name!r}; expected lower-case letters, digits and underscores, "
            "and not that of a chunk."
        )
    return name


def _checked_identity(identity: Mapping[str, Any]) -> dict[str, Value]:
    """Returns the identity in Python's own types, as the manifest gives it back."""
    checked: dict[str, Value] = {}
    for name, value in identity.items():
        if isinstance(value, str):
            checked[name] = str(value)
        elif isinstance(value, numbers.Integral):  # NumPy's integers, and bool
            checked[name] = int(value)
        elif isinstance(value, numbers.Real):
            checked[name] = float(value)
        else:
            raise TypeError(
                f"`identity[{name!r}]` is a {type(value).__name__}; expected a str, an "
                "int or a float."
            )
    return checked
