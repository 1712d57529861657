"""A turn that was refused waits: for compression, or for a provider's gate."""

from __future__ import annotations

from typing import Literal

from rewake.events.base import AgentEvent, Millis, Tokens
from rewake.events.context import Refused, Stretch

ReleaseWhy = Literal["opened", "resumed", "model", "cancelled", "stopped"]

HoldEnd = Literal["fit", "check_failed", "deadline", "nothing_pending", "stopped", "cancelled", "stalled"]
HoldTime = Literal["deadline", "stalled"]


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
    """A hold's time has come: its deadline, or compression has made nothing for so long that it ends (`stalled`)."""

    turn: str
    what: HoldTime = "deadline"


class HoldEnded(AgentEvent, frozen=True, tag="hold_ended"):
    """The hold is over, and why; the turn starts again unless it was stopped or cancelled."""

    turn: str
    why: HoldEnd
    waited_ms: Millis


class ProviderHeld(AgentEvent, frozen=True, tag="provider_held"):
    """The turn waits for its provider's gate; later wakes join it. `since` is the first of its waits in a row.

    `gate_version` is the gate's when it did not let the call go: a later opening releases the turn. Where the call `met`
    the limit it is what was known of the gate by then: an opening after the closing that is still to come. With `why`
    "quiesced" it waits for the host, which was at `host_version`. `step` counts the turn's answers.
    """

    turn: str
    wakes: tuple[str, ...]
    provider: str
    model: str
    since: Millis
    gate_version: int
    until: Millis | None = None
    why: str = ""
    host_version: int = 0
    step: int = 0
    met: bool = False


class ProviderReleased(AgentEvent, frozen=True, tag="provider_released"):
    """The turn waits for the gate no longer, and why; `gate_version` is that of the opening, or of the wait itself."""

    turn: str
    provider: str
    model: str
    gate_version: int
    why: ReleaseWhy = "opened"


class ProviderTried(AgentEvent, frozen=True, tag="provider_tried"):
    """News for a gate that is reopening: a call that it let go at `gate_version` was answered; or (not `ok`) the agent
    that it had named to probe makes no call.
    """

    provider: str
    model: str
    gate_version: int
    ok: bool = True
