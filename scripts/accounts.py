"""What a log says by itself: each agent's state, folded as the agent and its drain fold it, at any seq."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from rewake.actors.agent import agent
from rewake.actors.agent.state import Agent
from rewake.actors.behaviour import Behaviour, Position, fold
from rewake.actors.drain import Drain, drain
from rewake.actors.incarnation import followed
from rewake.actors.owing import Owed, owed
from rewake.actors.reports import agent_health, told
from rewake.events import Log, Millis, Quarantined, Recorded
from rewake.projections.fold import PROJECTIONS, rows_of
from rewake.projections.progress import given_up
from rewake.projections.settings import budget

S = TypeVar("S")


def state_of(log: Log, name: str, until: int | None = None) -> Agent:
    """An agent's state after everything it follows, up to a seq. No snapshot is used: the events alone say it."""
    return folded(log, agent(name), log.head() if until is None else until)


def folded(log: Log, behaviour: Behaviour[S], until: int) -> S:
    here = Position(behaviour.initial())
    own = log.read(stream=behaviour.stream, until=until)
    for recorded in heapq.merge(own, followed(behaviour, log, 0, until), key=lambda recorded: recorded.seq):
        fold(behaviour, here, recorded)
    return here.state


def states(log: Log, names: Iterable[str], until: int | None = None) -> Iterator[Agent]:
    """The states of those agents that had been started by then."""
    found = (state_of(log, name, until) for name in names)
    return (state for state in found if state.settings.live is not None)


def owed_in(log: Log, names: Iterable[str], until: int | None = None) -> list[Owed]:
    """Every wake that has not ended, as the running process would tell it."""
    return [one for state in states(log, names, until) for one in owed(state, waited_for(log, state, until))]


def waited_for(log: Log, state: Agent, until: int | None) -> Drain | None:
    """The drain that an agent's held turn waits for; None: it has no such turn."""
    return drain_of(log, state.name, until) if state.holds.waiting else None


def drain_of(log: Log, name: str, until: int | None = None) -> Drain:
    return folded(log, drain(name), log.head() if until is None else until)


def quarantined_in(log: Log, names: Iterable[str], until: int | None = None) -> Iterator[dict[str, Any]]:
    """What compression gave up, as rows beside those of the wakes."""
    for name in names:
        since: dict[str, Millis] = {}
        for one in log.read(stream=f"drain/{name}", kinds=["quarantined"], until=until):
            if isinstance(one.event, Quarantined):
                since[one.event.work.digest] = one.at
        state = drain_of(log, name, until) if since else None
        for given in given_up(state.conversation, state.compression) if state else ():
            row = {"wake": None, "agent": name, "state": "quarantined", "why": told(given)}
            yield row | {"since": since[given.work.digest], "next_at": None, "ends": "release_quarantine"}


def described(state: Agent, drain: Drain | None = None) -> dict[str, Any]:
    """An agent as one row."""
    health, live = agent_health(state, drain), state.live
    return {
        "agent": state.name,
        "state": health.state,
        "turn": health.turn,
        "owed": len(state.wakes.owed),
        "why": health.why,
        "since": health.since,
        "next_at": health.next_at,
        "model": live.model,
        "provider": live.provider,
        "budget": budget(live),
        "messages": len(state.conversation.messages),
        "tokens": sum(one.shown for one in state.conversation.messages),
        "summaries": len(state.compression.summaries),
    }


def timeline(log: Log, turn: str) -> list[Recorded]:
    """The events of one turn, in order: those that name it, and those of its calls and tools."""
    stream = f"agent/{turn.partition('/')[0]}"
    events = list(log.read(stream=stream))
    calls = {getattr(one.event, "call", None) for one in events if getattr(one.event, "turn", None) == turn} - {None}
    return [one for one in events if belongs(one, turn, calls)]


def belongs(recorded: Recorded, turn: str, calls: set[Any]) -> bool:
    event = recorded.event
    return getattr(event, "turn", None) == turn or getattr(event, "call", None) in calls


__all__ = [
    "PROJECTIONS",
    "described",
    "drain_of",
    "owed_in",
    "quarantined_in",
    "rows_of",
    "state_of",
    "states",
    "timeline",
    "waited_for",
]
