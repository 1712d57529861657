"""`rewake diff`: where two logs go apart, overall and stream by stream, and what the one has more of than the other."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import click
from msgspec import Struct

from rewake.events import Log, Recorded
from rewake.scripts import tables
from rewake.scripts.changes import brief, differences
from rewake.scripts.errors import Divergence
from rewake.scripts.logs import VARIABLE, reading, told_when_short
from rewake.scripts.tables import Form, fitted, formed, moment, printable
from rewake.scripts.tailing import said

Counts = Counter[tuple[str, str]]
"""How many events of each stream and kind a log has."""


class Apart(Struct, frozen=True):
    """The first events that differ, of two whole logs (`stream` is empty) or of one stream of them; None: there are no
    more.
    """

    stream: str
    left: Recorded | None
    right: Recorded | None


@click.command()
@click.argument("logs", nargs=-1, metavar="[A] B")
@click.option("--exact", is_flag=True, help="Compare times, causes and what was read of other streams as well.")
@formed
def diff(form: Form, logs: tuple[str, ...], exact: bool) -> None:
    """Compare two logs: the first event at which they differ, overall and in each stream, and how many of each kind each has.

    Streams, versions and events count, in the order of the log; times only with --exact. Without A, the log that REWAKE_LOG
    names is compared. Exit code 3 where they differ.
    """
    known = [one for one in (os.environ.get(VARIABLE), *logs) if one][-2:]
    if not logs or len(logs) > 2 or len(known) < 2:
        raise click.UsageError(f"Name two logs, or set {VARIABLE} and name the other.")
    with reading(known[0]) as log, reading(known[1]) as right:
        overall, left_counts, right_counts = compared(log, right, exact)
        streams = list(by_stream(log, right, exact)) if overall else []
        told_when_short(log)
        told_when_short(right)
    if overall is None:
        click.echo(f"rewake: both logs have the same {sum(left_counts.values()):,} events", err=True)
        return
    if form == "table":
        for line in page(overall, streams, left_counts, right_counts):
            click.echo(line)
    else:
        tables.emit(rows(overall, streams, left_counts, right_counts), form)
    raise Divergence(f"the logs differ first at event {place(overall)}")


def compared(left: Log, right: Log, exact: bool) -> tuple[Apart | None, Counts, Counts]:
    """Where the logs go apart, and how many events of each stream and kind each has, in one pass."""
    found: Apart | None = None
    counts: tuple[Counts, Counts] = (Counter(), Counter())
    for one, two in zip_longest(left.read(), right.read()):
        if found is None and not same(one, two, exact):
            found = Apart("", one, two)
        for side, event in enumerate((one, two)):
            if event is not None:
                counts[side][event.stream, event.kind] += 1
    return found, *counts


def by_stream(left: Log, right: Log, exact: bool) -> Iterator[Apart]:
    """The first difference in each stream that has one."""
    for stream in dict.fromkeys([*left.streams(), *right.streams()]):
        for one, two in zip_longest(left.read(stream=stream), right.read(stream=stream)):
            if not same(one, two, exact):
                yield Apart(stream, one, two)
                break


def same(left: Recorded | None, right: Recorded | None, exact: bool) -> bool:
    if left is None or right is None:
        return False
    alike = (left.stream, left.version, left.event) == (right.stream, right.version, right.event)
    return alike and (not exact or (left.at, left.cause, left.read) == (right.at, right.cause, right.read))


def place(apart: Apart) -> int:
    return min((one.seq for one in (apart.left, apart.right) if one is not None), default=0)


def fewer(left: Counts, right: Counts) -> Iterator[tuple[str, str, int, int]]:
    """The streams and kinds of which the logs have unlike numbers."""
    for stream, kind in sorted({*left, *right}):
        ours, theirs = left[stream, kind], right[stream, kind]
        if ours != theirs:
            yield stream, kind, ours, theirs


def page(overall: Apart, streams: list[Apart], left: Counts, right: Counts) -> Iterator[str]:
    one_ends = overall.left is None or overall.right is None
    if one_ends:
        ended, on = ("A", "B") if overall.left is None else ("B", "A")
        more = abs(sum(left.values()) - sum(right.values()))
        yield f"{ended} ends with event {place(overall) - 1:,}: {on} goes on with {more:,} more"
    else:
        yield f"first at event {place(overall)}"
    yield from pair(overall)
    if not streams:
        yield "every stream has the same events: they interleave otherwise"
    whole = [one for one in streams if version(one) == 1 and (one.left is None or one.right is None)]
    for one in [] if one_ends else streams:
        if one not in whole:
            yield f"{printable(one.stream)} first at its version {version(one)}"
            yield from pair(one)
    for name, gone in (("A", "right"), ("B", "left")):
        if theirs := [printable(one.stream) for one in whole if getattr(one, gone) is None]:
            yield f"only {name} has {', '.join(theirs)}"
    if lines := list(fewer(left, right)):
        yield f"{'stream':<20}  {'kind':<24}  {'A':>8}  {'B':>8}"
        for stream, kind, ours, theirs in lines:
            yield f"{printable(stream):<20}  {kind:<24}  {ours:>8,}  {theirs:>8,}"


def pair(apart: Apart) -> Iterator[str]:
    """The two events, each cut where the terminal ends, and what of the one is otherwise in the other."""
    for name, one in (("A", apart.left), ("B", apart.right)):
        if one is None:
            yield f"  {name}  has no more events"
        else:
            where = f"{one.stream}@{one.version}"
            yield fitted(f"  {name}  {one.seq}  {moment(one.at)}  {printable(where)}  {one.kind}  {said(one)}")
    if told := unlike(apart):
        yield f"     A → B: {printable('; '.join(f'{name} {how}' for name, how in told.items()))}"


def unlike(apart: Apart) -> dict[str, str]:
    """The fields in which two events of one kind differ; or, where they are the same, those around them."""
    left, right = apart.left, apart.right
    if left is None or right is None or left.kind != right.kind:
        return {}
    if fields := dict(differences(left.event, right.event)):
        return fields
    around = ((name, getattr(left, name), getattr(right, name)) for name in ("at", "cause", "read"))
    return {name: f"{brief(name, one)} → {brief(name, two)}" for name, one, two in around if one != two}


def version(apart: Apart) -> int:
    return next(one.version for one in (apart.left, apart.right) if one is not None)


def rows(overall: Apart, streams: list[Apart], left: Counts, right: Counts) -> Iterator[dict[str, Any]]:
    """One row for the logs, one for each stream that differs, one for each kind of which they have unlike numbers."""
    for one in (overall, *streams):
        yield {
            "what": "stream" if one.stream else "first",
            "stream": one.stream or None,
            "kind": None,
            "a": event(one.left),
            "b": event(one.right),
            "unlike": unlike(one),
        }
    for stream, kind, ours, theirs in fewer(left, right):
        yield {"what": "count", "stream": stream, "kind": kind, "a": ours, "b": theirs, "unlike": {}}


def event(one: Recorded | None) -> dict[str, Any] | None:
    if one is None:
        return None
    return {
        "seq": one.seq,
        "at": one.at,
        "stream": one.stream,
        "version": one.version,
        "kind": one.kind,
        "said": said(one),
    }
