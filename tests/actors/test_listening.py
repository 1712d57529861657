"""Those who listen to a runtime: subscribers, deltas, tails."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from rewake.actors import Runtime
from rewake.actors.providers import ScriptedProvider, reply
from rewake.actors.telling import Delta
from rewake.events import (
    MemoryLog,
    Recorded,
    Wake,
)
from tests.actors.threads import agents

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_a_subscriber_that_raises_breaks_nothing(capsys: pytest.CaptureFixture[str]):
    heard: list[str] = []
    done = threading.Event()

    def broken(recorded: Recorded) -> None:
        raise SystemExit("no")

    def whole(recorded: Recorded) -> None:
        heard.append(recorded.kind)
        if recorded.kind == "turn_completed":
            done.set()

    with Runtime(":memory:", provider=ScriptedProvider(), agents=agents("ada", "bob")) as rt:
        rt.subscribe(broken)
        unsubscribe = rt.subscribe(whole, agent="ada")
        rt.result(rt.push("bob", "not heard"), 20)
        rt.result(rt.push("ada", "hello"), 20)
        assert done.wait(20)
        assert heard[:2] == ["message_added", "wake"]
        assert heard.count("turn_completed") == 1
        unsubscribe()
        rt.result(rt.push("ada", "again"), 20)
    assert heard.count("turn_completed") == 1
    assert "a subscriber raised" in capsys.readouterr().err


def test_deltas_reach_those_who_ask_for_them_and_no_log():
    heard: list[Any] = []
    provider = ScriptedProvider([reply("hello there", deltas=["hello ", "there"])])
    log = MemoryLog()
    with Runtime(log, provider=provider, agents=agents()) as rt:
        plain: list[Any] = []
        rt.subscribe(heard.append, deltas=True)
        rt.subscribe(plain.append)
        receipt = rt.push("ada", "hi")
        turn = rt.result(receipt, 20).turn
    deltas = [one for one in heard if isinstance(one, Delta)]
    assert [(one.agent, one.turn, one.text) for one in deltas] == [("ada", turn, "hello "), ("ada", turn, "there")]
    assert not [one for one in plain if isinstance(one, Delta)]
    wakes = [one.event for one in plain if isinstance(one, Recorded) and one.kind == "wake"]
    assert [one.id for one in wakes if isinstance(one, Wake)] == [receipt.wake]


def test_the_tail_follows_until_the_stop():
    seen: list[int] = []
    far = threading.Event()
    with Runtime(":memory:", provider=ScriptedProvider(), agents=agents("ada", "bob")) as rt:

        def following() -> None:
            for recorded in rt.tail(follow=True):
                seen.append(recorded.seq)
                if recorded.kind == "turn_completed" and recorded.stream == "agent/bob":
                    far.set()

        follower = threading.Thread(target=following)
        follower.start()
        for number in range(20):
            rt.push("ada", f"{number}")
        rt.run_until_idle(20)
        rt.push("bob", "the last one")
        assert far.wait(20)
        (only,) = list(rt.tail(agent="bob", kinds=["wake"]))
        assert only.kind == "wake"
    follower.join(20)
    assert not follower.is_alive()
    assert seen == list(range(1, len(seen) + 1))


def test_a_tail_that_reads_slowly_misses_nothing():
    """What is appended between its reading and its waiting is read too."""
    with Runtime(":memory:", provider=ScriptedProvider(), agents=agents()) as rt:
        head, pushed = rt.log.head, False

        def slowly() -> int:
            nonlocal pushed
            at = head()
            if not pushed:
                pushed = True
                rt.push("ada", "meanwhile", wake=False)
            return at

        tail = rt.tail(after=head(), follow=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rt.log, "head", slowly)
            got: list[Recorded] = []
            reading = threading.Thread(target=lambda: got.append(next(tail)), daemon=True)
            reading.start()
            reading.join(20)
        assert [one.kind for one in got] == ["message_added"]
