"""An asyncio loop whose time is set from outside: coroutines sleep and time out in virtual time, one thread, no
waiting.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable
from contextvars import Context
from typing import Any

from rewake.actors.behaviour import Key
from rewake.events import Millis

RESOLUTION = 1e-6
"""Seconds within which a timer of the loop is due."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs what is ready when told to, and says when its next timer is due.

    Time is seconds, and moves only when set.
    """

    def __init__(self) -> None:
        super().__init__()
        self.at = 0.0
        self._clock_resolution = RESOLUTION
        self._calls = self._settled = 0
        self._error: BaseException | None = None
        self.set_exception_handler(self._raised)
        self._due: list[tuple[float, int, asyncio.TimerHandle]] = []

    def time(self) -> float:
        return self.at

    def __del__(self) -> None:
        """A simulation that was forgotten lets go of its loop without a word: it holds nothing but memory."""
        if not self.is_closed() and not self.is_running():
            self.close()

    def run_forever(self) -> None:
        """Also within another loop's callback: in an async test, or when a forgotten simulation is collected there."""
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            super().run_forever()
        finally:
            asyncio._set_running_loop(outer)

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        self._calls += 1
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = super().call_at(when, callback, *args, context=context)
        heapq.heappush(self._due, (when, len(self._due), handle))
        return handle

    def _raised(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if self._error is None and isinstance(error, Exception):
            self._error = error

    def failed(self) -> BaseException | None:
        """What a callback has raised, once."""
        error, self._error = self._error, None
        return error

    @property
    def ready(self) -> bool:
        """Whether something can run now."""
        due = self._next()
        return self._calls != self._settled or (due is not None and due <= self.at + RESOLUTION)

    def settle(self) -> None:
        """Run all that is ready at the present time, and all that becomes ready by it."""
        before = -1
        while self._due_now() or before != self._calls:
            self.call_soon(self.stop)
            before = self._calls
            self.run_forever()
        self._settled = self._calls

    def _due_now(self) -> bool:
        """Forget the timers that the next turn of the loop fires, if there are any."""
        found = False
        while (due := self._next()) is not None and due <= self.at + RESOLUTION:
            heapq.heappop(self._due)
            found = True
        return found

    def _next(self) -> float | None:
        while self._due and self._due[0][2].cancelled():
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def next_due(self) -> Millis | None:
        """When the next timer that was not cancelled is due, in whole milliseconds of its own time."""
        due = self._next()
        return None if due is None else math.ceil((due - RESOLUTION) * 1_000)


class Timers:
    """The clock port in virtual time: what is due comes in the order of (due, key)."""

    def __init__(self) -> None:
        self._heap: list[tuple[Millis, str, str, Key]] = []
        self._wanted: dict[tuple[str, Key], Millis] = {}

    def set(self, stream: str, key: Key, due: Millis) -> None:
        self._wanted[stream, key] = due
        heapq.heappush(self._heap, (due, stream, repr(key), key))

    def cancel(self, stream: str, key: Key) -> None:
        self._wanted.pop((stream, key), None)

    def next_due(self) -> Millis | None:
        while self._heap and self._wanted.get((self._heap[0][1], self._heap[0][3])) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop(self) -> tuple[str, Key]:
        """The one that is due next, which is set no more."""
        _, stream, _, key = heapq.heappop(self._heap)
        del self._wanted[stream, key]
        return stream, key
