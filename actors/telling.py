"""Subscribers: each has a thread and a queue of its own, so that none can hold up or break the runtime."""

from __future__ import annotations

import queue
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from rewake.actors.reports import Alert
from rewake.events import Alerted, Recorded


class Delta(Struct, frozen=True):
    """A piece of a streamed answer's text, which is in no log."""

    agent: str
    turn: str
    call: str
    text: str


class Subscription:
    """Calls `fn` with each new event of an agent's streams (of all without one), and with deltas where asked for."""

    def __init__(self, fn: Callable[[Any], None], *, agent: str | None = None, deltas: bool = False) -> None:
        self.fn = fn
        self.agent = agent
        self.deltas = deltas
        self.waiting: queue.SimpleQueue[Recorded | Delta | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self.run, name="rewake-subscriber", daemon=True)
        self.thread.start()

    def tell(self, said: Recorded | Delta) -> None:
        if self.agent is None or self.agent == (said.agent if isinstance(said, Delta) else owner(said.stream)):
            self.waiting.put(said)

    def close(self, patience: float = 0.0) -> None:
        """Nothing more is told; wait at most `patience` seconds for what has been."""
        self.waiting.put(None)
        if threading.current_thread() is not self.thread:
            self.thread.join(patience)

    def run(self) -> None:
        while (said := self.waiting.get()) is not None:
            try:
                self.fn(said)
            except BaseException:
                print(f"rewake: a subscriber raised:\n{traceback.format_exc()}", file=sys.stderr)


def owner(stream: str) -> str | None:
    """Whose stream it is: an agent's own, or its drain's."""
    kind, _, name = stream.partition("/")
    return name if kind in ("agent", "drain") else None


def alert_of(recorded: Recorded, event: Alerted) -> Alert:
    """An alert as people are told of it."""
    return Alert(event.agent, event.about, event.message, recorded.at, event.until)
