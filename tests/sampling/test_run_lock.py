"""One writer: who is let in to a checkpoint, by real processes."""

import json
import os
import subprocess
import sys

import pytest

import tfp_lhnn
from tfp_lhnn.sampling import run_lock
from tfp_lhnn.sampling.checkpoint import Checkpoint
from tfp_lhnn.support.processes import host_name

from .runs import dead_process, files

IDENTITY = {"seed": 1}
PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}


def filled(directory, n=3):
    checkpoint = Checkpoint(directory, IDENTITY)
    for index in range(n):
        checkpoint.append(index, {"draws": [index]})
    return checkpoint


# A package without its __init__, which would import TensorFlow: six seconds each.
IMPORT = """
import os, sys, types
package = types.ModuleType("tfp_lhnn")
package.__path__ = [sys.argv[2]]
sys.modules["tfp_lhnn"] = package
import numpy as np
from tfp_lhnn.sampling.checkpoint import Checkpoint
"""


def command(code, *arguments):
    path, *others = map(str, arguments)
    package = os.path.dirname(tfp_lhnn.__file__)
    return [sys.executable, "-c", IMPORT + code, path, package, *others]


def test_the_same_process_opens_a_directory_once(tmp_path):
    checkpoint = filled(tmp_path)
    with pytest.raises(BlockingIOError, match="in use by this very process") as raised:
        Checkpoint(tmp_path, IDENTITY)
    for part in (str(os.getpid()), host_name(), str(tmp_path), "give another direc"):
        assert part in str(raised.value)
    checkpoint.append(3, {"draws": [3]})
    checkpoint.close()
    checkpoint.close()
    with Checkpoint(tmp_path, IDENTITY) as again:
        assert again.num_chunks == 4
    again = Checkpoint(tmp_path, IDENTITY)
    del again
    again = Checkpoint(tmp_path, IDENTITY)
    # The old object reads, but the directory is no longer its own.
    assert checkpoint.num_chunks == 4
    with pytest.raises(ValueError, match="not open for writing"):
        checkpoint.append(4, {"draws": [4]})
    again.append(4, {"draws": [4]})


def test_a_lock_file_that_was_removed_stops_the_writer(tmp_path):
    checkpoint = filled(tmp_path)
    (tmp_path / ".lock").unlink()
    other = Checkpoint(tmp_path, IDENTITY)
    with pytest.raises(ValueError, match="lock file removed"):
        checkpoint.append(3, {"draws": [3]})
    checkpoint.close()  # of its own lock, not of the other's
    assert ".lock" in files(tmp_path)
    other.append(3, {"draws": [3]})


# Forks that open the directory at the same moment; each says whether it was let in,
# and stays until both have said so.
RACE = """
import time, signal

def opener(path, begin, say, end):
    os.read(begin, 1)
    try:
        checkpoint = Checkpoint(path, {"seed": 1})
        os.write(say, b"1")
    except BlockingIOError:
        os.write(say, b"0")
    except BaseException as error:
        os.write(say, b"x")
        print(repr(error), flush=True)
    os.read(end, 1)
    os._exit(0)

def race(path):
    begin, say, end = os.pipe(), os.pipe(), os.pipe()
    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            opener(path, begin[0], say[1], end[0])
        children.append(child)
    os.write(begin[1], b"  ")
    answers = b""
    while len(answers) < 2:
        answers += os.read(say[0], 2)
    # A kill, so that the next pair finds what a dead process leaves.
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    for descriptor in (*begin, *say, *end):
        os.close(descriptor)
    return answers

if sys.argv[3] == "files":
    from tfp_lhnn.sampling import run_lock
    run_lock.fcntl = None
same, new = 0, 0
for i in range(40):
    same += sorted(race(sys.argv[1])) == [48, 49]
    new += sorted(race(f"{sys.argv[1]} {i}")) == [48, 49]
print(same, new)
"""


@pytest.mark.parametrize("kind", ["system locks", "files"])
def test_of_two_that_open_at_once_one_is_let_in(tmp_path, kind):
    done = subprocess.run(
        command(RACE, tmp_path / "run", kind),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("40 40\n", "")


HALF_WAY = """
checkpoint = Checkpoint(sys.argv[1], {"seed": 1})
replace = os.replace

def stop_here(source, target):
    print(os.path.basename(source), flush=True)
    sys.stdin.readline()
    replace(source, target)

os.replace = stop_here
checkpoint.append(0, {"draws": np.arange(3)})
print("done", flush=True)
sys.stdin.readline()
"""


def test_a_second_opener_is_told_who_writes_and_disturbs_nothing(tmp_path):
    with subprocess.Popen(command(HALF_WAY, tmp_path), **PIPES) as writer:
        temporary = writer.stdout.readline().strip()
        with pytest.raises(BlockingIOError, match="in use by process") as raised:
            Checkpoint(tmp_path, {"seed": 1})
        assert f"process {writer.pid} on host {host_name()}" in str(raised.value)
        assert str(tmp_path / ".lock") in str(raised.value)
        assert temporary in files(tmp_path)
        writer.stdin.write("\n")
        writer.stdin.flush()
        assert writer.stdout.readline() == "done\n"
        writer.kill()
    assert ".lock" in files(tmp_path)
    with Checkpoint(tmp_path, {"seed": 1}) as checkpoint:
        assert checkpoint.num_chunks == 1
    assert files(tmp_path) == ["chunk_000000.npz", "manifest.json"]


def test_a_forked_child_neither_has_nor_keeps_the_lock(tmp_path):
    code = """
import time
checkpoint = Checkpoint(sys.argv[1], {"seed": 1})
say, hear = os.pipe()
if os.fork() == 0:
    try:
        checkpoint.append(0, {"draws": np.arange(3)})
    except ValueError as error:
        print("not open for writing" in str(error), flush=True)
    del checkpoint
    print(os.path.exists(sys.argv[1] + "/.lock"), flush=True)
    os.close(hear)
    os.read(say, 1)  # until the parent ends
    for _ in range(500):  # its lock may outlive the pipe by a moment
        try:
            Checkpoint(sys.argv[1], {"seed": 1}).close()
            print("let in", flush=True)
            break
        except BlockingIOError:
            time.sleep(0.02)
else:
    os.close(say)
    os.read(0, 1)
    os._exit(0)
"""
    with subprocess.Popen(command(code, tmp_path), **PIPES) as process:
        lines = [process.stdout.readline() for _ in range(2)]
        process.stdin.write("\n")
        process.stdin.flush()
        lines += process.stdout.readlines()
    assert lines == ["True\n", "True\n", "let in\n"]


def leave_lock(path, **changes):
    """What a process that was killed leaves in a directory."""
    holder = {"pid": dead_process(), "host": host_name(), "started": ""} | changes
    (path / ".lock").write_text(json.dumps(holder))


@pytest.mark.parametrize("has_system_locks", [True, False])
def test_a_lock_of_another_host_is_respected(tmp_path, monkeypatch, has_system_locks):
    if not has_system_locks:
        monkeypatch.setattr(run_lock, "fcntl", None)
    filled(tmp_path, 1)
    leave_lock(tmp_path, host="another-host", pid=12)
    with pytest.raises(BlockingIOError, match="12 on host another-host") as raised:
        Checkpoint(tmp_path, IDENTITY)
    assert f"delete {tmp_path / '.lock'}" in str(raised.value)
    (tmp_path / ".lock").unlink()
    assert Checkpoint(tmp_path, IDENTITY).num_chunks == 1


def test_without_system_locks_the_file_decides(tmp_path, monkeypatch):
    monkeypatch.setattr(run_lock, "fcntl", None)
    filled(tmp_path, 1)
    leave_lock(tmp_path)
    assert Checkpoint(tmp_path, IDENTITY).num_chunks == 1
    # Our parent lives, but a process that began at another time had its number.
    leave_lock(tmp_path, pid=os.getppid(), started="1")
    assert Checkpoint(tmp_path, IDENTITY).num_chunks == 1
    leave_lock(tmp_path, pid=os.getppid())
    with pytest.raises(BlockingIOError, match=f"process {os.getppid()} on host"):
        Checkpoint(tmp_path, IDENTITY)
    for text in ("", "{", "[]", '{"pid": "x"}'):
        (tmp_path / ".lock").write_text(text)
        with pytest.raises(
            BlockingIOError, match=r"does not name.*delete .*\.lock and"
        ):
            Checkpoint(tmp_path, IDENTITY)
    # One that was killed while it took the lock over.
    leave_lock(tmp_path)
    (tmp_path / ".lock.takeover").touch()
    with pytest.raises(BlockingIOError, match=r"delete .*\.lock\.takeover and"):
        Checkpoint(tmp_path, IDENTITY)
