"""One writer per file: whoever comes second is told who is first, and a writer that was replaced writes nothing."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from rewake.events import Fenced, LogFailed, LogInUse, Wake, open_log
from rewake.events.sqlite import SqliteLog

A = Wake(reason="a")

WRITER = """
import sys
from rewake.events import Wake, open_log
log = open_log(sys.argv[1])
log.append("s", log.version("s"), [Wake(reason="a")] * 3)
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def writer(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the log open to write."""
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


@pytest.mark.scenario("L-04")
def test_a_second_process_is_told_of_the_first_and_opens_when_that_is_killed(path: Path):
    with writer(path) as first:
        began = time.monotonic()
        with closing(open_log(path)) as log, pytest.raises(LogInUse) as refused:
            log.open_writer()
        assert (refused.value.pid, refused.value.fields["path"]) == (first.pid, str(path))
        assert abs((refused.value.since or 0) / 1_000 - time.time()) < 60
        assert time.monotonic() - began < 1
        with closing(open_log(path, readonly=True)) as reader:
            assert reader.head() == 3
        first.send_signal(signal.SIGKILL)
        first.wait()
        began = time.monotonic()
        with closing(open_log(path)) as log:
            assert (log.open_writer(), log.cut, log.head()) == (2, 0, 3)
            assert [recorded.seq for recorded in log.append("s", 3, [A])] == [4]
        assert time.monotonic() - began < 1


def test_a_reader_reads_what_a_killed_writer_left(path: Path):
    with writer(path) as first:
        first.send_signal(signal.SIGKILL)
        first.wait()
    with closing(open_log(path, readonly=True)) as reader:
        assert [recorded.event for recorded in reader.read()] == [A] * 3


def test_a_writer_that_waits_opens_when_the_other_has_left(path: Path, sqlite: SqliteLog):
    sqlite.open_writer()
    threading.Timer(0.2, sqlite.close).start()
    with closing(open_log(path, lock_timeout=20)) as log:
        assert log.open_writer() == 2


def test_a_writer_waits_no_longer_than_it_was_told(path: Path, sqlite: SqliteLog):
    sqlite.open_writer()
    began = time.monotonic()
    with closing(open_log(path, lock_timeout=0.1)) as log, pytest.raises(LogInUse):
        log.open_writer()
    assert 0.1 <= time.monotonic() - began < 2


@pytest.mark.parametrize("name", ["same", "relative", "symlink", "hardlink"])
def test_a_second_writer_in_this_process_is_refused_by_whatever_name(
    path: Path, sqlite: SqliteLog, name: str, monkeypatch: pytest.MonkeyPatch
):
    """And leaves the first one's lock as it was."""
    sqlite.append("s", 0, [A])
    other = path.with_name("other.db")
    match name:
        case "relative":
            monkeypatch.chdir(path.parent)
            other = Path("./log.db")
        case "symlink":
            other.symlink_to(path)
        case "hardlink":
            other.hardlink_to(path)
        case _:
            other = path

    def opened() -> int:
        with closing(open_log(other)) as log:
            return log.open_writer()

    for _ in range(2):
        with pytest.raises(LogInUse) as refused:
            opened()
        assert refused.value.pid == os.getpid()
    command = [sys.executable, "-c", WRITER, str(path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert "LogInUse" in ran.stderr
    sqlite.append("s", 1, [A])
    sqlite.close()
    if name != "hardlink":
        assert opened() == 2


def test_a_writer_whose_epoch_has_passed_writes_nothing(path: Path, sqlite: SqliteLog):
    sqlite.append("s", 0, [A])
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("UPDATE writer SET epoch = epoch + 1")
    for _ in range(2):
        with pytest.raises(Fenced):
            sqlite.append("s", 1, [A])
    assert sqlite.head() == 1


def test_a_closed_log_takes_nothing(sqlite: SqliteLog):
    sqlite.append("s", 0, [A])
    sqlite.close()
    sqlite.close()
    with pytest.raises(LogFailed, match="closed"):
        sqlite.append("s", 1, [A])
    with pytest.raises(LogFailed, match="closed"):
        list(sqlite.read())


def test_a_log_open_for_reading_takes_nothing(path: Path, sqlite: SqliteLog):
    sqlite.append("s", 0, [A])
    with closing(open_log(path, readonly=True)) as reader:
        with pytest.raises(LogFailed, match="reading only"):
            reader.append("s", 1, [A])
        assert reader.head() == 1


def test_an_appending_thread_and_readers_stand_in_nobodys_way(sqlite: SqliteLog):
    """Every view is a prefix, gapless and made of whole appends."""
    sqlite.append("s", 0, [A] * 5)
    done = threading.Event()
    views: list[list[int]] = []

    def look() -> None:
        while not done.is_set():
            views.append([recorded.seq for recorded in sqlite.read()])

    readers = [threading.Thread(target=look) for _ in range(3)]
    for reader in readers:
        reader.start()
    for turn in range(1, 100):
        sqlite.append("s", turn * 5, [A] * 5)
    done.set()
    for reader in readers:
        reader.join()
    assert all(view == list(range(1, len(view) + 1)) and len(view) % 5 == 0 for view in views)


def test_a_lock_held_by_somebody_else_is_waited_out_when_the_writer_opens(path: Path, sqlite: SqliteLog):
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        release = threading.Timer(0.3, other.rollback)
        release.start()
        assert sqlite.open_writer() == 1
        release.join()


def test_of_many_that_make_the_log_at_once_one_writes_it(path: Path):
    command = [sys.executable, "-c", WRITER, str(path)]
    racers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    try:
        ready = [racer.stdout.readline() for racer in racers if racer.stdout]
        assert sorted(ready) == [""] * 5 + ["ready\n"]
        errors = [racer.communicate()[1] for racer in racers]
        assert sum("LogInUse" in error for error in errors) == 5
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()


def test_more_threads_may_read_than_connections_are_kept(sqlite: SqliteLog):
    sqlite.append("s", 0, [A] * 3_000)
    counts: list[int] = []
    readers = [threading.Thread(target=lambda: counts.append(sum(1 for _ in sqlite.read()))) for _ in range(40)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert counts == [3_000] * 40


def test_a_slow_reader_holds_no_transaction(sqlite: SqliteLog):
    """A read that stands still between two pages does not keep the write-ahead log from being taken in."""
    for turn in range(30):
        sqlite.append("s", turn * 100, [A] * 100)
    view = sqlite.read()
    next(view)
    sqlite.append("s", 3_000, [A])
    with closing(sqlite3.connect(sqlite.path)) as other:
        assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
    assert sum(1 for _ in view) == 2_999
