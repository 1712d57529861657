"""A turn that was refused waits: for compression, or for a provider's gate."""

from __future__ import annotations

from typing import Literal

from rewake.events.base import AgentEvent, Millis, Tokens
from rewake.events.context import Refused, Stretch

HoldEnd = Literal["fit", "check_failed", "deadline", "nothing_pending", "stopped", "cancelled", "stalled"]


class Held(AgentEvent, frozen=True, tag="held"):
    """The turn waits for compression; later wakes join it. `since` is its first refusal, `until` its deadline.

    `looked` names the versions of what the refusal depended on.
    """

    turn: str
    wakes: tuple[str, ...]
    since: Millis
    until: Millis
    refusal: Refused
    looked: tuple[tuple[str, int], ...] = ()
    resumes: bool = False


class HoldLooked(AgentEvent, frozen=True, tag="hold_looked"):
    """A look that did not release. `revisions` names what it depended on: the same inputs are not looked at again.

    `demand` are the stretches whose summaries the plan still lacks.
    """

    turn: str
    revisions: tuple[tuple[str, int], ...]
    tokens: Tokens
    demand: tuple[Stretch, ...] = ()


class HoldDue(AgentEvent, frozen=True, tag="hold_due"):
    """The hold's deadline has come."""

    turn: str


class HoldEnded(AgentEvent, frozen=True, tag="hold_ended"):
    """The hold is over, and why; the turn starts again unless it was stopped or cancelled."""

    turn: str
    why: HoldEnd
    waited_ms: Millis


class ProviderHeld(AgentEvent, frozen=True, tag="provider_held"):
    """The turn waits for its provider's gate."""

    turn: str
    wakes: tuple[str, ...]
    provider: str
    model: str
    since: Millis
    gate_version: int
    until: Millis | None = None
    why: str = ""


class ProviderReleased(AgentEvent, frozen=True, tag="provider_released"):
    """The gate let the turn through."""

    turn: str
    provider: str
    model: str
    gate_version: int
