"""The process: which epoch runs with which options, whether it is quiesced, which actors failed."""

from __future__ import annotations

from typing import Any

from immutables import Map
from msgspec import Struct
from msgspec.structs import replace

from rewake.events import (
    ActorFailed,
    ActorParked,
    Event,
    HostStarted,
    HostStopped,
    Millis,
    Quiesced,
    Recorded,
    Resumed,
    Waits,
)

NAME = "host"
KINDS: frozenset[type[Event]] = frozenset({HostStarted, HostStopped, Quiesced, Resumed, ActorFailed, ActorParked})


class Trouble(Struct, frozen=True):
    """An actor's failures in a row on one thing."""

    on: str
    count: int
    error: str
    at: Millis


class Host(Struct, frozen=True):
    """`options` and `providers` as the running process has them; `parked` actors take nothing until the next start.

    `moved`: the version of the stream at which the host last quiesced or resumed.
    """

    epoch: int = 0
    version: str = ""
    running: bool = False
    since: Millis = 0
    max_in_flight: int = 8
    maintenance_ms: Millis = 5_000
    waits: Waits = Waits()
    moved: int = 0
    quiesced: bool = False
    reason: str = ""
    troubles: Map[str, Trouble] = Map()
    parked: Map[str, str] = Map()
    providers: tuple[str, ...] = ()


def initial() -> Host:
    return Host()


def evolve(state: Host, recorded: Recorded) -> Host:
    match recorded.event:
        case HostStarted(version, epoch, in_flight, maintenance, waits, providers):
            fresh = Host(epoch, version, True, recorded.at, in_flight, maintenance, waits, state.moved)
            return replace(fresh, quiesced=state.quiesced, reason=state.reason, providers=providers)
        case HostStopped():
            return replace(state, running=False)
        case Quiesced(reason):
            return replace(state, quiesced=True, reason=reason, moved=recorded.version)
        case Resumed():
            return replace(state, quiesced=False, reason="", moved=recorded.version)
        case ActorFailed(stream, error, count, at, command):
            trouble = Trouble(on(at, command), count, error, recorded.at)
            return replace(state, troubles=state.troubles.set(stream, trouble))
        case ActorParked(stream, error):
            return replace(state, parked=state.parked.set(stream, error))
        case _:
            return state


def rows(state: Host) -> list[dict[str, Any]]:
    return [
        {"epoch": state.epoch, "version": state.version, "running": state.running, "since": state.since}
        | {"quiesced": state.quiesced, "reason": state.reason, "max_in_flight": state.max_in_flight}
        | {"parked": sorted(state.parked), "troubled": sorted(state.troubles)}
    ]


def on(at: int | None, command: str) -> str:
    """What an actor failed on: an event, by its seq, or a command, by its name."""
    return f"event {at}" if at is not None else command


def failures(state: Host, stream: str, at: int | None, command: str) -> int:
    """How often in a row this actor has failed on that."""
    trouble = state.troubles.get(stream)
    return trouble.count if trouble and trouble.on == on(at, command) else 0
