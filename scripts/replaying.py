"""`rewake replay`: each event of a log, and what it changed in each projection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
from immutables import Map
from msgspec import Struct
from pyrsistent import PDeque, PVector

from rewake.events import Log, Recorded
from rewake.projections.fold import PROJECTIONS, STREAMS
from rewake.scripts import tables
from rewake.scripts.logs import known, on_log
from rewake.scripts.tables import MOMENTS, NARROW, Form, columns, fitted, formed, moment, printable, short
from rewake.scripts.tailing import row, said

Changed = dict[str, dict[str, str]]
"""By projection: the fields that changed, and how."""


@click.command()
@on_log()
@click.option("--agent", help="The stream of this agent and of its drain only.")
@click.option("--after", type=click.IntRange(min=0), default=0, show_default=True, help="Show what is behind this seq.")
@click.option("--at", "until", type=click.IntRange(min=0), metavar="SEQ", help="Up to this seq.")
@formed
def replay(form: Form, log: Log, agent: str | None, after: int, until: int | None) -> None:
    """Fold the log event by event and show what each one changed. Nothing is called, nothing is written."""
    if agent:
        known(log, agent)
    steps = ((recorded, changed) for recorded, changed in replayed(log, until) if recorded.seq > after)
    wanted = ((one, changed) for one, changed in steps if agent is None or owner(one.stream) == agent)
    if form != "table":
        tables.emit((row(recorded) | {"changed": changed} for recorded, changed in wanted), form)
        return
    for recorded, changed in wanted:
        written(recorded, changed)


def written(recorded: Recorded, changed: Changed) -> None:
    where = f"{recorded.stream}@{recorded.version}"
    at = moment(recorded.at, columns() < NARROW)
    click.echo(fitted(printable(f"{recorded.seq:>6}  {at}  {where}  {recorded.kind}  {said(recorded)}")))
    for projection, fields in changed.items():
        told = "; ".join(f"{name} {how}" for name, how in fields.items())
        click.echo(fitted(f"        {projection}: {printable(told)}"))


def owner(stream: str) -> str:
    kind, _, name = stream.partition("/")
    return name if kind in ("agent", "drain") else ""


def replayed(log: Log, until: int | None = None) -> Iterator[tuple[Recorded, Changed]]:
    """Each event with what it changed."""
    states: dict[tuple[str, str], Any] = {}
    for recorded in log.read(until=until):
        changed: Changed = {}
        for name, projection in PROJECTIONS.items():
            if type(recorded.event) not in projection.KINDS or not about(name, recorded.stream):
                continue
            key = (name, recorded.stream)
            before = states.get(key) or projection.initial()
            states[key] = projection.evolve(before, recorded)
            if fields := dict(differences(before, states[key])):
                changed[name] = fields
        yield recorded, changed


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
    elif before != after:
        name = path.rpartition(".")[2]
        yield path, f"{brief(name, before)} → {brief(name, after)}" if None in sizes else "changed"


def size(value: Any) -> int | None:
    """How many a collection has; None for what is none."""
    many = isinstance(value, PVector | Map | PDeque | tuple | frozenset | list | dict)
    return len(value) if many else None  # pyright: ignore[reportUnknownArgumentType]


def brief(name: str, value: Any) -> str:
    """The value of a field in a few words: a moment in UTC, a struct by its id, or by its numbers and texts."""
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case int() if name in MOMENTS or name.endswith(("_at", "_until")):
            return moment(value) if value else "none"
        case Struct():
            return named(value) or short(plain(value), 60)
        case _:
            return short(str(value), 60)


def named(value: Struct) -> str:
    """What identifies a struct: a call is in a turn, and so comes before it."""
    found = (getattr(value, name, None) for name in ("id", "call", "turn", "name"))
    return next((one for one in found if isinstance(one, str)), "")


def plain(value: Struct) -> str:
    fields = {name: getattr(value, name) for name in value.__struct_fields__}
    return " ".join(f"{name}={one}" for name, one in fields.items() if isinstance(one, str | int | float) and one != "")
