"""The embedded provider: it answers from a script, the same every time, and needs no network."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable

import msgspec

from rewake.actors.providers.base import OnDelta, Reply, Request, Validator, text_of
from rewake.actors.providers.extract import extract
from rewake.actors.providers.failures import ContextOverflow, ProviderError, ProviderTimeout
from rewake.actors.providers.script import Fail, Item, Slow, answer
from rewake.events.base import Tokens
from rewake.events.calls import Usage
from rewake.events.errors import RewakeError
from rewake.projections.pricing import count_tokens

Script = Iterable[Item] | Callable[[Request], Item]
Key = tuple[str, str, int, str]

_json = msgspec.json.Encoder(order="deterministic")


class ScriptExhausted(RewakeError):
    """The script has no item left for this request."""

    agent: str
    used: int

    def __init__(self, agent: str, used: int) -> None:
        super().__init__(f"all {used} items of the script are used up, and {agent} asks on", agent=agent, used=used)


class ScriptedProvider:
    """Answers from `script`: a list, shared by all agents in the order in which they ask, or a function of the request.

    `count(request, estimate)` is what it says that the input was, in tokens (None: an answer without usage; default:
    the estimate); `window` refuses an input and `max_tokens` past it; `strict` refuses what a real provider would.
    Compression requests go to `summarize` and use up no item (default: an extract). Without a script it echoes.

    The same request of a turn again, whose answer was lost, gets the same answer again; a failure is not given twice.
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        count: Callable[[Request, Tokens], Tokens | None] | None = None,
        window: Tokens | None = None,
        strict: bool = True,
        summarize: Callable[[Request], Item] | None = None,
        name: str = "scripted",
    ) -> None:
        self.name = name
        self.requests: list[Request] = []
        self._count = count or estimated
        self._window = window
        self._strict = strict
        self._summarize = summarize or extract
        self._ask = echo if script is None else script if callable(script) else Shared(script)
        self._given: dict[Key, Item] = {}
        self._validator = Validator()

    async def infer(self, request: Request, on_delta: OnDelta, /) -> Reply:
        self.requests.append(request)
        if self._strict:
            self._validator.validate(f"{request.agent} {request.purpose}", request.messages, request.prefilled)
        counted = self._count(request, request.estimate)
        self._admit(request, counted)
        return used(await self._play(request, on_delta), request, counted)

    def _admit(self, request: Request, counted: Tokens | None) -> None:
        size = request.estimate if counted is None else counted
        if self._window is not None and size + request.max_tokens > self._window:
            raise ContextOverflow(counted, self._window, status=400)

    async def _play(self, request: Request, on_delta: OnDelta) -> Reply:
        if request.purpose == "compression":
            return await played(self._summarize(request), request, on_delta)
        return await played(self._next(request), request, on_delta)

    def _next(self, request: Request) -> Item:
        key = (request.agent, request.turn, request.step, digest(request))
        if key in self._given:
            return self._given[key]
        try:
            item = self._ask(request)
        except ProviderError as error:
            return error
        if request.turn and not fails(item, request):
            self._given[key] = item
        return item


class Shared:
    """A list of items that whoever asks takes the next one of."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = iter(items)
        self._used = 0

    def __call__(self, request: Request) -> Item:
        for item in self._items:
            self._used += 1
            return item
        raise ScriptExhausted(request.agent, self._used)


async def played(item: Item, request: Request, on_delta: OnDelta) -> Reply:
    """What the item is as an outcome: a reply, with its text as it comes, or the raise of its error."""
    match item:
        case Slow(then, seconds):
            await asyncio.sleep(seconds if request.timeout is None else min(seconds, request.timeout))
            if hangs(item, request):
                raise ProviderTimeout
            return await played(then, request, on_delta)
        case Fail(error):
            raise shown(error(), on_delta)
        case BaseException():
            raise shown(item, on_delta)
        case _:
            whole = answer(item, request)
            for delta in whole.deltas or (whole.text,):
                if delta:
                    on_delta(delta)
            return whole


def shown(error: BaseException, on_delta: OnDelta) -> BaseException:
    """The error, once the text that had come before it was passed on."""
    if isinstance(error, ProviderError) and error.emitted:
        on_delta(error.emitted)
    return error


def hangs(item: Slow, request: Request) -> bool:
    """Whether the item comes after the caller has given up."""
    return request.timeout is not None and item.seconds >= request.timeout


def fails(item: Item, request: Request) -> bool:
    match item:
        case Slow(then, _):
            return hangs(item, request) or fails(then, request)
        case _:
            return isinstance(item, (Fail, BaseException))


def used(reply: Reply, request: Request, counted: Tokens | None) -> Reply:
    """The reply with its usage: its own, else what was counted, else none."""
    if reply.usage is not None or counted is None:
        return reply
    return msgspec.structs.replace(reply, usage=Usage(counted, count_tokens(reply.text, request.encoding)))


def digest(request: Request) -> str:
    """A hash of what the model is shown."""
    return hashlib.sha256(_json.encode((request.system, request.messages))).hexdigest()


def estimated(request: Request, estimate: Tokens) -> Tokens:
    return estimate


def echo(request: Request) -> str:
    """The last text that the user said, back, cut to 400 characters."""
    said = (text_of(message.blocks).strip() for message in reversed(request.messages) if message.role == "user")
    return "echo: " + next((text for text in said if text), "nothing")[:400]
