"""`rewake run --chat`: one agent in a terminal."""

from __future__ import annotations

import click

from rewake.actors import Result, Runtime
from rewake.events import RewakeError
from rewake.scripts.tables import moment, printable

PATIENCE = 1.0
"""Seconds after which the terminal is told why an answer is late, each time that the reason changes."""


def converse(runtime: Runtime, agent: str) -> None:
    """Say what is typed to the agent and show its answers, until the end of input or an interrupt."""
    with runtime as rt:
        rt.owed(agent)
        click.echo(f"{agent} listens; an empty line or Ctrl-D ends.", err=True)
        try:
            while said := asked():
                exchange(rt, agent, said)
        except KeyboardInterrupt:
            click.echo("", err=True)
        left = rt.stop().pending
    if left:
        click.echo(f"still owed: {' '.join(left)}", err=True)


def asked() -> str:
    """What was typed; empty at the end."""
    try:
        return input("> ").strip()
    except EOFError:
        return ""


def exchange(rt: Runtime, agent: str, said: str) -> None:
    try:
        receipt = rt.push(agent, said, channel="terminal")
    except RewakeError as error:
        click.echo(str(error), err=True)
        return
    told = ""
    while not (result := rt.result(receipt, PATIENCE)).ended:
        if late(result) != told:
            told = late(result)
            click.echo(told, err=True)
    click.echo("\n".join(printable(line) for line in (result.text or late(result)).splitlines()))


def late(result: Result) -> str:
    until = f", until {moment(result.next_at)}" if result.next_at else ""
    return f"({result.state}: {result.why or result.turn}{until})"
