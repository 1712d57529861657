"""A history that a provider refuses request after request: what it can not take is left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rewake.actors.providers import auth, call_tool, invalid, overflow, reply
from rewake.actors.providers.base import text_of
from rewake.actors.simulation import Simulation
from rewake.actors.tools import tool
from rewake.events import MessageAdded, MessageEdited, MessageRemoved, TurnExhausted
from tests.actors.test_ending import shown, those

Simulate = Callable[..., Simulation]
LEFT_OUT = "[left out: the provider refused every request that had this exchange]"


@tool
def look() -> str:
    """Look."""
    return "saw it"


def picky(request: Any) -> Any:
    """Answers, once with something that it will not read again."""
    texts = [text_of(message.blocks) for message in request.messages]
    if any("poison" in text for text in texts):
        return invalid("messages.3: unexpected")
    match texts[-1]:
        case "third":
            return [reply("let me see"), call_tool("look", id="c1")]
        case "":
            return reply("poison")
        case text:
            return reply(f"well, {text}")


def pushed(sim: Simulation, *texts: str) -> list[str]:
    """What became of each of these pushes."""
    states: list[str] = []
    for text in texts:
        receipt = sim.push("ada", text)
        sim.run_until_idle()
        states.append(sim.result(receipt).state)
    return states


@pytest.mark.scenario("W-19")
def test_after_three_refusals_the_newest_exchange_is_left_out_once_and_the_turn_runs(simulate: Simulate):
    sim = simulate(picky, tools=[look])
    assert pushed(sim, "first", "second", "third") == ["completed"] * 3
    assert pushed(sim, "fourth", "fifth") == ["exhausted"] * 2
    assert those(sim, MessageEdited) == []
    assert pushed(sim, "sixth") == ["completed"]
    fourth, sixth = sim.provider.requests[-4], sim.provider.requests[-1]
    assert shown(fourth)[4:6] == ["third", "let me see"]
    assert shown(sixth)[:5] == ["first", "well, first", "second", "well, second", LEFT_OUT]
    assert shown(sixth)[5::2] == ["fourth", "fifth", "sixth"]
    assert (len(those(sim, MessageEdited)), sim.kinds("ada").count("undo_point")) == (1, 6)
    assert "poison" in [text_of(one.blocks) for one in those(sim, MessageAdded)]
    assert pushed(sim, "seventh") == ["completed"]
    assert len(those(sim, MessageEdited)) == 1


def test_a_crash_where_something_is_left_out_leaves_it_out_once(simulate: Simulate):
    for when in ("before", "after"):
        sim = simulate(picky, tools=[look])
        pushed(sim, "first", "third", "fourth", "fifth")
        sim.crash_at("message_edited", when=when)
        receipt = sim.push("ada", "sixth")
        sim.run()
        assert sim.crashed
        sim.restart()
        sim.run_until_idle()
        assert sim.result(receipt).state == "completed"
        assert len(those(sim, MessageEdited)) == 1


def test_at_most_three_exchanges_are_left_out_one_a_turn(simulate: Simulate):
    answered = 6
    sim = simulate([*[reply("well")] * answered, *[invalid("no")] * 30])
    assert pushed(sim, *["hello"] * answered) == ["completed"] * answered
    assert pushed(sim, *["hello"] * 9) == ["exhausted"] * 9
    calls = len(sim.provider.requests) - answered
    assert (len(those(sim, MessageEdited)), calls) == (3, 9 + 3)
    assert [len(shown(request)) for request in sim.provider.requests[-12:][3:7]] == [16, 18, 17, 19]
    assert sim.agent("ada").turns.sheddings == 3


@pytest.mark.parametrize("failure", [auth("no"), overflow(), invalid("no")])
def test_nothing_is_left_out_for_another_reason_or_after_an_answer(simulate: Simulate, failure: Any):
    sim = simulate([reply("well"), failure, failure, reply("well"), failure, failure])
    assert pushed(sim, *["hello"] * 6).count("exhausted") == 4
    assert (those(sim, MessageEdited), those(sim, MessageRemoved)) == ([], [])
    assert len(those(sim, TurnExhausted)) == 4
