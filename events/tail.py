"""The end of a log's file: where it stands, the last append when it is torn, the snapshots that lean on it."""

from __future__ import annotations

import sqlite3
from hashlib import blake2b

from rewake.events import schema
from rewake.events.log import Row, Snapshot
from rewake.events.placing import Heads, chained
from rewake.events.schema import unlocked

SEAL = 16
"""Bytes of a snapshot's digest."""

ROWS = """SELECT log.seq, at, name, version, cause, read, kind, data, rest, digest
FROM log JOIN streams ON streams.id = stream WHERE log.seq > ? ORDER BY log.seq"""

PAGE = """INSERT INTO pages VALUES (?, ?)
ON CONFLICT (digest) DO UPDATE SET data = excluded.data WHERE data IS NOT excluded.data"""

LAST = """SELECT name, version, at FROM streams JOIN log ON stream = streams.id
WHERE version = (SELECT max(version) FROM log WHERE stream = streams.id) ORDER BY streams.id"""


def head(conn: sqlite3.Connection) -> int:
    """The last seq; 0 when empty."""
    return conn.execute("SELECT max(seq) FROM log").fetchone()[0] or 0


def heads(conn: sqlite3.Connection) -> Heads:
    """Where the log stands."""
    seq, digest = conn.execute("SELECT seq, digest FROM log ORDER BY seq DESC LIMIT 1").fetchone() or (0, b"")
    last: list[tuple[str, int, int]] = conn.execute(LAST).fetchall()
    return Heads(
        seq, max((at for _, _, at in last), default=0), digest or b"", {name: version for name, version, _ in last}
    )


def cut_back(conn: sqlite3.Connection) -> int:
    """Cut a torn last append; how many events that were."""
    whole = conn.execute("SELECT seq, rest, digest FROM log ORDER BY seq DESC LIMIT 1").fetchone()
    if whole is None or whole[2] is not None:
        return 0
    (end,) = conn.execute("SELECT seq FROM log WHERE rest = 0 ORDER BY seq DESC LIMIT 1").fetchone() or (0,)
    truncate(conn, end)
    return whole[0] - end


def truncate(conn: sqlite3.Connection, kept: int) -> None:
    """Forget what is behind seq `kept`; where that cuts a commit, its digest is made anew."""
    with unlocked(conn):
        forget(conn, kept)
        before = conn.execute(
            "SELECT seq, digest FROM log WHERE digest IS NOT NULL ORDER BY seq DESC LIMIT 1"
        ).fetchone()
        seq, digest = before or (0, b"")
        if rows := [Row(*row) for row in conn.execute(ROWS, (seq,))]:
            conn.execute("UPDATE log SET digest = ? WHERE seq = ?", (chained(digest, rows), rows[-1].seq))


def tear(conn: sqlite3.Connection) -> int:
    """Lose the second half of the last append; how many events that were."""
    (last,) = conn.execute("SELECT seq FROM log ORDER BY seq DESC LIMIT 1").fetchone() or (0,)
    sql = "SELECT seq FROM log WHERE rest = 0 AND seq < ? ORDER BY seq DESC LIMIT 1"
    (before,) = conn.execute(sql, (last,)).fetchone() or (0,)
    kept = before + (last - before) // 2
    with unlocked(conn):
        forget(conn, kept)
    return last - kept


def forget(conn: sqlite3.Connection, kept: int) -> None:
    """Delete what is behind seq `kept`, and the snapshots that lean on it, with what only those had."""
    conn.execute("DELETE FROM log WHERE seq > ?", (kept,))
    conn.execute(
        """DELETE FROM snapshots WHERE read > ? OR version > coalesce((SELECT max(log.version) FROM log
        JOIN streams ON streams.id = log.stream WHERE streams.name = snapshots.stream), 0)""",
        (kept,),
    )
    there = {digest for (digest,) in conn.execute("SELECT digest FROM pages")}
    sweep(conn, there)


def save(conn: sqlite3.Connection, snapshot: Snapshot, sure: set[bytes]) -> set[bytes]:
    """Keep a snapshot and the newest before it; and of their pages each once. `sure` are the pages that are in the file as
    they were made; what is returned those that are now. Any other is compared, and written anew where it was damaged.
    """
    before = paged(conn, snapshot.stream)
    fresh = [(digest, data) for digest, data in snapshot.pages.items() if digest not in sure]
    conn.executemany(PAGE, fresh)
    values = (snapshot.stream, snapshot.version, snapshot.read, snapshot.code, *sealed(snapshot))
    conn.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?, ?, ?)", values)
    conn.execute(
        """DELETE FROM snapshots WHERE stream = ? AND rowid NOT IN
        (SELECT rowid FROM snapshots WHERE stream = ? ORDER BY version DESC, read DESC LIMIT 2)""",
        (snapshot.stream, snapshot.stream),
    )
    return sure.union(snapshot.pages) - sweep(conn, before - paged(conn, snapshot.stream))


def sweep(conn: sqlite3.Connection, digests: set[bytes]) -> set[bytes]:
    """Delete those of these pages that no snapshot has: which those are."""
    if gone := digests and digests - paged(conn):
        conn.executemany("DELETE FROM pages WHERE digest = ?", [(digest,) for digest in gone])
    return gone


def paged(conn: sqlite3.Connection, stream: str | None = None) -> set[bytes]:
    """The digests of the pages that the snapshots of a stream have; None: of all streams."""
    where, of = ("", ()) if stream is None else (" WHERE stream = ?", (stream,))
    rows = conn.execute(f"SELECT coalesce(CAST(pages AS BLOB), x'') FROM snapshots{where}", of)
    return {digest for (joined,) in rows for digest in schema.digests(joined)}


def sealed(snapshot: Snapshot) -> tuple[bytes, bytes]:
    """A snapshot's state, with a digest of all that it says behind it, and the digests of its pages."""
    pages = b"".join(snapshot.pages)
    said = f"{snapshot.stream} {snapshot.version} {snapshot.read} {snapshot.code}\n"
    return snapshot.state + blake2b(said.encode() + snapshot.state + pages, digest_size=SEAL).digest(), pages


def unsealed(stream: str, version: int, read: int, code: str, stored: bytes, pages: bytes) -> Snapshot | None:
    """The snapshot that was stored, its pages yet to be read; None for one that is not what was kept."""
    snapshot = Snapshot(stream, version, read, code, stored[:-SEAL], dict.fromkeys(schema.digests(pages)))
    return snapshot if sealed(snapshot) == (stored, pages) else None
