"""Undo: where it would return to. One point for each turn that was sent, the newest twenty."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from rewake.events import Event, Recorded, UndoPoint

NAME = "undo"
KINDS: frozenset[type[Event]] = frozenset({UndoPoint})
KEPT = 20
"""Points that an agent has at the most; the oldest leaves when the next is taken."""


class Point(Struct, frozen=True, gc=False):
    """Undoing the turn returns to where the conversation stood at `at`, a version of the agent's stream."""

    turn: str
    at: int
    branch: str = "main"


class Undo(Struct, frozen=True, gc=False):
    """The points, oldest first."""

    points: tuple[Point, ...] = ()


def initial() -> Undo:
    return Undo()


def evolve(state: Undo, recorded: Recorded) -> Undo:
    match recorded.event:
        case UndoPoint(turn, at, branch):
            return Undo((*state.points, Point(turn, at, branch))[-KEPT:])
        case _:
            return state


def rows(state: Undo) -> list[dict[str, Any]]:
    return [{"turn": one.turn, "version": one.at, "branch": one.branch} for one in state.points]
