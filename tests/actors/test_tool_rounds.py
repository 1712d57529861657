"""Rounds of tools: what arrives meanwhile waits for their end, and each result stands beside its own call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rewake.actors.config import AgentConfig
from rewake.actors.providers import ScriptedProvider, call_tool, reply, slow
from rewake.actors.providers.base import Request
from rewake.actors.providers.script import Call, Item
from rewake.actors.simulation import Simulation
from rewake.actors.tools import EndTurn, tool
from rewake.events import (
    CalibrationSampled,
    Event,
    InferenceRequested,
    MessagePlaced,
    Text,
    ToolCall,
    ToolResult,
    ToolReturned,
    TurnExhausted,
    TurnStarted,
)
from rewake.projections import verify
from rewake.projections.conversation import Conversation
from rewake.projections.pricing import count_tokens

Simulate = Callable[..., Simulation]
E = TypeVar("E", bound=Event)


def those(simulation: Simulation, kind: type[E], agent: str = "ada") -> list[E]:
    """The events of that kind in an agent's stream."""
    return [recorded.event for recorded in simulation.events(agent) if isinstance(recorded.event, kind)]


@tool(idempotent=True)
async def look(n: int, seconds: float = 2) -> str:
    """Takes a while."""
    await asyncio.sleep(seconds)
    return f"saw {n}"


@tool
async def leave(n: int) -> EndTurn:
    await asyncio.sleep(1)
    return EndTurn(f"left {n}")


def shape(messages: Iterable[Any]) -> list[str]:
    """Messages as one word each: what is said, what is called, what came back."""
    return [" ".join(word(block) for block in message.blocks) for message in messages]


def word(block: Any) -> str:
    match block:
        case Text(text):
            return text
        case ToolCall():
            return f"look({block.arguments['n']})"
        case ToolResult():
            return block.content
        case _:
            return type(block).__name__


@pytest.mark.scenario("W-06")
def test_a_message_that_arrives_during_a_round_is_placed_after_its_results_once(simulate: Simulate):
    simulation = simulate([call_tool("look", {"n": 1}), call_tool("look", {"n": 2}), reply("done")], tools=[look])
    simulation.push("ada", "look twice")
    simulation.advance(seconds=1)
    message = simulation.push("ada", "hurry").message
    assert shape(simulation.state("conversation", "ada").messages) == ["look twice", "look(1)"]
    simulation.advance(seconds=1)
    assert shape(simulation.provider.requests[1].messages) == ["look twice", "look(1)", "saw 1", "hurry"]
    simulation.run_until_idle()
    assert shape(simulation.provider.requests[2].messages)[4:] == ["look(2)", "saw 2"]
    assert [placed.ids for placed in those(simulation, MessagePlaced)] == [(message,)]
    assert shape(simulation.state("conversation", "ada").messages).count("hurry") == 1


@pytest.mark.scenario("W-06")
def test_one_that_arrives_during_the_last_call_is_placed_at_the_turns_end(simulate: Simulate):
    simulation = simulate([slow(reply("done"), seconds=2), reply("yes?")])
    simulation.push("ada", "hello")
    simulation.advance(seconds=1)
    simulation.push("ada", "for your information", wake=False)
    simulation.run_until_idle()
    assert shape(simulation.state("conversation", "ada").messages) == ["hello", "done", "for your information"]
    assert len(simulation.provider.requests) == 1
    simulation.push("ada", "one thing more")
    simulation.run_until_idle()
    asked = ["hello", "done", "for your information", "one thing more"]
    assert shape(simulation.provider.requests[1].messages) == asked
    assert shape(simulation.state("conversation", "ada").messages) == [*asked, "yes?"]


def test_a_request_prices_what_was_placed_just_before_it(simulate: Simulate):
    """A provider that counts as we price says what we estimated."""

    def count(request: Request, estimate: int) -> int:
        texts = [block.text for message in request.messages for block in message.blocks if isinstance(block, Text)]
        results = [one for message in request.messages for one in message.blocks if isinstance(one, ToolResult)]
        calls = [one for message in request.messages for one in message.blocks if isinstance(one, ToolCall)]
        said = sum(count_tokens(text, request.encoding) for text in [*texts, *(one.content for one in results)])
        return said + sum(count_tokens(one.name + '{"n":1}', request.encoding) + 20 for one in calls) + tools

    provider = ScriptedProvider([call_tool("look", {"n": 1}), reply("done"), reply("more")], count=count)
    simulation = simulate(provider=provider, tools=[look])
    tools = simulation.agent("ada").live.tools_tokens
    simulation.push("ada", "look")
    simulation.advance(seconds=1)
    simulation.push("ada", "hurry " * 50)
    simulation.run_until_idle()
    samples = those(simulation, CalibrationSampled)
    assert [sample.priced for sample in samples] == [sample.counted for sample in samples]
    assert [call.payload for call in those(simulation, InferenceRequested)] == [sample.priced for sample in samples]


@given(st.data())
@settings(max_examples=60)
def test_whatever_arrives_whenever_is_in_one_place_in_the_order_of_its_receipts(data: st.DataObject):
    """And a call stays beside its result: the provider refuses any other sequence."""
    rounds: Any = [call_tool("look", {"n": n}) for n in range(data.draw(st.integers(0, 4), "rounds"))]
    gaps = data.draw(st.lists(st.sampled_from([0, 0.5, 1, 2, 3]), min_size=1, max_size=8), "gaps")
    script = iter([slow(item, seconds=1) for item in [*rounds, reply("done")]])
    provider = ScriptedProvider(lambda request: next(script, "later"))
    agent = AgentConfig(name="ada", model="m", tools=[look])
    simulation = Simulation(agents=[agent], provider=provider, seed=data.draw(st.integers(0, 99), "seed"))
    for n, gap in enumerate(gaps):
        simulation.push("ada", f"message {n}")
        simulation.advance(seconds=gap)
    assert simulation.run_until_idle().idle
    assert those(simulation, TurnExhausted) == []
    said = shape(simulation.state("conversation", "ada").messages)
    assert [text for text in said if text.startswith("message")] == [f"message {n}" for n in range(len(gaps))]
    for before, after in pairwise(said):
        assert before.startswith("look") == after.startswith("saw")
    assert [line for line in shape(provider.requests[-1].messages) if line != "[Continue]"] == said[:-1]
    simulation.crash()


def pairs(messages: Iterable[Any]) -> list[tuple[int, str]]:
    """Each call's number beside the result that answers it: by its id, in the message after the call's."""
    found: list[tuple[int, str]] = []
    for asked, answered in pairwise(messages):
        results = {block.id: block.content for block in answered.blocks if isinstance(block, ToolResult)}
        calls = [block for block in asked.blocks if isinstance(block, ToolCall)]
        found += [(call.arguments["n"], results[call.id]) for call in calls]
    return found


def script_of(rounds: list[list[str]]) -> list[Item]:
    """A script of these rounds: the calls of each have these ids and are numbered through."""
    numbers = iter(range(100))
    return [*([call(id, next(numbers)) for id in ids] for ids in rounds), "done"]


def call(id: str, n: int) -> Call:
    return call_tool("look", {"n": n}, id=id)


@pytest.mark.scenario("T-09")
def test_calls_that_share_an_id_are_all_run_and_answered_each_beside_itself(simulate: Simulate):
    simulation = simulate(script_of([["c1"], ["c1"], ["c1", "c1", "c2"]]), tools=[look])
    simulation.push("ada", "look around")
    simulation.run_until_idle()
    assert pairs(simulation.provider.requests[-1].messages) == [(n, f"saw {n}") for n in range(5)]
    assert shape(simulation.provider.requests[-1].messages)[-1] == "saw 2 saw 3 saw 4"
    assert len({returned.tool_call for returned in those(simulation, ToolReturned)}) == 5
    ids = [[block.id for block in message.blocks] for message in simulation.provider.requests[-1].messages[1::2]]
    assert ids[:2] == [["c1"], ["c1"]]
    assert all(id.replace("_", "").isalnum() for id in ids[2])


@pytest.mark.scenario("T-09")
@given(
    st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=3), min_size=1, max_size=4),
    st.sampled_from(["tool_called", "tool_returned", "inference_requested", "inference_completed"]),
    st.integers(1, 4),
    st.sampled_from(["before", "after"]),
)
def test_so_they_are_over_a_crash_at_any_place(rounds: list[list[str]], kind: str, nth: int, when: Any):
    """In every request, in the conversation, and in a later turn."""
    provider = ScriptedProvider([slow(item, seconds=1) for item in script_of(rounds)] + ["later"])
    simulation = Simulation(agents=[AgentConfig(name="ada", model="m", tools=[look])], provider=provider)
    simulation.push("ada", "look around")
    simulation.crash_at(kind, nth, when)
    simulation.advance(minutes=1)
    assume(simulation.crashed)
    simulation.restart()
    simulation.run_until_idle()
    receipt = simulation.push("ada", "and then?")
    simulation.run_until_idle()
    assert simulation.reply_to(receipt) == "later"
    wanted = [(n, f"saw {n}") for n in range(sum(map(len, rounds)))]
    conversation: Conversation = simulation.state("conversation", "ada")
    assert pairs(conversation.messages) == wanted
    for request in provider.requests:
        assert pairs(request.messages) == wanted[: len(pairs(request.messages))]
    simulation.crash()


def test_a_tool_that_ends_the_turn_cuts_off_the_others_of_its_round(simulate: Simulate):
    simulation = simulate(
        [[call_tool("leave", {"n": 1}), call_tool("look", {"n": 2})], reply("hi")], tools=[look, leave]
    )
    simulation.push("ada", "go")
    simulation.advance(seconds=0.5)
    simulation.push("ada", "wait!")
    simulation.run_until_idle()
    cut = "left 1 interrupted: it may or may not have run"
    assert shape(simulation.provider.requests[1].messages)[:4] == ["go", "look(1) look(2)", cut, "wait!"]
    assert [len(those(simulation, kind)) for kind in (TurnStarted, InferenceRequested)] == [2, 2]


def test_an_answer_that_says_nothing_is_no_message(simulate: Simulate):
    """No provider takes an empty message back."""
    simulation = simulate([reply(" \n"), reply("hi")])
    simulation.push("ada", "hello")
    simulation.run_until_idle()
    receipt = simulation.push("ada", "hello?")
    simulation.run_until_idle()
    assert simulation.reply_to(receipt) == "hi"


def results_of(simulation: Simulation) -> list[ToolResult]:
    """The results in the conversation, in order."""
    return [block for one in simulation.state("conversation", "ada").messages for block in one.results]


@pytest.mark.scenario("T-01")
def test_parallel_calls_run_together_and_their_results_are_one_placing_in_the_order_of_the_calls(simulate: Simulate):
    slow_one, quick = call_tool("look", {"n": 1, "seconds": 3}), call_tool("look", {"n": 2, "seconds": 1})
    simulation = simulate([[slow_one, quick], reply("done")], tools=[look])
    receipt = simulation.push("ada", "look twice")
    simulation.advance(seconds=3)
    assert simulation.reply_to(receipt) == "done", "they run at the same time"
    assert [one.result for one in those(simulation, ToolReturned)] == ["saw 2", "saw 1"]
    assert shape(simulation.provider.requests[1].messages)[-1] == "saw 1 saw 2"
    assert [one.content for one in results_of(simulation)] == ["saw 1", "saw 2"]
    kinds = simulation.kinds("ada")
    assert kinds[kinds.index("tool_returned") :].count("message_added") == 2, "the round, and the answer"


@pytest.mark.scenario("T-03")
def test_whatever_goes_wrong_in_a_tool_is_an_error_result_and_the_turn_completes(simulate: Simulate):
    @tool
    def fails() -> str:
        raise KeyError("gone")

    @tool
    def opaque() -> object:
        return object()

    @tool(timeout=2)
    async def stuck() -> str:
        await asyncio.sleep(60)
        return "late"

    calls = [call_tool("look", {"n": "one"}), *(call_tool(name) for name in ("lost", "fails", "stuck", "opaque"))]
    simulation = simulate([calls, reply("done")], tools=[look, fails, opaque, stuck])
    receipt = simulation.push("ada", "try them all")
    simulation.run_until_idle()
    assert simulation.reply_to(receipt) == "done"
    back = results_of(simulation)
    assert all(one.is_error for one in back)
    named = ["invalid arguments for look: Expected `int`", "no tool is called 'lost'", "KeyError: 'gone'"]
    named += ["stuck did not return within 2 s", "the result can not be encoded"]
    assert [said in one.content for said, one in zip(named, back, strict=True)] == [True] * 5


@pytest.mark.scenario("T-05")
def test_a_model_that_always_calls_a_tool_ends_after_fifty_rounds(simulate: Simulate):
    simulation = simulate(lambda request: call_tool("look", {"n": request.step, "seconds": 0}), tools=[look])
    receipt = simulation.push("ada", "look")
    simulation.run_until_idle()
    assert simulation.result(receipt).state == "exhausted"
    (ended,) = those(simulation, TurnExhausted)
    assert (ended.stop_reason, ended.error.kind, ended.tools_run) == ("tool_loop", "tool_loop", 50)
    assert len(those(simulation, ToolReturned)) == len(results_of(simulation)) == 50
    assert len(simulation.provider.requests) == 51
    assert "[turn failed]" in shape(simulation.state("conversation", "ada").messages)[-1]


@pytest.mark.scenario("T-11")
def test_a_result_of_20_mib_is_an_error_result_that_names_it_and_the_limit(simulate: Simulate, tmp_path: Path):
    @tool
    def huge() -> str:
        return "x" * 20 * 2**20

    path = tmp_path / "it.db"
    simulation = simulate([call_tool("huge"), reply("done")], tools=[huge], log=str(path))
    receipt = simulation.push("ada", "all of it")
    simulation.run_until_idle()
    assert simulation.reply_to(receipt) == "done"
    (back,) = results_of(simulation)
    assert back.is_error
    assert "20 MiB" in back.content
    assert "16 MiB" in back.content
    assert verify(simulation.log).ok
    assert path.stat().st_size < 2**20
