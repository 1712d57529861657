"""The contract of an actor: three pure functions and a fold; and the one way in which they are run, depth first."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct

from rewake.actors.shapes import shape
from rewake.events import Draft, Event, Millis, Recorded
from rewake.events.base import identified

S = TypeVar("S")

Key = tuple[Hashable, ...]
"""Names one attempt at a piece of outside work: `("call", "ada/call/13")`."""

Order = Any
"""What is wanted of the world, as a frozen value; two orders of one key that differ mean: cancel, and start the new
one.
"""

Bell = Literal["", "now", "later"]
"""When an actor is woken for an event that it follows; not at all: it reads it whenever it is next awake."""

RUNAWAY = 10_000
"""Events that may follow from one message before the behaviour is taken to be going round in circles."""


class Command(Struct, frozen=True, kw_only=True):
    """What comes from outside. `at` is stamped by the shell before it decides: time is an input."""

    at: Millis = 0

    @property
    def ends(self) -> Key | None:
        """The key of the order that this is the outcome of: its port has nothing left to cancel. None: of none."""
        return None

    def instead(self, why: str) -> Command | None:
        """What is embodied in its place when the log can not take what it was embodied as; None: nothing can be."""
        return None


class Restarted(Command, frozen=True):
    """A new incarnation begins: what the former one had started is embodied as interrupted."""


class Due(Command, frozen=True):
    """The time of a timer has come; `key` is the order's."""

    key: Key

    @property
    def ends(self) -> Key | None:
        return self.key


@dataclass(frozen=True)
class Timer:
    """An order: tell me when this time comes."""

    due: Millis


@dataclass(frozen=True)
class Follow:
    """Streams (a name, or a pattern ending in `*`) of which these kinds are folded, and the few of them that ring; those in
    `later`, after which nothing is decided and nothing is urgent, a moment later.
    """

    stream: str
    folds: frozenset[type[Event]]
    rings: frozenset[type[Event]]
    later: frozenset[type[Event]] = frozenset()

    def matches(self, stream: str) -> bool:
        return stream.startswith(self.stream[:-1]) if self.stream.endswith("*") else stream == self.stream


@dataclass(frozen=True)
class Behaviour(Generic[S]):
    """An actor as plain functions.

    `code` versions its snapshots, beside the shape of its state: it is another where the folds are. `unmoved` names the
    followed streams, with the versions that the state has of them, that a decision is true of: it is taken again when one of
    them has moved.
    """

    stream: str
    state: type[S]
    initial: Callable[[], S]
    evolve: Callable[[S, Recorded], S]
    accept: Callable[[S, Any], Sequence[Event]]
    react: Callable[[S, Recorded], Sequence[Event]]
    orders: Callable[[S], Mapping[Key, Order]]
    follows: tuple[Follow, ...] = ()
    code: str = "1"
    unmoved: Callable[[S, Sequence[Event]], Mapping[str, int]] | None = None

    @cached_property
    def coded(self) -> str:
        """The code version of its snapshots."""
        return f"{self.code} {shape(self.state)}"

    def followed(self, recorded: Recorded) -> bool:
        kind = type(recorded.event)
        return any(kind in follow.folds and follow.matches(recorded.stream) for follow in self.follows)

    @cached_property
    def rings(self) -> frozenset[type[Event]]:
        """Every kind that rings in some stream: most events that are followed are of none."""
        return frozenset(kind for follow in self.follows for kind in follow.rings)

    def rung(self, recorded: Recorded) -> bool:
        kind = type(recorded.event)
        return kind in self.rings and any(
            kind in follow.rings and follow.matches(recorded.stream) for follow in self.follows
        )

    def bell(self, recorded: Recorded) -> Bell:
        """Whether an event rings, and when."""
        if not self.rung(recorded):
            return ""
        kind, followed = type(recorded.event), [one for one in self.follows if one.matches(recorded.stream)]
        return "now" if any(kind in one.rings - one.later for one in followed) else "later"


class Position(Struct, Generic[S]):
    """Where an actor stands: its state at a version of its stream, and how far it has read what it follows."""

    state: S
    version: int = 0
    at: Millis = 0
    read: int = 0

    def copy(self) -> Position[S]:
        return Position(self.state, self.version, self.at, self.read)


class Runaway(RuntimeError):
    """A behaviour kept deciding: its events never came to an end."""


def embody(
    behaviour: Behaviour[S],
    here: Position[S],
    drafts: list[Draft],
    events: Sequence[Event],
    *,
    cause: int | None = None,
    within: int | None = None,
) -> None:
    """Take in events and, before each one's next sibling, all that follows from it."""
    stream, at, read = behaviour.stream, here.at, here.read
    for event in events:
        if (index := len(drafts)) > RUNAWAY:
            raise Runaway(f"{stream}: more than {RUNAWAY} events follow from one message")
        here.version = version = here.version + 1
        event = identified(event, stream, version)
        recorded = Recorded(0, at, stream, version, None, read, event)
        drafts.append(Draft(event, at, read, cause, within))
        here.state = behaviour.evolve(here.state, recorded)
        if follows := behaviour.react(here.state, recorded):
            embody(behaviour, here, drafts, follows, within=index)


def command(behaviour: Behaviour[S], here: Position[S], drafts: list[Draft], said: Command) -> None:
    """Decide on what came from outside."""
    embody(behaviour, here, drafts, behaviour.accept(here.state, said))


def consume(behaviour: Behaviour[S], here: Position[S], drafts: list[Draft], recorded: Recorded) -> None:
    """Take in an event of a followed stream, and decide what follows from it."""
    fold(behaviour, here, recorded)
    embody(behaviour, here, drafts, behaviour.react(here.state, recorded), cause=recorded.seq)


def fold(behaviour: Behaviour[S], here: Position[S], recorded: Recorded) -> None:
    """Take in an event without deciding anything: one's own, or a followed one."""
    here.state = behaviour.evolve(here.state, recorded)
    if recorded.stream == behaviour.stream:
        here.version, here.at = recorded.version, max(here.at, recorded.at)
        here.read = max(here.read, recorded.read)
    else:
        here.read = max(here.read, recorded.seq)
