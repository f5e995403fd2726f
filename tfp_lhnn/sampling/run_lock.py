"""One writer at a time: a lock on a directory that ends with its process."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import pathlib
import weakref
from typing import NamedTuple

from tfp_lhnn.support.processes import host_name, is_running, start_time

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["LOCK_NAMES", "RunLock"]

_LOCK = ".lock"
# Held while a dead process's lock is replaced, where the system has no locks.
_TAKE_OVER = ".lock.takeover"
LOCK_NAMES = (_LOCK, _TAKE_OVER)

_NO_SYSTEM_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP)

# A lock file of ours is shorter.
_MOST_BYTES = 1000

# After so many attempts the name is taken but cannot be opened: a broken link.
_MOST_TRIES = 100

# Lock files that this process holds. A forked child has copies of them, which would
# keep the locks when the parent is gone.
_open_files: set[io.FileIO] = set()


def _forget_after_fork() -> None:
    for file in _open_files:
        file.close()
    _open_files.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


class _Holder(NamedTuple):
    """What a lock file says of the process that made it.

    Attributes:
        pid: its id.
        host: where it runs.
        started: its `start_time`.
    """

    pid: int
    host: str
    started: str

    @property
    def is_gone(self) -> bool:
        """Whether it has surely ended; false for a process of another host."""
        return self.host == host_name() and not is_running(self.pid, self.started)


class RunLock:
    """The right to write to a directory, from construction to `release`.

    The file `.lock` says who has the directory. The operating system locks that file,
    and unlocks it however the process ends. On file systems without such locks, the
    file itself is the lock. It is then taken over if the process that it names ran on
    this host and has ended.

    It is released by `release`, when the object is collected, and at exit. A forked
    child does not have it.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        """Takes the lock, or says who has it.

        Args:
            directory: an existing directory.

        Raises:
            BlockingIOError: if another process, or another object of this one, has the
                lock, or if that cannot be found out.
            OSError: if the file cannot be made.
        """
        self._path = directory / _LOCK
        self._file = _acquired(self._path)
        _open_files.add(self._file)
        self._finalizer = weakref.finalize(self, _release, self._file, self._path)

    @property
    def is_held(self) -> bool:
        """Whether this process still has the lock, and nobody removed its file."""
        return not self._file.closed and _is_at(self._file, self._path)

    def release(self) -> None:
        """Gives up the lock; a second call does nothing."""
        self._finalizer()


def _release(file: io.FileIO, path: pathlib.Path) -> None:
    if file.closed:
        return  # in a forked child
    _open_files.discard(file)
    # Removed before it is unlocked: afterwards another process may own it.
    with contextlib.suppress(OSError):
        if _is_at(file, path):
            path.unlink()
    file.close()


def _acquired(path: pathlib.Path) -> io.FileIO:
    while True:
        file, is_new = _opened(path)
        try:
            is_ours = _system_lock(file)
            if is_ours is False:
                raise _refusal(path, _holder(file))
            if not _is_at(file, path):
                # Its last holder removed it just now.
                file.close()
                continue
            if not is_new:
                _check_left_behind(path, file, has_system_lock=is_ours is True)
                if is_ours is None:
                    file.close()
                    _remove_left_behind(path)
                    continue
            _write_holder(file)
            return file
        except BaseException:
            file.close()
            raise


def _opened(path: pathlib.Path) -> tuple[io.FileIO, bool]:
    """The lock file, and whether this call made it."""
    # Windows removes the file when the process ends.
    flags = os.O_RDWR | getattr(os, "O_TEMPORARY", 0) | getattr(os, "O_BINARY", 0)
    for _ in range(_MOST_TRIES):
        with contextlib.suppress(FileExistsError):
            new = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
            return io.FileIO(new, "r+"), True
        # Its holder may remove it in between.
        with contextlib.suppress(FileNotFoundError):
            return io.FileIO(os.open(path, flags), "r+"), False
    raise _refusal(path, None)


def _system_lock(file: io.FileIO) -> bool | None:
    """Tries to lock the open file; `None` if there are no such locks here."""
    if fcntl is None:
        return None
    try:
        # The lock belongs to this opening of the file, so it also keeps out other
        # threads and objects of this process.
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _NO_SYSTEM_LOCKS:
            return None
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def _check_left_behind(
    path: pathlib.Path, file: io.FileIO, *, has_system_lock: bool
) -> None:
    """Refuses a file that was there before, unless its process is surely gone."""
    holder = _holder(file)
    if has_system_lock and (holder is None or holder.host == host_name()):
        return
    # A lock that another host has on the file may be invisible here.
    if holder is None or not holder.is_gone:
        raise _refusal(path, holder)


def _remove_left_behind(path: pathlib.Path) -> None:
    """Removes a dead process's lock file. If several try at once, one succeeds."""
    guard = path.with_name(_TAKE_OVER)
    try:
        os.close(os.open(guard, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666))
    except FileExistsError:
        raise _refusal(guard, None) from None
    try:
        with contextlib.suppress(FileNotFoundError), io.FileIO(path, "r") as file:
            # Another process may have taken the lock over since the first look.
            _check_left_behind(path, file, has_system_lock=False)
            path.unlink()
    finally:
        guard.unlink(missing_ok=True)


def _is_at(file: io.FileIO, path: pathlib.Path) -> bool:
    """Whether the open file is the one under that name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def _holder(file: io.FileIO) -> _Holder | None:
    """Who made the lock file; `None` if it does not say."""
    try:
        file.seek(0)
        fields = json.loads(file.read(_MOST_BYTES) or b"")
        return _Holder(int(fields["pid"]), str(fields["host"]), str(fields["started"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_holder(file: io.FileIO) -> None:
    holder = _Holder(os.getpid(), host_name(), start_time(os.getpid()))
    file.seek(0)
    file.truncate()
    file.write(json.dumps(holder._asdict()).encode())


def _refusal(path: pathlib.Path, holder: _Holder | None) -> BlockingIOError:
    if holder is None:
        who = "a process that its lock file does not name"
    elif holder.host != host_name():
        who = f"process {holder.pid} on host {holder.host}, which can't be asked here"
    elif holder.pid == os.getpid():
        who = f"this very process, {holder.pid} on host {holder.host}"
    else:
        who = f"process {holder.pid} on host {holder.host}"
    return BlockingIOError(
        errno.EAGAIN,
        f"the checkpoint is in use by {who}. Wait for it to end or to close the "
        "checkpoint, or give another directory; if you know that it is dead, delete "
        f"{path} and call again. The directory is",
        str(path.parent),
    )
