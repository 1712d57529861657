"""One writer per log: a lock that dies with its process, and that every other name of the same file meets too."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import ClassVar

from filelock import FileLock, Timeout
from msgspec import Struct

POLL = 0.02
NOWHERE = (0, 0)


class Holder(Struct, frozen=True):
    """The writer that this process has on a file."""

    pid: int
    path: str
    since: int


class WriterLock:
    """The right to write the log at `path`.

    Between processes it is a lock on the file `<path>.lock`. Inside this one it is a register of the files themselves,
    since a second runtime may come by another name (a link, a relative path). A refused attempt opens no descriptor of
    the log: closing one would drop the locks that SQLite has on it in this process.
    """

    _held: ClassVar[dict[tuple[int, int], Holder]] = {}
    _register: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, path: str) -> None:
        self._path = os.path.realpath(path)
        self._file = FileLock(self._path + ".lock", thread_local=False)
        self._key: tuple[int, int] | None = None

    @classmethod
    def holder(cls, path: str) -> Holder | None:
        """Who writes this file in this process."""
        holder = cls._held.get(identity(path) or NOWHERE)
        return holder if holder and holder.pid == os.getpid() else None

    def acquire(self, timeout: float) -> bool:
        """Take the lock, waiting at most `timeout` seconds for another writer to leave."""
        deadline = time.monotonic() + timeout
        while not self._attempt():
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL)
        return True

    def _attempt(self) -> bool:
        with self._register:
            if self.holder(self._path):
                return False
            try:
                self._file.acquire(timeout=0)
            except Timeout:
                return False
            self._key = identity(self._path) or NOWHERE
            self._held[self._key] = Holder(os.getpid(), self._path, time.time_ns() // 1_000_000)
            return True

    def there(self) -> bool:
        """Whether what is at the path is still the file that is written, if one is."""
        return self._key is None or identity(self._path) == self._key

    def release(self) -> None:
        with self._register:
            if self._key is not None:
                self._held.pop(self._key, None)
                self._key = None
                with suppress(OSError):
                    self._file.release()


def identity(path: str) -> tuple[int, int] | None:
    """What a file is, by whatever name; None where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def alive(pid: int | None) -> bool:
    """Whether there is such a process, as far as this one can see."""
    if pid is None or os.name != "posix":
        return pid is not None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
