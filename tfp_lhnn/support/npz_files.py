"""Named arrays in one file: written atomically, read without running code."""

from __future__ import annotations

import errno
import math
import os
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from tfp_lhnn.support.atomic_files import write_atomically

__all__ = ["Spec", "read_npz", "write_npz"]

Path = str | os.PathLike[str]

# What an array should be: its shape, with None for sizes that are not known, and dtype.
Spec = tuple[tuple[int | None, ...], Any]

_SUFFIX = ".npy"

# NumPy writes a third version for structured arrays only, which are not written here.
_HEADER_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def write_npz(
    path: Path, version: int, fields: Mapping[str, Any], *, durable: bool = False
) -> None:
    """Writes fields to exactly `path`, which is replaced only by a complete file.

    Args:
        path: the file; no suffix is added.
        version: the version of the format, stored as `format_version`.
        fields: arrays or numbers by name.
        durable: whether the file is on the disk when this returns.
    """

    def write(file: BinaryIO) -> None:
        np.savez(file, allow_pickle=False, format_version=version, **fields)

    write_atomically(path, write, durable=durable)


def read_npz(
    path: Path,
    version: int,
    names: Sequence[str] | None,
    kind: str,
    *,
    specs: Mapping[str, Spec] | None = None,
) -> dict[str, np.ndarray]:
    """Reads what `write_npz` wrote.

    It takes no more memory than the file has bytes, whatever the file claims.

    Args:
        path: the file.
        version: the version expected.
        names: the fields expected, others are ignored; `None` for all there are.
        kind: what the file should hold, for messages.
        specs: shapes and dtypes by name, for some of the fields. They are compared
            before the array is read.

    Returns:
        The arrays by name.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is damaged, foreign, of another version, or too large
            for the memory, or if a field has another shape or dtype than expected.
    """
    with open(path, "rb") as file:
        try:
            fields = _read_fields(file, names, specs or {})
        except MemoryError as error:
            raise ValueError(f"{path} does not fit into memory: {error}") from error
        except Exception as error:  # readers of a damaged file raise almost anything
            # EINVAL is a seek to an impossible place: the file is wrong, not the disk.
            if isinstance(error, OSError) and error.errno != errno.EINVAL:
                raise
            raise ValueError(f"{path} is not a {kind} file: {error}") from error
    found = fields.pop("format_version", None)
    if found is not None and not np.array_equal(found, version):
        raise ValueError(f"{path} has format version {found}; expected {version}.")
    missing = [] if found is not None else ["format_version"]
    missing += [name for name in names or () if name not in fields]
    if missing:
        raise ValueError(f"{path} is not a {kind} file: no {', '.join(missing)}.")
    return fields


def _read_fields(
    file: BinaryIO, names: Sequence[str] | None, specs: Mapping[str, Spec]
) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        _check_sizes(members, os.fstat(file.fileno()).st_size)
        wanted = None if names is None else {"format_version", *names}
        fields = {}
        for member in members:
            name = member.filename.removesuffix(_SUFFIX)
            if name in fields:
                raise ValueError(f"{name} is there twice")
            if wanted is None or name in wanted:
                fields[name] = _read_array(archive, member, specs.get(name))
        return fields


def _check_sizes(members: Sequence[zipfile.ZipInfo], size: int) -> None:
    """Refuses members that would be larger in memory than they are on the disk."""
    for member in members:
        is_plain = member.compress_type == zipfile.ZIP_STORED
        if not is_plain or member.file_size != member.compress_size:
            raise ValueError(
                f"{member.filename} is compressed, which files written here never are"
            )
    total = sum(member.file_size for member in members)
    if total > size:
        raise ValueError(
            f"its members claim {total} bytes, but the file has only {size}"
        )


def _read_array(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, spec: Spec | None
) -> np.ndarray:
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        if version not in _HEADER_READERS:
            raise ValueError(f"{member.filename} has a header of version {version}")
        shape, _, dtype = _HEADER_READERS[version](file)
        if dtype.hasobject:
            raise ValueError(f"{member.filename} holds Python objects")
        # Python's integers, which do not overflow.
        claimed = math.prod(shape) * dtype.itemsize
        left = member.file_size - file.tell()
        if claimed != left or (dtype.itemsize == 0 and math.prod(shape) > 0):
            raise ValueError(
                f"{member.filename} claims an array of shape {shape} and type {dtype}, "
                f"but has {left} bytes"
            )
    if spec is not None:
        _check_spec(member.filename, shape, dtype, spec)
    # Opened again: after a seek Python no longer checks the member's checksum.
    with archive.open(member) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _check_spec(
    name: str, shape: tuple[int, ...], dtype: np.dtype[Any], spec: Spec
) -> None:
    sizes, expected = spec[0], np.dtype(spec[1])
    is_same = len(shape) == len(sizes) and all(
        size is None or size == found for found, size in zip(shape, sizes, strict=True)
    )
    if not is_same or dtype != expected:
        wanted = ", ".join("any" if size is None else str(size) for size in sizes)
        raise ValueError(
            f"{name} is {dtype} of shape {shape}; expected {expected} of shape "
            f"({wanted})"
        )
