"""The conversation: the messages that are in it, in order, and those that wait for the running turn's boundary."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec
from immutables import Map
from msgspec import Struct
from msgspec.structs import replace
from pyrsistent import PVector, pvector

from rewake.events import (
    Blocks,
    Compiled,
    Event,
    MessageAdded,
    MessageEdited,
    MessagePlaced,
    MessageRemoved,
    Millis,
    Recorded,
    Stretch,
    Text,
    Tokens,
    ToolCall,
    ToolResult,
    TurnAborted,
    TurnCompleted,
    TurnDeclined,
    TurnExhausted,
    TurnStarted,
    TurnWithdrawn,
)
from rewake.events.messages import Role

NAME = "conversation"
ENDS: frozenset[type[Event]] = frozenset({TurnCompleted, TurnExhausted, TurnAborted, TurnDeclined, TurnWithdrawn})
KINDS: frozenset[type[Event]] = (
    frozenset({MessageAdded, MessagePlaced, MessageEdited, MessageRemoved, TurnStarted, Compiled}) | ENDS
)


class Message(Struct, frozen=True, omit_defaults=True, gc=False):
    """One message. `version` is that of the event that gave it its present body; `tokens` its price."""

    id: str
    role: Role
    blocks: Blocks
    tokens: Tokens
    version: int
    at: Millis = 0
    turn: str | None = None
    author: str | None = None
    channel: str | None = None
    partial: bool = False
    cue: str = ""
    cue_tokens: Tokens = 0

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


class Conversation(Struct, frozen=True, gc=False):
    """`messages` in order, `places` where each id stands among them. `newest` is the place where the newest turn begins.

    `folds` are the stretches that the last compile showed by summaries: a plan starts from them. `edited` are the messages
    that have another body than they were added with.
    """

    messages: PVector[Message] = pvector()
    places: Map[str, int] = Map()
    waiting: tuple[Message, ...] = ()
    newest: int = 0
    ended: bool = True
    folds: tuple[Stretch, ...] = ()
    edited: frozenset[str] = frozenset()
    revision: int = 0


def initial() -> Conversation:
    return Conversation()


def evolve(state: Conversation, recorded: Recorded) -> Conversation:
    event = recorded.event
    match event:
        case MessageAdded(deferred=True):
            return replace(state, waiting=(*state.waiting, message(event, recorded)))
        case MessageAdded():
            return placed(state, (message(event, recorded),), recorded.version)
        case MessagePlaced(ids):
            ready = {waits.id: waits for waits in state.waiting}
            rest = tuple(waits for waits in state.waiting if waits.id not in ids)
            entering = tuple(ready[id] for id in ids if id in ready)
            return placed(replace(state, waiting=rest), entering, recorded.version)
        case MessageEdited(id, blocks, tokens) if id in state.places:
            place = state.places[id]
            body = replace(state.messages[place], blocks=blocks, tokens=tokens, version=recorded.version)
            edited = state.edited | {id}
            messages = state.messages.set(place, body)
            return replace(state, messages=messages, edited=edited, revision=recorded.version)
        case MessageRemoved(id) if id in state.places:
            return without(state, state.places[id], recorded.version)
        case Compiled(_, _, plan):
            folds = tuple(stretch for stretch in plan if stretch.level)
            return state if folds == state.folds else replace(state, folds=folds)
        case TurnStarted() if state.ended:
            return replace(state, ended=False)
        case _ if type(event) in ENDS:
            return replace(state, newest=len(state.messages), ended=True, revision=recorded.version)
        case _:
            return state


def rows(state: Conversation) -> list[dict[str, Any]]:
    return [
        {
            "place": place,
            "id": message.id,
            "role": message.role,
            "text": message.text,
            "blocks": msgspec.to_builtins(message.blocks),
            "tokens": message.tokens,
            "turn": message.turn,
            "author": message.author,
            "channel": message.channel,
            "at": message.at,
            "partial": message.partial,
            "waiting": place >= len(state.messages),
        }
        for place, message in enumerate([*state.messages, *state.waiting])
    ]


def message(event: MessageAdded, recorded: Recorded) -> Message:
    return Message(
        event.id,
        event.role,
        event.blocks,
        event.tokens,
        recorded.version,
        recorded.at,
        event.turn,
        event.author,
        event.channel,
        event.partial,
        event.cue,
        event.cue_tokens,
    )


def placed(state: Conversation, entering: tuple[Message, ...], version: int) -> Conversation:
    messages, places = state.messages, state.places
    for one in entering:
        places = places.set(one.id, len(messages))
        messages = messages.append(one)
    return replace(state, messages=messages, places=places, revision=version)


def without(state: Conversation, place: int, version: int) -> Conversation:
    kept = [one for one in state.messages if one.id != state.messages[place].id]
    places = {one.id: index for index, one in enumerate(kept)}
    newest = state.newest - (place < state.newest)
    return replace(state, messages=pvector(kept), places=Map(places), newest=newest, revision=version)


def digest(messages: Iterable[Message]) -> str:
    """What these messages are: their ids and the versions of their bodies.

    When one changes, what was made of them is stale.
    """
    hashed = hashlib.blake2b(digest_size=12)
    for one in messages:
        hashed.update(f"{one.id}@{one.version}\n".encode())
    return hashed.hexdigest()


def closes(message: Message) -> bool:
    """Whether something may be cut after this message: never between a tool call and its result."""
    return message.role != "assistant" or not message.calls


def reply(state: Conversation, turn: str) -> str | None:
    """The text of a turn's last answer."""
    for one in reversed(state.messages):
        if one.turn == turn and one.role == "assistant":
            return one.text
    return None
