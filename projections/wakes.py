"""Wakes: which are owed a turn, which turn took them, and which keys were seen lately."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from immutables import Map
from msgspec import Struct
from msgspec.structs import replace
from pyrsistent import PDeque, PVector, pdeque, pvector

from rewake.events import (
    Event,
    MessageAdded,
    Millis,
    Recorded,
    TurnAborted,
    TurnCompleted,
    TurnDeclined,
    TurnExhausted,
    TurnStarted,
    TurnWithdrawn,
    Wake,
    WakeWithdrawn,
)
from rewake.events.turns import TURN_ENDS, TurnEnd

NAME = "wakes"
Ending = Literal["completed", "exhausted", "aborted", "declined", "withdrawn"]
KINDS: frozenset[type[Event]] = frozenset({Wake, WakeWithdrawn, TurnStarted, MessageAdded, *TURN_ENDS})

KEPT_MS: Millis = 7 * 24 * 3_600_000
"""How long a `dedupe_key` is remembered, in log time."""
RECENT = 256
"""How many ended wakes the state remembers; older ones are read from the log."""


class Pending(Struct, frozen=True, omit_defaults=True, gc=False):
    """A wake that has not ended. `turn` is the one that took it; None: it waits."""

    id: str
    reason: str
    at: Millis
    source: str = ""
    channel: str | None = None
    author: str | None = None
    addressed: bool = False
    wake_at: Millis | None = None
    silent: bool = False
    message: str | None = None
    turn: str | None = None


class Ended(Struct, frozen=True, omit_defaults=True, gc=False):
    """How a wake ended, in which turn, and why where there is more to say."""

    state: Ending
    turn: str = ""
    why: str = ""


class Seen(Struct, frozen=True, omit_defaults=True, gc=False):
    """The receipt that a `dedupe_key` stands for: message and wake, and the version of the first of them."""

    at: Millis
    version: int
    message: str | None = None
    wake: str | None = None


class Wakes(Struct, frozen=True, gc=False):
    """`owed` in the order of acceptance; `ended` the latest; `seen` by key, `order` the keys by age."""

    owed: PVector[Pending] = pvector()
    ended: Map[str, Ended] = Map()
    endings: PDeque[str] = pdeque()
    seen: Map[str, Seen] = Map()
    order: PDeque[str] = pdeque()


def initial() -> Wakes:
    return Wakes()


def evolve(state: Wakes, recorded: Recorded) -> Wakes:
    event = recorded.event
    match event:
        case Wake():
            state = replace(state, owed=state.owed.append(pending(event, recorded.at)))
            return remember(state, event.dedupe_key, recorded, event.message, event.id) if event.dedupe_key else state
        case MessageAdded(dedupe_key=key):
            return state if key is None else remember(state, key, recorded, event.id, None)
        case TurnStarted(wakes, turn):
            taken = frozenset(wakes)
            owed = [replace(one, turn=turn) if one.id in taken else one for one in state.owed]
            return replace(state, owed=pvector(owed))
        case _ if isinstance(event, TurnEnd):
            mine = frozenset(one.id for one in state.owed if one.turn == event.turn)
            return end(state, mine, ending(event))
        case WakeWithdrawn(wakes, why):
            return end(state, frozenset(wakes), Ended("withdrawn", "", why))
        case _:
            return state


def rows(state: Wakes) -> list[dict[str, Any]]:
    waiting = [
        {"wake": one.id, "state": "taken" if one.turn else "waiting", "turn": one.turn, "reason": one.reason, "why": ""}
        | {"at": one.at, "channel": one.channel, "author": one.author, "message": one.message}
        for one in state.owed
    ]
    gone = [
        {"wake": id, "state": state.ended[id].state, "turn": state.ended[id].turn or None, "why": state.ended[id].why}
        for id in state.endings
    ]
    return gone + waiting


def waiting(state: Wakes) -> tuple[Pending, ...]:
    """The wakes that no turn has taken, in order."""
    return tuple(one for one in state.owed if one.turn is None)


def trigger(wakes: Sequence[Pending]) -> Pending:
    """The wake whose channel the turn has: the latest addressed one with a channel, else the latest with one; where
    none has one the latest addressed one, else the latest.
    """

    def rank(indexed: tuple[int, Pending]) -> tuple[bool, bool, bool, Millis, int]:
        index, wake = indexed
        placed, when = wake.channel is not None, wake.at if wake.wake_at is None else wake.wake_at
        return placed and wake.addressed, placed, wake.addressed, when, index

    return max(enumerate(wakes), key=rank)[1]


def pending(wake: Wake, at: Millis) -> Pending:
    return Pending(
        wake.id,
        wake.reason,
        at,
        wake.source,
        wake.channel,
        wake.author,
        wake.addressed,
        wake.wake_at,
        wake.silent,
        wake.message,
    )


def remember(state: Wakes, key: str, recorded: Recorded, message: str | None, wake: str | None) -> Wakes:
    seen, order = state.seen, state.order
    while order and seen[order.left].at < recorded.at - KEPT_MS:
        seen, order = seen.delete(order.left), order.popleft()
    first = seen.get(key)
    if first is None:
        order = order.append(key)
    version = recorded.version if first is None else first.version
    return replace(state, seen=seen.set(key, Seen(recorded.at, version, message, wake)), order=order)


def known(state: Wakes, key: str | None, now: Millis) -> Seen | None:
    """The receipt of that key, while it is remembered."""
    seen = state.seen.get(key) if key else None
    return seen if seen and seen.at >= now - KEPT_MS else None


def ending(event: TurnEnd) -> Ended:
    match event:
        case TurnCompleted(turn):
            return Ended("completed", turn)
        case TurnExhausted(turn, _, error):
            return Ended("exhausted", turn, error.told)
        case TurnAborted(turn, reason):
            return Ended("aborted", turn, reason)
        case TurnDeclined(turn):
            return Ended("declined", turn)
        case TurnWithdrawn(turn, why):
            return Ended("withdrawn", turn, why)


def end(state: Wakes, wakes: frozenset[str], how: Ended) -> Wakes:
    ended, endings = state.ended, state.endings
    for one in state.owed:
        if one.id in wakes:
            ended, endings = ended.set(one.id, how), endings.append(one.id)
    while len(endings) > RECENT:
        ended, endings = ended.delete(endings.left), endings.popleft()
    return replace(state, owed=pvector(one for one in state.owed if one.id not in wakes), ended=ended, endings=endings)
