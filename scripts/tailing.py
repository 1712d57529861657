"""`rewake tail`: the events of a log, and the new ones as they come."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import click
import msgspec

from rewake.events import EVENTS, Log, Recorded
from rewake.events.codec import encode
from rewake.scripts import tables
from rewake.scripts.logs import known, on_log
from rewake.scripts.tables import NARROW, Form, columns, fitted, formed, moment, printable, short

POLL = 0.1
"""Seconds between two looks at the log's head: a reader in another process is not told of commits."""


@click.command()
@on_log()
@click.option("-f", "--follow", is_flag=True, help="Go on with new events as they come, until interrupted.")
@click.option("-n", "lines", type=click.IntRange(min=0), help="The last N events only (then the new ones with -f).")
@click.option("--agent", help="Of this agent's stream only.")
@click.option("--kind", "kinds", multiple=True, help="Of this kind only; may be given again.")
@click.option("--after", type=click.IntRange(min=0), default=0, show_default=True, help="Behind this seq only.")
@formed
def tail(
    form: Form, log: Log, follow: bool, lines: int | None, agent: str | None, kinds: tuple[str, ...], after: int
) -> None:
    """Show the log's events in order. LOG may be left out when REWAKE_LOG names it."""
    stream = f"agent/{known(log, agent)}" if agent else None
    for kind in kinds:
        known_kind(log, kind)
    head = log.head()
    events = log.read(after, stream, kinds or None, head)
    past = events if lines is None else deque(events, maxlen=lines)
    if not follow:
        write(past, form)
        return
    try:
        write(past, form if form != "json" else "nl")
        write(coming(log, max(head, after), stream, kinds), form if form != "json" else "nl", header=False)
    except KeyboardInterrupt:
        return


def coming(log: Log, after: int, stream: str | None, kinds: tuple[str, ...]) -> Iterator[Recorded]:
    """The events behind a seq as they come, without end."""
    while True:
        head = log.head()
        if head > after:
            yield from log.read(after, stream, kinds or None, head)
            after = head
        time.sleep(POLL)


def known_kind(log: Log, kind: str) -> None:
    """Raises BadParameter for a kind that there is not, in this version nor in the log."""
    if kind not in EVENTS and next(log.read(kinds=[kind]), None) is None:
        raise click.BadParameter(f"there are no events of kind {kind!r}", param_hint="--kind")


def write(events: Iterable[Recorded], form: Form, header: bool = True) -> None:
    """Each event as it is read: a table is written line by line."""
    match form:
        case "nl":
            tables.emit((row(recorded) for recorded in events), "nl")
        case "json":
            tables.emit((row(recorded) for recorded in events), "json")
        case "csv":
            tables.emit_csv((row(recorded) for recorded in events), COLUMNS, header)
        case "table":
            if header:
                click.echo(line("seq", "at", "stream", "version", "kind", ""))
            for one in events:
                at = moment(one.at, columns() < NARROW)
                click.echo(line(str(one.seq), at, one.stream, str(one.version), one.kind, said(one)))


COLUMNS = ("seq", "at", "stream", "version", "cause", "read", "kind", "data")


def line(seq: str, at: str, stream: str, version: str, kind: str, said: str) -> str:
    """A line of the table; where there is little room the version is left out."""
    narrow = columns() < NARROW
    where = f"{printable(stream):<12}" if narrow else f"{printable(stream):<16}  {version:>7}"
    return fitted(f"{seq:>6}  {at:<{8 if narrow else 24}}  {where}  {kind:<21}  {said}".rstrip())


def row(recorded: Recorded) -> dict[str, Any]:
    """An event as a program reads it; `data` is its JSON."""
    return {
        "seq": recorded.seq,
        "at": recorded.at,
        "stream": recorded.stream,
        "version": recorded.version,
        "cause": recorded.cause,
        "read": recorded.read,
        "kind": recorded.kind,
        "data": msgspec.Raw(encode(recorded.event)),
    }


def said(recorded: Recorded) -> str:
    """An event's fields on one line, cut."""
    fields = msgspec.json.decode(encode(recorded.event))
    return printable(short(" ".join(f"{name}={value(fields[name])}" for name in fields if name not in HIDDEN)))


HIDDEN = frozenset({"kind", "agent"})


def value(field: Any) -> str:
    return field if isinstance(field, str) else tables.json(field)
