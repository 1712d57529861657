"""A log decided again as if an agent had had other settings: where would it first have gone another way?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from rewake.actors import snapshots
from rewake.actors.agent import agent as agent_of
from rewake.actors.behaviour import Behaviour, Due, Key, Position, Timer, fold
from rewake.actors.drain import drain
from rewake.actors.excerpts import excerpt
from rewake.actors.incarnation import followed
from rewake.actors.redecide import Difference, consumed
from rewake.actors.supposing import Supposed, supposed
from rewake.events import (
    Alerted,
    Compiled,
    DrainDue,
    Event,
    HoldDue,
    HostStarted,
    InferenceFailed,
    Log,
    Millis,
    Recorded,
    Refused,
    RetryDue,
    SettingChanged,
    ToolReturned,
    TurnPrepared,
)
from rewake.events.base import identified
from rewake.events.codec import encode
from rewake.projections.gates import closes_gate
from rewake.projections.pricing import count_tokens

TIMES = (HoldDue, RetryDue, DrainDue)
"""What a timer that has come due is embodied as."""


def what_if(log: Log, agent: str, **settings: Any) -> Difference | None:
    """Where this log would first have gone another way, had the agent had these settings; None: nowhere.

    The names are AgentConfig's. They hold from the agent's start to the log's end: a recorded change of one of them is as if
    it had been to the value given. The agent's own events and its drain's are decided again in the states that they had, up
    to the first that comes out otherwise: what follows from that one is in no log. So does a time that would have come, or
    not, told at the event before it. What differs only in the room that a plan or a refusal had is no other way, nor is what
    today's code decides otherwise with the recorded settings too.

    Raises UnknownAgent, and InvalidSetting for what can not be or what no log can answer (tools, `context=`, ...).
    """
    suppose = supposed(log, agent, settings)
    actors: tuple[Behaviour[Any], ...] = (agent_of(agent), drain(agent))
    found = [next(differing(actor, log, suppose), None) for actor in actors]
    return min((one for one in found if one), key=lambda one: one.seq, default=None)


def differing(behaviour: Behaviour[Any], log: Log, suppose: Supposed) -> Iterator[Difference]:
    """Where one actor would have decided otherwise."""
    own = list(log.read(stream=behaviour.stream))
    children: dict[int | None, list[Event]] = defaultdict(list)
    versions: dict[int | None, list[int]] = defaultdict(list)
    for recorded in own:
        if not overruled(recorded.event, suppose):
            children[recorded.cause].append(recorded.event)
            versions[recorded.cause].append(recorded.version)
    here, seq, at = Position(behaviour.initial()), 0, 0
    for recorded in known(behaviour, log, own):
        if other := before(behaviour, here.state, recorded, at, suppose):
            yield difference(behaviour, here, seq, *other)
        fold(behaviour, here, recorded)
        seq, at = recorded.seq, max(at, recorded.at)
        then, places = children.get(seq, ()), versions.get(seq, ())
        now = answers(behaviour, suppose.of(here.state), recorded, suppose, places)
        if counting(then) != counting(now) and counting(now) != counting(
            answers(behaviour, here.state, recorded, suppose, places)
        ):
            yield difference(behaviour, here, seq, then, now)


def known(behaviour: Behaviour[Any], log: Log, own: Sequence[Recorded]) -> Iterator[Recorded]:
    """The events as the actor took them in, and behind its own last one what it had yet to read, or wrote nothing after."""
    yield from consumed(behaviour, log, own)
    yield from followed(behaviour, log, max((one.read for one in own), default=0), log.head())


def difference(
    behaviour: Behaviour[Any], here: Position[Any], seq: int, then: Sequence[Event], now: Sequence[Event | str]
) -> Difference:
    recorded = tuple(encode(event).decode() for event in then)
    instead = tuple(one if isinstance(one, str) else encode(one).decode() for one in now)
    return Difference(seq, recorded, instead, snapshots.digest(here.state), behaviour.stream)


def answers(
    behaviour: Behaviour[Any], state: Any, recorded: Recorded, suppose: Supposed, versions: Sequence[int]
) -> Sequence[Event | str]:
    """Today's answer in that state, without what is settled, each event named by the version that the one in its place
    has; or what is raised.
    """
    try:
        events = behaviour.react(state, recorded)
    except Exception as error:
        return (f"raises {type(error).__name__}: {error}",)
    if not events:
        return ()
    kept = [event for event in events if not overruled(event, suppose)]
    for place, version in enumerate(versions[: len(kept)]):
        kept[place] = identified(kept[place], behaviour.stream, version)
    return kept


def overruled(event: Event, suppose: Supposed) -> bool:
    """Whether it changes a setting that is supposed to stay as it is."""
    return isinstance(event, SettingChanged) and event.name in suppose.changes


def counting(events: Sequence[Event | str]) -> list[Event | str]:
    """What counts of an answer: not the room that there was, nor what is said of the settings and no decision reads."""
    return [one if isinstance(one, str) else roomless(one) for one in events]


def roomless(event: Event) -> Event:
    match event:
        case Compiled():
            return replace(event, room=0, window_room=None, demand=())
        case Refused():
            return replace(event, room=0, window_room=None, shortfall=0)
        case Alerted():
            return replace(event, message="")
        case _:
            return event


def before(
    behaviour: Behaviour[Any], state: Any, recorded: Recorded, at: Millis, suppose: Supposed
) -> tuple[Sequence[Event], Sequence[Event]] | None:
    """What came, or would have come, from outside in place of this event or ahead of it: the event, and the other."""
    if recorded.stream == behaviour.stream:
        if (event := embodied(state, recorded, suppose)) != recorded.event:
            return (recorded.event,), (event,)
        if isinstance(recorded.event, TIMES) and not comes(behaviour, suppose.of(state), recorded):
            return ((recorded.event,), ()) if comes(behaviour, state, recorded) else None
    if recorded.at <= at or isinstance(recorded.event, HostStarted):
        return None  # no time went by, or no process ran
    if early := overdue(behaviour, state, at, recorded.at, suppose):
        return (), early
    return None


def embodied(state: Any, recorded: Recorded, suppose: Supposed) -> Event:
    """What comes from outside, as it is embodied with these settings: a failure's wait, what of a result is shown."""
    event, policy = recorded.event, suppose.policy
    match event:
        case InferenceFailed(error=error) | TurnPrepared(error=error) if policy and error and state.turns.running:
            turn = state.turns.running
            waits = policy.delay(error, turn.failures + 1, recorded.at - turn.since)
            return replace(event, retry_ms=None if isinstance(event, InferenceFailed) and closes_gate(error) else waits)
        case ToolReturned(id, result=result, why="") if most := suppose.changes.get("result_excerpt_chars"):
            most = most if len(result) > most else 0
            if most == event.excerpt_chars:
                return event
            return replace(event, excerpt_chars=most, tokens=count_tokens(excerpt(result, most, id), event.encoding))
        case _:
            return event


def timers(behaviour: Behaviour[Any], state: Any) -> Mapping[Key, Millis]:
    return {key: order.due for key, order in behaviour.orders(state).items() if isinstance(order, Timer)}


def comes(behaviour: Behaviour[Any], state: Any, recorded: Recorded) -> bool:
    """Whether a timer that is due by then is embodied as this event."""
    keys = [key for key, due in timers(behaviour, state).items() if due <= recorded.at]
    return any(recorded.event in behaviour.accept(state, Due(key=key, at=recorded.at)) for key in keys)


def overdue(behaviour: Behaviour[Any], state: Any, since: Millis, until: Millis, suppose: Supposed) -> Sequence[Event]:
    """What the first timer would have been embodied as that comes due before `until` with these settings alone."""
    instead = suppose.of(state)
    due = {key: max(due, since) for key, due in timers(behaviour, instead).items() if max(due, since) < until}
    if not due:
        return ()
    there = timers(behaviour, state)
    for key in sorted(due, key=lambda key: (due[key], key)):
        if there.get(key, until) > due[key]:
            return behaviour.accept(instead, Due(key=key, at=due[key]))
    return ()


__all__ = ["what_if"]
