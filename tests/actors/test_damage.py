"""A log's file that is damaged: it is told, or nothing of it mattered; nothing acknowledged is lost or changed in silence."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from rewake.actors import Runtime
from rewake.actors.agent import agent
from rewake.actors.incarnation import Incarnation
from rewake.events import LogCorrupt, LogFailed, NotALog, open_log
from rewake.events.schema import unlocked
from rewake.projections import verify
from rewake.projections.pages import PAGE
from rewake.scripts.cli import main
from tests.actors.damage import AGENTS, Whole, answers, copied, damaged, found, lived, started

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[Whole]:
    """With and without snapshots, with and without a write-ahead log."""
    ways = [(snapshots, wal) for snapshots in (True, False) for wal in (True, False)]
    return [lived(tmp_path_factory.mktemp("whole"), snapshots=snapshots, wal=wal) for snapshots, wal in ways]


def judged(whole: Whole, path: Path, what: str) -> str:
    """The law, of one damaged copy: what `verify` and a start say of it."""
    seen = found(path, len(whole.rows))
    verified, began = seen.verified, seen.started
    assert not isinstance(verified, Exception) or isinstance(verified, LogCorrupt | NotALog), what
    if isinstance(began, LogCorrupt):
        if good := began.last_good_seq:
            assert f"rewake export {path} FILE --until {good}` and" in str(began), what
            sure = max(
                (row.seq for row in whole.rows[:good] if row.digest), default=0
            )  # inside a commit nothing vouches
            with closing(open_log(path, readonly=True)) as log:
                assert list(log.raw(0, sure)) == whole.rows[:sure], what
        return "refused"
    if isinstance(began, LogFailed):
        return "refused"  # a trigger that is damaged: its first commit fails
    if isinstance(began, NotALog):
        assert isinstance(verified, NotALog), what
        return "no log"
    assert began == whole.started, what
    if isinstance(verified, Exception) or not verified.ok:
        return "found by verify"
    assert seen.rows == whole.rows, what
    return "harmless"


def campaign(logs: list[Whole], folder: Path, seeds: range) -> dict[str, int]:
    counts: dict[str, int] = {}
    for seed in seeds:
        whole = logs[seed % len(logs)]
        what = damaged(whole, folder / "damaged.db", seed)
        said = judged(whole, folder / "damaged.db", f"{seed}: {what}")
        counts[said] = counts.get(said, 0) + 1
    (folder / "damaged.db").unlink()  # no log to decide again
    return counts


@pytest.mark.scenario("L-08")
def test_whatever_is_damaged_is_told_or_did_not_matter(logs: list[Whole], tmp_path: Path):
    counts = campaign(logs, tmp_path, range(80))
    assert counts["refused"] > 40
    assert counts["harmless"] > 5


@pytest.mark.soak
@pytest.mark.scenario("L-08")
def test_whatever_is_damaged_is_told_or_did_not_matter_many_times(logs: list[Whole], tmp_path: Path):
    campaign(logs, tmp_path, range(100, 500))


@pytest.mark.scenario("L-08")
def test_every_command_says_in_one_line_that_the_log_is_damaged(logs: list[Whole], tmp_path: Path):
    """Or answers; with nothing half written. What `verify` finds has the exit code of damage, never that of a divergence."""
    path, out = tmp_path / "damaged.db", tmp_path / "out"
    commands = [
        *(["verify"], ["tail"], ["agents"], ["owed"], ["why", "LOG", "ada/turn/4"], ["replay"], ["redecide"]),
        *(["what-if", "LOG", "--set", "ada.context_budget_tokens=60000"], ["query", "LOG", "SELECT count(*) FROM events"]),
        *(["show", "LOG", "conversation"], ["export", "LOG", str(out)], ["tables", "LOG", str(out)]),
        ["backup", "LOG", str(out)],
    ]  # fmt: skip
    for seed in range(1, 9):
        what = damaged(logs[seed % 4], path, seed)
        for command in commands:
            given = (
                [str(path) if one == "LOG" else one for one in command] if "LOG" in command else [*command, str(path)]
            )
            result = CliRunner().invoke(main, given, catch_exceptions=False)
            assert result.exit_code in (0, 5), (seed, what, command, result.stderr)
            assert result.exit_code == 0 or len(result.stderr.splitlines()) == 1, (seed, what, command, result.stderr)
            assert out.exists() == (result.exit_code == 0 and "LOG" in command and command[-1] == str(out))
            for file in tmp_path.glob("out*"):
                file.unlink()
            assert not list(tmp_path.glob(".rewake*"))


def spoilt(whole: Whole, path: Path, spoil: Callable[[bytearray], None], end: str = "") -> Path:
    """A copy, some of whose bytes are others."""
    copied(whole.path, path)
    data = bytearray(Path(f"{path}{end}").read_bytes())
    spoil(data)
    Path(f"{path}{end}").write_bytes(data)
    return path


def edited(whole: Whole, path: Path, sql: str) -> Path:
    """A copy, changed by a statement that its file would refuse."""
    copied(whole.path, path)
    with closing(sqlite3.connect(path)) as conn, conn, unlocked(conn):
        conn.execute(sql)
    return path


def refused(path: Path) -> LogCorrupt:
    """Why a runtime does not start."""
    with pytest.raises(LogCorrupt) as error:
        Runtime(path, provider=answers(), agents=AGENTS).__enter__()
    return error.value


@pytest.mark.scenario("L-08")
@pytest.mark.parametrize("how", ["flipped", "cut", "gone"])
def test_a_killed_writers_events_that_its_write_ahead_log_has_lost_are_missed(
    logs: list[Whole], tmp_path: Path, how: str
):
    """SQLite takes such a log for one that ended there."""
    whole = logs[0]

    def spoil(data: bytearray) -> None:
        if how == "flipped":
            data[len(data) // 2] ^= 1
        else:
            del data[len(data) // 2 if how == "cut" else 0 :]

    path = spoilt(whole, tmp_path / "log.db", spoil, "-wal")
    error = refused(path)
    assert 0 < error.seq - 1 == (error.last_good_seq or 0) < len(whole.rows)
    assert f"events {error.seq} to {len(whole.rows)} were acknowledged and are not there" in str(error)
    with closing(open_log(path, readonly=True)) as log:
        assert (verify(log).ok, verify(log).last_good_seq) == (False, error.last_good_seq)
    assert refused(path).seq == error.seq, "a second attempt is refused alike"
    shown = CliRunner().invoke(main, ["owed", str(path)])
    assert (shown.exit_code, "are not there" in shown.stderr) == (0, True), "what is shown is of an earlier time"
    copy = CliRunner().invoke(main, ["backup", str(path), str(tmp_path / "copy.db")])
    assert (copy.exit_code, (tmp_path / "copy.db").exists()) == (5, False), "the copy would look whole"
    assert f"rewake export {path} FILE --until {error.last_good_seq}" in copy.stderr
    CliRunner().invoke(main, ["export", str(path), str(tmp_path / "a.jsonl"), "--until", str(error.last_good_seq)])
    CliRunner().invoke(main, ["import", str(tmp_path / "new.db"), str(tmp_path / "a.jsonl")])
    with Runtime(tmp_path / "new.db", provider=answers(), agents=AGENTS) as rt:
        assert rt.log.head() > (error.last_good_seq or 0)


def test_the_file_of_a_log_in_use_copied_alone_is_said_to_have_no_events(tmp_path: Path):
    """What it had is in its write-ahead log; nothing in the file tells it from a new one."""
    with Runtime(tmp_path / "log.db", provider=answers(), agents=AGENTS):
        shutil.copy(tmp_path / "log.db", tmp_path / "alone.db")
        whole = CliRunner().invoke(main, ["owed", str(tmp_path / "log.db")])
    assert "no events" not in whole.stderr
    for command in ("owed", "verify", "export"):
        alone = CliRunner().invoke(main, [command, str(tmp_path / "alone.db")])
        assert "has no events: never written, or copied without its -wal; `rewake backup`" in alone.stderr


def test_a_copy_that_is_put_back_over_a_killed_writers_log_is_told_what_to_delete(logs: list[Whole], tmp_path: Path):
    """It has lost what came after it; whoever wants that says so by deleting the note."""
    path = copied(logs[0].path, tmp_path / "log.db")
    for end in ("", "-wal"):
        Path(f"{path}{end}").unlink()
    with Runtime(path.with_name("copy.db"), provider=answers(), agents=AGENTS):
        pass
    path.with_name("copy.db").rename(path)
    note = Path(f"{path}-head")
    assert f"(delete {note} if a copy was put back on purpose)" in str(refused(path))
    note.unlink()
    with Runtime(path, provider=answers(), agents=AGENTS) as rt:
        assert 0 < rt.log.head() < len(logs[0].rows)


def test_what_a_writer_notes_beside_its_log_goes_with_an_orderly_stop(tmp_path: Path):
    path = tmp_path / "log.db"
    with Runtime(path, provider=answers(), agents=AGENTS):
        assert Path(f"{path}-head").exists()
    assert not Path(f"{path}-head").exists()


@pytest.mark.parametrize("note", [b"", b"x" * 7, b"x" * 16, b"\xff" * 8 + b"x" * 8])
def test_a_note_that_is_none_says_nothing(logs: list[Whole], tmp_path: Path, note: bytes):
    path = copied(logs[0].path, tmp_path / "log.db")
    Path(f"{path}-head").write_bytes(note)
    with Runtime(path, provider=answers(), agents=AGENTS) as rt:
        assert rt.log.head() > len(logs[0].rows)


@pytest.mark.scenario("L-08")
def test_an_event_changed_behind_the_snapshots_is_found_by_a_start(logs: list[Whole], tmp_path: Path):
    """It decodes, and nothing is missing: its commit's digest tells."""
    said = next(row for row in reversed(logs[1].rows) if row.kind == "message_added" and row.stream == "agent/ada")
    sql = f"UPDATE log SET data = replace(data, 'not to be', 'now to be') WHERE seq = {said.seq}"
    error = refused(edited(logs[1], tmp_path / "log.db", sql))
    assert error.seq <= said.seq
    assert "not what was written" in str(error)


@pytest.mark.scenario("L-08")
def test_the_end_of_the_log_is_cut_back_only_where_it_was_torn(logs: list[Whole], tmp_path: Path):
    """An append that says there is more to come, and is the whole of its commit, is damage: it had been acknowledged."""
    path = edited(logs[1], tmp_path / "log.db", "UPDATE log SET rest = 1 WHERE seq = (SELECT max(seq) FROM log)")
    error = refused(path)
    assert error.last_good_seq is not None
    with closing(open_log(path, readonly=True)) as log:
        assert log.head() == len(logs[1].rows)


@pytest.mark.scenario("L-11")
def test_a_damaged_snapshot_is_none(logs: list[Whole], tmp_path: Path):
    """The state is folded from the events: a byte of a snapshot that still decodes would be another state."""
    chance = random.Random(1)
    with closing(sqlite3.connect(logs[1].path)) as conn:
        sizes = conn.execute("SELECT rowid, length(state) FROM snapshots").fetchall()
    for rowid, size in sizes:
        for place in [*chance.sample(range(1, 40), 4), chance.randrange(1, size)]:
            path = copied(logs[1].path, tmp_path / "log.db")
            with closing(sqlite3.connect(path)) as conn, conn:
                (state,) = conn.execute("SELECT state FROM snapshots WHERE rowid = ?", (rowid,)).fetchone()
                state = state[: place - 1] + bytes([state[place - 1] ^ 1]) + state[place:]
                conn.execute("UPDATE snapshots SET state = ? WHERE rowid = ?", (state, rowid))
            assert started(path, len(logs[1].rows)) == logs[1].started


def test_a_damaged_page_is_written_anew_with_the_next_snapshot(tmp_path: Path):
    """Every snapshot of the conversation names it: a start would fold all events, again and again."""

    def told(messages: int) -> int:
        with Runtime(tmp_path / "log.db", provider=answers(), agents=AGENTS[:1]) as rt:
            for _ in range(messages):
                rt.push("ada", "hello", wake=False)
        with closing(open_log(tmp_path / "log.db")) as log:
            return log.version("agent/ada") - Incarnation(agent("ada"), log).saved

    assert told(PAGE) == 0
    with closing(sqlite3.connect(tmp_path / "log.db")) as conn, conn:
        assert conn.execute("UPDATE pages SET data = zeroblob(length(data))").rowcount == 1
    assert told(1) == 0


@pytest.mark.scenario("L-08")
@pytest.mark.parametrize("name", [b"agent/bob", b"agent/ada", b"host"])
def test_a_stream_whose_name_is_another_is_no_new_stream(logs: list[Whole], tmp_path: Path, name: bytes):
    """Each place of the file that has the name, one byte of it flipped."""
    whole, path = logs[1], tmp_path / "log.db"
    data, place, seen = whole.path.read_bytes(), -1, 0
    while (place := data.find(name, place + 1)) >= 0:
        if data[place - 1 : place + len(name) + 1].isascii() and data[place - 1] < 32:
            changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
            copied(whole.path, path)
            path.write_bytes(changed)
            judged(whole, path, f"{name!r} at {place}")
            seen += 1
    path.unlink()  # no log to decide again
    assert seen


def test_a_file_that_was_a_log_and_is_empty_is_no_new_log(tmp_path: Path):
    path = tmp_path / "log.db"
    with Runtime(path, provider=answers(), agents=AGENTS):
        pass
    path.write_bytes(b"")
    assert "was a log once" in str(refused(path))
    path.unlink()
    path.with_name("log.db.lock").unlink()
    with Runtime(path, provider=answers(), agents=AGENTS) as rt:
        assert rt.log.head() > 0


@pytest.mark.scenario("L-13")
def test_damage_that_decides_otherwise_is_no_divergence(logs: list[Whole], tmp_path: Path):
    """A decision of which a digit was flipped decodes, and is not what today's code would make of it."""
    sql = "UPDATE log SET data = replace(data, 'ada/turn/', 'ada/turm/') WHERE kind = 'turn_started' AND seq > 60"
    path = edited(logs[1], tmp_path / "log.db", sql)
    result = CliRunner().invoke(main, ["redecide", str(path)], catch_exceptions=False)
    assert (result.exit_code, len(result.stderr.splitlines())) == (5, 1), result.stderr
