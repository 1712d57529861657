"""What is said to an agent: content as blocks, checked; and what a turn's requests carry beside the conversation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from rewake.actors.agent.commands import Prepared
from rewake.actors.agent.rendering import with_injection
from rewake.actors.orders import Ask
from rewake.events import (
    MAX_EVENT_BYTES,
    AnyBlock,
    Blocks,
    Document,
    EventTooLarge,
    Image,
    Injections,
    InvalidContent,
    Message,
    Millis,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from rewake.projections import pricing

Content = str | AnyBlock | Iterable[AnyBlock]
"""What is pushed: a text, or blocks of text, images and documents."""

LATEST: Millis = 2**53
"""The last moment that every reader of a log can tell from its neighbours."""

SAYABLE = Text | Image | Document
"""What a person can push."""


class StartingTurn(Struct, frozen=True, kw_only=True):
    """The start of a turn, as `context=` is asked about it. `wakes` are what it would answer, `trigger` why."""

    agent: str
    turn: str
    attempt: int
    wakes: tuple[Any, ...]
    channel: str | None = None
    trigger: str = ""


class Context(Struct, frozen=True, kw_only=True):
    """What a turn's requests carry beside the conversation: sent with each of them, priced, never stored as messages.

    `system` goes behind the system prompt. `before` and `after` are user messages, each a text or blocks of text, images
    and documents, around the turn's newest message of a user; `tail` stands behind that. With `prefill` the first answer
    begins with this text. Raises InvalidContent, which names the field.
    """

    system: str = ""
    before: Sequence[Content] = ()
    after: Sequence[Content] = ()
    prefill: str | None = None
    tail: str = ""

    def __post_init__(self) -> None:
        for name in ("system", "tail", "prefill"):
            check_text(name, "" if name == "prefill" and self.prefill is None else getattr(self, name))
        for name in ("before", "after"):
            messages(name, getattr(self, name))
        prefill = self.prefill or ""
        if prefill != prefill.rstrip():
            raise InvalidContent("context prefill ends in white space, which providers refuse")


def starting(order: Ask) -> StartingTurn:
    return StartingTurn(
        agent=order.agent,
        turn=order.turn,
        attempt=order.attempt,
        wakes=order.wakes,
        channel=order.channel,
        trigger=order.trigger,
    )


def carried(order: Ask, said: Any) -> Prepared:
    """What `context=` answered, with what it costs. Raises InvalidContent, EventTooLarge."""
    if not isinstance(said, Context):
        raise InvalidContent(f"context= gives a Context, not {type(said).__name__}")
    before, after, encoding = messages("before", said.before), messages("after", said.after), order.encoding
    system = pricing.count_tokens(with_injection(order.system, said.system), encoding) if said.system else 0
    blocks = [block for message in (*before, *after) for block in message.blocks]
    injected = Injections(
        said.system,
        before,
        after,
        pricing.price_all(blocks, encoding) + (system and system - pricing.count_tokens(order.system, encoding)),
        pricing.flat(blocks),
    )
    prefill = said.prefill or ""
    found = Prepared(
        order.turn,
        order.attempt,
        injections=injected,
        prefill=prefill,
        prefill_tokens=pricing.count_tokens(prefill, encoding),
        tail=said.tail,
        tail_tokens=pricing.count_tokens(said.tail, encoding),
    )
    if (size := len(msgspec.json.encode(found))) > MAX_EVENT_BYTES - 4_096:
        raise EventTooLarge(size, MAX_EVENT_BYTES)
    return found


def check_text(name: str, text: Any) -> None:
    """Raise InvalidContent for what is no text, or says nothing."""
    text_or_none(f"context {name}", text)
    if text and not text.strip():
        raise InvalidContent(f"context {name} is white space alone")


def messages(name: str, contents: Any) -> tuple[Message, ...]:
    """Contents as messages of the user's. Raises InvalidContent with the field and the place in it."""
    if not isinstance(contents, list | tuple):
        raise InvalidContent(f"context {name} is a list of messages, not {type(contents).__name__}")
    found: list[Message] = []
    for place, content in enumerate(cast(Sequence[Any], contents)):
        try:
            found.append(Message("user", blocks_of(content)))
        except (InvalidContent, EventTooLarge) as error:
            raise InvalidContent(f"context {name}[{place}]: {error}") from error
    return tuple(found)


def blocks_of(content: Content) -> Blocks:
    """Content as blocks. Raises InvalidContent for what no message can have, EventTooLarge past 16 MiB."""
    if isinstance(content, str):
        blocks: Blocks = (Text(content),)
    elif isinstance(content, Text | Image | Document | ToolCall | ToolResult | Reasoning):
        blocks = (content,)
    else:
        try:
            blocks = tuple(content)
        except TypeError as error:
            raise InvalidContent(f"a message is text or blocks, not {type(content).__name__}") from error
    for block in blocks:
        if not isinstance(block, SAYABLE):
            raise InvalidContent(f"a {type(block).__name__} can not be pushed; text, images and documents can")
    try:
        packed = msgspec.json.encode(blocks)
        blocks = msgspec.json.decode(packed, type=Blocks)
    except UnicodeEncodeError as error:
        raise InvalidContent(f"the text has a lone surrogate at {error.start}: it is no valid Unicode") from error
    except (msgspec.ValidationError, TypeError) as error:
        raise InvalidContent(f"the message has what none has: {error}") from error
    if not any(not isinstance(block, Text) or block.text.strip() for block in blocks):
        raise InvalidContent("the message is empty")
    if len(packed) > MAX_EVENT_BYTES:
        raise EventTooLarge(len(packed), MAX_EVENT_BYTES)
    return blocks


def text(name: str, value: Any) -> str:
    """A reason from outside, which may be empty. Raises InvalidContent when it is no valid text."""
    if value is None:
        raise InvalidContent(f"{name} is text, not None")
    return text_or_none(name, value) or ""


def flag(name: str, value: Any) -> bool:
    """A yes or no from outside. Raises InvalidContent."""
    if not isinstance(value, bool):
        raise InvalidContent(f"{name} is True or False, not {value!r}")
    return value


def moment_or_none(name: str, value: Any) -> Millis | None:
    """UTC milliseconds from outside. Raises InvalidContent for what no clock shows."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or abs(value) > LATEST):
        raise InvalidContent(f"{name} is UTC milliseconds, not {value!r}")
    return value


def text_or_none(name: str, value: Any) -> str | None:
    """A name or key from outside. Raises InvalidContent when it is no valid text."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidContent(f"{name} is text, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidContent(f"{name} has a lone surrogate at {error.start}") from error
    return value
