"""Alerts: of what an operator was last told, and when, so that nobody is told the same again and again."""

from __future__ import annotations

from typing import Any

from immutables import Map
from msgspec import Struct
from msgspec.structs import replace

from rewake.events import Alerted, Event, Millis, Recorded

NAME = "alerts"
KINDS: frozenset[type[Event]] = frozenset({Alerted})
POSTED_EVERY_MS: Millis = 15 * 60_000
"""How long an alert keeps the next one of its kind from being posted."""


class Alerts(Struct, frozen=True, gc=False):
    """When an alert of each kind was last posted, and about which turn one was last made."""

    posted: Map[str, Millis] = Map()
    turns: Map[str, str] = Map()


def initial() -> Alerts:
    return Alerts()


def evolve(state: Alerts, recorded: Recorded) -> Alerts:
    match recorded.event:
        case Alerted(about, _, posted, turn):
            told = state.posted.set(about, recorded.at) if posted else state.posted
            return replace(state, posted=told, turns=state.turns.set(about, turn))
        case _:
            return state


def rows(state: Alerts) -> list[dict[str, Any]]:
    return [
        {"kind": about, "turn": turn or None, "posted_at": state.posted.get(about)}
        for about, turn in sorted(state.turns.items())
    ]


def due(state: Alerts, about: str, at: Millis) -> bool:
    """Whether an alert of that kind is posted at that time: one in a quarter of an hour is."""
    last = state.posted.get(about)
    return last is None or at >= last + POSTED_EVERY_MS
