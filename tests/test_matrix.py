"""The crash matrix sees what a crash must not do: what is taken out here is found by it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from rewake.actors.agent import waking
from rewake.actors.config import AgentConfig
from rewake.actors.providers import ScriptedProvider, call_tool, reply, slow
from rewake.actors.providers.base import Reply
from rewake.actors.simulation import Simulation
from rewake.actors.tools import tool
from rewake.events import Text
from tests.matrix import SIDES, Tally, crashes_at, end_of, otherwise, unlawful
from tests.plays import Over, Play, Point
from tests.stories import Notes, Story, watched


@tool
def send() -> str:
    """Send something."""
    return "sent"


def asks() -> None:
    """A test: one push, and one once that is answered; the first calls a tool."""
    script = [call_tool("send"), slow(reply("hi"), seconds=5), reply("there")]
    sim = Simulation(agents=[AgentConfig(name="ada", model="m", tools=[send])], provider=ScriptedProvider(script))
    receipt = sim.push("ada", "hello")
    sim.run_until_idle()
    assert sim.reply_to(receipt) == "hi"
    sim.push("ada", "and now?")
    sim.advance(seconds=2)


class Fickle:
    """Never says the same again."""

    name = "fickle"

    def __init__(self) -> None:
        self.said = count()

    async def infer(self, request: Any, on_delta: Any, /) -> Reply:
        return Reply((Text(f"answer {next(self.said)}"),), "end_turn")


def wavers() -> None:
    """A test whose provider does not give an answer again."""
    sim = Simulation(agents=[AgentConfig(name="ada", model="m")], provider=Fickle())
    sim.push("ada", "hello")
    sim.run()


def story(test: Callable[[], None]) -> Story:
    notes = Notes()
    with watched(notes):
        test()
    (told,) = notes.told()
    return told


def played(test: Callable[[], None], told: Story, crashes: tuple[Point, ...] = ()) -> Play:
    play = Play(told, 1, crashes)
    with watched(play), suppress(Over):
        test()
    if play.error:
        raise play.error
    return play


def found(test: Callable[[], None]) -> list[str]:
    """What the matrix finds in a test's story."""
    told, tally, wrong = story(test), Tally(), list[str]()
    whole = played(test, told)
    expected = end_of(whole)
    for nth in range(1, whole.appends + 1):
        for when in SIDES:
            for crashes in crashes_at(nth, when):
                play = played(test, told, crashes)
                wrong += [*otherwise(end_of(play), expected), *unlawful(play, tally)]
    return wrong


def test_a_story_is_noted_act_by_act_and_ends_the_same_wherever_it_is_crashed():
    told = story(asks)
    assert [act.name for act in told.acts] == ["push", "run_until_idle", "push", "advance"]
    assert [len(end) for end in end_of(played(asks, told)).said.values()] == [6]
    assert found(asks) == []


def test_an_answer_that_is_not_the_same_again_is_another_end():
    assert any("answer 1" in one for one in found(wavers))


def test_what_is_pushed_again_and_taken_for_new_came_twice(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(waking, "known", lambda *_: None)
    assert any("act 0 twice" in one for one in found(asks))
