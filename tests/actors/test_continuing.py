"""A turn that outgrows its bounds between two requests goes on in a fresh compile, where its history can make room."""

from __future__ import annotations

from typing import Any

import pytest

from rewake.actors import AgentConfig, tool
from rewake.actors.providers import Request, ScriptedProvider, call_tool, reply
from rewake.actors.providers.script import Item
from rewake.actors.simulation import Simulation
from rewake.events import Held, HoldEnded, TurnStarted

ROUNDS = 4


def words(tokens: int) -> str:
    return " word" * tokens


class Reader:
    """Answers a question about a book by reading it in rounds; anything else at once."""

    def __init__(self, page: int) -> None:
        self.page, self.read = page, list[int]()

    def answer(self, request: Request) -> Item:
        if not any("book" in str(message.blocks) for message in request.messages[-2 * ROUNDS - 1 :]):
            return reply("yes")
        return reply("The end.") if request.step > ROUNDS else [call_tool("turn_page", {"number": request.step})]

    def tool(self) -> Any:
        @tool
        def turn_page(number: int) -> str:
            """Reads a page."""
            self.read.append(number)
            return words(self.page)

        return turn_page


def reading(
    page: int, *, turns: int = 8, said: int = 600, pause: float = 0, summary: int = 40, **config: Any
) -> tuple[Simulation, Reader]:
    reader = Reader(page)
    given: dict[str, Any] = {"max_tokens": 500, "recent_window_tokens": 500, "target_chunk_tokens": 500}
    ada = AgentConfig(name="ada", model="m", tools=[reader.tool()], **(given | config))
    window = config.get("physical_window_tokens")
    provider = ScriptedProvider(reader.answer, window=window, summarize=lambda _: reply(words(summary)))
    sim = Simulation(agents=[ada], provider=provider)
    for _ in range(turns):
        sim.push("ada", words(said))
        sim.run_until_idle()
        sim.advance(seconds=pause)
    return sim, reader


def turns_of(sim: Simulation) -> list[TurnStarted]:
    return [one.event for one in sim.events("ada") if isinstance(one.event, TurnStarted)]


@pytest.mark.scenario("W-22")
@pytest.mark.parametrize(
    "bounds", [{"physical_window_tokens": 7_000}, {"context_budget_tokens": 7_000}], ids=["window", "budget"]
)
def test_a_turn_of_tool_rounds_that_outgrows_its_bounds_is_held_and_goes_on(bounds: dict[str, Any]):
    sim, reader = reading(900, **bounds)
    head = sim.log.head()
    receipt = sim.push("ada", "Read the book.", channel="cli")
    sim.run_until_idle()
    result = sim.result(receipt, 0)
    assert (result.state, result.text) == ("completed", "The end.")
    kinds = [one.kind for one in sim.tail(head, agent="ada")]
    place = kinds.index("held")
    assert kinds[place - 2 : place] == ["turn_started", "refused"]
    assert kinds[place:].index("hold_ended") < kinds[place:].index("turn_started") < kinds[place:].index("compiled")
    assert kinds.count("undo_point") == 1
    assert "inference_failed" not in kinds
    assert reader.read == [1, 2, 3, 4]
    (first, *more) = [one for one in turns_of(sim) if one.turn == result.turn]
    assert all(one.resumes and one.channel == "cli" and one.wakes == first.wakes for one in more)
    assert [one.attempt for one in more] == list(range(2, len(more) + 2))


def test_where_summaries_are_there_it_goes_on_at_once():
    sim, reader = reading(700, turns=18, pause=60, physical_window_tokens=7_000)
    receipt = sim.push("ada", "Read the book.")
    sim.run_until_idle()
    assert sim.reply_to(receipt) == "The end."
    assert "held" not in sim.kinds("ada")
    assert any(one.resumes for one in turns_of(sim))
    assert reader.read == [1, 2, 3, 4]


def test_a_turn_that_is_too_large_alone_is_sent_and_the_provider_decides():
    sim, _ = reading(2_500, turns=0, physical_window_tokens=7_000)
    receipt = sim.push("ada", "Read the book.")
    sim.run_until_idle()
    assert sim.result(receipt, 0).why.startswith("overflow")
    assert not [one for one in sim.events("ada") if isinstance(one.event, Held)]
    sim, _ = reading(2_500, turns=0, context_budget_tokens=7_000)
    receipt = sim.push("ada", "Read the book.")
    sim.run_until_idle()
    assert sim.reply_to(receipt) == "The end."


def test_a_turn_for_which_summaries_made_too_little_room_goes_on_all_the_same():
    """Its tools have run: it is not given up for the budget."""
    sim, reader = reading(1_350, turns=2, summary=1_150, context_budget_tokens=7_000)
    receipt = sim.push("ada", "Read the book.")
    sim.run_until_idle()
    assert [one.why for one in ended(sim)] == ["nothing_pending"]
    assert sim.reply_to(receipt) == "The end."
    assert reader.read == [1, 2, 3, 4]


def ended(sim: Simulation) -> list[HoldEnded]:
    return [one.event for one in sim.events("ada") if isinstance(one.event, HoldEnded)]


def test_a_policy_is_not_asked_about_a_turn_that_goes_on():
    asked: list[str] = []

    def policy(agent: str, wakes: Any) -> bool:
        asked.append(agent)
        return len(asked) <= 19

    sim, _ = reading(700, turns=18, pause=60, physical_window_tokens=7_000, inference_policy=policy)
    receipt = sim.push("ada", "Read the book.")
    sim.run_until_idle()
    assert sim.reply_to(receipt) == "The end."
    assert len(asked) == 19
    assert any(one.resumes for one in turns_of(sim))


def test_a_crash_while_it_is_held_loses_nothing():
    sim, reader = reading(900, physical_window_tokens=7_000)
    receipt = sim.push("ada", "Read the book.")
    sim.crash_at("held")
    sim.run_until_idle()
    assert sim.crashed
    sim.restart()
    sim.run_until_idle()
    assert sim.reply_to(receipt) == "The end."
    assert reader.read == [1, 2, 3, 4]
