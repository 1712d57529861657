"""A provider's gate: the stream `gate/<provider>`."""

from __future__ import annotations

from typing import Literal

from rewake.events.base import Event, Millis

Opening = Literal["due", "probe_succeeded", "probe_passed_on", "operator"]


class GateClosed(Event, frozen=True, tag="gate_closed"):
    """Calls for `model` wait until `until` (None: until an operator releases them). One for each failure that asks for it.

    `why` is the failure's kind, or `quota` for a limit that lasts hours; `since` the first closing that no success came
    after, `n` how many such there were. The wait is `hint_ms` (`stated`: the provider's own words) plus `jitter_ms`, from
    when the failure of `call` came in; never less than was left before.
    """

    why: str
    since: Millis
    until: Millis | None = None
    model: str = ""
    hint_ms: Millis | None = None
    jitter_ms: Millis = 0
    stated: bool = False
    n: int = 1
    call: str = ""


class GateDue(Event, frozen=True, tag="gate_due"):
    """A closed gate's time has come."""

    model: str = ""


class GateOpened(Event, frozen=True, tag="gate_opened"):
    """Calls for `model` go again: while `probing`, only those of the stream `probe`; else at most `limit` at a time.

    Without a `limit` they are bound by nothing of their own any more.
    """

    why: Opening
    model: str = ""
    probing: bool = False
    probe: str | None = None
    limit: int | None = None


class WaitReleased(Event, frozen=True, tag="wait_released"):
    """An operator opened the gate for a model, or for all (None)."""

    model: str | None = None
    by: str | None = None
