"""The log: one append-only sequence of events, in single-writer streams. `memory` and `sqlite` are its two forms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

from rewake.events.base import Draft, Event, Millis, Recorded
from rewake.events.errors import EventTooLarge, InvalidContent, StreamConflict

Durability = Literal["full", "normal"]
"""What a commit survives: a power cut, or the death of its process alone."""

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""The largest event, encoded."""


class Append(Struct, frozen=True):
    """What one writer wants appended to its stream, if it and those in `unmoved` are where the writer knew them."""

    stream: str
    expected_version: int
    events: tuple[Draft, ...]
    unmoved: Mapping[str, int] = {}


class Snapshot(Struct, frozen=True):
    """An actor's whole state, encoded, at a `version` of its stream and a `read` of what it follows, by code `code`.

    `pages` are, by digest, those parts of it that are kept by themselves, once for all snapshots that have them; None of one
    that is read from a log by `Log.pages`.
    """

    stream: str
    version: int
    read: int
    code: str
    state: bytes
    pages: Mapping[bytes, bytes | None] = {}


class Row(NamedTuple):
    """An event as it is stored.

    `rest` is how many events of the same append come after it: 0 is the end of an append. The last event of a commit
    has the commit's `digest`, chained to the one before.
    """

    seq: int
    at: Millis
    stream: str
    version: int
    cause: int | None
    read: int
    kind: str
    data: str
    rest: int
    digest: bytes | None = None


Refusal = StreamConflict | EventTooLarge | InvalidContent
"""Why one append alone is not written."""

Outcome = list[Recorded] | Refusal
"""What became of one append of a commit."""


class Past(Protocol):
    """What an actor is rebuilt from."""

    def read(
        self,
        after: int = 0,
        stream: str | None = None,
        kinds: Iterable[str] | None = None,
        until: int | None = None,
        *,
        after_version: int = 0,
    ) -> Iterator[Recorded]:
        """The events there are now with `after` < seq (≤ `until`), in order: of one stream, or of a pattern in `*`.

        Of one stream also only those with `after_version` < version. Raises LogCorrupt where one does not decode.
        """
        ...

    def head(self) -> int:
        """The last seq; 0 when empty."""
        ...

    def version(self, stream: str) -> int:
        """The last version of a stream; 0 when it has no events."""
        ...

    def snapshots(self, stream: str) -> list[Snapshot]:
        """The kept snapshots of a stream, newest first."""
        ...

    def pages(self, digests: Iterable[bytes]) -> dict[bytes, bytes]:
        """The kept pages of snapshots, by digest; one that is gone is left out."""
        ...


class Log(Past, Protocol):
    """An append-only log. Reading is safe from any thread; only one thread of one process writes."""

    path: str
    """Where it is: a file's path, or `:memory:`."""

    commits: int
    """How many commits this writer has made: each is one sync."""

    cut: int
    """How many events of a torn last append `open_writer` has cut."""

    def append(
        self,
        stream: str,
        expected_version: int,
        events: Sequence[Draft | Event],
        *,
        unmoved: Mapping[str, int] | None = None,
    ) -> list[Recorded]:
        """Append all or nothing and return once it is on disk; the first append opens the writer if nobody has.

        Raises StreamConflict, StreamMoved, EventTooLarge or InvalidContent (no JSON can hold it): nothing is written;
        LogFailed or LogFull. A bare event gets the log's newest `at`.
        """
        ...

    def commit(self, appends: Sequence[Append]) -> list[Outcome]:
        """Group commit: several writers' appends in one transaction, in order; each is whole, or why not is returned.

        Raises LogFailed or LogFull when the transaction fails: then none of them exists.
        """
        ...

    def raw(self, after: int = 0, until: int | None = None) -> Iterator[Row]:
        """The rows as stored, with `after` < seq (≤ `until`), in order: nothing is decoded."""
        ...

    def integrity(self) -> str:
        """What the file's own check finds wrong; empty when that is nothing."""
        ...

    def streams(self) -> dict[str, int]:
        """The names of all streams with their versions, in the order of their first events."""
        ...

    def open_writer(self) -> int:
        """Become the one writer: cut back a torn last append, raise the epoch and return it. Raises LogInUse."""
        ...

    def save(self, snapshot: Snapshot) -> None:
        """Keep a snapshot, and those of its pages that are not there yet.

        The two newest of a stream are kept, and of pages what those have. Never needed: losing them costs time only.
        """
        ...

    def drop_snapshots(self) -> None:
        """Forget all snapshots."""
        ...

    def tear(self) -> int:
        """Cut the last append in the middle, as a torn write would: the next `open_writer` cuts back the rest of it.

        How many events were cut.
        """
        ...

    def close(self) -> None:
        """Let go of the file and of the writer's lock."""
        ...
