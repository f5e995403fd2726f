"""Arrays in a file that knows its run, its name and what it should hold."""

from __future__ import annotations

import hashlib
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfp_lhnn.support.npz_files import read_npz, write_npz

__all__ = ["STAMPED_VERSION", "read_stamped", "write_stamped"]

# Raised when the layout of the files changes its meaning.
STAMPED_VERSION = 2

# Before the name of each array, so that no name can clash with a field of ours.
_PREFIX = "array_"


def write_stamped(path: pathlib.Path, run: str, arrays: Mapping[str, Any]) -> None:
    """Writes a file that is on the disk when this returns.

    Args:
        path: the file.
        run: what tells its run from any other.
        arrays: arrays, numbers or strings by name.

    Raises:
        ValueError: if there are Python objects.
        OSError: if it cannot be written; an old file is still there.
    """
    checked = {name: np.asarray(array) for name, array in arrays.items()}
    objects = [name for name, array in checked.items() if array.dtype.hasobject]
    if objects:
        raise ValueError(
            f"{', '.join(objects)}: Python objects; expected arrays of numbers or text."
        )
    fields = {f"{_PREFIX}{name}": array for name, array in checked.items()}
    stamp = {
        "run": np.str_(run),
        "name": np.str_(path.name),
        "checksum": np.str_(_checksum(run, path.name, fields)),
    }
    write_npz(path, STAMPED_VERSION, {**stamp, **fields}, durable=True)


def read_stamped(path: pathlib.Path, run: str, remedy: str) -> dict[str, np.ndarray]:
    """Reads a file of this run that has its own name.

    Args:
        path: the file.
        run: as given to `write_stamped`.
        remedy: what to do about a wrong file, for messages.

    Returns:
        The arrays by name.

    Raises:
        ValueError: if the file is damaged, foreign, of another run, or another file of
            this run.
    """
    try:
        fields = read_npz(path, STAMPED_VERSION, None, "complete checkpoint")
        found_run, found_name, found_checksum = (
            str(fields.pop(name)) for name in ("run", "name", "checksum")
        )
    except KeyError as error:
        raise ValueError(
            f"{path} is damaged or foreign (it has no {error}). {remedy}"
        ) from error
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}). {remedy}") from error
    if found_run != run:
        raise ValueError(
            f"{path} belongs to another run: its run is {found_run[:8]}, that of this "
            f"checkpoint {run[:8]}. {remedy}"
        )
    if found_name != path.name:
        raise ValueError(
            f"{path} is not what its name says: it was written as {found_name}. "
            f"{remedy}"
        )
    if found_checksum != _checksum(run, path.name, fields):
        raise ValueError(
            f"{path} is damaged (its contents do not match its checksum). {remedy}"
        )
    return {name.removeprefix(_PREFIX): array for name, array in fields.items()}


def _checksum(run: str, name: str, fields: Mapping[str, np.ndarray]) -> str:
    """A digest of all that a file says, whatever the order of its arrays."""
    digest = hashlib.sha256(repr((run, name)).encode())
    for field, array in sorted(fields.items()):
        digest.update(repr((field, array.dtype.str, array.shape)).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
