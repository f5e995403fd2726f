"""Files that are written all or nothing, by many threads at once too."""

import os
import threading

import numpy as np
import pytest

from tfp_lhnn.posterior import html_report
from tfp_lhnn.support.atomic_files import TemporaryName, write_atomically
from tfp_lhnn.support.npz_files import read_npz, write_npz
from tfp_lhnn.support.processes import host_name, is_running, start_time


def files(directory):
    return sorted(os.listdir(directory))


def test_a_file_appears_complete_or_not_at_all(tmp_path):
    path = tmp_path / "file.txt"
    seen = []

    def write(file):
        file.write(b"half")
        seen.extend(files(tmp_path))
        if path.exists():
            raise RuntimeError("stop")
        file.write(b" and half")

    write_atomically(path, write)
    assert path.read_bytes() == b"half and half"
    with pytest.raises(RuntimeError, match="stop"):
        write_atomically(path, write)
    assert path.read_bytes() == b"half and half"
    assert files(tmp_path) == ["file.txt"]
    first, *_ = seen
    assert TemporaryName.parse(first) == ("file.txt", host_name(), os.getpid())


def test_threads_do_not_share_a_temporary_file(tmp_path):
    path = tmp_path / "file.npz"
    both = threading.Barrier(2)
    names, errors = [], []

    def work(value):
        def write(file):
            names.append(file.name)
            both.wait(10.0)
            file.write(value * 1000)

        try:
            write_atomically(path, write)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=[value]) for value in (b"a", b"b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(set(names)) == 2
    assert path.read_bytes() in (b"a" * 1000, b"b" * 1000)
    assert files(tmp_path) == ["file.npz"]


def test_threads_write_one_npz_file(tmp_path):
    path = tmp_path / "file.npz"
    errors = []

    def work(value):
        try:
            for _ in range(50):
                write_npz(path, 1, {"x": np.full(1000, value)})
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=[value]) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(set(read_npz(path, 1, ["x"], "test")["x"])) == 1


def test_what_a_dead_process_of_the_same_id_left_is_not_touched(tmp_path):
    path = tmp_path / "file"
    names = []
    write_atomically(path, lambda file: names.append(os.path.basename(file.name)))
    stem, number, _ = names[0].rsplit(".", 2)
    old = [f"{stem}.{int(number) + i}.tmp" for i in range(1, 4)]
    for name in old:
        (tmp_path / name).write_text("old")
    write_atomically(path, lambda file: file.write(b"new"))
    assert files(tmp_path) == sorted([*old, "file"])
    assert path.read_text() == "new"


@pytest.mark.parametrize("name", ["x" * 255, "ü" * 120 + ".npz"])
def test_long_names(tmp_path, name):
    write_atomically(tmp_path / name, lambda file: file.write(b"1"))
    assert files(tmp_path) == [name]


@pytest.mark.parametrize("name", ["a.tmp", ".a.1.tmp", ".thesis.tex.1.tmp", ".lock"])
def test_names_of_others(name):
    assert TemporaryName.parse(name) is None


def test_durable_files_are_flushed_and_others_are_not(tmp_path, monkeypatch):
    flushed = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    write_atomically(tmp_path / "a", lambda file: file.write(b"1"))
    assert not flushed
    write_atomically(tmp_path / "a", lambda file: file.write(b"1"), durable=True)
    assert len(flushed) == 2  # the file and its directory


def test_the_report_is_written_so_too(tmp_path, monkeypatch):
    monkeypatch.setattr(html_report, "summarize", lambda data: None)
    monkeypatch.setattr(html_report, "_page", lambda *_: "page ü")
    names = []
    replace = os.replace

    def stop(source, target):
        names.append(os.path.basename(source))
        replace(source, target)

    monkeypatch.setattr(os, "replace", stop)
    path = html_report.report(None, tmp_path / "new" / "report.html")
    assert path.read_text(encoding="utf-8") == "page ü"
    assert TemporaryName.parse(names[0]) is not None


def test_processes():
    assert is_running(os.getpid())
    assert is_running(os.getpid(), start_time(os.getpid()))
    assert is_running(1)
    for pid in (0, -1, 2**40):
        assert not is_running(pid)
    if start_time(1):
        assert not is_running(os.getpid(), start_time(1))
