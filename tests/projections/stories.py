"""Conversations told event by event, with a drain beside them; random ones, and what a plan shows of them."""

from __future__ import annotations

import random

from msgspec.structs import replace

from rewake.events import (
    Compiled,
    Compressed,
    Event,
    MessageAdded,
    MessageEdited,
    MessageRemoved,
    Overhead,
    Quarantined,
    Recorded,
    Settings,
    Text,
    ToolCall,
    ToolResult,
    TurnCompleted,
    TurnStarted,
    Work,
)
from rewake.events.messages import AnyBlock, Role
from rewake.projections import backlog, compression, conversation
from rewake.projections.compression import Summary
from rewake.projections.conversation import closes, digest
from rewake.projections.messages import Message
from rewake.projections.plan import Bounds, Plan, Refusal, bounds, shown
from rewake.projections.strategies import asked

SETTINGS = Settings(name="ada", model="m", context_budget_tokens=5_096, recent_window_tokens=100)


class Story:
    """A conversation told event by event, with a drain beside it."""

    def __init__(self) -> None:
        self.conversation = conversation.initial()
        self.compression = compression.initial()
        self.version = self.stored = 0

    def happens(self, event: Event) -> None:
        self.version += 1
        recorded = Recorded(self.version, 0, "agent/ada", self.version, None, 0, event)
        self.conversation = conversation.evolve(self.conversation, recorded)

    def says(self, role: Role, tokens: int, *blocks: AnyBlock, turn: str | None = None) -> str:
        id = f"ada/msg/{self.version + 1}"
        self.happens(MessageAdded(role, blocks or (Text("hello"),), tokens, "e", id=id, turn=turn))
        return id

    def turn(self, *tokens: int) -> None:
        """A whole turn without tools: its messages take so many tokens."""
        for place, one in enumerate(tokens):
            self.says("assistant" if place % 2 else "user", one)
        self.happens(TurnCompleted("t", "end_turn"))

    def drained(self, event: Event) -> None:
        self.stored += 1
        recorded = Recorded(self.stored, 0, "drain/ada", self.stored, None, 0, event)
        self.compression = compression.evolve(self.compression, recorded)

    def removed(self, id: str) -> None:
        self.happens(MessageRemoved(id))

    def work(self, start: int, stop: int) -> Work:
        covered = self.conversation.messages[start:stop]
        ids = tuple(one.id for one in covered)
        return Work(1, ids[0], ids[-1], ids, digest(covered), sum(one.shown for one in covered))

    def summarised(self, start: int, stop: int, tokens: int) -> None:
        done = Compressed("r", self.work(start, stop), "so it was", tokens, "e", summary=f"ada/summary/{self.stored}")
        self.drained(done)

    def merged(self, sources: list[Summary], tokens: int) -> None:
        work = backlog.merge(compression.initial(), SETTINGS, sources)
        assert work
        self.drained(Compressed("r", work, "so they were", tokens, "e", summary=f"ada/summary/{self.stored}"))

    def plan(self, settings: Settings = SETTINGS, within: Bounds | None = None) -> Plan | Refusal:
        """What the strategy gives, checked."""
        within = within or bounds(settings, Overhead())
        return asked(self.conversation, self.compression, settings, 1.0, within)

    def compiled(self, plan: Plan) -> None:
        """A plan is committed."""
        done = Compiled("t", 1, plan.stretches, plan.digest, plan.tokens, 0, "e", folded=plan.folded)
        self.happens(replace(done, price=plan.price, flat=plan.flat))


def told(dice: random.Random) -> Story:
    """A random story: turns with parallel tools, some of it summarised, some committed, some edited since."""
    story = Story()
    for _ in range(dice.randint(0, 8)):
        turn(story, dice, whole=True)
    begun, last = 0, 0
    while begun < story.conversation.newest:
        last = min(begun + dice.randint(1, 8), story.conversation.newest)
        while not closes(story.conversation.messages[last - 1]):
            last += 1
        work = story.work(begun, last)
        if dice.random() < 0.5 and work.tokens > 1:
            story.summarised(begun, last, dice.randint(1, work.tokens - 1))
        elif dice.random() < 0.2:
            story.drained(Quarantined(work, "in vain"))
        begun = last
    merges(story, dice)
    turn(story, dice, whole=False)
    if dice.random() < 0.5:
        before = story.plan(*chosen(dice))
        if isinstance(before, Plan):
            story.compiled(before)
    for _ in range(dice.choice([0, 0, 1, 3])):
        texts = [one for one in story.conversation.messages if isinstance(one.blocks[0], Text)]
        edited = dice.choice(texts)
        story.happens(MessageEdited(edited.id, (Text("other"), *edited.blocks[1:]), dice.randint(1, 400), "e"))
    return story


def merges(story: Story, dice: random.Random) -> None:
    """Some neighbours of a level are merged, and some of those."""
    for level in (1, 2, 3):
        place, run = 0, list[Summary]()
        while place < len(story.conversation.messages):
            found = compression.applying(story.conversation, story.compression, place, level)
            place = story.conversation.places[found.work.last] + 1 if found else place + 1
            run = [*run, found] if found else []
            if len(run) >= 2 and dice.random() < 0.6:
                most = sum(one.tokens for one in run) - 1
                story.merged(run, dice.randint(1, most))
                run = []


def turn(story: Story, dice: random.Random, whole: bool) -> None:
    story.happens(TurnStarted(("w",), "t"))
    for _ in range(dice.choice([1, 1, 2])):
        story.says("user", dice.randint(1, 400))
    for _ in range(dice.choice([0, 0, 1, 2])):
        ids = [f"c{number}" for number in range(dice.randint(1, 3))]
        story.says("assistant", dice.randint(1, 200), Text("let me look"), *(ToolCall(id, "look") for id in ids))
        story.says("user", dice.randint(1, 400), *(ToolResult(id, "seen") for id in ids))
    if whole:
        story.says("assistant", dice.randint(1, 300))
        story.happens(TurnCompleted("t", "end_turn"))


def chosen(dice: random.Random) -> tuple[Settings, Bounds]:
    own = replace(
        SETTINGS,
        head_window_tokens=dice.choice([0, 0, 300]),
        recent_window_tokens=dice.choice([0, 200, 30_000]),
        target_chunk_tokens=dice.choice([100, 500, 3_000]),
        context_budget_tokens=4_096 + dice.randint(1, 6_000),
        over_budget_grace_ratio=dice.choice([0.0, 0.02, 0.1]),
        physical_window_tokens=dice.choice([None, 4_096 + dice.randint(0, 6_000)]),
    )
    return own, bounds(own, Overhead(dice.randint(0, 50)))


def levels(story: Story, found: Plan) -> list[int]:
    """For each message the level that it is shown at."""
    places = story.conversation.places
    return [one.level for one in found.stretches for _ in range(places[one.first], places[one.last] + 1)]


def covers(story: Story, one: Message | Summary) -> list[str]:
    """The messages that something shown stands for."""
    if isinstance(one, Message):
        return [one.id]
    places = story.conversation.places
    return [it.id for it in story.conversation.messages[places[one.work.first] : places[one.work.last] + 1]]


def parts_of(story: Story, found: Plan) -> list[Message | Summary]:
    """What the plan shows, one by one."""
    conversation = story.conversation
    return [
        one
        for place, stop, summaries in shown(conversation, story.compression, found.stretches)
        for one in (summaries or conversation.messages[place:stop])
    ]
