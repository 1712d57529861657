"""Waiting for a runtime: results, idleness, their awaited twins. What comes to an end wakes whoever waits."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import pytest

from rewake.actors import AgentConfig, Runtime, tool, worker
from rewake.actors.providers import ScriptedProvider, call_tool
from rewake.actors.providers.base import Request
from rewake.actors.reports import Receipt
from rewake.actors.tools import ToolContext
from rewake.events import MemoryLog, Recorded, RuntimeStopped, ToolResult
from tests.actors.threads import Controlled, agents, said

pytestmark = pytest.mark.usefixtures("nothing_left")


def waited(calls: Sequence[Callable[[], Any]]) -> tuple[list[threading.Thread], list[Any]]:
    """Each call in a thread of its own, and what they gave or raised."""
    came: list[Any] = []

    def run(call: Callable[[], Any]) -> None:
        try:
            came.append(call())
        except BaseException as error:
            came.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    return threads, came


def ended(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive(), "it waits on"


def test_past_its_timeout_a_result_is_what_it_is_now(controlled: Controlled):
    with Runtime(":memory:", provider=controlled, agents=agents()) as rt:
        receipt = rt.push("ada", "hello")
        controlled.arrived()
        assert rt.result(receipt, 0.01).state == "owed"
        assert rt.reply_to(receipt) is None
        assert not rt.run_until_idle(0.01).idle
        assert rt.run_until_idle(0).owed == (receipt.wake,)


def test_whoever_waits_is_told_of_the_stop(controlled: Controlled):
    with Runtime(":memory:", provider=controlled, agents=agents("ada", "bob")) as rt:
        receipt = rt.push("ada", "hello")
        controlled.arrived()
        threads, came = waited([lambda: rt.result(receipt), rt.run_until_idle, lambda: list(rt.tail(follow=True))])
        asked, awaited = waited([lambda: asyncio.run(rt.aresult(receipt)), lambda: asyncio.run(rt.aidle())])
        while len(rt._watchers.watching.get("agent/ada", ())) < 2 or len(rt._watchers.watching.get("", ())) < 3:
            threading.Event().wait(0.001)
    ended([*threads, *asked])
    assert sum(isinstance(one, RuntimeStopped) for one in came) == 2
    assert sum(isinstance(one, list) for one in came) == 1
    assert [type(one) for one in awaited] == [RuntimeStopped] * 2
    assert not any(rt._watchers.watching.values())


@pytest.mark.parametrize("tenth", range(10))
def test_idle_is_never_said_while_a_turn_is_about_to_start(tenth: int):
    """Threads push and ask at once. Whatever was pushed before someone asked has ended when they are told, and so has what
    it led to in other agents. Two hundred rounds in all.
    """

    def script(request: Request) -> Any:
        last = request.messages[-1].blocks[-1]
        return "fine" if isinstance(last, ToolResult) or request.agent == "cyd" else call_tool("pass_on")

    follows: list[Receipt] = []

    @tool
    def pass_on(context: ToolContext) -> str:
        follows.append(context.runtime.push("bob" if context.agent == "ada" else "cyd", "passed on"))
        return "passed"

    configs = [AgentConfig(name=name, model="m", tools=[pass_on]) for name in ("ada", "bob", "cyd")]
    with Runtime(MemoryLog(), provider=ScriptedProvider(script), agents=configs) as rt:

        def playing(plan: Sequence[str]) -> bool:
            mine = [rt.push(name, "hello") for name in plan]
            assert rt.run_until_idle(30).idle
            return all(rt.result(receipt, 0).ended for receipt in mine)

        for seed in range(20 * tenth, 20 * tenth + 20):
            chance = random.Random(seed)
            plans = [[chance.choice(("ada", "bob", "cyd")) for _ in range(chance.randint(0, 3))] for _ in range(3)]
            threads, came = waited([partial(playing, plan) for plan in plans])
            ended(threads)
            assert came == [True] * 3
            assert rt.run_until_idle(30).idle
            assert rt.owed() == []
            assert all(rt.result(receipt, 0).ended for receipt in follows)
            follows.clear()


def test_two_hundred_awaited_results_take_no_thread_each(controlled: Controlled):
    async def play() -> None:
        async with Runtime(":memory:", provider=controlled, agents=agents("ada", "bob")) as rt:
            receipts = [await rt.apush("ada" if number % 2 else "bob", f"{number}") for number in range(200)]
            before = threading.active_count()
            results = [asyncio.create_task(rt.aresult(receipt)) for receipt in receipts]
            await asyncio.sleep(0)
            assert threading.active_count() <= before
            assert (await rt.aresult(receipts[0], 0.01)).state == "owed"
            controlled.release()
            assert {result.state for result in await asyncio.gather(*results)} == {"completed"}
            assert (await rt.aidle(20)).idle
            assert (await rt.astop()).pending == ()

    asyncio.run(play())


@pytest.mark.parametrize(
    "call",
    [
        lambda rt, receipt: rt.aresult(receipt),
        lambda rt, receipt: rt.aidle(),
        lambda rt, receipt: anext(rt.atail(rt.log.head(), follow=True)),
    ],
)
def test_the_loop_turns_while_one_waits(controlled: Controlled, call: Callable[[Runtime, Receipt], Awaitable[Any]]):
    """The loop goes round many times while nothing comes, and what waits ends once it does."""

    async def play() -> None:
        async with Runtime(":memory:", provider=controlled, agents=agents()) as rt:
            receipt = await rt.apush("ada", "hello")
            await asyncio.to_thread(controlled.arrived)
            waiting = asyncio.ensure_future(call(rt, receipt))
            for _ in range(1_000):
                await asyncio.sleep(0)
            assert not waiting.done()
            controlled.release()
            async with asyncio.timeout(20):
                await waiting

    asyncio.run(play())


def test_an_awaited_tail_that_is_cancelled_lets_the_program_end():
    """Its wait holds no thread: `asyncio.run` joins those of its executor."""

    async def play(rt: Runtime) -> list[Recorded]:
        got: list[Recorded] = []

        async def following() -> None:
            async for recorded in rt.atail(follow=True, agent="ada", kinds=["wake"]):
                got.append(recorded)  # noqa: PERF401  (one by one, as they come)

        tails = [asyncio.create_task(following()) for _ in range(40)]
        await rt.apush("ada", "hello")
        while len(got) < 40:
            await asyncio.sleep(0.001)
        for tail in tails:
            tail.cancel()
        return got

    with Runtime(":memory:", provider=ScriptedProvider(), agents=agents()) as rt:
        threads, came = waited([lambda: asyncio.run(play(rt))])
        ended(threads)
        assert [one.kind for one in came[0]] == ["wake"] * 40


def test_an_awaited_tail_ends_with_the_runtime():
    async def play() -> list[int]:
        seen: list[int] = []

        async def following(rt: Runtime) -> None:
            async for recorded in rt.atail(follow=True):
                seen.append(recorded.seq)  # noqa: PERF401  (one by one, as they come)

        async with Runtime(":memory:", provider=ScriptedProvider(), agents=agents()) as rt:
            tail = asyncio.create_task(following(rt))
            await rt.aresult(await rt.awake("ada", "tick"), 20)
            while not seen or seen[-1] < rt.log.head():
                await asyncio.sleep(0.001)
        async with asyncio.timeout(20):
            await tail
        return seen

    seen = asyncio.run(play())
    assert seen == list(range(1, len(seen) + 1))


def test_pushes_of_many_threads_are_all_there():
    log = MemoryLog()
    with Runtime(log, provider=ScriptedProvider(), agents=agents("ada", "bob")) as rt:

        def pushing(who: int) -> None:
            for number in range(50):
                rt.push(
                    ("ada", "bob")[number % 2], f"{who} {number}", dedupe_key=f"{number % 10}" if who == 7 else None
                )

        threads, came = waited([lambda who=who: pushing(who) for who in range(8)])
        ended(threads)
        assert came == [None] * 8
        assert rt.run_until_idle(60).idle
    texts = said(log)
    assert len(texts) == len(set(texts))
    assert sum(text.startswith("7 ") for text in texts) == 10
    assert len(texts) == 7 * 50 + 10


def test_a_drain_is_woken_once_for_many_turns_a_moment_after_the_first(monkeypatch: pytest.MonkeyPatch):
    """Nobody else wakes it: it has read all that they added, in far fewer awakenings than there were turns."""
    monkeypatch.setattr(worker, "MOMENT", 0.5)
    with Runtime(MemoryLog(), provider=ScriptedProvider(lambda _: "fine"), agents=agents()) as rt:
        shell, rung = rt._shells["drain/ada"], list[None]()
        ring = shell.ring
        monkeypatch.setattr(shell, "ring", lambda: (rung.append(None), ring()))
        for _ in range(20):
            assert rt.result(rt.push("ada", "hello")).text == "fine"
        for _ in range(2_000):
            if len(shell.state.conversation.messages) == 40:
                break
            threading.Event().wait(0.01)
        assert len(shell.state.conversation.messages) == 40
        assert 0 < len(rung) < 10
