"""Where appends would stand in a log: checked, numbered and encoded before anything is written, for both logs alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b

from msgspec import MsgspecError, Struct

from rewake.events.base import Draft, Event, Millis, Recorded
from rewake.events.codec import encode, kind
from rewake.events.errors import EventTooLarge, InvalidContent, StreamConflict, StreamMoved
from rewake.events.log import MAX_EVENT_BYTES, Append, Outcome, Refusal, Row


class Heads(Struct):
    """Where a log stands: its last `seq`, its newest `at`, its last commit's digest, and the version of each stream."""

    seq: int = 0
    at: Millis = 0
    digest: bytes = b""
    versions: dict[str, int] = {}

    def version(self, stream: str) -> int:
        return self.versions.get(stream, 0)


class Placement(Struct):
    """A commit that is not written yet: each append's outcome, the rows to write, the heads once they are written."""

    outcomes: list[Outcome]
    rows: list[Row]
    seq: int
    at: Millis
    moved: dict[str, int]

    def settle(self, heads: Heads) -> None:
        """The rows are written: the log stands there now."""
        heads.seq, heads.at = self.seq, self.at
        if self.rows:
            heads.digest = self.rows[-1].digest or b""
        heads.versions.update(self.moved)


def place(heads: Heads, appends: Sequence[Append]) -> Placement:
    """Each append behind the ones before it; one that is refused leaves no trace. `heads` is not changed."""
    placement = Placement([], [], heads.seq, heads.at, {})
    for append in appends:
        outcome = stale(heads.versions, placement.moved, append) or encoded(append.events)
        if isinstance(outcome, list):
            outcome = _placed(placement, append, outcome)
        placement.outcomes.append(outcome)
    if rows := placement.rows:
        rows[-1] = rows[-1]._replace(digest=chained(heads.digest, rows))
    return placement


def chained(previous: bytes, rows: Iterable[Row]) -> bytes:
    """A commit's digest: of all that its rows say, and of every commit before it."""
    text = "\n".join(
        f"{seq} {at} {stream} {version} {cause} {read} {kind} {rest} {data}"
        for seq, at, stream, version, cause, read, kind, data, rest, _ in rows
    )
    return blake2b(previous + text.encode(), digest_size=16).digest()


def stale(versions: Mapping[str, int], moved: Mapping[str, int], append: Append) -> StreamConflict | None:
    """Why an append can not stand where its writer thought, if so."""

    def version(stream: str) -> int:
        return moved[stream] if stream in moved else versions.get(stream, 0)

    if (actual := version(append.stream)) != append.expected_version:
        return StreamConflict(append.stream, append.expected_version, actual)
    for stream, expected in append.unmoved.items():
        if (actual := version(stream)) != expected:
            return StreamMoved(stream, expected, actual)
    return None


def encoded(drafts: Sequence[Draft]) -> list[str] | Refusal:
    """The events' JSON; or why one of them can not be written."""
    texts: list[str] = []
    for draft in drafts:
        try:
            data = encode(draft.event)
            texts.append(data.decode())
        except (MsgspecError, ValueError, TypeError, OverflowError, RecursionError) as error:
            return InvalidContent(f"{kind(draft.event)} can not be written as JSON: {error}")
        if len(data) > MAX_EVENT_BYTES:
            return EventTooLarge(len(data), MAX_EVENT_BYTES)
    return texts


def _placed(placement: Placement, append: Append, texts: list[str]) -> list[Recorded]:
    base, seq, version, last = placement.seq + 1, placement.seq, append.expected_version, len(texts) - 1
    placed: list[Recorded] = []
    for index, (draft, text) in enumerate(zip(append.events, texts, strict=True)):
        seq, at, event, read = base + index, draft.at, draft.event, draft.read
        version += 1
        cause = draft.cause if draft.within is None else _within(draft.within, index, base)
        placed.append(Recorded(seq, at, append.stream, version, cause, read, event))
        row = Row(seq, at, append.stream, version, cause, read, kind(event), text, last - index)
        placement.rows.append(row)
        if at > placement.at:
            placement.at = at
    if placed:
        placement.seq, placement.moved[append.stream] = seq, version
    return placed


def _within(within: int, index: int, base: int) -> int:
    if not 0 <= within < index:
        raise ValueError(f"event {index} of an append names event {within} of it as its cause, which is not before it")
    return base + within


def drafts(events: Sequence[Draft | Event], at: Millis) -> tuple[Draft, ...]:
    """Bare events are drafts of the moment `at`."""
    return tuple(event if isinstance(event, Draft) else Draft(event, at) for event in events)
