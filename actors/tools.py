"""Tools: a typed function becomes something that a model can call; any way in which it goes wrong becomes a result."""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any, Generic, ParamSpec, TypeVar, overload

import msgspec
from msgspec import Struct

from rewake.actors.signatures import arguments_of, context_of, described, schema_of
from rewake.events.agents import ToolSpec
from rewake.events.errors import InvalidSetting
from rewake.events.log import MAX_EVENT_BYTES

P = ParamSpec("P")
R = TypeVar("R")

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a function where it may block, and gives back what it returned."""

ENVELOPE = 4_096
"""Bytes of the event around a result, generously."""

LONGEST = 4_000
"""The most characters of an exception's message that the model is told."""


class ToolContext(Struct, frozen=True):
    """For whom a tool runs. `idempotency_key` is the same when the same call runs again after a crash."""

    agent: str
    turn: str
    call: str
    idempotency_key: str
    runtime: Any = None


class EndTurn(Struct, frozen=True):
    """Returned by a tool: this is its result, and the turn ends with it."""

    result: Any = ""


class Outcome(Struct, frozen=True):
    """What a call of a tool came to, as the model is told it."""

    result: str
    is_error: bool = False
    ends_turn: bool = False


class Tool(Generic[P, R]):
    """A function that a model can call; called from Python it is that function."""

    __name__: str

    def __init__(self, fn: Callable[P, R], spec: ToolSpec, arguments: type[Struct], context: str | None) -> None:
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.spec = spec
        self.arguments = arguments
        self.context = context

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Tool {self.spec.name}>"

    def bound(self, context: ToolContext, arguments: Any) -> Callable[[], Any]:
        """The call, ready to be made; raises msgspec.ValidationError when the arguments are not of the tool's types."""
        given = msgspec.convert(arguments, self.arguments, str_keys=True)
        values = {
            name: value for name in given.__struct_fields__ if (value := getattr(given, name)) is not msgspec.UNSET
        }
        named = {} if self.context is None else {self.context: context}
        return functools.partial(self.fn, **named, **values)  # pyright: ignore[reportCallIssue]


@overload
def tool(fn: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *, idempotent: bool = False, timeout: float | timedelta = 60, name: str | None = None
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    idempotent: bool = False,
    timeout: float | timedelta = 60,
    name: str | None = None,
) -> Any:
    """Make a typed function, sync or async, a tool: its schema is its annotations, its description its docstring.

    `idempotent`: it may run again after a crash in the middle of it. `timeout` is in seconds. A parameter annotated
    `ToolContext` is not the model's: it is given the context of the call. A sync tool runs in a worker thread, which
    goes on when the time is over, with nobody waiting for it.
    """
    here = inspect.currentframe()
    scope = dict(here.f_back.f_locals) if here and here.f_back else {}

    def make(fn: Callable[..., Any]) -> Tool[..., Any]:
        called = name or getattr(fn, "__name__", "")
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", called):
            raise InvalidSetting("name", called, "a tool's name is 1 to 64 letters, digits, _ or -")
        context = context_of(fn, scope, ToolContext)
        arguments = arguments_of(fn, scope, called, without=context)
        spec = ToolSpec(called, described(fn), schema_of(arguments), idempotent, milliseconds(timeout))
        return Tool(fn, spec, arguments, context)

    return make if fn is None else make(fn)


def milliseconds(timeout: float | timedelta) -> int:
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if not 0 < seconds < 1e9:
        raise InvalidSetting("timeout", timeout, "a tool's timeout is a number of seconds above 0")
    return max(1, round(seconds * 1_000))


async def run(tool: Tool[..., Any], context: ToolContext, arguments: Any, in_thread: InThread) -> Outcome:
    """Call the tool; whatever goes wrong is the result. Only the caller's own cancellation comes out as a raise."""
    try:
        call = tool.bound(context, arguments)
    except Exception as wrong:
        return failed(f"invalid arguments for {tool.spec.name}: {said(wrong)}")
    seconds = tool.spec.timeout_ms / 1_000
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            if inspect.iscoroutinefunction(tool.fn):
                return outcome_of(await call())
            outcome = await in_thread(lambda: attempted(call))
            return outcome if isinstance(outcome, Outcome) else outcome_of(await outcome)
    except GeneratorExit:
        raise
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and cancelled():
            raise
        if isinstance(error, TimeoutError) and limit.expired():
            return failed(f"{tool.spec.name} did not return within {seconds:g} s")
        return raised(error)


def attempted(call: Callable[[], Any]) -> Any:
    """The outcome of a sync call, never a raise (not all of them can cross threads), or an awaitable of its result."""
    try:
        value = call()
        return value if inspect.isawaitable(value) else outcome_of(value)
    except BaseException as error:
        return raised(error)


def cancelled() -> bool:
    """Whether someone cancels the running task, rather than the tool having let a cancellation of its own escape."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def outcome_of(value: Any) -> Outcome:
    """What a tool returned, as text: a string as it is, anything else as JSON."""
    if isinstance(value, EndTurn):
        inner = outcome_of(value.result)
        return inner if inner.is_error else Outcome(inner.result, ends_turn=True)
    try:
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        size = len(msgspec.json.encode(text)) - 2
    except Exception as error:
        return failed(f"the result can not be encoded: {said(error)}")
    return Outcome(text) if size + ENVELOPE <= MAX_EVENT_BYTES else failed(too_large(size))


def too_large(size: int) -> str:
    return f"the result is {mebibytes(size)}; at most {mebibytes(MAX_EVENT_BYTES)} can be recorded"


def mebibytes(size: int) -> str:
    return f"{round(size / 2**20, 1):g} MiB ({size:,} bytes)"


def unknown_tool(name: str, known: Iterable[str]) -> Outcome:
    """The result of a call to a tool that is not there."""
    names = ", ".join(sorted(known))
    return failed(f"no tool is called {name!r}; " + (f"there are: {names}" if names else "there are none"))


def raised(error: BaseException) -> Outcome:
    return failed(f"{type(error).__name__}: {said(error)}")


def failed(why: str) -> Outcome:
    return Outcome(why.encode("utf-8", "backslashreplace").decode(), is_error=True)


def said(error: BaseException) -> str:
    """An exception's message; some can not even be asked for it."""
    try:
        return str(error)[:LONGEST]
    except Exception as broken:
        return f"(its message raised {type(broken).__name__})"
