"""The ports to the world: orders are carried out as coroutines on one asyncio loop, their outcomes come back as
commands.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import msgspec

from rewake.actors.agent.commands import Answered, Failed, Prepared, Returned
from rewake.actors.behaviour import Command, Key, Order, Timer
from rewake.actors.contents import carried, starting
from rewake.actors.excerpts import BUILT_IN
from rewake.actors.inside import INSIDE
from rewake.actors.lines import Line, Waiting
from rewake.actors.orders import Admit, Ask, Infer, RunTool
from rewake.actors.providers.base import Provider, ProviderError, ProviderTimeout, Reply, Validator, failure_of
from rewake.actors.tools import InThread, Tool, ToolContext, cancelled, run, unknown_tool
from rewake.events import MAX_EVENT_BYTES, EventTooLarge, Failure, InvalidContent, Millis, Tokens, Usage

Deliver = Callable[[str, Command], None]
"""Brings a command to the actor of a stream, from the loop's thread."""

OnDelta = Callable[[str, str, str, str], None]
"""Told each piece of a streamed answer: agent, turn, call, text."""

LONGEST_PARTIAL = MAX_EVENT_BYTES // 8
"""Characters of a broken answer that are kept at the most: an event holds them, however they are encoded."""


class Clock(Protocol):
    """Tells when a time has come."""

    def set(self, stream: str, key: Key, due: Millis) -> None: ...

    def cancel(self, stream: str, key: Key) -> None: ...


@dataclass(frozen=True)
class Equipment:
    """What an agent's orders call, that no log holds: its tools, its inference policy and its `context=`."""

    tools: Mapping[str, Tool[Any, Any]] = field(default_factory=dict[str, Tool[Any, Any]])
    policy: Callable[..., Any] | None = None
    context: Callable[..., Any] | None = None


def broken(call: str, error: BaseException, emitted: list[str], gate_version: int) -> Failed:
    """The failure of a call, with what of its answer had come: by the deltas, or by what the error itself says."""
    said = error.emitted if isinstance(error, ProviderError) and not emitted else "".join(emitted)
    text = said[:LONGEST_PARTIAL].encode("utf-8", "replace").decode()
    return Failed(call, failure_of(error), bool(emitted or text), gate_version, text)


class Ports:
    """Carries out orders. Every method is called in the loop's thread."""

    def __init__(
        self,
        providers: Mapping[str, Provider],
        equipment: Mapping[str, Equipment],
        deliver: Deliver,
        clock: Clock,
        in_thread: InThread,
        runtime: Any = None,
        on_delta: OnDelta | None = None,
    ) -> None:
        self.providers = providers
        self.equipment = equipment
        self.deliver = deliver
        self.clock = clock
        self.in_thread = in_thread
        self.runtime = runtime
        self.on_delta = on_delta
        self.validator = Validator()
        self.lines: dict[str, Line] = {}
        self.tasks: dict[tuple[str, Key], asyncio.Task[None]] = {}
        self.emitting: dict[str, list[str]] = {}
        self.closed = False

    def start(self, stream: str, key: Key, order: Order) -> None:
        if self.closed:
            return
        match order:
            case Timer(due):
                self.clock.set(stream, key, due)
            case Infer(provider=provider) if self.lost(provider, stream):
                gone = Failure("unknown", f"this runtime has no provider {provider}", retryable=True)
                self.deliver(stream, Failed(order.call, gone))
            case Infer(provider=provider):
                self.line(provider).put(Waiting(stream, key, order))
                self.pump(provider)
            case Admit(provider):
                self.line(provider).take(order)
                self.pump(provider)
            case RunTool():
                self.spawn(stream, key, self.run_tool(stream, order))
            case Ask():
                self.spawn(stream, key, self.ask(stream, order))
            case _:
                raise TypeError(f"no port carries out {order!r}")

    def cancel(self, stream: str, key: Key) -> None:
        """Withdraw an order: what waits is dropped, what runs is cancelled; an outcome that comes all the same is
        late.
        """
        self.clock.cancel(stream, key)
        for line in self.lines.values():
            line.drop(stream, key)
            if key == ("admit",) and line.admit and stream == f"gate/{line.admit.provider}":
                line.admit = None
        if task := self.tasks.pop((stream, key), None):
            task.cancel()

    def lost(self, provider: str, stream: str) -> bool:
        """Whether an agent that this start names asks for a provider of a former one: it may have another by now."""
        return provider not in self.providers and stream.partition("/")[2] in self.equipment

    def line(self, provider: str) -> Line:
        if (line := self.lines.get(provider)) is None:
            line = self.lines[provider] = Line()
        return line

    def pump(self, provider: str) -> None:
        """Send what is both ordered and admitted; give back what is refused."""
        line = self.line(provider)
        for stream, refused in line.refused():
            self.deliver(stream, refused)
        while waiting := line.next():
            model = waiting.order.model
            line.flying[model] += 1
            landed = partial(self.landed, provider, model)
            self.spawn(waiting.stream, waiting.key, self.infer(waiting, line.version), landed)

    def landed(self, provider: str, model: str) -> None:
        """A call has ended, or was cancelled before it began: its place is free."""
        self.line(provider).flying[model] -= 1
        self.pump(provider)

    def spawn(
        self, stream: str, key: Key, work: Coroutine[Any, Any, None], ended: Callable[[], None] | None = None
    ) -> None:
        """Work on an order; `ended` is called afterwards, also where it was cancelled before it began."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks[stream, key] = task
        task.add_done_callback(partial(self.forget, stream, key, ended))

    def forget(self, stream: str, key: Key, ended: Callable[[], None] | None, task: asyncio.Task[None]) -> None:
        if self.tasks.get((stream, key)) is task:
            del self.tasks[stream, key]
        if ended:
            ended()

    async def infer(self, waiting: Waiting, gate_version: int) -> None:
        INSIDE.set(waiting.stream.partition("/")[2])
        outcome = await self.called(waiting.order, gate_version)
        if isinstance(outcome, Failed) and self.tasks.get((waiting.stream, waiting.key)) is asyncio.current_task():
            self.line(waiting.order.provider).failed(waiting, outcome.error)
        self.deliver(waiting.stream, outcome)

    async def called(self, order: Infer, gate_version: int) -> Answered | Failed:
        """The answer, or the failure that whatever the provider raised amounts to."""
        emitted = self.emitting[order.call] = []
        limit = asyncio.timeout(order.timeout)
        try:
            request = order.render()
            self.validator.validate(order.stream, request.messages, request.prefilled)

            def delta(text: str) -> None:
                emitted.append(text)
                if self.on_delta and order.purpose == "turn":
                    self.on_delta(request.agent, request.turn, order.call, text)

            async with limit:
                reply = await self.provider(order).infer(request, delta)
            return Answered(order.call, taken(reply), gate_version)
        except asyncio.CancelledError as error:
            if (task := asyncio.current_task()) and task.cancelling():
                raise
            return broken(order.call, error, emitted, gate_version)
        except GeneratorExit:
            raise
        except BaseException as error:
            shown = timely(error, limit, f"no answer within {order.timeout:g} s")
            return broken(order.call, shown, emitted, gate_version)
        finally:
            self.emitting.pop(order.call, None)

    def emitted(self, call: str) -> str:
        """What has come so far of a call that is in flight; asked from any thread."""
        return "".join(self.emitting.get(call, ())).encode("utf-8", "replace").decode()

    def provider(self, order: Infer) -> Provider:
        return self.providers[order.provider]

    async def run_tool(self, stream: str, order: RunTool) -> None:
        INSIDE.set(order.agent)
        equipment = self.equipment.get(order.agent, Equipment())
        tool = equipment.tools.get(order.name) or BUILT_IN.get(order.name)
        if tool is None:
            outcome = unknown_tool(order.name, tuple(equipment.tools))
        else:
            context = ToolContext(order.agent, order.turn, order.tool_call, order.tool_call, self.runtime)
            outcome = await run(tool, context, order.arguments, self.in_thread)
        self.deliver(stream, Returned(order.tool_call, outcome.result, outcome.is_error, outcome.ends_turn))

    async def ask(self, stream: str, order: Ask) -> None:
        """What the inference policy and, once admitted, `context=` say; one that raises, or has not answered in time, is
        a failure of the start.
        """
        INSIDE.set(order.agent)
        limit = asyncio.timeout(order.timeout)
        try:
            async with limit:
                prepared = await self.prepared(order, self.equipment.get(order.agent, Equipment()))
        except GeneratorExit:
            raise
        except BaseException as raised:
            if isinstance(raised, asyncio.CancelledError) and cancelled():
                raise
            shown = timely(raised, limit, f"the agent's own callables gave no answer within {order.timeout or 0:g} s")
            prepared = Prepared(order.turn, order.attempt, True, failure_of(shown))
        self.deliver(stream, prepared)

    async def prepared(self, order: Ask, equipment: Equipment) -> Prepared:
        if equipment.policy and not await self.said(equipment.policy, order.agent, order.wakes):
            return Prepared(order.turn, order.attempt, False)
        if equipment.context is None:
            return Prepared(order.turn, order.attempt)
        said = await self.said(equipment.context, starting(order))
        return await self.in_thread(lambda: carried(order, said))

    async def said(self, callable: Callable[..., Any], *about: Any) -> Any:
        """What a user's callable says, sync or async."""
        said = await self.in_thread(lambda: callable(*about))
        return await said if inspect.isawaitable(said) else said

    async def close(self, patience: float = 1.0) -> None:
        """Cancel everything, and send nothing more; what has not stopped after `patience` seconds is left behind."""
        self.closed = True
        for line in self.lines.values():
            line.admit = None
        tasks = list(self.tasks.values())
        self.tasks.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=patience)


def timely(error: BaseException, limit: asyncio.Timeout, said: str) -> BaseException:
    """What an error is told as: where it is the time limit's own, as that."""
    return ProviderTimeout(said) if isinstance(error, TimeoutError) and limit.expired() else error


def taken(reply: Any) -> Reply:
    """An answer as the log will have it. A provider is anybody's code: raises TypeError, ValidationError, EventTooLarge,
    and InvalidContent for what can not be written. Counts of tokens that none can be are left out.
    """
    if not isinstance(reply, Reply):
        raise TypeError(f"the provider answered with {type(reply).__name__}, not with a Reply")
    try:
        packed = msgspec.json.encode(msgspec.structs.replace(reply, deltas=()))
    except UnicodeEncodeError as error:
        raise InvalidContent(f"the answer can not be recorded: it has a lone surrogate at {error.start}") from error
    except (TypeError, RecursionError) as error:
        raise InvalidContent(f"the answer can not be recorded: {error}") from error
    if len(packed) > MAX_EVENT_BYTES - 4_096:
        raise EventTooLarge(len(packed), MAX_EVENT_BYTES)
    read = msgspec.json.decode(packed, type=Reply)
    possible = read.usage is None or all(0 <= count < 2**53 for count in counts(read.usage))
    return read if possible else msgspec.structs.replace(read, usage=None)


def counts(usage: Usage) -> list[Tokens]:
    return [usage.input, usage.output, usage.cached, usage.reasoning]
