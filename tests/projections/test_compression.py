"""The drain: which chunk is compressed next, in passes, with pauses, and what is given up."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from rewake.actors.config import AgentConfig
from rewake.actors.providers import ScriptedProvider, call_tool, limit, reply, server_error, slow
from rewake.actors.providers.base import text_of
from rewake.actors.providers.script import Item
from rewake.actors.reports import QuarantineReleased
from rewake.actors.simulation import Simulation
from rewake.actors.summarising import INSTRUCTION, PLAIN
from rewake.events import (
    AgentStarted,
    Alerted,
    Compressed,
    CompressionFailed,
    CompressionRequested,
    DrainPassed,
    Event,
    MessageAdded,
    MessageEdited,
    Recorded,
    SettingChanged,
    Settings,
    Stretch,
    Text,
    ToolCall,
    ToolResult,
    TurnCompleted,
    Work,
)
from rewake.events.messages import AnyBlock
from rewake.projections import backlog, compression, conversation
from rewake.projections import settings as setting
from rewake.projections.backlog import next_work

LIVE = Settings(name="ada", model="m", context_budget_tokens=104_096, recent_window_tokens=0, target_chunk_tokens=100)


def evolved(fold: Any, *events: Event, stream: str = "agent/ada") -> Any:
    state = fold.initial()
    for version, event in enumerate(events, 1):
        state = fold.evolve(state, Recorded(version, 0, stream, version, None, 0, event))
    return state


OWN = evolved(setting, AgentStarted(LIVE))
FRESH = compression.initial()


def said(*messages: int | tuple[int, AnyBlock]) -> Any:
    """A conversation whose past has messages of so many tokens."""
    events: list[Event] = []
    for number, one in enumerate(messages):
        tokens, block = (one, Text("x")) if isinstance(one, int) else one
        role = "assistant" if isinstance(block, ToolCall) else "user"
        events.append(MessageAdded(role, (block,), tokens, "e", id=f"m{number}"))
    return evolved(conversation, *events, TurnCompleted("t", "end_turn"))


def chunk(told: Any, state: Any = FRESH, demand: tuple[Stretch, ...] = (), own: Any = OWN) -> Any:
    """The messages that are compressed next."""
    found = next_work(told, state, own, demand)
    return found and found.sources


def summary(told: Any, *ids: str) -> Compressed:
    covered = [told.messages[told.places[id]] for id in ids]
    work = Work(1, ids[0], ids[-1], ids, conversation.digest(covered), sum(one.shown for one in covered))
    return Compressed("r", work, "s", 1, "e", summary=f"s/{ids[0]}")


def test_a_chunk_closes_at_its_target_and_four_messages():
    assert chunk(said(*[40] * 8)) == ("m0", "m1", "m2", "m3")
    assert chunk(said(*[10] * 30)) == tuple(f"m{number}" for number in range(10))


def test_the_newest_closed_chunk_is_held_back():
    assert chunk(said(*[40] * 7)) is None
    told = said(*[40] * 12)
    once = evolved(compression, summary(told, "m0", "m1", "m2", "m3"), stream="drain/ada")
    assert chunk(told, once) == ("m4", "m5", "m6", "m7")
    both = [summary(told, *(f"m{number + place}" for place in range(4))) for number in (0, 4)]
    assert chunk(told, evolved(compression, *both, stream="drain/ada")) is None


def test_a_chunk_does_not_close_on_a_tool_call():
    told = said(40, 40, 40, (40, ToolCall("c", "look")), (5, ToolResult("c", "seen")), *[40] * 8)
    assert chunk(told) == ("m0", "m1", "m2", "m3", "m4")


def test_a_gap_between_summaries_is_compressed_only_once_it_is_a_chunk():
    told = said(*[40] * 14)
    around = [summary(told, "m0", "m1", "m2", "m3"), summary(told, "m6", "m7", "m8", "m9")]
    assert chunk(told, evolved(compression, *around, stream="drain/ada")) is None


def test_a_demand_closes_a_short_chunk_and_lifts_the_hold_back():
    assert chunk(said(40, 40), demand=(Stretch(0, "m0", "m1"),)) == ("m0", "m1")


def test_a_demand_is_over_once_a_summary_stands_for_a_part_of_it():
    told = said(*[40] * 6)
    demand = (Stretch(0, "m2", "m3"), Stretch(0, "m4", "m5"))
    done = evolved(compression, summary(told, "m1", "m2", "m3", "m4"), stream="drain/ada")
    assert chunk(told, done, demand) is None


def test_a_paced_lowering_shrinks_the_tail_that_is_spared():
    told = said(*[40] * 16)
    own = evolved(setting, AgentStarted(replace(LIVE, recent_window_tokens=30_000)))
    assert chunk(told, own=own) is None
    lower = SettingChanged("context_budget_tokens", LIVE.context_budget_tokens, 4_096 + 200, "paced")
    lowered = setting.evolve(own, Recorded(2, 0, "agent/ada", 2, None, 0, lower))
    assert chunk(told, own=lowered) == ("m0", "m1", "m2", "m3")


def drained(sim: Simulation, kind: type[Event]) -> list[Any]:
    return [one for one in sim.log.read(stream="drain/ada") if isinstance(one.event, kind)]


def spoken(summarize: Callable[[Any], Item], *, turns: int = 40, seed: int = 0) -> Simulation:
    """An agent after turns of 101 tokens, all of them in its tail."""
    ada = AgentConfig(name="ada", model="m", target_chunk_tokens=100)
    provider = ScriptedProvider(lambda _: reply("ok"), summarize=summarize)
    sim = Simulation(agents=[ada], provider=provider, seed=seed)
    for number in range(turns):
        sim.push("ada", f"{number}" + " hello" * 99)
        sim.run()
    return sim


def loaded(summarize: Callable[[Any], Item], *, turns: int = 40) -> Simulation:
    """The same with many chunks to compress all at once: its tail has just been cut."""
    sim = spoken(summarize, turns=turns)
    sim.configure("ada", recent_window_tokens=0)
    sim.run()
    return sim


def test_a_pass_makes_eight_calls_and_the_next_one_begins_after_the_interval():
    sim = loaded(lambda _: reply("hello again"))
    sim.advance(minutes=1)
    passes = drained(sim, DrainPassed)
    assert [(one.event.ticks, one.event.pending, one.event.why) for one in passes] == [
        (8, True, "ticks"),
        (8, True, "ticks"),
        (6, False, "dry"),
    ]
    assert [later.at - sooner.at for sooner, later in pairwise(passes)] == [5_000, 5_000]


def test_a_kick_during_a_pass_joins_it():
    sim = loaded(lambda _: slow(reply("hello again"), seconds=1))
    sim.advance(seconds=4)
    sim.configure("ada", context_budget_tokens=4_096 + 500, immediate=True, allow_infeasible=True)
    sim.push("ada", "hello")
    sim.advance(seconds=5)
    assert "drain_kicked" in [one.kind for one in sim.log.read(stream="drain/ada")][3:]
    assert drained(sim, DrainPassed)[0].event.ticks == 8


def test_a_transient_failure_pauses_thirty_seconds_doubling_to_ten_minutes():
    sim = loaded(lambda _: server_error())
    sim.advance(hours=1)
    times = [one.at for one in drained(sim, CompressionRequested)]
    waits = [(later - sooner) // 1_000 for sooner, later in pairwise(times)]
    assert waits[:7] == [30, 60, 120, 240, 480, 600, 600]
    assert {one.event.transient for one in drained(sim, CompressionFailed)} == {True}
    assert not sim.state("compression", "ada").quarantined


def test_a_pause_is_as_long_as_the_provider_says():
    answers = [limit(retry_after=77)]
    sim = loaded(lambda _: answers.pop() if answers else reply("hello again"))
    sim.advance(minutes=5)
    first, second, *_ = drained(sim, CompressionRequested)
    assert second.at - first.at == 77_000


def test_no_kick_shortens_a_pause():
    sim = loaded(lambda _: server_error())
    sim.configure("ada", context_budget_tokens=4_096 + 500, immediate=True, allow_infeasible=True)
    sim.push("ada", "hello")
    sim.run()
    assert "held" in sim.kinds("ada")
    assert len(drained(sim, CompressionRequested)) == 1
    sim.advance(seconds=29)
    assert len(drained(sim, CompressionRequested)) == 1
    sim.advance(seconds=1)
    assert len(drained(sim, CompressionRequested)) == 2


WRONG = {
    "empty": reply(""),
    "long": reply(" hello" * 2_000),
    "cut": reply("hello", stop_reason="max_tokens"),
    "tool": [Text("They said hello."), call_tool("look", {"what": "x"})],
}


def poisoned(request: Any) -> bool:
    """Whether the first message is among the sources."""
    return text_of(request.messages[0].blocks).startswith("user: 0 hello")


@pytest.mark.scenario("C-17")
@pytest.mark.parametrize("wrong", WRONG)
def test_an_answer_that_is_no_summary_is_never_stored_and_its_work_given_up(wrong: str):
    """Asked twice, in other words the second time, then its halves; the rest of the history is compressed all the same."""
    asked: list[Any] = []

    def summarize(request: Any) -> Item:
        if poisoned(request):
            asked.append((request.system, len(request.messages)))
            return WRONG[wrong]
        return reply("hi")

    sim = loaded(summarize, turns=12)
    sim.advance(minutes=1)
    state, messages = sim.state("compression", "ada"), sim.agent("ada").conversation.messages
    assert asked == [(INSTRUCTION, 4), (PLAIN, 4), (PLAIN, 2), (PLAIN, 2)], "the last one after another's success"
    assert [one.work.sources for one in state.quarantined.values()] == [tuple(one.id for one in messages[:2])]
    assert messages[0].id not in [id for one in state.summaries for id in one.work.sources]
    assert sim.health().drains[0].quarantined == 1
    assert [one.event.about for one in drained(sim, Alerted)] == ["quarantine"]
    sim.provider._summarize = lambda _: reply("hi")
    assert sim.release_quarantine("ada") == QuarantineReleased("ada", 1)
    assert sim.release_quarantine("ada").released == 0
    sim.run()
    assert sim.health().drains[0].quarantined == 0
    assert messages[0].id in sim.state("compression", "ada").levels[0]


def test_what_was_given_up_is_tried_once_more_a_day_after_the_success_of_another():
    bad = [True]
    sim = loaded(lambda request: reply("") if bad[0] and poisoned(request) else reply("hi"), turns=12)
    tries: list[int] = []
    for day in range(4):
        bad[0] = day < 3
        for number in range(6):
            sim.push("ada", f"{day} {number}" + " hello" * 99)
            sim.advance(minutes=1)
        tries.append(len([one for one in sim.provider.requests if one.purpose == "compression" and poisoned(one)]))
        sim.advance(days=1)
    assert tries == [4, 5, 6, 7]
    assert sim.health().drains[0].quarantined == 0


def test_another_model_has_what_the_former_one_gave_up():
    asked: list[str] = []

    def summarize(request: Any) -> Item:
        asked.append(request.model)
        return reply("") if request.model == "m" else reply("hi")

    sim = loaded(summarize, turns=4)
    sim.advance(minutes=1)
    assert sim.health().drains[0].quarantined == 2
    sim.configure("ada", model="n")
    sim.run()
    assert sim.health().drains[0].quarantined == 0
    assert asked == ["m"] * 4 + ["n"]


@pytest.mark.scenario("C-18")
def test_a_chunk_larger_than_the_window_of_its_summariser_is_split():
    """So is a merge; no request is larger than the window, and everything is stored."""
    ada = AgentConfig(
        name="ada", model="m", compression_model="s", compression_window_tokens=900, recent_window_tokens=0
    )
    sizes: list[int] = []

    def summarize(request: Any) -> Item:
        sizes.append(request.estimate + request.max_tokens)
        return reply(" hello" * 120)

    sim = Simulation(agents=[ada], provider=ScriptedProvider(lambda _: reply("ok"), summarize=summarize))
    for number in range(40):
        sim.push("ada", f"{number}" + " hello" * 199)
        sim.advance(minutes=1)
    state = sim.state("compression", "ada")
    assert max(sizes) <= 900
    assert not state.quarantined
    assert len(state.levels) == 2
    covered = [id for one in drained(sim, Compressed) if one.event.work.level == 1 for id in one.event.work.sources]
    assert covered == [one.id for one in sim.agent("ada").conversation.messages[: len(covered)]]


@pytest.mark.scenario("C-18")
@pytest.mark.parametrize("crashes", [False, True])
def test_a_message_larger_than_the_window_of_its_summariser_is_summarised_in_pieces(crashes: bool):
    ada = AgentConfig(
        name="ada", model="m", compression_window_tokens=1_000, recent_window_tokens=0, target_chunk_tokens=100
    )
    pieces: list[str] = []

    def summarize(request: Any) -> Item:
        assert request.estimate + request.max_tokens <= 1_000
        pieces.append(text_of(request.messages[0].blocks))
        return slow(reply(f"piece {len(pieces)}"), seconds=1)

    sim = Simulation(agents=[ada], provider=ScriptedProvider(lambda _: reply("ok"), summarize=summarize))
    sim.push("ada", "long" + " word" * 3_000)
    sim.run()
    for _ in range(8):
        sim.push("ada", "short" + " word" * 99)
        sim.run()
    for _ in range(3 if crashes else 0):
        sim.crash_at("compressed", 1, "after")
        sim.advance(seconds=10)
        sim.restart()
    sim.advance(minutes=1)
    state = sim.state("compression", "ada")
    first = sim.agent("ada").conversation.messages[0]
    whole = state.levels[0][first.id]
    assert whole.work.sources == (first.id,)
    assert whole.text == "\n".join(f"piece {number}" for number in range(1, 8))
    assert "".join(pieces[:7]) == "user: " + first.text
    assert not state.parts


def test_a_chunk_of_hardly_any_text_is_kept_by_a_stub_without_a_call():
    ada = AgentConfig(name="ada", model="m", recent_window_tokens=0, target_chunk_tokens=20)
    sim = Simulation(agents=[ada], provider=ScriptedProvider(lambda _: reply("ok")))
    for number in range(20):
        sim.push("ada", f"{number} yes it is")
        sim.run()
    sim.advance(minutes=1)
    stubs = [one.event for one in drained(sim, Compressed) if one.event.work.level == 1]
    assert len(stubs) > 1
    assert stubs[0].text == "\n".join(f"user: {number} yes it is\nassistant: ok" for number in range(4))
    assert [one for one in drained(sim, CompressionRequested) if one.event.work.level == 1] == []


@pytest.mark.scenario("C-16")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", ["compression_requested", "compressed", "drain_passed", "drain_kicked"])
def test_killed_at_every_tick_nothing_is_compressed_twice_and_nothing_is_lost(kind: str, when: Any):
    """60 messages become chunks, the chunks' summaries are merged; the process dies at each such append in turn."""
    for seed in range(2):
        sim = spoken(lambda _: reply("hello again"), turns=30, seed=seed)
        sim.configure("ada", recent_window_tokens=0)
        sim.crash_at(kind, 1, when)
        for _ in range(60):
            sim.advance(seconds=10)
            if sim.crashed:
                sim.restart()
                sim.crash_at(kind, 1 if when == "after" else 2, when)
        sim.crash()
        sim.restart(provider=ScriptedProvider(summarize=lambda _: reply("hello again")))
        sim.advance(minutes=1)
        sources = [(one.event.work.level, id) for one in drained(sim, Compressed) for id in one.event.work.sources]
        chunks, merges = ([id for of, id in sources if of == level] for level in (1, 2))
        assert chunks == [one.id for one in sim.agent("ada").conversation.messages[:56]]
        summaries = [one.event.summary for one in drained(sim, Compressed) if one.event.work.level == 1]
        assert merges == summaries[:12]


def test_six_neighbours_of_one_level_are_merged_one_level_up():
    """A chunk first, else a merge: three levels from 36 chunks."""
    sim = loaded(lambda _: reply("hi"), turns=75)
    sim.advance(minutes=2)
    made = [one.event.work for one in drained(sim, Compressed)]
    assert [one.level for one in made] == [1] * 36 + [2] * 6 + [3]
    state = sim.state("compression", "ada")
    assert [len(level) for level in state.levels] == [36, 6, 1]
    assert (made[-1].first, made[-1].last) == (made[0].first, made[35].last)
    assert made[-1].sources == tuple(one.event.summary for one in drained(sim, Compressed) if one.event.work.level == 2)


def test_a_merge_does_not_apply_once_a_message_below_it_is_edited():
    told = said(*[40] * 24)
    chunks = [summary(told, *(f"m{number + place}" for place in range(2))) for number in range(0, 24, 2)]
    sources = [compression.Summary(one.summary, one.work, one.text, one.tokens) for one in chunks[:6]]
    work = backlog.merge(FRESH, LIVE, sources)
    assert work
    merged = Compressed("r", work, "s", 1, "e", summary="s/merged")
    state = evolved(compression, *chunks, merged, stream="drain/ada")
    assert compression.applying(told, state, 0, 2)
    edited = MessageEdited("m7", (Text("other"),), 40, "e")
    after = conversation.evolve(told, Recorded(99, 0, "agent/ada", 99, None, 0, edited))
    assert compression.applying(after, state, 0, 2) is None
    assert compression.applying(after, state, 0, 1)
