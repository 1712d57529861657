"""The shape of everything that is written down: an event, the envelope it is recorded in, the draft it comes from."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import ClassVar

import msgspec
from msgspec import Struct

Millis = int
"""Whole milliseconds: a moment since 1970-01-01T00:00Z, or a duration where the field ends in `_ms`."""

Tokens = int
"""A count of tokens, in the encoding that the same event names, or the provider's own where it is called `counted`."""


def moment(at: Millis) -> str:
    """A moment as ISO 8601 in UTC; what no calendar has as its number."""
    try:
        return datetime.fromtimestamp(at / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return str(at)


class Event(Struct, frozen=True, tag_field="kind", omit_defaults=True, gc=False):
    """Something that became true. Immutable; its tag (`kind`) is the contract, its class is the same name in
    CamelCase.
    """

    MINTS: ClassVar[tuple[str, str] | None] = None
    """(field, noun): the field that gets an id made of the stream and the version at which the event is recorded."""

    @property
    def kind(self) -> str:
        return kind_of(type(self))


class AgentEvent(Event, frozen=True, kw_only=True):
    """An event of an agent's stream, `agent/<name>`; `agent` is that name."""

    agent: str = ""


def kind_of(event: type[Event]) -> str:
    """The tag of an event class, as the log's `kind` column has it."""
    return str(event.__struct_config__.tag)


class Unknown(Event, frozen=True, tag="unknown"):
    """An event of a kind that this version does not know, kept whole: `name` is its kind, `data` its JSON as stored."""

    name: str
    data: msgspec.Raw

    @property
    def kind(self) -> str:
        return self.name


class Draft(Struct, frozen=True, gc=False):
    """An event on its way to the log, with what its writer knew when it was decided.

    `cause` is the seq of the event reacted to, `within` the index inside the same append when that event is not recorded
    yet (the log resolves it); both None: embodied from outside. `read` is the last seq of the followed streams consumed.
    """

    event: Event
    at: Millis = 0
    read: int = 0
    cause: int | None = None
    within: int | None = None


class Recorded(Struct, frozen=True, gc=False):
    """An event as the log has it.

    `seq` is global and gapless from 1, `version` counts its stream from 1, `at` is UTC milliseconds.
    """

    seq: int
    at: Millis
    stream: str
    version: int
    cause: int | None
    read: int
    event: Event

    @property
    def kind(self) -> str:
        return self.event.kind


def identified(event: Event, stream: str, version: int) -> Event:
    """The event with the names that its place gives it: its agent's, and the id that it mints (`ada/turn/7`)."""
    owner = stream.partition("/")[2] or stream
    names: dict[str, str] = {}
    if isinstance(event, AgentEvent) and not event.agent:
        names["agent"] = owner
    if (mints := type(event).MINTS) and not getattr(event, mints[0]):
        names[mints[0]] = f"{owner}/{mints[1]}/{version}"
    return msgspec.structs.replace(event, **names) if names else event
