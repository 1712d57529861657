"""What a summariser is asked, and what of its answers may be kept."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from rewake.actors.agent.rendering import SUMMARY
from rewake.actors.providers.base import Message, Reply, Request
from rewake.events import (
    Compressed,
    CompressionRequested,
    Reasoning,
    Settings,
    Text,
    Tokens,
    ToolCall,
    ToolResult,
    Work,
)
from rewake.projections import backlog, compression
from rewake.projections.conversation import Conversation
from rewake.projections.messages import Message as Said
from rewake.projections.pricing import count_tokens

INSTRUCTION = (
    "Summarise the conversation below for the assistant who took part in it and will read this in its place. "
    "Keep names, numbers, decisions, open requests and what tools returned. Write plain prose, shorter than the text."
)
PLAIN = (
    "Retell the text below in a few sentences of plain prose: no headings, no lists, no code, no calls of tools, nothing but "
    "the retelling. It must be shorter than the text."
)
"""What is asked the second time, and of halves."""
STUB_CHARS = 200
"""A chunk of less text than this is kept as it is: no call would make it shorter."""


def request(
    agent: str, told: Conversation, done: compression.Compression, live: Settings, going: CompressionRequested
) -> Request:
    """The summariser's request: its sources as plain text, one after the other."""
    sources = texts(told, done, going.work)
    instruction = PLAIN if going.attempt > 1 or going.work.of else INSTRUCTION
    return Request(
        agent=agent,
        purpose="compression",
        system=instruction,
        messages=tuple(Message("user", (Text(text),)) for text in sources),
        max_tokens=min(backlog.longest(live), max(64, going.work.tokens - 1)),
        model=going.model,
        call=going.id,
        estimate=sum(count_tokens(text, live.encoding) for text in (instruction, *sources)),
        encoding=live.encoding,
        timeout=live.call_timeout_ms / 1_000,
    )


def texts(told: Conversation, done: compression.Compression, work: Work) -> list[str]:
    """What is summarised: messages, a piece of one, or summaries."""
    start, stop = told.places[work.first], told.places[work.last] + 1
    if work.level > 1:
        return [one.text for one in compression.standing(told, done, start, stop, work.level - 1)]
    said = [transcript(one) for one in told.messages[start:stop]]
    if work.part is None:
        return said
    (index, count), whole = work.part, "\n".join(said)
    return [whole[len(whole) * (index - 1) // count : len(whole) * index // count]]


def transcript(message: Said) -> str:
    """A message as text: who spoke, what was said, asked of a tool, returned by one; not what was only thought."""
    lines: list[str] = []
    for block in message.blocks:
        match block:
            case Text(text):
                lines.append(text)
            case ToolCall(_, name, arguments):
                lines.append(f"called {name} {msgspec.json.encode(arguments).decode()}")
            case ToolResult(_, content):
                lines.append(f"result: {content}")
            case Reasoning():
                continue
            case _:
                lines.append(f"({type(block).__name__.lower()})")
    return f"{message.role}: " + "\n".join(lines)


def wrong(reply: Reply, tokens: Tokens, work: Work) -> str:
    """Why an answer is no summary; empty when it is one."""
    if any(isinstance(block, ToolCall) for block in reply.blocks):
        return "the answer calls a tool"
    if not reply.text.strip():
        return "the answer is empty"
    if reply.stop_reason in ("max_tokens", "length"):
        return "the answer was cut off"
    return "" if tokens < work.tokens else f"the answer takes {tokens} tokens, its sources {work.tokens}"


def priced(text: str, encoding: str) -> Tokens:
    """What a summary takes where it is shown."""
    return count_tokens(SUMMARY + text, encoding)


def stub(told: Conversation, work: Work, encoding: str) -> Compressed | None:
    """A chunk of hardly any text, as its own summary."""
    if work.level > 1 or work.part or work.of:
        return None
    covered: Sequence[Said] = told.messages[told.places[work.first] : told.places[work.last] + 1]
    if any(not isinstance(block, Text) for one in covered for block in one.blocks):
        return None
    if sum(len(one.text) for one in covered) >= STUB_CHARS:
        return None
    text = "\n".join(transcript(one) for one in covered)
    return Compressed("", work, text, priced(text, encoding), encoding)


def whole(done: compression.Compression, last: Compressed) -> Compressed | None:
    """The summary of a message that was summarised in pieces, once all of them are there."""
    parts = done.parts.get(last.work.digest)
    if parts is None or len(parts.texts) < parts.count:
        return None
    work = replace(last.work, part=None, tokens=last.work.tokens * parts.count)
    text = "\n".join(parts.texts)
    return Compressed(last.request, work, text, priced(text, last.encoding), last.encoding)
