"""`rewake replay --step`: a walk through a log on a terminal, one key a step."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click
import msgspec

from rewake.events import Log, Recorded
from rewake.scripts.accounts import described
from rewake.scripts.changes import owner, page
from rewake.scripts.tables import fitted, printable, shown
from rewake.scripts.tailing import row, value
from rewake.scripts.walking import STOPS, Step, Walk

FORWARD = frozenset({"n", " ", "\r", "\n", "j", "\x1b[C", "\x1b[B"})
BACK = frozenset({"p", "b", "k", "\x7f", "\x1b[D", "\x1b[A"})
QUIT = frozenset({"q", "\x1b", "\x04", "\x03", ""})
JUMPS = {stop[0]: stop for stop in STOPS}

KEYS = """\
  n, space, enter, right   the next event           p, b, left   the one before
  h  r  c  f               the next hold, refusal, crash, failure
  H  R  C  F               the last one before
  g                        go to a seq              0  $         the first event, the last
  e                        the whole event          s            the agent's whole state
  a                        walk one agent's events, or all again
  ?                        these keys               q            leave\
"""


def attended() -> bool:
    """Whether somebody is at a terminal to walk."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def walk(log: Log, name: str | None, after: int = 0, until: int | None = None) -> None:
    """Show the first event, then what each key asks for, until `q` or the end of the input."""
    way = Walk(log, name)
    if until is not None:
        way.head = min(way.head, until)
    step = way.near(after)
    if step is None:
        click.echo("rewake: there are no events to walk", err=True)
        return
    show(step, name)
    click.echo("? lists the keys", err=True)
    while (key := pressed()) not in QUIT:
        step = moved(way, step, key)


def pressed() -> str:
    try:
        return click.getchar()
    except (EOFError, KeyboardInterrupt):
        return "q"


def moved(way: Walk, step: Step, key: str) -> Step:
    """The event that a key leads to, shown; the same where there is none, which is said."""
    seq = step.recorded.seq
    match key:
        case "?":
            click.echo(KEYS)
            return step
        case "e" | "s":
            for line in event_lines(step.recorded) if key == "e" else state_lines(step, way.name):
                click.echo(line)
            return step
        case "a":
            way.name = None if way.name else owner(step.recorded.stream) or None
            click.echo(f"walking {way.name or 'all'}'s events" if way.name else "walking all events")
            return step
        case _ if key in FORWARD:
            found, what = way.near(seq), "the log ends here"
        case _ if key in BACK:
            found, what = way.near(seq, forward=False), "the log begins here"
        case _ if key.lower() in JUMPS:
            stop, forward = JUMPS[key.lower()], key.islower()
            found, what = way.jump(seq, stop, forward), f"no {stop} {'after' if forward else 'before'} this"
        case "g":
            found, what = way.at(wanted(seq)), f"the log has the events 1 to {way.head:,}"
        case "0" | "$":
            found, what = way.near(0) if key == "0" else way.near(way.head + 1, forward=False), "there is none"
        case _:
            click.echo("? lists the keys")
            return step
    if found is None or found.recorded.seq > way.head:
        click.echo(what)
        return step
    show(found, way.name)
    return found


def wanted(seq: int) -> int:
    """The seq that is typed; the present one where nothing is."""
    try:
        return click.prompt("seq", type=int, default=seq)
    except click.Abort:
        return seq


def show(step: Step, name: str | None) -> None:
    """An event, what it changed, and how its agent stands after it."""
    for line in page(step.recorded, step.changed):
        click.echo(line)
    if brief := standing(step, name or owner(step.recorded.stream)):
        click.echo(fitted(f"        → {printable(brief)}"))


def standing(step: Step, name: str) -> str:
    """The agent in a line; empty for an event of none, and before its start."""
    state = step.agent(name) if name else None
    if state is None:
        return ""
    row = described(state, step.drain(name))
    turn = f" in {row['turn']}" if row["turn"] else ""
    why = f": {row['why']}" if row["why"] else ""
    size = f"{row['messages']} messages, {row['tokens']:,} tokens, {row['summaries']} summaries"
    return f"{name} is {row['state']}{turn}, {row['owed']} owed, {size}{why}"


def event_lines(recorded: Recorded) -> Iterator[str]:
    """The event as it is in the log, a line a field."""
    fields = row(recorded)
    fields |= msgspec.json.decode(fields.pop("data"))
    return (f"        {name:<14} {printable(value(field))}" for name, field in fields.items())


def state_lines(step: Step, walked: str | None) -> Iterator[str]:
    """The agent's state as the event left it, a line a field."""
    name = walked or owner(step.recorded.stream)
    state = step.agent(name) if name else None
    if state is None:
        yield "        this is the event of no agent that has started"
        return
    for field, told in described(state, step.drain(name)).items():
        yield f"        {field:<10} {shown(field, told)}"
