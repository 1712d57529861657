"""The process: the stream `host`, and what an operator is told from any stream."""

from __future__ import annotations

from msgspec import Struct

from rewake.events.base import Event, Millis


class Waits(Struct, frozen=True, omit_defaults=True, gc=False):
    """How long a gate stays closed where the provider states no wait: after a limit so long, and up to `jitter_ms` more,
    doubling with each in a row; after an overload, in the same way.
    """

    limit_ms: Millis = 65_000
    jitter_ms: Millis = 5_000
    longest_limit_ms: Millis = 600_000
    overload_ms: Millis = 5_000
    longest_overload_ms: Millis = 300_000


class HostStarted(Event, frozen=True, tag="host_started"):
    """A process opened the log to write; `epoch` is higher than any before.

    The options are those that decisions read; `providers` are the names of those that the process has. `ahead_ms`: how far
    the newest event of the log was ahead of the machine's clock.
    """

    version: str
    epoch: int
    max_in_flight: int = 8
    maintenance_ms: Millis = 5_000
    waits: Waits = Waits()
    providers: tuple[str, ...] = ()
    ahead_ms: Millis = 0


class HostStopped(Event, frozen=True, tag="host_stopped"):
    """An orderly stop; `pending` wakes are still owed."""

    pending: int = 0


class Quiesced(Event, frozen=True, tag="quiesced"):
    """New turns park until `resumed`."""

    reason: str = ""
    by: str | None = None


class Resumed(Event, frozen=True, tag="resumed"):
    """Turns start again."""

    by: str | None = None


class ActorFailed(Event, frozen=True, tag="actor_failed"):
    """An actor raised: on which event (`at`, a seq) or command, for the `count`-th time. It is rebuilt from the log."""

    stream: str
    error: str
    count: int
    at: int | None = None
    command: str = ""


class ActorParked(Event, frozen=True, tag="actor_parked"):
    """An actor that failed three times on the same thing takes nothing more until a new start."""

    stream: str
    error: str
    at: int | None = None


class Alerted(Event, frozen=True, tag="alerted"):
    """For an operator, in any actor's stream; `posted` tells whether `on_alert` was called for it."""

    about: str
    message: str
    posted: bool = True
    turn: str = ""
    until: Millis | None = None
    agent: str = ""
