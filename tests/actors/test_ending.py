"""Ends from outside: aborts, cancels, disposals, runs of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from rewake.actors.config import AgentConfig, RuntimeOptions
from rewake.actors.providers import ScriptedProvider, call_tool, drop, limit, reply, server_error, slow
from rewake.actors.providers.base import Reply, text_of
from rewake.actors.simulation import Simulation
from rewake.actors.tools import EndTurn, tool
from rewake.events import (
    Event,
    InvalidContent,
    InvalidSetting,
    MemoryLog,
    MessageAdded,
    MessageRemoved,
    Text,
    ToolReturned,
    TurnAborted,
    TurnNotRunning,
    TurnStarted,
    UnknownAgent,
    WakeWithdrawn,
)
from rewake.events import Quiesced as Paused
from rewake.events.errors import Quiesced

Simulate = Callable[..., Simulation]
E = TypeVar("E", bound=Event)


def those(sim: Simulation, kind: type[E], agent: str = "ada") -> list[E]:
    return [recorded.event for recorded in sim.events(agent) if isinstance(recorded.event, kind)]


def shown(request: Any) -> list[str]:
    """The texts of a request, one for each message."""
    return [text_of(message.blocks) for message in request.messages]


@tool
async def wait(seconds: float = 60) -> str:
    """Takes its time."""
    await asyncio.sleep(seconds)
    return "waited"


@tool
async def at_once() -> str:
    """Returns at once."""
    return "done"


@tool
async def leave() -> EndTurn:
    """Ends the turn in a second."""
    await asyncio.sleep(1)
    return EndTurn("left")


async def slowly(*_: Any) -> bool:
    await asyncio.sleep(5)
    return True


# -- abort


class Streams:
    """Says a little, then takes a minute; after the first call it answers at once."""

    name = "streams"

    def __init__(self) -> None:
        self.requests: list[Any] = []

    async def infer(self, request: Any, on_delta: Callable[[str], None]) -> Reply:
        self.requests.append(request)
        if len(self.requests) == 1:
            on_delta("The moon ")
            on_delta("is ")
            await asyncio.sleep(60)
        return Reply((Text("fine"),), "end_turn")


@pytest.mark.scenario("Q-08")
@pytest.mark.parametrize(
    ("config", "script", "stage"),
    [
        ({"inference_policy": slowly}, [], "starting"),
        ({}, [slow(reply("late"), seconds=60)], "calling"),
        ({"tools": [wait]}, [call_tool("wait")], "tooling"),
        ({}, [server_error()], "waiting"),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_an_abort_ends_the_turn_wherever_it_is_and_the_next_wake_runs(
    simulate: Simulate, config: Any, script: list[Any], stage: str, seed: int
):
    sim = simulate([*script, reply("fine")], seed=seed, **config)
    first = sim.push("ada", "go")
    sim.run()
    turn = sim.agent("ada").turn
    assert turn.stage == stage
    second = sim.push("ada", "and this?")
    report = sim.abort("ada", reason="no use")
    assert (report.turn, report.wakes) == (turn.id, (first.wake,))
    assert sim.run_until_idle().idle
    assert (sim.result(first).state, sim.result(first).why) == ("aborted", "no use")
    assert sim.reply_to(second) == "fine"
    assert [message for message in those(sim, MessageAdded) if message.role == "system"] == []
    assert "turn_exhausted" not in sim.kinds("ada")
    assert sim.agent("ada").turns.streak == 0


@pytest.mark.scenario("Q-08")
def test_an_abort_ends_a_turn_whose_call_waits_for_admission(simulate: Simulate):
    sim = simulate(
        [slow(reply("one"), seconds=60), reply("two")], agents=("ada", "bob"), options=RuntimeOptions(max_in_flight=1)
    )
    sim.push("bob", "go")
    sim.run()
    receipt = sim.push("ada", "go")
    sim.run()
    sim.abort("ada")
    sim.run_until_idle()
    assert sim.result(receipt).state == "aborted"
    assert [request.agent for request in sim.provider.requests] == ["bob"]


@pytest.mark.scenario("Q-08")
def test_what_the_model_had_said_is_kept_as_a_partial_message():
    provider = Streams()
    sim = Simulation(agents=[AgentConfig(name="ada", model="m")], provider=provider)
    sim.push("ada", "How far is the moon?")
    sim.advance(seconds=1)
    report = sim.abort("ada")
    (partial,) = [message for message in those(sim, MessageAdded) if message.partial]
    assert (partial.id, partial.blocks, partial.role) == (report.partial, (Text("The moon is "),), "assistant")
    assert sim.kinds("ada")[-2:] == ["message_added", "turn_aborted"]
    sim.push("ada", "And?")
    sim.run_until_idle()
    assert shown(provider.requests[1]) == ["How far is the moon?", "The moon is ", "And?"]


@pytest.mark.parametrize("ends", ["abort", "end_turn"])
def test_a_turn_that_ends_gives_each_of_its_tools_a_result(simulate: Simulate, ends: str):
    """In the append that ends it; the one that had returned keeps its own, a late one is dropped."""
    calls = [call_tool("at_once", id="c1"), call_tool("wait", id="c2"), call_tool("leave", id="c3")]
    sim = simulate([calls, reply("fine")], tools=[at_once, wait, leave])
    sim.push("ada", "go")
    sim.advance(seconds=0.5)
    if ends == "abort":
        sim.abort("ada")
    sim.advance(minutes=3)
    assert [(one.result, one.why) for one in those(sim, ToolReturned)] == [
        ("done", ""),
        *([("left", "")] if ends == "end_turn" else []),
        *[("interrupted: it may or may not have run", "ended")] * (2 if ends == "abort" else 1),
    ]
    log = sim.events("ada")
    end = next(one for one in log if one.kind in ("turn_aborted", "turn_completed"))
    cut = [one for one in log if isinstance(one.event, ToolReturned) and one.event.why == "ended"]
    assert {one.at for one in cut} == {end.at}
    sim.push("ada", "and?")
    sim.run_until_idle()
    (results,) = [message for message in sim.provider.requests[1].messages if len(message.blocks) == 3][1:]
    assert [result.id for result in results.blocks] == ["c1", "c2", "c3"]
    assert sim.agent("ada").turns.running is None


@pytest.mark.scenario("Q-07")
def test_a_late_abort_never_hits_the_next_turn(simulate: Simulate):
    sim = simulate([reply("one"), slow(reply("two"), seconds=5)])
    with pytest.raises(TurnNotRunning):
        sim.abort("ada")
    sim.push("ada", "first")
    sim.run_until_idle()
    second = sim.push("ada", "second")
    sim.run()
    one, two = (started.turn for started in those(sim, TurnStarted))
    head = sim.log.head()
    with pytest.raises(TurnNotRunning) as refused:
        sim.abort("ada", turn=one)
    assert (refused.value.turn, refused.value.present) == (one, two)
    assert sim.log.head() == head
    assert sim.result(second).text == "two"


def test_an_abort_keeps_the_usage_of_the_calls_that_were_answered(simulate: Simulate):
    sim = simulate([call_tool("wait")], tools=[wait])
    sim.push("ada", "go")
    sim.run()
    sim.abort("ada")
    assert sim.kinds("ada")[-2:] == ["usage_recorded", "turn_aborted"]


def test_an_aborted_turn_stays_aborted_after_a_crash(simulate: Simulate):
    for when in ("before", "after"):
        sim = simulate([slow(reply("late"), seconds=60)])
        receipt = sim.push("ada", "go")
        sim.run()
        sim.crash_at("turn_aborted", when=when)
        assert sim.abort("ada") is None
        sim.restart()
        sim.run_until_idle()
        assert sim.result(receipt).state == ("completed" if when == "before" else "aborted")


# -- cancel


def waiting(simulate: Simulate, **options: Any) -> tuple[Simulation, dict[str, Any]]:
    """Two people's and two machine's wakes, queued behind a turn that takes a minute."""
    sim = simulate([slow(reply("first"), seconds=60), reply("second"), reply("third")], **options)
    sim.push("ada", "busy")
    sim.run()
    sent = {
        "person": sim.push("ada", "from grace", author="grace"),
        "machine": sim.push("ada", "from a machine", addressed=False),
        "tick": sim.wake("ada", "tick"),
        "another": sim.push("ada", "from alan", author="alan"),
    }
    return sim, sent


@pytest.mark.scenario("Q-19")
def test_a_cancel_drops_what_machines_sent_with_its_messages(simulate: Simulate):
    sim, sent = waiting(simulate)
    report = sim.cancel("ada")
    dropped = (sent["machine"].wake, sent["tick"].wake)
    assert (report.wakes, report.messages) == (dropped, (sent["machine"].message,))
    assert set(report.kept) >= {sent["person"].wake, sent["another"].wake}
    assert [(one.wakes, one.why) for one in those(sim, WakeWithdrawn)] == [(dropped, "cancelled")]
    sim.run_until_idle()
    assert shown(sim.provider.requests[-1]) == ["busy", "first", "from grace", "from alan"]
    assert (sim.result(sent["tick"]).state, sim.result(sent["tick"]).why) == ("withdrawn", "cancelled")
    assert sim.reply_to(sent["person"]) == "second"


@pytest.mark.scenario("Q-19")
def test_a_cancel_of_all_leaves_neither_wakes_nor_messages(simulate: Simulate):
    sim, sent = waiting(simulate)
    report = sim.cancel("ada", drop="all")
    assert len(report.wakes) == 4
    assert len(report.messages) == 3
    assert sim.run_until_idle().idle
    assert {sim.result(one).state for one in sent.values()} == {"withdrawn"}
    sim.push("ada", "and now?")
    sim.run_until_idle()
    assert shown(sim.provider.requests[-1]) == ["busy", "first", "and now?"]
    assert [len(started.wakes) for started in those(sim, TurnStarted)] == [1, 1]


@pytest.mark.scenario("Q-19")
def test_a_message_that_a_request_has_had_stays(simulate: Simulate):
    """It came while a tool ran, and was placed with the round's results; its wake waits for the turn's end."""
    sim = simulate([call_tool("at_once"), slow(reply("first"), seconds=60), reply("second")], tools=[at_once])
    sim.push("ada", "busy")
    while not sim.agent("ada").turns.running or not sim.agent("ada").turn.tools:
        assert sim.scheduler.step()
    late = sim.push("ada", "by the way", addressed=False)
    sim.run()
    assert "by the way" in shown(sim.provider.requests[-1])
    report = sim.cancel("ada", drop="all")
    assert (report.wakes, report.messages) == ((late.wake,), ())
    assert those(sim, MessageRemoved) == []
    sim.run_until_idle()
    assert len(those(sim, TurnStarted)) == 1
    assert "by the way" in [message.text for message in sim.agent("ada").conversation.messages]


@pytest.mark.scenario("Q-09")
@pytest.mark.parametrize("drop", ["machine", "all"])
def test_a_retry_of_machine_causes_ends_with_them(simulate: Simulate, drop: Any):
    sim = simulate([server_error(), reply("fine")])
    tick = sim.wake("ada", "tick")
    sim.run()
    queued = sim.push("ada", "from grace")
    report = sim.cancel("ada", drop=drop)
    assert report.turn == those(sim, TurnStarted)[0].turn
    assert [(one.turn, one.reason) for one in those(sim, TurnAborted)] == [(report.turn, "cancelled")]
    sim.run_until_idle()
    assert sim.result(tick).state == "withdrawn"
    assert sim.result(queued).state == ("completed" if drop == "machine" else "withdrawn")
    assert "retry_due" not in sim.kinds("ada")


def test_a_cancel_leaves_a_turn_that_works_alone(simulate: Simulate):
    sim = simulate([slow(reply("done"), seconds=9)])
    receipt = sim.wake("ada", "tick")
    sim.run()
    head = sim.log.head()
    assert sim.cancel("ada", drop="all").kept == (receipt.wake,)
    assert sim.log.head() == head
    assert sim.result(receipt).text == "done"
    with pytest.raises(InvalidSetting):
        sim.cancel("ada", drop="some")  # pyright: ignore[reportArgumentType]


# -- agents come and go


def test_an_agent_starts_and_is_disposed_at_run_time(simulate: Simulate):
    sim = simulate()
    sim.start(AgentConfig(name="cyd", model="m"))
    receipt = sim.push("cyd", "hello")
    sim.run_until_idle()
    assert sim.reply_to(receipt) == "echo: hello"
    sim.dispose("cyd", reason="enough")
    assert sim.kinds("cyd")[-1] == "agent_disposed"
    for call in (sim.push, sim.wake):
        with pytest.raises(UnknownAgent, match="disposed"):
            call("cyd", "still there?")
    with pytest.raises(InvalidSetting, match="not used again"):
        sim.start(AgentConfig(name="cyd", model="m"))
    assert sim.reply_to(receipt) == "echo: hello"


@pytest.mark.parametrize("crash", [False, True])
def test_a_start_passes_a_disposed_agent_over_and_says_so(simulate: Simulate, crash: bool):
    sim = simulate(agents=("ada", "bob"))
    sim.dispose("bob")
    (sim.crash if crash else sim.stop)()
    sim.restart(agents=[AgentConfig(name=name, model="other") for name in ("ada", "bob")])
    assert sim.kinds("bob")[-1] == "agent_disposed"
    (bob,) = [one for one in sim.health().agents if one.agent == "bob"]
    assert (bob.state, "passed over" in bob.why) == ("disposed", True)


@pytest.mark.parametrize("script", [[slow(reply("late"), seconds=60)], [server_error()], [call_tool("wait")]])
def test_a_disposal_ends_the_running_turn_and_all_that_is_owed(simulate: Simulate, script: Any):
    sim = simulate(script, tools=[wait])
    receipts = [sim.push("ada", "go")]
    sim.run()
    receipts.append(sim.push("ada", "and then?"))
    sim.dispose("ada")
    assert {(sim.result(one).state, sim.result(one).why) for one in receipts} == {("withdrawn", "disposed")}
    assert sim.run_until_idle().idle
    assert sim.kinds("ada")[-1] == "agent_disposed"
    assert (sim.kinds("ada").count("turn_started"), sim.kinds("ada").count("turn_aborted")) == (1, 1)
    assert sim.owed() == []


# -- one run


def test_a_run_of_its_own_leaves_nothing_behind(simulate: Simulate):
    sim = simulate()
    config = AgentConfig(name="scout", model="m")
    results = [sim.run_once(config, f"look {n}") for n in range(3)]
    assert [one.text for one in results] == [f"echo: look {n}" for n in range(3)]
    names = [stream.removeprefix("agent/") for stream in sim.log.streams() if stream.startswith("agent/scout")]
    assert names == ["scout", "scout-2", "scout-3"]
    for name in names:
        assert sim.kinds(name)[-2:] == ["turn_completed", "agent_disposed"]
    assert [one.agent for one in sim.health().agents] == ["ada"]
    assert sim.owed() == []


def test_a_run_that_takes_too_long_is_aborted(simulate: Simulate):
    sim = simulate([slow(reply("late"), seconds=60)])
    result = sim.run_once(AgentConfig(name="scout", model="m"), "look", timeout=5)
    assert (result.state, result.text) == ("aborted", None)
    assert sim.kinds("scout")[-2:] == ["turn_aborted", "agent_disposed"]
    sim.advance(minutes=2)
    assert sim.log.head() == max(one.seq for one in sim.events())


def test_a_run_that_a_crash_cuts_off_is_finished_and_gone_after_the_restart(simulate: Simulate):
    sim = simulate([slow(reply("late"), seconds=60)])
    sim.crash_at("inference_requested", when="after")
    assert sim.run_once(AgentConfig(name="scout", model="m"), "look") is None
    sim.restart()
    sim.run_until_idle()
    assert sim.kinds("scout")[-2:] == ["turn_completed", "agent_disposed"]
    assert sim.owed() == []


def test_a_run_of_bad_content_starts_nothing(simulate: Simulate):
    sim = simulate()
    head = sim.log.head()
    with pytest.raises(InvalidContent):
        sim.run_once(AgentConfig(name="scout", model="m"), "")
    assert sim.log.head() == head


@pytest.mark.scenario("Q-12")
def test_a_run_is_refused_while_the_host_is_quiesced():
    log = MemoryLog()
    log.append("host", 0, [Paused()])
    log.close()
    sim = Simulation(agents=(), provider=ScriptedProvider(), log=log)
    head = sim.log.head()
    with pytest.raises(Quiesced):
        sim.run_once(AgentConfig(name="scout", model="m"), "look")
    assert sim.log.head() == head


def test_a_broken_stream_and_an_abort_between_its_retries(simulate: Simulate):
    sim = simulate([drop(after="The moon"), reply("fine")])
    sim.push("ada", "go")
    sim.run()
    sim.abort("ada")
    sim.run_until_idle()
    assert sim.kinds("ada")[-1] == "turn_aborted"
    assert len(sim.provider.requests) == 1


@pytest.mark.parametrize(
    ("script", "why"),
    [([limit(600)], "waits for scripted, m: limit"), ([slow(reply("late"), 60)], "is calling scripted, m")],
)
def test_a_run_past_its_time_says_what_it_waited_for(simulate: Simulate, script: Any, why: str):
    sim = simulate(script)
    result = sim.run_once(AgentConfig(name="scout", model="m"), "look", timeout=5)
    assert (result.state, result.why) == ("aborted", f"the run took too long: scout/turn/4 {why}")


def test_a_run_that_was_to_go_first_and_is_over_lets_another_go_first(simulate: Simulate):
    asked: list[str] = []

    def script(request: Any) -> Any:
        asked.append(request.agent)
        first = asked.count(request.agent) == 1
        if request.agent == "scout":
            return limit(60) if first else slow(reply("late"), seconds=300)
        return slow(limit(50), seconds=1) if first else reply("ok")

    sim = simulate(script)
    receipt = sim.push("ada", "hello")
    assert sim.run_once(AgentConfig(name="scout", model="m"), "look", timeout=70).state == "aborted"
    sim.run_until_idle(timeout=60)
    assert sim.result(receipt).text == "ok"
    assert asked.count("scout") == 2
