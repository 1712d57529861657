"""Calls made from inside: a tool or a policy that would wait for its own turn is refused, never deadlocked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import Any

from rewake.events import CalledFromInside

INSIDE: ContextVar[str | None] = ContextVar("rewake_inside", default=None)
"""The agent whose tool or policy runs in this context."""


def forbid_inside(call: str, wake: str | None = None) -> None:
    """Raise CalledFromInside when this context is a tool's or a policy's; with a wake, only when it is its own agent's."""
    agent = INSIDE.get()
    if agent is not None and (wake is None or wake.partition("/")[0] == agent):
        raise CalledFromInside(f"{call} would wait for the turn of {agent} that it is called from")


async def in_daemon_thread(call: Callable[[], Any]) -> Any:
    """Run what may block in a thread that keeps no program from exiting, in this context."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def work() -> None:
        value, error = None, None
        try:
            value = context.run(call)
        except BaseException as raised:
            error = RuntimeError(repr(raised)) if isinstance(raised, StopIteration) else raised
        try:
            loop.call_soon_threadsafe(settle, value, error)
        except RuntimeError:
            return

    threading.Thread(target=work, name="rewake-tool", daemon=True).start()
    return await future
