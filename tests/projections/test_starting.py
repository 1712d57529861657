"""What a start reads of a log, and how it finds that an index has led it astray."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rewake.events import HostStopped, LogCorrupt, MemoryLog, Recorded, Resumed
from rewake.projections.starting import GAP, Noted, stretches


class Astray(MemoryLog):
    """A log whose streams are read by a damaged index: `astray` makes other events of those that are there."""

    astray: Callable[[list[Recorded]], list[Recorded]] = staticmethod(lambda events: events)

    def read(self, after: int = 0, stream: str | None = None, *which: Any, **more: Any) -> Iterator[Recorded]:
        events = list(super().read(after, stream, *which, **more))
        return iter(self.astray(events) if stream else events)


@pytest.fixture
def log() -> Astray:
    log = Astray()
    for version in range(6):
        log.append("host", version, [HostStopped(version)])
        log.append("gate/a", version, [Resumed()])
    return log


def started(log: MemoryLog) -> list[Recorded]:
    noted = Noted(log)
    read = [*noted.read(2, "gate/a", ["resumed"], log.head()), *noted.read(0, "host", None, log.head())]
    noted.check()
    return read


def test_a_whole_log_is_read_as_it_is(log: Astray):
    assert [one.version for one in started(log)] == [2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("astray", "why"),
    [
        (lambda events: events[:2] + events[3:], "comes next"),
        (lambda events: events[:-1], "is read up to"),
        (lambda events: [*events[:3], events[2], *events[3:]], "comes next"),
    ],
)
def test_a_stream_that_is_read_with_a_gap_is_damaged(log: Astray, astray: Any, why: str):
    """A followed stream as well, of which only some kinds are folded."""
    log.astray = astray
    with pytest.raises(LogCorrupt, match=why):
        started(log)


def test_an_event_that_is_found_in_two_streams_is_damaged(log: Astray):
    other = list(log.read(stream="gate/a"))
    log.astray = lambda events: (
        [Recorded(one.seq, at.at, at.stream, at.version, None, 0, at.event) for one, at in zip(other, events, strict=True)]
        if events and events[0].stream == "host"
        else events
    )  # fmt: skip
    with pytest.raises(LogCorrupt, match="damaged"):
        started(log)


def test_streams_that_have_lost_their_end_are_damaged(log: Astray):
    log.streams = lambda: {"host": 5, "gate/a": 6}
    with pytest.raises(LogCorrupt, match="11 events where the log has 12"):
        started(log)


def test_events_near_each_other_are_checked_together():
    assert list(stretches([9, 1, 2, 9 + GAP, 9 + 3 * GAP])) == [(1, 9 + GAP), (9 + 3 * GAP, 9 + 3 * GAP)]
    assert list(stretches([])) == []
