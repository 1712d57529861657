"""The host: the process's start and stop, and the actors that fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rewake.actors.agent.planning import spoken
from rewake.actors.behaviour import Behaviour, Command, Key, Order, Restarted
from rewake.events import ActorFailed, ActorParked, Alerted, Event, HostStarted, HostStopped, Millis, Recorded, Waits
from rewake.projections import host as projection
from rewake.projections.host import Host, failures

PARKED_AFTER = 3
"""Failures in a row on the same thing after which an actor is parked."""
ERROR_CHARS = 2_000
AHEAD_MS: Millis = 60_000
"""How far a log may be ahead of the machine's clock before an operator is told."""
CLOCK = "the log is ahead of this machine's clock, which was set back, or its writer's was fast, by"


class Opened(Command, frozen=True):
    """A process has opened the log to write; the options are those that decisions read."""

    version: str
    epoch: int
    max_in_flight: int
    maintenance_ms: Millis
    waits: Waits = Waits()
    providers: tuple[str, ...] = ()
    ahead_ms: Millis = 0


class Closing(Command, frozen=True):
    """An orderly stop; `pending` wakes are still owed."""

    pending: int = 0


class Raised(Command, frozen=True):
    """An actor raised: on an event (`on`, its seq) or on a command; `again`: it has not taken that in since it last did."""

    stream: str
    error: str
    on: int | None = None
    command: str = ""
    again: bool = True


def host() -> Behaviour[Host]:
    """The behaviour of the host."""
    return Behaviour(
        stream="host",
        state=Host,
        initial=Host,
        evolve=projection.evolve,
        accept=accept,
        react=react,
        orders=orders,
    )


def accept(state: Host, command: Command) -> Sequence[Event]:
    match command:
        case Opened(version, epoch, in_flight, maintenance, waits, providers, ahead):
            return [HostStarted(version, epoch, in_flight, maintenance, waits, providers, ahead)]
        case Closing(pending):
            return [HostStopped(pending)]
        case Raised(stream, error, on, said, again):
            before = failures(state, stream, on, said) if again else 0
            return [ActorFailed(stream, error[:ERROR_CHARS], before + 1, on, said)]
        case Restarted():
            return []
        case _:
            raise TypeError(f"host takes no {type(command).__name__}")


def react(state: Host, recorded: Recorded) -> Sequence[Event]:
    match recorded.event:
        case ActorFailed(stream, error, count, at) if count >= PARKED_AFTER and stream not in state.parked:
            return [ActorParked(stream, error, at), Alerted("parked", f"{stream} is parked: {error}")]
        case HostStarted(ahead_ms=ahead) if ahead >= AHEAD_MS:
            return [
                Alerted("clock", f"{CLOCK} {spoken(ahead)}: times go on from the log's until the clock has caught up")
            ]
        case _:
            return []


def orders(state: Host) -> Mapping[Key, Order]:
    return {}
