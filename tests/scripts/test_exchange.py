"""A log taken out as lines, put in again, and copied while it is written: the same log, or an error and nothing."""

import json
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from click.testing import Result

from rewake.actors import AgentConfig, Runtime
from rewake.actors.providers import ScriptedProvider, reply
from rewake.actors.redecide import redecide
from rewake.actors.simulation import Simulation
from rewake.events import (
    Append,
    Draft,
    ExportCorrupt,
    HostStarted,
    Log,
    LogCorrupt,
    MemoryLog,
    NotALog,
    OutputRefused,
    Resumed,
    Snapshot,
    Unknown,
    backup,
    open_log,
    schema,
)
from rewake.projections import verify
from rewake.projections.exchange import Imported, export, import_, whole

Rewake = Callable[..., Result]


def rows(log: Log) -> list[tuple[object, ...]]:
    return [tuple(row) for row in log.raw()]


@pytest.fixture
def lines(held: Path) -> list[bytes]:
    """The lines of an export of some ninety events."""
    with closing(open_log(held, readonly=True)) as log:
        return list(export(log))


def test_an_imported_log_is_the_log(held: Path, tmp_path: Path):
    """The same rows, append ends and digests; today's code decides it alike; a runtime goes on from it."""
    with closing(open_log(held, readonly=True)) as log:
        lines, events, before = list(export(log)), log.head(), rows(log)
    assert import_(lines, tmp_path / "new.db") == Imported(events)
    assert sorted(file.name for file in tmp_path.iterdir() if not file.name.startswith("held")) == ["new.db"]
    with closing(open_log(tmp_path / "new.db", readonly=True)) as log:
        assert rows(log) == before
        assert list(export(log)) == lines
        assert verify(log).ok
        assert redecide(log) == []


def test_a_writer_of_an_imported_log_has_an_epoch_of_its_own(tmp_path: Path):
    log = MemoryLog()
    log.append("host", 0, [HostStarted("1", 41)])
    import_(export(log), tmp_path / "new.db")
    with closing(open_log(tmp_path / "new.db")) as new:
        assert new.open_writer() == 42


def test_an_event_of_any_shape_is_kept_as_it_is_stored(tmp_path: Path):
    """Old shapes, unknown kinds, line breaks and data that is no JSON at all."""
    log = MemoryLog()
    texts = ['{ "kind":"odd",\n"x":1.50}', '"text"', "null", "{", "\u2028 é", '{"kind":"odd","x":"\\u0000"}']
    log.append("s", 0, [Unknown("odd", msgspec.Raw(text)) for text in texts])
    log.append("host", 0, [Unknown("quiesced", msgspec.Raw('{"reason":"r", "kind":"quiesced","new":1}'))])
    lines = list(export(log))
    import_(lines, tmp_path / "new.db")
    with closing(open_log(tmp_path / "new.db", readonly=True)) as new:
        assert [row.data for row in new.raw()] == [row.data for row in log.raw()]
        assert list(export(new)) == lines


@pytest.mark.scenario("L-14")
def test_a_cut_export_is_taken_up_to_its_last_whole_append(lines: list[bytes], tmp_path: Path):
    """At fifty offsets, in the last bytes, and inside the header, of which nothing is left."""
    text, chance = b"".join(lines), random.Random(1)
    cuts = [0, 1, len(lines[0]) - 2, len(text) - 1, len(text) - 2, len(text) - len(lines[-1])]
    header = json.loads(lines[0])["events"]
    for number, cut in enumerate([*cuts, *(chance.randrange(len(text)) for _ in range(50))]):
        path, kept = tmp_path / f"{number}.db", text[:cut].splitlines(keepends=True)
        if cut < len(lines[0]) - 1:
            with pytest.raises(NotALog):
                import_(kept, path)
            assert not path.exists()
            continue
        made = import_(kept, path)
        with closing(open_log(path, readonly=True)) as log:
            read = [json.loads(one) for one, first in zip(kept, lines, strict=False) if one.rstrip() == first.rstrip()]
            end = max((one["seq"] for one in read[1:] if not one.get("rest")), default=0)
            assert made.events == log.head() == header - made.missing == end
            assert [tuple(row)[:9] for row in log.raw()] == [tuple(row)[:9] for row in before(lines, tmp_path)][
                : log.head()
            ]
            assert verify(log).ok


def before(lines: list[bytes], tmp_path: Path) -> list[tuple[object, ...]]:
    path = tmp_path / "whole.db"
    if not path.exists():
        import_(lines, path)
    with closing(open_log(path, readonly=True)) as log:
        return rows(log)


@pytest.mark.scenario("L-24")
def test_a_damaged_export_names_its_line_and_nothing_is_kept(rewake: Rewake, lines: list[bytes], tmp_path: Path):
    """NUL bytes inside line 40, line 40 missing, twice, or no line at all; the same file whole is the same log."""
    bad, middle = lines[39], len(lines[39]) // 2
    nul = bad[:middle] + bytes(512) + bad[middle:]
    file, new = tmp_path / "it.jsonl", tmp_path / "new.db"
    for wrong, line in (([nul], 40), ([], 40), ([b"\n"], 40), ([b"\xff\n"], 40), ([bad, bad], 41)):
        file.write_bytes(b"".join([*lines[:39], *wrong, *lines[40:]]))
        result = rewake("import", new, file)
        assert (result.exit_code, len(result.stderr.splitlines())) == (5, 1)
        assert f"line {line}: " in result.stderr
        assert sorted(one.name for one in tmp_path.iterdir() if "held" not in one.name) == ["it.jsonl"]
    file.write_bytes(b"".join(lines))
    assert rewake("import", new, file).exit_code == 0
    assert rewake("export", new).stdout_bytes == file.read_bytes()


def test_an_edited_export_is_refused_wherever_it_was_edited(lines: list[bytes], tmp_path: Path):
    """A field that could as well be another is told by its commit's digest, at the latest on that commit's last line."""
    for number in range(1, len(lines), 40):
        line = json.loads(lines[number])
        for field, value in (("at", line["at"] + 1), ("stream", "s"), ("read", 0), ("cause", 1), ("rest", 9)):
            if line.get(field) != value:
                edited = json.dumps(line | {field: value}, separators=(",", ":")).encode() + b"\n"
                with pytest.raises(ExportCorrupt) as refused:
                    import_([*lines[:number], edited, *lines[number + 1 :]], tmp_path / "new.db")
                assert refused.value.line >= number + 1


def test_what_is_no_export_is_told_from_a_damaged_one(rewake: Rewake, held: Path, lines: list[bytes], tmp_path: Path):
    later = lines[0].replace(b'"format":1', b'"format":2')
    for first, why in ((b"", "header"), (b"hello\n", "header"), (lines[1], "header"), (later, "update rewake")):
        file = tmp_path / "it.jsonl"
        file.write_bytes(first)
        result = rewake("import", tmp_path / "new.db", file)
        assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
        assert why in result.stderr
        assert str(file) in result.stderr
    assert rewake("import", tmp_path / "new.db", held).exit_code == 1
    assert rewake("import", tmp_path / "new.db", tmp_path / "none").exit_code == 1
    assert rewake("import", tmp_path / "new.db", tmp_path).exit_code == 1
    assert not (tmp_path / "new.db").exists()


@pytest.mark.parametrize("there", ["out", "out-wal", "out-head"])
def test_nothing_is_overwritten(rewake: Rewake, held: Path, tmp_path: Path, there: str):
    (tmp_path / there).write_text("mine")
    for command in (("export", held), ("backup", held), ("import",)):
        result = rewake(*command, tmp_path / "out")
        assert (result.exit_code, result.stdout) == (1, "")
        assert "nothing is overwritten" in result.stderr or command == ("import",)
    with pytest.raises(OutputRefused):
        backup(held, tmp_path / "out")
    assert (tmp_path / there).read_text() == "mine"
    assert rewake("backup", held, tmp_path / "no" / "out").stderr.endswith("there is no such directory\n")


def test_an_export_until_a_seq_ends_with_a_whole_append(held: Path, tmp_path: Path):
    """Also where that is in the middle of a commit; what was imported of it is exported alike."""
    with closing(open_log(held, readonly=True)) as log:
        ends = [0, *(row.seq for row in log.raw() if not row.rest)]
        for until in range(0, log.head() + 2, 21):
            lines = list(export(log, until=until))
            last = whole(log, until)
            assert last == max(end for end in ends if end <= until)
            assert [json.loads(line)["seq"] for line in lines[1:]] == list(range(1, last + 1))
            path = tmp_path / f"{until}.db"
            assert import_(lines, path) == Imported(last)
            with closing(open_log(path, readonly=True)) as new:
                assert list(export(new)) == lines
                assert verify(new).ok


def test_a_commit_of_several_appends_is_exported_as_one(tmp_path: Path):
    """Cut inside, it is a commit of what is left of it."""
    log = MemoryLog()
    log.commit([Append(stream, 0, (Draft(Resumed(), 1), Draft(Resumed(), 2))) for stream in ("s", "t", "u")])
    for until, kept in ((6, 6), (5, 4), (3, 2), (1, 0)):
        lines = list(export(log, until=until))
        assert len(lines) == kept + 1
        import_(lines, tmp_path / f"{until}.db")
        with closing(open_log(tmp_path / f"{until}.db", readonly=True)) as new:
            assert list(export(new)) == lines
            assert verify(new).ok


def test_stdin_and_stdout(rewake: Rewake, held: Path, tmp_path: Path):
    """The log of an export may come from the environment; one argument alone is the log."""
    shown = rewake("export", held)
    assert rewake("export", env={"REWAKE_LOG": str(held)}).stdout == shown.stdout
    assert rewake("export", held, "-", "--until", 10).stdout.count("\n") <= 11
    assert rewake("export", held, tmp_path / "it.jsonl").exit_code == 0
    assert (tmp_path / "it.jsonl").read_bytes() == shown.stdout_bytes
    assert rewake("export", held, "a", "b").exit_code == 2
    command = [sys.executable, "-m", "rewake.scripts.cli", "import", str(tmp_path / "new.db")]
    ran = subprocess.run(command, input=shown.stdout_bytes[:-1000], capture_output=True, check=False)
    assert ran.returncode == 0
    assert b"the export was cut" in ran.stderr
    assert rewake("verify", tmp_path / "new.db").exit_code == 0


def test_a_damaged_log_says_how_to_keep_what_is_good(rewake: Rewake, held: Path, tmp_path: Path):
    """And that is so."""
    held = Path(shutil.copy(held, tmp_path / "damaged.db"))
    with closing(sqlite3.connect(held)) as conn, conn, schema.unlocked(conn):
        conn.execute("DELETE FROM log WHERE seq = 30")
    with closing(open_log(held, readonly=True)) as log, pytest.raises(LogCorrupt) as corrupt:
        list(export(log))
    assert (corrupt.value.seq, corrupt.value.last_good_seq) == (30, 29)
    for command in (("export", held), ("export", held, tmp_path / "it.jsonl"), ("verify", held)):
        result = rewake(*command)
        assert result.exit_code == 5
        assert f"`rewake export {held} FILE --until 29` and `rewake import NEW.db FILE` keep" in result.stderr
    assert not (tmp_path / "it.jsonl").exists()
    assert rewake("export", held, tmp_path / "it.jsonl", "--until", 29).exit_code == 0
    assert rewake("import", tmp_path / "new.db", tmp_path / "it.jsonl").exit_code == 0
    assert rewake("verify", tmp_path / "new.db").exit_code == 0


def test_a_backup_of_a_log_in_use_is_the_log_at_one_moment(rewake: Rewake, tmp_path: Path):
    """The writer goes on; the copy is whole, and a runtime goes on from it."""
    path, copy = tmp_path / "live.db", tmp_path / "copy.db"
    provider = ScriptedProvider(script=lambda request: reply("yes"))
    ada = AgentConfig(name="ada", model="m")
    with Runtime(path, provider=provider, agents=[ada]) as runtime:
        receipts = [runtime.push("ada", str(number)) for number in range(20)]
        result = rewake("backup", path, copy)
        assert (result.exit_code, result.stdout) == (0, "")
        backup(path, tmp_path / "again.db")
        runtime.push("ada", "later")
        runtime.run_until_idle(timeout=20)
        with closing(open_log(copy, readonly=True)) as log:
            assert verify(log).ok
            assert rows(log) == rows(runtime.log)[: log.head()]
            assert log.head() >= receipts[-1].seq
    with Runtime(copy, provider=provider, agents=[ada]) as runtime:
        assert runtime.result(receipts[-1], timeout=20).state == "completed"


@pytest.mark.scenario("L-08")
@pytest.mark.parametrize("shell", [Runtime, Simulation])
@pytest.mark.parametrize("damage", ["edited", "deleted", "kind", "flipped"])
def test_no_runtime_starts_on_a_damaged_log(held: Path, shell: type[Runtime | Simulation], damage: str):
    """Without snapshots a start reads the whole log: it is refused, and the last good event is named; nothing is written."""
    with closing(open_log(held)) as log:
        log.drop_snapshots()
        head = log.head()
    held = Path(shutil.copy(held, held.with_name("damaged.db")))
    if damage == "flipped":
        pages = bytearray(held.read_bytes())
        pages[pages.find(b"word word", len(pages) // 2)] ^= 1
        held.write_bytes(pages)
    else:
        how = {
            "edited": "UPDATE log SET data = data || ' ' WHERE seq = 30",
            "deleted": "DELETE FROM log WHERE seq = 30",
            "kind": "UPDATE log SET kind = 'wake' WHERE seq = 30",
        }
        with closing(sqlite3.connect(held)) as conn, conn, schema.unlocked(conn):
            conn.execute(how[damage])
    with closing(open_log(held, readonly=True)) as log:
        found = verify(log)
    assert not found.ok
    with pytest.raises(LogCorrupt) as corrupt:
        started(shell, held)
    assert (corrupt.value.seq, corrupt.value.last_good_seq) == (found.first_bad_seq, found.last_good_seq)
    assert f"--until {found.last_good_seq}` and" in str(corrupt.value)
    with closing(open_log(held)) as log:
        log.open_writer()  # it was let go
        assert log.head() == head


def started(shell: type[Runtime | Simulation], path: Path) -> None:
    given = {"provider": ScriptedProvider(script=[]), "agents": [AgentConfig(name="ada", model="m")]}
    if shell is Simulation:
        Simulation(log=str(path), **given)
        return
    with Runtime(path, **given):
        pass


@pytest.mark.parametrize("shell", [Runtime, Simulation])
def test_a_stream_with_a_gap_behind_its_snapshot_is_refused(held: Path, shell: type[Runtime | Simulation]):
    """What a start reads it checks, also where it does not read all."""
    path = Path(shutil.copy(held, held.with_name("damaged.db")))
    with closing(open_log(path)) as log:
        log.drop_snapshots()
        log.save(Snapshot("host", 1, 0, "another version's", b""))
        gone = [one.seq for one in log.read(stream="agent/ada")][20]
    with closing(sqlite3.connect(path)) as conn, conn, schema.unlocked(conn):
        conn.execute("DELETE FROM log WHERE seq = ?", (gone,))
    with pytest.raises(LogCorrupt) as corrupt:
        started(shell, path)
    assert (corrupt.value.seq, corrupt.value.last_good_seq) == (gone, gone - 1)
    path.unlink()
