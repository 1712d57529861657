"""The crash matrix: every scenario's stories, crashed before and after each of their appends, come to the same end.

Beside each scenario's test stands one that plays its stories again: without a crash, then once per append, before it and
after, and with a second crash at the next append. What holds for all is `unlawful`. That the end is the one without the
crash is asked of every play but for the stories of `BY_NATURE`, and for those that go by the clock where the crash cut off
what was under way: that takes its time again, and an abort or a message then meets it at another moment.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from msgspec import Struct

from rewake.actors.scheduling import Crash
from rewake.events import Held, MessageAdded, ToolCalled, ToolReturned
from rewake.events.turns import TurnEnd
from rewake.projections import verify
from rewake.scripts.soak import ledger
from tests.actors.worlds import strayed
from tests.plays import Over, Play, Point, Side
from tests.stories import Notes, Story, watched

SEEDS = (1, 2)
SIDES: tuple[Side, ...] = ("before", "after")
STORIES = 2
"""Stories of a test that are played: one that tells more tells the same with other figures."""
LONG = 300
"""Acts of a story that is too long for a sample."""
SAMPLE = 60
"""Appends that the plays of a story take in a sample: the longer it is, the fewer they are."""

COUNTED = "its policy answers by how often it was asked, and a start that a crash interrupts asks again"
RACING = "two calls that are sent again are sent in either order, and one of them is admitted"
ONCE = "its own provider breaks off once, and does not break off again where that was lost"
READING = "its model reads on in a result by an id that its script names, which is another one"
LIFE = "a life of many acts, whose answers are drawn by the ids of its turns"
PATIENT = frozenset({"push", "wake", "configure", "run_until_idle", "result", "crash", "stop", "restart"})
"""Acts that do not go by the clock: a story of these alone has the same end whatever takes its time again."""
BY_NATURE = {
    "test_a_released_turn_that_the_policy_declines_leaves_nothing_of_its_hold": COUNTED,
    "test_a_released_start_that_fails_before_its_compile_takes_its_hold_with_it": COUNTED,
    "test_a_stream_that_breaks_off_is_gone_on_from": ONCE,
    "test_todays_code_decides_a_log_as_it_was_decided": LIFE,
    "test_an_abort_ends_a_turn_whose_call_waits_for_admission": RACING,
    "test_a_long_result_is_whole_in_the_log_and_an_excerpt_in_the_conversation": READING,
    "test_streams_may_arrive_in_any_order": LIFE,
    "test_an_actor_without_events_takes_up_what_it_follows_from_the_first_event": LIFE,
}
"""Tests whose stories may end otherwise after a crash, and why; the laws hold for them too."""


class Tally(Struct):
    """What was tried, and what came of it."""

    stories: int = 0
    appends: int = 0
    plays: int = 0
    crashes: int = 0
    excused: int = 0
    lost: int = 0
    twice: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"crash matrix: {self.stories} stories of {self.appends:,} appends, {self.plays:,} plays with {self.crashes:,} "
            f"crashes ({self.excused:,} excused from the same end) in {self.seconds:.0f} s of CPU; {self.lost} things lost, "
            f"{self.twice} twice"
        )


TALLY = pytest.StashKey[Tally]()
NOTED = pytest.StashKey[dict[str, list[Story]]]()


class Crashed(pytest.Function):
    """A scenario's test, whose stories are played with crashes instead."""

    noted: str
    """The test's own id, by which its stories were noted if it ran before."""

    def runtest(self) -> None:
        stories = self.stories()
        if not stories:
            pytest.skip("it makes no simulation")
        began, tally = time.process_time(), self.config.stash[TALLY]
        told = [story for story in stories[:STORIES] if self.most is not None or len(story.acts) < LONG]
        wrong = [one for story in told for one in self.tried(story, tally)]
        tally.seconds += time.process_time() - began
        assert not wrong, f"{len(wrong)} wrong:\n" + "\n".join(wrong[:20])

    def stories(self) -> list[Story]:
        """As the test told them, when it ran or now."""
        noted = self.config.stash[NOTED].get(self.noted)
        if noted is None:
            notes = Notes()
            with watched(notes):
                self.told()
            noted = notes.told()
        return noted

    def tried(self, story: Story, tally: Tally) -> Iterator[str]:
        """What went wrong in the plays of a story, and where."""
        tally.stories += 1
        for seed in self.seeds():
            whole = self.played(Play(story, seed))
            appends, expected = whole.appends, end_of(whole)
            tally.appends += appends
            yield from (f"without a crash, seed {seed}: {one}" for one in unlawful(whole, tally))
            for crashes in self.points(appends, seed):
                where = f"story {story.place}, seed {seed}, {crashes}"
                yield from (
                    f"{where}: {one}" for one in self.wrong(Play(story, seed, crashes, whole.ended), expected, tally)
                )

    def wrong(self, play: Play, expected: End, tally: Tally) -> Iterator[str]:
        """What went wrong in a play with crashes."""
        tally.plays += 1
        try:
            self.played(play)
        except Exception as error:
            yield f"{type(error).__name__}: {error}"
            return
        if not play.over:
            return
        tally.crashes += len(play.crashes) - play.waiting
        acts = {act.name for act in play.story.acts}
        excused = play.shifted and not acts <= PATIENT
        tally.excused += excused
        if (
            not excused and self.originalname not in BY_NATURE and "run_once" not in acts
        ):  # nobody waits for a run cut off
            yield from otherwise(end_of(play), expected)
        yield from unlawful(play, tally)

    def seeds(self) -> tuple[int, ...]:
        """All of them, or in a sample one."""
        return SEEDS if self.most is not None else (random.Random(self.noted).choice(SEEDS),)

    @property
    def most(self) -> int | None:
        return self.config.getoption("--crashes")

    def points(self, appends: int, seed: int) -> list[tuple[Point, ...]]:
        """Where to crash: at every append, before and after, once and again at the next; or at a sample of these that is the
        same each time.
        """
        every = [one for nth in range(1, appends + 1) for when in SIDES for one in crashes_at(nth, when)]
        most = min(max(1, SAMPLE // appends), 5) if self.most is None else self.most
        return every if not most or most >= len(every) else random.Random(f"{self.noted} {seed}").sample(every, most)

    def played(self, play: Play) -> Play:
        """The test makes a world, and there the story is played."""
        with watched(play):
            self.told()
        if play.error:
            raise play.error
        return play

    def told(self) -> None:
        """Run the test, as far as it goes; what it patches is as it was behind it."""
        with pytest.MonkeyPatch.context() as patch:
            if "monkeypatch" in self.funcargs:
                self.funcargs["monkeypatch"] = patch
            with suppress(
                Over, Crash
            ):  # a test may have an actor decide something before it does anything from outside
                super().runtest()


def crashes_at(nth: int, when: Side) -> tuple[tuple[Point, ...], ...]:
    """Once, and again at the next append."""
    return ((nth, when),), ((nth, when), (nth + 1, when))


def crashed(tests: list[Any]) -> list[Crashed]:
    """Beside these, those that play their stories with crashes: one for all seeds of a test. What hypothesis draws,
    and a long run, have crashes of their own.
    """
    made: dict[str, Crashed] = {}
    for test in tests:
        if isinstance(test, pytest.Function) and tells(test):
            callspec = getattr(test, "callspec", None)
            params = {name: value for name, value in callspec.params.items() if name != "seed"} if callspec else {}
            if repr(params) not in made:
                made[repr(params)] = beside(test, callspec)
    return list(made.values())


def tells(test: pytest.Function) -> bool:
    marks = {mark.name for mark in test.iter_markers()}
    return "scenario" in marks and "soak" not in marks and not hasattr(test.obj, "hypothesis")


def beside(test: pytest.Function, callspec: Any) -> Crashed:
    info, parent = test._fixtureinfo, test.parent
    assert parent
    name = f"{test.name}[crashed]"
    one: Crashed = Crashed.from_parent(
        parent, name=name, callspec=callspec, fixtureinfo=info, originalname=test.originalname
    )
    one.noted = test.nodeid
    one.add_marker("soak")
    one.add_marker(pytest.mark.timeout(0))
    return one


# -- the laws


def unlawful(play: Play, tally: Tally) -> list[str]:
    """Whatever became of a story: every acknowledged wake has ended once or is owed, every message is there, nothing came
    twice, a hold has kept its times, the log is whole, a state is the same live, restarted and offline.
    """
    sim = play.sim
    ends, twice, _ = ledger(sim.log)
    owed = {one.wake for one in sim.owed()}
    events = [recorded.event for recorded in sim.events()]
    added = [one.id for one in events if isinstance(one, MessageAdded)]
    there = {*ends, *owed, *added}
    lost = [id for _, one in play.receipts() for id in (one.wake, one.message) if id and id not in there]
    twice += [one for one in owed if one in ends]
    twice += more_than_one(added)
    twice += more_than_one(one.turn for one in events if isinstance(one, TurnEnd))
    twice += more_than_one(one.tool_call for one in events if isinstance(one, ToolCalled))
    twice += more_than_one(one.tool_call for one in events if isinstance(one, ToolReturned))
    twice += [f"{call} ran" for call, times in play.ran.items() if times > 1]
    tally.lost += len(lost)
    tally.twice += len(twice)
    wrong = [f"{one} is lost" for one in lost] + [f"{one} twice" for one in twice]
    spans = {(one.turn, one.since, one.until) for one in events if isinstance(one, Held)}
    wrong += [f"{turn} is held since and until other times" for turn in more_than_one(turn for turn, *_ in spans)]
    whole = verify(sim.log)
    wrong += [] if whole.ok else [f"the log is not whole: {whole.why}"]
    return wrong + [f"the state of {stream} is another one {where}" for stream, where in strayed(sim)]


def more_than_one(names: Any) -> list[str]:
    return [name for name, times in Counter(names).items() if times > 1]


class End(Struct, frozen=True):
    """How a play ended: what was said to and by each agent, and what became of each act's wake."""

    said: dict[str, list[Any]]
    outcomes: dict[int, str]


def end_of(play: Play) -> End:
    said = {state.name: [spoken(one) for one in state.conversation.messages] for state in play.sim._agents()}
    return End(said, {number: play.sim.result(one, 0).state for number, one in play.receipts() if one.wake})


def otherwise(end: End, expected: End) -> list[str]:
    """Where a story came to another end than without its crashes."""
    wrong = [
        f"{name} has {end.said.get(name)}, not {expected.said.get(name)}"
        for name in sorted(end.said.keys() | expected.said.keys())
        if not alike(end.said.get(name), expected.said.get(name))
    ]
    same = end.outcomes == expected.outcomes
    return wrong if same else [*wrong, f"what was pushed is {end.outcomes}, not {expected.outcomes}"]


ID = re.compile(r"[\w-]+/[a-z]+/\d+(/\d+)?")
FIGURES = re.compile(r"\d[\d,.]*( (s|min|h)\b)?")


def spoken(message: Any) -> Any:
    """A message, but for the ids in it, and for the times and figures of a failure: those are of its life."""
    text = ID.sub("ID", message.text)
    text = FIGURES.sub("#", text) if message.role == "system" else text
    return (
        message.role,
        text,
        [ID.sub("ID", one.content) for one in message.results],
        [one.name for one in message.calls],
    )


def alike(found: Any, expected: Any) -> bool:
    """The same, but for results that are marked interrupted."""
    if isinstance(expected, list | tuple):
        return len(found or ()) == len(expected) and all(alike(*pair) for pair in zip(found, expected, strict=True))
    return found == expected or (isinstance(found, str) and found.startswith("interrupted:"))
