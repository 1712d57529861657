"""Compression as a whole: agents whose history is many times what there is room for, and summarisers that fail."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from rewake.actors.config import AgentConfig
from rewake.actors.providers import ScriptedProvider, reply
from rewake.actors.simulation import Simulation
from rewake.events import Alerted, Compiled, Event, HoldEnded
from rewake.projections.plan import shown


def words(tokens: int) -> str:
    return " hello" * tokens


def said(sim: Simulation, kind: type[Event], stream: str = "agent/ada") -> list[Any]:
    return [one.event for one in sim.log.read(stream=stream) if isinstance(one.event, kind)]


@pytest.mark.scenario("C-33")
@pytest.mark.parametrize("seed", range(3))
def test_a_held_turn_of_long_messages_runs_once_they_are_compressed(seed: int):
    """Five messages of 25,000 tokens and a room of 60,000: too few for a chunk, and the newest would be held back."""
    ada = AgentConfig(name="ada", model="m", context_budget_tokens=64_096)
    sim = Simulation(agents=[ada], provider=ScriptedProvider(lambda _: reply("ok")), seed=seed)
    receipts: list[Any] = []
    for _ in range(5):
        receipts.append(sim.push("ada", words(25_000)))
        sim.advance(minutes=5)
    assert {sim.result(one).state for one in receipts} == {"completed"}
    kinds = Counter(sim.kinds("ada"))
    assert kinds["held"] == kinds["hold_ended"] > 0
    assert {one.why for one in said(sim, HoldEnded)} == {"fit"}


@pytest.mark.scenario("C-34")
def test_a_small_window_is_enough_for_a_history_of_any_length():
    """32,768 tokens, 4,000 of them the system prompt; 200 messages of 500: merged twice over, each turn answered."""
    ada = AgentConfig(name="ada", model="m", system=words(4_000), physical_window_tokens=32_768)
    sim = Simulation(agents=[ada], provider=ScriptedProvider(lambda _: reply(words(500)), window=32_768))
    receipts: list[Any] = []
    for _ in range(100):
        receipts.append(sim.push("ada", words(500)))
        sim.advance(minutes=1)
    assert Counter(sim.result(one).state for one in receipts) == {"completed": 100}
    assert "refused" not in sim.kinds("ada")
    state = sim.agent("ada")
    plan = said(sim, Compiled)[-1].plan
    assert [one.level for one in plan] == [2, 1, 0]
    summaries = [len(found) for _, _, found in shown(state.conversation, state.compression, plan)]
    assert summaries[0] > 1
    assert summaries[1] > 1


@pytest.mark.scenario("C-38")
@pytest.mark.parametrize("turns", [4, 30])
def test_a_summariser_that_answers_nothing_ends_the_hold_and_is_hardly_asked(turns: int):
    """A day of empty answers while a turn is held, with few chunks and with many; then it is healed."""
    healed: list[bool] = []
    asked: list[int] = []

    def summarize(_: Any) -> Any:
        asked.append(sim.now)
        return reply("hi" if healed else "")

    ada = AgentConfig(
        name="ada", model="m", context_budget_tokens=100_000, recent_window_tokens=1_000, target_chunk_tokens=2_000
    )
    provider = ScriptedProvider(lambda _: reply("ok"), summarize=summarize)
    sim = Simulation(agents=[ada], provider=provider)
    for _ in range(turns):
        sim.push("ada", words(1_000))
        sim.run()
    sim.configure("ada", context_budget_tokens=4_096 + 3_000, immediate=True, allow_infeasible=True)
    late = sim.push("ada", "Hello?")
    sim.advance(minutes=31)
    (ended,) = said(sim, HoldEnded)
    assert ended.why == ("nothing_pending" if turns == 4 else "deadline")
    assert ended.waited_ms <= 30 * 60_000
    sim.advance(hours=24)
    assert sim.result(late).state == "exhausted"
    assert len(asked) < 40
    assert sim.health().drains[0].quarantined > 0
    stuck = [] if turns == 4 else ["stuck"]
    assert [one.about for one in said(sim, Alerted, "drain/ada")] == ["quarantine", *stuck]
    healed.append(True)
    sim.configure("ada", context_budget_tokens=100_000)
    now = sim.push("ada", "And now?")
    sim.run()
    assert sim.reply_to(now) == "ok"
    for _ in range(8):
        sim.push("ada", words(1_000))
        sim.run()
    sim.advance(hours=7)
    assert sim.health().drains[0].quarantined == 0


@pytest.mark.scenario("C-32")
def test_a_request_begins_as_the_one_before_but_where_more_was_folded():
    """Fifty turns under a budget that does not bind, fifty under one that does: the provider's prompt cache is kept."""
    provider = ScriptedProvider(script=lambda request: reply(" yes" * 40))
    config = AgentConfig(name="ada", model="m", recent_window_tokens=1_000, target_chunk_tokens=400)
    sim = Simulation(agents=[config], provider=provider)
    for turn in range(100):
        if turn == 50:
            sim.configure("ada", context_budget_tokens=4_096 + 4_000)
        sim.push("ada", " word" * 60)
        sim.run_until_idle()
        sim.advance(seconds=10)
    sent = [request.messages for request in provider.requests if request.purpose == "turn"]
    folded = [one.event.folded for one in sim.events("ada") if isinstance(one.event, Compiled)]
    assert len(sent) == len(folded) == 100
    kept = [after[: len(before)] == before for before, after in pairwise(sent)]
    grew = [after > before for before, after in pairwise(folded)]
    assert kept == [not one for one in grew]
    assert not any(grew[:49])
    assert 2 < sum(grew[49:]) < 30
