"""Opening a log's file: what it must be, what it may become, and how SQLite's refusals read."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing, suppress

from rewake.events import schema
from rewake.events.errors import LogCorrupt, LogError, LogFailed, LogFull, NotALog

POLL = 0.01
EXPORTED = b'{"export":"rewake",'
"""How a log begins that was written out as lines."""

ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""What SQLite's module raises: the second where its own message quotes a damaged file."""

MARK = slice(68, 72)
"""Where the header of a database has its `application_id`."""


def connect(path: str, mode: str, busy_timeout: float) -> sqlite3.Connection:
    """A connection in SQLite's `mode`, that waits for other connections' locks and begins no transaction by itself."""
    uri = schema.uri(path, mode)
    return sqlite3.connect(uri, uri=True, timeout=busy_timeout, isolation_level=None, check_same_thread=False)


class Momentary(sqlite3.Connection):
    """Takes the file for one that nobody writes: for one query, since a writer may come who can."""


def reading(path: str, busy_timeout: float) -> sqlite3.Connection:
    """A connection that can only read; Momentary where SQLite could not make the files that readers and writers share."""
    if not settled(path):
        return connect(path, "ro", busy_timeout)
    uri = schema.uri(path, "ro&immutable=1")
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, factory=Momentary)


def settled(path: str) -> bool:
    """Whether the file is all that there is of the log, in a directory that is not writable."""
    if os.access(os.path.dirname(path), os.W_OK):
        return False
    wal = path + "-wal"
    return not os.path.exists(wal) or not (os.path.getsize(wal) or os.path.exists(path + "-shm"))


def written(path: str) -> bool:
    """Whether a process has the right to write the log (or may have it: its lock can not be looked at)."""
    try:
        import fcntl  # not everywhere

        with open(path + ".lock", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except (ImportError, OSError):
        return True
    return False


def use_wal(conn: sqlite3.Connection, patience: float) -> None:
    """Write ahead from here on. SQLite itself does not wait for a lock here, so this does."""
    deadline = time.monotonic() + patience
    while conn.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            conn.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(POLL)


def ensure(path: str, readonly: bool, busy_timeout: float) -> None:
    """Raises NotALog unless there is a log at `path`, or one could be made there."""
    try:
        if why := absent(path):
            if readonly or not possible(path):
                raise NotALog(path, why)
            if os.path.exists(path) and os.path.exists(path + ".lock"):
                raise LogCorrupt(0, f"{path} is empty and was a log once: delete it and {path}.lock to begin anew")
            with closing(connect(path, "rwc", busy_timeout)) as conn:
                schema.create(conn)
                use_wal(conn, busy_timeout)
        with closing(reading(path, busy_timeout)) as conn:
            schema.check(conn, path)
    except ERRORS as error:
        raise unopened(error, path) from error


def absent(path: str) -> str | None:
    """Why there is nothing to read, if so. The file is not opened: closing it would drop SQLite's own locks on it."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return "there is no such file" if os.path.isdir(os.path.dirname(path)) else "there is no such directory"
    except OSError as error:
        return error.strerror or str(error)
    if not os.path.isfile(path):
        return "it is not a file"
    return None if status.st_size else "it is an empty file"


def possible(path: str) -> bool:
    """Whether a log could be made where nothing is."""
    return os.path.isfile(path) or (not os.path.lexists(path) and os.path.isdir(os.path.dirname(path)))


def unopened(error: Exception, path: str) -> LogError:
    """Why a file does not open."""
    if damage(error):
        if code(error) == sqlite3.SQLITE_NOTADB and not marked(path):
            return NotALog(path, foreign(path))
        return damaged(path, error)
    match code(error):
        case sqlite3.SQLITE_READONLY if not forbidden(path):
            return damaged(path, error)
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return LogFailed(f"{path}: {forbidden(path) or error}")
        case _:
            return failed(error, path)


def damage(error: Exception) -> bool:
    """Whether an error of one of our own statements tells of a damaged file: one that has lost a table or a column too. A
    text that is none has no code.
    """
    if not (primary := code(error)):
        return isinstance(error, sqlite3.OperationalError | UnicodeDecodeError)
    return primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)


def damaged(path: str, error: object) -> LogCorrupt:
    kept = "nothing of it can be read: go back to a copy that `rewake backup` has made"
    return LogCorrupt(0, f"{path} is damaged ({error}); {kept}", path=path)


def marked(path: str) -> bool:
    """Whether a file that is no database was a log's once. (Nobody has SQLite's locks on it in this process.)"""
    with suppress(OSError), open(path, "rb") as file:
        return file.read(MARK.stop)[MARK] == schema.APPLICATION.to_bytes(4)
    return False


def foreign(path: str) -> str:
    """What a file is that is no database: a log written out as lines begins with its header."""
    with open(path, "rb") as file:
        exported = file.read(len(EXPORTED)) == EXPORTED
    if exported:
        return f"it is an export of a log: `rewake import NEW.db {path}` makes a log of it"
    return "it is no SQLite database"


def forbidden(path: str) -> str:
    """What may not be done here, of all that opening a log needs; empty when nothing stands in the way."""
    there, writable = os.path.exists(path), os.access(os.path.dirname(path), os.W_OK)
    if there and not os.access(path, os.R_OK):
        return "no permission to read it"
    if there and not writable and os.path.exists(path + "-wal"):
        return "its directory is not writable and it has a write-ahead log: copy both files to where you may write"
    if there and not os.access(path, os.W_OK):
        return "no permission to write it"
    return "" if writable else "no permission to write in its directory"


def failed(error: Exception, path: str) -> LogFailed:
    """Why a commit failed."""
    match code(error):
        case sqlite3.SQLITE_FULL:
            return LogFull(f"{path}: no space left ({error})")
        case sqlite3.SQLITE_IOERR if no_space(path):
            return LogFull(f"{path}: no space left ({error})")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return LogFailed(f"busy: another connection holds a lock on {path} ({error})")
        case _:
            return LogFailed(f"{path}: {error}")


def code(error: Exception) -> int:
    """SQLite's primary code; 0 for what Python's own module raises."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def no_space(path: str) -> bool:
    """Whether the file system has less than a page left."""
    try:
        status = os.statvfs(os.path.dirname(path))
    except (OSError, AttributeError):
        return False
    return status.f_bavail * status.f_frsize < 4096
