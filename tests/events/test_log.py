"""What every log promises, in memory and in a file alike."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewake.events import (
    MAX_EVENT_BYTES,
    Append,
    Draft,
    EventTooLarge,
    InvalidContent,
    LogCorrupt,
    LogInUse,
    MemoryLog,
    Recorded,
    Snapshot,
    StreamConflict,
    StreamMoved,
    Unknown,
    Wake,
    WakeWithdrawn,
)
from rewake.events.codec import UPCASTS
from rewake.events.sqlite import SqliteLog

AnyLog = MemoryLog | SqliteLog
A, B, C = Wake(reason="a"), Wake(reason="b"), Wake(reason="c")


def drafts(*reasons: str, **known: Any) -> tuple[Draft, ...]:
    return tuple(Draft(Wake(reason=reason), **known) for reason in reasons)


def reasons(log: AnyLog, **which: Any) -> list[str]:
    return [recorded.event.reason for recorded in log.read(**which) if isinstance(recorded.event, Wake)]


@pytest.mark.scenario("L-01")
def test_an_append_has_consecutive_places_and_is_refused_the_second_time(log: AnyLog):
    recorded = log.append("agent/ada", 0, [A, B, C])
    assert [(r.seq, r.version) for r in recorded] == [(1, 1), (2, 2), (3, 3)]
    with pytest.raises(StreamConflict) as conflict:
        log.append("agent/ada", 0, [A, B, C])
    assert (conflict.value.stream, conflict.value.expected, conflict.value.actual) == ("agent/ada", 0, 3)
    assert (log.head(), log.version("agent/ada")) == (3, 3)


def test_seq_runs_through_all_streams_and_version_through_one(log: AnyLog):
    log.append("agent/ada", 0, [A])
    log.append("agent/bob", 0, [A, B])
    (last,) = log.append("agent/ada", 1, [C])
    assert (last.seq, last.version) == (4, 2)
    assert log.streams() == {"agent/ada": 2, "agent/bob": 2}
    assert (log.version("agent/ada"), log.version("nobody")) == (2, 0)


def test_an_append_returns_the_very_events_given(log: AnyLog):
    (recorded,) = log.append("s", 0, [A])
    assert recorded.event is A


def test_an_append_of_nothing_writes_nothing(log: AnyLog):
    assert (log.append("s", 0, []), log.head(), log.commits) == ([], 0, 0)


def test_what_the_writer_knew_is_kept(place: Any):
    log = place.opened()
    log.append("s", 0, [Draft(A, at=70, read=5), Draft(B, at=71, read=6, within=0), Draft(C, at=71, cause=1)])
    read = list(place.opened().read())
    assert read == [
        Recorded(1, 70, "s", 1, None, 5, A),
        Recorded(2, 71, "s", 2, 1, 6, B),
        Recorded(3, 71, "s", 3, 1, 0, C),
    ]


def test_a_cause_within_the_append_comes_before_its_effect(log: AnyLog):
    log.append("t", 0, [A])
    with pytest.raises(ValueError, match="not before it"):
        log.append("s", 0, [Draft(A, within=0)])
    assert [r.cause for r in log.append("s", 0, [Draft(A), Draft(B, within=0)])] == [None, 2]


def test_a_bare_event_gets_the_newest_time_of_the_log(place: Any):
    log = place.opened()
    log.append("s", 0, [Draft(A, at=90)])
    log.append("t", 0, [Draft(A, at=80)])
    assert place.opened().append("t", 1, [B])[0].at == 90


def test_an_append_is_refused_when_what_it_depends_on_has_moved(log: AnyLog):
    log.append("host", 0, [A])
    log.append("s", 0, [A], unmoved={"host": 1, "gate/x": 0})
    with pytest.raises(StreamMoved) as moved:
        log.append("s", 1, [A], unmoved={"host": 0})
    assert (moved.value.stream, moved.value.expected, moved.value.actual) == ("host", 0, 1)
    assert log.head() == 2


def test_a_group_is_committed_but_for_what_meets_another(log: AnyLog):
    """Each append sees what the earlier ones of its commit did."""
    outcomes = log.commit(
        [
            Append("a", 0, drafts("a1", "a2")),
            Append("b", 3, drafts("lost")),
            Append("a", 2, drafts("a3")),
            Append("c", 0, drafts("lost"), {"a": 2}),
            Append("d", 0, drafts("d1"), {"a": 3}),
        ]
    )
    assert [type(outcome) for outcome in outcomes] == [list, StreamConflict, list, StreamMoved, list]
    assert reasons(log) == ["a1", "a2", "a3", "d1"]
    assert [(row.seq, row.rest) for row in log.raw()] == [(1, 1), (2, 0), (3, 0), (4, 0)]
    assert log.commits == 1


def test_a_cause_within_is_counted_from_its_own_append(log: AnyLog):
    log.commit([Append("a", 0, drafts("a1")), Append("b", 0, (Draft(A), Draft(B, within=0)))])
    assert [recorded.cause for recorded in log.read()] == [None, None, 2]


def test_a_group_of_refusals_is_no_commit(log: AnyLog):
    assert isinstance(log.commit([Append("a", 1, drafts("x"))])[0], StreamConflict)
    assert (log.commits, log.head()) == (0, 0)


def test_an_event_too_large_is_refused_alone(log: AnyLog):
    big = Wake(reason="x" * MAX_EVENT_BYTES)
    outcomes = log.commit([Append("a", 0, (Draft(A), Draft(big))), Append("b", 0, drafts("b1"))])
    assert isinstance(outcomes[0], EventTooLarge)
    assert (outcomes[0].limit, outcomes[0].size > MAX_EVENT_BYTES) == (16 * 1024 * 1024, True)
    assert reasons(log) == ["b1"]
    with pytest.raises(EventTooLarge):
        log.append("a", 0, [big])


def test_the_largest_event_is_taken(place: Any):
    frame = len('{"kind":"wake","reason":""}')
    place.opened().append("a", 0, [Wake(reason="x" * (MAX_EVENT_BYTES - frame))])
    assert len(reasons(place.opened())[0]) == MAX_EVENT_BYTES - frame


def test_what_no_json_can_hold_is_refused_alone(log: AnyLog):
    outcomes = log.commit([Append("a", 0, drafts("\ud800")), Append("b", 0, drafts("b1"))])
    assert isinstance(outcomes[0], InvalidContent)
    assert reasons(log) == ["b1"]


def test_reading_is_by_place_stream_pattern_and_kind(log: AnyLog):
    withdrawn = WakeWithdrawn(wakes=(), why="retracted")
    log.append("agent/ada", 0, [A, withdrawn])
    log.append("agent/bob", 0, [B])
    log.append("agent", 0, [C])
    log.append("agent/ada", 2, [C])

    def seqs(**which: Any) -> list[int]:
        return [recorded.seq for recorded in log.read(**which)]

    assert seqs() == seqs(stream="*") == [1, 2, 3, 4, 5]
    assert seqs(after=2) == [3, 4, 5]
    assert seqs(after=2, until=4) == [3, 4]
    assert seqs(after=-1, until=99) == [1, 2, 3, 4, 5]
    assert seqs(stream="agent/ada") == [1, 2, 5]
    assert seqs(stream="agent/ada", after=1, until=4) == [2]
    assert seqs(stream="agent/ada", after=3) == [5]
    assert seqs(stream="agent/ada", after_version=1) == [2, 5]
    assert seqs(stream="agent/ada", after_version=1, after=2) == seqs(stream="agent/ada", after_version=2) == [5]
    assert seqs(stream="agent/ada", after_version=1, until=4) == [2]
    assert seqs(stream="agent/ada", after_version=3) == seqs(stream="nobody", after_version=3) == []
    assert seqs(stream="agent/*") == [1, 2, 3, 5]
    assert seqs(stream="agent/*", kinds=["wake"], after=1) == [3, 5]
    assert seqs(kinds=iter(["wake_withdrawn"])) == [2]
    assert seqs(kinds=[]) == seqs(stream="nobody") == seqs(stream="nobody*") == seqs(after=5) == seqs(until=0) == []


def test_a_pattern_is_no_wildcard_but_at_its_end(log: AnyLog):
    log.append("agent/a_b", 0, [A])
    log.append("agent/aXb", 0, [B])
    log.append("agent/é%", 0, [C])
    assert (reasons(log, stream="agent/a_*"), reasons(log, stream="agent/é*")) == (["a"], ["c"])


def test_a_long_read_comes_in_order_and_whole(log: AnyLog):
    """More than a page, of several streams."""
    for turn in range(60):
        log.append("a", turn * 50, [Wake(reason=str(n)) for n in range(50)])
        log.append("b", turn * 50, [Wake(reason=str(n)) for n in range(50)])
    assert [recorded.seq for recorded in log.read()] == list(range(1, 6_001))
    assert [recorded.version for recorded in log.read(stream="b")] == list(range(1, 3_001))
    assert [recorded.version for recorded in log.read(stream="b", after=4_050)] == list(range(2_001, 3_001))


@pytest.mark.parametrize("known", [0, 1])
def test_an_append_of_any_length_is_whole(log: AnyLog, known: int):
    """Longer than what one statement writes, to a stream that was there before and to one that was not."""
    log.append("a", 0, [A] * known)
    log.append("a", known, [Wake(reason=str(n)) for n in range(4_000)])
    assert reasons(log) == ["a"] * known + [str(n) for n in range(4_000)]


def test_a_reader_sees_the_prefix_that_was_there(log: AnyLog):
    log.append("s", 0, [A, B])
    view, raw = log.read(), log.raw()
    log.append("s", 2, [C])
    assert ([r.seq for r in view], [r.seq for r in log.read()]) == ([1, 2], [1, 2, 3])
    assert [row.seq for row in raw] in ([1, 2], [1, 2, 3])


@pytest.mark.scenario("L-07")
def test_what_this_version_does_not_know_is_kept_byte_for_byte(place: Any):
    """An unknown kind, and a known one with a field more."""
    sang, more = b'{"kind":"sang",  "notes":[1.50]}', b'{"kind":"wake","reason":"a","colour":"red"}'
    log = place.opened()
    log.append("s", 0, [Unknown("sang", msgspec.Raw(sang)), Unknown("wake", msgspec.Raw(more))])
    log = place.opened()
    unknown, wake = log.read()
    assert (unknown.kind, unknown.event, wake.event) == ("sang", Unknown("sang", msgspec.Raw(sang)), A)
    assert [row.data.encode() for row in log.raw()] == [sang, more]
    assert [recorded.kind for recorded in log.read(kinds=["sang"])] == ["sang"]


def test_a_known_kind_that_does_not_decode_is_named_by_its_seq(place: Any):
    place.opened().append("s", 0, [A, Unknown("wake", msgspec.Raw(b'{"kind":"wake"}'))])
    read = place.opened().read()
    assert next(read).event == A
    with pytest.raises(LogCorrupt) as corrupt:
        next(read)
    assert corrupt.value.seq == 2


def test_a_renamed_event_is_found_by_its_new_kind(place: Any, monkeypatch: pytest.MonkeyPatch):
    place.opened().append("s", 0, [A, Unknown("nudge", msgspec.Raw(b'{"kind":"nudge","reason":"n"}'))])
    monkeypatch.setitem(UPCASTS, "nudge", [lambda shape: {**shape, "kind": "wake"}])
    log = place.opened()
    assert reasons(log, kinds=["wake"]) == ["a", "n"]
    assert list(log.read(kinds=["nudge"])) == []


@pytest.mark.parametrize(("size", "kept"), [(1, 0), (2, 1), (5, 2)])
def test_a_torn_append_is_cut_back_to_the_last_whole_one(place: Any, size: int, kept: int):
    log = place.opened()
    log.append("s", 0, [A, B])
    log.append("s", 2, [C] * size)
    log.save(Snapshot("s", 2, 0, "1", b"whole"))
    log.save(Snapshot("s", 2 + size, 0, "1", b"torn"))
    assert (log.tear(), log.head()) == (size - kept, 2 + kept)
    log = place.opened()
    log.open_writer()
    assert (log.cut, log.head(), log.streams()) == (kept, 2, {"s": 2})
    assert [snapshot.state for snapshot in log.snapshots("s")] == [b"whole"]
    assert [r.seq for r in log.append("s", 2, [C])] == [3]


def test_a_whole_log_is_not_cut(place: Any):
    place.opened().append("s", 0, [A, B])
    log = place.opened()
    log.open_writer()
    assert (log.cut, log.head()) == (0, 2)


def test_a_tear_in_an_empty_log_finds_nothing(log: AnyLog):
    assert (log.tear(), log.head()) == (0, 0)


def test_a_tear_inside_a_group_loses_the_last_append_alone(place: Any):
    log = place.opened()
    log.commit([Append("a", 0, drafts("a1", "a2")), Append("b", 0, drafts("b1", "b2"))])
    log.tear()
    log = place.opened()
    log.open_writer()
    assert (log.cut, reasons(log)) == (1, ["a1", "a2"])
    assert list(log.raw())[-1].digest is not None


def test_the_epoch_rises_with_every_writer(place: Any):
    assert [place.opened().open_writer() for _ in range(3)] == [1, 2, 3]


def test_a_second_writer_is_refused_and_the_first_goes_on(log: AnyLog):
    log.open_writer()
    with pytest.raises(LogInUse) as refused:
        log.open_writer()
    assert refused.value.pid == os.getpid()
    assert refused.value.since is not None
    log.append("s", 0, [A])


def test_two_snapshots_of_a_stream_are_kept(place: Any):
    log = place.opened()
    log.append("s", 0, [A] * 3)
    for version, read in ((1, 0), (3, 9), (2, 4), (3, 7)):
        log.save(Snapshot("s", version, read, "code", f"{version}/{read}".encode()))
    log.save(Snapshot("t", 0, 3, "code", b"t"))
    log = place.opened()
    assert log.snapshots("s") == [Snapshot("s", 3, 9, "code", b"3/9"), Snapshot("s", 3, 7, "code", b"3/7")]
    log.drop_snapshots()
    assert (log.snapshots("s"), log.snapshots("t")) == ([], [])


def test_a_page_is_kept_once_and_as_long_as_a_snapshot_has_it(place: Any):
    def saved(stream: str, version: int, *pages: bytes) -> None:
        log.save(Snapshot(stream, version, 0, "code", b"state", {page * 16: b"page " + page for page in pages}))

    def there() -> list[bytes]:
        return sorted(page[-1:] for page in log.pages([page * 16 for page in (b"a", b"b", b"c", b"d")]).values())

    log = place.opened()
    log.append("s", 0, [A] * 4)
    log.append("t", 0, [A])
    log.append("s", 4, [A, B])
    saved("s", 1, b"a", b"b")
    saved("s", 2, b"b")
    saved("t", 1, b"a")
    assert [list(one.pages) for one in log.snapshots("s")] == [[b"b" * 16], [b"a" * 16, b"b" * 16]]
    saved("s", 3, b"c")
    assert there() == [b"a", b"b", b"c"]
    saved("t", 1, b"c")
    assert there() == [b"b", b"c"]
    saved("s", 6, b"b", b"d")
    log.tear()
    log = place.opened()
    log.open_writer()
    assert there() == [b"c"]
    log.drop_snapshots()
    assert there() == []


streams = st.sampled_from(["a", "a/b", "c"])
appends = st.builds(
    lambda stream, expected, events, unmoved: Append(stream, expected, events, unmoved),
    streams,
    st.integers(0, 6),
    st.lists(
        st.builds(lambda text, at: Draft(Wake(reason=text), at=at, read=at), st.text(), st.integers(0, 9)), max_size=3
    ).map(tuple),
    st.dictionaries(streams, st.integers(0, 3), max_size=1),
)


def told(outcome: Any) -> Any:
    return outcome if isinstance(outcome, list) else (type(outcome), str(outcome))


@given(st.lists(st.lists(appends, max_size=4) | st.just("tear") | st.just("open"), max_size=12))
def test_both_logs_tell_the_same(acts: list[Any]):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "log.db"
        memory, file = MemoryLog(), SqliteLog(path)
        try:
            for act in acts:
                if act == "tear":
                    assert memory.tear() == file.tear()
                if act in ("tear", "open"):
                    memory.close()
                    file.close()
                    file = SqliteLog(path)
                    assert (memory.open_writer() > 0, memory.cut) == (file.open_writer() > 0, file.cut)
                else:
                    assert [told(o) for o in memory.commit(act)] == [told(o) for o in file.commit(act)]
            assert list(memory.raw()) == list(file.raw())
            assert list(memory.streams().items()) == list(file.streams().items())
            some: list[dict[str, Any]] = [
                {},
                {"stream": "a"},
                {"stream": "a*", "after": 2},
                {"stream": "c", "after": 1, "until": 6},
                {"stream": "b", "after_version": 2, "until": 9},
            ]
            for which in some:
                assert list(memory.read(**which)) == list(file.read(**which))
        finally:
            file.close()
