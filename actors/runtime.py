"""The runtime: a log, its actors on pykka threads, their ports on one asyncio loop, and the calls that people make."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Any

from rewake.actors.config import seconds
from rewake.actors.contents import Content
from rewake.actors.engine import Engine
from rewake.actors.fleet import Subscriptions
from rewake.actors.inside import forbid_inside
from rewake.actors.reports import IdleReport, Receipt, Result, StopReport, wake_of
from rewake.actors.surface import Duration
from rewake.actors.telling import Subscription
from rewake.events import Millis, Recorded, RewakeError, RuntimeStopped
from rewake.projections.starting import locating

PAGE = 1_000
"""Events that `atail` reads at a time."""


class Runtime(Engine):
    """Runs agents on a log: a path, a Log, or `:memory:`. Enter it to start, leave it to stop.

    Entering recovers the log, starts the actors and takes up what is owed. Raises LogInUse, NotALog, LogCorrupt or
    InvalidSetting then; nothing was started. Leaving stops within `options.stop_timeout` seconds.
    """

    def __enter__(self) -> Runtime:
        with self._lock:
            if self._running:
                raise RewakeError("this runtime runs already")
            self._failure = None
            self._shells, self._subscriptions = {}, Subscriptions()
            self._open()
            try:
                with locating(self.log):
                    self._start()
            except BaseException:
                self._close(self.options.stop_timeout)
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Runtime:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    def stop(self, timeout: Duration = None) -> StopReport:
        """Stop: calls in flight are cancelled, nothing owed is lost, and what is still owed is reported.

        `timeout` in seconds; None: `options.stop_timeout`. Raises CalledFromInside from a tool or a policy.
        """
        forbid_inside("stop")
        with self._lock:
            if not self._running:
                return StopReport()
            limit = self.options.stop_timeout if timeout is None else seconds(timeout)
            return self._close(limit)

    def result(self, receipt: Receipt, timeout: Duration = None) -> Result:
        if timeout is None or seconds(timeout) > 0:
            forbid_inside("result", wake_of(receipt))
        return super().result(receipt, timeout)

    def run_until_idle(self, timeout: Duration = None) -> IdleReport:
        forbid_inside("run_until_idle")
        return super().run_until_idle(timeout)

    def subscribe(
        self, fn: Callable[[Any], None], *, agent: str | None = None, deltas: bool = False
    ) -> Callable[[], None]:
        """Call `fn` with each new Recorded (of one agent's streams), in order, in a thread of its own; it can break nothing.

        With `deltas=True` also with each Delta of a streamed answer, which is in no log. Returns what ends it.
        """
        telling = Subscription(fn, agent=agent, deltas=deltas)
        self._telling.append(telling)

        def unsubscribe() -> None:
            if telling in self._telling:
                self._telling.remove(telling)
            telling.close()

        return unsubscribe

    # -- the same, awaited

    async def apush(
        self,
        agent: str,
        content: Content,
        *,
        channel: str | None = None,
        author: str | None = None,
        addressed: bool = True,
        wake: bool = True,
        dedupe_key: str | None = None,
    ) -> Receipt:
        """`push`, without blocking the caller's loop."""
        said = partial(self.push, agent, content, channel=channel, author=author, addressed=addressed)
        return await asyncio.to_thread(said, wake=wake, dedupe_key=dedupe_key)

    async def awake(
        self,
        agent: str,
        reason: str,
        *,
        channel: str | None = None,
        author: str | None = None,
        addressed: bool = False,
        wake_at: Millis | None = None,
        silent: bool = False,
        dedupe_key: str | None = None,
    ) -> Receipt:
        """`wake`, without blocking the caller's loop."""
        said = partial(self.wake, agent, reason, channel=channel, author=author, addressed=addressed)
        return await asyncio.to_thread(said, wake_at=wake_at, silent=silent, dedupe_key=dedupe_key)

    async def aresult(self, receipt: Receipt, timeout: Duration = None) -> Result:
        """`result`, without blocking the caller's loop, nor a thread while it waits."""
        wake = wake_of(receipt)
        if timeout is not None and seconds(timeout) <= 0:
            return self.result(receipt, 0)
        forbid_inside("aresult", wake)

        async def ended() -> bool:
            return self._ended(wake)

        await self._auntil(ended, timeout, f"agent/{wake.partition('/')[0]}")
        return self._outcome(wake)

    async def aidle(self, timeout: Duration = None) -> IdleReport:
        """`run_until_idle`, without blocking the caller's loop."""
        forbid_inside("aidle")
        until = self._ending(timeout)
        return self._report(await self._auntil(lambda: asyncio.to_thread(self._idle, until), timeout))

    async def atail(
        self, after: int = 0, follow: bool = False, agent: str | None = None, kinds: Iterable[str] | None = None
    ) -> AsyncIterator[Recorded]:
        """`tail`, without blocking the caller's loop, nor a thread while it waits. Raises UnknownAgent at its first step."""
        stream = self._stream(agent)
        wanted = None if kinds is None else tuple(kinds)
        while True:
            head = await asyncio.to_thread(self.log.head)
            events = iter(self.log.read(after, stream, wanted, head))
            while page := await asyncio.to_thread(next_page, events):
                for recorded in page:
                    yield recorded
            after = max(after, head)
            grown = partial(self._grown, after)
            try:
                if not follow or not await self._auntil(lambda grown=grown: asyncio.to_thread(grown), None):
                    return
            except RuntimeStopped:
                return

    async def astop(self, timeout: Duration = None) -> StopReport:
        """`stop`, without blocking the caller's loop."""
        return await asyncio.to_thread(self.stop, timeout)


def next_page(events: Iterator[Recorded]) -> list[Recorded]:
    return list(islice(events, PAGE))
