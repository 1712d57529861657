"""Decide a log again: what would today's code have made of each event, with the state that its actor had?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from rewake.actors import snapshots
from rewake.actors.agent import agent
from rewake.actors.behaviour import Behaviour, Position, fold
from rewake.actors.drain import drain
from rewake.actors.gate import gate
from rewake.actors.host import host
from rewake.actors.incarnation import followed
from rewake.events import Event, InvalidSetting, Log, Recorded
from rewake.events.base import identified
from rewake.events.codec import encode


class Difference(Struct, frozen=True):
    """To the event at `seq` one answer was `recorded`, and another would be given `now`: events as JSON, in order.

    `state` is the digest of the state that its actor had, the event folded in; `stream` that actor's.
    """

    seq: int
    recorded: tuple[str, ...]
    now: tuple[str, ...]
    state: str
    stream: str = ""


def redecide(log: Log, *, stream: str | None = None) -> list[Difference]:
    """Where today's code would answer an event otherwise than it was answered, in the order of the log.

    Of one actor's `stream`, or of all actors that this version has. What an actor had read, but wrote nothing after, can
    not be checked. Raises InvalidSetting for a stream that no actor has.
    """
    if stream is not None and behaviour_of(stream) is None:
        raise InvalidSetting("stream", stream, "no actor has a stream of that name")
    actors = [behaviour_of(name) for name in ([stream] if stream else log.streams())]
    found = [one for actor in actors if actor for one in differences(actor, log)]
    return sorted(found, key=lambda one: one.seq)


def differences(behaviour: Behaviour[Any], log: Log) -> Iterator[Difference]:
    """One actor's: its stream in one pass, and every event that it had read before each of its own."""
    own = list(log.read(stream=behaviour.stream))
    children: dict[int | None, list[Recorded]] = defaultdict(list)
    for recorded in own:
        children[recorded.cause].append(recorded)
    here = Position(behaviour.initial())
    for recorded in consumed(behaviour, log, own):
        fold(behaviour, here, recorded)
        if difference := compared(behaviour, here, recorded, children.get(recorded.seq, ())):
            yield difference


def consumed(behaviour: Behaviour[Any], log: Log, own: Sequence[Recorded]) -> Iterator[Recorded]:
    """The events as the actor took them in: those that it follows, up to what each of its own says it had read."""
    feed = followed(behaviour, log, 0, max((recorded.read for recorded in own), default=0))
    waiting = next(feed, None)
    for recorded in own:
        while waiting and waiting.seq <= recorded.read:
            yield waiting
            waiting = next(feed, None)
        yield recorded


def compared(
    behaviour: Behaviour[Any], here: Position[Any], recorded: Recorded, children: Sequence[Recorded]
) -> Difference | None:
    """What today's `react` makes of the event, against the children that it has in the log."""
    then = tuple(encode(child.event).decode() for child in children)
    now = answered(behaviour, here, recorded, children)
    if then == now:
        return None
    return Difference(recorded.seq, then, now, snapshots.digest(here.state), behaviour.stream)


def answered(
    behaviour: Behaviour[Any], here: Position[Any], recorded: Recorded, children: Sequence[Recorded]
) -> tuple[str, ...]:
    """Today's answer as JSON, each event named by the version that the one in its place has; or what is raised."""
    try:
        events: list[Event] = list(behaviour.react(here.state, recorded))
    except Exception as error:
        return (f"raises {type(error).__name__}: {error}",)
    for index, child in enumerate(children[: len(events)]):
        events[index] = identified(events[index], behaviour.stream, child.version)
    return tuple(encode(event).decode() for event in events)


def behaviour_of(stream: str) -> Behaviour[Any] | None:
    """The actor of a stream; none for a stream of another program's."""
    kind, _, name = stream.partition("/")
    match kind:
        case "agent" if name:
            return agent(name)
        case "drain" if name:
            return drain(name)
        case "gate" if name:
            return gate(name)
        case "host" if not name:
            return host()
        case _:
            return None


__all__ = ["Difference", "behaviour_of", "differences", "redecide"]
