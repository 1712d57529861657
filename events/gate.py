"""A provider's gate: the stream `gate/<provider>`."""

from __future__ import annotations

from rewake.events.base import Event, Millis


class GateClosed(Event, frozen=True, tag="gate_closed"):
    """Calls for `model` (None: all) wait until `until` (None: until an operator releases them). `n`: how many in a
    row.
    """

    why: str
    since: Millis
    until: Millis | None = None
    model: str | None = None
    hint_ms: Millis | None = None
    jitter_ms: Millis = 0
    stated: bool = False
    n: int = 1


class GateDue(Event, frozen=True, tag="gate_due"):
    """A closed gate's time has come."""

    model: str | None = None


class GateOpened(Event, frozen=True, tag="gate_opened"):
    """Calls go again; while `probing`, only those of the stream `probe`, else at most `limit` at a time."""

    why: str
    model: str | None = None
    probing: bool = False
    probe: str | None = None
    limit: int | None = None


class WaitReleased(Event, frozen=True, tag="wait_released"):
    """An operator opened the gate."""

    model: str | None = None
    by: str | None = None
