"""How compression stands: whether it is idle, works, waits until a time, or is stuck, and why."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from msgspec import Struct

from rewake.events import CompressionRequested, Millis, Quarantined, Work
from rewake.projections.compression import Compression
from rewake.projections.conversation import Conversation

SAID = {"idle": "is idle", "working": "works", "waiting": "waits", "stuck": "is stuck"}


class Status(Struct, frozen=True):
    """What compression does, why, and until when where that is known. `stuck`: nothing that it does by itself goes on."""

    state: Literal["idle", "working", "waiting", "stuck"]
    why: str = ""
    until: Millis | None = None

    @property
    def told(self) -> str:
        """As one line for people."""
        when = "" if self.until is None else f" until {clock(self.until)}"
        return f"compression {SAID[self.state]}{when}: {self.why}"


def status(conversation: Conversation, compression: Compression, next: Work | None, kicks_only: bool) -> Status:
    """How compression stands, when `next` is the work that it would do now. `kicks_only`: no pass begins by itself."""
    given = given_up(conversation, compression)
    beside = f"; {given_up_told(given)}" if given else ""
    if compression.open:
        return Status("working", f"{flying(compression.open)} is in flight{beside}")
    if next is None and given:
        return Status("stuck", f"{given_up_told(given)}; release_quarantine tries again")
    if next is None:
        return Status("idle", "nothing is left to summarise")
    if compression.passing:
        return Status("waiting", f"a call is to be sent once its provider's gate is open{beside}")
    if compression.paused_until:
        return Status("waiting", f"paused after {failure(compression)}{beside}", compression.paused_until)
    if kicks_only:
        return Status("waiting", f"only a kick begins a pass, since maintenance_interval is 0{beside}")
    return Status("waiting", f"the next pass begins then{beside}", compression.next_at)


def given_up(conversation: Conversation, compression: Compression) -> list[Quarantined]:
    """What could not be summarised and is still there, the oldest first."""
    places = conversation.places
    there = [one for one in compression.quarantined.values() if one.work.first in places and one.work.last in places]
    return sorted(there, key=lambda one: (places[one.work.first], one.work.level))


def given_up_told(given: list[Quarantined]) -> str:
    count, tokens = len(given), sum(one.work.tokens for one in given)
    stretches = "1 stretch is" if count == 1 else f"{count} stretches are"
    return f"{stretches} quarantined, {tokens:,} tokens ({given[0].why})"


def flying(request: CompressionRequested) -> str:
    work = request.work
    what = "messages" if work.level == 1 else "summaries"
    part = f", part {work.part[0]} of {work.part[1]}" if work.part else ""
    attempt = f", attempt {request.attempt}" if request.attempt > 1 else ""
    return f"{request.id}, a summary of {len(work.sources)} {what}{part}{attempt},"


def failure(compression: Compression) -> str:
    """What the pause is for."""
    if compression.failed is None:
        return "a failure"
    row = f", {compression.vain} in a row" if compression.vain > 1 else ""
    return f"{compression.failed.told}{row}"


def clock(at: Millis) -> str:
    """A moment as people are told it: the time of the day, in UTC."""
    return f"{datetime.fromtimestamp(at / 1_000, UTC):%H:%M:%S}Z"
