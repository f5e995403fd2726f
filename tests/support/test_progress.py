"""Progress: what a terminal, a notebook, a log file and a broken pipe get to see."""

import io
import re
import sys
import types

import pytest

from tfp_lhnn.support.progress import ProgressReporter


class Stream(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")


def screen(text):
    """The lines that a terminal shows in the end."""
    lines = [[]]
    column = 0
    for character in text:
        if character == "\r":
            column = 0
        elif character == "\n":
            lines.append([])
            column = 0
        else:
            lines[-1][column : column + 1] = [character]
            column += 1
    return ["".join(line).rstrip() for line in lines]


def run(reporter, clock, steps=10, seconds=1.0, **details):
    with reporter.phase("sampling", total=1000, unit="draws") as phase:
        for i in range(steps):
            clock.now += seconds
            phase.update(100 * (i + 1), **details)


def test_one_line_in_a_terminal():
    stream, clock = Stream(terminal=True), Clock()
    reporter = ProgressReporter(stream=stream, clock=clock)
    with reporter.phase("sampling", total=1000, unit="draws") as phase:
        clock.now += 2.0
        phase.update(400, acceptance=0.934, gradients=2052)
        assert screen(stream.getvalue()) == [
            "sampling  40%  [########............]  400/1,000 draws  200/s  ETA 3.0 s"
            "  acceptance 0.93  gradients 2,052"
        ]
        clock.now += 3.0
        phase.update(1000)  # what isn't said anew stays
    assert screen(stream.getvalue()) == [
        "sampling: 1,000 draws in 5.0 s (200/s)  acceptance 0.93  gradients 2,052",
        "",
    ]
    assert "\n" not in stream.getvalue()[:-1]


def test_updates_are_few():
    stream, clock = Stream(terminal=True), Clock()
    reporter = ProgressReporter(stream=stream, clock=clock)
    run(reporter, clock, steps=1000, seconds=0.001)
    # At the start, every 0.1 s of one second, and at the end.
    assert 10 <= stream.getvalue().count("\r") <= 12


@pytest.mark.parametrize("columns", [100, 60, 20, 1])
def test_lines_never_wrap(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    stream, clock = Stream(terminal=True), Clock()
    reporter = ProgressReporter(stream=stream, clock=clock)
    with reporter.phase("sampling", total=10**6, unit="draws") as phase:
        for i in range(5):
            clock.now += 1
            phase.update(10**5 * i, acceptance=0.5, gradients=10**6)
        lines = stream.getvalue().split("\r")
        assert all(len(line) <= max(columns - 1, 1) for line in lines)
        assert len(lines) > 5


def test_all_hundred_percent_means_done():
    stream, clock = Stream(terminal=True), Clock()
    with ProgressReporter(stream=stream, clock=clock).phase("fit", total=1000) as phase:
        clock.now += 1
        phase.update(999)
        assert " 99%" in screen(stream.getvalue())[-1]


def test_unknown_total():
    stream, clock = Stream(terminal=True), Clock()
    with ProgressReporter(stream=stream, clock=clock).phase("fit") as phase:
        clock.now += 1
        phase.update(50)
        assert screen(stream.getvalue()) == ["fit 50 steps  50/s"]


def test_a_resumed_phase_has_an_honest_speed():
    stream, clock = Stream(terminal=True), Clock()
    reporter = ProgressReporter(stream=stream, clock=clock)
    with reporter.phase("sampling", total=1000, unit="draws", start=900) as phase:
        clock.now += 1.0
        phase.update(910)
        (line,) = screen(stream.getvalue())
    assert " 91% " in line
    assert "10/s  ETA 9.0 s" in line


@pytest.mark.parametrize(
    ("enabled", "terminal", "shown"),
    [(None, True, True), (None, False, False), (False, True, False)],
)
def test_when_it_is_shown(enabled, terminal, shown):
    stream, clock = Stream(terminal), Clock()
    run(ProgressReporter(enabled, stream=stream, clock=clock), clock)
    assert bool(stream.getvalue()) is shown


def test_forced_into_a_file():
    stream, clock = Stream(terminal=False), Clock()
    run(ProgressReporter(True, stream=stream, clock=clock), clock, seconds=6.0)
    lines = stream.getvalue().splitlines()
    assert "\r" not in stream.getvalue()
    # The start, one per 12 s (the first update after 10 s) of 60 s, the end.
    assert len(lines) == 1 + 5 + 1
    assert re.search(r"sampling  20%  200/1,000 draws  17/s  ETA 48.0 s", lines[1])
    assert lines[-1] == "sampling: 1,000 draws in 1:00 min (17/s)"


def test_errors_leave_a_clean_line():
    stream, clock = Stream(terminal=True), Clock()
    reporter = ProgressReporter(stream=stream, clock=clock)

    def fail():
        with reporter.phase("sampling", total=1000, unit="draws") as phase:
            clock.now += 4000.0
            phase.update(420)
            raise RuntimeError("as it happens")

    with pytest.raises(RuntimeError, match="as it happens"):
        fail()
    assert screen(stream.getvalue()) == [
        "sampling: stopped after 420 of 1,000 draws in 1:06:40 (0.1/s)",
        "",
    ]


@pytest.mark.parametrize("error", [ValueError, BrokenPipeError])
def test_a_broken_stream_does_not_stop_the_run(error):
    class Broken(Stream):
        def write(self, text):
            if self.tell() > 0:
                raise error("closed")
            return super().write(text)

    clock = Clock()
    run(ProgressReporter(stream=Broken(terminal=True), clock=clock), clock)
    closed = Stream(terminal=True)
    reporter = ProgressReporter(True, stream=closed, clock=clock)
    closed.close()
    run(reporter, clock)


def test_standard_error_unless_in_a_notebook(capsys, monkeypatch):
    clock = Clock()
    run(ProgressReporter(True, clock=clock), clock)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith("(100/s)\n")

    shell = types.SimpleNamespace(kernel=object())
    ipython = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "ipykernel", types.SimpleNamespace())
    run(ProgressReporter(clock=clock), clock)
    captured = capsys.readouterr()
    assert captured.err == ""
    assert screen(captured.out)[0].startswith("sampling: 1,000 draws")

    del shell.kernel  # IPython in a terminal that isn't one
    run(ProgressReporter(clock=clock), clock)
    assert capsys.readouterr() == ("", "")


def test_no_standard_error(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    clock = Clock()
    run(ProgressReporter(True, clock=clock), clock)


def test_bad_argument():
    with pytest.raises(TypeError, match="`progress` is 'yes'"):
        ProgressReporter("yes")
