"""The file: it refuses what is no append, it is told from other files, and its failures say what failed."""

import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rewake.events import LogCorrupt, LogFailed, LogFull, MemoryLog, NotALog, Snapshot, Wake, open_log
from rewake.events.opening import written
from rewake.events.placing import chained
from rewake.events.schema import unlocked
from rewake.events.sqlite import SqliteLog

A, B = Wake(reason="a"), Wake(reason="b")


def opened(path: Path, **options: Any) -> None:
    open_log(path, **options).close()


@contextmanager
def plain(path: Path) -> Iterator[sqlite3.Connection]:
    """Somebody else's connection."""
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        yield conn


@pytest.mark.scenario("L-03")
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET kind = 'x'",
        "UPDATE events SET data = '{}' WHERE seq = 1",
        "DELETE FROM events",
        "DELETE FROM events WHERE seq = 2",
        "INSERT INTO events SELECT 3, at, stream, 3, cause, read, kind, data FROM events WHERE seq = 2",
        "UPDATE log SET data = '{}'",
        "UPDATE OR REPLACE log SET seq = 1 WHERE seq = 2",
        "DELETE FROM log",
        "INSERT OR REPLACE INTO log SELECT 1, at, stream, 3, cause, read, kind, data, 0, NULL FROM log WHERE seq = 2",
        "INSERT OR REPLACE INTO log SELECT 3, at, stream, 1, cause, read, kind, data, 0, NULL FROM log WHERE seq = 2",
        "REPLACE INTO log SELECT * FROM log WHERE seq = 1",
        "INSERT INTO log SELECT 9, at, stream, 3, cause, read, kind, data, rest, digest FROM log WHERE seq = 2",
        "UPDATE streams SET name = 'x'",
        "DELETE FROM streams",
        "INSERT OR REPLACE INTO streams VALUES (1, 'x')",
        "INSERT OR REPLACE INTO streams VALUES (2, 's')",
    ],
)
@pytest.mark.parametrize("recursive", ["ON", "OFF"])
def test_the_file_refuses_whatever_is_no_append(sqlite: SqliteLog, path: Path, statement: str, recursive: str):
    sqlite.append("s", 0, [A, B])
    before = list(sqlite.raw())
    with plain(path) as conn:
        conn.execute(f"PRAGMA recursive_triggers = {recursive}")
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            conn.execute(statement)
    assert list(sqlite.raw()) == before


def test_the_events_are_a_table_that_sql_reads(sqlite: SqliteLog, path: Path):
    sqlite.append("agent/ada", 0, [A])
    with plain(path) as conn:
        cursor = conn.execute("SELECT *, data ->> 'reason' FROM events")
        names = [column[0] for column in cursor.description]
        assert names[:-1] == ["seq", "at", "stream", "version", "cause", "read", "kind", "data"]
        assert cursor.fetchall() == [(1, 0, "agent/ada", 1, None, 0, "wake", '{"kind":"wake","reason":"a"}', "a")]


def test_memory_and_a_path_open_their_logs(path: Path):
    with closing(open_log(":memory:")) as log:
        assert isinstance(log, MemoryLog)
    with closing(open_log(str(path), durability="normal")) as log:
        assert isinstance(log, SqliteLog)
        log.append("s", 0, [A])
    with closing(open_log(path)) as log:
        assert log.head() == 1


def test_a_file_that_is_not_there_is_no_log_to_a_reader(path: Path):
    with pytest.raises(NotALog, match="no such file"):
        opened(path, readonly=True)
    assert not path.exists()


def test_an_empty_file_becomes_a_log_but_not_by_reading(path: Path):
    path.touch()
    with pytest.raises(NotALog, match="empty"):
        opened(path, readonly=True)
    opened(path)
    opened(path, readonly=True)


def test_a_text_file_is_no_log(path: Path):
    path.write_text("Dear diary,\n" * 1_000)
    for readonly in (True, False):
        with pytest.raises(NotALog, match="no SQLite database"):
            opened(path, readonly=readonly)
    assert path.read_text().startswith("Dear diary")


def test_another_programs_database_is_no_log(path: Path):
    with plain(path) as conn:
        conn.execute("CREATE TABLE events (seq)")
    before = path.read_bytes()
    for readonly in (True, False):
        with pytest.raises(NotALog, match="another program"):
            opened(path, readonly=readonly)
    assert path.read_bytes() == before


def test_a_newer_format_is_told_from_no_format(sqlite: SqliteLog, path: Path):
    with plain(path) as conn:
        conn.execute("UPDATE meta SET value = 99")
    with pytest.raises(NotALog, match="format 99"):
        opened(path)


def test_a_folder_is_no_log(tmp_path: Path):
    with pytest.raises(NotALog, match="not a file"):
        opened(tmp_path)
    with pytest.raises(NotALog, match="no such directory"):
        opened(tmp_path / "nowhere" / "log.db")


def test_a_path_may_have_any_characters(tmp_path: Path):
    path = tmp_path / "a log?mode=ro#%41é.db"
    with closing(open_log(path)) as log:
        log.append("s", 0, [A])
        assert log.head() == 1
    assert path.exists()


def test_a_full_disk_fails_the_commit_and_nothing_else(sqlite: SqliteLog, monkeypatch: pytest.MonkeyPatch):
    sqlite.append("s", 0, [A])
    conn = sqlite._conn
    assert conn
    (pages,) = conn.execute("PRAGMA page_count").fetchone()
    conn.execute(f"PRAGMA max_page_count = {pages}")
    for _ in range(2):
        with pytest.raises(LogFull):
            sqlite.append("new", 0, [A, Wake(reason="x" * 100_000)])
    assert (sqlite.head(), sqlite.streams()) == (1, {"s": 1})
    conn.execute("PRAGMA max_page_count = 1000000")
    assert [recorded.seq for recorded in sqlite.append("new", 0, [A])] == [2]
    assert [recorded.seq for recorded in sqlite.append("other", 0, [A])] == [3]
    assert sqlite.streams() == {"s": 1, "new": 1, "other": 1}


def test_a_lock_that_somebody_else_holds_is_waited_out(sqlite: SqliteLog, path: Path):
    sqlite.append("s", 0, [A])
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        release = threading.Timer(1.0, other.rollback)
        release.start()
        assert sqlite.append("s", 1, [A])[0].seq == 2
        release.join()


def test_past_the_patience_the_commit_fails(path: Path):
    with closing(open_log(path, busy_timeout=0.2)) as log, plain(path) as other:
        log.append("s", 0, [A])
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LogFailed, match="busy"):
            log.append("s", 1, [A])
        assert log.head() == 1
        other.rollback()
        assert log.append("s", 1, [A])[0].seq == 2


def test_each_commit_is_chained_to_the_one_before(sqlite: SqliteLog):
    """The same event is another link."""
    sqlite.append("s", 0, [A])
    sqlite.append("t", 0, [A, A])
    assert sqlite.integrity() == ""
    rows = list(sqlite.raw())
    assert chained(chained(b"", rows[:1]), rows[1:]) == rows[2].digest
    digests = [row.digest for row in sqlite.raw()]
    assert digests[1] is None
    assert len({digests[0], digests[2]}) == 2


def test_a_text_that_is_none_is_found_with_its_seq(path: Path, sqlite: SqliteLog):
    sqlite.append("s", 0, [A, B])
    with plain(path) as conn:
        conn.execute("BEGIN")
        with unlocked(conn):
            conn.execute("UPDATE log SET data = CAST(x'7b22ff227d' AS TEXT) WHERE seq = 2")
        conn.execute("COMMIT")
    for read in (sqlite.read(), sqlite.raw()):
        assert next(read).seq == 1
        with pytest.raises(LogCorrupt) as corrupt:
            next(read)
        assert corrupt.value.seq == 2


@pytest.mark.parametrize("into", [0, 600, 2_048])
@pytest.mark.parametrize("what", [b"\xff", b"\0"])
def test_a_damaged_page_is_reported_behind_the_last_good_event(path: Path, into: int, what: bytes):
    """Wherever in it the damage begins: what SQLite makes of the rest of a page is no event."""
    with closing(open_log(path)) as log:
        for turn in range(40):
            log.append("s", turn * 50, [Wake(reason="a" * 300)] * 50)
    pages = bytearray(path.read_bytes())
    page = pages.find(b'{"kind":"wake"', len(pages) // 2) // 4096 * 4096 + into
    pages[page : page + 4096] = what * 4096
    path.write_bytes(pages)
    with closing(open_log(path, readonly=True)) as log:
        for view in (log.read(), log.read(stream="s"), log.raw()):
            good = [0]
            with pytest.raises(LogCorrupt) as corrupt:
                good.extend(recorded.seq for recorded in view)
            assert 0 < good[-1] < 2_000
            assert corrupt.value.seq == good[-1] + 1
        assert log.integrity()


def test_a_log_whose_format_can_not_be_read_is_damaged(path: Path):
    opened(path)
    with plain(path) as conn:
        conn.execute("DELETE FROM meta")
    with pytest.raises(LogCorrupt, match="its format is None"):
        opened(path, readonly=True)


def test_snapshots_are_no_syncs_and_need_the_writers_epoch(sqlite: SqliteLog, path: Path):
    sqlite.append("s", 0, [A])
    sqlite.save(Snapshot("s", 1, 0, "code", b"state"))
    assert sqlite.commits == 1
    with plain(path) as conn:
        conn.execute("UPDATE writer SET epoch = epoch + 1")
    with pytest.raises(LogFailed):
        sqlite.save(Snapshot("s", 1, 1, "code", b"state"))


@pytest.mark.scenario("L-09")
def test_a_file_of_the_first_format_is_read_and_becomes_one_of_this_when_it_is_written(sqlite: SqliteLog, path: Path):
    """It had other snapshots, and no pages: those are forgotten, its events are what they were."""
    sqlite.append("s", 0, [A, B])
    rows = list(sqlite.raw())
    sqlite.close()
    with plain(path) as conn:
        conn.execute("DROP TABLE pages")
        conn.execute("DROP TABLE snapshots")
        conn.execute("CREATE TABLE snapshots (stream TEXT, version INTEGER, read INTEGER, code TEXT, state BLOB)")
        conn.execute("INSERT INTO snapshots VALUES ('s', 1, 0, '1', x'00')")
        conn.execute("UPDATE meta SET value = 1 WHERE key = 'format'")
    with closing(open_log(path, readonly=True)) as log:
        assert (list(log.raw()), log.snapshots("s")) == (rows, [])
    with closing(open_log(path)) as log:
        log.open_writer()
        assert (list(log.raw()), log.snapshots("s")) == (rows, [])
        log.save(Snapshot("s", 2, 0, "1", b"state", {b"d" * 16: b"page"}))
        assert log.snapshots("s") == [Snapshot("s", 2, 0, "1", b"state", {b"d" * 16: None})]
    with plain(path) as conn:
        assert conn.execute("SELECT value FROM meta").fetchall() == [(2,)]


def test_a_log_is_closed_without_a_trace_beside_it(sqlite: SqliteLog, path: Path):
    sqlite.append("s", 0, [A])
    sqlite.close()
    assert sorted(file.name for file in path.parent.iterdir()) == ["log.db", "log.db.lock"]


def as_nobody(code: str, *args: Path) -> str:
    """What a process without rights prints: permission bits bind no superuser."""
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("only the superuser can become nobody")
    modules = "import fcntl, os, sys, rewake.events.sqlite; from rewake.events import *"  # nobody may read their files
    become = f"{modules}; os.setgroups([]); os.setgid(65534); os.setuid(65534)"
    command = [sys.executable, "-c", f"{become}\n{code}", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()


READ = """
try:
    print(open_log(sys.argv[1], readonly=True).head())
except LogError as error:
    print(type(error).__name__, error)
"""

WRITE = """
try:
    open_log(sys.argv[1]).open_writer()
except LogError as error:
    print(type(error).__name__, error)
"""


@pytest.fixture
def shut() -> Iterator[Path]:
    """A log in a directory that everybody may read and nobody write."""
    with tempfile.TemporaryDirectory() as place:  # nobody may enter pytest's own
        path = Path(place, "log.db")
        with closing(open_log(path)) as log:
            log.append("s", 0, [A, B])
        os.chmod(place, 0o555)
        yield path


def test_a_log_in_a_directory_that_is_not_writable_is_read(shut: Path):
    assert as_nobody(READ, shut) == "2"
    assert as_nobody(WRITE, shut) == f"LogFailed {shut}: no permission to write it"


def test_with_a_write_ahead_log_it_is_said_what_to_do(shut: Path):
    """The file alone is not the whole log."""
    Path(f"{shut}-wal").write_bytes(b"x" * 5_000)
    said = as_nobody(READ, shut)
    assert said.startswith("LogFailed")
    assert said.endswith("it has a write-ahead log: copy both files to where you may write")


def test_it_is_read_while_its_owner_writes_it(shut: Path):
    with closing(open_log(shut)) as log:
        log.append("s", 2, [A])
        assert as_nobody(READ, shut) == "3"


def test_a_file_that_may_not_be_read_says_so(shut: Path):
    shut.chmod(0)
    assert as_nobody(READ, shut) == f"LogFailed {shut}: no permission to read it"


def test_whether_a_process_writes_the_log(path: Path):
    """Looking stands in no writer's way."""
    with closing(open_log(path)) as log:
        assert not written(log.path)
        log.open_writer()
        assert written(log.path)
    assert not written(str(path))
