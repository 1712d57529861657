"""What is said: the blocks of a message, and the events that put messages into a conversation."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from msgspec import Struct

from rewake.events.base import AgentEvent, Tokens

ERROR_POLICY = "error policy"
"""Who changed a message (`by`), when nobody asked for it."""

Role = Literal["user", "assistant", "system"]


class Block(Struct, frozen=True, tag_field="type", omit_defaults=True, gc=False):
    """A part of a message."""


class Text(Block, frozen=True, tag="text"):
    """Plain text."""

    text: str


class ToolCall(Block, frozen=True, tag="tool_call"):
    """The model asks for a tool. `id` is the provider's and may repeat within a conversation."""

    id: str
    name: str
    arguments: dict[str, Any] = {}


class ToolResult(Block, frozen=True, tag="tool_result"):
    """What the tool gave back for the call `id` of the message before."""

    id: str
    content: str
    is_error: bool = False


class Image(Block, frozen=True, tag="image"):
    """A picture: its media type and base64 data, or a URL."""

    media_type: str = ""
    data: str = ""
    url: str = ""


class Document(Block, frozen=True, tag="document"):
    """A document (a PDF, say): its media type and base64 data, or a URL."""

    media_type: str = ""
    data: str = ""
    url: str = ""
    name: str = ""


class Reasoning(Block, frozen=True, tag="reasoning"):
    """The model's own reasoning: signed, it goes back to the provider and model that signed it, byte for byte; else to
    nobody.
    """

    text: str
    signature: str = ""


AnyBlock = Text | ToolCall | ToolResult | Image | Document | Reasoning
Blocks = tuple[AnyBlock, ...]


class Message(Struct, frozen=True, gc=False):
    """One message as a provider takes it; `role` is `user` or `assistant`, results of tools are the user's."""

    role: str
    blocks: Blocks


class MessageAdded(AgentEvent, frozen=True, tag="message_added"):
    """A message is in the conversation, or waits (`deferred`) for the running turn's next boundary.

    `tokens` is its price in `encoding`. `turn` names the turn that made it (an answer, a round of results, a marker);
    a message from outside has none; with `woke` its wake comes next. `cue` is the request-only user line that prompted this
    answer, priced `cue_tokens`. `reasoning` is the part of `tokens` that is signed reasoning: it is sent only to the
    `provider` and `model` that signed it; what nobody signed is never sent and has no price.
    """

    MINTS: ClassVar[tuple[str, str]] = ("id", "msg")

    role: Role
    blocks: Blocks
    tokens: Tokens
    encoding: str
    id: str = ""
    author: str | None = None
    channel: str | None = None
    turn: str | None = None
    partial: bool = False
    deferred: bool = False
    cue: str = ""
    cue_tokens: Tokens = 0
    dedupe_key: str | None = None
    woke: bool = False
    reasoning: Tokens = 0
    provider: str = ""
    model: str = ""


class MessagePlaced(AgentEvent, frozen=True, tag="message_placed"):
    """Deferred messages enter the conversation at a boundary, in this order."""

    ids: tuple[str, ...]


class MessageEdited(AgentEvent, frozen=True, tag="message_edited"):
    """A message has other blocks from here on."""

    id: str
    blocks: Blocks
    tokens: Tokens
    encoding: str
    by: str | None = None


class MessageRemoved(AgentEvent, frozen=True, tag="message_removed"):
    """A message is no longer part of the conversation, or of what waits for a boundary.

    With `more` others go with it: nothing follows from it before the last of them.
    """

    id: str
    by: str | None = None
    more: bool = False
