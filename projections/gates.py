"""A provider's gate: open, or closed for some models until a time."""

from __future__ import annotations

from typing import Any

from immutables import Map
from msgspec import Struct
from msgspec.structs import replace

from rewake.events import Event, GateClosed, GateOpened, Millis, Recorded
from rewake.projections.maps import without

NAME = "gates"
KINDS: frozenset[type[Event]] = frozenset({GateClosed, GateOpened})


class Wait(Struct, frozen=True):
    """Calls for a model wait since, until (None: until an operator releases them), and why; `n` in a row."""

    since: Millis
    until: Millis | None
    why: str
    n: int = 1


class Gate(Struct, frozen=True):
    """`closed` by model (`*`: all); `limit` while it ramps up; `version` of the gate's stream."""

    closed: Map[str, Wait] = Map()
    limit: int | None = None
    version: int = 0


def initial() -> Gate:
    return Gate()


def evolve(state: Gate, recorded: Recorded) -> Gate:
    match recorded.event:
        case GateClosed(why, since, until, model, n=n):
            wait = Wait(since, until, why, n)
            return replace(state, closed=state.closed.set(model or "*", wait), version=recorded.version)
        case GateOpened(model=model, limit=limit):
            return replace(state, closed=without(state.closed, model or "*"), limit=limit, version=recorded.version)
        case _:
            return state


def rows(state: Gate) -> list[dict[str, Any]]:
    return [
        {"model": model, "since": wait.since, "until": wait.until, "why": wait.why, "n": wait.n}
        for model, wait in sorted(state.closed.items())
    ]
