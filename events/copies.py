"""Files made from a log: each whole at its path, or not there."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress

from rewake.events import opening, schema, tail
from rewake.events.acknowledged import Acknowledged
from rewake.events.errors import LogCorrupt, LogFailed, OutputRefused

BESIDE = ("", "-wal", "-shm", "-journal", "-head")
"""What would be taken for a part of a log at that path: by SQLite, or as its writer's note."""


@contextmanager
def fresh(path: str | os.PathLike[str]) -> Generator[str]:
    """A path beside `path` to write a file at, which is moved to `path` at the end of the block, unless that raises.

    Raises OutputRefused where something is there already, or nothing can be: no space is left, too. A log that is made there
    fails as if it were at `path`.
    """
    target = os.path.realpath(path)
    free(target)
    try:
        folder = tempfile.mkdtemp(prefix=".rewake-", dir=os.path.dirname(target))
    except OSError as error:
        raise OutputRefused(target, error.strerror or str(error)) from error
    made = os.path.join(folder, os.path.basename(target))
    try:
        yield made
        move(made, target)
    except OSError as error:
        raise OutputRefused(target, error.strerror or str(error)) from error
    except LogFailed as error:
        raise type(error)(error.reason.replace(made, target)) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def free(path: str) -> None:
    """Raises OutputRefused unless a file can be made there."""
    for end in BESIDE:
        if os.path.lexists(path + end):
            raise OutputRefused(path + end, "it is there already, and nothing is overwritten: name another file")
    if not os.path.isdir(os.path.dirname(path)):
        raise OutputRefused(path, "there is no such directory")


def move(made: str, target: str) -> None:
    """To its place, durably. What has come there meanwhile stays."""
    with open(made, "rb") as file:
        os.fsync(file.fileno())
    try:
        os.link(made, target)
    except FileExistsError:
        free(target)
    except OSError:  # a file system without links
        free(target)
        os.rename(made, target)
    with suppress(OSError):
        folder = os.open(os.path.dirname(target), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def backup(log_path: str | os.PathLike[str], path: str | os.PathLike[str], *, busy_timeout: float = 5.0) -> None:
    """Copy a log, also while it is written, into a new file: as it stood at one moment, snapshots included.

    It stands in no writer's way. Raises NotALog, LogCorrupt or LogFailed for the log, OutputRefused for the copy. A log that
    has lost acknowledged events is not copied: the copy would look whole.
    """
    source = os.path.realpath(log_path)
    note = Acknowledged(source)
    known = note.seq()
    opening.ensure(source, True, busy_timeout)
    with fresh(path) as made:
        try:
            with closing(opening.reading(source, busy_timeout)) as log, closing(sqlite3.connect(made)) as copy:
                log.backup(copy)
                if why := note.lost(head := tail.head(copy), known):
                    raise LogCorrupt(head + 1, why, path=source, last_good_seq=head)
        except sqlite3.Error as error:
            match opening.code(error):
                case sqlite3.SQLITE_FULL:
                    raise opening.failed(error, made) from error
                case sqlite3.SQLITE_IOERR:
                    raise LogFailed(f"{made}: {error}, here or in {source}") from error
                case _:
                    raise opening.unopened(error, source) from error


def outrank(path: str, epoch: int) -> None:
    """The next writer of the log at `path` has a higher epoch than this one."""
    with closing(opening.connect(path, "rw", 0)) as conn, schema.transaction(conn):
        conn.execute("UPDATE writer SET epoch = max(epoch, ?), pid = NULL, since = NULL", (epoch,))
