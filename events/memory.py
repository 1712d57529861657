"""The log in memory: for tests and simulation. It outlives its runtimes, as a file does."""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge

from msgspec.structs import replace

from rewake.events.base import Draft, Event, Recorded
from rewake.events.codec import Undecodable, decode, stored_kinds
from rewake.events.errors import LogCorrupt, LogInUse
from rewake.events.log import Append, Outcome, Row, Snapshot
from rewake.events.placing import Heads, chained, drafts, place


class MemoryLog:
    """An append-only log that lives as long as the object does; `close` only lets the writer go.

    What a later writer and its readers get is decoded again from what was encoded, as from a file.
    """

    def __init__(self) -> None:
        self.path = ":memory:"
        self.commits = 0
        self.cut = 0
        self.epoch = 0
        self._rows: list[Row] = []
        self._events: list[Recorded | None] = []
        self._places: dict[str, list[int]] = {}
        self._heads = Heads()
        self._snapshots: dict[str, list[Snapshot]] = {}
        self._pages: dict[bytes, bytes] = {}
        self._since: int | None = None
        self._lock = threading.RLock()

    def append(
        self,
        stream: str,
        expected_version: int,
        events: Sequence[Draft | Event],
        *,
        unmoved: Mapping[str, int] | None = None,
    ) -> list[Recorded]:
        with self._lock:
            self._opened()
            taken = drafts(events, self._heads.at)
            (outcome,) = self.commit([Append(stream, expected_version, taken, unmoved or {})])
        if isinstance(outcome, list):
            return outcome
        raise outcome

    def commit(self, appends: Sequence[Append]) -> list[Outcome]:
        with self._lock:
            self._opened()
            placement = place(self._heads, appends)
            if placement.rows:
                self._keep(placement.rows, placement.outcomes)
                placement.settle(self._heads)
                self.commits += 1
            return placement.outcomes

    def _opened(self) -> None:
        if self._since is None:
            self.open_writer()

    def _keep(self, rows: list[Row], outcomes: list[Outcome]) -> None:
        """The events come last: a reader's prefix ends where they end."""
        for row in rows:
            self._places.setdefault(row.stream, []).append(row.seq)
        self._rows.extend(rows)
        self._events.extend(recorded for outcome in outcomes if isinstance(outcome, list) for recorded in outcome)

    def read(
        self,
        after: int = 0,
        stream: str | None = None,
        kinds: Iterable[str] | None = None,
        until: int | None = None,
        *,
        after_version: int = 0,
    ) -> Iterator[Recorded]:
        last = self.head() if until is None else min(until, self.head())
        wanted = None if kinds is None else frozenset(kinds)
        return self._read(self._seqs(max(after, 0), last, stream, max(after_version, 0)), wanted)

    def _read(self, seqs: Iterator[int], kinds: frozenset[str] | None) -> Iterator[Recorded]:
        stored = None if kinds is None else stored_kinds(kinds)
        for seq in seqs:
            if stored is None or self._rows[seq - 1].kind in stored:
                recorded = self._events[seq - 1] or self._decoded(seq)
                if kinds is None or recorded.kind in kinds:
                    yield recorded

    def _seqs(self, after: int, last: int, stream: str | None, after_version: int) -> Iterator[int]:
        if stream is None:
            yield from range(after + 1, last + 1)
        elif stream.endswith("*"):
            prefix, places = stream[:-1], list(self._places.items())
            yield from merge(*(between(seqs, after, last) for name, seqs in places if name.startswith(prefix)))
        else:
            yield from between(self._places.get(stream, []), after, last, after_version)

    def _decoded(self, seq: int) -> Recorded:
        row = self._rows[seq - 1]
        try:
            event = decode(row.kind, row.data)
        except Undecodable as error:
            raise LogCorrupt(seq, str(error)) from error
        recorded = Recorded(seq, row.at, row.stream, row.version, row.cause, row.read, event)
        self._events[seq - 1] = recorded
        return recorded

    def raw(self, after: int = 0, until: int | None = None) -> Iterator[Row]:
        for seq in range(max(after, 0) + 1, min(self.head(), self.head() if until is None else until) + 1):
            yield self._rows[seq - 1]

    def integrity(self) -> str:
        return ""

    def head(self) -> int:
        return len(self._events)

    def version(self, stream: str) -> int:
        return self._heads.version(stream)

    def streams(self) -> dict[str, int]:
        return dict(self._heads.versions)

    def open_writer(self) -> int:
        with self._lock:
            if self._since is not None:
                raise LogInUse(self.path, os.getpid(), self._since)
            self._cut_back()
            self._since = time.time_ns() // 1_000_000
            self.epoch += 1
            return self.epoch

    def _cut_back(self) -> None:
        whole = len(self._rows)
        while whole and self._rows[whole - 1].rest:
            whole -= 1
        self.cut = len(self._rows) - whole
        self._truncate(whole)
        self._heads.digest = self._rechained()

    def tear(self) -> int:
        """Lose the second half of the last append, as a torn write would; how many events that was."""
        with self._lock:
            if not (whole := len(self._rows)):
                return 0
            first = whole - 1
            while first and self._rows[first - 1].rest:
                first -= 1
            kept = first + (whole - first) // 2
            self._truncate(kept)
            return whole - kept

    def _truncate(self, kept: int) -> None:
        if kept == len(self._rows):
            return
        del self._rows[kept:], self._events[kept:]
        self._places, self._heads = {}, Heads()
        for row in self._rows:
            self._places.setdefault(row.stream, []).append(row.seq)
            self._heads.versions[row.stream] = row.version
        self._heads.seq, self._heads.at = kept, max((row.at for row in self._rows), default=0)
        for stream, kept_snapshots in self._snapshots.items():
            version = self.version(stream)
            self._snapshots[stream] = [s for s in kept_snapshots if s.version <= version and s.read <= kept]
        self._sweep()

    def _rechained(self) -> bytes:
        """The last digest; the last row gets one where the cut went through a commit."""
        rows, end = self._rows, len(self._rows)
        while end and rows[end - 1].digest is None:
            end -= 1
        digest = (end and rows[end - 1].digest) or b""
        if rows[end:]:
            digest = chained(digest, rows[end:])
            rows[-1] = rows[-1]._replace(digest=digest)
        return digest

    def save(self, snapshot: Snapshot) -> None:
        with self._lock:
            before = {page for kept in self.snapshots(snapshot.stream) for page in kept.pages}
            place = (snapshot.version, snapshot.read)
            others = [kept for kept in self.snapshots(snapshot.stream) if (kept.version, kept.read) != place]
            bare = replace(snapshot, pages=dict.fromkeys(snapshot.pages))
            kept = sorted([*others, bare], key=lambda kept: (kept.version, kept.read), reverse=True)
            self._snapshots[snapshot.stream] = kept[:2]
            self._pages |= {digest: data for digest, data in snapshot.pages.items() if data is not None}
            if before - {page for one in kept[:2] for page in one.pages}:
                self._sweep()

    def _sweep(self) -> None:
        """Forget the pages that no snapshot has."""
        had = {page for kept in self._snapshots.values() for one in kept for page in one.pages}
        self._pages = {digest: data for digest, data in self._pages.items() if digest in had}

    def snapshots(self, stream: str) -> list[Snapshot]:
        return list(self._snapshots.get(stream, ()))

    def pages(self, digests: Iterable[bytes]) -> dict[bytes, bytes]:
        return {digest: self._pages[digest] for digest in digests if digest in self._pages}

    def drop_snapshots(self) -> None:
        self._snapshots.clear()
        self._pages.clear()

    def close(self) -> None:
        with self._lock:
            self._since = None
            self._events = [None] * len(self._rows)


def between(places: Sequence[int], after: int, last: int, skipped: int = 0) -> tuple[int, ...]:
    """The seqs of a stream behind one to another, but for so many at its beginning."""
    return tuple(places[max(skipped, bisect_right(places, after)) : bisect_right(places, last)])
