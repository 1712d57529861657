"""What a start reads of a log is checked: the whole of it where it has no snapshot; else each commit of which something was
read, and the last one. Damage elsewhere is `verify`'s to find.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager

from rewake.events import Log, LogCorrupt, LogFailed, Millis, Recorded, Row, Snapshot
from rewake.events.opening import damage
from rewake.projections.verifying import Fault, Walk, step, unfinished, verify

MOST = 50_000
"""Events read, noted one by one; if more are read the whole log is checked."""
ODD = (LookupError, ValueError, TypeError, AttributeError, AssertionError, ArithmeticError)
"""What a fold raises on events that nobody wrote."""
NEAR = 1_000
"""Events among which the newest `at` is."""
GAP = 50
"""Events between two that were read which are rather checked than passed over."""


class Noted:
    """A log as a start reads it, and which events were read."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.rows: dict[int, tuple[str, int]] = {}
        self.all = False

    def head(self) -> int:
        return self.log.head()

    def version(self, stream: str) -> int:
        return self.log.version(stream)

    def snapshots(self, stream: str) -> list[Snapshot]:
        return self.log.snapshots(stream)

    def pages(self, digests: Iterable[bytes]) -> dict[bytes, bytes]:
        return self.log.pages(digests)

    def newest(self) -> Millis:
        """The newest `at`, which is not far from the end: a process's time never goes behind what it has recorded."""
        row = max(self.log.raw(max(0, self.head() - NEAR)), key=lambda row: row.at, default=None)
        if row is None:
            return 0
        self._note(row)
        return row.at

    def read(
        self,
        after: int = 0,
        stream: str | None = None,
        kinds: Iterable[str] | None = None,
        until: int | None = None,
        *,
        after_version: int = 0,
    ) -> Iterator[Recorded]:
        """As the log's. Raises LogCorrupt for an event that is read in two places, and for a stream with a gap."""
        single = stream if stream and not stream.endswith("*") else ""
        wanted, version = None if kinds is None else frozenset(kinds), after_version
        for recorded in self.log.read(after, stream, None if single else wanted, until, after_version=after_version):
            if single and version and recorded.version != version + 1:
                raise LogCorrupt(
                    recorded.seq, f"{stream} has version {recorded.version} where {version + 1} comes next"
                )
            version = recorded.version
            self._note(recorded)
            if wanted is None or recorded.kind in wanted:
                yield recorded
        if single and version and until == self.head() and version != (last := self.log.version(single)):
            raise LogCorrupt(0, f"{stream} has version {last}, and is read up to {version} only")

    def _note(self, recorded: Recorded | Row) -> None:
        if self.all:
            return
        place = recorded.stream, recorded.version
        if self.rows.setdefault(recorded.seq, place) != place:
            raise LogCorrupt(recorded.seq, "the file is damaged: the event is found in two places")
        if len(self.rows) > MOST:
            self.all = True
            self.rows.clear()

    def check(self) -> None:
        """Raises LogCorrupt unless what was read, and the last commit, is what was written, and no stream lost its end."""
        log, head = self.log, self.log.head()
        if self.all:
            check_all(log)
        if (known := sum(log.streams().values())) != head:
            raise LogCorrupt(0, f"the streams have {known} events where the log has {head}")
        for first, last in stretches([*self.rows, head] if head else []):
            for fault in self._faults(first, last):
                raise LogCorrupt(fault.seq, fault.why)

    def _faults(self, first: int, last: int) -> Iterator[Fault]:
        """What is wrong with the commits of these events."""
        start, digest = ended(self.log, first)
        walk = Walk(start, digest=digest, whole=start)
        for row in rows(self.log, start):
            if row.seq != walk.seq + 1:
                yield Fault(walk.seq + 1, f"seq {walk.seq + 1} is missing: the next event is {row.seq}")
            if self.rows.get(row.seq, place := (row.stream, row.version)) != place:
                yield Fault(row.seq, "the file is damaged: the event is not where its stream has it")
            for why in unfinished(walk.append, row):
                yield Fault(row.seq, why)
            yield from step(walk, row)
            if row.seq >= last and row.digest is not None:
                return
        yield Fault(walk.seq + 1, "the last commit ends before its recorded end")


def stretches(seqs: Iterable[int]) -> Iterator[tuple[int, int]]:
    """From which event to which, where those that are near each other are taken together."""
    first = last = 0
    for seq in sorted(seqs):
        if first and seq > last + GAP:
            yield first, last
            first = 0
        first, last = first or seq, seq
    if first:
        yield first, last


def rows(log: Log, after: int) -> Iterator[Row]:
    """The rows behind a seq, a few at first."""
    step, head = GAP, log.head()
    while after < head:
        yield from log.raw(after, after + step)
        after, step = after + step, step * 4


def ended(log: Log, seq: int) -> tuple[int, bytes]:
    """Where the last commit before an event ends, and its digest."""
    step = 16
    while True:
        since = max(0, seq - 1 - step)
        ends = [(row.seq, row.digest) for row in log.raw(since, seq - 1) if row.digest]
        if ends or not since:
            return ends[-1] if ends else (0, b"")
        step *= 4


def start_whole(log: Log) -> None:
    """What a start without any snapshot reads is the whole log: raises LogCorrupt, as `locating` does, unless it is whole."""
    with locating(log):
        if not any(log.snapshots(stream) for stream in log.streams()):
            check_all(log)


def check_all(log: Log) -> None:
    """Raises LogCorrupt unless the whole log is whole."""
    found = verify(log)
    if not found.ok:
        seq = found.last_good_seq + 1 if found.first_bad_seq is None else found.first_bad_seq
        raise LogCorrupt(seq, found.why, path=log.path, last_good_seq=found.last_good_seq)


@contextmanager
def locating(log: Log) -> Generator[None]:
    """What a damaged log makes fail raises LogCorrupt, naming the first bad seq of all and the last good one."""
    try:
        yield
    except Exception as error:
        if may_be_damage(error):
            check_all(log)
        raise


def may_be_damage(error: Exception) -> bool:
    """Whether an error may come of a damaged log, and does not say where that is."""
    match error:
        case LogCorrupt():
            return error.last_good_seq is None
        case LogFailed():
            return isinstance(error.__cause__, Exception) and damage(error.__cause__)
        case _:
            return isinstance(error, ODD)
