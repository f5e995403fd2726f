"""Which processes run: this one, dead ones, and those that nobody waited for."""

import os
import re
import subprocess
import sys

import pytest

from tfp_lhnn.support import processes
from tfp_lhnn.support.processes import host_name, is_running, start_time

QUICK = [sys.executable, "-S", "-E", "-c", ""]


def test_this_process_runs():
    began = start_time(os.getpid())
    assert began == start_time(os.getpid())
    assert is_running(os.getpid())
    assert is_running(os.getpid(), began)


def test_a_process_that_ended_does_not():
    with subprocess.Popen(QUICK, stdin=subprocess.PIPE) as process:
        process.wait()
    assert not is_running(process.pid)
    assert start_time(process.pid) == ""


def test_a_process_that_nobody_waited_for_does_not():
    with subprocess.Popen(QUICK, stdout=subprocess.PIPE) as process:
        process.stdout.read()  # until it ends
        # It is still in the table; the pipe may close a moment before the end.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        os.kill(process.pid, 0)
        assert not is_running(process.pid)


@pytest.mark.skipif(not start_time(os.getpid()), reason="the system does not tell")
def test_another_process_of_the_same_id_is_another():
    assert not is_running(os.getpid(), "1")
    assert start_time(os.getpid()) != start_time(1)


@pytest.mark.parametrize("pid", [0, -1, 2**22 + 1, 10**30])
def test_what_is_no_process(pid):
    assert not is_running(pid)
    assert start_time(pid) == ""


def test_a_process_of_somebody_else_runs(monkeypatch):
    def refuse(pid, signal):
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert is_running(os.getpid())


def test_where_the_system_says_nothing_a_process_may_run(monkeypatch):
    monkeypatch.setattr(processes, "_status", lambda pid: [])
    assert is_running(os.getpid(), "1")
    assert start_time(os.getpid()) == ""


@pytest.mark.parametrize("name", ["node-7", "a b/c.d", "", "x" * 300, "höst"])
def test_a_host_name_can_be_part_of_a_file_name(monkeypatch, name):
    monkeypatch.setattr(processes.socket, "gethostname", lambda: name)
    assert re.fullmatch(r"[A-Za-z0-9-]{1,40}", host_name())
