"""Where undo returns to."""

from __future__ import annotations

from rewake.events.base import AgentEvent


class UndoPoint(AgentEvent, frozen=True, tag="undo_point"):
    """A turn is about to be sent: undoing it returns to where the conversation stood at `at` (a version of this
    stream).
    """

    turn: str
    at: int
    branch: str = "main"
