"""Usage: what turns cost in the provider's own counts, and what their newest request said."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from pyrsistent import PVector, pvector

from rewake.events import Event, Recorded, Tokens, UsageRecorded

NAME = "usage"
KINDS: frozenset[type[Event]] = frozenset({UsageRecorded})
RECENT = 256


class TurnUsage(Struct, frozen=True, gc=False):
    """One turn's completed calls: all input, the cached part of it, and all output."""

    turn: str
    input: Tokens
    output: Tokens
    cached: Tokens
    model: str


class Usage(Struct, frozen=True, gc=False):
    """Totals over every recorded turn, and the latest turns one by one."""

    turns: int = 0
    input: Tokens = 0
    output: Tokens = 0
    cached: Tokens = 0
    latest: PVector[TurnUsage] = pvector()


def initial() -> Usage:
    return Usage()


def evolve(state: Usage, recorded: Recorded) -> Usage:
    match recorded.event:
        case UsageRecorded(turn, used, output, cached, model=model):
            latest = state.latest.append(TurnUsage(turn, used, output, cached, model))
            return replace(
                state,
                turns=state.turns + 1,
                input=state.input + used,
                output=state.output + output,
                cached=state.cached + cached,
                latest=latest if len(latest) <= RECENT else latest[-RECENT:],
            )
        case _:
            return state


def rows(state: Usage) -> list[dict[str, Any]]:
    return [
        {"turn": one.turn, "input": one.input, "output": one.output, "cached": one.cached, "model": one.model}
        for one in state.latest
    ]
