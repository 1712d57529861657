"""A log as tables: what its projections say, row by row, and what its views make of the events."""

import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rewake.actors import AgentConfig
from rewake.actors.providers import ScriptedProvider, reply
from rewake.actors.simulation import Simulation
from rewake.events import (
    ActorParked,
    Compressed,
    HoldEnded,
    HostStarted,
    InferenceCompleted,
    Log,
    LogCorrupt,
    MemoryLog,
    OutputRefused,
    ProviderReleased,
    Quiesced,
    Unknown,
)
from rewake.events.base import moment
from rewake.events.codec import encode
from rewake.projections import PROJECTIONS, tables
from rewake.projections.fold import rows_of
from rewake.projections.tables import COLUMNS, MOMENT, fill
from rewake.projections.views import VIEWS
from tests.actors.worlds import host_says, lived

Asked = Callable[[str], list[dict[str, Any]]]


def asked(log: Log, until: int | None = None) -> Asked:
    """What a log's tables answer."""
    conn = sqlite3.connect(":memory:", isolation_level=None)
    fill(conn, log, until)
    conn.row_factory = sqlite3.Row
    return lambda sql: [dict(row) for row in conn.execute(sql)]


def as_row(columns: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """What SQL has of a projection's row: ISO 8601 where it has milliseconds, JSON where it has more than a value."""

    def told(name: str, value: Any) -> Any:
        if isinstance(value, list | tuple | dict):
            return msgspec.json.encode(value).decode()
        return moment(value) if value is not None and columns[name] == MOMENT else value

    return dict.fromkeys(columns) | {name: told(name, value) for name, value in row.items()}


@pytest.mark.parametrize("seed", range(6))
def test_tables_are_the_projections(seed: int):
    """At any seq: every row, in its order, with the keys of what it belongs to."""
    sim = lived(seed, 24)
    for until in (None, sim.log.head() // 2, 0):
        ask = asked(sim.log, until)
        for name in PROJECTIONS:
            rows = [as_row(dict(COLUMNS[name]), row) for row in rows_of(sim.log, name, until=until)]
            assert ask(f"SELECT * FROM {name} ORDER BY rowid") == rows
        assert ask("PRAGMA foreign_key_check") == []
        events = [
            (
                one.seq,
                moment(one.at),
                one.stream,
                one.version,
                one.cause,
                one.read,
                one.kind,
                encode(one.event).decode(),
            )
            for one in sim.log.read(until=until)
        ]
        there = ask("SELECT seq, at, stream, version, cause, read, kind, data FROM events ORDER BY seq")
        assert [tuple(row.values()) for row in there] == events


@pytest.mark.parametrize("seed", range(15))
def test_views_tell_what_the_runtime_tells(seed: int):
    """Of a host that is quiesced too, and of an actor that is parked."""
    sim = lived(seed, 8 + seed)
    if seed % 5 == 0:
        host_says(sim, Quiesced("surgery"))
        sim.push("ada", "while quiesced")
        sim.run()
    if seed % 5 == 1 and (due := [one.agent for one in sim.owed() if one.next_at]):
        host_says(sim, ActorParked(f"agent/{due[0]}", "KeyError: no"))
    ask = asked(sim.log)
    owed = ask("SELECT wake, state, since, until FROM v_owed ORDER BY wake")
    assert [tuple(one.values()) for one in owed] == sorted(
        (one.wake, one.state, moment(one.since), one.next_at and moment(one.next_at)) for one in sim.owed()
    )
    turns = {one["turn"]: one for one in ask("SELECT * FROM v_turns")}
    for row in rows_of(sim.log, "turns"):
        found = turns[row["turn"]]
        ended = None if row["ended"] is None else moment(row["ended"])
        state = row["state"] if ended else "owed"
        assert (found["state"], found["ended"], found["attempts"]) == (state, ended, row["attempts"])
        assert found["ms"] == (row["ended"] - row["since"] if ended else None)
    kinds = Counter(sim.kinds())
    calls = ask("SELECT * FROM v_calls")
    assert len(calls) == kinds["inference_requested"] + kinds["compression_requested"]
    outcomes = Counter(call["outcome"] for call in calls if call["purpose"] == "turn")
    for outcome in ("completed", "failed", "interrupted"):
        assert outcomes[outcome] == kinds[f"inference_{outcome}"]
    holds = ask("SELECT * FROM v_holds")
    assert len(holds) == kinds["held"] + kinds["provider_held"]
    assert Counter(one["ended"] for one in holds if one["released"]) == Counter(
        one.event.why for one in sim.events() if isinstance(one.event, HoldEnded | ProviderReleased)
    )
    spent = [one.event.usage for one in sim.events() if isinstance(one.event, InferenceCompleted | Compressed)]
    assert sum(one["input"] for one in ask("SELECT * FROM v_tokens")) == sum(one.input for one in spent if one)


def test_a_view_reads_as_it_is_asked():
    provider = ScriptedProvider(script=[reply("Hello.")], count=lambda request, estimate: 50)
    sim = Simulation(agents=[AgentConfig(name="ada", model="m")], provider=provider)
    receipt = sim.push("ada", "Hi", channel="cli")
    sim.run_until_idle()
    ask = asked(sim.log)
    (turn,) = ask("SELECT * FROM v_turns")
    assert turn["turn"] == sim.result(receipt).turn
    assert (turn["agent"], turn["state"], turn["channel"]) == ("ada", "turn_completed", "cli")
    assert turn["started"].startswith("2026-01-01T00:00:00.")
    (tokens,) = ask("SELECT day, agent, model, calls, input FROM v_tokens")
    assert tokens == {"day": "2026-01-01", "agent": "ada", "model": "m", "calls": 1, "input": 50}
    assert ask("SELECT value FROM settings WHERE name = 'max_tokens'") == [{"value": 4096}]


def test_every_name_is_there_for_an_empty_log():
    ask = asked(MemoryLog())
    for name in (*PROJECTIONS, *VIEWS, "agents", "providers", "streams", "events"):
        assert ask(f"SELECT * FROM {name}") == []


def test_what_an_unknown_event_holds_stands_in_no_views_way():
    log = MemoryLog()
    log.append("agent/ada", 0, [Unknown("odd", msgspec.Raw(text)) for text in ("{", "[1]", '{"turn":7,"call":[]}')])
    ask = asked(log)
    assert [one["data"] for one in ask("SELECT data FROM events")] == ["{", "[1]", '{"turn":7,"call":[]}']
    assert all(ask(f"SELECT * FROM {view}") == [] for view in VIEWS)


def test_a_database_is_made_whole_or_not_at_all(tmp_path: Path):
    log, out = MemoryLog(), tmp_path / "out.db"
    log.append("host", 0, [HostStarted("1", 1)])
    tables(log, out)
    with closing(sqlite3.connect(out)) as conn:
        assert conn.execute("SELECT epoch, json_extract(data, '$.epoch') FROM host, events").fetchall() == [(1, 1)]
    before = out.read_bytes()
    with pytest.raises(OutputRefused):
        tables(log, out)
    assert out.read_bytes() == before
    log._rows[0] = log._rows[0]._replace(data="{")
    log.close()
    with pytest.raises(LogCorrupt):
        tables(log, tmp_path / "other.db")
    assert [one.name for one in tmp_path.iterdir()] == ["out.db"]
