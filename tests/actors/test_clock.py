"""A process whose wall clock is wrong: set back between two starts or while it runs, or fast while the log was written."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from rewake.actors import Alert, Runtime, RuntimeOptions, clock
from rewake.actors.providers import ScriptedProvider, limit, reply, server_error
from rewake.events import GateClosed, Log, RetryScheduled
from tests.actors.processes import answered, in_order
from tests.actors.threads import agents

pytestmark = pytest.mark.usefixtures("nothing_left")

DAY = 24 * 3_600


class Wall:
    """The machine's wall clock; `set` moves it, in seconds. The monotonic one is as it is."""

    def __init__(self) -> None:
        self.off = 0

    def set(self, seconds: int) -> None:
        self.off += seconds

    def time_ns(self) -> int:
        return time.time_ns() + self.off * 1_000_000_000

    @property
    def now(self) -> int:
        return self.time_ns() // 1_000_000


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Wall:
    made = Wall()
    monkeypatch.setattr(clock, "time", SimpleNamespace(time_ns=made.time_ns, monotonic_ns=time.monotonic_ns))
    return made


def never_backwards(log: Log) -> None:
    """Of each stream."""
    for stream in log.streams():
        assert all(one.at <= other.at for one, other in pairwise(log.read(stream=stream))), stream


def test_a_clock_that_is_set_back_makes_nothing_early_late_or_twice(tmp_path: Path, wall: Wall):
    """While it runs it is not seen; at the next start time goes on from the log's. What waits is a retry and a gate."""
    path, begun = tmp_path / "log.db", time.monotonic()
    script = [server_error(), limit(retry_after=2)]
    with Runtime(path, provider=ScriptedProvider(script), agents=agents()) as rt:
        receipt = rt.push("ada", "hello")
        next(rt.tail(follow=True, kinds=["retry_scheduled"]))
        wall.set(-DAY)
        closed = next(one for one in rt.tail(follow=True) if isinstance(one.event, GateClosed))
        newest = max(one.at for one in rt.log.read())
        never_backwards(rt.log)
    wall.set(-DAY)
    told: list[Alert] = []
    provider = ScriptedProvider([reply("there you are")])
    options = RuntimeOptions(on_alert=told.append)
    with Runtime(path, provider=provider, agents=agents(), options=options) as rt:
        assert rt.now() >= newest
        assert rt.result(receipt, 30).text == "there you are"
        opened = next(rt.log.read(closed.seq, kinds=["gate_opened"]))
        assert isinstance(closed.event, GateClosed)
        assert closed.event.until is not None
        assert closed.event.until <= opened.at < closed.event.until + 10_000
        (retry,) = (one for one in rt.log.read(kinds=["retry_scheduled"]))
        (due,) = rt.log.read(kinds=["retry_due"])
        assert isinstance(retry.event, RetryScheduled)
        assert retry.event.at <= due.at
        assert len(provider.requests) == 1
        assert answered(rt.log) == [receipt.wake]
        assert time.monotonic() - begun > 2.5
        never_backwards(rt.log)
        in_order(rt.log)
        assert [alert.kind for alert in rt.health().alerts if alert.kind == "clock"] == ["clock"]
    assert [alert.message for alert in told if alert.kind == "clock" and "2879 min" in alert.message]


def test_a_log_from_the_future_goes_on_and_an_operator_is_told(tmp_path: Path, wall: Wall):
    """Its writer's clock was a year fast; what it had waited for comes due by its own time, not a year later."""
    path, told = tmp_path / "log.db", list[Alert]()
    wall.set(365 * DAY)
    with Runtime(path, provider=ScriptedProvider([limit(retry_after=2)]), agents=agents()) as rt:
        receipt = rt.push("ada", "hello")
        next(rt.tail(follow=True, kinds=["gate_closed"]))
        future = rt.now()
    wall.set(-365 * DAY)
    options = RuntimeOptions(on_alert=told.append)
    with Runtime(path, provider=ScriptedProvider(), agents=agents(), options=options) as rt:
        assert future <= rt.now() < future + 60_000
        assert rt.result(receipt, 30).text == "echo: hello"
        assert answered(rt.log) == [receipt.wake]
        never_backwards(rt.log)
    assert ["525599 min: times go on" in alert.message for alert in told if alert.kind == "clock"] == [True]
    with Runtime(path, provider=ScriptedProvider(), agents=agents()) as rt:
        assert "clock" in {alert.kind for alert in rt.health().alerts}, (
            "until the clock has caught up each start says so"
        )


def test_a_clock_that_is_a_little_behind_is_no_alert(tmp_path: Path, wall: Wall):
    path = tmp_path / "log.db"
    for seconds in (0, -30):
        wall.set(seconds)
        with Runtime(path, provider=ScriptedProvider(), agents=agents()) as rt:
            assert "alerted" not in {one.kind for one in rt.log.read()}
