"""A story with all that waits in it; the crash matrix finds what a scenario's test does not look for."""

from __future__ import annotations

from typing import Any

import pytest

from rewake.actors.config import AgentConfig, RuntimeOptions
from rewake.actors.providers import ScriptedProvider, call_tool, reply
from rewake.actors.providers.base import text_of
from rewake.actors.simulation import Simulation
from rewake.actors.tools import tool
from rewake.scripts.soak import ledger


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
    if text_of(request.messages[-1].blocks).startswith("0 "):
        return [call_tool("send", {"what": "a"}, id="c1"), call_tool("look", {"what": "b"}, id="c2")]
    return reply("well " * 30)


KICKS_ONLY = RuntimeOptions(maintenance_interval=0)
"""Nothing is compressed before a refusal asks for it."""


def begun() -> Simulation:
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
    return Simulation(agents=[ada, bob], provider=ScriptedProvider(answer), options=KICKS_ONLY)


@pytest.mark.scenario("L-16")
def test_a_story_of_tools_refusals_holds_and_releases_ends_well():
    """A push, a round of tools, pushes until one is refused, held and released. Like every scenario's, it is played with a
    crash at each of its appends.
    """
    sim = begun()
    wakes: list[str | None] = []
    for number, (name, size) in enumerate([("ada", 5), ("bob", 5), *[("ada", 220)] * 3, ("ada", 20)]):
        wakes.append(sim.push(name, f"{number} " + "word " * size).wake)
        sim.run_until_idle(timeout=7_200)
    assert {"tool_returned", "refused", "held", "compressed", "hold_ended"} <= set(sim.kinds())
    ends, twice, _ = ledger(sim.log)
    assert (list(ends), twice) == (wakes, [])
    sim.crash()
