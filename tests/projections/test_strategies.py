"""Strategies as functions: what `window` shows, what a check lets through, and what both cost."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rewake.actors.providers.base import validate
from rewake.events import (
    LEFT_OUT,
    InvalidPlan,
    Overhead,
    Settings,
    Stretch,
    Text,
    ToolCall,
    ToolResult,
    TurnCompleted,
    TurnStarted,
)
from rewake.events import Message as Said
from rewake.projections.calibration import HIGH, Meter
from rewake.projections.checking import checked
from rewake.projections.compression import head_end
from rewake.projections.fitting import fit
from rewake.projections.messages import Message
from rewake.projections.pages import Pages
from rewake.projections.plan import Bounds, Plan, Refusal, bounds
from rewake.projections.strategies import arranged, strategy
from tests.projections.stories import SETTINGS, Story, chosen, covers, parts_of, told

WINDOW = replace(SETTINGS, strategy="window")
LEARNED = Meter(accepted=1)


def held_to(story: Story, *stretches: Stretch, within: Bounds | None = None) -> Plan | Refusal:
    """What the check says of these stretches."""
    given = Plan(stretches, "", 0, within or bounds(SETTINGS, Overhead()))
    return checked("mine", story.conversation, story.compression, SETTINGS, 1.0, given)


@pytest.mark.scenario("C-21")
@settings(max_examples=500)
@given(st.integers(0, 2**64))
def test_a_window_is_the_newest_part_as_a_provider_takes_it(seed: int):
    """Over a life: the newest turn is always there; the prefix changes only where there was no room, then half is left."""
    dice = random.Random(seed)
    story, own = Story(), replace(chosen(dice)[0], strategy="window")
    within, before = bounds(own, Overhead()), None
    for _ in range(12):
        story.happens(TurnStarted(("w",), "t"))
        story.says("user", dice.randint(1, 400))
        newest, found = story.conversation.newest, story.plan(own, within)
        if isinstance(found, Refusal):
            assert found.why == "window_full"
            assert within.window_room is not None
            assert found.mandatory > within.window_room or within.window_room <= 0
        else:
            parts = parts_of(story, found)
            ids = [id for one in parts for id in covers(story, one)]
            every = [one.id for one in story.conversation.messages]
            must = every[: head_end(story.conversation, own)] + every[newest:]
            assert set(must) <= set(ids)
            assert found.tokens <= within.limit or ids == must
            validate(tuple(said for one in parts if isinstance(one, Message) for said in one.said))
            stays = before is not None and ids[: len(before)] == before
            if before is not None and not stays:
                assert found.tokens <= within.limit // 2 or ids == must
            before = ids
            story.compiled(found)
        story.says("assistant", dice.randint(1, 300))
        story.happens(TurnCompleted("t", "end_turn"))


@pytest.mark.scenario("C-21")
@settings(max_examples=500)
@given(st.integers(0, 2**64))
def test_a_window_over_any_story_is_checked_and_valid(seed: int):
    dice = random.Random(seed)
    story, (own, within) = told(dice), chosen(dice)
    own = replace(own, strategy="window")
    if dice.random() < 0.5:
        story.says("assistant", 10)
        story.happens(TurnCompleted("t", "end_turn"))
    found = story.plan(own, within)
    if isinstance(found, Plan):
        shown = (said for one in parts_of(story, found) if isinstance(one, Message) for said in one.said)
        validate((*shown, Said("user", (Text("[tick]"),))))
        wider = replace(within, room=within.room + 100, bound=within.bound + 100)
        larger = story.plan(own, wider)
        assert isinstance(larger, Plan)
        assert larger.price >= found.price


def test_a_window_keeps_the_head_and_shows_all_again_once_there_is_room():
    story, own = Story(), replace(WINDOW, head_window_tokens=50)
    story.turn(40, 10)
    for _ in range(10):
        story.turn(100, 100)
    story.says("user", 10)
    found = story.plan(own)
    assert isinstance(found, Plan)
    assert [one.level for one in found.stretches] == [0, LEFT_OUT, 0]
    assert found.tokens == 50 + 10 + 400
    story.compiled(found)
    wide = story.plan(own, Bounds(10_000, 10_000))
    assert isinstance(wide, Plan)
    assert [one.level for one in wide.stretches] == [0]
    assert story.plan(own, Bounds(4_000, 4_000)) == replace(found, bounds=Bounds(4_000, 4_000))


def test_an_anchor_outlives_the_messages_around_it():
    story = Story()
    for _ in range(10):
        story.turn(100, 100)
    story.says("user", 10)
    found = story.plan(WINDOW)
    assert isinstance(found, Plan)
    story.compiled(found)
    first = story.conversation.messages[story.conversation.anchor].id
    for place in (story.conversation.anchor - 1, 3, 0):
        story.removed(story.conversation.messages[place].id)
    after = story.plan(WINDOW)
    assert isinstance(after, Plan)
    assert after.stretches[-1].first == first


@pytest.mark.scenario("C-08")
@settings(max_examples=500)
@given(st.integers(0, 2**64))
def test_what_is_sent_beside_the_history_counts_once_against_the_window_alone(seed: int):
    """A window that does not bind selects what no window does."""
    dice = random.Random(seed)
    story, (own, _) = told(dice), chosen(dice)
    beside = Overhead(dice.randint(0, 50), dice.randint(0, 50), 0, dice.randint(0, 500))
    spare, kind = dice.randint(0, 50), dice.choice(["autobiographical", "window"])
    free = replace(own, physical_window_tokens=None, strategy=kind)
    room = max(bounds(free, beside).bound, story.conversation.total) + spare
    wide = replace(free, physical_window_tokens=room + own.max_tokens + beside.total)
    assert bounds(wide, beside).window_room == room
    assert bounds(wide, beside).bound == bounds(free, beside).bound == bounds(free, Overhead()).bound
    one, other = (fit(story.conversation, story.compression, given, LEARNED, beside) for given in (free, wide))
    assert replace(one, bounds=other.bounds) == other


@settings(max_examples=500)
@given(st.integers(0, 2**64), st.floats(0.6, HIGH))
def test_the_check_lets_every_plan_of_the_built_in_strategies_through(seed: int, multiplier: float):
    """And prices it as they do."""
    dice = random.Random(seed)
    story, (own, within) = told(dice), chosen(dice)
    for name in ("autobiographical", "window"):
        own = replace(own, strategy=name)
        found = strategy(name).plan(story.conversation, story.compression, own, multiplier, within)
        if isinstance(found, Plan):
            seen = checked(name, story.conversation, story.compression, own, multiplier, found)
            assert abs(seen.tokens - found.tokens) <= 1  # sums of estimates, and the estimate of a sum
            assert replace(seen, tokens=found.tokens) == found


def tools() -> Story:
    """Two turns with a tool round each, the first of them summarised with its call; a question."""
    story = Story()
    for number in (1, 2):
        story.says("user", 20)
        story.says("assistant", 20, ToolCall(f"c{number}", "look"))
        story.says("user", 20, ToolResult(f"c{number}", "seen"))
        story.says("assistant", 20)
        story.happens(TurnCompleted("t", "end_turn"))
    story.summarised(0, 4, 10)
    story.says("user", 10)
    return story


@pytest.mark.parametrize(
    ("levels", "why"),
    [
        ([LEFT_OUT, LEFT_OUT, 0, 0, 0, 0, 0, 0, 0], "parts a tool call from its result at"),
        ([0, 0, LEFT_OUT, 0, 0, 0, 0, 0, 0], "parts a tool call from its result at"),
        ([LEFT_OUT, 0, 0, 0, 0, 0, 0, 0, 0], "begins with the agent's own words"),
        ([1, 1, 1, 1, 1, 0, 0, 0, 0], "no summaries of level 1"),
        ([1, 1, 1, 0, 0, 0, 0, 0, 0], "no summaries of level 1"),
        ([0, 0, 0, 0, 1, 1, 1, 1, 0], "no summaries of level 1"),
        ([0, 0, 0, 0, 0, 0, 0, 0, LEFT_OUT], "does not show the newest turn"),
    ],
)
def test_what_no_provider_takes_or_nobody_made_is_no_plan(levels: list[int], why: str):
    story = tools()
    within = bounds(SETTINGS, Overhead())
    with pytest.raises(InvalidPlan, match=why) as wrong:
        arranged(story.conversation, story.compression, SETTINGS, 1.0, within, levels)
    assert wrong.value.message_id


@pytest.mark.scenario("C-23")
@settings(max_examples=300)
@given(st.integers(0, 2**64))
def test_whatever_a_plan_loses_is_named(seed: int):
    dice = random.Random(seed)
    story = told(dice)
    messages = story.conversation.messages
    lost = dice.randrange(len(messages))
    kept = [messages[:lost], messages[lost + 1 :]]
    refusal = held_to(story, *(Stretch(0, one[0].id, one[-1].id) for one in kept if one))
    assert isinstance(refusal, Refusal)
    assert (refusal.why, refusal.missing) == ("uncovered", (messages[lost].id,))
    assert refusal.demand == (Stretch(0, messages[lost].id, messages[lost].id),)


class Counted(Sequence[Message]):
    """Messages that count how often each is looked at."""

    def __init__(self, messages: Pages[Message]) -> None:
        self.messages, self.places, self.seen = list(messages), messages.places, Counter[int]()

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[Message]:
        self.seen.update(range(len(self.messages)))
        return iter(self.messages)

    def __getitem__(self, place: Any) -> Any:
        self.seen.update([place] if isinstance(place, int) else range(*place.indices(len(self.messages))))
        return self.messages[place]


def looks(story: Story, own: Settings) -> tuple[Plan, int]:
    """The next plan, and how many looks at messages it took."""
    counted: Any = Counted(story.conversation.messages)
    seen = replace(story.conversation, messages=counted)
    found = fit(seen, story.compression, own, LEARNED, Overhead())
    assert isinstance(found, Plan)
    return found, sum(counted.seen.values())


def long(turns: int = 2_500) -> Story:
    story = Story()
    for _ in range(turns):
        story.turn(100, 100, 100, 100)
    return story


@pytest.mark.scenario("C-22")
@pytest.mark.parametrize("name", ["autobiographical", "window"])
def test_a_plan_looks_at_each_of_ten_thousand_messages_at_most_twice(name: str):
    """On the average; and where only the end has grown since the last compile, hardly at any."""
    story, own = long(), replace(SETTINGS, strategy=name, context_budget_tokens=10_000_000)
    for number in range(50):
        story.says("user", 10)
        found, taken = looks(story, own)
        assert taken <= (20 if number else 2 * len(story.conversation.messages))
        story.compiled(found)
        story.says("assistant", 10)
        story.happens(TurnCompleted("t", "end_turn"))


@pytest.mark.scenario("C-22")
def test_a_plan_of_summaries_looks_at_each_message_at_most_twice():
    story, own = long(), replace(SETTINGS, context_budget_tokens=100_000)
    for number in range(2_450):
        story.summarised(4 * number, 4 * number + 4, 30)
    for _ in range(5):
        story.says("user", 10)
        found, taken = looks(story, own)
        assert found.folded > 2_000
        assert taken <= 2 * len(story.conversation.messages)
        story.compiled(found)
    story.says("user", 10)
    found, taken = looks(story, replace(own, context_budget_tokens=10_000_000))
    assert (found.folded > 2_000, taken <= 20) == (True, True)
