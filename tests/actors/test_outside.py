"""Providers and policies that go wrong on the runtime: whatever they do becomes an event."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from rewake.actors import Runtime
from rewake.actors.providers import Reply, Request, ScriptedProvider, reply
from rewake.events import InferenceFailed, InvalidSetting, MemoryLog, Text, Usage
from tests.actors.threads import AT_ONCE, MIB, agents, kinds

pytestmark = pytest.mark.usefixtures("nothing_left")


class Raising:
    """A provider that raises these one after the other, then answers."""

    name = "raising"

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)

    async def infer(self, request: Request, on_delta: Any, /) -> Reply:
        if self.errors:
            raise self.errors.pop(0)
        return reply("fine")


@pytest.mark.parametrize(
    "error", [KeyError("lost"), SystemExit(3), asyncio.CancelledError(), KeyboardInterrupt(), StopIteration()]
)
def test_whatever_a_provider_raises_is_a_failure_of_its_call(error: BaseException):
    log = MemoryLog()
    with Runtime(log, provider=Raising(error), agents=agents("ada", "bob", error_policy=AT_ONCE)) as rt:
        assert rt.result(rt.push("ada", "hello"), 20).text == "fine"
        assert rt.result(rt.push("bob", "hello"), 20).text == "fine"
    (failure,) = [one.event for one in log.read(kinds=["inference_failed"])]
    assert isinstance(failure, InferenceFailed)
    assert failure.error.kind == "unknown"


class Answering:
    """A provider that answers with whatever it was given, then with a reply."""

    name = "answering"

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    async def infer(self, request: Request, on_delta: Any, /) -> Any:
        return self.answers.pop(0) if self.answers else reply("fine")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("hello", "answered with str"),
        (None, "answered with NoneType"),
        (Reply((Text("a"),), usage=Usage(None, 1)), "usage.input"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_what_is_no_reply_is_a_failure_of_its_call(answer: Any, said: str):
    """Not of the actor, which nobody would see."""
    log = MemoryLog()
    with Runtime(log, provider=Answering(answer), agents=agents()) as rt:
        assert rt.result(rt.push("ada", "hello"), timeout=20).text == "fine"
    (failed,) = [one.event for one in log.read() if isinstance(one.event, InferenceFailed)]
    assert failed.error.kind == "unknown"
    assert said in failed.error.message


@pytest.mark.parametrize("provider", [None, {}, object()])
def test_what_is_no_provider_is_refused_before_anything_starts(provider: Any):
    with pytest.raises(InvalidSetting, match="provider"):
        Runtime(MemoryLog(), provider=provider, agents=agents())


def test_an_answer_that_takes_too_long_is_a_timeout():
    log, provider = MemoryLog(), ScriptedProvider(lambda request: reply("late"))
    asked: list[Request] = []

    class Slow:
        name = "slow"

        async def infer(self, request: Request, on_delta: Any, /) -> Reply:
            asked.append(request)
            if len(asked) == 1:
                await asyncio.sleep(3_600)
            return await provider.infer(request, on_delta)

    with Runtime(log, provider=Slow(), agents=agents(call_timeout=0.05, error_policy=AT_ONCE)) as rt:
        assert rt.result(rt.push("ada", "hello"), 20).text == "late"
    (failure,) = [one.event for one in log.read(kinds=["inference_failed"])]
    assert isinstance(failure, InferenceFailed)
    assert failure.error.kind == "timeout"


def test_an_answer_that_no_event_can_hold_is_a_failure():
    log = MemoryLog()
    answers = iter([reply("x" * (16 * MIB)), reply("short")])

    class Large:
        name = "large"

        async def infer(self, request: Request, on_delta: Any, /) -> Reply:
            return next(answers)

    with Runtime(log, provider=Large(), agents=agents(error_policy=AT_ONCE)) as rt:
        assert rt.result(rt.push("ada", "hello"), 60).text == "short"
    (failure,) = [one.event for one in log.read(kinds=["inference_failed"])]
    assert isinstance(failure, InferenceFailed)
    assert "16,777,216" in failure.error.message


def test_a_policy_that_raises_is_a_failure_of_the_start():
    asked: list[str] = []

    def policy(agent: str, wakes: Any) -> bool:
        asked.append(agent)
        if len(asked) == 1:
            raise SystemExit("no opinion")
        return True

    log = MemoryLog()
    with Runtime(log, provider=ScriptedProvider(), agents=agents(inference_policy=policy, error_policy=AT_ONCE)) as rt:
        assert rt.result(rt.push("ada", "hello"), 20).text == "echo: hello"
    assert asked == ["ada", "ada"]
    assert kinds(log).count("turn_prepared") == 2


def test_a_policy_that_blocks_holds_up_nobody_else():
    asked, go = threading.Event(), threading.Event()

    def policy(agent: str, wakes: Any) -> bool:
        asked.set()
        return go.wait(20)

    configs = [*agents("ada", inference_policy=policy), *agents("bob")]
    with Runtime(":memory:", provider=ScriptedProvider(), agents=configs) as rt:
        first = rt.push("ada", "hello")
        assert asked.wait(20)
        assert rt.result(rt.push("bob", "hello"), 20).text == "echo: hello"
        go.set()
        assert rt.result(first, 20).text == "echo: hello"
