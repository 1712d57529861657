"""Verifying a log: whether it is whole, and where it first is not."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from rewake.events import Log, LogCorrupt, Row
from rewake.events.codec import Undecodable, decode
from rewake.events.placing import chained


class Verification(Struct, frozen=True):
    """Whether a log is whole; else the first seq that is wrong (None where no seq is to blame), the last before it, why."""

    ok: bool
    first_bad_seq: int | None
    last_good_seq: int
    why: str = ""


class Fault(Struct, frozen=True):
    """Something wrong, at a seq."""

    seq: int
    why: str


class Walk(Struct):
    """What the rows so far say of the next one.

    `whole` is the last seq of a commit whose digest is right, `commit` the rows after it.
    """

    seq: int = 0
    versions: dict[str, int] = {}
    newest: dict[str, int] = {}
    append: Row | None = None
    commit: list[Row] = []
    digest: bytes = b""
    whole: int = 0


def verify(log: Log) -> Verification:
    """Read the whole log: gapless seqs, versions of each stream, causes before effects, every event decodes, every append
    ends where it was recorded to, every commit is what its chained digest says; then the file's own integrity check.

    Where a digest alone is wrong, the first bad seq is that of the commit's first event: one of its events is not what was
    written. Raises nothing for a damaged log: that is the answer.
    """
    walk = Walk()
    try:
        fault = next(faults(log, walk), None)
        if fault is None and (wrong := log.integrity()):
            return Verification(False, None, walk.seq, f"the file's own check: {wrong}")
    except LogCorrupt as corrupt:
        # a row that can not be read may have another seq than it was written with
        fault = Fault(min(corrupt.seq or walk.seq + 1, walk.seq + 1), corrupt.reason)
    if fault is None:
        return Verification(True, None, walk.seq)
    return Verification(False, fault.seq, fault.seq - 1, fault.why)


def faults(log: Log, walk: Walk) -> Iterator[Fault]:
    """What is wrong, in the order of the log."""
    for row in log.raw():
        yield from seen(walk, row)
    if walk.append is not None and walk.append.rest:
        yield Fault(walk.seq + 1, f"the last append ends {walk.append.rest} events before its recorded end")
    elif walk.commit:
        yield Fault(walk.seq + 1, "the last commit ends before its recorded end")


def seen(walk: Walk, row: Row) -> Iterator[Fault]:
    """What is wrong with a row that comes next; past the end it is taken in."""
    for why in wrong(walk, row):
        yield Fault(row.seq if row.seq <= walk.seq + 1 else walk.seq + 1, why)
    yield from step(walk, row)


def wrong(walk: Walk, row: Row) -> Iterator[str]:
    """What is wrong with a row, given those before it."""
    if row.seq != walk.seq + 1:
        yield f"seq {walk.seq + 1} is missing: the next event is {row.seq}"
    if row.version != (expected := walk.versions.get(row.stream, 0) + 1):
        yield f"{row.stream} has version {row.version} where {expected} comes next"
    if row.at < walk.newest.get(row.stream, row.at):
        yield f"the time of {row.stream} runs backwards"
    if row.cause is not None and not 0 < row.cause < row.seq:
        yield f"its cause {row.cause} is not before it"
    if not 0 <= row.read < row.seq:
        yield f"it has read {row.read}, which is not before it"
    yield from unfinished(walk.append, row)
    try:
        decode(row.kind, row.data)
    except Undecodable as error:
        yield str(error)


def unfinished(before: Row | None, row: Row) -> Iterator[str]:
    """Whether a row goes on with the append of the one before it, where that has not ended."""
    if before is not None and before.rest and (row.stream, row.rest) != (before.stream, before.rest - 1):
        yield f"the append of event {before.seq} ends {before.rest} events before its recorded end"


def step(walk: Walk, row: Row) -> Iterator[Fault]:
    """Take a row in; at a commit's end its digest is checked."""
    walk.seq = row.seq
    walk.versions[row.stream] = row.version
    walk.newest[row.stream] = row.at
    walk.append = row
    walk.commit.append(row)
    if row.digest is None:
        return
    if chained(walk.digest, walk.commit) != row.digest:
        yield Fault(walk.whole + 1, f"the commit of events {walk.whole + 1} to {row.seq} is not what was written")
    walk.digest, walk.whole, walk.commit = row.digest, row.seq, []
