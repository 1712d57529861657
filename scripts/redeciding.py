"""`rewake redecide` and `rewake what-if`: a log decided again, by today's code as it was, or with other settings."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from functools import reduce
from typing import Any, get_type_hints

import click
import msgspec

from rewake.actors import AgentConfig, Difference
from rewake.actors.redecide import behaviour_of, differences
from rewake.actors.supposing import UNDECIDED, configurations
from rewake.actors.whatif import what_if as first_difference
from rewake.events import InvalidSetting, Log
from rewake.projections.starting import check_all
from rewake.projections.strategies import strategy
from rewake.scripts import differing, tables
from rewake.scripts.cli import USAGE
from rewake.scripts.errors import Divergence, Failed
from rewake.scripts.logs import known, on_log
from rewake.scripts.tables import Form, formed

NOTHING_GIVEN = frozenset({"none", "null"})


@click.command()
@on_log()
@click.option("--stream", help="This actor's only: agent/ada, drain/ada, gate/anthropic, host.")
@formed
def redecide(form: Form, log: Log, stream: str | None) -> None:
    """Decide the log again: what would today's code have made of each event, in the state that its actor had?

    Strategies are imported by the names that the log has of them, from this folder too. Exit code 3 where anything comes out
    otherwise and the log is whole; 1 where a stream could not be decided.
    """
    here()
    streams = [checked(log, stream)] if stream else [one for one in log.streams() if behaviour_of(one)]
    absent = {one: why for one in streams if (why := missing(log, one))}
    found = sorted(decided(log, [one for one in streams if one not in absent]), key=lambda one: one.seq)
    if found:
        check_all(log)
    told(log, found, form)
    for one, why in absent.items():
        click.echo(f"rewake: {one}: not decided: {why}", err=True)
    if found:
        where = len({one.stream for one in found})
        raise Divergence(
            f"{len(found):,} events of {where} streams would be answered otherwise, first {found[0].seq:,}"
        )
    if absent:
        raise Failed(f"{len(absent)} of {len(streams)} streams could not be decided; the others are as they were")
    events = sum(log.version(one) for one in streams)
    click.echo(f"rewake: {len(streams)} streams, {events:,} events: all decided as they were", err=True)


def decided(log: Log, streams: list[str]) -> Iterator[Difference]:
    for one in streams:
        if behaviour := behaviour_of(one):
            yield from differences(behaviour, log)


def checked(log: Log, stream: str) -> str:
    """Raises InvalidSetting for a stream that no actor has, and for one that the log does not have."""
    if behaviour_of(stream) is None:
        raise InvalidSetting("stream", stream, "no actor has a stream of that name")
    if not log.version(stream):
        raise InvalidSetting("stream", stream, f"the log has no such stream; it has {', '.join(log.streams())}")
    return stream


def missing(log: Log, stream: str) -> str:
    """Why the stream can not be decided here: its agent's strategy is not here; empty when it can."""
    kind, _, name = stream.partition("/")
    if kind in ("agent", "drain"):
        for named in dict.fromkeys(live.strategy for live in configurations(log, name)):
            try:
                strategy(named)
            except InvalidSetting as error:
                return str(error)
    return ""


@click.command("what-if")
@on_log()
@click.option(
    "--set",
    "given",
    multiple=True,
    required=True,
    metavar="AGENT.SETTING=VALUE",
    help="What the agent is taken to have been set to all along; may be given again.",
)
@formed
def what_if(form: Form, log: Log, given: tuple[str, ...]) -> None:
    """Say at which event this log would first have gone another way with other settings, and how.

    As in: rewake what-if agents.db --set ada.context_budget_tokens=60000. Recorded changes of such a setting are as if
    they had been to that value. Exit code 3 where it would have gone another way, 0 where not.
    """
    here()
    wanted: dict[str, dict[str, Any]] = {}
    for one in given:
        agent, name, value = parsed(one)
        wanted.setdefault(known(log, agent), {})[name] = value
    try:
        tried = [first_difference(log, agent, **settings) for agent, settings in wanted.items()]
    except InvalidSetting as error:
        raise Failed(str(error), USAGE) from error
    found = sorted((one for one in tried if one), key=lambda one: one.seq)[:1]
    told(log, found, form)
    if found:
        raise Divergence(f"this log would first have gone another way after event {found[0].seq:,}")
    click.echo("rewake: this log would have gone no other way", err=True)


def parsed(given: str) -> tuple[str, str, Any]:
    """Agent, setting and value of `ada.max_tokens=1_000`. Raises BadParameter."""
    place, equals, value = given.partition("=")
    agent, dot, name = place.strip().rpartition(".")
    hints = get_type_hints(AgentConfig)
    if not (equals and dot and agent):
        raise click.BadParameter(f"{given!r}: written as AGENT.SETTING=VALUE", param_hint="--set")
    if name not in AgentConfig.__struct_fields__:
        there = ", ".join(sorted(AgentConfig.__struct_fields__))
        raise click.BadParameter(f"{given!r}: there is no setting {name!r}; there are {there}", param_hint="--set")
    if name in UNDECIDED:
        return agent, name, value
    if value.strip().lower() in NOTHING_GIVEN:
        return agent, name, None
    if name == "error_policy":
        return agent, name, imported(value)
    kind: Any = {"strategy": str, "hold_stall_after": float}.get(name, hints[name])
    try:
        return agent, name, msgspec.convert(value.replace("_", "") if numeric(value) else value, kind, strict=False)
    except (msgspec.ValidationError, TypeError) as error:
        raise click.BadParameter(f"{given!r}: {error}", param_hint="--set") from error


def numeric(value: str) -> bool:
    return value.replace("_", "").isdigit()


def imported(named: str) -> Any:
    """An error policy by `module:name`: the object, or what a class or function of that name makes."""
    module, _, path = named.partition(":")
    try:
        found: Any = reduce(getattr, path.split("."), importlib.import_module(module))
        return found() if callable(found) else found
    except Exception as error:
        said = f"{named!r} can not be imported: {type(error).__name__}: {error}"
        raise click.BadParameter(said, param_hint="--set") from error


def told(log: Log, found: list[Difference], form: Form) -> None:
    """The differences: as text on a terminal, else as rows."""
    if form != "table":
        tables.emit((differing.row(log, one) for one in found), form)
        return
    for one in found:
        for line in differing.page(log, one):
            click.echo(line)


def here() -> None:
    """What a log names is imported from the folder that the command runs in, too."""
    if (folder := os.getcwd()) not in sys.path:
        sys.path.append(folder)
