"""The journal: the one actor that writes the log. What waits is committed together, answered, and published."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from rewake.actors.worker import Rung
from rewake.events import Append, Log, LogFailed, Recorded, Snapshot
from rewake.events.log import Outcome

Publish = Callable[[Sequence[Recorded]], Sequence[Rung]]
"""Hands an append's events to whoever follows them; gives those whose bell they ring."""
Fail = Callable[[LogFailed], None]


class Entry(Struct):
    """An append that waits for its commit; its writer blocks on `done`."""

    append: Append
    done: threading.Lock = msgspec.field(default_factory=threading.Lock)
    outcome: Outcome | LogFailed | None = None

    def told(self, outcome: Outcome | LogFailed) -> None:
        self.outcome = outcome
        self.done.release()


class Journal(Rung):
    """Commits what every actor has handed in since the last commit as one transaction: no lingering, no polling."""

    def __init__(self, log: Log, publish: Publish, fail: Fail) -> None:
        self.log = log
        self.publish = publish
        self.fail = fail
        self.waiting: deque[Entry] = deque()
        self.saving: deque[Snapshot] = deque()
        self.broken: LogFailed | None = None
        super().__init__()

    def write(self, append: Append) -> Outcome:
        """Called in a writer's thread: its append's outcome, once it is on disk. Raises LogFailed when it can not be."""
        entry = Entry(append)
        entry.done.acquire()
        self.waiting.append(entry)
        self.ring()
        entry.done.acquire()
        if isinstance(entry.outcome, LogFailed):
            raise entry.outcome
        assert entry.outcome is not None
        return entry.outcome

    def save(self, snapshot: Snapshot) -> None:
        """Keep a snapshot when there is nothing more urgent; nobody waits for it."""
        self.saving.append(snapshot)
        self.ring()

    def dead(self) -> None:
        self.broken = self.broken or LogFailed("the journal has stopped")
        self.refuse(self.broken)

    def receive(self, message: Any) -> None:
        del message
        try:
            self.drain()
        except BaseException as error:
            self.broken = error if isinstance(error, LogFailed) else LogFailed(f"{type(error).__name__}: {error}")
            self.refuse(self.broken)
            self.fail(self.broken)

    def drain(self) -> None:
        self.rung = False
        while self.waiting or self.saving:
            if self.broken:
                self.refuse(self.broken)
            elif self.waiting:
                self.commit([self.waiting.popleft() for _ in range(len(self.waiting))])
            else:
                with suppress(LogFailed):
                    self.log.save(self.saving.popleft())

    def commit(self, entries: Sequence[Entry]) -> None:
        """One transaction. It is published before its writers go on: what they do next finds everybody told of it. The bells
        ring last: whoever waits for an answer does not wait for what others make of it.
        """
        try:
            outcomes = self.log.commit([entry.append for entry in entries])
        except BaseException:
            self.waiting.extendleft(reversed(entries))
            raise
        rung: list[Rung] = []
        try:
            for outcome in outcomes:
                if isinstance(outcome, list):
                    rung += self.publish(outcome)
        finally:
            for entry, outcome in zip(entries, outcomes, strict=True):
                entry.told(outcome)
            for one in rung:
                one.ring()

    def refuse(self, error: LogFailed) -> None:
        """Nothing more is written: everyone who waits is told."""
        self.saving.clear()
        with suppress(IndexError):
            while True:
                self.waiting.popleft().told(error)
