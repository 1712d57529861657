"""Which log a command reads: its argument, or the one that REWAKE_LOG names."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click

from rewake.events import Log, UnknownAgent, open_log
from rewake.events.acknowledged import Acknowledged
from rewake.events.opening import written
from rewake.projections.starting import locating

VARIABLE = "REWAKE_LOG"


def on_log(**required: Sequence[str]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command its log, open for reading, as `log`, and its required arguments by their names: what each may be, or
    nothing where it may be anything.

    They are counted from the right: what is left of them is the log.
    """
    shape = " ".join(["[LOG]", *(name.upper() for name in required)])

    def with_log(command: Callable[..., Any]) -> Callable[..., Any]:
        @click.argument("places", nargs=-1, metavar=shape)
        @functools.wraps(command)
        def opened(*args: Any, places: tuple[str, ...], **options: Any) -> Any:
            path, values = split(places, required)
            with reading(path) as log:
                command(*args, log=log, **values, **options)
                told_when_short(log)

        return opened

    return with_log


def split(places: tuple[str, ...], required: Mapping[str, Sequence[str]]) -> tuple[str, dict[str, str]]:
    """The log's path, and the required arguments by name. Raises UsageError."""
    cut = len(places) - len(required)
    named = dict(zip(reversed(list(required)), reversed(places), strict=False))
    for name, allowed in required.items():
        if name not in named or (cut == 0 and named[name] not in allowed and is_log(named[name])):
            those = f": one of {', '.join(allowed)}" if allowed else ""
            raise click.UsageError(f"Missing argument '{name.upper()}'{those}.")
        if allowed and named[name] not in allowed:
            raise click.UsageError(f"There is no {name} {named[name]!r}; there are {', '.join(allowed)}.")
    logs = places[:cut]
    if len(logs) > 1:
        raise click.UsageError(f"Got unexpected extra argument ({places[-1]})")
    path = logs[0] if logs else os.environ.get(VARIABLE, "")
    if not path:
        raise click.UsageError(f"Missing argument 'LOG': name a log, or set {VARIABLE}.")
    return path, named


def is_log(place: str) -> bool:
    """Whether an argument must have been meant as the log."""
    return not os.environ.get(VARIABLE) or os.path.exists(place)


@contextmanager
def reading(path: str) -> Generator[Log]:
    """The log at a path, open for reading only. Raises NotALog; what the block can not make sense of, LogCorrupt."""
    log = open_log(os.path.abspath(path) if path == ":memory:" else path, readonly=True)
    try:
        with locating(log):
            yield log
    finally:
        log.close()


def told_when_short(log: Log) -> None:
    """Say so when events that were acknowledged are not there, or none at all: whatever was shown is of an earlier time."""
    note = Acknowledged(log.path)
    known, head = note.seq(), log.head()
    if why := note.lost(head, known):
        click.echo(f"rewake: {log.path}: {why}; `rewake verify` says what is good", err=True)
    elif not head:
        why = "never written, or copied without its -wal; `rewake backup` copies a log in use"
        click.echo(f"rewake: {log.path} has no events: {why}", err=True)


def told_when_unwritten(log: Log, until: int | None) -> bool:
    """Say so when no process writes the log: it tells what was running, not what is. Of an earlier seq nothing is said."""
    if unwritten := until is None and not written(log.path):
        click.echo("rewake: no process writes this log: nothing runs until one starts", err=True)
    return unwritten


def agents_of(log: Log) -> list[str]:
    """The names of a log's agents, in the order of their starts."""
    return [stream.removeprefix("agent/") for stream in log.streams() if stream.startswith("agent/")]


def known(log: Log, agent: str) -> str:
    """The agent's name, if the log has it. Raises UnknownAgent."""
    if agent not in (names := agents_of(log)):
        there = ", ".join(names) if names else "none"
        raise UnknownAgent(agent, f"the log has no agent of that name; it has {there}")
    return agent
