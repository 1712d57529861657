"""An asyncio loop whose time is set from outside: coroutines sleep and time out in virtual time, one thread, no
waiting.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from contextvars import Context
from typing import Any


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs what is ready when told to, and says when its next timer is due.

    Time is seconds, and moves only when set.
    """

    def __init__(self) -> None:
        super().__init__()
        self.at = 0.0
        self._calls = 0
        self._due: list[tuple[float, int, asyncio.TimerHandle]] = []

    def time(self) -> float:
        return self.at

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        self._calls += 1
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = super().call_at(when, callback, *args, context=context)
        heapq.heappush(self._due, (when, len(self._due), handle))
        return handle

    def settle(self) -> None:
        """Run all that is ready at the present time, and all that becomes ready by it."""
        before = -1
        while before != self._calls:
            self.call_soon(self.stop)
            before = self._calls
            self.run_forever()

    def next_due(self) -> float | None:
        """When the next timer that was not cancelled is due."""
        while self._due and (self._due[0][2].cancelled() or self._due[0][0] <= self.at):
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None
