"""The words of a script: what a provider that only pretends is to do next."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Union

from msgspec import Struct

from rewake.actors.providers.base import Reply, Request
from rewake.actors.providers.failures import (
    AuthFailed,
    ContentRefused,
    ContextOverflow,
    InvalidRequest,
    ProviderLimit,
    ProviderOverloaded,
    ProviderTimeout,
    ServerError,
    TransportError,
)
from rewake.events.base import Tokens
from rewake.events.calls import Usage
from rewake.events.messages import AnyBlock, Document, Image, Reasoning, Text, ToolCall, ToolResult

Wait = float | timedelta
"""Seconds, or a timedelta."""


class Call(Struct, frozen=True):
    """A tool call to answer with; without an id it gets one that the same request gets again."""

    name: str
    arguments: dict[str, Any] = {}
    id: str | None = None


class Fail(Struct, frozen=True):
    """A failure: what the error has `emitted` comes first, then it is raised, newly made each time."""

    error: Callable[[], BaseException]


class Slow(Struct, frozen=True):
    """The item, `seconds` later."""

    item: Item
    seconds: float


Part = Union[str, AnyBlock, Call, Reply]  # noqa: UP007  (of strings, for those below)
Item = Union[Part, Fail, Slow, BaseException, Sequence[Part]]  # noqa: UP007
"""What a script is made of. A text alone is `reply(text)`; a list is one answer."""


def reply(text: str, usage: Usage | None = None, *, stop_reason: str = "end_turn", deltas: Sequence[str] = ()) -> Reply:
    """An answer of plain text; without `usage` the provider's `count` says what it used."""
    return Reply((Text(text),) if text else (), stop_reason, usage, tuple(deltas))


def call_tool(name: str, arguments: dict[str, Any] | None = None, id: str | None = None) -> Call:
    """An answer that calls a tool; several of them in a list are parallel calls of one answer."""
    return Call(name, arguments or {}, id)


def limit(retry_after: Wait | None = None, *, after: str = "") -> Fail:
    """429; with `retry_after` it states how long to wait."""
    return Fail(lambda: ProviderLimit(retry_after=retry_after, status=429, emitted=after))


def overloaded(retry_after: Wait | None = None, *, after: str = "") -> Fail:
    """529."""
    return Fail(lambda: ProviderOverloaded(retry_after=retry_after, status=529, emitted=after))


def server_error(message: str = "", *, retry_after: Wait | None = None, status: int = 500, after: str = "") -> Fail:
    """500."""
    return Fail(lambda: ServerError(message, retry_after=retry_after, status=status, emitted=after))


def drop(after: str | None = None, *, retry_after: Wait | None = None) -> Fail:
    """The connection is lost: before any text, or once the text `after` has come."""
    return Fail(lambda: TransportError(retry_after=retry_after, emitted=after or ""))


def slow(item: Item | None = None, seconds: Wait | None = None) -> Slow:
    """The item a while later (1 s when not said); without an item the answer does not come in time."""
    delay = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
    if item is None:
        return Slow(Fail(ProviderTimeout), delay or 0.0)
    return Slow(item, 1.0 if delay is None else delay)


def overflow(counted: Tokens | None = None, limit: Tokens | None = None, *, after: str = "") -> Fail:
    """The request is too long; it says what it counted and its limit only when they are given."""
    return Fail(lambda: ContextOverflow(counted, limit, status=400, emitted=after))


def invalid(message: str = "", *, retry_after: Wait | None = None, after: str = "") -> Fail:
    """400."""
    return Fail(lambda: InvalidRequest(message, retry_after=retry_after, status=400, emitted=after))


def auth(message: str = "", *, retry_after: Wait | None = None, after: str = "") -> Fail:
    """401."""
    return Fail(lambda: AuthFailed(message, retry_after=retry_after, status=401, emitted=after))


def refused(message: str = "", *, retry_after: Wait | None = None, after: str = "") -> Fail:
    """The provider will not work with this content."""
    return Fail(lambda: ContentRefused(message, retry_after=retry_after, status=400, emitted=after))


def answer(item: Item, request: Request) -> Reply:
    """The whole answer that an item is, to this request."""
    if isinstance(item, Reply):
        return item
    parts = parts_of(item)
    blocks = tuple(block for index, part in enumerate(parts) for block in blocks_of(part, request, index))
    usage = next((part.usage for part in parts if isinstance(part, Reply)), None)
    calls = any(isinstance(block, ToolCall) for block in blocks)
    return Reply(blocks, "tool_use" if calls else "end_turn", usage)


def parts_of(item: Item) -> Sequence[Part]:
    match item:
        case str() | Call() | Reply() | Text() | ToolCall() | ToolResult() | Image() | Document() | Reasoning():
            return (item,)
        case list() | tuple():
            return item
        case _:
            raise TypeError(f"{item!r} is no answer of a script")


def blocks_of(part: Part, request: Request, index: int) -> tuple[AnyBlock, ...]:
    match part:
        case str():
            return (Text(part),) if part else ()
        case Reply(blocks):
            return blocks
        case Call(name, arguments, id):
            return (ToolCall(call_id(request, index) if id is None else id, name, arguments),)
        case Text() | ToolCall() | ToolResult() | Image() | Document() | Reasoning():
            return (part,)
        case _:
            raise TypeError(f"{part!r} is no part of an answer")


def call_id(request: Request, index: int) -> str:
    """A call's id, the same whenever the same request is answered: of letters, digits, `-` and `_`."""
    turn = re.sub(r"[^A-Za-z0-9]+", "-", request.turn or request.agent)
    return f"call_{turn}_{request.step}_{index}"
