"""The log's file: its tables, what keeps them append-only, and whether a file is one."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from rewake.events.errors import LogCorrupt, NotALog

APPLICATION = 0x72_77_6B_31
"""`application_id` of a log's file: "rwk1"."""

FORMAT = 2
"""The newest format that this version reads, and the one that it writes. 1 had no `pages`."""

DIGEST = 16
"""Bytes of a page's digest."""

TABLES: dict[str, dict[str, Any]] = {
    "meta": {"columns": {"key": str, "value": int}, "pk": "key", "not_null": {"value"}},
    "writer": {"columns": {"id": int, "epoch": int, "pid": int, "since": int}, "pk": "id", "not_null": {"epoch"}},
    "streams": {"columns": {"id": int, "name": str}, "pk": "id", "not_null": {"name"}},
    "log": {
        "columns": {
            "seq": int,
            "at": int,
            "stream": int,
            "version": int,
            "cause": int,
            "read": int,
            "kind": str,
            "data": str,
            "rest": int,
            "digest": bytes,
        },
        "pk": "seq",
        "not_null": {"at", "stream", "version", "read", "kind", "data", "rest"},
    },
    "snapshots": {
        "columns": {"stream": str, "version": int, "read": int, "code": str, "state": bytes, "pages": bytes},
        "pk": ("stream", "version", "read"),
        "not_null": {"code", "state", "pages"},
    },
    "pages": {"columns": {"digest": bytes, "data": bytes}, "pk": "digest", "not_null": {"data"}},
}

REST = (
    "CREATE UNIQUE INDEX log_stream_version ON log(stream, version)",
    "CREATE UNIQUE INDEX streams_name ON streams(name)",
    """CREATE VIEW events AS
    SELECT log.seq, log.at, streams.name AS stream, log.version, log.cause, log.read, log.kind, log.data
    FROM log JOIN streams ON streams.id = log.stream""",
    "INSERT INTO writer VALUES (1, 0, NULL, NULL)",
    f"INSERT INTO meta VALUES ('format', {FORMAT})",
    f"PRAGMA application_id = {APPLICATION}",
)

NEVER = "append-only: what was recorded is never changed"

TRIGGERS = {
    "log_update": f"BEFORE UPDATE ON log BEGIN SELECT RAISE(ABORT, '{NEVER}'); END",
    "log_delete": f"BEFORE DELETE ON log BEGIN SELECT RAISE(ABORT, '{NEVER}'); END",
    "streams_update": f"BEFORE UPDATE ON streams BEGIN SELECT RAISE(ABORT, '{NEVER}'); END",
    "streams_delete": f"BEFORE DELETE ON streams BEGIN SELECT RAISE(ABORT, '{NEVER}'); END",
    "events_update": f"INSTEAD OF UPDATE ON events BEGIN SELECT RAISE(ABORT, '{NEVER}'); END",
    "events_delete": f"INSTEAD OF DELETE ON events BEGIN SELECT RAISE(ABORT, '{NEVER}'); END",
    "events_insert": "INSTEAD OF INSERT ON events BEGIN SELECT RAISE(ABORT, 'append-only: by the writer alone'); END",
    # REPLACE deletes without the delete triggers, unless its connection asked for them: so nothing is taken twice.
    "log_insert": """BEFORE INSERT ON log
    WHEN NEW.seq <> 1 + coalesce((SELECT max(seq) FROM log), 0)
      OR NEW.version <> 1 + coalesce((SELECT max(version) FROM log WHERE stream = NEW.stream), 0)
    BEGIN SELECT RAISE(ABORT, 'append-only: an event comes next in the log and in its stream'); END""",
    "streams_insert": f"""BEFORE INSERT ON streams
    WHEN EXISTS (SELECT 1 FROM streams WHERE id = NEW.id OR name = NEW.name)
    BEGIN SELECT RAISE(ABORT, '{NEVER}'); END""",
}


def create(conn: sqlite3.Connection) -> None:
    """Make an empty file a log, in one transaction; another process may have done so meanwhile."""
    with transaction(conn, "EXCLUSIVE"):
        if conn.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return
        make(conn, *TABLES)
        for statement in REST:
            conn.execute(statement)
        lock(conn)


def make(conn: sqlite3.Connection, *names: str) -> None:
    """Make these tables."""
    from sqlite_utils import Database  # a slow import, for the first time alone

    database = Database(conn, recursive_triggers=False, execute_plugins=False)
    for name in names:
        conn.execute(database.create_table_sql(name, **TABLES[name]))


def upgrade(conn: sqlite3.Connection) -> None:
    """Inside a transaction: make a file of an older format one of this; its snapshots, which nobody needs, are forgotten."""
    (format,) = conn.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
    if format < FORMAT:
        conn.execute("DROP TABLE snapshots")
        make(conn, "snapshots", "pages")
        conn.execute("UPDATE meta SET value = ? WHERE key = 'format'", (FORMAT,))


def digests(joined: bytes) -> tuple[bytes, ...]:
    """The digests of a snapshot's pages, as they are stored: one after the other."""
    return tuple(joined[start : start + DIGEST] for start in range(0, len(joined), DIGEST))


def lock(conn: sqlite3.Connection) -> None:
    """From here on the file itself refuses what is not an append."""
    for name, trigger in TRIGGERS.items():
        conn.execute(f"CREATE TRIGGER {name} {trigger}")


@contextmanager
def unlocked(conn: sqlite3.Connection) -> Generator[None]:
    """Inside a transaction: the file lets its events be changed, until the end of the block."""
    for name in TRIGGERS:
        conn.execute(f"DROP TRIGGER IF EXISTS {name}")
    yield
    lock(conn)


@contextmanager
def transaction(conn: sqlite3.Connection, how: str = "IMMEDIATE") -> Generator[None]:
    """All of the block or nothing of it."""
    conn.execute(f"BEGIN {how}")
    try:
        yield
        conn.execute("COMMIT")
    finally:
        if conn.in_transaction:
            conn.rollback()


def check(conn: sqlite3.Connection, path: str) -> None:
    """Raises NotALog unless the file is a log that this version reads, LogCorrupt where that can not be told any more."""
    (application,) = conn.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION:
        names = {name for (name,) in conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if names >= TABLES.keys():
            raise LogCorrupt(0, f"{path} is damaged: its application_id is {application}", path=path)
        raise NotALog(path, "it is another program's SQLite database" if names else "it is an empty database")
    (found,) = conn.execute("SELECT value FROM meta WHERE key = 'format'").fetchone() or (None,)
    if not isinstance(found, int) or found < 1:
        raise LogCorrupt(0, f"{path} is damaged: its format is {found}", path=path)
    if found > FORMAT:
        raise NotALog(path, f"it has format {found}; this version reads up to {FORMAT}: update rewake")


def uri(path: str, mode: str) -> str:
    """The file as SQLite's URI names it."""
    return f"file:{quote(path)}?mode={mode}"
