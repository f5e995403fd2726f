"""Arrays in a file that records its run, its name and a checksum."""

from __future__ import annotations

import hashlib
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfp_lhnn.support.npz_files import Spec, read_npz, write_npz

__all__ = ["STAMPED_VERSION", "read_stamped", "write_stamped"]

# Raised when the layout of the files changes its meaning.
STAMPED_VERSION = 2

# Before the name of each array, so that no name can clash with a field of ours.
_PREFIX = "array_"

_STAMP = ("run", "name", "checksum")


def write_stamped(path: pathlib.Path, run: str, arrays: Mapping[str, Any]) -> None:
    """Writes a file that is on the disk when this returns.

    Args:
        path: the file.
        run: identifies its run.
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


def read_stamped(
    path: pathlib.Path,
    run: str,
    remedy: str,
    specs: Mapping[str, Spec] | None = None,
) -> dict[str, np.ndarray]:
    """Reads a file, which must belong to this run and have its original name.

    Args:
        path: the file.
        run: as given to `write_stamped`.
        remedy: what to do about a wrong file, for messages.
        specs: shapes and dtypes of all arrays by name, if they are known. They are
            compared before an array is read.

    Returns:
        The arrays by name.

    Raises:
        ValueError: if the file is damaged, foreign, of another run, another file of
            this run, or has other arrays.
    """
    stamp = {name: str(value) for name, value in _read(path, _STAMP, remedy).items()}
    # The run is checked first: a wrong run explains more than wrong shapes do.
    if stamp["run"] != run:
        raise ValueError(
            f"{path} belongs to another run: its run is {stamp['run'][:8]}, that of "
            f"this checkpoint {run[:8]}. {remedy}"
        )
    if stamp["name"] != path.name:
        raise ValueError(
            f"{path} is not what its name says: it was written as "
            f"{stamp['name'][:80]}. {remedy}"
        )
    prefixed = {f"{_PREFIX}{name}": spec for name, spec in (specs or {}).items()}
    fields = _read(path, None, remedy, prefixed)
    for name in _STAMP:
        fields.pop(name)
    if stamp["checksum"] != _checksum(run, path.name, fields):
        raise ValueError(
            f"{path} is damaged (its contents do not match its checksum). {remedy}"
        )
    arrays = {name.removeprefix(_PREFIX): array for name, array in fields.items()}
    if specs is not None and arrays.keys() != specs.keys():
        raise ValueError(
            f"{path} has the arrays {', '.join(sorted(arrays)) or 'none'}; expected "
            f"{', '.join(sorted(specs))}. {remedy}"
        )
    return arrays


def _read(
    path: pathlib.Path,
    names: Sequence[str] | None,
    remedy: str,
    specs: Mapping[str, Spec] | None = None,
) -> dict[str, np.ndarray]:
    try:
        fields = read_npz(
            path, STAMPED_VERSION, names, "complete checkpoint", specs=specs
        )
    except ValueError as error:
        raise ValueError(f"{path} is damaged or foreign ({error}). {remedy}") from error
    fields.pop("format_version", None)
    return fields


def _checksum(run: str, name: str, fields: Mapping[str, np.ndarray]) -> str:
    """A digest of a file's contents, whatever the order of its arrays."""
    digest = hashlib.sha256(repr((run, name)).encode())
    for field, array in sorted(fields.items()):
        digest.update(repr((field, array.dtype.str, array.shape)).encode())
        if array.dtype.itemsize:
            # A view: a copy would double the memory that a large array takes.
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
