"""The commands that read a log: what they say, and in which form."""

import csv
import io
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import Result

from rewake.actors import AgentConfig, Runtime
from rewake.actors.providers import ScriptedProvider, slow
from rewake.actors.simulation import Simulation
from rewake.events import MemoryLog, open_log, schema
from rewake.projections import PROJECTIONS
from rewake.projections.exchange import export
from rewake.scripts.cli import COMMANDS

Rewake = Callable[..., Result]


def lines(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_version(rewake: Rewake):
    assert rewake("--version").stdout.startswith("rewake, version ")


def test_help_names_every_command(rewake: Rewake):
    shown = rewake("--help").stdout
    assert all(f"  {name}" in shown for name in COMMANDS)


def test_owed_shows_every_wake_that_has_not_ended(rewake: Rewake, held: Path):
    """From the log alone: the process that held the turn is gone."""
    owed = lines(rewake("owed", held))
    assert [one["state"] for one in owed] == ["held", "held"]
    assert {one["agent"] for one in owed} == {"ada"}
    assert all(one["next_at"] - one["since"] == 30 * 60_000 and "tokens against 700" in one["why"] for one in owed)


def test_the_log_tells_what_the_runtime_tells(rewake: Rewake, tmp_path: Path):
    """Also while it is written: reading stands in nobody's way."""
    path = tmp_path / "live.db"
    small = AgentConfig(name="ada", model="m", max_tokens=200, target_chunk_tokens=100)
    provider = ScriptedProvider(summarize=lambda request: slow("Short.", 600))
    with Runtime(path, provider=provider, agents=[small]) as runtime:
        for number in range(8):
            runtime.result(runtime.push("ada", f"{'word ' * 80}{number}"), timeout=20)
        runtime.configure("ada", context_budget_tokens=900, immediate=True, allow_infeasible=True)
        receipt = runtime.push("ada", "one")
        assert runtime.run_until_idle(timeout=0.2).held == (receipt.wake,)
        assert lines(rewake("owed", path)) == [msgspec.structs.asdict(one) for one in runtime.owed()]
        assert rewake("verify", path).exit_code == 0


def test_owed_at_an_earlier_seq(rewake: Rewake, held: Path):
    wake = lines(rewake("tail", held, "--kind", "wake", "-n", 1))[0]
    assert len(lines(rewake("owed", held, "--at", wake["seq"]))) == 2
    assert lines(rewake("owed", held, "--at", 3)) == []


def test_agents(rewake: Rewake, held: Path):
    ada, bob = lines(rewake("agents", held))
    assert (ada["agent"], ada["state"], ada["owed"], ada["budget"]) == ("ada", "held", 2, 900)
    assert (bob["agent"], bob["state"], bob["owed"]) == ("bob", "idle", 0)


def test_tail_counts_from_the_end_and_filters(rewake: Rewake, held: Path):
    head = open_log(held, readonly=True).head()
    assert [one["seq"] for one in lines(rewake("tail", held, "-n", 2))] == [head - 1, head]
    assert [one["seq"] for one in lines(rewake("tail", held, "--after", head - 1))] == [head]
    wakes = lines(rewake("tail", held, "--agent", "ada", "--kind", "wake"))
    assert len(wakes) == 14
    assert wakes[0]["data"]["id"].startswith("ada/wake/")


@pytest.mark.parametrize("projection", ["wakes", "turns", "holds", "conversation", "settings", "compression", "host"])
def test_show(rewake: Rewake, held: Path, projection: str):
    rows = lines(rewake("show", held, projection))
    assert rows or projection == "compression"
    assert all("agent" in row for row in rows) == (projection != "host")


def test_show_says_where_what_ended_long_ago_is(rewake: Rewake, held: Path, tmp_path: Path):
    long = tmp_path / "long.db"
    sim = Simulation(agents=[AgentConfig(name="ada", model="m")], provider=ScriptedProvider(), log=str(long))
    for _ in range(70):
        sim.push("ada", "hello")
        sim.run()
    sim.stop()
    shown = rewake("show", long, "turns")
    assert len(shown.stdout.splitlines()) == 64
    sql = shown.stderr.split('"')[1]
    assert len(rewake("query", long, sql).stdout.splitlines()) == 70
    assert rewake("show", long, "wakes").stderr == rewake("show", held, "turns").stderr == ""


def test_show_compression_says_how_it_stands(rewake: Rewake, held: Path):
    """Beside the rows, which are the projection's alone."""
    shown = rewake("show", held, "compression", "--agent", "ada")
    assert [json.loads(line)["state"] for line in shown.stdout.splitlines()] == ["requested"]
    assert "rewake: ada: compression works: ada/compression/2, a summary of 4 messages, is in flight" in shown.stderr


def test_replay_says_what_each_event_changed(rewake: Rewake, held: Path):
    steps = lines(rewake("replay", held))
    wake = next(one for one in reversed(steps) if one["kind"] == "wake")
    assert wake["changed"] == {"wakes": {"owed": "1 → 2"}, "holds": {"waiting.wakes": "1 → 2"}}
    assert [one["seq"] for one in steps] == list(range(1, len(steps) + 1))


def test_verify(rewake: Rewake, held: Path):
    (found,) = lines(rewake("verify", held))
    assert found["ok"]
    assert found["last_good_seq"] == open_log(held, readonly=True).head()


def test_the_log_may_come_from_the_environment(rewake: Rewake, held: Path):
    """Required arguments are counted from the right: a lone one of `show` is the projection."""
    env = {"REWAKE_LOG": str(held)}
    assert len(lines(rewake("owed", env=env))) == 2
    assert lines(rewake("show", "wakes", env=env)) == lines(rewake("show", held, "wakes"))


def test_forms(rewake: Rewake, held: Path):
    """Milliseconds for programs, ISO 8601 in UTC for people."""
    rows = lines(rewake("owed", held))
    assert json.loads(rewake("owed", held, "--json").stdout) == rows
    assert [row["wake"] for row in csv.DictReader(io.StringIO(rewake("owed", held, "--csv").stdout))] == [
        row["wake"] for row in rows
    ]
    table = rewake("owed", held, "-t").stdout.splitlines()
    assert table[0].split() == ["wake", "agent", "state", "why", "since", "next_at", "ends"]
    assert "2026-01-01T00:30:00.000Z" in table[1]


def test_a_table_shows_no_escape_of_what_was_pushed(rewake: Rewake, held: Path):
    for command in (("tail", held, "-t"), ("show", held, "conversation", "-t"), ("replay", held, "-t")):
        shown = rewake(*command).stdout
        assert "\x1b" not in shown
        assert "\\x1b[31mred" in shown or "\\u001b[31mred" in shown


MORE = {
    "backup": ("{out}",),
    "diff": ("{out}",),
    "query": ("SELECT 1",),
    "show": ("wakes",),
    "tables": ("{out}",),
    "what-if": ("--set", "ada.max_tokens=3"),
    "why": ("ada/turn/1",),
}
"""What a command takes beside its log."""
ON_A_LOG = sorted(set(COMMANDS) - {"bench", "demo", "import", "run"})

NO_LOGS = {
    "missing": "there is no such file",
    "nowhere": "there is no such directory",
    "folder": "it is not a file",
    "empty": "it is an empty file",
    "text": "it is no SQLite database",
    "exported": "it is an export of a log: `rewake import NEW.db ",
    "other": "it is another program's SQLite database",
    "blank": "it is an empty database",
    "newer": f"this version reads up to {schema.FORMAT}: update rewake",
}
"""What may be where a log should be, and what is said of it."""


def put(path: Path, kind: str) -> Path:
    match kind:
        case "nowhere":
            return path / "it.db"
        case "folder":
            path.mkdir()
        case "empty":
            path.touch()
        case "text":
            path.write_text("not a log, though it is long enough to be one\n" * 100, "utf-8")
        case "exported":
            path.write_bytes(b"".join(export(MemoryLog())))
        case "other" | "blank":
            with closing(sqlite3.connect(path)) as conn, conn:
                conn.execute("CREATE TABLE mine (x)")
                if kind == "blank":
                    conn.execute("DROP TABLE mine")
        case "newer":
            open_log(path).close()
            with closing(sqlite3.connect(path)) as conn, conn:
                conn.execute("UPDATE meta SET value = value + 1")
        case _:
            pass
    return path


@pytest.mark.parametrize("command", ON_A_LOG)
def test_what_is_no_log_is_one_line_and_exit_code_1(rewake: Rewake, tmp_path: Path, command: str):
    """It says what is there; nothing is made, and nothing that is there is changed."""
    for kind, why in NO_LOGS.items():
        path, out = put(tmp_path / f"{kind}.db", kind), tmp_path / "out"
        before = path.read_bytes() if path.is_file() else None
        result = rewake(command, path, *(one.format(out=out) for one in MORE.get(command, ())))
        assert (result.exit_code, result.stdout) == (1, ""), kind
        assert result.stderr.splitlines() == [f"rewake: {path}: {result.stderr.split(': ', 2)[2].rstrip()}"]
        assert why in result.stderr
        assert (path.read_bytes() if path.is_file() else None) == before
        assert not out.exists()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="permission bits bind no superuser")
@pytest.mark.parametrize("command", ON_A_LOG)
def test_a_log_that_may_not_be_read_says_so(rewake: Rewake, held: Path, command: str):
    held.chmod(0)
    result = rewake(command, held, *(one.format(out=held.with_name("out")) for one in MORE.get(command, ())))
    held.chmod(0o600)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no permission to read it" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("tail", "{log}", "--agent", "nobody"), 1),
        (("owed", "{log}", "--agent", "nobody"), 1),
        (("show", "{log}", "wakes", "--agent", "nobody"), 1),
        (("replay", "{log}", "--agent", "nobody"), 1),
        (("show", "{log}", "nothing"), 2),
        (("show", "{log}", "wakes", "more"), 2),
        (("show",), 2),
        (("owed",), 2),
        (("tail", "{log}", "--kind", "nothing"), 2),
        (("tail", "{log}", "-n", "-1"), 2),
        (("fly", "{log}"), 2),
    ],
)
def test_what_can_not_be_asked(rewake: Rewake, held: Path, args: tuple[str, ...], code: int):
    before = open_log(held, readonly=True).head()
    result = rewake(*(arg.format(log=held) for arg in args), env={"REWAKE_LOG": ""})
    assert (result.exit_code, result.stdout) == (code, "")
    assert "Traceback" not in result.stderr
    assert open_log(held, readonly=True).head() == before


def test_show_without_a_projection_names_them(rewake: Rewake, held: Path):
    for env in ({"REWAKE_LOG": ""}, {"REWAKE_LOG": str(held)}):
        result = rewake("show", held, env=env)
        assert result.exit_code == 2
        assert "Missing argument 'PROJECTION': one of conversation, " in result.stderr


def test_a_log_that_no_process_writes_says_so(rewake: Rewake, held: Path):
    """Its turns do not run, whatever the last event was."""
    for command in (("owed", held), ("agents", held), ("show", held, "host")):
        assert "no process writes this log" in rewake(*command).stderr
    assert lines(rewake("show", held, "host"))[0]["running"] is False
    with closing(open_log(held)) as log:
        log.open_writer()
        assert rewake("owed", held).stderr == ""


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_tables_fit_a_terminal(held: Path, projection: str):
    """Ids and states are whole."""
    table = on_terminal(80, "show", held, projection)
    assert max(map(len, table)) <= 80
    assert projection not in ("conversation", "wakes", "turns") or len(table) > 10


@pytest.mark.parametrize("width", [80, 120, 160])
@pytest.mark.parametrize("command", ["owed", "agents"])
def test_why_something_waits_has_room(held: Path, command: str, width: int):
    """A moment is short where it would leave none."""
    table = on_terminal(width, command, held)
    start, dated = table[0].index("why"), "T00:00:00.000Z" in table[1]
    assert max(map(len, table)) <= width
    assert max(len(line[start:].split("  ")[0]) for line in table[1:]) >= 28
    assert dated == (width == 160 or (command, width) == ("agents", 120))


def test_lines_fit_a_terminal(held: Path):
    for command in ("tail", "replay"):
        shown = on_terminal(80, command, held)
        assert max(map(len, shown)) == 80
        assert any(line.endswith("…") for line in shown)


def on_terminal(width: int, *args: object) -> list[str]:
    """What a command writes to a terminal of that width."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    env = os.environ | {"COLUMNS": str(width), "TERM": "dumb"}
    command = [sys.executable, "-m", "rewake.scripts.cli", *map(str, args)]
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL, env=env) as process:
        os.close(theirs)
        out = b""
        with suppress(OSError):  # a terminal without a writer is an error, not an end
            while chunk := os.read(ours, 65_536):
                out += chunk
    os.close(ours)
    assert process.returncode == 0
    return [line.rstrip() for line in out.decode().splitlines()]


def test_a_moment_is_one_in_every_table(rewake: Rewake, held: Path):
    assert "2026-01-01T00:00:00" in rewake("show", held, "alerts", "-t").stdout


def test_numbers_alone_are_at_the_right(rewake: Rewake, held: Path):
    rows = [line.split() for line in rewake("show", held, "settings", "-t").stdout.splitlines()]
    assert ["model", "m"] in [row[-2:] for row in rows]
    table = rewake("show", held, "settings", "--agent", "ada", "-t").stdout.splitlines()
    start = table[0].index("value")
    assert all(len(line.rstrip()) <= start or line[start] != " " for line in table[1:])


def test_replay_names_calls_by_their_call_and_moments_as_such(rewake: Rewake, held: Path):
    changed = [one["changed"] for one in lines(rewake("replay", held))]
    calls = [how for one in changed for name, how in one.get("turns", {}).items() if name == "running.call"]
    assert any(how.startswith("none → ada/call/") for how in calls)
    moments = [how for one in changed for fields in one.values() for name, how in fields.items() if name == "since"]
    assert moments
    assert all("T" in how for how in moments)
    shown = [how for one in changed for name, how in one.get("conversation", {}).items() if name == "shown"]
    assert all("Shown" not in how for how in shown)


def damaged(log: Path, sql: str) -> Path:
    """A copy of the log after some SQL that its file would refuse."""
    copy = log.with_name("damaged.db")
    shutil.copy(log, copy)
    with closing(sqlite3.connect(copy)) as conn, conn:
        with schema.unlocked(conn):
            conn.execute(sql)
    return copy


def test_a_damaged_log_is_exit_code_5(rewake: Rewake, held: Path):
    """The first bad seq and the last good one are named."""
    result = rewake("verify", damaged(held, "DELETE FROM log WHERE seq = 30"))
    assert result.exit_code == 5
    assert json.loads(result.stdout)["first_bad_seq"] == 30
    assert "the last good event is 29" in result.stderr


def test_an_event_that_does_not_decode_is_exit_code_5(rewake: Rewake, held: Path):
    result = rewake("tail", damaged(held, "UPDATE log SET data = '{' WHERE seq = 30"))
    assert result.exit_code == 5
    assert len(result.stderr.splitlines()) == 1
    assert "event 30" in result.stderr
