"""The log in one SQLite file, by one writer, for any number of readers."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache

from rewake.events import opening, schema, tail
from rewake.events.acknowledged import Acknowledged
from rewake.events.base import Draft, Event, Recorded
from rewake.events.errors import Fenced, LogCorrupt, LogFailed, LogInUse
from rewake.events.lock import POLL, WriterLock, alive
from rewake.events.log import Append, Durability, Outcome, Row, Snapshot
from rewake.events.placing import Heads, Placement, drafts, place
from rewake.events.reading import Reader

WAL_BYTES = 64 * 1024 * 1024
"""What is left of a write-ahead log that a slow reader made larger."""

SIGNING = 0.5
"""How long a writer that has just taken the lock may need to sign with its pid, in seconds."""

AT_ONCE = 64
"""Rows that one statement writes at the most."""


@cache
def inserting(rows: int) -> str:
    """The statement that writes so many rows as long as the epoch is the writer's."""
    values = ", ".join([f"({', '.join('?' * len(Row._fields))})"] * rows)
    return f"INSERT INTO log SELECT * FROM (VALUES {values}) WHERE (SELECT epoch FROM writer) = ?"


class SqliteLog:
    """An append-only log in the file at `path`, which is made when it is not there (`readonly`: NotALog).

    `durability="normal"` survives a killed process, not a power cut. `busy_timeout` is how long a lock that somebody
    else holds on the file is waited out, `lock_timeout` how long another writer; both in seconds.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "full",
        busy_timeout: float = 5.0,
        lock_timeout: float = 0.0,
        readonly: bool = False,
    ) -> None:
        self.path = os.path.realpath(path)
        self.readonly = readonly
        self.durability: Durability = durability
        self.commits = 0
        self.cut = 0
        self.epoch = 0
        self._busy_timeout = busy_timeout
        self._lock_timeout = lock_timeout
        self._process = WriterLock(self.path)
        self._acknowledged = Acknowledged(self.path)
        self._lock = threading.RLock()
        self._conn: sqlite3.Connection | None = None
        self._heads: Heads | None = None
        self._ids: dict[str, int] = {}
        self._sure: set[bytes] = set()
        self._closed = False
        self._refuse_other_names()
        opening.ensure(self.path, readonly, busy_timeout)
        self._reader = Reader(self.path, busy_timeout, self._check_place)

    def append(
        self,
        stream: str,
        expected_version: int,
        events: Sequence[Draft | Event],
        *,
        unmoved: Mapping[str, int] | None = None,
    ) -> list[Recorded]:
        with self._lock:
            with self._failing():
                heads = self._standing(self._writing())
            taken = drafts(events, heads.at)
            (outcome,) = self.commit([Append(stream, expected_version, taken, unmoved or {})])
        if isinstance(outcome, list):
            return outcome
        raise outcome

    def commit(self, appends: Sequence[Append]) -> list[Outcome]:
        with self._lock, self._failing():
            conn = self._writing()
            heads = self._standing(conn)
            placement = place(heads, appends)
            if placement.rows:
                self._write(conn, placement)
                self._check_place()
                self._acknowledged.note(placement.seq)
                placement.settle(heads)
                self.commits += 1
            return placement.outcomes

    def _write(self, conn: sqlite3.Connection, placement: Placement) -> None:
        """All rows, in one transaction: where one statement has room for them, that is one by itself."""
        rows, new = placement.rows, [stream for stream in placement.moved if stream not in self._ids]
        if len(rows) <= AT_ONCE and not new:
            self._insert(conn, rows)
            return
        with schema.transaction(conn):
            self._check_epoch(conn)
            for id, stream in enumerate(new, len(self._ids) + 1):
                conn.execute("INSERT INTO streams VALUES (?, ?)", (id, stream))
                self._ids[stream] = id
            for start in range(0, len(rows), AT_ONCE):
                self._insert(conn, rows[start : start + AT_ONCE])

    def _insert(self, conn: sqlite3.Connection, rows: list[Row]) -> None:
        ids, values = self._ids, list[object]()
        for seq, at, stream, version, cause, read, kind, data, rest, digest in rows:
            values += (seq, at, ids[stream], version, cause, read, kind, data, rest, digest)
        values.append(self.epoch)
        if conn.execute(inserting(len(rows)), values).rowcount != len(rows):
            raise self._fenced(conn)

    def _check_epoch(self, conn: sqlite3.Connection) -> None:
        if conn.execute("SELECT epoch FROM writer").fetchone() != (self.epoch,):
            raise self._fenced(conn)

    def _fenced(self, conn: sqlite3.Connection) -> Fenced:
        (epoch,) = conn.execute("SELECT epoch FROM writer").fetchone()
        return Fenced(f"{self.path}: epoch {epoch} has taken over from epoch {self.epoch}")

    def _check_place(self) -> None:
        """SQLite goes on writing a file that was deleted, or that another one has replaced."""
        if not self._process.there():
            raise LogFailed(f"{self.path} was deleted or replaced while it was written: nothing more is acknowledged")

    def _standing(self, conn: sqlite3.Connection) -> Heads:
        """What the writer knows of the log; after a failure it is read again."""
        if self._heads is None:
            self._ids = dict(conn.execute("SELECT name, id FROM streams"))
            self._heads = tail.heads(conn)
        return self._heads

    def _writing(self) -> sqlite3.Connection:
        if self._conn is None:
            self.open_writer()
        assert self._conn is not None
        return self._conn

    @contextmanager
    def _failing(self) -> Generator[None]:
        """SQLite's errors as ours. What the writer believed of the log is forgotten with any failure."""
        try:
            yield
        except opening.ERRORS as error:
            self._heads = None
            raise opening.failed(error, self.path) from error
        except BaseException:
            self._heads = None
            raise

    def read(
        self,
        after: int = 0,
        stream: str | None = None,
        kinds: Iterable[str] | None = None,
        until: int | None = None,
        *,
        after_version: int = 0,
    ) -> Iterator[Recorded]:
        return self._reader.read(max(after, 0), self._last(until), stream, kinds, max(after_version, 0))

    def raw(self, after: int = 0, until: int | None = None) -> Iterator[Row]:
        return self._reader.raw(max(after, 0), self._last(until))

    def _last(self, until: int | None) -> int:
        head = self.head()
        return head if until is None else min(head, until)

    def integrity(self) -> str:
        known = self._acknowledged.seq()
        return self._reader.integrity() or self._acknowledged.lost(self.head(), known)

    def head(self) -> int:
        return self._reader.head()

    def version(self, stream: str) -> int:
        return self._reader.version(stream)

    def streams(self) -> dict[str, int]:
        return self._reader.streams()

    def open_writer(self) -> int:
        with self._lock:
            if self._closed or self.readonly:
                raise LogFailed(f"{self.path} is {'closed' if self._closed else 'open for reading only'}")
            self._refuse_other_names()
            if self._conn is not None or not self._acquired():
                raise self._in_use()
            try:
                self._heads = None
                self._conn = self._take_over(opening.connect(self.path, "rw", self._busy_timeout))
            except BaseException as error:
                self._process.release()
                if isinstance(error, opening.ERRORS):
                    raise opening.unopened(error, self.path) from error
                raise
            return self.epoch

    def _acquired(self) -> bool:
        """The writer's lock. It is asked for twice at least: who only looks at it (`opening.written`) has it for an
        instant.
        """
        try:
            return self._process.acquire(max(self._lock_timeout, POLL))
        except OSError as error:
            raise LogFailed(f"{self.path}: {opening.forbidden(self.path) or error}") from error

    def _take_over(self, conn: sqlite3.Connection) -> sqlite3.Connection:
        try:
            opening.use_wal(conn, self._busy_timeout)
            conn.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
            conn.execute("PRAGMA synchronous = FULL")
            with schema.transaction(conn):
                schema.upgrade(conn)
                self.cut = tail.cut_back(conn)
                self._check_whole(conn)
                now = time.time_ns() // 1_000_000
                conn.execute("UPDATE writer SET epoch = epoch + 1, pid = ?, since = ?", (os.getpid(), now))
                (self.epoch,) = conn.execute("SELECT epoch FROM writer").fetchone()
            conn.execute(f"PRAGMA synchronous = {self.durability}")
        except BaseException:
            conn.close()
            raise
        if self.durability == "full":
            self._acknowledged.open()
        return conn

    def _check_whole(self, conn: sqlite3.Connection) -> None:
        """What a log can not have lost without telling: acknowledged events, or the name of a stream."""
        head = tail.head(conn)
        if why := self._acknowledged.lost(head, self._acknowledged.seq()):
            raise LogCorrupt(head + 1, why, path=self.path, last_good_seq=head)
        if (found := conn.execute("PRAGMA integrity_check(streams)").fetchall()) != [("ok",)]:
            raise LogCorrupt(0, f"the names of its streams are damaged: {found[0][0]}")

    def _refuse_other_names(self) -> None:
        """By another name of the same file (a hard link) SQLite would use another write-ahead log."""
        holder = WriterLock.holder(self.path)
        if holder and holder.path != self.path:
            raise LogInUse(self.path, holder.pid, holder.since)

    def _in_use(self) -> LogInUse:
        if holder := WriterLock.holder(self.path):
            return LogInUse(self.path, holder.pid, holder.since)
        deadline = time.monotonic() + SIGNING
        while True:
            ((pid, since),) = self._reader.all("SELECT pid, since FROM writer")
            if alive(pid) or time.monotonic() > deadline:
                return LogInUse(self.path, pid, since)
            time.sleep(POLL)

    def save(self, snapshot: Snapshot) -> None:
        with self._lock, self._failing(), self._unsynced() as conn, schema.transaction(conn):
            self._check_epoch(conn)
            sure = tail.save(conn, snapshot, self._sure)
        self._sure = sure

    def snapshots(self, stream: str) -> list[Snapshot]:
        return self._reader.snapshots(stream)

    def pages(self, digests: Iterable[bytes]) -> dict[bytes, bytes]:
        return self._reader.snapshot_pages(digests)

    def drop_snapshots(self) -> None:
        with self._lock, self._failing(), self._unsynced() as conn, schema.transaction(conn):
            self._check_epoch(conn)
            conn.execute("DELETE FROM snapshots")
            conn.execute("DELETE FROM pages")
            self._sure = set()

    @contextmanager
    def _unsynced(self) -> Generator[sqlite3.Connection]:
        """A snapshot may be lost: it does not wait for the disk, the next commit takes it along."""
        conn = self._writing()
        conn.execute("PRAGMA synchronous = NORMAL")
        try:
            yield conn
        finally:
            conn.execute(f"PRAGMA synchronous = {self.durability}")

    def tear(self) -> int:
        """Lose the second half of the last append, as a torn write would; how many events that was. For tests."""
        with self._lock, self._failing():
            conn = self._writing()
            with schema.transaction(conn):
                self._check_epoch(conn)
                torn = tail.tear(conn)
            self._sure = set()
            self._acknowledged.note(tail.head(conn))
            self._heads = None
            return torn

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._reader.close()
            if self._conn is not None:
                self._acknowledged.close(self._settled(self._conn))
                self._conn.close()
                self._conn = None
            self._process.release()

    def _settled(self, conn: sqlite3.Connection) -> bool:
        """Take the write-ahead log in; whether all is in the file now, and this is still its writer."""
        try:
            conn.execute("PRAGMA busy_timeout = 0")
            (busy, *_) = conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._check_epoch(conn)
        except (sqlite3.Error, Fenced):
            return False
        return not busy
