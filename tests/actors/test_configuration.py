"""An agent that a start does not name waits for what its configuration named: callables, tools, a provider. It never goes on
without them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tenacity import stop_after_attempt

from rewake.actors import ErrorPolicy, Runtime
from rewake.actors.config import AgentConfig
from rewake.actors.providers import ScriptedProvider, call_tool, limit, reply, server_error, slow
from rewake.actors.simulation import Simulation
from rewake.actors.tools import tool
from rewake.events import AgentUnconfigured, Alerted, Missing, ToolResult, TurnStarted, UnknownAgent
from rewake.scripts.accounts import described, owed_in, states
from tests.actors.test_owing import told
from tests.actors.worlds import act, begun, configs

RAN: list[str] = []


@tool(idempotent=True)
async def search(what: str = "") -> str:
    """Takes its time, and may run again."""
    RAN.append(what)
    await asyncio.sleep(30)
    return "found"


@tool
async def send(what: str = "") -> str:
    """Takes its time, and may not."""
    await asyncio.sleep(30)
    return "sent"


def facts(turn: Any) -> Any:
    from rewake.actors import Context

    return Context(system="Grace likes tea.")


def willing(agent: str, wakes: Any) -> bool:
    return True


ONCE = ErrorPolicy(stop=stop_after_attempt(1))


def ada(**config: Any) -> AgentConfig:
    return AgentConfig(name="ada", model="m", **config)


def world(script: Any = None, log: Any = None, seed: int = 0, **config: Any) -> Simulation:
    return Simulation(agents=[ada(**config)], provider=ScriptedProvider(script), log=log, seed=seed)


def forgotten(sim: Simulation, **restart: Any) -> None:
    sim.crash()
    sim.restart(agents=[], **restart)


def missing(sim: Simulation) -> Missing | None:
    return sim.state("settings", "ada").missing


@pytest.mark.parametrize(
    ("named", "lacks"),
    [
        ({"tools": [search, send]}, "tools search, send"),
        ({"context": facts}, "context"),
        ({"inference_policy": willing}, "inference_policy"),
        ({"error_policy": ONCE}, "error_policy"),
        ({"tools": [search], "context": facts}, "tools search, context"),
    ],
)
def test_an_agent_that_a_start_does_not_name_owes_its_wakes_and_says_what_is_missing(named: dict[str, Any], lacks: str):
    """An agent of the log that a start does not name comes back from its recorded configuration; if that named callables
    its wakes stay owed and `health()` says what is missing.
    """
    sim = world(**named)
    sim.run()
    forgotten(sim)
    sim.advance(seconds=5)
    receipt = sim.push("ada", "hello")
    sim.advance(days=1)
    assert "turn_started" not in sim.kinds()
    why = f"waits for its configuration: {lacks}; start it with its AgentConfig"
    (one,) = told(sim)
    assert (one.state, one.why, one.next_at, one.ends) == ("owed", why, None, "a start with its AgentConfig")
    assert sim.now - one.since == 86_400_000
    health = sim.health().agents[0]
    assert (health.state, health.why, sim.now - (health.since or 0)) == ("unconfigured", why, 86_405_000)
    assert (sim.result(receipt).state, sim.result(receipt, 0).why) == ("owed", why)
    assert described(next(states(sim.log, ["ada"])))["why"] == why
    idle = sim.run_until_idle()
    assert (idle.idle, idle.owed) == (True, (receipt.wake,))
    sim.start(ada(**named))
    sim.run_until_idle()
    assert sim.result(receipt).state == "completed"
    assert sim.kinds().count("turn_started") == 1
    if "context" in named:
        assert "Grace likes tea." in sim.provider.requests[-1].system


def test_one_whose_record_names_no_callables_goes_on_from_it():
    sim = world(system="Be brief.", strategy="window")
    sim.run()
    forgotten(sim)
    receipt = sim.push("ada", "hello")
    sim.run_until_idle()
    assert sim.result(receipt).state == "completed"
    assert sim.provider.requests[-1].system == "Be brief."
    assert "agent_unconfigured" not in sim.kinds()


def test_that_it_waits_is_recorded_once_however_often_it_is_forgotten_and_told_where_something_is_owed():
    sim = world(context=facts)
    sim.run()
    forgotten(sim)
    sim.push("ada", "hello")
    forgotten(sim)
    forgotten(sim)
    assert sim.kinds("ada").count("agent_unconfigured") == 1
    assert [one.event.about for one in sim.events() if isinstance(one.event, Alerted)] == []
    sim.crash()
    sim.restart(agents=[ada(context=facts)])
    sim.crash_at("turn_completed")
    sim.run()
    sim.restart(agents=[])
    (alert,) = [one.event for one in sim.events() if isinstance(one.event, Alerted)]
    assert (alert.about, alert.posted) == ("unconfigured", True)
    assert "context" in alert.message


def held(sim: Simulation) -> None:
    for number in range(12):
        sim.push("ada", f"{'word ' * 80}{number}")
        sim.run()
    sim.configure("ada", context_budget_tokens=900, immediate=True, allow_infeasible=True)


def long(_: Any) -> Any:
    return slow(reply("Short."), 420)


SMALL: dict[str, Any] = {"max_tokens": 200, "target_chunk_tokens": 100}
MIDST: dict[str, tuple[Any, Callable[[Simulation], None] | None, str]] = {
    "calling": ([slow(reply("late"), 60), "ok"], None, "calling"),
    "retrying": ([server_error(), "ok"], None, "waiting"),
    "gated": ([limit(600), "ok"], None, "gated"),
    "tooling": ([[call_tool("search", {"what": "x"}), call_tool("send")], "ok"], None, "tooling"),
    "held": (lambda _: "ok", held, "refused"),
}


@pytest.mark.parametrize("midst", MIDST)
@pytest.mark.parametrize("seed", range(3))
def test_a_turn_in_the_middle_stands_where_it_stood_and_goes_on_once(midst: str, seed: int):
    script, before, stage = MIDST[midst]
    provider = ScriptedProvider(script, summarize=long)
    config = ada(tools=[search, send], context=facts, **SMALL)
    sim = Simulation(agents=[config], provider=provider, seed=seed)
    RAN.clear()
    if before:
        before(sim)
    receipt = sim.push("ada", "hello")
    sim.run()
    turns = sim.state("turns", "ada")
    turn = turns.running or turns.held
    assert turn.stage == stage
    forgotten(sim)
    kinds = sim.kinds("ada")
    asked, ran = len([one for one in provider.requests if one.purpose == "turn"]), len(RAN)
    sim.advance(days=2)
    assert (len([one for one in provider.requests if one.purpose == "turn"]), len(RAN)) == (asked, ran)
    assert [one for one in sim.kinds("ada") if one != "provider_tried"] == kinds  # it does not probe: another may
    turns = sim.state("turns", "ada")
    assert (turns.running or turns.held) == turn
    (one,) = told(sim)
    assert "waits for its configuration: tools search, send, context" in one.why
    sim.crash()
    sim.restart(agents=[config])
    sim.run_until_idle()
    sim.advance(hours=1)
    assert sim.result(receipt).state == "completed"
    turn_ids = [one.event.turn for one in sim.events("ada") if isinstance(one.event, TurnStarted)]
    assert set(turn_ids[turn_ids.index(turn.id) :]) == {turn.id}
    if midst == "tooling":
        said = [block for message in provider.requests[-1].messages for block in message.blocks]
        results = [block for block in said if isinstance(block, ToolResult)]
        assert [(one.content, one.is_error) for one in results] == [
            ("found", False),
            ("interrupted: it may or may not have run", True),
        ]
        assert RAN == ["x", "x"]


@pytest.mark.parametrize("gone", [[], [send]])
def test_a_tool_that_is_not_idempotent_by_the_present_declaration_does_not_run_again(gone: list[Any]):
    """Nor does one that is not declared any more: the model is told that it may or may not have run."""
    sim = world([[call_tool("search", {"what": "x"})], "ok"], tools=[search])
    RAN.clear()
    receipt = sim.push("ada", "hello")
    sim.run()

    @tool(name="search")
    def again(what: str = "") -> str:
        """Another search, which may not run again."""
        RAN.append("again")
        return "found"

    sim.crash()
    sim.restart(agents=[ada(tools=gone or [again])])
    sim.run_until_idle()
    assert sim.result(receipt).state == "completed"
    assert RAN == ["x"]
    assert sim.provider.requests[-1].messages[-1].blocks[0].content == "interrupted: it may or may not have run"


def two(other: str) -> dict[str, ScriptedProvider]:
    made = {"m": ScriptedProvider(["one", "two"]), other: ScriptedProvider(["three"])}
    for name, provider in made.items():
        provider.name = name
    return made


def test_a_provider_that_is_missing_is_waited_for_and_another_one_lets_the_turn_go():
    sim = Simulation(agents=[ada()], provider=two("n"))
    receipt = sim.push("ada", "hello")
    sim.crash()
    sim.restart(agents=[], provider={"n": two("n")["n"]})
    sim.run_until_idle()
    (one,) = told(sim)
    assert one.why == "waits for provider m, which this process does not have"
    assert one.ends == "a start that has provider m, or another provider"
    sim.crash()
    sim.restart(agents=[])
    assert sim.kinds().count("agent_unconfigured") == 1
    sim.configure("ada", provider="n", model="n-1")
    sim.run_until_idle()
    assert sim.result(receipt).text == "three"


def test_a_provider_that_is_back_lets_the_turn_go_without_a_configuration():
    sim = Simulation(agents=[ada()], provider=two("n"))
    both = sim.providers
    receipt = sim.push("ada", "hello")
    sim.crash()
    sim.restart(agents=[], provider={"n": two("n")["n"]})
    sim.crash()
    sim.restart(agents=[], provider=both)
    sim.run_until_idle()
    assert sim.result(receipt).text == "one"


def test_one_that_is_named_waits_for_a_provider_that_it_was_configured_to_and_that_is_gone():
    """Its configuration is the one that it had: what `configure` set stays, and is not here."""
    sim = Simulation(agents=[ada()], provider=two("n"))
    sim.configure("ada", provider="n", model="n-1")
    receipt = sim.push("ada", "hello")
    sim.crash()
    sim.restart(provider={"m": two("n")["m"]})
    sim.run_until_idle()
    assert [one.why for one in told(sim)] == ["waits for provider n, which this process does not have"]
    sim.configure("ada", provider="m", model="m")
    sim.run_until_idle()
    assert sim.result(receipt).text == "one"


def test_nobody_else_waits_for_one_that_was_to_probe_its_gate():
    sim = Simulation(
        agents=[ada(context=facts), AgentConfig(name="bob", model="m")],
        provider=ScriptedProvider([limit(60), slow(reply("late"), 300), "bob's", "ada's"]),
    )
    sim.push("ada", "hello")
    sim.run()
    receipt = sim.push("bob", "hello")
    sim.advance(seconds=70)
    assert sim.health().gates[0].waits[0].probe == "agent/ada"
    sim.crash()
    sim.restart(agents=[AgentConfig(name="bob", model="m")])
    sim.run_until_idle()
    assert sim.result(receipt).state == "completed"
    sim.crash()
    sim.restart(agents=[ada(context=facts), AgentConfig(name="bob", model="m")])
    sim.run_until_idle()
    assert sim.owed() == []


def test_what_waits_can_be_aborted_cancelled_and_disposed():
    for end in (
        lambda sim: sim.abort("ada"),
        lambda sim: sim.cancel("ada", drop="all"),
        lambda sim: sim.dispose("ada"),
    ):
        sim = world([server_error()], context=facts)
        sim.push("ada", "hello")
        sim.run()
        forgotten(sim)
        end(sim)
        sim.run_until_idle()
        assert sim.owed() == []
        assert sim.state("turns", "ada").running is None


def test_behind_a_turn_that_is_aborted_meanwhile_no_other_starts():
    sim = world([server_error(), "ok"], context=facts)
    sim.push("ada", "one")
    sim.run()
    receipt = sim.push("ada", "two")
    forgotten(sim)
    sim.abort("ada")
    sim.advance(hours=1)
    assert sim.kinds().count("turn_started") == 1
    sim.start(ada(context=facts))
    sim.run_until_idle()
    assert sim.result(receipt).text == "ok"


def test_a_run_whose_process_has_gone_with_its_tools_is_over():
    log_of = world([[call_tool("send")]])
    log_of.crash_at("tool_called", when="after")
    log_of.run_once(AgentConfig(name="run", model="m", tools=[send]), "go")
    assert log_of.crashed
    log_of.restart(agents=[ada()])
    log_of.run_until_idle()
    assert log_of.kinds("run")[-2:] == ["turn_aborted", "agent_disposed"]
    assert log_of.owed() == []


def test_a_living_runtime_lets_go_what_waited_when_it_is_started(tmp_path: Any):
    path = tmp_path / "agents.db"
    with Runtime(path, provider=ScriptedProvider(), agents=[ada(context=facts)]):
        pass
    with Runtime(path, provider=ScriptedProvider()) as rt:
        receipt = rt.push("ada", "hello")
        assert rt.run_until_idle(timeout=20).owed == (receipt.wake,)
        assert rt.health().agents[0].state == "unconfigured"
        rt.start(ada(context=facts))
        assert rt.result(receipt, timeout=20).state == "completed"
        assert "agent_unconfigured" in [one.kind for one in rt.tail()]


@settings(max_examples=10)
@given(st.integers(0, 2**32))
def test_whichever_agents_each_start_forgets_nothing_runs_without_what_it_needs_and_nothing_is_lost(seed: int):
    sim, chance = begun(seed), random.Random(seed)
    for _ in range(20):
        while not sim.running:
            sim.restart(agents=[one for one in configs() if chance.random() < 0.5])
        with suppress(UnknownAgent):  # a torn write may have taken its start away
            act(sim, chance)
        if not sim.running:
            continue
        lacking = {one.name for one in sim._agents() if one.settings.missing}
        before = len(sim.provider.requests)
        sim.advance(seconds=chance.choice([0, 5, 100]))
        assert not {one.agent for one in sim.provider.requests[before:] if one.purpose == "turn"} & lacking
    sim._armed.clear()
    sim.crash()
    sim.restart(agents=configs())
    sim.advance(days=2)
    waits = [one for one in sim.owed() if not one.wake.startswith(("guest", "run"))]
    assert [one for one in waits if one.state != "held"] == []
    started = [one.event.wakes for one in sim.events() if isinstance(one.event, TurnStarted) and one.event.attempt == 1]
    taken = [wake for wakes in started for wake in wakes]
    assert len(taken) == len(set(taken))
    sim.crash()


def test_the_log_of_a_process_that_has_stopped_says_the_same():
    sim = world(context=facts)
    sim.run()
    forgotten(sim)
    sim.push("ada", "hello")
    sim.stop()
    (one,) = owed_in(sim.log, ["ada"])
    assert one.why == "waits for its configuration: context; start it with its AgentConfig"
    assert one.ends == "a start with its AgentConfig"
    assert [one.event.missing.told for one in sim.events() if isinstance(one.event, AgentUnconfigured)] == ["context"]
