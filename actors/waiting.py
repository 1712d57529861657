"""Waiting for what actors do: woken by their moves, in a thread or on a loop. Nothing polls."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from rewake.actors.config import seconds
from rewake.actors.surface import Duration

ANY = ""
"""Where those wait who are told of every actor's moves."""

Check = Callable[[], None]
"""Raises when what is waited for can not come any more."""


class Watcher:
    """Whoever waits for the next move: a lock that a move opens, and its wait closes again."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()

    def set(self) -> None:
        with suppress(RuntimeError):  # it is open: nobody has looked since the last move
            self.lock.release()

    def wait(self, timeout: float | None) -> None:
        self.lock.acquire(timeout=-1 if timeout is None else timeout)


class Watchers:
    """Those who wait, by the stream whose moves they wait for."""

    def __init__(self) -> None:
        self.watching: dict[str, set[Watcher]] = {}

    def moved(self, stream: str) -> None:
        """An actor has moved."""
        if self.watching:
            for watched in (self.watching.get(stream, ()), self.watching.get(ANY, ())):
                for watcher in tuple(watched):
                    watcher.set()

    def wake(self) -> None:
        """Everybody looks once more."""
        for watched in list(self.watching.values()):
            for watcher in tuple(watched):
                watcher.set()

    def until(self, done: Callable[[], bool], timeout: Duration, stream: str | None, check: Check) -> bool:
        """Wait in this thread until it is so; False when the timeout has gone by."""
        until = None if timeout is None else time.monotonic() + seconds(timeout)
        watcher = Watcher()
        watched = self.watching.setdefault(stream or ANY, set())
        watched.add(watcher)
        try:
            while not done():
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    return False
                check()
                watcher.wait(left)
            return True
        finally:
            watched.discard(watcher)

    async def awaited(
        self, done: Callable[[], Awaitable[bool]], timeout: Duration, stream: str | None, check: Check
    ) -> bool:
        """`until`, on the caller's loop."""
        moved = LoopWatcher(asyncio.get_running_loop())
        watched = self.watching.setdefault(stream or ANY, set())
        watched.add(moved)
        try:
            async with asyncio.timeout(None if timeout is None else seconds(timeout)):
                while not await done():
                    check()
                    await moved.awaited.wait()
                    moved.awaited.clear()
            return True
        except TimeoutError:
            return False
        finally:
            watched.discard(moved)


class LoopWatcher(Watcher):
    """A watcher that sets an event of a loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.loop = loop
        self.awaited = asyncio.Event()

    def set(self) -> None:
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.awaited.set)
