"""Folding a log: any projection, of one stream or of all, up to any seq."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, Protocol, cast

from rewake.events import Event, InvalidSetting, Log, Recorded
from rewake.events.base import kind_of
from rewake.projections import (
    alerts,
    calibration,
    compression,
    conversation,
    gates,
    holds,
    host,
    settings,
    turns,
    undo,
    usage,
    wakes,
)


class Projection(Protocol):
    """A pure fold: where it starts, how one event changes it, and what a table of it looks like.

    `NAME` is what it is called, `KINDS` the kinds of event that it folds.
    """

    NAME: str
    KINDS: frozenset[type[Event]]

    def initial(self) -> Any: ...

    def evolve(self, state: Any, recorded: Recorded, /) -> Any: ...

    def rows(self, state: Any, /) -> list[dict[str, Any]]: ...


PROJECTIONS: dict[str, Projection] = {
    module.NAME: cast("Projection", module)
    for module in (
        conversation,
        wakes,
        turns,
        holds,
        compression,
        gates,
        settings,
        host,
        calibration,
        usage,
        undo,
        alerts,
    )
}

STREAMS = {"compression": "drain/*", "gates": "gate/*", "host": "host"}
"""The streams that a projection is folded from; the others from each agent's own, `agent/*`."""


def projection(named: str | ModuleType | Projection) -> Projection:
    """The projection of that name, or the module itself. Raises InvalidSetting for one that does not exist."""
    if not isinstance(named, str):
        return cast("Projection", named)
    if named not in PROJECTIONS:
        raise InvalidSetting("projection", named, f"there are {', '.join(sorted(PROJECTIONS))}")
    return PROJECTIONS[named]


def fold(
    log: Log, projection: str | ModuleType | Projection, *, stream: str | None = None, until: int | None = None
) -> Any:
    """The state of a projection after the events of `stream` (None: of every stream it is about) with seq ≤ `until`.

    Ids are unique over agents, so folding several agents' streams together gives one state with all of them; ask for
    one stream where that makes no sense (a conversation).
    """
    found = find(projection)
    state = found.initial()
    kinds = [kind_of(kind) for kind in found.KINDS]
    for recorded in log.read(stream=stream or STREAMS.get(found.NAME, "agent/*"), kinds=kinds, until=until):
        state = found.evolve(state, recorded)
    return state


find = projection


def streams_of(log: Log, named: str) -> Sequence[str]:
    """The streams of a log that a projection is folded from, each by itself."""
    pattern = STREAMS.get(named, "agent/*")
    prefix = pattern.removesuffix("*")
    return [
        stream for stream in log.streams() if stream == pattern or (prefix != pattern and stream.startswith(prefix))
    ]


def rows_of(log: Log, named: str, owner: str | None = None, until: int | None = None) -> Iterator[dict[str, Any]]:
    """A projection's rows: of one agent (or provider), or of all of them one after the other, each with its owner's name."""
    whose = {"gates": "provider"}.get(named, "agent")
    for stream in streams_of(log, named):
        _, slash, name = stream.partition("/")
        if owner is None or owner == name:
            for row in find(named).rows(fold(log, named, stream=stream, until=until)):
                yield ({whose: name} if slash else {}) | row
