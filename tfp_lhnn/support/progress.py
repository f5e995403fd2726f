"""One line that says how far a long phase has come."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, TextIO

__all__ = ["Phase", "ProgressReporter"]

_SECONDS_BETWEEN_UPDATES = 0.1
# Elsewhere, as in a log file, lines stay, so there must be few of them.
_SECONDS_BETWEEN_LINES = 10.0
_MAX_BAR_WIDTH = 20
_MIN_BAR_WIDTH = 5
_NOTEBOOK_WIDTH = 120  # characters, before most notebooks break a line


class ProgressReporter:
    """Shows the progress of one phase after the other.

    In a terminal or a notebook, a phase is one line that is written over and over.
    Elsewhere it is a new line every ten seconds, and only if `enabled` is True. A
    closed or broken stream ends the reports, never the run. There are no threads: the
    line changes when `update` is called.

    ```python
    with reporter.phase("sampling", total=1000, unit="draws") as phase:
        phase.update(400, acceptance=0.93, gradients=2052)
    ```
    """

    def __init__(
        self,
        enabled: bool | None = None,
        *,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keeps the choices; each phase looks at the stream when it begins.

        Args:
          enabled: Whether to report; None reports to terminals and notebooks only.
          stream: Where to write. None means standard error, because results go to
            standard output. In a notebook, which shows errors in red, None means
            standard output.
          clock: Gives the time in seconds.

        Raises:
          TypeError: If `enabled` is neither a bool nor None.
        """
        if enabled is not None and not isinstance(enabled, bool):
            raise TypeError(f"`progress` is {enabled!r}; expected True, False or None.")
        self._enabled = enabled
        self._stream = stream
        self._clock = clock

    def phase(
        self, name: str, total: int | None = None, unit: str = "steps", start: int = 0
    ) -> Phase:
        """Begins a phase; use it as a context manager.

        Args:
          name: What it is called.
          total: How many units it takes at most; None if that isn't known.
          unit: What is counted.
          start: How many an earlier run has done, which this one resumes. They don't
            count for the speed.

        Returns:
          The phase.
        """
        in_notebook = _in_notebook()
        stream = self._stream
        if stream is None:
            stream = sys.stdout if in_notebook else sys.stderr
        width = None
        if in_notebook:
            width = _NOTEBOOK_WIDTH
        elif _is_terminal(stream):
            width = max(shutil.get_terminal_size().columns - 1, 1)
        if self._enabled is False or (self._enabled is None and width is None):
            stream = None
        return Phase(name, total, unit, start, stream, width, self._clock)


class Phase:
    """What is being done now; made by `ProgressReporter.phase`."""

    def __init__(
        self,
        name: str,
        total: int | None,
        unit: str,
        start: int,
        stream: TextIO | None,
        width: int | None,
        clock: Callable[[], float],
    ) -> None:
        self._name = name
        self._total = total
        self._unit = unit
        self._start = self._done = start
        self._stream = stream
        self._width = width  # None: lines that stay
        self._clock = clock
        self._began = self._last_shown = clock()
        self._shown_width = 0
        self._acceptance: float | None = None
        self._gradients: int | None = None

    def __enter__(self) -> Phase:
        self._began = self._clock()
        self._show()
        return self

    def update(
        self,
        done: int,
        *,
        acceptance: float | None = None,
        gradients: int | None = None,
    ) -> None:
        """Notes how far the phase is. Shows it if the last time was long enough ago.

        Args:
          done: How many units are done in all, `start` included.
          acceptance: The share of proposals accepted; None leaves it as it was.
          gradients: True gradients so far; None leaves them as they were.
        """
        self._done = done
        if acceptance is not None:
            self._acceptance = acceptance
        if gradients is not None:
            self._gradients = gradients
        wait = _SECONDS_BETWEEN_LINES
        if self._width is not None:
            wait = _SECONDS_BETWEEN_UPDATES
        if self._stream is not None and self._clock() - self._last_shown >= wait:
            self._show()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        seconds = max(self._clock() - self._began, 0.0)
        count = f"{self._done:,}"
        if self._total is not None and self._done != self._total:
            count += f" of {self._total:,}"
        ending = "stopped after " if kind is not None else ""
        line = f"{self._name}: {ending}{count} {self._unit} in {_duration(seconds)}"
        rate = self._rate(seconds)
        if rate:
            line += f" ({_speed(rate)})"
        self._write("  ".join([line, *self._details()]), stays=True)

    def _show(self) -> None:
        self._last_shown = self._clock()
        rate = self._rate(self._last_shown - self._began)
        if self._total is None:
            parts = [f"{self._name} {self._done:,} {self._unit}"]
        else:
            share = min(self._done / self._total, 1.0) if self._total else 1.0
            count = f"{self._done:,}/{self._total:,} {self._unit}"
            # Rounded down: 100% means done.
            parts = [f"{self._name} {int(100 * share):3d}%", count]
        if rate:
            parts.append(_speed(rate))
            if self._total is not None:
                left = max(self._total - self._done, 0) / rate
                parts.append(f"ETA {_duration(left)}")
        parts += self._details()
        if self._total is not None:
            # The bar gets the room that the numbers leave.
            room = (self._width or 0) - len("  ".join(parts)) - len("  []")
            if room >= _MIN_BAR_WIDTH:
                width = min(room, _MAX_BAR_WIDTH)
                bar = ("#" * int(share * width)).ljust(width, ".")
                parts.insert(1, f"[{bar}]")
        self._write("  ".join(parts), stays=False)

    def _rate(self, seconds: float) -> float | None:
        done = self._done - self._start
        return done / seconds if done > 0 and seconds > 0 else None

    def _details(self) -> list[str]:
        details = []
        if self._acceptance is not None:
            details.append(f"acceptance {self._acceptance:.2f}")
        if self._gradients is not None:
            details.append(f"gradients {self._gradients:,}")
        return details

    def _write(self, line: str, stays: bool) -> None:
        if self._stream is None:
            return
        if self._width is None:
            text = line + "\n"
        else:
            if not stays:
                # A line that wraps can't be written over: its start would stay.
                line = line[: self._width]
            # Blanks, not an escape sequence: notebooks don't know all of those.
            text = "\r" + line.ljust(self._shown_width) + ("\n" if stays else "")
            self._shown_width = len(line)
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # a broken pipe, a closed file
            self._stream = None


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, OSError, ValueError):
        return False


def _in_notebook() -> bool:
    """Whether a kernel runs this process; a plain IPython shell is a terminal."""
    ipython = sys.modules.get("IPython")
    if ipython is None or "ipykernel" not in sys.modules:
        return False
    shell = ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


def _speed(rate: float) -> str:
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d} min"
