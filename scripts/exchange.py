"""The commands that take a log out and put it in: export, import, backup."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import BinaryIO

import click

from rewake.events import Log, backup
from rewake.events.copies import fresh
from rewake.projections.exchange import export as exported
from rewake.projections.exchange import import_ as imported
from rewake.projections.exchange import whole
from rewake.projections.verifying import verify
from rewake.scripts.cli import CORRUPT
from rewake.scripts.errors import Failed
from rewake.scripts.logs import on_log, reading, split, told_when_short
from rewake.scripts.reading import said


@click.command()
@click.argument("places", nargs=-1, metavar="[LOG] [FILE|-]")
@click.option("--until", type=click.IntRange(min=0), metavar="SEQ", help="The events up to this one.")
def export(places: tuple[str, ...], until: int | None) -> None:
    """Write the log as JSON lines, to stdout or a new FILE: a header, then every event whole.

    Every event is checked, and an append is exported whole or not at all.
    """
    path, _ = split(places[:1], {})
    file, *more = places[1:] or ["-"]
    if more:
        raise click.UsageError(f"Got unexpected extra argument ({more[0]})")
    with reading(path) as log:
        head = log.head()
        asked = head if until is None else min(until, head)
        last = whole(log, asked)
        with written(file) as out:
            out.writelines(exported(log, until=last))
        if until is None:
            told_when_short(log)
    if last < asked:
        click.echo(
            f"rewake: from event {last + 1} on nothing is exported: its append ends behind event {asked}", err=True
        )


@contextmanager
def written(file: str) -> Generator[BinaryIO]:
    """A file that is there once all of it is written, or stdout."""
    if file == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with fresh(file) as made, open(made, "wb") as out:
        yield out


@click.command("import")
@click.argument("new", metavar="NEW.db")
@click.argument("file", default="-", metavar="[FILE|-]")
def import_(new: str, file: str) -> None:
    """Make a new log of exported lines, from stdin or FILE: the same events, seq by seq.

    Lines that were cut are taken up to their last whole append, and that is said; of damaged ones nothing is kept.
    """
    with opened(file) as lines:
        made = imported(lines, new, name="stdin" if file == "-" else file)
    click.echo(f"rewake: {new} has {made.events:,} events", err=True)
    if made.missing:
        click.echo(f"rewake: the export was cut: the last {made.missing:,} of its events are missing", err=True)


def opened(file: str) -> AbstractContextManager[BinaryIO]:
    return nullcontext(sys.stdin.buffer) if file == "-" else open(file, "rb")


@click.command("backup")
@on_log(out=())
def backup_(log: Log, out: str) -> None:
    """Copy the log, also while it is written, into the new file OUT, once the copy has been checked."""
    with fresh(out) as made:
        backup(log.path, made)
        with reading(made) as copy:
            found = verify(copy)
        if not found.ok:
            raise Failed(f"{out}: {said(found, log.path)}", CORRUPT)
    click.echo(f"rewake: {out} has {found.last_good_seq:,} events", err=True)
