"""What a fuzzer found, each as short as it came to be."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tenacity import stop_after_attempt, wait_none

from rewake.actors import BudgetInfeasible, Context, InvalidContent, InvalidSetting
from rewake.actors.config import AgentConfig
from rewake.actors.policy import ErrorPolicy
from rewake.actors.providers import ScriptedProvider, auth, call_tool, limit, reply, slow
from rewake.actors.tools import tool
from rewake.events import ToolReturned
from rewake.projections.plan import Refusal
from tests.actors.conftest import Simulate
from tests.actors.strategies import DemandsNoText, DemandsTooMuch, Exits, RaisesUnspeakably
from tests.actors.worlds import actors, living, restarted


class AtOnce(ErrorPolicy):
    """Tries again without a wait."""

    def __init__(self) -> None:
        super().__init__(stop_after_attempt(5), wait_none())


def test_a_refusal_that_is_tried_again_without_a_wait_is_tried_again_each_time(simulate: Simulate):
    """All its retries are due at one time: each has a timer of its own."""
    sim = simulate(context_budget_tokens=200, max_tokens=100, error_policy=AtOnce())
    receipt = sim.push("ada", "word " * 300)
    sim.run_until_idle()
    assert sim.result(receipt, 0).state == "exhausted"
    assert sim.kinds("ada").count("retry_due") == 4
    assert sim.owed() == []


def test_after_a_first_turn_that_had_nothing_to_show_a_head_is_shown(simulate: Simulate):
    """The request of a wake without a message before any other holds no stretch of the conversation."""
    sim = simulate([reply("good morning"), reply("well")], head_window_tokens=50)
    sim.wake("ada", "tick")
    sim.run_until_idle()
    receipt = sim.push("ada", "hello")
    sim.run_until_idle()
    assert sim.reply_to(receipt) == "well"


def test_a_wake_s_receipt_has_no_message_of_the_turn_that_it_started(simulate: Simulate):
    sim = simulate([auth()], physical_window_tokens=150, max_tokens=100)
    sim.push("ada", "word " * 300, wake=False)
    first = sim.wake("ada", "tick", dedupe_key="one")
    assert sim.result(first, 0).state == "exhausted"
    assert first.message is None
    assert sim.wake("ada", "tick", dedupe_key="one") == first == sim.receipt(first.wake or "")


def test_a_wake_that_came_before_its_turn_was_held_is_held_with_it(simulate: Simulate):
    """It came while the policy was asked: the hold began without it, and ends for both."""

    async def willing(agent: str, wakes: Any) -> bool:
        await asyncio.sleep(5)
        return True

    sizes: Any = {"context_budget_tokens": 700, "max_tokens": 100, "recent_window_tokens": 100}
    answers = ScriptedProvider(lambda _: reply("well " * 60), summarize=lambda _: slow(reply("short"), 500))
    sim = simulate(provider=answers, inference_policy=willing, target_chunk_tokens=120, **sizes)
    while not sim.agent("ada").holds.waiting:
        sim.push("ada", "word " * 120)
        sim.advance(seconds=1)
        sim.push("ada", "word " * 120)
        sim.advance(seconds=6)
    assert len(sim.owed()) > 2
    assert {one.state for one in sim.owed()} == {"held"}


def test_a_summariser_that_states_no_wait_is_not_asked_without_a_pause(simulate: Simulate):
    """`retry-after: 0` on every call: it is asked now and then, not at once and for ever."""
    answers = ScriptedProvider(lambda _: reply("well " * 60), summarize=lambda _: limit(0))
    sizes: Any = {"context_budget_tokens": 700, "max_tokens": 100, "recent_window_tokens": 100}
    sim = simulate(provider=answers, target_chunk_tokens=120, **sizes)
    for _ in range(12):
        sim.push("ada", "word " * 60)
        sim.advance(seconds=1)
    before = len(sim.kinds())
    sim.advance(minutes=10)
    assert len(sim.kinds()) - before < 200


def test_a_changed_configuration_is_taken_in_as_one(simulate: Simulate):
    """A hold is looked at once, with all of it; not at each setting."""
    answers = ScriptedProvider(lambda _: reply("well " * 60), summarize=lambda _: slow(reply("short"), 5_000))
    sizes: Any = {"max_tokens": 100, "recent_window_tokens": 400, "target_chunk_tokens": 120}
    sim = simulate(provider=answers, **sizes)
    for _ in range(8):
        sim.push("ada", "word " * 60)
        sim.run()
    sim.configure("ada", context_budget_tokens=800, immediate=True, allow_infeasible=True)
    receipt = sim.push("ada", "now?")
    sim.run()
    assert sim.result(receipt, 0).state == "held"
    sim.crash()
    room: Any = {**sizes, "context_budget_tokens": 100_000, "recent_window_tokens": 300, "target_chunk_tokens": 200}
    looks = sim.kinds().count("hold_looked")
    sim.restart(agents=[AgentConfig(name="ada", model="m", **room)])
    assert sim.kinds("ada").count("hold_looked") == looks
    sim.run()
    assert sim.reply_to(receipt) is not None


def test_a_turn_whose_message_was_read_by_the_turn_before_has_a_request_all_the_same(simulate: Simulate):
    """The second message came while the first turn was prepared, and that turn failed; a window shows nothing of it."""

    async def context(turn: Any) -> Context:
        await asyncio.sleep(5)
        return Context()

    script = [auth(), reply("here")]
    sim = simulate(script, strategy="window", context=context, context_budget_tokens=110, max_tokens=100)
    sim.push("ada", "word " * 100)
    second = sim.push("ada", "word " * 100)
    sim.run_until_idle()
    assert sim.result(second, 0).text == "here"
    assert [message.role for message in sim.provider.requests[-1].messages] == ["user"]


WRONG = [Exits, RaisesUnspeakably, DemandsNoText, DemandsTooMuch]


@pytest.mark.parametrize("strategy", WRONG)
def test_a_strategy_that_gives_what_no_event_can_have_or_exits_fails_its_turn_alone(
    simulate: Simulate, strategy: type[Any]
):
    sim = simulate(strategy=strategy)
    receipt = sim.push("ada", "hello")
    sim.run_until_idle()
    found = sim.result(receipt, 0)
    assert found.state == "exhausted"
    assert found.why.startswith("invalid_plan")
    assert "actor_failed" not in sim.kinds()


@pytest.mark.parametrize("strategy", WRONG)
def test_a_change_and_a_preview_tell_of_a_strategy_that_fails(simulate: Simulate, strategy: type[Any]):
    """As a refusal, like the compile; the change is made, but for a cut that is to be feasible."""
    sim = simulate(strategy=strategy, context_budget_tokens=10_000)
    sim.push("ada", "hello", wake=False)
    for budget, immediate in ((20_000, False), (30_000, True), (9_000, False)):
        found = sim.configure("ada", context_budget_tokens=budget, immediate=immediate)
        assert isinstance(found, Refusal)
        assert (found.why, found.target_room) == ("invalid_plan", budget - 4_096)
        assert strategy.__name__ in found.error
    assert sim.preview("ada") == found
    head = sim.log.head()
    with pytest.raises(BudgetInfeasible, match=strategy.__name__):
        sim.configure("ada", context_budget_tokens=8_000, immediate=True)
    assert sim.log.head() == head


def test_who_changes_a_setting_is_a_text(simulate: Simulate):
    """Anything else was recorded, and the log could not be read again."""
    sim = simulate()
    head = sim.log.head()
    for who in (5, "\ud800"):
        with pytest.raises(InvalidContent):
            sim.configure("ada", max_tokens=50, by=who)  # pyright: ignore[reportArgumentType]
    assert sim.log.head() == head


@pytest.mark.parametrize("name", ["call_timeout", "hold_stall_after"])
@pytest.mark.parametrize("wait", [float("inf"), 1e300, float("nan"), 0])
def test_a_wait_is_one_that_a_clock_can_be_told(name: str, wait: float):
    waits: Any = {name: wait}
    with pytest.raises(InvalidSetting, match=name):
        AgentConfig(name="ada", model="m", **waits)


def test_equal_settings_have_equal_digests_however_they_were_come_by(simulate: Simulate):
    """A whole number for a ratio; a default that was set again."""
    sim = simulate(strategy="window", over_budget_grace_ratio=0)
    sim.crash()
    sim.restart(agents=[AgentConfig(name="ada", model="m", over_budget_grace_ratio=0)])
    live, behaviours = living(sim), actors(sim)
    sim.crash()
    assert restarted(behaviours, sim.log) == live


@tool
def dump() -> str:
    """More than an excerpt shows."""
    return "word " * 1_000


@pytest.mark.parametrize("digits", [19, 40, 5_000])
def test_a_result_of_an_impossible_id_is_not_there(simulate: Simulate, tmp_path: Path, digits: int):
    """SQLite has no such number, Python reads none of that many digits: the model is told what it is told of any other."""
    asked = call_tool("read_result", {"result": f"ada/call/{'9' * digits}/0"})
    script = [call_tool("dump"), asked, reply("done")]
    sim = simulate(script, tools=[dump], log=str(tmp_path / "log.db"), result_excerpt_chars=1_000)
    sim.push("ada", "hello")
    sim.run_until_idle()
    returned = [one.event for one in sim.events("ada") if isinstance(one.event, ToolReturned)]
    assert returned[-1].result.startswith("LookupError: ada has no tool result")


def test_a_run_whose_process_died_before_it_was_told_anything_is_gone(simulate: Simulate):
    """Its agent stayed, idle, through every start that followed."""
    sim, scout = simulate(), AgentConfig(name="scout", model="m")
    sim.crash_at("agent_started", when="after")
    assert sim.run_once(scout, "look") is None
    for _ in range(2):
        sim.restart()
        assert sim.kinds("scout") == ["agent_started", "agent_disposed"]
        sim.stop()
    sim.restart()
    assert sim.run_once(scout, "look again").text == "echo: look again"
