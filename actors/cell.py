"""An actor as a simulation has it, and the crashes that wait for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

from rewake.actors.behaviour import Behaviour, Command, Due
from rewake.actors.incarnation import Asked, Batch, Incarnation
from rewake.events import Append, Recorded
from rewake.events.log import Past


class Crash(BaseException):
    """The simulated process is gone."""


class Armed(Struct):
    """A crash that waits: at the append of the `nth` event of a kind, or at the `nth` append for `*`."""

    kind: str
    nth: int
    when: Literal["before", "after"]

    def met(self, append: Append) -> bool:
        """Count what an append has of it; true when that is all."""
        found = 1 if self.kind == "*" else sum(draft.event.kind == self.kind for draft in append.events)
        self.nth -= found
        return found > 0 and self.nth <= 0


class Cell:
    """An actor: its incarnation, its mail, the batch that waits for the journal, and what it failed on last.

    `fresh`: it has yet to take `Restarted` in. `stalled`: it raised, and its supervisor has not answered yet.
    """

    def __init__(self, behaviour: Behaviour[Any], log: Past) -> None:
        self.behaviour = behaviour
        self.mail: deque[Asked] = deque()
        self.trouble = ""
        self.parked = ""
        self.rise(log)

    def rise(self, log: Past) -> None:
        """A new incarnation, rebuilt from the log; the mail stays."""
        self.incarnation: Incarnation[Any] = Incarnation(self.behaviour, log)
        self.batch: Batch[Any] | None = None
        self.rung = bool(self.incarnation.feed)
        self.fresh = True
        self.stalled = False
        self.moved = 0

    @property
    def stream(self) -> str:
        return self.behaviour.stream

    @property
    def ready(self) -> bool:
        return not (self.batch or self.stalled or self.parked) and bool(self.mail or self.rung)

    def settled(self, batch: Batch[Any], consumed: Sequence[Recorded]) -> None:
        """What it took in without failing is no trouble any more."""
        done = {named(one.command) for one, _, _, error in batch.answers if error is None}
        if self.trouble in done | {event_named(recorded) for recorded in consumed}:
            self.trouble = ""


def named(command: Command) -> str:
    """What a command is called when it fails: by its kind; a timer with its key."""
    return f"Due {command.key}" if isinstance(command, Due) else type(command).__name__


def event_named(recorded: Recorded) -> str:
    return f"event {recorded.seq}"
