"""Calls from inside: tools, policies and subscribers call the runtime that runs them. Nothing deadlocks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from rewake.actors import AgentConfig, Runtime, RuntimeOptions, tool
from rewake.actors.providers import ScriptedProvider, call_tool
from rewake.actors.providers.base import Request
from rewake.actors.tools import Tool, ToolContext
from rewake.events import CalledFromInside, MemoryLog, ToolResult, UnknownAgent
from tests.actors.threads import agents, kinds, said

pytestmark = pytest.mark.usefixtures("nothing_left")


def once(tool_name: str) -> Callable[[Request], Any]:
    """A script: ada's first request of a turn calls the tool, everything else is answered."""

    def script(request: Request) -> Any:
        last = request.messages[-1].blocks[-1]
        if request.agent != "ada" or isinstance(last, ToolResult):
            return f"answered {request.agent}"
        return call_tool(tool_name)

    return script


def calling(does: Callable[[Runtime, ToolContext], Any], awaited: bool) -> Tool[Any, Any]:
    """A tool, sync or async, that does this."""
    if awaited:

        @tool(name="act")
        async def act(context: ToolContext) -> str:
            found = does(context.runtime, context)
            return str(await found if asyncio.iscoroutine(found) else found)

        return act

    @tool(name="act")
    def act_sync(context: ToolContext) -> str:
        found = does(context.runtime, context)
        return str(asyncio.run(found) if asyncio.iscoroutine(found) else found)

    return act_sync


def runtime(log: Any, act: Tool[Any, Any] | None = None, **config: Any) -> Runtime:
    ada = AgentConfig(name="ada", model="m", tools=[act] if act else [], **config)
    return Runtime(log, provider=ScriptedProvider(once("act")), agents=[ada, *agents("bob")])


@pytest.mark.scenario("T-04")
@pytest.mark.parametrize("awaited", [False, True])
def test_a_tool_pushes_to_its_own_agent_and_to_another(awaited: bool):
    """Both are owed; the own agent's joins at its next boundary, in no turn of its own before that."""
    made: list[Any] = []

    def does(rt: Runtime, context: ToolContext) -> str:
        if not made:
            made.append(rt.push("ada", "note to myself"))
            made.append(rt.push("bob", "hello bob"))
            made.append({one.agent for one in rt.owed()})
        return "pushed"

    log = MemoryLog()
    with runtime(log, calling(does, awaited)) as rt:
        first = rt.push("ada", "go")
        assert rt.result(first, 20).text == "answered ada"
        assert rt.run_until_idle(20).idle
        own, other, owed = made
        assert rt.result(own, 0).state == "completed"
        assert rt.reply_to(other) == "answered bob"
        assert "ada" in owed
    assert said(log)[0] == "go"
    assert {"note to myself", "hello bob"} <= set(said(log))
    order = kinds(log, "agent/ada")
    assert order.index("message_placed") > order.index("tool_returned")


@pytest.mark.scenario("W-25")
def test_what_a_tool_and_five_threads_push_at_once_is_placed_once_in_order_and_answered():
    receipts: list[Any] = []
    begin, pushing = threading.Barrier(6), [True]

    def does(rt: Runtime, context: ToolContext) -> str:
        if pushing and pushing.pop():
            begin.wait(20)
            for number in range(30):
                receipts.append(rt.push("ada", f"ada {number}"))
                receipts.append(rt.push("bob", f"bob {number}"))
            for thread in threads:
                thread.join(20)
        return "pushed"

    def pushes(rt: Runtime, name: str) -> None:
        begin.wait(20)
        receipts.extend([rt.push("ada", f"{name} {number}") for number in range(20)])

    log = MemoryLog()
    with runtime(log, calling(does, awaited=False)) as rt:
        threads = [threading.Thread(target=pushes, args=(rt, f"thread {number}")) for number in range(5)]
        for thread in threads:
            thread.start()
        first = rt.push("ada", "go")
        assert rt.result(first, 30).text == "answered ada"
        assert rt.run_until_idle(30).idle
        assert rt.owed() == []
        states = {rt.result(one, 0).state for one in receipts}
        messages = rt.state("conversation", "ada").messages
    assert states == {"completed"}
    late = [one for one in sorted(receipts, key=lambda one: one.seq) if one.message.startswith("ada/")]
    assert len(late) == 130
    ids = {one.message for one in late}
    placed = [place for place, one in enumerate(messages) if one.id in ids]
    assert [messages[place].id for place in placed] == [one.message for one in late]
    assert placed[0] > next(place for place, one in enumerate(messages) if one.results)
    starts = [one.event for one in log.read(stream="agent/ada", kinds=["turn_started"])]
    assert [getattr(one, "wakes", ()) for one in starts] == [(first.wake,), tuple(one.wake for one in late)]


@pytest.mark.scenario("Q-05")
@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize(
    "call",
    [
        lambda rt, own: rt.stop(),
        lambda rt, own: rt.run_until_idle(),
        lambda rt, own: rt.result(own),
        lambda rt, own: rt.result(own, 30),
    ],
)
def test_what_would_wait_for_its_own_turn_is_refused_at_once(call: Callable[[Runtime, Any], Any], awaited: bool):
    refused: list[BaseException] = []
    owns: list[Any] = []
    pushed = threading.Event()

    def does(rt: Runtime, context: ToolContext) -> str:
        pushed.wait(20)
        try:
            call(rt, owns[0])
        except CalledFromInside as error:
            refused.append(error)
        assert rt.state("turns", "ada").running is not None
        assert rt.result(owns[0], 0).state == "owed"
        return "refused"

    with runtime(":memory:", calling(does, awaited)) as rt:
        owns.append(rt.push("ada", "go"))
        pushed.set()
        assert rt.result(owns[0], 20).text == "answered ada"
    assert len(refused) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda rt, own: rt.aresult(own),
        lambda rt, own: rt.aidle(),
        lambda rt, own: rt.astop(),
    ],
)
def test_awaiting_its_own_turn_is_refused_at_once(call: Callable[[Runtime, Any], Any]):
    refused: list[BaseException] = []
    owns: list[Any] = []
    pushed = threading.Event()

    @tool
    async def act(context: ToolContext) -> str:
        await asyncio.to_thread(pushed.wait, 20)
        try:
            await call(context.runtime, owns[0])
        except CalledFromInside as error:
            refused.append(error)
        return "refused"

    with runtime(":memory:", act) as rt:
        owns.append(rt.push("ada", "go"))
        pushed.set()
        assert rt.result(owns[0], 20).text == "answered ada"
    assert len(refused) == 1


def test_a_tool_waits_for_another_agent():
    """A sync tool has a thread of its own to wait in; an async one awaits."""
    for act in (
        calling(lambda rt, context: rt.result(rt.push("bob", "hello"), 20).text, awaited=False),
        calling(lambda rt, context: rt.aresult(rt.push("bob", "hello"), 20), awaited=True),
    ):
        log = MemoryLog()
        with runtime(log, act) as rt:
            assert rt.result(rt.push("ada", "go"), 20).text == "answered ada"
            (returned,) = [one.event for one in log.read(kinds=["tool_returned"])]
            assert "answered bob" in getattr(returned, "result", "")


def test_an_async_tool_that_would_block_the_loop_is_refused():
    """The answer that it would wait for comes on the very loop that it would block."""
    with runtime(":memory:", calling(lambda rt, context: rt.result(rt.push("bob", "hello")), awaited=True)) as rt:
        assert rt.result(rt.push("ada", "go"), 20).text == "answered ada"
        (returned,) = [one.event for one in rt.log.read(kinds=["tool_returned"])]
        assert "CalledFromInside" in getattr(returned, "result", "")


def test_a_tool_starts_an_agent():
    def does(rt: Runtime, context: ToolContext) -> str:
        rt.start(AgentConfig(name="cyd", model="m"))
        return rt.push("cyd", "hello").wake or ""

    with runtime(":memory:", calling(does, awaited=False)) as rt:
        rt.push("ada", "go")
        assert rt.run_until_idle(20).idle
        assert rt.result(rt.receipt("cyd/wake/3"), 0).text == "answered cyd"


def test_a_tool_has_something_run_once_and_an_async_one_is_refused():
    """A sync tool waits in a thread of its own; nothing of the run is left, its threads included."""
    scout = AgentConfig(name="scout", model="m")
    for awaited in (False, True):
        log = MemoryLog()
        with runtime(log, calling(lambda rt, context: rt.run_once(scout, "look").text, awaited=awaited)) as rt:
            before = threading.active_count()
            assert rt.result(rt.push("ada", "go"), 20).text == "answered ada"
            (returned,) = [one.event for one in log.read(kinds=["tool_returned"])]
            assert ("CalledFromInside" if awaited else "answered scout") in getattr(returned, "result", "")
            assert ("agent/scout" in log.streams()) == (not awaited)
            assert kinds(log, "agent/scout")[-1:] == ([] if awaited else ["agent_disposed"])
            assert "agent/scout" not in rt._shells
            assert rt.run_until_idle(20).idle
            assert threading.active_count() <= before + 1


@pytest.mark.parametrize("awaited", [False, True])
def test_a_tool_aborts_its_own_turn(awaited: bool):
    log = MemoryLog()
    with runtime(log, calling(lambda rt, context: rt.abort("ada", reason="a tool says so").turn, awaited)) as rt:
        result = rt.result(rt.push("ada", "go"), 20)
        assert (result.state, result.why) == ("aborted", "a tool says so")
        assert rt.run_until_idle(20).idle
    (returned,) = [one.event for one in log.read(kinds=["tool_returned"])]
    assert getattr(returned, "why", "") == "ended"


def test_a_runtime_disposes_an_agent_for_good():
    log = MemoryLog()
    with runtime(log) as rt:
        receipt = rt.push("bob", "hello")
        assert rt.result(receipt, 20).text == "answered bob"
        rt.dispose("bob")
        assert rt.reply_to(receipt) == "answered bob"
    for _ in range(2):
        with runtime(log) as rt:
            assert [one.state for one in rt.health().agents if one.agent == "bob"] == ["disposed"]
            with pytest.raises(UnknownAgent):
                rt.push("bob", "still there?")
    assert kinds(log, "agent/bob")[-1] == "agent_disposed"


def test_a_policy_pushes_and_is_refused_what_would_wait():
    seen: list[Any] = []

    def policy(agent: str, wakes: Any) -> bool:
        if not seen:
            seen.append(rt.push("bob", "from the policy"))
            with pytest.raises(CalledFromInside):
                rt.run_until_idle()
        return False

    rt = runtime(":memory:", inference_policy=policy)
    with rt:
        assert rt.result(rt.push("ada", "go"), 20).state == "declined"
        assert rt.result(seen[0], 20).text == "answered bob"


def test_a_subscriber_calls_the_runtime():
    seen: list[Any] = []
    done = threading.Event()

    def hears(recorded: Any) -> None:
        if recorded.kind == "turn_completed" and recorded.stream == "agent/ada":
            seen.append(rt.result(rt.push("bob", "from the subscriber"), 20).text)
            done.set()

    rt = runtime(":memory:", calling(lambda rt, context: "", awaited=False))
    with rt:
        rt.subscribe(hears)
        rt.push("ada", "go")
        assert done.wait(20)
        assert seen == ["answered bob"]


def test_a_subscriber_stops_the_runtime():
    stopped = threading.Event()

    def hears(recorded: Any) -> None:
        if recorded.kind == "turn_completed":
            rt.stop()
            stopped.set()

    rt = runtime(":memory:")
    with rt:
        rt.subscribe(hears)
        rt.push("bob", "go")
        assert stopped.wait(20)


def test_a_stop_during_a_start_waits_for_it():
    """The policy of an agent that the start takes up runs while the start goes on: it starts another, and neither hangs."""
    log = MemoryLog()
    with runtime(log, calling(lambda rt, context: "", awaited=False)) as rt:
        rt.push("ada", "go")
    options = RuntimeOptions(stop_timeout=2.0)
    rt = Runtime(log, provider=ScriptedProvider(once("act")), agents=agents("ada", "bob"), options=options)
    entering = threading.Thread(target=rt.__enter__)
    stopping = threading.Thread(target=rt.stop)
    entering.start()
    stopping.start()
    for thread in (entering, stopping):
        thread.join(20)
        assert not thread.is_alive()
    rt.stop()
