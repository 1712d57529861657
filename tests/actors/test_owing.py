"""What is owed says why it waits, until when, and what ends the wait: live and from the log alone."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rewake.actors.agent import behaviour as agents
from rewake.actors.config import AgentConfig
from rewake.actors.fleet import recorded_settings
from rewake.actors.owing import Owed
from rewake.actors.providers import ScriptedProvider, call_tool, limit, reply, server_error, slow
from rewake.actors.simulation import Simulation
from rewake.actors.tools import tool
from rewake.events import AgentStarted, Draft, HostStopped, MemoryLog, Quiesced, Recorded, Resumed
from rewake.scripts.accounts import owed_in
from rewake.scripts.histories import story
from tests.actors.worlds import act, begun, host_says

SECOND = 1_000


@tool
async def look(what: str = "") -> str:
    """Takes a minute."""
    await asyncio.sleep(60)
    return what


async def ponder(agent: str, wakes: Any) -> bool:
    await asyncio.sleep(60)
    return True


def world(script: Any = None, provider: Any = None, **config: Any) -> Simulation:
    ada = AgentConfig(name="ada", **{"model": "m", **config})
    return Simulation(agents=[ada], provider=provider or ScriptedProvider(script))


def names(sim: Simulation) -> list[str]:
    return [stream[6:] for stream in sim.log.streams() if stream.startswith("agent/")]


def told(sim: Simulation) -> list[Owed]:
    """What the runtime says is owed; its log alone, and the story of each wake and of its turn, say the same."""
    live = sim.owed()
    assert owed_in(sim.log, names(sim)) == live
    for one in live:
        found = story(sim.log, one.wake)
        (wake,) = found.wakes
        assert (wake.state, wake.why, wake.next_at, wake.ends) == (one.state, one.why, one.next_at, one.ends)
        if found.turns and one.wake in found.turns[-1].wakes:
            assert found.turns[-1].why == one.why
    return live


def waits(sim: Simulation) -> list[tuple[str, str, int | None, str]]:
    """State, why, in how many seconds something happens next, and what ends the wait."""
    return [(one.state, one.why, one.next_at and (one.next_at - sim.now) // SECOND, one.ends) for one in told(sim)]


CALLING = "ada/turn/4 is calling scripted, m"


def test_a_call_and_what_is_queued_behind_it():
    sim = world([slow(reply("late"), 60)], call_timeout=90)
    sim.push("ada", "one")
    sim.run()
    sim.push("ada", "two")
    sim.run()
    assert waits(sim) == [
        ("owed", CALLING, None, "the answer to ada/call/7, or 90 s without one once it is sent"),
        ("owed", f"waits for the end of ada/turn/4, which {CALLING[11:]}", None, "the end of ada/turn/4"),
    ]


@pytest.mark.parametrize(
    ("config", "script", "wait"),
    [
        (
            {"inference_policy": ponder},
            [],
            (
                "ada/turn/4 is starting: tests.actors.test_owing:ponder is asked",
                None,
                "what that says, or 600 s without an answer",
            ),
        ),
        (
            {"tools": [look]},
            [[call_tool("look"), call_tool("look")]],
            ("ada/turn/4 is tooling: look, look", None, "the results"),
        ),
        (
            {},
            [server_error()],
            ("ada/turn/4 tries again after server: the provider had an internal error", 1, "the retry"),
        ),
    ],
)
def test_a_start_that_is_asked_about_tools_and_a_retry(config: Any, script: Any, wait: tuple[Any, ...]):
    sim = world(script, **config)
    sim.push("ada", "one")
    sim.run()
    sim.wake("ada", "two")
    sim.run()
    first, queued = waits(sim)
    assert first == ("owed", *wait)
    assert queued == (
        "owed",
        f"waits for the end of ada/turn/4, which {wait[0][11:]}",
        wait[1],
        "the end of ada/turn/4",
    )


def test_a_hold():
    sim = world(
        provider=ScriptedProvider(summarize=lambda _: slow(reply("Short."), 420)),
        max_tokens=200,
        target_chunk_tokens=100,
    )
    for number in range(12):
        sim.push("ada", f"{'word ' * 80}{number}")
        sim.run()
    sim.configure("ada", context_budget_tokens=900, immediate=True, allow_infeasible=True)
    sim.push("ada", "one")
    sim.run()
    sim.push("ada", "two")
    sim.run()
    for state, why, next_at, ends in waits(sim):
        assert (state, next_at, ends) == ("held", 1_800, "summaries that make room, or the deadline")
        assert "tokens against 700; compression works" in why


def test_a_gate_that_opens_by_itself_by_a_probe_or_by_an_operator():
    sim = Simulation(
        agents=[AgentConfig(name=name, model="m") for name in ("ada", "bob")],
        provider=ScriptedProvider([limit(60), slow(reply("one"), 30), limit(1e30), "two"]),
    )
    for name in ("ada", "bob"):
        sim.push(name, "one")
        sim.run()
    why = ("ada/turn/4 waits for scripted, m: limit", "bob/turn/4 waits for scripted, m: limit")
    assert waits(sim) == [("gated", one, 60, "the opening of the gate") for one in why]
    sim.advance(seconds=70)
    probing, follows = waits(sim)
    assert (probing[:2], follows) == (
        ("owed", "ada/turn/4 is calling scripted, m"),
        ("gated", why[1], None, "the success of agent/ada, whose call goes first"),
    )
    sim.advance(seconds=30)
    assert waits(sim) == [("gated", why[1], None, "release('scripted') by an operator")]
    sim.release("scripted")
    sim.run()
    assert told(sim) == []


def test_a_host_that_is_quiesced_and_a_process_that_has_stopped():
    sim = world(lambda _: slow(reply("ok"), 60))
    host_says(sim, Quiesced("surgery"))
    sim.push("ada", "one")
    sim.run()
    assert waits(sim) == [("gated", "the host is quiesced", None, "the host's resume")]
    host_says(sim, Resumed())
    assert waits(sim)[0][1] == CALLING
    sim.stop()
    assert isinstance(list(sim.log.read(stream="host"))[-1].event, HostStopped)
    (stopped,) = owed_in(sim.log, ["ada"])
    assert (stopped.why, stopped.ends[:44]) == (CALLING, "the next start of the process, then the answ")


def test_an_actor_that_is_parked(monkeypatch: pytest.MonkeyPatch):
    real = agents.react

    def breaks(state: Any, recorded: Recorded, *args: Any) -> Any:
        if recorded.kind == "inference_completed":
            raise KeyError("no")
        return real(state, recorded, *args)

    monkeypatch.setattr(agents, "react", breaks)
    sim = world()
    sim.push("ada", "hello")
    sim.run()
    ((state, why, next_at, ends),) = waits(sim)
    assert (state, next_at, ends) == ("owed", None, "the next start of the process")
    assert why.startswith("agent/ada is parked: ")
    assert "KeyError" in why


def started(**changed: Any) -> MemoryLog:
    """A log of an agent that another process started."""
    log = MemoryLog()
    recorded = replace(recorded_settings(AgentConfig(name="ada", model="m"), ScriptedProvider()), **changed)
    log.append("agent/ada", 0, [Draft(AgentStarted(recorded, agent="ada"), 0, 0)])
    log.close()
    return log


@pytest.mark.parametrize(
    ("changed", "why", "next_at", "ends"),
    [
        ({"strategy": "nowhere:Strategy"}, "nowhere:Strategy", 60, "a start where its strategy can be imported"),
        ({"provider": "gone"}, "waits for provider gone", None, "a start that has provider gone, or another provider"),
    ],
)
def test_a_strategy_and_a_provider_that_are_not_here(changed: Any, why: str, next_at: int | None, ends: str):
    sim = Simulation(agents=(), provider=ScriptedProvider(), log=started(**changed))
    receipt = sim.push("ada", "hello")
    sim.run()
    ((state, said, *rest),) = waits(sim)
    assert (state, why in said, rest) == ("owed", True, [next_at, ends])
    sim.crash()
    sim.restart(agents=[AgentConfig(name="ada", model="m", strategy="window")])
    sim.run_until_idle()
    assert sim.result(receipt).state == "completed"


@settings(max_examples=40)
@given(st.integers(0, 2**32))
def test_nothing_is_owed_without_a_reason_and_an_end_to_it(seed: int):
    """At every moment of a life; where everybody has taken in what there is, the log alone says what they say."""
    sim, chance = begun(seed), random.Random(seed)
    for _ in range(20):
        act(sim, chance)
        while not sim.running:
            sim.restart()
        assert [one for one in sim.owed() if not (one.why and one.ends)] == []
    sim.run()
    if sim.running:
        assert all(one.ends for one in told(sim))
    sim.crash()
