"""A log of the first version, made by the code of that day: it is read as it is, and says what it said."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from rewake.actors.agent import agent
from rewake.actors.behaviour import Behaviour, Position
from rewake.actors.config import AgentConfig
from rewake.actors.drain import drain
from rewake.actors.incarnation import recover
from rewake.actors.providers import ScriptedProvider, reply
from rewake.actors.redecide import redecide
from rewake.actors.shapes import shape
from rewake.actors.simulation import Simulation
from rewake.actors.snapshots import encode as packed
from rewake.events import Draft, Log, Snapshot, Unknown, Wake, open_log
from rewake.events.codec import UPCASTS, encode
from rewake.projections import verify
from rewake.projections.exchange import export, import_
from tests.logs.first import look, said, send

FIRST = Path(__file__).parent.parent / "logs" / "first.sqlite"


@pytest.fixture
def first(tmp_path: Path) -> Path:
    return Path(shutil.copy(FIRST, tmp_path / "first.db"))


@pytest.fixture
def log(first: Path) -> Iterator[Log]:
    with closing(open_log(first, readonly=True)) as log:
        yield log


@pytest.mark.scenario("L-09")
def test_every_projection_says_of_an_old_log_what_it_said_then(log: Log):
    then, now = json.loads(FIRST.with_suffix(".json").read_text()), json.loads(json.dumps(said(log)))
    assert verify(log).ok
    assert set(then) <= set(now)
    for name, rows in then.items():
        new = now[name]
        if name.startswith("settings"):
            named = {row["name"]: row for row in new}
            assert [row for row in rows if row != named[row["name"]]] == []
            continue
        assert [{field: row[field] for field in old} for old, row in zip(rows, new, strict=True)] == rows


@pytest.mark.scenario("L-09")
def test_an_old_log_is_not_rewritten_and_comes_out_again_as_the_same_bytes(first: Path, log: Log, tmp_path: Path):
    before = first.read_bytes()
    lines = list(export(log))
    said(log)
    redecide(log)
    import_(lines, tmp_path / "new.db")
    with closing(open_log(tmp_path / "new.db", readonly=True)) as again:
        assert list(export(again)) == lines
    assert first.read_bytes() == before


@pytest.mark.scenario("L-09")
def test_an_old_log_is_decided_alike_but_for_what_events_tell_now(log: Log):
    """Whatever was recorded is in today's answer: the same events, with fields that they had not then."""
    for one in redecide(log):
        then, now = [json.loads(event) for event in one.recorded], [json.loads(event) for event in one.now]
        assert [event["kind"] for event in then] == [event["kind"] for event in now]
        for old, new in zip(then, now, strict=True):
            assert {field: new.get(field) for field in old} == old


@pytest.mark.scenario("L-09")
def test_an_agent_goes_on_from_an_old_log_whose_snapshots_are_of_another_shape(first: Path):
    with closing(sqlite3.connect(first)) as conn:
        assert conn.execute("SELECT count(*) FROM snapshots WHERE stream = 'agent/ada'").fetchone()[0]
    with closing(open_log(first, readonly=True)) as log:
        actors: list[Behaviour[Any]] = [agent("ada"), agent("bob"), drain("ada")]
        for behaviour in actors:
            here, used, _ = recover(behaviour, log, log.head())
            assert (used, here.version) == (0, log.version(behaviour.stream))
    configs = [AgentConfig(name="ada", model="m", tools=(look, send)), AgentConfig(name="bob", model="m")]
    sim = Simulation(agents=configs, provider=ScriptedProvider([reply("Still here.")] * 3), log=str(first))
    receipt = sim.push("ada", "And after all this time?")
    sim.advance(hours=1)
    assert sim.result(receipt).text == "Still here."
    assert sim.owed() == []
    sim.crash()
    first.unlink()  # else all of it would be decided again, the events of that day too


@pytest.mark.scenario("L-09")
def test_an_event_whose_kind_and_field_had_other_names_is_upcast_on_reading(
    monkeypatch: pytest.MonkeyPatch, first: Path, log: Log, tmp_path: Path
):
    """As if a wake had been a nudge with a `because`: every projection, every decision and every byte is the same."""
    older = tmp_path / "older.db"
    with closing(open_log(older)) as made:
        for one in log.read():
            event = one.event
            if isinstance(event, Wake):
                old = json.loads(encode(event)) | {"kind": "nudge", "because": event.reason}
                del old["reason"]
                event = Unknown("nudge", msgspec.Raw(json.dumps(old).encode()))
            made.append(one.stream, one.version - 1, [Draft(event, one.at, one.read, one.cause)])
    before = older.read_bytes()

    def renamed(shape: dict[str, Any]) -> dict[str, Any]:
        return {
            "kind": "wake",
            "reason": shape.pop("because"),
            **{name: shape[name] for name in shape if name != "kind"},
        }

    with closing(open_log(older, readonly=True)) as old:
        assert said(old) != said(log)
        monkeypatch.setitem(UPCASTS, "nudge", [renamed])
        assert said(old) == said(log)
        assert redecide(old) == redecide(log)
        assert verify(old).ok
        lines = list(export(old))
        assert sum(b'"because"' in line for line in lines) == sum(one.kind == "wake" for one in log.read())
        import_(lines, tmp_path / "new.db")
        with closing(open_log(tmp_path / "new.db", readonly=True)) as again:
            assert list(export(again)) == lines
    assert older.read_bytes() == before


class Older(Struct, frozen=True):
    count: int = 0


class Newer(Struct, frozen=True):
    count: int = 0
    names: int = 0


def counting(state: type[Any]) -> Behaviour[Any]:
    def evolve(here: Any, recorded: Any) -> Any:
        return state(*(value + 1 for value in (getattr(here, name) for name in state.__struct_fields__)))

    return Behaviour("s", state, state, evolve, lambda *_: [], lambda *_: [], lambda _: {})


def test_a_snapshot_that_would_decode_but_lacks_a_field_is_folded_again():
    """A field that was added has its default in an old snapshot: not what its fold says."""
    assert shape(Older) != shape(Newer)
    with closing(open_log(":memory:")) as log:
        log.open_writer()
        for version in range(3):
            log.append("s", version, [Wake("x")])
        here = recover(counting(Older), log, log.head())[0]
        assert here.state == Older(3)
        old = counting(Older)
        log.save(Snapshot("s", 3, 0, old.coded, *packed(here.state)))
        assert recover(old, log, log.head())[:2] == (Position(Older(3), 3, 0, 0), 3)
        assert recover(counting(Newer), log, log.head())[0].state == Newer(3, 3)


def test_the_shape_of_a_state_is_that_of_all_that_it_is_made_of():
    ada = agent("ada")
    assert shape(ada.state) == shape(agent("bob").state)
    assert shape(ada.state) != shape(drain("ada").state)
