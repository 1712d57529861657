"""`rewake why`: the whole story of a wake or a turn, on a page."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from rewake.events import Log
from rewake.scripts.cli import USAGE
from rewake.scripts.errors import Failed
from rewake.scripts.histories import Story, TurnStory, WakeStory, story
from rewake.scripts.logs import known, on_log, told_when_unwritten
from rewake.scripts.planned import lines as plan_lines
from rewake.scripts.tables import json, moment, printable

OWN = ("", "push", "wake")
"""Sources that say no more than that somebody called."""
ID = re.compile(r"[^/]+/(wake|turn)/[0-9]{1,18}")


@click.command()
@on_log(id=())
@click.option("--at", "until", type=click.IntRange(min=0), metavar="SEQ", help="As it was after this event.")
@click.option(
    "-t", "--table", "as_json", flag_value=False, type=bool, help="A page of text: so too where none is given."
)
@click.option("--nl", "as_json", flag_value=True, type=bool, help="One line of JSON.")
@click.option("--json", "as_json", flag_value=True, type=bool, help="The same.")
def why(log: Log, id: str, until: int | None, as_json: bool | None) -> None:
    """Tell the whole story of a wake or a turn (ada/wake/9, ada/turn/10): why it runs, waits, or ended as it did.

    When it was accepted and from where, every attempt, what the model was shown and why that fitted or did not, calls, tools,
    waits; for what has not ended, what it waits for and until when. It is a page, on a terminal or not; a story
    has no rows, so there is no CSV of it.
    """
    if not ID.fullmatch(id):
        raise Failed(f"{id} is no id of a wake or a turn: they look like ada/wake/9 and ada/turn/10", USAGE)
    known(log, id.partition("/")[0])
    try:
        found = story(log, id, until)
    except LookupError as error:
        raise Failed(str(error)) from error
    if as_json:
        click.echo(json(found))
    else:
        for line in page(found):
            click.echo(printable(line))
    told_when_unwritten(log, until)


def page(found: Story) -> Iterator[str]:
    """A story as lines of text."""
    for wake in found.wakes:
        yield from wake_lines(wake)
    for turn in found.turns:
        yield from turn_lines(turn)


def wake_lines(wake: WakeStory) -> Iterator[str]:
    yield f"{wake.id}: {wake.state}"
    what = "a message" if wake.message else "a wake"
    whence = [f"by {wake.author}" if wake.author else "", f"on {wake.channel}" if wake.channel else ""]
    whence += [f"from {wake.source}" if wake.source not in OWN else "", "" if wake.addressed else "not addressed"]
    told = ", ".join(one for one in whence if one)
    text = wake.text or wake.reason
    yield f"  accepted {moment(wake.at)}, event {wake.seq}: {what}{f' {told}' if told else ''}: {text}"
    if wake.turns:
        yield f"  taken by {', '.join(wake.turns)}"
    yield from stands(wake.why, wake.next_at, wake.ends)


def turn_lines(turn: TurnStory) -> Iterator[str]:
    yield f"{turn.id}: {turn.state}"
    for step in turn.steps:
        yield f"  {moment(step.at)}  {step.seq:>6}  {step.text}"
        for line in plan_lines(step.plan) if step.plan else ():
            yield " " * 38 + line
    yield from stands(turn.why, turn.next_at, turn.ends)


def stands(why: str, next_at: int | None, ends: str) -> Iterator[str]:
    """What something waits for, until when, and what ends that; or why it ended."""
    if why:
        yield f"  {why}" if next_at is None else f"  {why}; next at {moment(next_at)}"
    if ends:
        yield f"  that ends with: {ends}"
