"""What an event of a log changed in each projection."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Any

from immutables import Map
from msgspec import Struct
from pyrsistent import PDeque, PVector

from rewake.events import Event, Log, Recorded
from rewake.projections.fold import PROJECTIONS, STREAMS
from rewake.projections.pages import Pages
from rewake.scripts.tables import NARROW, columns, fitted, is_moment, json, moment, printable, short
from rewake.scripts.tailing import said

Changed = dict[str, dict[str, str]]
"""By projection: the fields that changed, and how."""
States = Map[tuple[str, str], Any]
"""The state of each projection of each stream."""
Move = tuple[str, Any, Any]
"""A projection, and its state before an event and after it."""

FEW = 4
"""Values of a tuple that are compared one by one."""
NEAR = 20
"""Characters that are shown of what two texts have in common."""

FOLDING = {
    kind: tuple(name for name, projection in PROJECTIONS.items() if kind in projection.KINDS)
    for kind in frozenset[type[Event]]().union(*(projection.KINDS for projection in PROJECTIONS.values()))
}
"""The projections that fold each kind of event."""


def page(recorded: Recorded, changed: Changed) -> Iterator[str]:
    """An event and, a line for each projection, what it changed."""
    where = f"{recorded.stream}@{recorded.version}"
    at = moment(recorded.at, columns() < NARROW)
    yield fitted(printable(f"{recorded.seq:>6}  {at}  {where}  {recorded.kind}  {said(recorded)}"))
    for projection, fields in changed.items():
        told = "; ".join(f"{name} {how}" for name, how in fields.items())
        yield fitted(f"        {projection}: {printable(told)}")


def owner(stream: str) -> str:
    kind, _, name = stream.partition("/")
    return name if kind in ("agent", "drain") else ""


def replayed(log: Log, until: int | None = None, after: int = 0) -> Iterator[tuple[Recorded, Changed]]:
    """Each event behind a seq with what it changed."""
    states: States = Map()
    for recorded in log.read(until=until):
        states, moves = moved(states, recorded)
        if recorded.seq > after:
            yield recorded, changed(moves)


def moved(states: States, recorded: Recorded) -> tuple[States, list[Move]]:
    """The states after an event, and how it moved those that fold it."""
    moves: list[Move] = []
    for name in FOLDING.get(type(recorded.event), ()):
        if about(name, recorded.stream):
            key, projection = (name, recorded.stream), PROJECTIONS[name]
            before = states.get(key) or projection.initial()
            after = projection.evolve(before, recorded)
            states = states.set(key, after)
            moves.append((name, before, after))
    return states, moves


def changed(moves: Iterable[Move]) -> Changed:
    """What moves have changed; those that changed nothing are left out."""
    found = ((name, dict(differences(before, after))) for name, before, after in moves)
    return {name: fields for name, fields in found if fields}


def about(projection: str, stream: str) -> bool:
    """Whether a projection is folded from a stream."""
    pattern = STREAMS.get(projection, "agent/*")
    return stream.startswith(pattern[:-1]) if pattern.endswith("*") else stream == pattern


def differences(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The fields that differ between two states, and how; what is shared is not looked into."""
    if before is after:
        return
    if isinstance(before, Struct) and type(before) is type(after):
        for name in before.__struct_fields__:
            yield from differences(getattr(before, name), getattr(after, name), f"{path}.{name}".lstrip("."))
        return
    sizes = size(before), size(after)
    if None not in sizes and sizes[0] != sizes[1]:
        yield path, f"{sizes[0]} → {sizes[1]}"
    elif isinstance(before, tuple) and isinstance(after, tuple) and len(before) <= FEW:  # pyright: ignore[reportUnknownArgumentType]
        for place, (one, two) in enumerate(zip(before, after, strict=True)):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
            yield from differences(one, two, f"{path}.{place}")
    elif before != after:
        name = path.rpartition(".")[2]
        yield path, " → ".join(brief(name, one) for one in apart(before, after)) if None in sizes else "changed"


def apart(before: Any, after: Any) -> tuple[Any, Any]:
    """Two values; of long texts what is from a little before they differ."""
    if not (isinstance(before, str) and isinstance(after, str)):
        return before, after
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False))) - NEAR
    return (before, after) if same < NEAR else (f"…{before[same:]}", f"…{after[same:]}")


def size(value: Any) -> int | None:
    """How many a collection has; None for what is none."""
    many = isinstance(value, Pages | PVector | Map | PDeque | tuple | frozenset | list | dict)
    return len(value) if many else None  # pyright: ignore[reportUnknownArgumentType]


def brief(name: str, value: Any, most: int = 60) -> str:
    """The value of a field in a few words: a moment in UTC, a struct by its id, or by its numbers and texts."""
    match value:
        case None | "":
            return "none"
        case bool():
            return str(value).lower()
        case int() if is_moment(name) or name.endswith("_until"):
            return moment(value) if value else "none"
        case Struct():
            return named(value) or short(plain(value), most)
        case tuple():
            return short(json(value), most)  # pyright: ignore[reportUnknownArgumentType]
        case _:
            return short(str(value), most)


def named(value: Struct) -> str:
    """What identifies a struct: a call is in a turn, and so comes before it."""
    found = (getattr(value, name, None) for name in ("id", "call", "turn", "name"))
    return next((one for one in found if isinstance(one, str)), "")


def plain(value: Struct) -> str:
    fields = {name: getattr(value, name) for name in value.__struct_fields__}
    return " ".join(f"{name}={one}" for name, one in fields.items() if isinstance(one, str | int | float) and one != "")
