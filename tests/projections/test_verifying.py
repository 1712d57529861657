"""A log that is whole is told from one that was edited or cut, with the first seq that is wrong."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from rewake.events import Draft, HostStarted, HostStopped, Log, MemoryLog, Quiesced, Resumed, open_log, schema
from rewake.projections import verify


def filled(log: Log) -> Log:
    """Nine events: three appends of three."""
    for turn in range(3):
        events = [HostStarted("1", turn), Draft(Quiesced("r"), 5 + turn, within=0), Draft(Resumed(), 6 + turn)]
        log.append("host", 3 * turn, events)
    return log


@pytest.fixture
def broken(tmp_path: Path) -> Callable[[str], Log]:
    """The log after some SQL that its file would refuse."""

    def after(sql: str) -> Log:
        path = tmp_path / "log.db"
        filled(open_log(path)).close()
        with closing(sqlite3.connect(path)) as conn, conn:
            with schema.unlocked(conn):
                conn.execute(sql)
        return open_log(path, readonly=True)

    return after


def test_an_empty_log_is_whole():
    assert verify(MemoryLog()).ok


def test_a_whole_log_is_whole(tmp_path: Path):
    for log in (filled(MemoryLog()), filled(open_log(tmp_path / "log.db"))):
        found = verify(log)
        assert (found.ok, found.first_bad_seq, found.last_good_seq, found.why) == (True, None, 9, "")


@pytest.mark.scenario("L-08")
def test_a_log_that_was_cut_back_to_a_whole_append_is_whole(tmp_path: Path):
    log = filled(open_log(tmp_path / "log.db"))
    assert log.tear() == 2
    log.close()
    log = open_log(tmp_path / "log.db")
    assert verify(log).first_bad_seq == 8
    log.open_writer()
    assert verify(log).last_good_seq == 6
    log.append("host", 6, [HostStopped()])
    assert verify(log).ok


@pytest.mark.scenario("L-08")
@pytest.mark.parametrize(
    ("sql", "bad", "why"),
    [
        ("UPDATE log SET data = CAST(data AS BLOB), read = 'x' WHERE seq = 5", 5, "column's type"),
        ("DELETE FROM log WHERE seq = 5", 5, "missing"),
        ("DELETE FROM log WHERE seq > 7", 8, "recorded end"),
        ("UPDATE log SET version = 50 WHERE seq = 5", 5, "version 50"),
        ("UPDATE log SET cause = 5 WHERE seq = 5", 5, "cause"),
        ("UPDATE log SET read = 7 WHERE seq = 5", 5, "has read"),
        ("UPDATE log SET data = '{' WHERE seq = 5", 5, "does not decode"),
        ("UPDATE log SET data = CAST(x'ff' AS TEXT) WHERE seq = 5", 5, "no text"),
        ("UPDATE log SET data = CAST(x'ff' AS TEXT), seq = 12 WHERE seq = 9", 9, "no text"),
        ("UPDATE log SET kind = 'wake' WHERE seq = 5", 5, "recorded as wake"),
        ("UPDATE log SET at = 1 WHERE seq = 6", 6, "backwards"),
        ("UPDATE log SET rest = 0 WHERE seq = 4", 4, "not what was written"),
        ("UPDATE log SET rest = 2 WHERE seq = 6", 6, "recorded end"),
        ("UPDATE log SET rest = 1 WHERE seq = 9", 9, "recorded end"),
        ("UPDATE log SET data = replace(data, 'quiesced', 'quiesce') WHERE seq = 8", 8, "does not decode"),
        ("""UPDATE log SET data = replace(data, '"r"', '"s"') WHERE seq = 8""", 7, "not what was written"),
        ("UPDATE log SET digest = NULL WHERE seq = 9", 10, "last commit"),
        ("UPDATE log SET stream = 7 WHERE seq = 5", 5, "no name"),
    ],
)
def test_what_was_changed_is_found(broken: Callable[[str], Log], sql: str, bad: int, why: str):
    found = verify(broken(sql))
    assert (found.ok, found.first_bad_seq, found.last_good_seq) == (False, bad, bad - 1)
    assert why in found.why


def test_a_flipped_byte_is_found_wherever_it_is(tmp_path: Path):
    """Where no event is hit the file's own check may see it, or nothing that was recorded has changed."""
    path = tmp_path / "log.db"
    log = open_log(path)
    for version in range(60):
        log.append("host", version, [HostStarted("text of some length " * 10, version)])
    whole = [recorded.event for recorded in log.read()]
    log.close()
    original = path.read_bytes()
    for place in range(len(original) // 2, len(original), 997):
        path.write_bytes(original[:place] + bytes([original[place] ^ 0x55]) + original[place + 1 :])
        log = open_log(path, readonly=True)
        found = verify(log)
        assert not found.ok or [recorded.event for recorded in log.read()] == whole
        log.close()
