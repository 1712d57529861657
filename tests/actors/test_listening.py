"""Those who listen to a runtime: subscribers, deltas, tails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rewake.actors import AgentConfig, Runtime
from rewake.actors.providers import ScriptedProvider, reply
from rewake.actors.telling import Delta
from rewake.events import (
    MemoryLog,
    Recorded,
    UnknownAgent,
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


@pytest.mark.parametrize("follow", [False, True])
def test_an_agent_that_there_never_was_has_no_tail(follow: bool):
    with Runtime(":memory:", provider=ScriptedProvider(), agents=agents()) as rt:
        with pytest.raises(UnknownAgent, match="zz"):
            rt.tail(agent="zz", follow=follow)
        rt.run_once(AgentConfig(name="run", model="m"), "hello", timeout=20)
        assert [one.kind for one in rt.tail(agent="run")][-1] == "agent_disposed"


def streamed(path: Path, deltas: list[str], *listeners: Callable[[Any], None]) -> tuple[list[str], int]:
    """The kinds of a turn whose answer came in these pieces, and the bytes of its events."""
    provider = ScriptedProvider([reply("word " * 2_000, deltas=deltas)])
    with Runtime(path, provider=provider, agents=agents()) as rt:
        for listener in listeners:
            rt.subscribe(listener, deltas=True)
        receipt = rt.push("ada", "hi")
        assert rt.result(receipt, 20).text == "word " * 2_000
        kinds = [one.kind for one in rt.tail()]
        return kinds, sum(len(row.data) for row in rt.log.raw())


@pytest.mark.scenario("L-23")
def test_an_answer_in_one_piece_and_in_two_thousand_is_the_same_events(tmp_path: Path):
    """All who listen for its pieces have them in order, before the answer; one who is stuck, or raises, holds up nobody."""
    heard, stuck, done = list[Any](), threading.Event(), threading.Event()

    def listens(said: Any) -> None:
        heard.append(said)
        if getattr(said, "kind", "") == "turn_completed":
            done.set()

    def waits(said: Any) -> None:
        stuck.wait(30)

    def raises(said: Any) -> None:
        raise SystemExit("no")

    whole, one = streamed(tmp_path / "one.db", ["word " * 2_000])
    pieces, many = streamed(tmp_path / "many.db", ["word "] * 2_000, waits, raises, listens)
    assert done.wait(20)
    stuck.set()
    assert pieces == whole
    assert abs(many - one) < one / 100
    said = [each.text if isinstance(each, Delta) else each.kind for each in heard]
    answered = said.index("inference_completed")
    assert said[answered - 2_000 : answered] == ["word "] * 2_000


def test_the_pieces_of_an_answer_are_no_part_of_what_is_recorded_of_it():
    """However large they are: an event is as large as the answer."""
    provider = ScriptedProvider([reply("hi", deltas=["y" * 9_000_000, "y" * 9_000_000])])
    with Runtime(":memory:", provider=provider, agents=agents()) as rt:
        assert rt.result(rt.push("ada", "hello"), 20).text == "hi"


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
