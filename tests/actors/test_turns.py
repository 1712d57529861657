"""Turns: one at a time for an agent, from a wake to its end; what fails is tried again or given up, and said so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from rewake.actors.config import AgentConfig, RuntimeOptions
from rewake.actors.providers import ScriptedProvider, auth, call_tool, overflow, reply, server_error, slow
from rewake.actors.simulation import EPOCH, Simulation
from rewake.actors.tools import tool
from rewake.events import (
    Alerted,
    Compiled,
    Event,
    InferenceRequested,
    InvalidSetting,
    MessageAdded,
    Refused,
    RetryScheduled,
    TurnDeclined,
    TurnExhausted,
    TurnStarted,
    Wake,
)

Simulate = Callable[..., Simulation]
E = TypeVar("E", bound=Event)


def those(simulation: Simulation, kind: type[E], agent: str = "ada") -> list[E]:
    """The events of that kind in an agent's stream."""
    return [recorded.event for recorded in simulation.events(agent) if isinstance(recorded.event, kind)]


def times(simulation: Simulation, kind: str) -> list[float]:
    """When events of that kind were recorded, in seconds of virtual time."""
    return [(recorded.at - EPOCH) / 1_000 for recorded in simulation.events("ada") if recorded.kind == kind]


def texts(request: Any) -> list[str]:
    return [block.text for message in request.messages for block in message.blocks]


@pytest.mark.scenario("W-01")
def test_a_push_to_an_idle_agent_is_answered(simulate: Simulate):
    simulation = simulate([reply("384,400 km")])
    receipt = simulation.push("ada", "How far is the moon?")
    assert simulation.run_until_idle().idle
    assert simulation.reply_to(receipt) == "384,400 km"
    assert simulation.kinds("ada") == [
        "agent_started",
        "message_added",
        "wake",
        "turn_started",
        "compiled",
        "undo_point",
        "inference_requested",
        "inference_completed",
        "message_added",
        "calibration_sampled",
        "usage_recorded",
        "turn_completed",
    ]


def test_a_simulation_runs_within_a_loop_that_runs(simulate: Simulate):
    """In an async test, say."""

    async def answered() -> str | None:
        simulation = simulate([slow(reply("hi"), seconds=60)])
        return simulation.result(simulation.push("ada", "hello")).text

    assert asyncio.run(answered()) == "hi"


@pytest.mark.scenario("W-05")
def test_turns_of_two_agents_overlap_and_those_of_one_never_do():
    """In 500 interleavings; what two agents do at once takes as long as what one does."""
    for seed in range(500):
        provider = ScriptedProvider(lambda request: slow(reply("done"), seconds=2))
        agents = [AgentConfig(name=name, model="m") for name in ("ada", "bob")]
        simulation = Simulation(agents=agents, provider=provider, seed=seed)
        for name in ("ada", "bob"):
            simulation.push(name, "begin")
        simulation.advance(seconds=1)
        for name in ("ada", "bob", "ada"):
            simulation.push(name, "go on")
        assert simulation.run_until_idle(timeout=10).idle
        assert simulation.now - EPOCH == 4_000
        assert most_at_once(simulation) == 2
        simulation.crash()


def most_at_once(simulation: Simulation) -> int:
    """The most turns that ran at a time; those of one agent are never two."""
    running: set[str] = set()
    most = 0
    for recorded in simulation.events():
        if recorded.kind == "turn_started":
            assert recorded.stream not in running
            running.add(recorded.stream)
        elif recorded.kind == "turn_completed":
            running.remove(recorded.stream)
        most = max(most, len(running))
    return most


@pytest.mark.scenario("W-07")
def test_a_turn_that_the_policy_declines_ends_its_wakes_without_a_call(simulate: Simulate):
    asked: list[list[str]] = []

    def policy(agent: str, wakes: Any) -> bool:
        asked.append([wake.reason for wake in wakes])
        return asked[-1] != ["noise"]

    simulation = simulate([slow(reply("news!"), seconds=2)], inference_policy=policy)
    noise = simulation.wake("ada", "noise")
    simulation.run_until_idle()
    assert simulation.result(noise).state == "declined"
    assert [(event.wakes, simulation.provider.requests) for event in those(simulation, TurnDeclined)] == [
        ((noise.wake,), [])
    ]
    news = [simulation.wake("ada", "news")]
    simulation.advance(seconds=1)
    news += [simulation.wake("ada", "noise"), simulation.wake("ada", "noise")]
    simulation.advance(seconds=5)
    assert asked[:2] == [["noise"], ["news"]]
    assert simulation.reply_to(news[0]) == "news!"
    assert asked[2:3] == [["noise", "noise"]]


def test_a_policy_that_raises_is_asked_again_and_then_given_up(simulate: Simulate):
    asked: list[int] = []

    def policy(agent: str, wakes: Any) -> bool:
        asked.append(simulation.now - EPOCH)
        raise LookupError("no such rule")

    simulation = simulate(inference_policy=policy)
    receipt = simulation.push("ada", "hello")
    simulation.run_until_idle()
    assert asked == [0, 1_000, 3_000, 7_000]
    assert simulation.provider.requests == []
    assert simulation.result(receipt).why == "LookupError: no such rule"


def test_what_arrives_while_the_policy_is_asked_is_in_the_request(simulate: Simulate):
    """Rule 8: the policy, then the deferred messages, then the plan. Its wake is owed a turn of its own."""

    async def policy(agent: str, wakes: Any) -> bool:
        await asyncio.sleep(5)
        return True

    simulation = simulate([reply("one"), reply("two")], inference_policy=policy)
    first = simulation.push("ada", "first")
    simulation.advance(seconds=1)
    second = simulation.push("ada", "second")
    simulation.run_until_idle()
    assert [texts(request) for request in simulation.provider.requests] == [
        ["first", "second"],
        ["first", "second", "one", "[Continue]"],
    ]
    assert [turn.wakes for turn in those(simulation, TurnStarted)] == [(first.wake,), (second.wake,)]
    assert those(simulation, Compiled)[0].tokens == 2


def test_a_start_whose_policy_is_gone_after_a_restart_goes_on_without_it(simulate: Simulate):
    async def policy(agent: str, wakes: Any) -> bool:
        await asyncio.sleep(5)
        return True

    simulation = simulate([reply("hi")], inference_policy=policy)
    receipt = simulation.push("ada", "hello")
    simulation.crash()
    simulation.restart(agents=[AgentConfig(name="ada", model="m")])
    assert simulation.run_until_idle().idle
    assert simulation.reply_to(receipt) == "hi"


@pytest.mark.scenario("W-08")
def test_a_server_error_is_tried_again_after_one_two_and_four_seconds(simulate: Simulate):
    simulation = simulate([server_error(), server_error(), server_error(), reply("at last")])
    receipt = simulation.push("ada", "hello")
    simulation.run_until_idle()
    assert simulation.reply_to(receipt) == "at last"
    assert times(simulation, "inference_requested") == [0, 1, 3, 7]
    assert len(simulation.provider.requests) == 4
    assert len({str(request.messages) for request in simulation.provider.requests}) == 1
    assert simulation.kinds("ada").count("undo_point") == 1
    assert simulation.kinds("ada").count("compiled") == 1


@pytest.mark.scenario("W-09")
@pytest.mark.scenario("W-16")
@pytest.mark.parametrize(("down", "retried"), [(0, 7), (2, 7), (3, 7), (24 * 3_600, 24 * 3_600 + 4)])
def test_a_wait_that_a_crash_cuts_short_ends_when_it_was_due(simulate: Simulate, down: float, retried: float):
    simulation = simulate([server_error(), server_error(), server_error(), reply("at last")])
    receipt = simulation.push("ada", "hello")
    simulation.advance(seconds=4)
    simulation.crash()
    simulation.advance(seconds=down)
    simulation.restart()
    assert [one.next_at for one in simulation.owed()] == [EPOCH + 7_000]
    simulation.run_until_idle()
    assert simulation.reply_to(receipt) == "at last"
    assert times(simulation, "inference_requested") == [0, 1, 3, retried]
    assert [wait.delay_ms for wait in those(simulation, RetryScheduled)] == [1_000, 2_000, 4_000]
    assert simulation.kinds("ada").count("retry_due") == 3


@pytest.mark.scenario("W-11")
def test_an_exhausted_turn_leaves_one_marker_and_wakes_nobody(simulate: Simulate):
    simulation = simulate([server_error("a pipe burst " * 100)] * 4 + [reply("fine again")])
    receipt = simulation.push("ada", "hello")
    simulation.run_until_idle()
    assert simulation.result(receipt).state == "exhausted"
    assert len(simulation.provider.requests) == 4
    (marker,) = [message for message in those(simulation, MessageAdded) if message.role == "system"]
    failed, _, advice = texts_of(marker).partition("\n")
    assert failed.startswith("[turn failed] server: a pipe burst")
    assert len(failed) == 600
    assert advice == "No reply was sent; 0 tool calls did run. If this happens again, change the approach."
    assert len(those(simulation, Wake)) == 1
    simulation.push("ada", "and now?")
    simulation.run_until_idle()
    assert texts(simulation.provider.requests[-1]) == ["hello", texts_of(marker), "and now?"]


def texts_of(message: MessageAdded) -> str:
    return "".join(getattr(block, "text", "") for block in message.blocks)


@pytest.mark.scenario("W-11")
@pytest.mark.parametrize(("turns", "alerts"), [("EE", 0), ("EEE", 1), ("EECEE", 0), ("EECEEE", 1), ("EEEE", 1)])
def test_three_exhausted_turns_in_a_row_alert_and_a_completion_begins_anew(simulate: Simulate, turns: str, alerts: int):
    simulation = simulate([auth("no key") if turn == "E" else reply("fine") for turn in turns])
    for _ in turns:
        simulation.push("ada", "hello")
        simulation.run_until_idle()
    assert [alert.about for alert in those(simulation, Alerted)].count("hard_down") == alerts


def test_a_window_that_is_full_tells_the_agent_who_can_make_room_and_no_figures(simulate: Simulate):
    simulation = simulate(physical_window_tokens=5_000, system="rule " * 2_000)
    receipt = simulation.push("ada", "hello")
    simulation.run_until_idle()
    assert simulation.result(receipt).state == "exhausted"
    assert simulation.provider.requests == []
    (marker,) = [texts_of(message) for message in those(simulation, MessageAdded) if message.role == "system"]
    assert "Trying again will not make room; whoever configures this agent can." in marker
    assert not any(letter.isdigit() for letter in marker.partition("\n")[0])


@pytest.mark.parametrize("final", [auth(), overflow()])
def test_what_no_waiting_makes_better_ends_at_once(simulate: Simulate, final: Any):
    simulation = simulate([final])
    receipt = simulation.push("ada", "hello")
    simulation.run()
    assert simulation.result(receipt, 0).state == "exhausted"
    assert those(simulation, RetryScheduled) == []


@pytest.mark.scenario("W-24")
def test_a_provider_that_raises_something_of_its_own_harms_one_agent_only(simulate: Simulate):
    broken = True

    def script(request: Any) -> str:
        if broken and request.agent == "ada":
            raise KeyError("choices")
        return "fine"

    simulation = simulate(script, agents=("ada", "bob"))
    for _ in range(3):
        receipts = {name: simulation.push(name, "hello") for name in ("ada", "bob")}
        simulation.run_until_idle()
        assert "KeyError" in simulation.result(receipts["ada"]).why
        assert simulation.reply_to(receipts["bob"]) == "fine"
    assert [(turn.error.type, turn.attempts) for turn in those(simulation, TurnExhausted)] == [("KeyError", 4)] * 3
    assert [alert.message for alert in those(simulation, Alerted) if "KeyError" in alert.message] == [
        those(simulation, Alerted)[-1].message
    ]
    broken = False
    receipt = simulation.push("ada", "hello")
    simulation.run_until_idle()
    assert simulation.reply_to(receipt) == "fine"


@pytest.mark.scenario("W-12")
def test_a_call_without_an_outcome_is_interrupted_and_ordered_again(simulate: Simulate):
    simulation = simulate([slow(reply("hi"), seconds=5), reply("another answer")])
    receipt = simulation.push("ada", "hello")
    simulation.advance(seconds=1)
    simulation.crash()
    simulation.restart()
    simulation.run_until_idle()
    assert simulation.reply_to(receipt) == "hi"
    assert len(simulation.provider.requests) == 2
    assert [message.role for message in those(simulation, MessageAdded)] == ["user", "assistant"]
    assert [simulation.kinds("ada").count(kind) for kind in CALLS] == [1, 2, 1, 1]


@pytest.mark.scenario("W-12")
def test_a_call_that_was_ordered_and_never_sent_is_ordered_again(simulate: Simulate):
    simulation = simulate([slow(reply("one"), seconds=5), reply("two"), reply("three")])
    simulation.push("ada", "first")
    simulation.run()
    receipt = simulation.push("ada", "second")
    simulation.crash_at("inference_requested", when="after")
    simulation.advance(seconds=5)
    assert simulation.crashed
    simulation.restart()
    simulation.run_until_idle()
    assert simulation.reply_to(receipt) == "two"
    assert len(simulation.provider.requests) == 2
    assert [simulation.kinds("ada").count(kind) for kind in CALLS] == [2, 3, 1, 2]


CALLS = ("undo_point", "inference_requested", "inference_interrupted", "inference_completed")


@pytest.mark.scenario("W-13")
@pytest.mark.parametrize(("when", "calls"), [("after", 1), ("before", 2)])
def test_an_answer_that_is_on_disk_is_not_asked_for_again(simulate: Simulate, when: Any, calls: int):
    simulation = simulate([slow(reply("hi"), seconds=5), reply("another answer")])
    simulation.crash_at("inference_completed", when=when)
    receipt = simulation.push("ada", "hello")
    simulation.advance(seconds=5)
    assert simulation.crashed
    simulation.restart()
    simulation.run_until_idle()
    assert simulation.reply_to(receipt) == "hi"
    assert len(simulation.provider.requests) == calls
    assert [message.role for message in those(simulation, MessageAdded)] == ["user", "assistant"]


@pytest.mark.scenario("W-13")
def test_nor_one_that_called_a_tool(simulate: Simulate):
    @tool(idempotent=True)
    async def look() -> str:
        await asyncio.sleep(5)
        return "saw it"

    simulation = simulate([call_tool("look"), reply("hi")], tools=[look])
    receipt = simulation.push("ada", "hello")
    simulation.advance(seconds=1)
    simulation.crash()
    simulation.restart()
    simulation.run_until_idle()
    assert simulation.reply_to(receipt) == "hi"
    assert len(simulation.provider.requests) == 2
    assert "inference_interrupted" not in simulation.kinds("ada")


def words(tokens: int) -> str:
    """A text of so many tokens."""
    return "hello" + " hello" * (tokens - 1)


@pytest.mark.scenario("C-01")
@pytest.mark.parametrize(
    ("config", "room", "bound"),
    [
        ({}, 96_000, 97_920),
        ({"max_tokens": 16_384}, 96_000, 97_920),
        ({"context_budget_tokens": 199_000, "max_tokens": 16_384}, 182_616, 186_268),
        (
            {"context_budget_tokens": 199_000, "max_tokens": 16_384, "over_budget_grace_ratio": 0},
            182_616,
            182_616,
        ),
    ],
)
def test_what_the_budget_leaves_and_its_grace_fits_and_one_token_more_does_not(
    simulate: Simulate, config: Any, room: int, bound: int
):
    """The system prompt is not counted against it."""
    simulation = simulate(lambda request: "ok", system="be brief " * 500, agents=("ada", "bob"), **config)
    fits, over = simulation.push("ada", words(bound)), simulation.push("bob", words(bound + 1))
    simulation.run_until_idle()
    assert simulation.result(fits).state == "completed"
    assert [(compiled.room, compiled.tokens) for compiled in those(simulation, Compiled)] == [(room, bound)]
    assert simulation.result(over).state == "exhausted"
    refusal = those(simulation, Refused, "bob")[0]
    assert (refusal.why, refusal.room, refusal.tokens, refusal.binding) == ("over_budget", room, bound + 1, "budget")


def test_a_budget_leaves_something_beside_the_reply(simulate: Simulate):
    with pytest.raises(InvalidSetting):
        simulate(context_budget_tokens=4_096, max_tokens=4_096)


def outgrown(simulate: Simulate, summarize: Any) -> Simulation:
    """An agent whose history is over a budget that was cut: its next turn is held."""
    provider = ScriptedProvider(lambda request: "ok", summarize=summarize)
    options = RuntimeOptions(maintenance_interval=0)
    simulation = simulate(provider=provider, options=options, recent_window_tokens=500, target_chunk_tokens=1_000)
    for _ in range(20):
        simulation.push("ada", words(400))
        simulation.run_until_idle()
    simulation.configure("ada", context_budget_tokens=8_000, immediate=True, allow_infeasible=True)
    return simulation


@pytest.mark.scenario("Q-11")
def test_idle_is_not_before_a_hold_whose_compression_works_has_ended(simulate: Simulate):
    simulation = outgrown(simulate, lambda request: slow(reply("They said hello."), seconds=60))
    receipt = simulation.push("ada", "are you there?")
    simulation.run()
    assert simulation.result(receipt, 0).state == "held"
    report = simulation.run_until_idle()
    assert (report.idle, report.held, report.owed) == (True, (), ())
    assert simulation.reply_to(receipt) == "ok"


@pytest.mark.scenario("Q-11")
def test_idle_names_a_hold_whose_compression_is_stuck(simulate: Simulate):
    def unavailable(request: Any) -> Any:
        return server_error("no summaries today")

    simulation = outgrown(simulate, unavailable)
    receipt = simulation.push("ada", "are you there?")
    report = simulation.run_until_idle()
    assert (report.idle, report.held, report.owed) == (True, (receipt.wake,), ())
    assert simulation.result(receipt, 0).state == "held"


@pytest.mark.scenario("Q-11")
def test_idle_is_false_past_the_timeout(simulate: Simulate):
    simulation = simulate([slow(reply("hi"), seconds=60)])
    receipt = simulation.push("ada", "hello")
    report = simulation.run_until_idle(timeout=10)
    assert (report.idle, report.owed) == (False, (receipt.wake,))
    assert simulation.now == EPOCH + 10_000
    assert simulation.run_until_idle().idle
    assert [call.step for call in those(simulation, InferenceRequested)] == [1]
