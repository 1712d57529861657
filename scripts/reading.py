"""The commands that read a log and ask it something: agents, owed, show, verify."""

from __future__ import annotations

import click
import msgspec

from rewake.events import Log
from rewake.projections.fold import PROJECTIONS, streams_of
from rewake.projections.verifying import verify as verification
from rewake.scripts.accounts import described, owed_in, rows_of, states
from rewake.scripts.cli import CORRUPT
from rewake.scripts.errors import Failed
from rewake.scripts.logs import agents_of, known, on_log
from rewake.scripts.tables import Form, emit, formed

at = click.option("--at", "until", type=click.IntRange(min=0), metavar="SEQ", help="As it was after this event.")


@click.command()
@on_log()
@at
@formed
def agents(form: Form, log: Log, until: int | None) -> None:
    """Show every agent of the log: what it does, its budget and what its conversation takes."""
    columns = ("agent", "state", "turn", "owed", "messages", "tokens", "budget", "summaries", "model", "since", "why")
    emit([described(state) for state in states(log, agents_of(log), until)], form, columns)


@click.command()
@on_log()
@click.option("--agent", help="This agent's only.")
@at
@formed
def owed(form: Form, log: Log, agent: str | None, until: int | None) -> None:
    """Show every wake that has not ended: its state, why, since when, and when something happens next."""
    names = [known(log, agent)] if agent else agents_of(log)
    rows = [msgspec.structs.asdict(one) for one in owed_in(log, names, until)]
    emit(rows, form, ("wake", "agent", "state", "why", "since", "next_at"))


@click.command()
@on_log("projection")
@click.option("--agent", help="This agent's only (for `gates`, this provider's).")
@at
@formed
def show(form: Form, log: Log, projection: str, agent: str | None, until: int | None) -> None:
    """Show a projection's rows: conversation, wakes, turns, holds, compression, gates, settings or host."""
    if projection not in PROJECTIONS:
        raise click.UsageError(f"There is no projection {projection!r}; there are {', '.join(PROJECTIONS)}.")
    if agent is not None and agent not in owners(log, projection):
        known(log, agent)
    emit(rows_of(log, projection, agent, until), form)


def owners(log: Log, projection: str) -> set[str]:
    return {stream.partition("/")[2] for stream in streams_of(log, projection)}


@click.command()
@on_log()
@formed
def verify(form: Form, log: Log) -> None:
    """Check the whole log: seqs, versions, causes, every event, the end of every append, and the file itself.

    Exit code 5 when something is wrong; the first bad seq and the last good one are named.
    """
    found = verification(log)
    emit([msgspec.structs.asdict(found)], form)
    if not found.ok:
        where = "" if found.first_bad_seq is None else f"event {found.first_bad_seq}: "
        raise Failed(f"{where}{found.why}; the last good event is {found.last_good_seq}", CORRUPT)
