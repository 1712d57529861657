"""Something outside wants a turn."""

from __future__ import annotations

from typing import ClassVar, Literal

from rewake.events.base import AgentEvent, Millis

Withdrawal = Literal["retracted", "superseded", "consumed", "revoked", "cancelled", "disposed"]


class Wake(AgentEvent, frozen=True, tag="wake"):
    """A turn is owed from here. `message` is the message that came with it, `wake_at` when it was meant for."""

    MINTS: ClassVar[tuple[str, str]] = ("id", "wake")

    reason: str
    id: str = ""
    source: str = ""
    channel: str | None = None
    author: str | None = None
    addressed: bool = False
    wake_at: Millis | None = None
    silent: bool = False
    subject: str | None = None
    batch: str | None = None
    message: str | None = None
    dedupe_key: str | None = None


class WakeWithdrawn(AgentEvent, frozen=True, tag="wake_withdrawn"):
    """These wakes are no longer owed a turn, and why. `messages` go with them: they came with one, and no request has
    shown them.
    """

    wakes: tuple[str, ...]
    why: Withdrawal
    messages: tuple[str, ...] = ()
