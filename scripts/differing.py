"""Two answers to one event in words: what was recorded, what would be, and how the one differs from the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from rewake.actors.redecide import Difference
from rewake.events import (
    Compiled,
    CompressionRequested,
    DrainPassed,
    Event,
    Held,
    HoldDue,
    HoldEnded,
    HoldLooked,
    InferenceFailed,
    InferenceRequested,
    Log,
    MessageAdded,
    Recorded,
    Refused,
    ToolReturned,
    UndoPoint,
)
from rewake.events.codec import decode
from rewake.scripts.changes import brief
from rewake.scripts.sentences import plainly, requested
from rewake.scripts.tables import moment, printable

NOTHING = "nothing"
LONGEST = 200
"""Characters of a field's value that are shown beside the other."""


def row(log: Log, found: Difference) -> dict[str, Any]:
    """A difference as a program reads it; the events are JSON, an exception is its text."""
    about = at(log, found.seq)
    return {
        "seq": found.seq,
        "at": about.at if about else None,
        "stream": found.stream,
        "kind": about.kind if about else None,
        "how": how(found),
        "recorded": [json(one) for one in found.recorded],
        "now": [json(one) for one in found.now],
        "state": found.state,
    }


def page(log: Log, found: Difference) -> Iterator[str]:
    """A difference as lines of text."""
    about = at(log, found.seq)
    where = f"{about.kind} ({moment(about.at)})" if about else "its beginning"
    yield f"{found.stream}, event {found.seq}, {where}: {how(found)}"
    yield f"  recorded: {words(found.recorded)}"
    yield f"  now:      {words(found.now)}"
    yield f"  its state then: {found.state}"


def how(found: Difference) -> str:
    """The first thing that differs, in a few words."""
    then, now = events(found.recorded), events(found.now)
    ours = next((place for place in range(len(now)) if place >= len(then) or then[place] != now[place]), len(now))
    old, new = (one[ours] if ours < len(one) else None for one in (then, now))
    match old, new:
        case _, str():
            return "today's code raises"
        case Compiled(), Refused():
            return "it would have been refused"
        case Refused(), Compiled():
            return "it would not have been refused"
        case Refused(), Refused():
            return "it would have been refused otherwise"
        case Compiled(), Compiled():
            return "it would have been shown another plan"
        case CompressionRequested(), CompressionRequested() if old.work != new.work:
            return "it would have summarised something else"
        case InferenceRequested(), InferenceRequested():
            return f"it would have asked otherwise: {fields(old, new)}"
        case HoldLooked() | None, HoldEnded(why=why):
            return f"its hold would have ended: {why}"
        case HoldEnded(), HoldLooked():
            return "its hold would have gone on"
        case _, None:
            return f"there would have been no {kind(old)}" if old else "there is no difference"
        case None, _:
            return f"there would have been: {kind(new)}"
        case _ if type(old) is type(new):
            return f"another {kind(new)}: {fields(old, new)}"
        case _:
            return f"{kind(new)} instead of {kind(old)}"


def kind(event: Event | str | None) -> str:
    return event.kind.replace("_", " ") if isinstance(event, Event) else str(event)


def fields(old: Any, new: Any) -> str:
    """The fields that differ between two events of one kind."""
    names = [name for name in old.__struct_fields__ if getattr(old, name) != getattr(new, name)]
    both = ((name, *(brief(name, getattr(one, name), LONGEST) for one in (new, old))) for name in names)
    return ", ".join(f"{name} {now} instead of {then}" for name, now, then in both)


def words(answer: Sequence[str]) -> str:
    """An answer's events as sentences."""
    return printable("; ".join(sentence(one) for one in events(answer))) or NOTHING


def sentence(event: Event | str) -> str:
    match event:
        case str():
            return event
        case InferenceRequested():
            return f"{requested(event)}, a reply of at most {event.max_tokens:,}"
        case InferenceFailed(call, error, retry_ms=wait):
            return f"{call} failed: {error.told}; " + (
                "no retry" if wait is None else f"again after {wait / 1_000:g} s"
            )
        case Held(wakes=wakes, until=until):
            return f"held until {moment(until)} at the latest, for {', '.join(wakes)}"
        case ToolReturned(call, result=result, excerpt_chars=shown):
            cut = f", an excerpt of {shown:,} shown" if shown else ", shown whole"
            return f"{call} returned {len(result):,} characters{cut}"
        case Compiled(plan=plan):
            return f"{plainly(event)}: {', '.join(f'{one.first} to {one.last} at level {one.level}' for one in plan)}"
        case CompressionRequested(work, provider, model):
            return f"asks {provider}/{model} for a level-{work.level} summary of {work.first} to {work.last}"
        case DrainPassed(made, pending, why):
            return f"a pass of compression ends ({why}) with {made} made" + (", more to do" if pending else "")
        case HoldDue(turn, what):
            return f"the hold of {turn} comes to its end ({what})"
        case HoldLooked(tokens=tokens):
            return f"looked at: {tokens:,} tokens do not fit yet"
        case HoldEnded(turn, why):
            return f"the hold of {turn} ends ({why})"
        case MessageAdded() | UndoPoint():
            return plainly(event) or kind(event)
        case _:
            return plainly(event)


def events(answer: Sequence[str]) -> list[Event | str]:
    """An answer's events; what was raised is a text."""
    return [event(one) for one in answer]


def event(text: str) -> Event | str:
    if not text.startswith("{"):
        return text
    return decode(msgspec.json.decode(text)["kind"], text)


def json(text: str) -> Any:
    return msgspec.Raw(text.encode()) if text.startswith("{") else text


def at(log: Log, seq: int) -> Recorded | None:
    return next(log.read(seq - 1, until=seq), None) if seq else None
