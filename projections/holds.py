"""Holds: the turn that waits for compression, what its looks saw, and what is left of a hold once it is over; the turn
that waits for its provider's gate.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from rewake.events import (
    Compiled,
    Event,
    Held,
    HoldEnded,
    HoldLooked,
    Millis,
    ProviderHeld,
    ProviderReleased,
    ProviderTried,
    Recorded,
    Refused,
    RetryScheduled,
    Stretch,
    Wake,
    WakeWithdrawn,
)
from rewake.events.turns import TURN_ENDS, TurnEnd

NAME = "holds"
KINDS: frozenset[type[Event]] = TURN_ENDS | {
    Held,
    HoldLooked,
    HoldEnded,
    Wake,
    WakeWithdrawn,
    Refused,
    Compiled,
    RetryScheduled,
    ProviderHeld,
    ProviderReleased,
    ProviderTried,
}
REFUSALS = frozenset({"over_budget", "uncovered"})
SPENDING = frozenset({"deadline", "nothing_pending", "stalled"})


class Hold(Struct, frozen=True, gc=False):
    """One turn's hold, through every time that it is held again. `ended` is why it last ended; `compiled`: after that,
    once; `refused`: after that, to the error policy. `held_at` is when it last began.
    """

    turn: str
    wakes: tuple[str, ...]
    since: Millis
    until: Millis
    refusal: Refused
    seen: tuple[tuple[str, int], ...] = ()
    looks: int = 0
    looked_at: Millis | None = None
    resumes: bool = False
    ended: str = ""
    waited_ms: Millis = 0
    compiled: bool = False
    refused: bool = False
    held_at: Millis = 0


class Holds(Struct, frozen=True, gc=False):
    """`waiting` now; `over`: its turn runs again or has its fresh compile to come. `demand`: what the last refusal
    lacked. `stalled_at`: when the last hold ended because compression had made nothing for too long.

    `gated` waits for its provider's gate; `let`: it waited for it last, and runs again or is about to. `tried`: what
    was last told to a gate.
    """

    waiting: Hold | None = None
    over: Hold | None = None
    demand: tuple[Stretch, ...] = ()
    stalled_at: Millis | None = None
    gated: ProviderHeld | None = None
    let: ProviderHeld | None = None
    tried: ProviderTried | None = None


def initial() -> Holds:
    return Holds()


def evolve(state: Holds, recorded: Recorded) -> Holds:
    event = recorded.event
    match event:  # the kinds that every turn has come first
        case Wake(id=wake) if hold := state.waiting:
            return replace(state, waiting=replace(hold, wakes=(*hold.wakes, wake)))
        case Wake(id=wake) if gated := state.gated:
            return replace(state, gated=replace(gated, wakes=(*gated.wakes, wake)))
        case Wake():
            return state
        case Compiled():
            return replace(state, demand=(), over=state.over and replace(state.over, compiled=True))
        case _ if isinstance(event, TurnEnd):
            over = None if state.over and state.over.turn == event.turn else state.over
            waiting = None if state.waiting and state.waiting.turn == event.turn else state.waiting
            gated = None if state.gated and state.gated.turn == event.turn else state.gated
            let = None if state.let and state.let.turn == event.turn else state.let
            return replace(state, over=over, waiting=waiting, gated=gated, let=let)
        case Held(turn, wakes, since, until, refusal, looked, resumes):
            looks = state.over.looks if state.over and state.over.turn == turn else 0
            hold = Hold(turn, wakes, since, until, refusal, looked, looks, resumes=resumes, held_at=recorded.at)
            return replace(state, waiting=hold, over=None)
        case ProviderHeld():
            return replace(state, gated=event, let=None)
        case ProviderReleased():
            return replace(state, gated=None, let=state.gated)
        case ProviderTried():
            return replace(state, tried=event)
        case WakeWithdrawn(gone) if hold := state.waiting:
            return replace(state, waiting=replace(hold, wakes=tuple(one for one in hold.wakes if one not in gone)))
        case WakeWithdrawn(gone) if gated := state.gated:
            return replace(state, gated=replace(gated, wakes=tuple(one for one in gated.wakes if one not in gone)))
        case HoldLooked(_, revisions, _, demand) if hold := state.waiting:
            looked = replace(hold, seen=revisions, looks=hold.looks + 1, looked_at=recorded.at)
            return replace(state, waiting=looked, demand=demand)
        case HoldEnded(_, why, waited) if hold := state.waiting:
            waited = max(waited, recorded.at - hold.since)  # what ended it may have come while the process was down
            stalled = recorded.at if why == "stalled" else state.stalled_at
            return replace(state, waiting=None, over=replace(hold, ended=why, waited_ms=waited), stalled_at=stalled)
        case Refused(demand=demand):
            return replace(state, demand=demand, over=state.over and replace(state.over, compiled=True))
        case RetryScheduled(turn, error=error) if error.kind in REFUSALS and (hold := record(state, turn)):
            return replace(state, over=replace(hold, refused=True))
        case _:
            return state


def rows(state: Holds) -> list[dict[str, Any]]:
    return [
        {"turn": hold.turn, "since": hold.since, "until": hold.until, "wakes": list(hold.wakes)}
        | {"why": hold.refusal.why, "tokens": hold.refusal.tokens, "room": hold.refusal.room, "looks": hold.looks}
        | {"looked_at": hold.looked_at, "ended": hold.ended or None, "provider": None, "model": None}
        for hold in (state.waiting, state.over)
        if hold
    ] + [
        {"turn": gated.turn, "since": gated.since, "until": gated.until, "wakes": list(gated.wakes)}
        | {"why": f"{gated.provider} {gated.model}: {gated.why}", "tokens": None, "room": None, "looks": 0}
        | {"looked_at": None, "ended": None, "provider": gated.provider, "model": gated.model}
        for gated in (state.gated,)
        if gated
    ]


def spent(state: Holds, turn: str) -> bool:
    """Whether this turn's hold is used up: its next refusal goes to the error policy."""
    hold = record(state, turn)
    return hold is not None and (hold.refused or hold.ended in SPENDING)


def record(state: Holds, turn: str) -> Hold | None:
    """This turn's hold, when it had one that is over."""
    return state.over if state.over and state.over.turn == turn else None
