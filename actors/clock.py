"""The clock port: what is due is delivered in the order of (due, key); one timer of the loop for all."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable

from rewake.actors.behaviour import Due, Key
from rewake.actors.ports import Deliver
from rewake.events import Millis


class ProcessTime:
    """max(wall clock, newest `at` in the log), taken once, plus the monotonic clock: it never runs backwards.

    `ahead`: how far the log was ahead of the wall clock.
    """

    def __init__(self, newest: Millis) -> None:
        wall = time.time_ns() // 1_000_000
        self.base = max(wall, newest)
        self.ahead = self.base - wall
        self.started = time.monotonic_ns()

    def now(self) -> Millis:
        return self.base + (time.monotonic_ns() - self.started) // 1_000_000


class LoopClock:
    """Timers of all actors, called in the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], Millis], deliver: Deliver) -> None:
        self.loop = loop
        self.now = now
        self.deliver = deliver
        self.heap: list[tuple[Millis, str, Key]] = []
        self.wanted: dict[tuple[str, Key], Millis] = {}
        self.handle: asyncio.TimerHandle | None = None

    def set(self, stream: str, key: Key, due: Millis) -> None:
        self.wanted[stream, key] = due
        heapq.heappush(self.heap, (due, stream, key))
        self.arm()

    def cancel(self, stream: str, key: Key) -> None:
        if self.wanted.pop((stream, key), None) is not None:
            self.arm()

    def arm(self) -> None:
        """One timer, for the earliest that is still wanted."""
        while self.heap and self.wanted.get(self.heap[0][1:]) != self.heap[0][0]:
            heapq.heappop(self.heap)
        if self.handle:
            self.handle.cancel()
            self.handle = None
        if self.heap:
            wait = max(0, self.heap[0][0] - self.now()) / 1_000
            self.handle = self.loop.call_later(wait, self.ring)

    def ring(self) -> None:
        now = self.now()
        while self.heap and self.heap[0][0] <= now:
            due, stream, key = heapq.heappop(self.heap)
            if self.wanted.get((stream, key)) == due:
                del self.wanted[stream, key]
                self.deliver(stream, Due(key))
        self.arm()

    def close(self) -> None:
        self.heap.clear()
        self.wanted.clear()
        self.arm()
