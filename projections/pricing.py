"""The one price: what a block, a message, a text costs in tokens. Counted once, when something is added."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from functools import cache

import msgspec
import tiktoken

from rewake.events import (
    AnyBlock,
    Document,
    Image,
    InvalidSetting,
    Reasoning,
    Text,
    Tokens,
    ToolCall,
    ToolResult,
    ToolSpec,
)

VERSION = 1
"""The price table's version: a count is compared only with counts of its own version and encoding."""

TOOL_CALL = 20
IMAGE = 2_000
DOCUMENT = 1_000
FLAT: dict[type, Tokens] = {Image: IMAGE, Document: DOCUMENT}
"""What costs the same whatever its bytes."""

_json = msgspec.json.Encoder(order="sorted")


@cache
def encoding_of(name: str) -> tiktoken.Encoding:
    """The encoding of that name; InvalidSetting when its table is not here (nothing is downloaded for the offline
    ones).
    """
    try:
        return tiktoken.get_encoding(name)
    except Exception as error:
        known = ", ".join(tiktoken.list_encoding_names())
        raise InvalidSetting("encoding", name, f"no table of it is here; known are {known}") from error


def count_tokens(text: str, encoding: str) -> Tokens:
    """Tokens of a text. Special tokens written out in it count as the text that they are."""
    return len(encoding_of(encoding).encode_ordinary(text)) if text else 0


def price(block: AnyBlock, encoding: str) -> Tokens:
    """Tokens of one block: its text; a call 20 more; an image 2,000, a document 1,000 flat; signed reasoning at least
    signature / 3.3.
    """
    match block:
        case Text(text):
            return count_tokens(text, encoding)
        case ToolCall(_, name, arguments):
            return count_tokens(name + _json.encode(arguments).decode(), encoding) + TOOL_CALL
        case ToolResult(_, content):
            return count_tokens(content, encoding)
        case Image():
            return IMAGE
        case Document():
            return DOCUMENT
        case Reasoning(text, signature):
            return max(count_tokens(text, encoding), math.ceil(len(signature) / 3.3))


def price_all(blocks: Iterable[AnyBlock], encoding: str) -> Tokens:
    """Tokens of a message's blocks."""
    return sum(price(block, encoding) for block in blocks)


def price_tools(tools: Iterable[ToolSpec], encoding: str) -> Tokens:
    """Tokens of what the model is told of its tools."""
    return sum(
        count_tokens(_json.encode([tool.name, tool.description, tool.schema]).decode(), encoding) for tool in tools
    )


def digest_of(system: str, tools: Iterable[ToolSpec]) -> str:
    """Names a system prompt with its tools: what a provider adds for them in its own way belongs to this name."""
    said = [system, *([tool.name, tool.description, tool.schema] for tool in tools)]
    return hashlib.blake2b(_json.encode(said), digest_size=8).hexdigest()


def flat(blocks: Iterable[AnyBlock]) -> Tokens:
    """The part of a price that is no count of text: no multiplier is for it."""
    return sum(FLAT.get(type(block), 0) for block in blocks)


def scaled(tokens: Tokens, flat: Tokens, multiplier: float) -> float:
    """What a price is expected to count: times the multiplier, but for the part of it that none is for."""
    return (tokens - flat) * multiplier + flat
