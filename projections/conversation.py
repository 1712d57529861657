"""The conversation: the messages that are in it, in order, and those that wait for the running turn's boundary."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from rewake.events import (
    AgentStarted,
    Compiled,
    Event,
    InferenceRequested,
    MessageAdded,
    MessageEdited,
    MessagePlaced,
    MessageRemoved,
    Recorded,
    SettingChanged,
    Stretch,
    Tokens,
)
from rewake.events.turns import TURN_ENDS
from rewake.projections import pricing
from rewake.projections.messages import Message, Model, addressed, message, spoken, unsigned
from rewake.projections.pages import Pages, Places, paged

NAME = "conversation"
KINDS: frozenset[type[Event]] = (
    frozenset({MessageAdded, MessagePlaced, MessageEdited, MessageRemoved, Compiled, InferenceRequested})
    | {AgentStarted, SettingChanged}
    | TURN_ENDS
)


class Shown(Struct, frozen=True, gc=False):
    """What the last compile showed, while nothing but its end has changed: the plan, what it took, how far it went."""

    stretches: tuple[Stretch, ...]
    price: Tokens
    flat: Tokens
    messages: int
    folded: int = 0


class Conversation(Struct, frozen=True, gc=False):
    """`messages` in order, `newest` the place where the newest turn begins, `sent` the place after the last message that a
    request has had.

    `total` is the price of all that is in it. `folds` are the stretches that the last compile showed by summaries: a plan
    starts from them. `anchor` is the place after the last message that it left out on purpose, 0: none. `edited` are the
    messages that have another body than they were added with. `model` is whom it is sent to, `signed` whether there is
    reasoning in it, which goes to its signer alone.
    """

    messages: Pages[Message] = Pages()
    waiting: tuple[Message, ...] = ()
    total: Tokens = 0
    flat: Tokens = 0
    newest: int = 0
    sent: int = 0
    folds: tuple[Stretch, ...] = ()
    anchor: int = 0
    shown: Shown | None = None
    edited: frozenset[str] = frozenset()
    revision: int = 0
    model: Model = ("", "")
    signed: bool = False

    @property
    def places(self) -> Places:
        """Where each id stands among the messages."""
        return self.messages.places


def initial() -> Conversation:
    return Conversation()


def evolve(state: Conversation, recorded: Recorded) -> Conversation:
    event = recorded.event
    match event:  # the kinds that every turn has come first
        case MessageAdded(deferred=True):
            return replace(state, waiting=(*state.waiting, message(event, recorded)))
        case MessageAdded():
            added = message(event, recorded)
            if added.signed:
                state, added = replace(state, signed=True), addressed(added, state.model)
            return placed(state, (added,), recorded.version)
        case Compiled(_, _, plan, folded=folded, price=price, flat=flat):
            folds = tuple(stretch for stretch in plan if stretch.level > 0)
            anchor = max((state.places.get(stretch.last, -1) + 1 for stretch in plan if stretch.level < 0), default=0)
            shown = Shown(plan, price, flat, len(state.messages), folded) if price or not plan else None
            return replace(state, folds=folds, anchor=anchor, shown=shown)
        case InferenceRequested():
            return replace(state, sent=len(state.messages))
        case _ if type(event) in TURN_ENDS:
            return replace(state, newest=len(state.messages), revision=recorded.version)
        case MessagePlaced(ids):
            ready = {waits.id: waits for waits in state.waiting}
            rest = tuple(waits for waits in state.waiting if waits.id not in ids)
            entering = tuple(ready[id] for id in ids if id in ready)
            return placed(replace(state, waiting=rest), entering, recorded.version)
        case MessageEdited(id, blocks, tokens) if id in state.places:
            place = state.places[id]
            before = unsigned(state.messages[place])
            said = spoken(before.role, before.cue, blocks)
            body = replace(before, said=said, tokens=tokens, flat=pricing.flat(blocks), version=recorded.version)
            edited = replace(state, edited=state.edited | {id}, shown=None, revision=recorded.version)
            return summed(edited, [*state.messages[:place], body, *state.messages[place + 1 :]])
        case MessageRemoved(id) if id in state.places:
            return without(state, state.places[id], recorded.version)
        case MessageRemoved(id):
            return replace(state, waiting=tuple(waits for waits in state.waiting if waits.id != id))
        case AgentStarted(config):
            return sent_to(state, (config.provider, config.model), recorded.version)
        case SettingChanged("provider", _, str(provider)):
            return sent_to(state, (provider, state.model[1]), recorded.version)
        case SettingChanged("model", _, str(model)):
            return sent_to(state, (state.model[0], model), recorded.version)
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


def sent_to(state: Conversation, model: Model, version: int = 0) -> Conversation:
    """The conversation as that model is sent it; its price too is another when there is reasoning in it."""
    if model == state.model or not state.signed:
        return state if model == state.model else replace(state, model=model)
    moved = replace(state, model=model, shown=None, revision=version or state.revision)
    return summed(moved, [addressed(one, model) for one in state.messages])


def placed(state: Conversation, entering: tuple[Message, ...], version: int) -> Conversation:
    messages, total, fixed = state.messages, state.total, state.flat
    for one in entering:
        messages = messages.append(replace(one, before=total, flat_before=fixed))
        total, fixed = total + one.shown, fixed + one.flat
    return replace(state, messages=messages, total=total, flat=fixed, revision=version)


def without(state: Conversation, place: int, version: int) -> Conversation:
    newest, sent = state.newest - (place < state.newest), state.sent - (place < state.sent)
    anchor = state.anchor - (place < state.anchor)
    kept = [*state.messages[:place], *state.messages[place + 1 :]]
    return summed(replace(state, newest=newest, sent=sent, anchor=anchor, shown=None, revision=version), kept)


def summed(state: Conversation, messages: list[Message]) -> Conversation:
    """The conversation with other messages: where each stands, and what comes before it, is counted again."""
    before, fixed, counted = 0, 0, list[Message]()
    for one in messages:
        counted.append(replace(one, before=before, flat_before=fixed))
        before, fixed = before + one.shown, fixed + one.flat
    return replace(state, messages=paged(counted), total=before, flat=fixed)


def price(state: Conversation, start: int, stop: int) -> Tokens:
    """What the messages from place `start` to place `stop` (exclusive) take, shown raw."""
    messages = state.messages
    end = messages[stop].before if stop < len(messages) else state.total
    return end - messages[start].before if start < stop else 0


def flat_price(state: Conversation, start: int, stop: int) -> Tokens:
    """The part of `price` that no multiplier is for."""
    messages = state.messages
    end = messages[stop].flat_before if stop < len(messages) else state.flat
    return end - messages[start].flat_before if start < stop else 0


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


def seen(state: Conversation, message: str) -> bool:
    """Whether a request has had this message: one that was removed, or never placed, is as good as unseen."""
    return state.places.get(message, state.sent) < state.sent


def reply(state: Conversation, turn: str) -> str | None:
    """The text of a turn's last answer, from its beginning: what had broken off before it is a part of it."""
    texts: list[str] = []
    for one in reversed(state.messages):
        if one.turn == turn and one.role == "assistant" and (one.partial or not texts):
            texts.append(one.text)
        elif texts:
            break
    return "".join(reversed(texts)) if texts else None
