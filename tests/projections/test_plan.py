"""What the model is shown: raw or by summaries, all of it once, within its bounds."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rewake.actors.agent.rendering import rendered
from rewake.actors.providers.base import validate
from rewake.events import (
    MessageEdited,
    Quarantined,
    Settings,
    Stretch,
    Text,
    ToolCall,
    ToolResult,
    TurnCompleted,
)
from rewake.projections import compression
from rewake.projections.compression import Summary, head_end
from rewake.projections.plan import Bounds, Plan, Refusal, plan
from tests.projections.stories import SETTINGS, Story, chosen, covers, levels, parts_of, told


def smallest(story: Story, settings: Settings) -> int:
    """What it takes with every summary that there is."""
    conversation, total, place = story.conversation, 0, 0
    head = head_end(conversation, settings)
    while place < len(conversation.messages):
        found = (compression.applying(conversation, story.compression, place, level) for level in (4, 3, 2, 1))
        summary = next(filter(None, found), None) if place >= head else None
        total += summary.tokens if summary else conversation.messages[place].shown
        place = conversation.places[summary.work.last] + 1 if summary else place + 1
    return total


@pytest.mark.scenario("C-14")
@settings(max_examples=2_500)
@given(st.integers(0, 2**64))
def test_a_plan_shows_everything_once_within_its_bounds_as_a_provider_takes_it(seed: int):
    dice = random.Random(seed)
    story = told(dice)
    own, within = chosen(dice)
    found = story.plan(own, within)
    if isinstance(found, Refusal):
        full = within.window_room is not None and within.window_room <= 0
        assert full or smallest(story, own) > within.limit
        return
    parts = parts_of(story, found)
    covered = [id for one in parts for id in covers(story, one)]
    assert covered == [one.id for one in story.conversation.messages]
    takes = sum(one.tokens if isinstance(one, Summary) else one.shown for one in parts)
    assert takes == found.tokens <= within.limit
    validate(tuple(said for one in parts for said in ([rendered(one)] if isinstance(one, Summary) else one.said)))


@pytest.mark.scenario("C-14")
@settings(max_examples=2_500)
@given(st.integers(0, 2**64))
def test_a_larger_room_never_shows_less(seed: int):
    dice = random.Random(seed)
    story = told(dice)
    own, within = chosen(dice)
    more = dice.choice([1, 50, 1_000])
    window = None if within.window_room is None else within.window_room + dice.choice([0, more])
    wider = Bounds(within.room + more, within.bound + more, window)
    small, large = story.plan(own, within), story.plan(own, wider)
    if isinstance(small, Plan):
        assert isinstance(large, Plan)
        assert all(less >= more for less, more in zip(levels(story, small), levels(story, large), strict=True))


@pytest.mark.scenario("C-15")
def test_what_must_stay_alone_over_the_bound_can_not_be_compressed_away():
    story = Story()
    for _ in range(5):
        story.turn(500, 500)
    story.says("user", 2_000)
    refusal = story.plan()
    assert isinstance(refusal, Refusal)
    assert (refusal.why, refusal.tokens, refusal.mandatory, refusal.compressible) == (
        "over_budget",
        7_000,
        2_000,
        False,
    )


@pytest.mark.parametrize("window", [0, -100, 1])
def test_a_window_without_room_for_what_must_stay_is_full(window: int):
    story = Story()
    story.says("user", 500)
    refusal = story.plan(within=Bounds(1_000, 1_020, window))
    assert isinstance(refusal, Refusal)
    assert (refusal.why, refusal.compressible) == ("window_full", False)
    story = Story()
    assert isinstance(story.plan(within=Bounds(1_000, 1_020, window)), Refusal if window < 1 else Plan)


def test_a_head_longer_than_where_the_tail_begins_is_priced_once():
    story = Story()
    story.turn(300, 100)
    story.says("user", 10)
    found = story.plan(replace(SETTINGS, head_window_tokens=400, recent_window_tokens=30_000))
    assert isinstance(found, Plan)
    assert found.tokens == 410
    assert found.stretches == (Stretch(0, "ada/msg/1", "ada/msg/4"),)


def test_a_summary_that_exists_is_shown_rather_than_one_waited_for():
    """The oldest stretch has none yet; a younger one's makes room enough."""
    story = Story()
    for _ in range(4):
        story.turn(200, 200)
    story.summarised(4, 8, 10)
    story.says("user", 10)
    found = story.plan(within=Bounds(1_000, 1_020))
    assert isinstance(found, Plan)
    assert (found.tokens, found.folded) == (820, 1)


def test_only_as_much_is_demanded_as_would_make_room():
    story = Story()
    for _ in range(6):
        story.turn(200, 200)
    story.says("user", 10)
    refusal = story.plan(replace(SETTINGS, target_chunk_tokens=100), Bounds(2_000, 2_040))
    assert isinstance(refusal, Refusal)
    assert refusal.demand == (Stretch(0, "ada/msg/1", "ada/msg/5"),)


def test_what_was_tried_in_vain_makes_no_refusal_compressible():
    """Until one of its messages is edited: then it is another piece of work."""
    story = Story()
    story.turn(400, 400)
    story.drained(Quarantined(story.work(0, 2), "in vain"))
    story.says("user", 10)
    within = Bounds(100, 100)
    refusal = story.plan(within=within)
    assert isinstance(refusal, Refusal)
    assert (refusal.compressible, refusal.demand) == (False, ())
    story.happens(MessageEdited("ada/msg/1", (Text("other"),), 390, "e"))
    edited = story.plan(within=within)
    assert isinstance(edited, Refusal)
    assert edited.compressible


def test_a_refusal_is_compressible_only_if_there_would_be_room_then():
    story = Story()
    story.turn(200, 200, 200, 200)
    story.drained(Quarantined(story.work(0, 4), "in vain"))
    story.turn(100, 100)
    story.says("user", 10)
    refusal = story.plan(replace(SETTINGS, target_chunk_tokens=100), Bounds(500, 500))
    assert isinstance(refusal, Refusal)
    assert not refusal.compressible


def test_a_tail_never_begins_on_a_result():
    story = Story()
    for _ in range(3):
        story.says("user", 10)
        story.says("assistant", 10, ToolCall("c", "look"))
        story.says("user", 10, ToolResult("c", "seen"))
        story.happens(TurnCompleted("t", "end_turn"))
    messages = story.conversation.messages
    for recent in range(120):
        start = compression.tail_start(story.conversation, replace(SETTINGS, recent_window_tokens=recent), 10_000)
        assert start == len(messages) or not messages[start].results


def test_folds_once_committed_stay():
    """A plan never unfolds by itself, though there be room enough."""
    story = Story()
    story.turn(400, 400)
    story.summarised(0, 2, 10)
    story.says("user", 10)
    tight = story.plan(within=Bounds(500, 500))
    assert isinstance(tight, Plan)
    story.compiled(tight)
    assert story.plan(within=Bounds(500, 500)) == story.plan(within=Bounds(500, 500))
    wide = story.plan()
    assert isinstance(wide, Plan)
    assert wide.stretches == tight.stretches


@settings(max_examples=1_000)
@given(st.integers(0, 2**64))
def test_a_plan_that_looks_only_at_what_is_new_is_the_plan_that_looks_at_everything(seed: int):
    dice = random.Random(seed)
    story = told(dice)
    own, within = chosen(dice)
    whole = plan(replace(story.conversation, shown=None), story.compression, own, 1.0, within)
    assert story.plan(own, within) == whole


def merged(chunks: int, *, tokens: int = 30, at_once: int = 3) -> Story:
    """So many turns of 200 tokens, each with a summary, neighbours of those merged; then a question."""
    story = Story()
    for number in range(chunks):
        story.turn(100, 100)
        story.summarised(2 * number, 2 * number + 2, tokens)
    lowest = sorted(story.compression.levels[0].values(), key=lambda one: story.conversation.places[one.work.first])
    for number in range(0, chunks - at_once + 1, at_once):
        story.merged(lowest[number : number + at_once], tokens)
    story.says("user", 10)
    return story


def levels_within(story: Story, room: int) -> list[int]:
    own = replace(SETTINGS, recent_window_tokens=0)
    found = story.plan(own, Bounds(room, room))
    assert isinstance(found, Plan)
    return levels(story, found)[:-1:2]


def test_the_oldest_stretch_at_the_fullest_level_is_raised_first():
    """While raw messages take the most they are folded, then the oldest summaries are merged, then raw ones again."""
    story = merged(6, tokens=90)
    assert levels_within(story, 1_350) == [0, 0, 0, 0, 0, 0]
    assert levels_within(story, 1_230) == [1, 0, 0, 0, 0, 0]
    assert levels_within(story, 740) == [1, 1, 1, 1, 1, 0]
    assert levels_within(story, 730) == [2, 2, 2, 1, 1, 0]
    assert levels_within(story, 530) == [2, 2, 2, 1, 1, 1]
    assert levels_within(story, 400) == [2, 2, 2, 2, 2, 2]


def test_a_plan_starts_from_the_levels_that_were_committed():
    story = merged(6)
    own = replace(SETTINGS, recent_window_tokens=0)
    tight = story.plan(own, Bounds(150, 150))
    assert isinstance(tight, Plan)
    assert max(levels(story, tight)) == 2
    story.compiled(tight)
    for number in range(3):
        story.happens(MessageEdited(story.says("user", 10), (Text(f"{number}"),), 11, "e"))
    wide = story.plan(own)
    assert isinstance(wide, Plan)
    assert levels(story, wide)[:12] == levels(story, tight)[:12]
    assert wide.folded == tight.folded


def test_a_merge_that_was_committed_is_shown_by_what_is_left_of_it_after_an_edit():
    story = merged(3)
    own = replace(SETTINGS, recent_window_tokens=0)
    tight = story.plan(own, Bounds(100, 100))
    assert isinstance(tight, Plan)
    assert levels(story, tight) == [2] * 6 + [0]
    story.compiled(tight)
    edited = story.conversation.messages[2].id
    story.happens(MessageEdited(edited, (Text("other"),), 50, "e"))
    found = story.plan(own)
    assert isinstance(found, Plan)
    assert levels(story, found) == [1, 1, 0, 0, 1, 1, 0]


def test_a_refusal_demands_merges_when_no_raw_stretch_is_left():
    """Fewer than six too: nothing is left that could be folded while a turn does not fit."""
    story = merged(3, at_once=9)
    refusal = story.plan(replace(SETTINGS, recent_window_tokens=0), Bounds(90, 90))
    assert isinstance(refusal, Refusal)
    assert (refusal.tokens, refusal.compressible) == (100, True)
    assert refusal.demand == (Stretch(1, "ada/msg/1", story.conversation.messages[5].id),)
