"""Long lives of waiting: whatever comes in whatever order, nothing is lost, ends twice, or goes before its time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle, islice, product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from rewake.actors.config import AgentConfig, RuntimeOptions
from rewake.actors.owing import Owed
from rewake.actors.providers import (
    ScriptedProvider,
    call_tool,
    drop,
    invalid,
    limit,
    overloaded,
    reply,
    server_error,
    slow,
)
from rewake.actors.redecide import redecide
from rewake.actors.reports import Receipt
from rewake.actors.simulation import Simulation
from rewake.actors.tools import tool
from rewake.events import (
    BudgetInfeasible,
    Held,
    HoldEnded,
    HoldLooked,
    Log,
    Millis,
    Recorded,
    RetryDue,
    RetryScheduled,
    TurnNotRunning,
    TurnStarted,
    Wake,
    WakeWithdrawn,
)
from rewake.events.turns import TurnEnd
from rewake.projections import gates
from rewake.projections.gates import Gate
from rewake.projections.verifying import verify

KINDS = ["*", "wake", "held", "hold_ended", "hold_looked", "provider_held", "gate_closed", "gate_opened", "compressed"]
KINDS += ["inference_requested", "inference_completed", "retry_scheduled", "tool_called", "turn_started"]
STREAMS = ["agent/ada", "agent/bob", "agent/eve", "drain/bob", "gate/scripted", "host"]

WEATHER: dict[str, Callable[[], Any]] = {
    "fine": lambda: reply("well " * 20),
    "late": lambda: slow(reply("late " * 60), seconds=40),
    "limit": limit,
    "limit, stated": lambda: limit(30),
    "limit, late": lambda: slow(limit(600), seconds=3),
    "overloaded": overloaded,
    "overloaded, stated": lambda: overloaded(90),
    "broken": server_error,
    "lost": lambda: drop(after="I was"),
    "refused": invalid,
}

SETTINGS: list[dict[str, Any]] = [
    {"max_tokens": 80},
    {"max_tokens": 100},
    {"context_budget_tokens": 400},
    {"context_budget_tokens": 600},
    {"context_budget_tokens": 2_000},
    {"transition_pace_tokens": 50},
    {"model": "a"},
    {"model": "b"},
]


@tool(idempotent=True)
def look(what: str) -> str:
    """Look something up."""
    return f"found {what} " * 40


async def willing(agent: str, wakes: Any) -> bool:
    return len(wakes) != 2


class Call(Struct, frozen=True):
    """A call that was made: after which event, when, by whom, of which model."""

    head: int
    at: Millis
    stream: str
    model: str


class Watched:
    """What a log says as it grows: wakes and their ends, holds and their looks, retries, and the gate when calls were made.
    Raises AssertionError where it says what must not be.
    """

    def __init__(self) -> None:
        self.read = 0
        self.wakes: set[str] = set()
        self.ended = Counter[str]()
        self.taken: dict[str, set[str]] = {}
        self.seen: dict[str, set[Any]] = {}
        self.due: dict[str, Millis] = {}
        self.gate = Gate()

    def follow(self, log: Log, calls: list[Call]) -> None:
        """Take in what is new; the calls were made meanwhile."""
        for recorded in log.read(self.read):
            while calls and calls[0].head < recorded.seq:
                self.called(calls.pop(0))
            self.read = recorded.seq
            self.take(recorded)
        while calls:
            self.called(calls.pop(0))

    def called(self, call: Call) -> None:
        """Nothing goes while the gate is closed for its model, nor instead of the one that probes."""
        if lane := self.gate.lanes.get(call.model):
            assert lane.state != "closed", (call, lane)
            assert lane.state != "probing" or lane.probe == call.stream, (call, lane)

    def take(self, recorded: Recorded) -> None:
        over: set[str] = set()
        match recorded.event:
            case Wake(id=wake):
                self.wakes.add(wake)
            case TurnStarted(wakes, turn):
                self.taken.setdefault(turn, set()).update(wakes)
            case WakeWithdrawn(wakes):
                over = set(wakes)
                for one in self.taken.values():
                    one -= over
            case Held(turn, until=until, looked=looked):
                self.seen[turn], self.due[turn] = {looked}, until
            case HoldLooked(turn, revisions):
                assert revisions not in self.seen[turn], f"{turn} was looked at twice on the same inputs"
                self.seen[turn].add(revisions)
            case HoldEnded(turn, "deadline"):
                assert recorded.at >= self.due[turn], f"the hold of {turn} ended before its deadline"
            case RetryScheduled(turn, at=at):
                self.due[turn] = at
            case RetryDue(turn):
                assert recorded.at >= self.due[turn], f"{turn} was tried again too early"
            case _ if isinstance(event := recorded.event, TurnEnd):
                over = self.taken.pop(event.turn)
            case _ if type(recorded.event) in gates.KINDS:
                self.gate = gates.evolve(self.gate, recorded)
            case _:
                pass
        self.ended.update(over)
        assert all(self.ended[one] == 1 for one in over), f"{over} ended twice, at event {recorded.seq}"

    @property
    def owed(self) -> set[str]:
        return self.wakes - set(self.ended)


class Waiting:
    """Three agents, two of them of one model, with small budgets."""

    def __init__(self, seed: int, most: int) -> None:
        self.weather = self.summaries = "fine"
        self.asked = 0
        self.calls: list[Call] = []
        self.receipts: list[Receipt] = []
        self.watched = Watched()
        small: Any = {"max_tokens": 100, "recent_window_tokens": 100, "target_chunk_tokens": 120}
        self.sim = Simulation(
            agents=[
                AgentConfig(name="ada", model="a", tools=(look,), context_budget_tokens=900, **small),
                AgentConfig(name="bob", model="a", context_budget_tokens=600, hold_stall_after=600, **small),
                AgentConfig(name="eve", model="b", inference_policy=willing, context_budget_tokens=600, **small),
            ],
            provider=ScriptedProvider(self.answer, summarize=self.summary),
            options=RuntimeOptions(max_in_flight=most),
            seed=seed,
        )

    # -- the world

    def answer(self, request: Any) -> Any:
        self.note(f"agent/{request.agent}", request)
        self.asked += 1
        if request.tools and self.weather == "fine" and self.asked % 3 == 0:
            return call_tool("look", {"what": "it"})
        return WEATHER[self.weather]()

    def summary(self, request: Any) -> Any:
        self.note(f"drain/{request.agent}", request)
        return reply("They said so.") if self.summaries == "fine" else WEATHER[self.summaries]()

    def note(self, stream: str, request: Any) -> None:
        self.calls.append(Call(self.sim.log.head(), self.sim.now, stream, request.model))

    # -- the acts

    def pushed(self, name: str, words: int) -> None:
        self.received(self.sim.push(name, "word " * words))

    def woken(self, name: str, key: str | None) -> None:
        self.received(self.sim.wake(name, "tick", dedupe_key=key))

    def received(self, receipt: Receipt | None) -> None:
        """None: a crash went off before it was told."""
        self.receipts += [receipt] if receipt else []

    def passed(self, seconds: float) -> None:
        self.sim.advance(seconds=seconds)

    def stepped(self, steps: int) -> None:
        """Some of what can happen now; a crash that is armed has to go off in a call of the simulation's own."""
        for _ in range(0 if self.sim._armed else steps):
            self.sim.scheduler.step()

    def turns_meet(self, weather: str) -> None:
        self.weather = weather

    def compression_meets(self, weather: str) -> None:
        self.summaries = weather

    def armed(self, kind: str, when: Any) -> None:
        self.sim.crash_at(kind, when=when)

    def crashed(self, away: float) -> None:
        self.sim.crash()
        self.sim.advance(seconds=away)

    def stopped(self, away: float) -> None:
        self.sim.stop()
        self.sim.advance(seconds=away)

    def torn(self) -> None:
        """The last append was never whole: whoever asked for it was not told."""
        self.sim.crash(torn=True)
        log = self.sim.log
        whole = max((row.seq for row in log.raw(max(0, log.head() - 1_000)) if not row.rest), default=0)
        self.alive()
        self.receipts = [one for one in self.receipts if one.seq <= whole]
        self.watched = Watched()

    def rebuilt(self, stream: str) -> None:
        if not self.sim._armed:
            self.sim.scheduler.rebuild(stream)

    def aborted(self, name: str) -> None:
        with suppress(TurnNotRunning):
            self.sim.abort(name, reason="enough")

    def cancelled(self, name: str, drop: Any) -> None:
        self.sim.cancel(name, drop=drop)

    def configured(self, name: str, changes: dict[str, Any], immediate: bool) -> None:
        with suppress(BudgetInfeasible):
            self.sim.configure(name, immediate=immediate, allow_infeasible=immediate and self.asked % 2 == 0, **changes)

    def helped(self) -> None:
        """An operator opens what is closed."""
        self.sim.release("scripted")

    # -- what holds after each of them

    def does(self, act: str, *args: Any) -> None:
        getattr(self, act)(*args)
        still = self.sim.running and act == "passed"
        self.alive()
        self.check()
        if still:
            self.still()

    def alive(self) -> None:
        """A process that has died is started again."""
        while not self.sim.running:
            self.sim.restart()

    def check(self) -> None:
        self.watched.follow(self.sim.log, self.calls)
        lost = {one.wake for one in self.receipts if one.wake} - self.watched.wakes
        assert not lost, f"acknowledged, and lost: {lost}"

    def still(self) -> None:
        """Nothing can happen at this time: whoever waits is told why, and until when or for what."""
        owed = self.sim.owed()
        assert {one.wake for one in owed} == self.watched.owed
        for one in owed:
            assert self.told(one), one

    def told(self, one: Owed) -> bool:
        if one.next_at is not None:
            return bool(one.why) and one.next_at >= self.sim.now
        if one.state == "gated":
            return any(wait.state in ("probing", "ramping") for gate in self.sim.health().gates for wait in gate.waits)
        return one.state == "owed" and one.ends not in ("", "the agent's next step")

    def ends(self) -> None:
        """In fine weather all that is owed ends; the log is sound, and decided again as it was."""
        self.weather = self.summaries = "fine"
        self.sim._armed.clear()
        self.does("passed", 3 * 3_600)
        assert self.sim.owed() == []
        log = self.sim.log
        self.sim.crash()
        assert verify(log).ok
        assert redecide(log) == []


def act(name: str, often: int, *args: Any) -> list[tuple[Any, ...]]:
    """An act with each of these arguments in turn, in `often` places of the acts that a step is one of."""
    return list(islice(cycle((name, *one) for one in product(*args)), often))


NAMES, AWAY, MET = ["ada", "bob", "bob", "eve"], [0, 0, 2, 3_000], [*WEATHER, *["fine"] * 8]
OFTEN = 64
ACTS = [
    act("passed", 4 * OFTEN, [0, 0, 1, 7, 70, 1_900]),
    act("pushed", OFTEN, NAMES, [3, 60, 150, 250]),
    act("stepped", OFTEN, [1, 2, 5, 20]),
    act("woken", OFTEN, NAMES, [None, None, "one"]),
    act("turns_meet", OFTEN, MET),
    act("compression_meets", OFTEN, MET),
    act("rebuilt", OFTEN, STREAMS),
    act("aborted", OFTEN, NAMES),
    act("cancelled", OFTEN, NAMES, ["machine", "all"]),
    act("configured", OFTEN, NAMES, SETTINGS, [False, True]),
    act("helped", OFTEN),
    act("armed", len(KINDS) * 2, KINDS, ["before", "after"]),
    act("crashed", 8, AWAY),
    act("stopped", 8, AWAY),
    act("torn", 8),
]
"""A step is one of all these; a process lives for some 20 of them."""
ALWAYS, STEPS = 2, 2_000


@st.composite
def lives(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """What happens, step by step, but for some acts that this life is without. One draw a step: a test case has not more."""
    without = draw(st.sets(st.integers(ALWAYS, len(ACTS) - 1), max_size=5))
    step = st.sampled_from([one for place, acts in enumerate(ACTS) if place not in without for one in acts])
    return [draw(step) for _ in range(STEPS)]


def lived(acts: list[tuple[Any, ...]], seed: int, most: int) -> None:
    life = Waiting(seed, most)
    for one in acts:
        life.does(*one)
    life.ends()


LONG = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)
WHOLE = settings(deadline=None, suppress_health_check=LONG)
SEEDS, MOST = st.integers(0, 255), st.sampled_from([0, 1, 3])


@pytest.mark.soak
@pytest.mark.timeout(1_200)  # to find a short life that fails takes a while
@settings(WHOLE, max_examples=6)
@given(lives(), SEEDS, MOST)
def test_nothing_waits_for_ever_is_lost_or_comes_twice(acts: list[tuple[Any, ...]], seed: int, most: int):
    lived(acts, seed, most)
