"""The identity of a checkpoint's run, in a file that people can read."""

from __future__ import annotations

import hashlib
import json
import math
import numbers
import pathlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfp_lhnn._version import __version__
from tfp_lhnn.sampling.stamped_file import STAMPED_VERSION
from tfp_lhnn.support.atomic_files import write_atomically

__all__ = [
    "MANIFEST",
    "ProbeValues",
    "Value",
    "check_manifest",
    "checked_identity",
    "write_manifest",
]

MANIFEST = "manifest.json"

# Far more than the manifest of any run has. A larger file is not even read.
_MOST_BYTES = 10**6


class ProbeValues(NamedTuple):
    """Values of a density at some points, by which it is recognised.

    Two values are the same if they differ by at most `rtol` times the larger of their
    magnitudes, or by at most `rtol`. NaN equals NaN, and infinities equal themselves.

    Attributes:
        values: log densities in nats, `[points]`.
        rtol: the tolerance of the current run; the manifest stores none.
    """

    values: tuple[float, ...]
    rtol: float

    def is_close_to(self, stored: Any) -> bool:
        """Whether these are the values that a manifest holds.

        Args:
            stored: what JSON gave back, which may be anything.
        """
        if not isinstance(stored, list) or len(stored) != len(self.values):
            return False
        if not all(type(value) in (int, float) for value in stored):
            return False
        return all(map(self._is_same, self.values, stored))

    def _is_same(self, one: float, other: float) -> bool:
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return math.isclose(one, other, rel_tol=self.rtol, abs_tol=self.rtol)


Value = str | int | float | ProbeValues


def write_manifest(directory: pathlib.Path, identity: Mapping[str, Value]) -> str:
    """Writes the manifest of a new run; it is on the disk when this returns.

    Args:
        directory: of the checkpoint.
        identity: what defines the run.

    Returns:
        The run's identifier, different from that of any other run.

    Raises:
        OSError: if the file cannot be written.
    """
    # Random, so that two runs with the same arguments differ too.
    run_id = secrets.token_hex(16)
    stored = {name: _as_json(value) for name, value in identity.items()}
    mark = _mark(stored, run_id)
    manifest = {
        "package": "tfp_lhnn",
        "format_version": STAMPED_VERSION,
        "package_version": __version__,
        "identity": stored,
        "run_id": run_id,
        "run": mark,
    }
    text = json.dumps(manifest, indent=2) + "\n"
    write_atomically(
        directory / MANIFEST, lambda file: file.write(text.encode()), durable=True
    )
    return mark


def check_manifest(directory: pathlib.Path, identity: Mapping[str, Value]) -> str:
    """Reads the manifest and compares it with the current run.

    Args:
        directory: of the checkpoint.
        identity: what defines the current run.

    Returns:
        The run's identifier.

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
        _difference(name, found.get(name), expected.get(name))
        for name in {**expected, **found}
        if not _is_same(found.get(name), expected.get(name))
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
        identity: strings, numbers and values of probes by name.

    Raises:
        TypeError: if an entry is something else.
        ValueError: if values of a probe are not in one dimension, or their tolerance is
            not in [0, 1).
    """
    checked: dict[str, Value] = {}
    for name, value in identity.items():
        if isinstance(value, str):
            checked[name] = str(value)
        elif isinstance(value, numbers.Integral):  # NumPy's integers, and bool
            checked[name] = int(value)
        elif isinstance(value, numbers.Real):
            checked[name] = float(value)
        elif isinstance(value, ProbeValues):
            checked[name] = _checked_probe(name, value)
        else:
            raise TypeError(
                f"`identity[{name!r}]` is a {type(value).__name__}; expected a str, an "
                "int, a float or ProbeValues."
            )
    return checked


def _checked_probe(name: str, probe: ProbeValues) -> ProbeValues:
    values = np.asarray(probe.values)
    if values.ndim != 1 or values.dtype.kind not in "fiu":
        raise ValueError(
            f"`identity[{name!r}]` has values of shape {values.shape} and type "
            f"{values.dtype}; expected numbers, [points]."
        )
    if not 0.0 <= probe.rtol < 1.0:
        raise ValueError(
            f"`identity[{name!r}]` has rtol={probe.rtol}; expected 0 or more, below 1."
        )
    return ProbeValues(tuple(map(float, values)), float(probe.rtol))


def _as_json(value: Value) -> str | int | float | list[float]:
    return list(value.values) if isinstance(value, ProbeValues) else value


def _is_same(found: Any, expected: Value | None) -> bool:
    if isinstance(expected, ProbeValues):
        return expected.is_close_to(found)
    # Compared by `repr`, for which NaN equals itself.
    return repr(found) == repr(expected)


def _difference(name: str, found: Any, expected: Value | None) -> str:
    """Says how an entry of the manifest ("there") differs from this run's ("here")."""
    if isinstance(expected, ProbeValues) and isinstance(found, list):
        return (
            f"the log density has changed ({name}: {_shown(found)} there and "
            f"{_shown(expected.values)} here), so its data or its code have, perhaps"
        )
    there, here = (
        "not given" if value is None else value
        for value in (found, _as_json(expected) if expected is not None else None)
    )
    return f"{name} is {there} there and {here} here"


def _shown(values: Sequence[Any]) -> str:
    """The first few values, for a message."""
    shown = [f"{v:.10g}" if isinstance(v, float) else str(v)[:20] for v in values]
    return ", ".join([*shown[:3], "..."] if len(shown) > 3 else shown)


def _parsed(path: pathlib.Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES} bytes")
        manifest = json.loads(text)
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
