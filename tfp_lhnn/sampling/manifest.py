"""What run a checkpoint is of, in a file that people can read."""

from __future__ import annotations

import hashlib
import json
import numbers
import pathlib
import secrets
from collections.abc import Mapping
from typing import Any

from tfp_lhnn._version import __version__
from tfp_lhnn.sampling.stamped_file import STAMPED_VERSION
from tfp_lhnn.support.atomic_files import write_atomically

__all__ = ["MANIFEST", "Value", "check_manifest", "checked_identity", "write_manifest"]

MANIFEST = "manifest.json"

Value = str | int | float


def write_manifest(directory: pathlib.Path, identity: Mapping[str, Value]) -> str:
    """Writes the manifest of a new run; it is on the disk when this returns.

    Args:
        directory: of the checkpoint.
        identity: what the run is made of.

    Returns:
        The run's mark, which tells it from any other.

    Raises:
        OSError: if the file cannot be written.
    """
    # By chance, so that two runs with the same arguments differ too.
    run_id = secrets.token_hex(16)
    mark = _mark(identity, run_id)
    manifest = {
        "package": "tfp_lhnn",
        "format_version": STAMPED_VERSION,
        "package_version": __version__,
        "identity": dict(identity),
        "run_id": run_id,
        "run": mark,
    }
    text = json.dumps(manifest, indent=2) + "\n"
    write_atomically(
        directory / MANIFEST, lambda file: file.write(text.encode()), durable=True
    )
    return mark


def check_manifest(directory: pathlib.Path, identity: Mapping[str, Value]) -> str:
    """Reads the manifest and compares it with the run at hand.

    Args:
        directory: of the checkpoint.
        identity: what the run at hand is made of.

    Returns:
        The run's mark.

    Raises:
        ValueError: if it is of another run, or damaged.
    """
    path = directory / MANIFEST
    manifest = _parsed(path)
    found = {
        "checkpoint format": manifest["format_version"],
        "tfp_lhnn version": manifest["package_version"],
        **manifest["identity"],
    }
    expected = {
        "checkpoint format": STAMPED_VERSION,
        "tfp_lhnn version": __version__,
        **identity,
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
            f"the checkpoint in {directory} is of another run: "
            f"{'; '.join(differences)}. Give the arguments of that run to go on "
            "with it; else give another directory, or delete this one."
        )
    mark = _mark(manifest["identity"], manifest.get("run_id"))
    if manifest.get("run") != mark:
        raise _damaged(path, "its run id does not match its checksum")
    return mark


def checked_identity(identity: Mapping[str, Any]) -> dict[str, Value]:
    """Returns the identity in Python's own types, as the manifest gives it back.

    Args:
        identity: strings and numbers by name.

    Raises:
        TypeError: if an entry is something else.
    """
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


def _parsed(path: pathlib.Path) -> dict[str, Any]:
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if manifest["package"] != "tfp_lhnn":
            raise ValueError(f"its package is {manifest['package']!r}")
        for name in ("format_version", "package_version", "identity"):
            if name not in manifest:
                raise ValueError(f"it has no {name}")
        if not isinstance(manifest["identity"], dict):
            raise ValueError("its identity is no dictionary")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(path, str(error)) from error
    return manifest


def _damaged(path: pathlib.Path, what: str) -> ValueError:
    return ValueError(
        f"{path} is not a checkpoint's manifest: {what}. Put the right one back, or "
        "delete the directory to begin the run anew."
    )


def _mark(identity: Mapping[str, Any], run_id: Any) -> str:
    text = json.dumps([dict(identity), run_id], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
