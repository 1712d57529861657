"""The commands that read a log and ask it something: agents, owed, show, verify."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import click
import msgspec

from rewake.actors.drain import standing
from rewake.events import Log
from rewake.events.errors import keeping
from rewake.projections import turns, usage, wakes
from rewake.projections.fold import PROJECTIONS, streams_of
from rewake.projections.verifying import Verification
from rewake.projections.verifying import verify as verification
from rewake.scripts.accounts import described, drain_of, owed_in, quarantined_in, rows_of, states, waited_for
from rewake.scripts.cli import CORRUPT
from rewake.scripts.errors import Failed
from rewake.scripts.logs import agents_of, known, on_log, told_when_unwritten
from rewake.scripts.tables import NARROW, Form, Rows, columns, emit, formed

AGENTS = ("agent", "state", "turn", "owed", "messages", "tokens", "budget", "summaries", "model", "since", "why")
BRIEFLY = ("agent", "state", "turn", "owed", "tokens", "budget", "since", "why")
"""What of an agent a terminal of fewer than `FULL` columns of text has room for; a narrow one not for its tokens either."""
FULL = 150
ROOMY = ("tokens", "budget")
OWED = ("wake", "agent", "state", "why", "since", "next_at", "ends")

SHOWN: Mapping[str, Sequence[str]] = {
    "conversation": ("place", "role", "text", "tokens", "turn"),
    "wakes": ("wake", "state", "turn", "at", "reason", "why"),
    "turns": ("turn", "state", "since", "ended", "attempts", "steps", "wakes"),
    "holds": ("turn", "since", "until", "ended", "looks", "tokens", "room", "why"),
    "compression": ("state", "first", "last", "source_tokens", "tokens", "text"),
    "gates": ("provider", "model", "state", "since", "until", "n", "why"),
    "settings": ("name", "value"),
    "host": ("epoch", "version", "running", "since", "quiesced", "max_in_flight", "parked", "troubled"),
    "calibration": ("key", "multiplier", "accepted", "rejected", "provisional"),
    "usage": ("turn", "model", "input", "output", "cached"),
    "undo": ("turn", "version", "branch"),
    "alerts": ("kind", "turn", "posted_at"),
}
"""The columns of each projection's table; JSON and CSV have all."""

NEWEST: Mapping[str, tuple[int, str]] = {
    "turns": (turns.RECENT, "SELECT * FROM v_turns"),
    "usage": (usage.RECENT, "SELECT * FROM v_calls"),
    "wakes": (wakes.RECENT, "SELECT * FROM events WHERE kind = 'wake'"),
}
"""How many rows of what has ended a projection keeps of each agent, and what asks for all."""

at = click.option("--at", "until", type=click.IntRange(min=0), metavar="SEQ", help="As it was after this event.")


@click.command()
@on_log()
@at
@formed
def agents(form: Form, log: Log, until: int | None) -> None:
    """Show every agent of the log: what it does, its budget and what its conversation takes."""
    found = states(log, agents_of(log), until)
    rows = [described(state, waited_for(log, state, until)) for state in found]
    width = columns() if form == "table" else FULL
    emit(rows, form, AGENTS if width >= FULL else [one for one in BRIEFLY if width >= NARROW or one not in ROOMY])
    told_when_unwritten(log, until)


@click.command()
@on_log()
@click.option("--agent", help="This agent's only.")
@at
@formed
def owed(form: Form, log: Log, agent: str | None, until: int | None) -> None:
    """Show every wake that has not ended: its state, why, since when, when something happens next, and what ends the wait.

    Stretches of history that compression gave up have rows too, without a wake.
    """
    names = [known(log, agent)] if agent else agents_of(log)
    rows = [msgspec.structs.asdict(one) for one in owed_in(log, names, until)]
    narrow = form == "table" and columns() < NARROW
    emit([*rows, *quarantined_in(log, names, until)], form, OWED[:-1] if narrow else OWED)
    told_when_unwritten(log, until)


@click.command()
@on_log(projection=tuple(PROJECTIONS))
@click.option("--agent", help="This agent's only (for `gates`, this provider's).")
@at
@formed
def show(form: Form, log: Log, projection: str, agent: str | None, until: int | None) -> None:
    if agent is not None and agent not in owners(log, projection):
        known(log, agent)
    rows = list(rows_of(log, projection, agent, until))
    if projection == "host" and told_when_unwritten(log, until):
        rows = [row | {"running": False} for row in rows]
    emit(rows, form, names_of(projection, rows) if form == "table" else None)
    if told := left_out(projection, rows):
        click.echo(f"rewake: {told}", err=True)
    if projection == "compression":
        for name in [agent] if agent else agents_of(log):
            click.echo(f"rewake: {name}: {standing(drain_of(log, name, until)).told}", err=True)


show.help = f"Show a projection's rows: {', '.join(PROJECTIONS)}."


def left_out(projection: str, rows: Rows) -> str:
    """That a projection may have forgotten what ended long ago, and where that is; empty when it has not."""
    most, sql = NEWEST.get(projection, (0, ""))
    many = Counter(row.get("agent") for row in rows)
    if not most or max(many.values(), default=0) < most:
        return ""
    return f'of each agent this has the newest {most} that ended; all are in: rewake query LOG "{sql}"'


def names_of(projection: str, rows: Rows) -> Sequence[str] | None:
    """The columns of a projection's table; the agent's name when there are several."""
    several = len({row.get("agent") for row in rows}) > 1
    names = SHOWN.get(projection)
    return ("agent", *names) if names and several else names


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
        raise Failed(said(found, log.path), CORRUPT)


def said(found: Verification, path: str) -> str:
    """What is wrong with a log, and how to keep what is good."""
    where = "" if found.first_bad_seq is None else f"event {found.first_bad_seq}: "
    good = found.last_good_seq
    return f"{where}{found.why}; the last good event is {good}{keeping(path, good)}"
