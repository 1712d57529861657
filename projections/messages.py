"""One message of a conversation, and what of it the present model is sent."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from rewake.events import Blocks, MessageAdded, Millis, Reasoning, Recorded, Text, Tokens, ToolCall, ToolResult
from rewake.events.messages import Message as Said
from rewake.events.messages import Role
from rewake.projections import pricing

Model = tuple[str, str]
"""A provider, and a model of it."""


class Signed(Struct, frozen=True, omit_defaults=True, gc=False):
    """An answer with reasoning in it, whole: who signed that, its price, and the price of the rest."""

    by: Model
    blocks: Blocks
    reasoning: Tokens
    tokens: Tokens
    cue: str = ""
    cue_tokens: Tokens = 0


class Message(Struct, frozen=True, omit_defaults=True, gc=False):
    """One message. `said` is what the present model is sent of it: the message, after the line that prompted it. One of
    another model's reasoning alone is left out whole; what is not sent has no price.

    `tokens` is its price, `before` that of all messages before it; `flat` and `flat_before` are the parts of these two that
    no multiplier is for.
    `version` is that of the event that gave it its present body.
    """

    id: str
    role: Role
    said: tuple[Said, ...]
    tokens: Tokens
    version: int
    before: Tokens = 0
    flat: Tokens = 0
    flat_before: Tokens = 0
    at: Millis = 0
    turn: str | None = None
    author: str | None = None
    channel: str | None = None
    partial: bool = False
    cue: str = ""
    cue_tokens: Tokens = 0
    signed: Signed | None = None

    @property
    def blocks(self) -> Blocks:
        return self.signed.blocks if self.signed else self.said[-1].blocks

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(block for block in self.blocks if isinstance(block, ToolCall))

    @property
    def results(self) -> tuple[ToolResult, ...]:
        return tuple(block for block in self.blocks if isinstance(block, ToolResult))

    @property
    def text(self) -> str:
        return "\n".join(block.text for block in self.blocks if isinstance(block, Text))

    @property
    def shown(self) -> Tokens:
        """What showing it raw costs: its own price and that of the line that prompted it."""
        return self.tokens + self.cue_tokens


def message(event: MessageAdded, recorded: Recorded) -> Message:
    """A message as it is added: all of it."""
    signed = None
    if any(isinstance(block, Reasoning) for block in event.blocks):
        rest, by = event.tokens - event.reasoning, (event.provider, event.model)
        signed = Signed(by, event.blocks, event.reasoning, rest, event.cue, event.cue_tokens)
    return Message(
        event.id,
        event.role,
        spoken(event.role, event.cue, event.blocks),
        event.tokens,
        recorded.version,
        0,
        pricing.flat(event.blocks),
        0,
        recorded.at,
        event.turn,
        event.author,
        event.channel,
        event.partial,
        event.cue,
        event.cue_tokens,
        signed,
    )


def spoken(role: Role, cue: str, blocks: Blocks) -> tuple[Said, ...]:
    """A message as a provider takes it: a system line is the user's, an answer comes after the line that prompted it."""
    said = Said("assistant" if role == "assistant" else "user", blocks)
    return (Said("user", (Text(cue),)), said) if cue else (said,)


def addressed(message: Message, model: Model) -> Message:
    """A message as that model is sent it: with its own reasoning, without another's; where no more is left, not at all."""
    whole = message.signed
    if whole is None:
        return message
    own = whole.by == model
    blocks = tuple(block for block in whole.blocks if not isinstance(block, Reasoning) or (own and block.signature))
    if not any(block.text.strip() if isinstance(block, Text) else not isinstance(block, Reasoning) for block in blocks):
        return replace(message, said=(), tokens=0, flat=0, cue="", cue_tokens=0)
    return replace(
        message,
        said=spoken(message.role, whole.cue, blocks),
        tokens=whole.tokens + (whole.reasoning if own else 0),
        flat=pricing.flat(blocks),
        cue=whole.cue,
        cue_tokens=whole.cue_tokens,
    )


def unsigned(message: Message) -> Message:
    """A message whose reasoning is forgotten: other words than those that it was signed with stand there."""
    whole = message.signed
    return replace(message, cue=whole.cue, cue_tokens=whole.cue_tokens, signed=None) if whole else message
