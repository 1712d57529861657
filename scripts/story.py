"""The demo's story: how each event reads, and whether the log tells it as it should be."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from rewake.events import (
    Compressed,
    CompressionRequested,
    Held,
    HoldEnded,
    HostStarted,
    InferenceCompleted,
    Log,
    Recorded,
    Refused,
    SettingChanged,
    Text,
    TurnCompleted,
    TurnStarted,
    Wake,
)
from rewake.projections import verify
from rewake.scripts.accounts import owed_in


class Cut(Struct, frozen=True):
    """Where the process was killed: the log's head then, and the hold that it was in."""

    seq: int
    held: Held


def sentence(recorded: Recorded, history: Sequence[Recorded]) -> str:
    """An event as a sentence; empty for those that the story leaves out."""
    holding = any(isinstance(one.event, Held) for one in history)
    match recorded.event:
        case HostStarted(version, epoch):
            return f"a process with rewake {version} has opened the log, the {nth(epoch)} one"
        case TurnCompleted() if not holding:
            return ""
        case TurnCompleted(turn):
            return f"{turn} is completed"
        case SettingChanged(name, old, new):
            turns = sum(1 for one in history if isinstance(one.event, TurnCompleted))
            return f"{turns} turns of history are answered; {name} is cut from {old or 'none'} to {new:,}"
        case Wake(id=wake, author=author, channel=channel) if channel:
            return f"{author} asks by {channel}: {wake}" + (", which joins the hold" if holding else "")
        case Refused(turn, tokens=tokens, room=room):
            return f"{turn} does not fit: {tokens:,} tokens against {room:,}"
        case Held(turn):
            return f"{turn} is held until compression has made room"
        case CompressionRequested(work):
            return f"a summary of {len(work.sources)} messages is asked for"
        case Compressed(_, work, _, tokens):
            return f"{len(work.sources)} messages, {work.tokens:,} tokens, have a summary of {tokens}"
        case HoldEnded(turn, why, waited):
            return f"the hold of {turn} is over ({why}) after {waited / 1_000:.1f} s"
        case TurnStarted(wakes, turn, attempt) if attempt > 1:
            return f"{turn} starts again, attempt {attempt}, for {' and '.join(wakes)}"
        case InferenceCompleted(_, blocks) if holding:
            text = " ".join(block.text for block in blocks if isinstance(block, Text))
            return f"ada answers: {text}"
        case _:
            return ""


def nth(epoch: int) -> str:
    return {1: "first", 2: "second"}.get(epoch, f"{epoch}th")


def faults(log: Log, cut: Cut) -> list[str]:
    """What of the story the log does not tell; empty when it came out."""
    events = list(log.read())
    after = [one.event for one in events if one.seq > cut.seq]
    turn = cut.held.turn
    wakes = tuple(one.event.id for one in events if isinstance(one.event, Wake) and one.event.channel)
    again = [event for event in after if isinstance(event, TurnStarted)]
    holds = {(one.event.since, one.event.until) for one in events if isinstance(one.event, Held)}
    told = {
        "two processes have written": sum(isinstance(one.event, HostStarted) for one in events) == 2,
        "no wake came after the kill": not any(isinstance(event, Wake) for event in after),
        "the turn was not answered before": not any(
            isinstance(one.event, TurnCompleted) and one.event.turn == turn for one in events if one.seq <= cut.seq
        ),
        "the hold kept its times": holds == {(cut.held.since, cut.held.until)},
        "the hold ended because it fits": any(isinstance(one, HoldEnded) and one.why == "fit" for one in after),
        "the turn went on for both wakes": bool(again) and {(one.turn, one.wakes) for one in again} == {(turn, wakes)},
        "the turn was answered once": [one.turn for one in after if isinstance(one, TurnCompleted)] == [turn],
        "nothing is owed": not owed_in(log, ["ada"]),
        "the log is whole": verify(log).ok,
    }
    return [f"not so: {what}" for what, so in told.items() if not so]
