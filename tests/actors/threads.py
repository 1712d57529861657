"""For tests of the runtime on its threads: agents, a provider whose calls wait, and what a log says."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

from tenacity import stop_after_attempt, wait_none

from rewake.actors import AgentConfig
from rewake.actors.policy import ErrorPolicy
from rewake.actors.providers import Reply, Request, reply
from rewake.actors.providers.base import OnDelta
from rewake.events import MessageAdded, Text

MIB = 2**20
AT_ONCE = ErrorPolicy(stop=stop_after_attempt(9), wait=wait_none())


def agents(*names: str, **config: Any) -> list[AgentConfig]:
    return [AgentConfig(name=name, **{"model": "m", **config}) for name in names or ("ada",)]


def kinds(log: Any, stream: str | None = None) -> list[str]:
    return [recorded.kind for recorded in log.read(stream=stream)]


def said(log: Any) -> list[str]:
    """What people said, in the order of the log."""
    added = (recorded.event for recorded in log.read(kinds=["message_added"]))
    return [
        block.text
        for one in added
        if isinstance(one, MessageAdded) and one.role == "user"
        for block in one.blocks
        if isinstance(block, Text)
    ]


class Controlled:
    """A provider whose calls wait until they are let go, and are counted meanwhile. Usable from any thread."""

    name = "controlled"

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.flying: list[str] = []
        self.most: dict[str, int] = {}
        self._arrivals = threading.Semaphore(0)
        self._gates: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._open = False

    async def infer(self, request: Request, on_delta: OnDelta, /) -> Reply:
        gate = asyncio.Event()
        self._gates.append((asyncio.get_running_loop(), gate))
        if self._open:
            gate.set()
        self.requests.append(request)
        self.flying.append(request.agent)
        for who, count in ((request.agent, self.flying.count(request.agent)), ("all", len(self.flying))):
            self.most[who] = max(self.most.get(who, 0), count)
        self._arrivals.release()
        try:
            await gate.wait()
        finally:
            self.flying.remove(request.agent)
        return reply("done")

    def arrived(self, calls: int = 1) -> None:
        """Wait until so many more calls have come."""
        for _ in range(calls):
            assert self._arrivals.acquire(timeout=20), "the provider was not called"

    def release(self) -> None:
        """Let go of the calls that wait, and of all to come."""
        self._open = True
        for loop, gate in list(self._gates):
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(gate.set)
