"""A provider's gate: it closes on a limit, what it holds waits durably, and it opens by itself for one call first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import pytest

from rewake.actors.config import AgentConfig, RuntimeOptions
from rewake.actors.lines import Line, Waiting
from rewake.actors.orders import Admit, Infer
from rewake.actors.providers import (
    ScriptedProvider,
    auth,
    call_tool,
    invalid,
    limit,
    overloaded,
    reply,
    server_error,
    slow,
)
from rewake.actors.providers.base import text_of
from rewake.actors.providers.script import Item
from rewake.actors.reports import Alert
from rewake.actors.simulation import EPOCH, Simulation
from rewake.actors.tools import tool
from rewake.events import (
    CompressionHeld,
    DrainPassed,
    Event,
    Failure,
    GateClosed,
    GateOpened,
    HoldEnded,
    InvalidSetting,
    ProviderHeld,
    ProviderReleased,
    Quiesced,
    Resumed,
    TurnStarted,
    WaitReleased,
)
from rewake.projections.gates import Gate
from tests.actors.worlds import host_says

E = TypeVar("E", bound=Event)
MINUTE, HOUR = 60.0, 3_600.0


class World:
    """Agents whose provider answers by a function of the request, and notes when each call was made."""

    def __init__(
        self,
        answer: Callable[[Any], Item] | Sequence[Item],
        *agents: str,
        summarize: Callable[[Any], Item] | None = None,
        options: RuntimeOptions | None = None,
        seed: int = 0,
        models: dict[str, str] | None = None,
        **config: Any,
    ) -> None:
        self.calls: list[tuple[float, str, str, str]] = []
        left = None if callable(answer) else iter(answer)
        self.answer = answer if callable(answer) else lambda _: next(left, "fine") if left else "fine"
        named = models or {}
        self.sim = Simulation(
            agents=[AgentConfig(name=name, **{"model": named.get(name, "m"), **config}) for name in agents or ("ada",)],
            provider=ScriptedProvider(
                lambda request: self.noted(request, self.answer), summarize=lambda r: self.noted(r, summarize or short)
            ),
            options=options,
            seed=seed,
        )

    def noted(self, request: Any, answer: Callable[[Any], Item]) -> Item:
        self.calls.append((self.now, request.agent, request.purpose, request.model))
        return answer(request)

    @property
    def now(self) -> float:
        return (self.sim.now - EPOCH) / 1_000

    @property
    def times(self) -> list[float]:
        """When calls were made, in seconds."""
        return [at for at, *_ in self.calls]

    def said(self, kind: type[E], stream: str | None = None) -> list[E]:
        return [one.event for one in self.sim.log.read(stream=stream) if isinstance(one.event, kind)]

    def closed(self) -> list[tuple[str, float | None]]:
        """How often the gate closed, why, and until when in seconds."""
        found = self.said(GateClosed)
        return [(one.why, one.until and (one.until - EPOCH) / 1_000) for one in found]


def short(_: Any) -> Item:
    return "They said so."


# -- a wait that is stated


@pytest.mark.scenario("G-01")
@pytest.mark.parametrize("stated", [limit(30), limit(timedelta(seconds=30)), overloaded(30)])
def test_a_stated_wait_closes_the_gate_for_exactly_as_long(stated: Item):
    world = World([stated, "hello"])
    first = world.sim.push("ada", "hi")
    world.sim.run()
    joined = [world.sim.push("ada", "and?"), world.sim.wake("ada", "alarm")]
    world.sim.advance(seconds=29.999)
    assert world.times == [0]
    assert {one.state for one in world.sim.owed()} == {"gated"}
    assert [one.next_at for one in world.sim.owed()] == [EPOCH + 30_000] * 3
    world.sim.advance(seconds=0.001)
    assert world.times == [0, 30]
    assert [world.sim.reply_to(one) for one in (first, *joined)] == ["hello"] * 3
    assert [until for _, until in world.closed()] == [30]
    kinds = world.sim.kinds("ada")
    assert (kinds.count("turn_started"), kinds.count("undo_point"), kinds.count("retry_scheduled")) == (2, 1, 0)
    assert world.said(TurnStarted)[1].attempt == 2


@pytest.mark.scenario("W-10")
def test_any_failure_that_may_be_tried_again_and_states_a_wait_closes_the_gate():
    world = World([server_error(retry_after=20 * MINUTE), *[server_error()] * 3, "at last"])
    receipt = world.sim.push("ada", "hi")
    world.sim.advance(minutes=19.9)
    assert world.times == [0]
    world.sim.advance(minutes=1)
    assert world.times == [0, 1_200, 1_201, 1_203, 1_207]
    assert world.sim.reply_to(receipt) == "at last"


@pytest.mark.scenario("G-03")
@pytest.mark.scenario("G-04")
@pytest.mark.parametrize(("back", "called"), [(200, 600), (700, 700)])
def test_a_wait_survives_a_crash_with_its_own_deadline(back: float, called: float):
    world = World([limit(600), "hello"])
    receipt = world.sim.push("ada", "hi")
    world.sim.advance(seconds=100)
    world.sim.crash()
    world.sim.advance(seconds=back - 100)
    world.sim.restart()
    world.sim.run()
    world.sim.advance(seconds=1_000)
    assert world.times == [0, called]
    assert world.sim.reply_to(receipt) == "hello"
    assert [one.since - EPOCH for one in world.said(ProviderHeld)] == [0]


@pytest.mark.scenario("G-15")
def test_a_stop_during_a_wait_records_nothing_and_the_next_start_waits_the_rest():
    world = World([limit(600), "hello"])
    receipt = world.sim.push("ada", "hi")
    world.sim.advance(seconds=100)
    before = world.sim.kinds("ada")
    assert world.sim.stop().pending == (receipt.wake,)
    world.sim.advance(seconds=50)
    world.sim.restart()
    assert world.sim.kinds("ada") == before
    world.sim.advance(seconds=449)
    assert world.times == [0]
    world.sim.advance(seconds=1)
    assert world.times == [0, 600]


@pytest.mark.scenario("G-13")
@pytest.mark.scenario("G-16")
@pytest.mark.parametrize(("wait", "shift"), [(30, -HOUR), (30 * MINUTE, HOUR)])
def test_no_setting_of_the_wall_clock_moves_a_deadline(wait: float, shift: float):
    world = World([limit(wait), "hello"])
    world.sim.push("ada", "hi")
    world.sim.run()
    world.sim.shift_clock(shift)
    world.sim.advance(seconds=wait - 0.001)
    assert world.times == [0]
    world.sim.advance(seconds=0.001)
    assert world.times == [0, wait]


@pytest.mark.scenario("G-16")
@pytest.mark.parametrize("shift", [-HOUR, HOUR])
def test_a_restart_on_a_clock_that_was_set_waits_no_longer_than_was_stated(shift: float):
    world = World([limit(30 * MINUTE), "hello"])
    receipt = world.sim.push("ada", "hi")
    world.sim.run()
    world.sim.stop()
    world.sim.shift_clock(shift)
    world.sim.restart()
    world.sim.advance(minutes=30)
    assert world.sim.reply_to(receipt) == "hello"


@pytest.mark.scenario("G-12")
def test_a_quota_is_waited_out_with_one_alert_and_no_attempt():
    told: list[Alert] = []
    options = RuntimeOptions(on_alert=told.append)
    world = World([limit(timedelta(hours=3)), *[server_error()] * 3, "hello"], options=options)
    receipt = world.sim.push("ada", "hi")
    world.sim.run()
    world.sim.push("ada", "still?")
    world.sim.advance(hours=2.9)
    assert world.closed() == [("quota", 3 * HOUR)]
    assert [(one.kind, one.until) for one in told] == [("provider_wait", EPOCH + 3 * 3_600_000)]
    world.sim.advance(hours=0.1)
    assert world.times == [0, 3 * HOUR]
    world.sim.advance(seconds=7)
    assert world.sim.reply_to(receipt) == "hello"


def test_a_wait_that_no_clock_can_represent_is_an_operators():
    world = World([limit(1e30), "hello"], options=RuntimeOptions())
    receipt = world.sim.push("ada", "hi")
    report = world.sim.run_until_idle()
    assert (report.idle, report.gated) == (True, (receipt.wake,))
    world.sim.advance(days=40)
    assert (world.times, world.closed()) == ([0], [("quota", None)])
    assert [one.kind for one in world.sim.health().alerts] == ["provider_wait"]
    with pytest.raises(InvalidSetting, match="there are scripted"):
        world.sim.release("elsewhere")
    assert world.sim.release("scripted", "other").models == ()
    assert world.sim.release("scripted", "m", by="grace").models == ("m",)
    world.sim.run()
    assert world.sim.reply_to(receipt) == "hello"
    assert world.said(WaitReleased) == [WaitReleased("m", "grace")]


# -- a wait that is guessed


@pytest.mark.scenario("G-02")
def test_limits_without_a_hint_wait_twice_as_long_each_time_until_a_success():
    world = World([limit(), limit(), "one", limit(), "two"])
    world.sim.push("ada", "hi")
    world.sim.advance(minutes=5)
    world.sim.push("ada", "again")
    world.sim.advance(minutes=5)
    first, second, third = (one.until - one.since for one in world.said(GateClosed) if one.until)
    jitter = first - 65_000
    assert 0 <= jitter <= 5_000
    assert (second, third) == (first + 130_000 + jitter, first)
    assert world.times == [0, first / 1_000, second / 1_000, 300, 300 + third / 1_000]


def test_guessed_waits_are_settings_and_no_longer_than_the_longest():
    options = RuntimeOptions(limit_wait=10, limit_jitter=0, longest_limit_wait=25, overload_wait=1)
    world = World([limit(), limit(), limit(), overloaded(), overloaded(), "hello"], options=options)
    world.sim.push("ada", "hi")
    world.sim.advance(minutes=5)
    assert world.times == [0, 10, 30, 55, 56, 58]


def test_an_overload_is_a_class_of_its_own():
    world = World([*[overloaded()] * 8, limit(), "hello"], options=RuntimeOptions(limit_jitter=0))
    world.sim.push("ada", "hi")
    world.sim.advance(hours=1)
    gaps = [later - sooner for sooner, later in zip(world.times, world.times[1:], strict=False)]
    assert gaps == [5, 10, 20, 40, 80, 160, 300, 300, 65]


def test_a_wait_of_no_time_is_none_that_was_stated():
    world = World([limit(0), server_error(retry_after=0), "hello"])
    world.sim.push("ada", "hi")
    world.sim.advance(minutes=2)
    assert 65 <= world.times[1] <= 70
    assert world.times[2] == world.times[1] + 1


@pytest.mark.scenario("G-11")
def test_only_what_may_be_tried_again_closes_the_gate():
    answers = {"ada": invalid(retry_after=60), "bob": auth(retry_after=60), "eve": limit(60)}
    world = World(lambda request: answers.pop(request.agent, "fine"), "ada", "bob", "eve")
    receipts = [world.sim.push(name, "hi") for name in ("ada", "bob")]
    world.sim.run()
    assert {world.sim.result(one, 0).state for one in receipts} == {"exhausted"}
    assert world.closed() == []
    world.sim.push("eve", "hi")
    world.sim.run()
    assert world.closed() == [("limit", 60)]


# -- who goes when it opens


def crowd(probe: Item, *, seed: int = 0) -> World:
    """30 agents and room for four calls: one meets a limit of a minute while 3 are in flight and 8 are queued."""
    names = [f"a{number:02}" for number in range(30)]
    firsts = {"a00": [limit(60), probe]}

    def answer(request: Any) -> Item:
        item = firsts[request.agent].pop(0) if firsts.get(request.agent) else reply("fine")
        return slow(item, seconds=1 if world.now < 1 and request.agent == "a00" else 5)

    world = World(answer, *names, options=RuntimeOptions(max_in_flight=4), seed=seed)
    for name in names[:12]:
        world.sim.push(name, "hi")
        world.sim.run()
    world.sim.advance(seconds=2)
    for name in names[12:]:
        world.sim.push(name, "hi")
    world.sim.advance(seconds=58)
    return world


@pytest.mark.scenario("G-05")
@pytest.mark.parametrize("seed", range(4))
def test_after_a_limit_nothing_more_is_sent_then_one_call_then_more_and_more(seed: int):
    world = crowd(reply("fine"), seed=seed)
    assert world.times[:4] == [0] * 4
    assert [at for at in world.times if 0 < at < 61] == []
    world.sim.advance(seconds=1)
    assert [(at, agent) for at, agent, *_ in world.calls[4:]] == [(61, "a00")]
    world.sim.advance(minutes=10)
    begun = [at for at in world.times if at > 61]
    assert [begun.count(at) for at in sorted(set(begun))[:4]] == [1, 2, 4, 4]
    assert len(begun) == 26
    assert world.sim.owed() == []
    since = next(one.seq for one in world.sim.events() if isinstance(one.event, GateOpened))
    for name in {agent for _, agent, *_ in world.calls}:
        compiled = [one for one in world.sim.events(name) if one.kind == "compiled" and one.seq > since]
        assert len(compiled) <= 1
    assert [one.probe for one in world.said(GateOpened) if one.probing] == ["agent/a00"]


@pytest.mark.scenario("G-06")
def test_a_probe_that_meets_a_limit_again_closes_the_gate_for_all():
    world = crowd(limit(60))
    world.sim.advance(seconds=60)
    assert world.times == [0] * 4 + [61]
    gated = [one for one in world.sim.health().agents if one.state == "gated"]
    assert len(gated) == 27
    assert {one.since for one in gated if one.agent == "a00"} == {EPOCH + 1_000}
    assert all(one.since and one.since <= EPOCH + 2_000 for one in gated)
    world.sim.advance(minutes=10)
    assert world.sim.owed() == []


def test_a_call_that_was_sent_before_the_close_is_no_probe_and_doubles_nothing():
    """Its success opens nothing, its limit is none in a row."""
    items: dict[str, list[Item]] = {
        "ada": [limit(), slow("probing", seconds=100)],
        "bob": [slow("long ago", seconds=90)],
        "eve": [slow(limit(), seconds=5)],
    }
    world = World(lambda r: items[r.agent].pop(0), "bob", "eve", "ada", options=RuntimeOptions(limit_jitter=0))
    for name in ("bob", "eve", "ada"):
        world.sim.push(name, "hi")
        world.sim.run()
    world.sim.advance(seconds=91)
    assert [(one.why, one.n) for one in world.said(GateClosed)] == [("limit", 1)] * 2
    assert [(one.probing, one.probe) for one in world.said(GateOpened)] == [(True, "agent/ada")]
    assert world.times == [0, 0, 0, 70]


def test_another_probes_when_the_first_makes_no_call():
    async def willing(agent: str, wakes: Any) -> bool:
        return agent != "ada" or not world.times

    items = {"ada": [limit(60)]}
    world = World(lambda r: items[r.agent].pop(0) if items.get(r.agent) else "fine", "ada", "bob", "eve")
    world.sim.crash()
    world.sim.restart([AgentConfig(name=name, model="m", inference_policy=willing) for name in ("ada", "bob", "eve")])
    receipts = [world.sim.push(name, "hi") for name in ("ada",)]
    world.sim.run()
    receipts += [world.sim.push(name, "hi") for name in ("bob", "eve")]
    world.sim.advance(seconds=60)
    assert [world.sim.result(one, 0).state for one in receipts] == ["declined", "completed", "completed"]
    assert [(one.why, one.probe) for one in world.said(GateOpened) if one.probing] == [
        ("due", "agent/ada"),
        ("probe_passed_on", "agent/bob"),
    ]


def test_where_nobody_waits_whoever_comes_first_goes_alone():
    world = World([limit(60)], "ada", "bob", "eve", max_tokens=100)
    world.sim.push("ada", "hi")
    world.sim.run()
    world.sim.configure("ada", model="other")
    world.sim.advance(seconds=60)
    world.answer = lambda _: slow("fine", seconds=5)
    for name in ("bob", "eve"):
        world.sim.push(name, "hi")
    world.sim.advance(seconds=12)
    assert world.times == [0, 0, 60, 65]


def test_nothing_goes_for_a_model_between_its_limit_and_the_gates_word_of_it():
    def waiting(call: str, model: str = "m") -> Waiting:
        order = Infer(call, f"agent/{call}", "turn", "p", model, True, 5, lambda: None)  # pyright: ignore[reportArgumentType]
        return Waiting(f"agent/{call}", ("call", call), order)

    def sent() -> list[str]:
        return [one.order.call for one in iter(line.next, None)]

    line = Line(admit=Admit("p", 0))
    line.failed(waiting("one"), Failure("limit", "", retryable=True))
    for one in (waiting("two"), waiting("three", "other")):
        line.put(one)
    assert sent() == ["three"]
    line.take(Admit("p", 0, Gate(version=3)))
    assert sent() == []
    line.take(Admit("p", 0, Gate(heard=("one",))))
    assert sent() == ["two"]


# -- what goes on meanwhile


@pytest.mark.scenario("G-09")
def test_a_turn_that_meets_a_limit_after_its_tools_goes_on_behind_their_results():
    ran: list[str] = []

    @tool(name="note")
    def note(what: str) -> str:
        """Note something."""
        ran.append(what)
        return what

    calls = [call_tool("note", {"what": str(number)}) for number in range(5)]
    world = World([calls, limit(60), "done"], tools=(note,))
    receipt = world.sim.push("ada", "hi")
    world.sim.run()
    later = world.sim.push("ada", "and this?")
    world.sim.advance(seconds=60)
    assert sorted(ran) == ["0", "1", "2", "3", "4"]
    assert [world.sim.reply_to(one) for one in (receipt, later)] == ["done"] * 2
    again = world.said(TurnStarted)[1]
    assert (again.resumes, again.attempt) == (True, 2)
    assert world.sim.kinds("ada").count("undo_point") == 1
    sent = world.sim.provider.requests[-1].messages
    assert [text_of(one.blocks) for one in sent][-1] == "and this?"


def loaded(answer: Callable[[Any], Item], summarize: Callable[[Any], Item], **config: Any) -> World:
    """An agent whose history gives its drain something to do, and another one."""
    world = World(
        answer,
        "ada",
        "bob",
        summarize=summarize,
        recent_window_tokens=1_000,
        target_chunk_tokens=500,
        models=config.pop("models", None),
        options=RuntimeOptions(maintenance_interval=600),
        **config,
    )
    for number in range(12):
        world.sim.push("ada", f"{number}" + " hello" * 200, wake=number == 11)
    return world


@pytest.mark.scenario("G-07")
def test_a_wait_is_its_models_own():
    firsts = {"ada": limit(600)}
    world = loaded(lambda r: firsts.pop(r.agent, "fine"), short, models={"ada": "a", "bob": "b"})
    world.sim.advance(seconds=30)
    bob = world.sim.push("bob", "hi")
    world.sim.run()
    assert world.sim.reply_to(bob) == "fine"
    assert [call for call in world.calls if call[2:] == ("compression", "a")] == []
    for _ in range(12):
        world.sim.push("bob", " hello" * 200)
        world.sim.run()
    world.sim.advance(seconds=200)
    assert [call[1] for call in world.calls if call[2:] == ("compression", "b")]
    assert [call for call in world.calls if call[2:] == ("compression", "a")] == []
    world.sim.advance(seconds=400)
    assert [call for call in world.calls if call[2:] == ("compression", "a")]


@pytest.mark.scenario("G-07")
def test_a_shorter_wait_that_is_stated_later_shortens_nothing():
    items = {"ada": limit(60), "bob": slow(limit(10), seconds=5), "eve": slow(limit(90), seconds=6)}
    world = World(lambda r: items.pop(r.agent, "fine"), "ada", "bob", "eve")
    for name in ("eve", "bob", "ada"):
        world.sim.push(name, "hi")
        world.sim.run()
    world.sim.advance(seconds=95.9)
    assert [until for _, until in world.closed()] == [60, 60, 96]
    assert world.times == [0, 0, 0]
    world.sim.advance(seconds=1)
    assert len(world.times) == 6


@pytest.mark.scenario("G-14")
def test_no_more_calls_than_the_bound_and_turns_before_compression():
    names = [f"a{number}" for number in range(5)]
    world = World(
        lambda _: slow("fine", seconds=5 if world.sim.options.max_in_flight else 0),
        *names,
        summarize=lambda _: slow("They said so.", seconds=5),
        options=RuntimeOptions(max_in_flight=0),
        recent_window_tokens=1_000,
        target_chunk_tokens=500,
    )
    for name in names:
        for number in range(12):
            world.sim.push(name, f"{number}" + " hello" * 200, wake=number == 11)
    world.sim.run()
    world.sim.crash()
    assert [purpose for _, _, purpose, _ in world.calls] == ["turn"] * 5 + ["compression"] * 5
    world.calls.clear()
    world.sim.options = RuntimeOptions(max_in_flight=2)
    world.sim.restart()
    world.sim.run()
    for name in names:
        world.sim.push(name, "hi")
    world.sim.advance(seconds=60)
    assert [purpose for _, _, purpose, _ in world.calls][:10] == ["compression"] * 2 + ["turn"] * 5 + [
        "compression"
    ] * 3
    assert world.times[:10] == [0, 0, 5, 5, 10, 10, 15, 15, 20, 20]


@pytest.mark.scenario("G-17")
def test_a_limit_met_by_compression_holds_the_turns_of_its_model():
    waits: list[Item] = [limit(600)]
    world = loaded(lambda _: "fine", lambda r: waits.pop() if waits else short(r), models={"ada": "a", "bob": "b"})
    world.sim.run()
    before = len(world.sim.agent("ada").conversation.messages)
    assert [(why, until) for why, until in world.closed()] == [("limit", 600)]
    assert [one.model for one in world.said(CompressionHeld)] == ["a"]
    mine, other = world.sim.push("ada", "hi"), world.sim.push("bob", "hi")
    world.sim.advance(seconds=599)
    assert (world.sim.reply_to(other), world.sim.result(mine, 0).state) == ("fine", "gated")
    assert len(world.sim.agent("ada").conversation.messages) == before + 1
    assert world.said(DrainPassed) == []
    sent = len(world.calls)
    world.sim.advance(seconds=1)
    assert world.calls[sent][0] == 600
    assert world.sim.reply_to(mine) == "fine"
    assert "compressed" in [one.kind for one in world.sim.log.read(stream="drain/ada")]


def test_compression_probes_where_it_waits_alone():
    waits: list[Item] = [limit(600)]
    world = loaded(lambda _: "fine", lambda r: waits.pop() if waits else short(r))
    world.sim.run()
    world.sim.advance(seconds=600)
    assert [one.probe for one in world.said(GateOpened) if one.probing] == ["drain/ada"]
    assert len(world.sim.state("compression", "ada").summaries) == 1


@pytest.mark.scenario("H-31")
def test_a_gate_that_closes_during_a_hold_pauses_compression_and_nothing_else():
    waits: list[Item] = [slow(limit(900), seconds=60)]
    world = loaded(
        lambda _: "fine", lambda r: waits.pop() if waits else slow(short(r), seconds=1), compression_model="sum"
    )
    world.sim.advance(seconds=1)
    world.sim.configure("ada", context_budget_tokens=4_096 + 900, immediate=True, allow_infeasible=True)
    receipt = world.sim.push("ada", "hi")
    world.sim.run()
    held = world.sim.health().agents[0].hold
    assert held
    world.sim.advance(minutes=10)
    assert [one.kind for one in world.sim.log.read(stream="drain/ada")].count("compression_requested") == 1
    after = world.sim.health()
    assert (after.agents[0].hold, after.drains[0].state, after.drains[0].next_at) == (held, "waiting", EPOCH + 960_000)
    assert world.sim.run_until_idle(timeout=60).held == (receipt.wake,)
    world.sim.advance(minutes=7)
    assert world.sim.reply_to(receipt) == "fine"
    assert [one.why for one in world.said(HoldEnded)] == ["fit"]


def test_another_model_goes_on_and_the_wait_stays_for_the_old_one():
    world = World([limit(600), "hello"], "ada", "bob")
    receipt = world.sim.push("ada", "hi")
    world.sim.run()
    other = world.sim.push("bob", "hi")
    world.sim.configure("ada", model="other")
    world.sim.run()
    assert (world.sim.reply_to(receipt), world.sim.result(other, 0).state) == ("hello", "gated")
    assert [(one.why, one.model) for one in world.said(ProviderReleased)] == [("model", "m")]
    assert [one.closed for one in world.sim.health().gates] == [("m",)]


def test_what_is_told_of_a_turn_that_waits():
    world = World([limit(600), "hello"])
    receipt = world.sim.push("ada", "hi")
    report = world.sim.run_until_idle(timeout=60)
    assert (report.idle, report.gated, world.now) == (True, (receipt.wake,), 0)
    (ada,), (gate,) = world.sim.health().agents, world.sim.health().gates
    assert (ada.state, ada.since, ada.next_at) == ("gated", EPOCH, EPOCH + 600_000)
    assert [(one.state, one.until, one.waiting) for one in gate.waits] == [("closed", EPOCH + 600_000, ("agent/ada",))]
    told = world.sim.result(receipt, timeout=10)
    assert (told.state, told.next_at, told.turn) == ("gated", EPOCH + 600_000, "ada/turn/4")
    assert world.sim.run_until_idle(timeout=700).gated == ()
    assert world.sim.reply_to(receipt) == "hello"


# -- what is cancelled


@pytest.mark.scenario("G-10")
@pytest.mark.parametrize("drop", ["machine", "all"])
def test_a_cancel_ends_the_wait_of_what_it_drops_and_nothing_comes_of_it_at_the_deadline(drop: Any):
    """By default what people sent stays owed: the turn waits on, for them alone."""
    world = World([limit(600), "hello"])
    person = world.sim.push("ada", "hi")
    world.sim.run()
    machine = world.sim.wake("ada", "tick")
    world.sim.advance(seconds=100)
    report = world.sim.cancel("ada", drop=drop)
    dropped = [machine.wake] if drop == "machine" else [person.wake, machine.wake]
    assert sorted(report.wakes) == sorted(dropped, key=str)
    assert (world.sim.result(machine).state, world.times) == ("withdrawn", [0])
    world.sim.advance(seconds=100)
    if drop == "all":
        assert [one.why for one in world.said(ProviderReleased)] == ["cancelled"]
        assert (world.sim.result(person).state, world.sim.owed()) == ("withdrawn", [])
        world.sim.advance(hours=2)
        assert world.times == [0]
        return
    assert [(one.wake, one.state, one.next_at) for one in world.sim.owed()] == [(person.wake, "gated", EPOCH + 600_000)]
    world.sim.advance(hours=2)
    assert (world.times, world.sim.reply_to(person)) == ([0, 600], "hello")
    assert world.said(TurnStarted)[-1].wakes == (person.wake,)


# -- while the host is quiesced


@pytest.mark.scenario("H-42")
def test_a_released_turn_that_waits_for_its_place_parks_when_the_host_quiesces():
    world = World(lambda r: slow("fine", seconds=300), "bob", "ada", options=RuntimeOptions(max_in_flight=1))
    world.sim.push("bob", "hi")
    world.sim.run()
    receipt = world.sim.push("ada", "hi")
    world.sim.run()
    host_says(world.sim, Quiesced("surgery"))
    world.sim.advance(seconds=300)
    assert [agent for _, agent, *_ in world.calls] == ["bob"]
    assert (world.sim.run_until_idle().gated, world.sim.agent("ada").turns.running) == ((receipt.wake,), None)
    world.sim.crash()
    world.sim.restart()
    world.sim.run()
    assert world.sim.run_until_idle().gated == (receipt.wake,)
    host_says(world.sim, Resumed())
    world.sim.advance(seconds=300)
    assert world.sim.reply_to(receipt) == "fine"
    assert world.said(TurnStarted, "agent/ada")[-1].attempt == 2


def test_what_a_gate_releases_while_the_host_is_quiesced_runs_at_resume():
    world = World([limit(60), "hello"])
    receipt = world.sim.push("ada", "hi")
    world.sim.run()
    host_says(world.sim, Quiesced())
    world.sim.advance(seconds=120)
    assert (world.times, world.sim.run_until_idle().gated) == ([0], (receipt.wake,))
    assert world.sim.kinds("ada")[-1] == "provider_released"
    host_says(world.sim, Resumed())
    world.sim.run()
    assert (world.times, world.sim.reply_to(receipt)) == ([0, 120], "hello")


@pytest.mark.parametrize("end", ["aborted", "withdrawn", "disposed"])
def test_what_was_released_while_the_host_is_quiesced_can_be_ended_before_it_resumes(end: str):
    """It waits for nothing but the host: no hold and no gate has it any more."""
    world = World([limit(60), "hello"])
    receipt = world.sim.push("ada", "hi")
    world.sim.run()
    host_says(world.sim, Quiesced())
    world.sim.advance(seconds=120)
    match end:
        case "aborted":
            assert world.sim.abort("ada", reason="enough").turn == "ada/turn/4"
        case "withdrawn":
            world.sim.cancel("ada", drop="all")
        case _:
            world.sim.dispose("ada")
    assert world.sim.owed() == []
    if end != "disposed":
        assert world.sim.agent("ada").turns.held is None
        assert world.sim.result(receipt, 0).state == end
        later = world.sim.push("ada", "and now?")
        host_says(world.sim, Resumed())
        assert (world.sim.reply_to(later), world.said(TurnStarted)[-1].wakes) == ("hello", (later.wake,))
