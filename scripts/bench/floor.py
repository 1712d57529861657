"""The floor: a turn made of bare parts, with nothing of ours in it, that any durable agent on them pays for.

A pykka actor per agent, one writer thread that commits whatever waits, msgspec, SQLite with `synchronous=FULL`. A turn
writes as many events of as many bytes as one of ours, at two durable points, with the fake call on an asyncio loop between.
Of ours there is more, on purpose: the caller is told at the acceptance too, what is said is counted in tokens, the plan and
the request are checked, a drain reads the turn; a commit looks at the epoch, is chained by a digest and guarded by triggers.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
import pykka
from msgspec import Struct

from rewake.scripts.bench.measuring import Rate, driven, folder

Rows = list[tuple[int, int, str, str]]

TABLE = """CREATE TABLE log(seq INTEGER PRIMARY KEY, stream INTEGER NOT NULL, version INTEGER NOT NULL, kind TEXT NOT NULL,
data TEXT NOT NULL, UNIQUE(stream, version))"""


class Shape(Struct, frozen=True):
    """The sizes of a turn's events in bytes: those before the call, and those after it."""

    before: tuple[int, ...]
    after: tuple[int, ...]


class Fact(Struct, frozen=True, tag_field="kind"):
    """An event with the few fields that all have, and a text that makes it as long as it is to be."""

    agent: str
    turn: str
    at: int
    text: str


FACTS = [
    cast("type[Fact]", msgspec.defstruct(f"Fact{n}", [], bases=(Fact,), frozen=True, tag=f"fact_{n:02}"))
    for n in range(16)
]
SAID = len(msgspec.json.encode(FACTS[0]("agent-0001", "agent-0001/turn/1000", 1_767_225_600_000, "")))


class Tally(Struct):
    """What is folded."""

    facts: int = 0
    chars: int = 0


def counted(tally: Tally, fact: Fact) -> None:
    tally.facts += 1
    tally.chars += len(fact.text)


FOLDS: dict[type[Fact], Callable[[Tally, Fact], None]] = dict.fromkeys(FACTS, counted)


class Writer(threading.Thread):
    """Commits everything that waits as one transaction. `pause`: seconds that a sync takes longer."""

    def __init__(self, path: str, pause: float) -> None:
        super().__init__(daemon=True)
        self.path = path
        self.pause = pause
        self.waiting: queue.SimpleQueue[tuple[Rows, threading.Lock] | None] = queue.SimpleQueue()

    def run(self) -> None:
        db = sqlite3.connect(self.path, isolation_level=None)
        for line in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", TABLE):
            db.execute(line)
        while (first := self.waiting.get()) is not None:
            entries = [first]
            while not self.waiting.empty():
                if (entry := self.waiting.get()) is None:
                    self.waiting.put(None)
                    break
                entries.append(entry)
            db.execute("BEGIN IMMEDIATE")
            rows = [row for some, _ in entries for row in some]
            db.executemany("INSERT INTO log(stream, version, kind, data) VALUES (?, ?, ?, ?)", rows)
            db.execute("COMMIT")
            if self.pause:
                time.sleep(self.pause)
            for _, done in entries:
                done.release()
        db.close()


class Agent(pykka.ThreadingActor):
    """Takes a push, records, has the call made, takes the answer, records, and lets its caller go."""

    use_daemon_thread = True

    def __init__(self, number: int, shape: Shape, writer: Writer, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.number, self.name = number, f"agent-{number:04}"
        self.shape, self.writer, self.loop = shape, writer, loop
        self.version = 0
        self.tally = Tally()
        self.encode = msgspec.json.Encoder().encode
        self.done = threading.Lock()
        self.done.acquire()
        self.caller: threading.Event | None = None

    def on_receive(self, message: Any) -> None:
        if isinstance(message, threading.Event):
            self.caller = message
            self.record(self.shape.before, 0)
            self.loop.call_soon_threadsafe(self.order)
        else:
            self.record(self.shape.after, len(self.shape.before))
            if self.caller:
                self.caller.set()

    def record(self, sizes: Sequence[int], first: int) -> None:
        rows: Rows = []
        facts: list[Fact] = []
        for index, size in enumerate(sizes):
            self.version += 1
            turn = f"{self.name}/turn/{self.version}"
            kind = FACTS[first + index]
            fact = kind(self.name, turn, time.time_ns() // 1_000_000, "x" * max(0, size - SAID))
            rows.append((self.number, self.version, kind.__name__, self.encode(fact).decode()))
            facts.append(fact)
        self.writer.waiting.put((rows, self.done))
        self.done.acquire()
        for fact in facts:
            FOLDS[type(fact)](self.tally, fact)

    def order(self) -> None:
        """In the loop's thread."""
        task = self.loop.create_task(self.call())
        CALLS.add(task)
        task.add_done_callback(CALLS.discard)

    async def call(self) -> None:
        self.actor_ref.tell("an answer")


CALLS: set[asyncio.Task[None]] = set()


def floor(agents: int, each: int, shape: Shape, pause: float = 0.0, warm: int = 3) -> Rate:
    """The floor's rate."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    with folder() as place:
        writer = Writer(os.path.join(place, "floor.db"), pause)
        writer.start()
        actors = [Agent.start(number, shape, writer, loop) for number in range(agents)]

        def turn(agent: int) -> None:
            answered = threading.Event()
            actors[agent].tell(answered)
            answered.wait()

        driven(agents, warm, turn)
        rate = driven(agents, each, turn)
        for actor in actors:
            actor.stop()
        writer.waiting.put(None)
        writer.join()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    return rate
