"""`rewake replay`: each event of a log, and what it changed in each projection."""

from __future__ import annotations

import click

from rewake.events import Log
from rewake.scripts import stepping, tables
from rewake.scripts.changes import owner, page, replayed
from rewake.scripts.logs import known, on_log
from rewake.scripts.tables import Form, formed
from rewake.scripts.tailing import row


@click.command()
@on_log()
@click.option("--agent", help="The stream of this agent and of its drain only.")
@click.option("--after", type=click.IntRange(min=0), default=0, show_default=True, help="Show what is behind this seq.")
@click.option("--at", "until", type=click.IntRange(min=0), metavar="SEQ", help="Up to this seq.")
@click.option("--step", is_flag=True, help="Walk through the log on a terminal, forward and back; ? lists the keys.")
@formed
def replay(form: Form, log: Log, agent: str | None, after: int, until: int | None, step: bool) -> None:
    """Fold the log event by event and show what each one changed. Nothing is called, nothing is written.

    Where --step has no terminal to be walked on, it writes what it would without.
    """
    if agent:
        known(log, agent)
    if step and stepping.attended():
        stepping.walk(log, agent, after, until)
        return
    steps = replayed(log, until, after)
    wanted = ((one, changed) for one, changed in steps if agent is None or owner(one.stream) == agent)
    if form != "table":
        tables.emit((row(recorded) | {"changed": changed} for recorded, changed in wanted), form)
        return
    for recorded, changed in wanted:
        for line in page(recorded, changed):
            click.echo(line)
