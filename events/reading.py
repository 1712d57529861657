"""Reading a log's file: from any thread, page by page, so that no reader stands in a writer's way."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import msgspec

from rewake.events import opening, schema
from rewake.events.base import Recorded
from rewake.events.codec import Undecodable, decode, stored_kinds
from rewake.events.errors import LogCorrupt, LogFailed
from rewake.events.log import Row, Snapshot
from rewake.events.opening import ERRORS, damage
from rewake.events.tail import unsealed

CONNECTIONS = 8
"""How many read at once; further threads wait for one query to end, never for an iterator."""

PAGE = 2_000
PAGE_BYTES = 4 * 1024 * 1024
CHUNK = 100
VARIABLES = 500
"""Parameters of one query."""

# `data` comes as bytes: what is no UTF-8 is then found with the seq that it has.
COLUMNS = "seq, at, stream, version, cause, read, kind, CAST(data AS BLOB)"

NONE = type(None)
TYPES = frozenset(
    (int, int, int, int, cause, int, str, bytes, *more)
    for cause in (int, NONE)
    for more in ((), (int, bytes), (int, NONE))
)
"""The types that a row has, of COLUMNS alone or with `rest` and `digest`."""


class Reader:
    """The questions that a log's file answers. Each takes a connection for one query and gives it back.

    `check` raises LogFailed where there is another file at the path now.
    """

    def __init__(self, path: str, busy_timeout: float, check: Callable[[], None]) -> None:
        self._path = path
        self._check = check
        self._busy_timeout = busy_timeout
        self._idle: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._room = threading.BoundedSemaphore(CONNECTIONS)
        self._closed = False
        self._names: dict[int, str] = {}
        self._paged = False

    @contextmanager
    def connection(self) -> Generator[sqlite3.Connection]:
        """A connection that can only read."""
        with self._room:
            conn = self._taken() or self._connect()
            try:
                yield conn
            except BaseException:
                conn.close()
                raise
            self._back(conn)

    def _taken(self) -> sqlite3.Connection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _back(self, conn: sqlite3.Connection) -> None:
        with self._lock:
            if not self._closed and not isinstance(conn, opening.Momentary):
                self._idle.append(conn)
                return
        conn.close()

    def _connect(self) -> sqlite3.Connection:
        if self._closed:
            raise LogFailed("the log is closed")
        self._check()
        conn = opening.reading(self._path, self._busy_timeout)
        conn.execute("PRAGMA query_only = ON")
        return conn

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for conn in idle:
            conn.close()

    def one(self, sql: str, *parameters: Any) -> Any:
        """The first column of the first row; None when there is none."""
        rows = self.all(sql, *parameters)
        return rows[0][0] if rows else None

    def all(self, sql: str, *parameters: Any) -> list[Any]:
        try:
            with self.connection() as conn:
                return conn.execute(sql, parameters).fetchall()
        except ERRORS as error:
            if damage(error):
                raise LogCorrupt(0, f"the file is damaged: {error}", path=self._path) from error
            raise LogFailed(f"reading failed: {error}") from error

    def integrity(self) -> str:
        try:
            found = self.all("PRAGMA integrity_check(10)")
        except LogCorrupt as corrupt:
            return corrupt.reason
        return "" if found == [("ok",)] else "; ".join(str(line) for (line,) in found)

    def head(self) -> int:
        return self.one("SELECT max(seq) FROM log") or 0

    def version(self, stream: str) -> int:
        sql = "SELECT max(version) FROM log WHERE stream = (SELECT id FROM streams WHERE name = ?)"
        return self.one(sql, stream) or 0

    def streams(self) -> dict[str, int]:
        # CROSS: the streams come first, or SQLite would rather scan the log than sort their names.
        sql = """SELECT name, (SELECT max(version) FROM log WHERE stream = id) FROM streams
        CROSS JOIN log ON stream = id AND version = 1 ORDER BY seq"""
        return dict(self.all(sql))

    def snapshots(self, stream: str) -> list[Snapshot]:
        """Those of a file of an older format are of no use, nor one that is not what was kept."""
        if not self._paged and self.one("SELECT value FROM meta WHERE key = 'format'") < schema.FORMAT:
            return []
        self._paged = True
        sql = """SELECT version, read, code, coalesce(CAST(state AS BLOB), x''), coalesce(CAST(pages AS BLOB), x'')
        FROM snapshots WHERE stream = ? ORDER BY version DESC, read DESC"""
        found = (unsealed(stream, *row) for row in self.all(sql, stream))
        return [snapshot for snapshot in found if snapshot]

    def snapshot_pages(self, digests: Iterable[bytes]) -> dict[bytes, bytes]:
        wanted = list(digests)
        found: dict[bytes, bytes] = {}
        for start in range(0, len(wanted), VARIABLES):
            some = wanted[start : start + VARIABLES]
            marks = ", ".join("?" * len(some))
            found |= dict(self.all(f"SELECT digest, data FROM pages WHERE digest IN ({marks})", *some))
        return found

    def read(
        self, after: int, last: int, stream: str | None, kinds: Iterable[str] | None, after_version: int = 0
    ) -> Iterator[Recorded]:
        if after >= last:
            return
        wanted = None if kinds is None else frozenset(kinds)
        where, parameters = self._filter(stream, wanted)
        if stream is None or stream.endswith("*"):
            pages = self._pages(COLUMNS, where, "seq", after, last, parameters)
        else:
            pages = self._stream_pages(where, after, last, after_version, parameters)
        names = self._names
        for page in pages:
            for seq, at, stream_id, version, cause, read, kind, data in page:
                try:
                    event = decode(kind, data)
                except Undecodable as error:
                    raise LogCorrupt(seq, str(error)) from error
                if wanted is not None and event.kind not in wanted:
                    continue
                name = names.get(stream_id) or self._name(stream_id, seq)
                yield Recorded(seq, at, name, version, cause, read, event)

    def raw(self, after: int, last: int) -> Iterator[Row]:
        for page in self._pages(f"{COLUMNS}, rest, digest", "", "seq", after, last, ()):
            for seq, at, stream, version, cause, read, kind, data, rest, digest in page:
                try:
                    text = data.decode()
                except UnicodeDecodeError as error:
                    raise LogCorrupt(seq, f"its data is no text: {error}") from error
                name = self._names.get(stream) or self._name(stream, seq)
                yield Row(seq, at, name, version, cause, read, kind, text, rest, digest)

    def _filter(self, stream: str | None, kinds: frozenset[str] | None) -> tuple[str, tuple[Any, ...]]:
        where, parameters = "", ()
        if stream is not None and stream.endswith("*"):
            where += " AND +stream IN (SELECT id FROM streams WHERE substr(name, 1, ?) = ?)"
            parameters += (len(stream) - 1, stream[:-1])
        elif stream is not None:
            where += " AND stream = (SELECT id FROM streams WHERE name = ?)"
            parameters += (stream,)
        if kinds is not None:
            where += " AND kind IN (SELECT value FROM json_each(?))"
            parameters += (msgspec.json.encode(sorted(stored_kinds(kinds))).decode(),)
        return where, parameters

    def _stream_pages(
        self, where: str, after: int, last: int, start: int, parameters: tuple[Any, ...]
    ) -> Iterator[list[tuple[Any, ...]]]:
        """One stream by its index: searched backwards for where to begin, so a short tail is a short search."""
        sql = "SELECT version FROM log WHERE stream = (SELECT id FROM streams WHERE name = ?) AND +seq <= ?"
        if after > 0:
            start = max(start, self.one(f"{sql} ORDER BY version DESC LIMIT 1", parameters[0], after) or 0)
        where = f" AND +seq <= {last}{where}"
        return self._pages(COLUMNS, where, "version", start, 2**62, parameters)

    def _pages(
        self, columns: str, where: str, key: str, after: int, last: int, parameters: tuple[Any, ...]
    ) -> Iterator[list[tuple[Any, ...]]]:
        """Pages of rows with `after` < `key` ≤ `last`. Between two pages no transaction is open."""
        sql = f"SELECT {columns} FROM log WHERE {key} > ? AND {key} <= ?{where} ORDER BY {key}"
        column = 0 if key == "seq" else 3
        good = after if key == "seq" else 0
        more = True
        while more:
            rows, more = self._page(sql, (after, last, *parameters), good)
            if rows:
                good, after = rows[-1][0], rows[-1][column]
                yield rows

    def _page(self, sql: str, parameters: tuple[Any, ...], good: int) -> tuple[list[tuple[Any, ...]], bool]:
        """Some rows behind the `good` ones, and whether there may be more."""
        rows: list[tuple[Any, ...]] = []
        room = PAGE_BYTES
        try:
            with self.connection() as conn, closing(conn.execute(sql, parameters)) as cursor:
                while chunk := cursor.fetchmany(CHUNK):
                    if place := odd(chunk):
                        rows += chunk[: place - 1]
                        if rows:
                            return rows, True
                        raise LogCorrupt(good + 1, "the file is damaged: a value is not of its column's type")
                    rows += chunk
                    room -= sum([len(row[7]) for row in chunk])
                    if len(rows) >= PAGE or room < 0:
                        return rows, True
                return rows, False
        except ERRORS as error:
            if not damage(error):
                raise LogFailed(f"reading failed: {error}") from error
            if rows := self._undamaged(sql, parameters):
                return rows, True
            raise LogCorrupt(good + 1, f"the file is damaged: {error}") from error

    def _undamaged(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """The rows before the damage, one by one."""
        rows: list[tuple[Any, ...]] = []
        with (
            suppress(*ERRORS),
            self.connection() as conn,
            closing(conn.execute(sql, parameters)) as cursor,
        ):
            while (row := cursor.fetchone()) and not odd([row]) and len(rows) < PAGE:
                rows.append(row)
        return rows

    def _name(self, stream_id: int, seq: int) -> str:
        self._names.update(self.all("SELECT id, name FROM streams"))
        if (name := self._names.get(stream_id)) is None:
            raise LogCorrupt(seq, f"its stream, number {stream_id}, has no name")
        return name


def odd(rows: list[tuple[Any, ...]]) -> int:
    """Which row, from 1, has a value that is not of its column's type, as no writer writes one; 0: none."""
    return next((place for place, row in enumerate(rows, 1) if tuple(map(type, row)) not in TYPES), 0)
