"""What is remembered of the summaries that apply, beside what is found when all of it is looked at anew."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rewake.events import AgentStarted, Compressed, MessageEdited, Recorded, Settings, Stretch, Text
from rewake.projections import settings as setting
from rewake.projections.backlog import next_work
from rewake.projections.compression import Compression, units
from rewake.projections.pages import paged
from rewake.projections.settings import AgentSettings
from tests.projections.stories import Story, chosen, told, turn


@settings(max_examples=600)
@given(st.integers(0, 2**64))
def test_what_is_remembered_gives_the_work_that_looking_at_everything_gives(seed: int):
    """However the conversation changes meanwhile; also where a life goes on from an earlier state."""
    dice = random.Random(seed)
    story, own = told(dice), [started(chosen(dice)[0]) for _ in range(2)]
    former = story.conversation, story.compression
    for _ in range(8):
        before = story.conversation, story.compression
        step(story, dice, own[0], former)
        former = before
        for live, demand in ((one, wanted(story, dice)) for one in own):
            afresh = forgotten(story.compression)
            assert asked(story, story.compression, live, demand) == asked(story, afresh, live, demand)


def step(story: Story, dice: random.Random, own: AgentSettings, former: Any) -> None:
    messages = story.conversation.messages
    changes = ["turn", "work", "work", "edit", "remove", "other life"]
    match dice.choice(changes) if len(messages) > 1 else "turn":
        case "turn":
            turn(story, dice, whole=True)
        case "work":
            work = next_work(story.conversation, story.compression, own, wanted(story, dice))
            if work:
                story.drained(Compressed("r", work, "so it was", 1, "e", summary=f"ada/summary/{story.stored}"))
        case "edit":
            story.happens(MessageEdited(dice.choice(messages).id, (Text("other"),), dice.randint(1, 400), "e"))
        case "remove":
            story.removed(dice.choice(messages).id)
        case _:
            story.conversation, story.compression = former


def asked(story: Story, summaries: Compression, own: AgentSettings, demand: tuple[Stretch, ...]) -> Any:
    conversation, live, last = story.conversation, own.live, len(story.conversation.messages)
    assert live
    found = next_work(conversation, summaries, own, demand)
    return found, next_work(conversation, summaries, own), list(units(conversation, summaries, live, 0, last, last))


def wanted(story: Story, dice: random.Random) -> tuple[Stretch, ...]:
    messages = story.conversation.messages
    first = dice.randrange(len(messages))
    last = dice.randrange(first, len(messages))
    return (Stretch(dice.choice([0, 0, 1]), messages[first].id, messages[last].id),)


def started(live: Settings) -> AgentSettings:
    return setting.evolve(setting.initial(), Recorded(1, 0, "agent/ada", 1, None, 0, AgentStarted(live)))


def forgotten(summaries: Compression) -> Compression:
    return replace(summaries, made=paged(list(summaries.made)))


def lived(turns: int) -> tuple[Story, AgentSettings]:
    """A story of which the drain has summarised all that it would."""
    live = Settings(name="ada", model="m", recent_window_tokens=100, target_chunk_tokens=100)
    story, own = Story(), started(live)
    for _ in range(turns):
        story.turn(50, 50)
    while work := next_work(story.conversation, story.compression, own):
        story.drained(Compressed("r", work, "so it was", 1, "e", summary=f"ada/summary/{story.stored}"))
    return story, own


def calls(made: Callable[[], Any]) -> int:
    """How many calls something makes."""
    count, before = 0, sys.getprofile()

    def called(_: Any, kind: str, __: Any) -> None:
        nonlocal count
        count += kind in ("call", "c_call")

    sys.setprofile(called)
    try:
        made()
    finally:
        sys.setprofile(before)
    return count


def test_what_to_compress_next_is_decided_without_a_look_at_what_was_summarised_long_ago():
    """After another turn came: in a life of two thousand messages as in one of two hundred."""
    took: list[int] = []
    for turns in (100, 1_000):
        story, own = lived(turns)
        assert len(story.compression.made) > turns / 3
        story.turn(1, 1)
        took.append(calls(lambda story=story, own=own: next_work(story.conversation, story.compression, own)))
    assert took[1] < 1.5 * took[0]
