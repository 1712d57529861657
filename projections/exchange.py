"""A log as lines: exported whole, and imported into a new log that has the same events, appends and commits.

The first line is the header, each line after it one event: its envelope, `rest` (how many events of the same append come
after it), `digest` at the end of a commit (chained, of all before it), and its data as it is stored.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct

from rewake.events import Append, Draft, ExportCorrupt, HostStarted, Log, LogCorrupt, NotALog, Row, Unknown, open_log
from rewake.events.codec import decode
from rewake.events.copies import fresh, outrank
from rewake.events.placing import chained
from rewake.projections.verifying import Walk, seen

FORMAT = 1
"""The newest format of lines that this version writes and reads."""

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Header(Struct, frozen=True, tag_field="export", tag="rewake"):
    """The first line: the format of the others, and how many there are."""

    format: int
    events: Count


class Line(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An event as a line. `data` is its JSON as stored; a string of it where that would break the line."""

    seq: Count
    at: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
    stream: str
    version: Count
    cause: Count | None
    read: Count
    kind: str
    data: Raw
    rest: Count = 0
    digest: str = ""


class Imported(Struct, frozen=True):
    """What an import has made: a log of so many `events`; `missing` of those that the export had begun with are not in it,
    since it was cut.
    """

    events: int
    missing: int = 0


_header = msgspec.json.Decoder(Header)
_line = msgspec.json.Decoder(Line)
_encoder = msgspec.json.Encoder()


def export(log: Log, *, until: int | None = None) -> Iterator[bytes]:
    """The log as lines, of the events with seq ≤ `until`, back to the end of a whole append (`whole`); each is checked.

    Raises LogCorrupt behind the last commit that is whole.
    """
    last, walk = whole(log, until), Walk()
    yield _encoder.encode(Header(FORMAT, last)) + b"\n"
    waiting: list[Row] = []
    for row in checked(log, walk) if last else ():
        waiting.append(row)
        if row.seq == last and row.digest is None:
            waiting[-1] = row._replace(digest=chained(walk.digest, waiting))
        if waiting[-1].digest is not None:
            yield from map(line, waiting)
            waiting = []
        if row.seq == last:
            return


def checked(log: Log, walk: Walk) -> Iterator[Row]:
    """The rows of a log. Raises LogCorrupt, which says how to keep what is good."""
    try:
        for row in log.raw():
            for fault in seen(walk, row):
                raise LogCorrupt(fault.seq, fault.why)
            yield row
    except LogCorrupt as corrupt:
        seq = corrupt.seq or walk.seq + 1
        raise LogCorrupt(seq, corrupt.reason, path=log.path, last_good_seq=seq - 1) from corrupt


def whole(log: Log, until: int | None = None) -> int:
    """The last seq up to `until` at which an append ends."""
    last = log.head() if until is None else max(0, min(until, log.head()))
    while last and (row := next(log.raw(last - 1), None)) and row.seq == last and row.rest:
        last -= 1
    return last


def line(row: Row) -> bytes:
    digest = row.digest.hex() if row.digest else ""
    fields = (row.seq, row.at, row.stream, row.version, row.cause, row.read, row.kind)
    return _encoder.encode(Line(*fields, inline(row.data), row.rest, digest)) + b"\n"


def inline(data: str) -> Raw:
    """The event's JSON; as a string where a line can not have it as it is."""
    try:
        if data.startswith("{") and not {"\n", "\r"} & set(data):
            msgspec.json.decode(data, type=Raw)
            return Raw(data)
    except msgspec.DecodeError:
        pass
    return Raw(_encoder.encode(data))


def import_(lines: Iterable[bytes], path: str | os.PathLike[str], *, name: str = "") -> Imported:
    """Make a log of exported lines at `path`, where nothing may be: with the same seqs, appends, commits and data.

    Where the lines end too soon, an append that is not whole is left out. Raises OutputRefused for `path`, NotALog (naming
    `name`) for lines that are no export, ExportCorrupt for damaged ones: then there is no log.
    """
    numbered = enumerate(lines, 1)
    header = headed(next(numbered, (1, b""))[1], name or "the input")
    with fresh(path) as made:
        with closing(open_log(made, durability="normal")) as log:
            log.open_writer()
            epoch = 0
            for commit in commits(numbered, header):
                log.commit(appends(commit))
                epoch = max([epoch, *epochs(commit)])
            events = log.head()
        outrank(made, epoch)
        os.remove(made + ".lock")
    return Imported(events, header.events - events)


def headed(first: bytes, name: str) -> Header:
    try:
        header = _header.decode(first)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise NotALog(name, f"it is no export of a log: its first line is no header ({error})") from error
    if header.format > FORMAT:
        raise NotALog(name, f"it has format {header.format}; this version reads up to {FORMAT}: update rewake")
    return header


def commits(lines: Iterable[tuple[int, bytes]], header: Header) -> Iterator[list[Row]]:
    """The rows of each commit, checked; at the end those of one that is cut."""
    walk, waiting = Walk(), list[Row]()
    for number, text in lines:
        try:
            row = parsed(text)
        except (msgspec.MsgspecError, ValueError) as error:
            if not text.endswith(b"\n"):
                break  # the end is torn off
            raise ExportCorrupt(number, f"it is no event: {error}") from error
        for fault in seen(walk, row):
            raise ExportCorrupt(number, fault.why)
        if row.seq > header.events:
            raise ExportCorrupt(number, f"there are more events than the {header.events} that the header names")
        waiting.append(row)
        if row.digest is not None:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def parsed(text: bytes) -> Row:
    """A line's row. Raises ValueError or MsgspecError."""
    one = _line.decode(text)
    data = bytes(one.data)
    stored = msgspec.json.decode(data, type=str) if data.startswith(b'"') else data.decode()
    digest = bytes.fromhex(one.digest) if one.digest else None
    return Row(one.seq, one.at, one.stream, one.version, one.cause, one.read, one.kind, stored, one.rest, digest)


def appends(commit: list[Row]) -> list[Append]:
    """The appends that wrote these rows, without one that is cut. Each event keeps its stored form, an old one too."""
    made: list[Append] = []
    drafts: list[Draft] = []
    for row in commit:
        drafts.append(Draft(Unknown(row.kind, Raw(row.data)), row.at, row.read, row.cause))
        if not row.rest:
            made.append(Append(row.stream, row.version - len(drafts), tuple(drafts)))
            drafts = []
    return made


def epochs(commit: list[Row]) -> Iterator[int]:
    """Those of the processes that wrote the log."""
    for row in commit:
        if row.stream == "host" and isinstance(event := decode(row.kind, row.data), HostStarted):
            yield event.epoch
