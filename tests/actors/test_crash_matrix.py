"""A scenario, crashed before and after each of its appends, comes to the same end."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from rewake.actors.config import AgentConfig, RuntimeOptions
from rewake.actors.providers import ScriptedProvider, call_tool, reply
from rewake.actors.simulation import Simulation
from rewake.actors.tools import tool
from rewake.events import Held, MessageAdded, TurnStarted, Wake, WakeWithdrawn
from rewake.events.turns import TURN_ENDS


@tool
def send(what: str) -> str:
    """Send something."""
    return f"sent {what}"


@tool(idempotent=True)
def look(what: str) -> str:
    """Look something up."""
    return f"found {what}"


def answer(request: Any) -> Any:
    """The first of ada's turns has a round of tools."""
    if request.agent == "ada" and request.turn == TOOLING and request.step == 1:
        return [call_tool("send", {"what": "a"}, id="c1"), call_tool("look", {"what": "b"}, id="c2")]
    return reply("well " * 30)


TOOLING = "ada/turn/4"
KICKS_ONLY = RuntimeOptions(maintenance_interval=0)
"""Nothing is compressed before a refusal asks for it."""


def begun(seed: int) -> Simulation:
    ada = AgentConfig(
        name="ada",
        model="m",
        tools=(send, look),
        context_budget_tokens=760,
        max_tokens=100,
        recent_window_tokens=150,
        target_chunk_tokens=120,
    )
    bob = AgentConfig(name="bob", model="m")
    return Simulation(agents=[ada, bob], provider=ScriptedProvider(answer), seed=seed, options=KICKS_ONLY)


def story(sim: Simulation) -> list[str]:
    """A push, a round of tools, pushes until one is refused, held and released: the wakes that were acknowledged.

    What is not acknowledged is pushed again, as a client would: by its key.
    """
    wakes: list[str] = []
    for number, (name, size) in enumerate(
        [("ada", 5), ("bob", 5), ("ada", 220), ("ada", 220), ("ada", 220), ("ada", 20)]
    ):
        receipt = None
        while receipt is None:
            if sim.crashed:
                restart(sim)
                continue
            receipt = sim.push(name, f"{number} " + "word " * size, dedupe_key=str(number))
        assert receipt.wake
        wakes.append(receipt.wake)
        settle(sim)
    return wakes


def settle(sim: Simulation) -> None:
    while True:
        while sim.crashed:
            restart(sim)
        sim.run_until_idle(timeout=7_200)
        if not sim.crashed:
            return


def restart(sim: Simulation) -> None:
    """Nothing had been sent that was not on disk."""
    ordered = {getattr(one.event, "call", getattr(one.event, "id", "")) for one in sim.events()}
    assert {request.call for request in sim.provider.requests} <= ordered
    sim.restart()


def ends(sim: Simulation) -> Counter[str]:
    """How often each wake ended."""
    taken, ended = dict[str, tuple[str, ...]](), Counter[str]()
    for recorded in sim.events():
        event = recorded.event
        if isinstance(event, TurnStarted):
            taken[event.turn] = event.wakes
        elif type(event) in TURN_ENDS:
            ended.update(taken[getattr(event, "turn", "")])
        elif isinstance(event, WakeWithdrawn):
            ended.update(event.wakes)
    return ended


def conversation(sim: Simulation) -> dict[str, list[Any]]:
    """What was said, by whom."""
    return {name: [spoken(one) for one in sim.agent(name).conversation.messages] for name in ("ada", "bob")}


def spoken(message: Any) -> Any:
    return message.role, message.text, [one.content for one in message.results], [call.name for call in message.calls]


def alike(found: Any, expected: Any) -> bool:
    """The same, but for results that are marked interrupted."""
    if isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(alike(*pair) for pair in zip(found, expected, strict=True))
    return found == expected or found.startswith("interrupted:")


def holds(sim: Simulation) -> list[tuple[str, int, int]]:
    """Each time a turn was held: since when, and until when."""
    return [(one.event.turn, one.event.since, one.event.until) for one in sim.events() if isinstance(one.event, Held)]


@pytest.mark.scenario("L-16")
@pytest.mark.parametrize("seed", [1, 2])
def test_a_crash_at_any_append_changes_nothing_but_the_marks(seed: int):
    """Once, or again at the next append. Every log is decided again behind the test."""
    whole = begun(seed)
    before = appends(whole)
    wakes = story(whole)
    kinds = Counter(whole.kinds())
    assert {"tool_returned", "refused", "held", "compressed", "hold_ended"} <= set(kinds)
    assert ends(whole) == Counter(wakes)
    for nth in range(1, appends(whole) - before + 1):
        for when in ("before", "after"):
            for again in (0, 1):
                sim = begun(seed)
                sim.crash_at("*", nth, when)
                if again:
                    sim.crash_at("*", nth + again, when)
                check(sim, story(sim), whole, f"{when} append {nth}, and again after {again}")


def appends(sim: Simulation) -> int:
    return sum(row.rest == 0 for row in sim.log.raw())


def check(sim: Simulation, wakes: list[str], whole: Simulation, where: str) -> None:
    assert not sim._armed, where
    assert ends(sim) == Counter(wakes), where
    said, expected = conversation(sim), conversation(whole)
    for name in expected:
        assert alike(said[name], expected[name]), f"{where}: {said[name]} is not {expected[name]}"
    added = [one.event.id for one in sim.events() if isinstance(one.event, MessageAdded)]
    assert len(added) == len(set(added)), where
    accepted = [one.event.dedupe_key for one in sim.events() if isinstance(one.event, Wake)]
    assert len(accepted) == len(set(accepted)), where
    assert holds(sim), where
    first: dict[str, tuple[int, int]] = {}
    for turn, since, until in holds(sim):
        assert first.setdefault(turn, (since, until)) == (since, until), where
        assert until == since + 30 * 60_000, where
    sim.crash()
