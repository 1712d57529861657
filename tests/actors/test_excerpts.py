"""Long results of tools: whole in the log, an excerpt in the conversation, read on with a built-in tool."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewake.actors import AgentConfig, InvalidSetting, Runtime
from rewake.actors.excerpts import excerpt, read_result
from rewake.actors.providers import ScriptedProvider, call_tool, reply
from rewake.actors.simulation import Simulation
from rewake.actors.tools import tool
from rewake.events import (
    CalibrationSampled,
    CompressionRequested,
    InferenceRequested,
    ToolReturned,
    TurnCompleted,
    open_log,
)
from rewake.projections import verify
from rewake.projections.pricing import count_tokens, price_all, price_tools

Simulate = Callable[..., Simulation]
LONG = "".join(f"{n:09} " for n in range(67_000))
"""670,000 characters; at place 10 × n stands n."""


@tool
def dump() -> str:
    """Everything."""
    return LONG


@tool
def broken() -> str:
    raise ValueError("no " * 2_000)


def returns(simulation: Simulation) -> list[ToolReturned]:
    return [one.event for one in simulation.events("ada") if isinstance(one.event, ToolReturned)]


def results(simulation: Simulation, agent: str = "ada") -> list[str]:
    """What the conversation shows of each result."""
    return [block.content for one in simulation.state("conversation", agent).messages for block in one.results]


@pytest.mark.scenario("C-19")
def test_a_long_result_is_whole_in_the_log_and_an_excerpt_in_the_conversation(simulate: Simulate):
    """The turn goes on, and the model reads the middle of it."""
    middle = call_tool("read_result", {"result": "ada/call/7/0", "start": 300_000})
    simulation = simulate([call_tool("dump"), middle, reply("done")], tools=[dump])
    receipt = simulation.push("ada", "dump it")
    simulation.run_until_idle()
    assert simulation.reply_to(receipt) == "done"
    whole, read = returns(simulation)
    assert (whole.tool_call, whole.result, whole.excerpt_chars) == ("ada/call/7/0", LONG, 24_000)
    shown, part = results(simulation)
    assert len(shown) <= 24_000
    assert shown.startswith(LONG[:17_000])
    assert shown.endswith(LONG[-5_000:])
    assert 'read_result(result="ada/call/7/0", start=' in shown
    assert len(part) <= 24_000
    assert part == read.result
    assert part.splitlines()[0].startswith("[ada/call/7/0: characters 300000 to 323")
    assert part.splitlines()[1].startswith(LONG[300_000:323_000])
    assert sum(len(str(one.event)) > 100_000 for one in simulation.events()) == 1, "stored once"


def test_the_whole_can_be_read_as_the_excerpt_and_each_part_say(simulate: Simulate):
    """From where the excerpt leaves off, part by part, to the end."""

    def script(request: Any) -> Any:
        said = request.messages[-1].blocks[0]
        text = getattr(said, "content", "")
        if found := re.search(r"start=(\d+)", text):
            return call_tool("read_result", {"result": "ada/call/7/0", "start": int(found[1])})
        if (found := re.match(r"\[.*characters \d+ to (\d+) of (\d+)\]", text)) and found[1] != found[2]:
            return call_tool("read_result", {"result": "ada/call/7/0", "start": int(found[1])})
        return "done" if text else call_tool("dump")

    simulation = simulate(script, tools=[dump], max_rounds=100)
    simulation.push("ada", "dump it")
    simulation.run_until_idle()
    shown, *parts = results(simulation)
    read = shown.partition("\n[...")[0] + "".join(part.partition("\n")[2] for part in parts)
    assert read == LONG


def test_the_tool_is_offered_from_the_first_excerpt_on_and_priced(simulate: Simulate):
    """A provider that counts as we price, tools too, says what we estimated: before, after, and in a restarted process."""

    def count(request: Any, estimate: int) -> int:
        said = sum(price_all(message.blocks, request.encoding) for message in request.messages)
        return said + price_tools(request.tools, request.encoding)

    script = [reply("hi"), call_tool("dump"), reply("done"), reply("more"), reply("again")]
    simulation = simulate(provider=ScriptedProvider(script, count=count), tools=[dump])
    for text in ("hello", "dump it", "more"):
        simulation.push("ada", text)
        simulation.run_until_idle()
    simulation.crash()
    simulation.restart()
    simulation.push("ada", "again")
    simulation.run_until_idle()
    offered = [tuple(one.name for one in request.tools) for request in simulation.provider.requests]
    both = ("dump", "read_result")
    assert offered == [("dump",), ("dump",), both, both, both]
    asked = [one.event for one in simulation.events() if isinstance(one.event, InferenceRequested)]
    assert [one.tools for one in asked] == offered
    samples = [one.event for one in simulation.events() if isinstance(one.event, CalibrationSampled)]
    assert [one.priced for one in samples] == [one.counted for one in samples] == [one.payload for one in asked]
    digests = [one.digest for one in samples]
    assert digests[0] == digests[1] != digests[2] == digests[3] == digests[4]
    assert "setting_changed" not in simulation.kinds()


def test_a_changed_configuration_keeps_the_tool(simulate: Simulate):
    simulation = simulate([call_tool("dump"), reply("done"), reply("more")], tools=[dump])
    simulation.push("ada", "dump it")
    simulation.run_until_idle()
    simulation.stop()
    simulation.restart(agents=[AgentConfig(name="ada", model="m", tools=[broken], system="Be brief.")])
    simulation.push("ada", "more")
    simulation.run_until_idle()
    request, live = simulation.provider.requests[-1], simulation.agent("ada").live
    assert [one.name for one in request.tools] == ["broken", "read_result"]
    assert live.tools_tokens == price_tools(request.tools, live.encoding)


def test_only_ones_own_results_are_read_and_only_where_there_is_something(simulate: Simulate):
    wrongs: list[dict[str, Any]] = [
        {"result": "bob/call/7/0"},
        {"result": "ada/call/7/1"},
        {"result": "ada/call/x/0"},
        {"result": "ada/call/7/0", "start": 670_000},
        {"result": "ada/call/7/0", "start": -1},
        {"result": "ada/call/7/0", "length": 0},
        {"result": "ada/call/7/0", "start": 669_995, "length": 3},
    ]
    script = [call_tool("dump"), [call_tool("read_result", one) for one in wrongs], reply("done")]
    simulation = simulate(script, tools=[dump], agents=("ada", "bob"))
    simulation.push("ada", "dump it")
    simulation.run_until_idle()
    _, *bad, fine = (block for one in simulation.state("conversation", "ada").messages for block in one.results)
    assert all(one.is_error for one in bad)
    assert "ada has no tool result 'bob/call/7/0'" in bad[0].content
    assert all("has no tool result" in one.content for one in bad[:3])
    assert all("ada/call/7/0 has 670000 characters" in one.content for one in bad[3:])
    assert fine.content == "[ada/call/7/0: characters 669995 to 669998 of 670000]\n" + LONG[-5:-2]


def test_an_error_is_cut_alike_and_stays_one(simulate: Simulate):
    simulation = simulate([call_tool("broken"), reply("done")], tools=[broken], result_excerpt_chars=1_000)
    simulation.push("ada", "try")
    simulation.run_until_idle()
    (block,) = (block for one in simulation.state("conversation", "ada").messages for block in one.results)
    assert block.is_error
    assert len(block.content) <= 1_000 < len(returns(simulation)[0].result)


def test_what_is_summarised_is_the_excerpt(simulate: Simulate):
    provider = ScriptedProvider([call_tool("dump"), reply("done")] + [reply("word " * 100)] * 8)
    sizes: dict[str, Any] = {"context_budget_tokens": 5_000, "max_tokens": 500, "recent_window_tokens": 500}
    simulation = simulate(provider=provider, tools=[dump], result_excerpt_chars=1_000, target_chunk_tokens=300, **sizes)
    for n in range(9):
        simulation.push("ada", f"{n} " + "word " * 100)
        simulation.run_until_idle()
    asked = [one for one in provider.requests if one.purpose == "compression"]
    assert any("are left out here" in str(one.messages) for one in asked)
    assert any(isinstance(one.event, CompressionRequested) for one in simulation.events())
    assert LONG[20_000:20_010] not in str(provider.requests)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", ["tool_called", "tool_returned", "message_added"])
def test_reading_runs_again_after_a_crash(kind: str, when: Any):
    reading = call_tool("read_result", {"result": "ada/call/7/0", "start": 300_000, "length": 20})
    provider = ScriptedProvider([call_tool("dump"), reading, reply("done")])
    simulation = Simulation(agents=[AgentConfig(name="ada", model="m", tools=[dump])], provider=provider)
    simulation.push("ada", "dump it")
    simulation.crash_at(kind, 3 if kind == "message_added" else 2, when)
    simulation.run()
    assert simulation.crashed
    simulation.restart()
    simulation.run_until_idle()
    assert results(simulation)[-1].endswith(LONG[300_000:300_020])
    assert isinstance(simulation.events("ada")[-1].event, TurnCompleted)
    simulation.crash()


def test_it_is_so_in_a_runtime(tmp_path: Path):
    """Its log is read in a worker thread, while others write it."""
    reading = call_tool("read_result", {"result": "ada/call/7/0", "start": 300_000, "length": 20})
    provider = ScriptedProvider([call_tool("dump"), reading, reply("done")])
    agent = AgentConfig(name="ada", model="m", tools=[dump])
    with Runtime(tmp_path / "it.db", provider=provider, agents=[agent]) as runtime:
        assert runtime.result(runtime.push("ada", "dump it"), timeout=20).text == "done"
        shown = [block.content for one in runtime.state("conversation", "ada").messages for block in one.results]
    assert shown[1].endswith(LONG[300_000:300_020])
    assert verify(open_log(tmp_path / "it.db", readonly=True)).ok


def test_the_name_is_taken_and_an_excerpt_has_a_least_size():
    @tool(name="read_result")
    def mine() -> str:
        return ""

    wrongs: list[dict[str, Any]] = [{"tools": [mine]}, {"result_excerpt_chars": 999}]
    for wrong in wrongs:
        with pytest.raises(InvalidSetting, match=next(iter(wrong))):
            AgentConfig(name="ada", model="m", **wrong)


@given(st.text(max_size=3_000), st.integers(1_000, 2_500))
def test_an_excerpt_is_no_longer_than_it_may_be_and_says_what_it_leaves_out(text: str, most: int):
    shown = excerpt(text, most, "ada/call/7/0")
    assert len(shown) <= most
    if len(text) <= most:
        assert shown == text
        return
    found = re.search(r"\n\[\.\.\. characters (\d+) to (\d+) of (\d+) are left out here; .*? \.\.\.\]\n", shown)
    assert found
    assert text[: int(found[1])] + text[int(found[1]) : int(found[2])] + shown[found.end() :] == text
    assert (shown[: found.start()], int(found[3])) == (text[: int(found[1])], len(text))


def test_nothing_is_counted_but_what_is_shown(simulate: Simulate, monkeypatch: pytest.MonkeyPatch):
    counted: list[int] = []

    def counting(text: str, encoding: str) -> int:
        counted.append(len(text))
        return count_tokens(text, encoding)

    monkeypatch.setattr("rewake.actors.agent.tooling.count_tokens", counting)
    simulation = simulate([call_tool("dump"), reply("done")], tools=[dump])
    simulation.push("ada", "dump it")
    simulation.run_until_idle()
    assert counted
    assert max(counted) <= 24_000


def test_the_tool_is_told_as_any_other():
    assert read_result.spec.idempotent
    assert list(read_result.spec.schema["properties"]) == ["result", "start", "length"]
    assert asyncio.iscoroutinefunction(read_result.fn) is False
