"""A walk through a log, forward and back: what each event changed, and every actor's state after it."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from typing import Any

from immutables import Map
from msgspec import Struct

from rewake.actors.agent import agent
from rewake.actors.agent.state import Agent
from rewake.actors.behaviour import Behaviour
from rewake.actors.drain import Drain, drain
from rewake.events import HostStarted, Log, Recorded
from rewake.scripts.changes import Changed, Move, changed, moved, owner

EVERY = 256
"""Events between two states that a walk keeps: going back folds fewer than that."""

STOPS: dict[str, tuple[str, ...]] = {
    "hold": ("held", "provider_held", "compression_held"),
    "refusal": ("refused",),
    "crash": ("host_started", "inference_interrupted", "actor_failed", "actor_parked"),
    "failure": ("inference_failed", "turn_exhausted", "compression_failed", "quarantined"),
}
"""What a walk jumps to, and the kinds of event that it is."""


class Point(Struct, frozen=True):
    """All that is known after the event `seq`: the projections of each stream, and the actors. Nothing in it changes.

    `stopped`: whether the host had stopped in order, or never ran.
    """

    seq: int = 0
    projections: Map[tuple[str, str], Any] = Map()
    actors: Map[str, Any] = Map()
    stopped: bool = True


class Step(Struct, frozen=True):
    """An event of the walk: how it moved each projection, and what is known after it."""

    recorded: Recorded
    moves: list[Move]
    after: Point

    @property
    def changed(self) -> Changed:
        """What it changed in each projection."""
        return changed(self.moves)

    def agent(self, name: str) -> Agent | None:
        """That agent's state; None before its start."""
        state = self.after.actors.get(f"agent/{name}")
        return state if state is not None and state.settings.live is not None else None

    def drain(self, name: str) -> Drain | None:
        return self.after.actors.get(f"drain/{name}")


class Walk:
    """Where one stands in a log; with a name only at the events of that agent and of its drain."""

    def __init__(self, log: Log, name: str | None = None) -> None:
        self.log, self.name, self.head = log, name, log.head()
        self.points = [Point()]
        self.behaviours: dict[str, Behaviour[Any]] = {}
        for stream in log.streams():
            kind, _, whose = stream.partition("/")
            if kind == "agent":
                self.behaviours |= {one.stream: one for one in (agent(whose), drain(whose))}

    def at(self, seq: int) -> Step | None:
        """The event of that seq; None where the log has none."""
        if not 1 <= seq <= self.head:
            return None
        here = self.points[bisect_right(self.points, seq - 1, key=lambda point: point.seq) - 1]
        step: Step | None = None
        for recorded in self.log.read(here.seq, until=seq):
            step = self.step(here, recorded)
            here = step.after
            if here.seq - self.points[-1].seq >= EVERY:
                self.points.append(here)
        return step

    def step(self, here: Point, recorded: Recorded) -> Step:
        projections, moves = moved(here.projections, recorded)
        actors = here.actors
        for behaviour in self.concerned(recorded):
            before = actors.get(behaviour.stream) or behaviour.initial()
            if (after := behaviour.evolve(before, recorded)) is not before:
                actors = actors.set(behaviour.stream, after)
        stopped = {"host_started": False, "host_stopped": True}.get(recorded.kind, here.stopped)
        return Step(recorded, moves, Point(recorded.seq, projections, actors, stopped))

    def concerned(self, recorded: Recorded) -> Iterable[Behaviour[Any]]:
        """The actors that fold an event."""
        if whose := owner(recorded.stream):
            near = [self.behaviours[one] for one in (f"agent/{whose}", f"drain/{whose}") if one in self.behaviours]
            return [one for one in near if one.stream == recorded.stream or one.followed(recorded)]
        return [one for one in self.behaviours.values() if one.followed(recorded)]

    def near(self, seq: int, forward: bool = True) -> Step | None:
        """The next event behind that seq, or the last one before it, of those that are walked."""
        if self.name is None:
            return self.at(seq + 1 if forward else seq - 1)
        found = self.found(seq, forward, None)
        return self.at(found) if found else None

    def jump(self, seq: int, stop: str, forward: bool = True) -> Step | None:
        """The next event of those kinds, or the last one before."""
        while found := self.found(seq, forward, STOPS[stop]):
            step = self.at(found)
            if step and not (isinstance(step.recorded.event, HostStarted) and self.orderly(found)):
                return step
            seq = found
        return None

    def orderly(self, seq: int) -> bool:
        """Whether a start of the host came after an orderly stop, or is the first."""
        before = self.at(seq - 1)
        return before is None or before.after.stopped

    def found(self, seq: int, forward: bool, kinds: Iterable[str] | None) -> int:
        """The seq of the next event of these kinds and of the agent that is walked, or of the last one before; 0: none."""
        whose: list[str | None] = [None] if self.name is None else [f"agent/{self.name}", f"drain/{self.name}"]
        if self.name is not None and kinds is not None and "host_started" in kinds:
            whose.append("host")
        feeds = [self.log.read(seq, one, kinds) if forward else self.backward(seq, one, kinds) for one in whose]
        ends = [one.seq for feed in feeds if (one := next(iter(feed), None))]
        return (min(ends) if forward else max(ends)) if ends else 0

    def backward(self, seq: int, stream: str | None, kinds: Iterable[str] | None) -> list[Recorded]:
        """The last event before a seq, if there is one: looked for in ever longer stretches."""
        width, until = EVERY, seq - 1
        while until > 0:
            after = max(0, until - width)
            if last := deque(self.log.read(after, stream, kinds, until), maxlen=1):
                return list(last)
            width, until = width * 4, after
        return []
