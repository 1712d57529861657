"""The commands that read a log: what they say, and in which form."""

import csv
import io
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import Result

from rewake.actors import AgentConfig, Runtime
from rewake.actors.providers import ScriptedProvider, slow
from rewake.events import open_log, schema

Rewake = Callable[..., Result]


def lines(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_version(rewake: Rewake):
    assert rewake("--version").stdout.startswith("rewake, version ")


def test_help_names_every_command(rewake: Rewake):
    shown = rewake("--help").stdout
    assert all(f"  {name}" in shown for name in ("tail", "owed", "agents", "replay", "show", "verify", "demo", "run"))


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
    assert table[0].split() == ["wake", "agent", "state", "why", "since", "next_at"]
    assert "2026-01-01T00:30:00.000Z" in table[1]


def test_a_table_shows_no_escape_of_what_was_pushed(rewake: Rewake, held: Path):
    for command in (("tail", held, "-t"), ("show", held, "conversation", "-t"), ("replay", held, "-t")):
        shown = rewake(*command).stdout
        assert "\x1b" not in shown
        assert "\\x1b[31mred" in shown or "\\u001b[31mred" in shown


@pytest.mark.parametrize("command", ["tail", "owed", "agents", "replay", "verify"])
@pytest.mark.parametrize("kind", ["missing", "folder", "empty", "text", "other"])
def test_what_is_no_log_is_one_line_and_exit_code_1(rewake: Rewake, tmp_path: Path, command: str, kind: str):
    path = tmp_path / "it.db"
    match kind:
        case "folder":
            path.mkdir()
        case "empty":
            path.touch()
        case "text":
            path.write_text("not a log, though it is long enough to be one\n" * 100, "utf-8")
        case "other":
            with closing(sqlite3.connect(path)) as conn, conn:
                conn.execute("CREATE TABLE mine (x)")
        case _:
            pass
    before = path.read_bytes() if path.is_file() else None
    result = rewake(command, path)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert str(path) in result.stderr
    assert (path.read_bytes() if path.is_file() else None) == before


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
