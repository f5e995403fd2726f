"""Named arrays in one file: written all or nothing, read without running code."""

from __future__ import annotations

import os
import pathlib
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["read_npz", "write_npz"]

Path = str | os.PathLike[str]


def write_npz(path: Path, version: int, fields: Mapping[str, Any]) -> None:
    """Writes fields to exactly `path`, which is replaced only by a complete file.

    Args:
      path: The file; no suffix is added.
      version: The version of the format, stored as `format_version`.
      fields: Arrays or numbers by name.
    """
    path = pathlib.Path(path)
    # Beside the target, because a rename is atomic on one file system only.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            np.savez(file, allow_pickle=False, format_version=version, **fields)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read_npz(
    path: Path, version: int, names: Sequence[str], kind: str
) -> dict[str, np.ndarray]:
    """Reads what `write_npz` wrote.

    Args:
      path: The file.
      version: The version expected.
      names: The fields expected; others are ignored.
      kind: What the file should hold, for messages.

    Returns:
      The arrays by name.

    Raises:
      FileNotFoundError: If there is no such file.
      ValueError: If the file is damaged, foreign, or of another version.
    """
    try:
        with (
            open(path, "rb") as file,
            np.lib.npyio.NpzFile(file, allow_pickle=False) as saved,
        ):
            wanted = ("format_version", *names)
            missing = [name for name in wanted if name not in saved]
            fields = {name: saved[name] for name in wanted if name in saved}
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} is not a {kind} file: {error}") from error
    if missing:
        raise ValueError(f"{path} is not a {kind} file: no {', '.join(missing)}.")
    found = fields.pop("format_version")
    if not np.array_equal(found, version):
        raise ValueError(f"{path} has format version {found}; expected {version}.")
    return fields
