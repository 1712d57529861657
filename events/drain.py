"""Background compression of one agent's history: the stream `drain/<name>`."""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import Struct

from rewake.events.base import Event, Millis, Tokens
from rewake.events.calls import Usage
from rewake.events.holds import ReleaseWhy
from rewake.events.turns import Failure

PassEnd = Literal["dry", "ticks", "paused", "stopped"]


class Work(Struct, frozen=True, omit_defaults=True):
    """A piece of compression: a chunk of messages (level 1) or a merge of summaries, `first` to `last` message covered.

    `sources` are the ids read, `digest` what they said: when either changed the summary does not apply. `of` is the digest
    of the larger work that this is a half of; `part` (which, of how many) a piece of the text of a single message.
    """

    level: int
    first: str
    last: str
    sources: tuple[str, ...]
    digest: str
    tokens: Tokens
    of: str = ""
    part: tuple[int, int] | None = None


class DrainKicked(Event, frozen=True, tag="drain_kicked"):
    """A pass is wanted at once, and why; at most `ticks` calls."""

    why: str
    ticks: int


class DrainDue(Event, frozen=True, tag="drain_due"):
    """The pause between two passes, or after a failure, is over."""


class CompressionRequested(Event, frozen=True, tag="compression_requested"):
    """A summary is ordered; it is sent only once this is on disk."""

    MINTS: ClassVar[tuple[str, str]] = ("id", "compression")

    work: Work
    provider: str
    model: str
    attempt: int = 1
    id: str = ""


class CompressionHeld(Event, frozen=True, tag="compression_held"):
    """The summary waits for its provider's gate, which was at `gate_version`; a later opening releases it, or where the call
    `met` the limit an opening after a later closing.

    `id` is the request that was not sent, or that met a limit; empty where none was made.
    """

    id: str
    gate_version: int
    provider: str = ""
    model: str = ""
    since: Millis = 0
    met: bool = False


class CompressionReleased(Event, frozen=True, tag="compression_released"):
    """The drain waits for the gate no longer; `gate_version` is that of the opening, or of the wait itself."""

    provider: str
    model: str
    gate_version: int
    why: ReleaseWhy = "opened"


class CompressionTried(Event, frozen=True, tag="compression_tried"):
    """News for a gate that is reopening: a call that it let go at `gate_version` was answered; or (not `ok`) the drain
    that it had named to probe makes no call.
    """

    provider: str
    model: str
    gate_version: int
    ok: bool = True


class Compressed(Event, frozen=True, tag="compressed"):
    """A summary: `text` stands for the messages of `work`, priced `tokens`.

    `request` is the order that it answers: empty for a stub, which is kept without a call. A part of a message stands for
    nothing by itself: once the last is there a whole one follows.
    """

    MINTS: ClassVar[tuple[str, str]] = ("summary", "summary")

    request: str
    work: Work
    text: str
    tokens: Tokens
    encoding: str
    summary: str = ""
    usage: Usage | None = None
    gate_version: int = 0


class CompressionFailed(Event, frozen=True, tag="compression_failed"):
    """No summary. `transient` failures are tried again at `retry_at` (None: once the gate opens); the others are evidence
    against the request.
    """

    id: str
    work: Work
    error: Failure
    attempt: int
    transient: bool = False
    retry_at: Millis | None = None
    gate_version: int = 0
    provider: str = ""
    model: str = ""


class CompressionDiscarded(Event, frozen=True, tag="compression_discarded"):
    """The answer is not used: what it was made from changed meanwhile. No failure."""

    id: str
    work: Work
    why: str


class Quarantined(Event, frozen=True, tag="quarantined"):
    """This work failed for good: its messages stay raw until it is released."""

    work: Work
    why: str


class Released(Event, frozen=True, tag="released"):
    """Quarantined work may be tried again."""

    digests: tuple[str, ...]
    why: str
    by: str | None = None


class DrainPassed(Event, frozen=True, tag="drain_passed"):
    """A pass ended: the calls it made, whether work is left, and why it stopped; the next one may begin at `next_at`."""

    ticks: int
    pending: bool
    why: PassEnd
    next_at: Millis
