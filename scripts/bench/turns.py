"""Turns through the runtime, all actors running: agent, drain, gate, host, journal, ports."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from rewake.actors import AgentConfig, Runtime, RuntimeOptions
from rewake.actors.providers import Reply, Request
from rewake.actors.providers.base import OnDelta, text_of
from rewake.events import Append, Log, Text, Usage
from rewake.events.log import Outcome
from rewake.events.sqlite import SqliteLog
from rewake.scripts.bench.floor import Shape
from rewake.scripts.bench.measuring import Rate, driven, folder, size

SAID = "The build failed because the handler expects a mapping and got a list; I read the file first. " * 2
"""What is pushed, and what is answered: about 200 characters."""


class Instant:
    """A provider that answers at once, and keeps nothing."""

    name = "instant"

    def __init__(self, text: str = SAID) -> None:
        self.blocks = (Text(text),)

    async def infer(self, request: Request, on_delta: OnDelta, /) -> Reply:
        return Reply(self.blocks, "end_turn", Usage(max(1, request.estimate), 40))


class Backwards(Instant):
    """Answers with what was said last, backwards: no two answers are alike, and none is like what was said."""

    async def infer(self, request: Request, on_delta: OnDelta, /) -> Reply:
        said = text_of(request.messages[-1].blocks)
        return Reply((Text(said[::-1]),), "end_turn", Usage(max(1, request.estimate), 40))


def varied(length: int) -> Callable[[], str]:
    """Texts of that length, of words from a small vocabulary in no order: what packs a text finds little to save."""
    draw = random.Random(length)
    words = [f"{draw.getrandbits(28):x}" for _ in range(2_000)]
    return lambda: " ".join(draw.choices(words, k=length // 8))


class SlowLog(SqliteLog):
    """A log on a disk whose every sync takes `pause` seconds longer."""

    pause = 0.0

    def commit(self, appends: Sequence[Append]) -> list[Outcome]:
        outcomes = super().commit(appends)
        time.sleep(self.pause)
        return outcomes


class Turned(Struct, frozen=True):
    """What some turns took: their rate, syncs, the bytes of their events, and those of the file."""

    rate: Rate
    syncs: float
    events: float
    bytes: int
    file: int
    turns: int


def opened(path: str, pause: float, durability: Literal["full", "normal"] = "full") -> Log:
    log = SlowLog(path, durability=durability) if pause else SqliteLog(path, durability=durability)
    if isinstance(log, SlowLog):
        log.pause = pause
    return log


def turns(
    agents: int,
    each: int,
    *,
    pause: float = 0.0,
    warm: int = 3,
    said: Callable[[], str] = lambda: SAID,
    provider: Instant | None = None,
    durability: Literal["full", "normal"] = "full",
    **config: int,
) -> Turned:
    """Push, one call, reply: `each` times for every agent, each driven by a thread that waits for the answer."""
    names = [f"agent-{number:04}" for number in range(agents)]
    configs = [AgentConfig(name=name, model="instant", **config) for name in names]  # pyright: ignore[reportArgumentType]
    with folder() as place:
        path = os.path.join(place, "turns.db")
        log = opened(path, pause, durability)
        with Runtime(
            log, provider=provider or Instant(), agents=configs, options=RuntimeOptions(max_in_flight=0)
        ) as rt:

            def turn(agent: int) -> None:
                rt.result(rt.push(names[agent], said()))

            driven(agents, warm, turn)
            commits, head = log.commits, log.head()
            rate = driven(agents, each, turn)
            commits, written = log.commits - commits, log.head() - head
        count = agents * each
        return Turned(rate, commits / count, written / count, data_bytes(path), size(path), count + agents * warm)


def data_bytes(path: str) -> int:
    """The bytes of all events of a log."""
    log = SqliteLog(path, readonly=True)
    try:
        return sum(len(row.data.encode()) for row in log.raw())
    finally:
        log.close()


def shape() -> Shape:
    """The events that one of our turns writes, before its call and after it: the floor writes the same."""
    with folder() as place:
        path = os.path.join(place, "shape.db")
        with Runtime(path, provider=Instant(), agents=[AgentConfig(name="agent-0001", model="instant")]) as rt:
            rt.result(rt.push("agent-0001", SAID))
            first = rt.push("agent-0001", SAID)
            rt.result(first)
        log = SqliteLog(path, readonly=True)
        appends: list[list[int]] = [[]]
        for row in log.raw(first.seq - 1):
            if row.stream == "agent/agent-0001":
                appends[-1].append(len(row.data.encode()))
                if row.rest == 0:
                    appends.append([])
        log.close()
        return Shape(tuple(appends[0]), tuple(appends[1]))
