"""A log decided again with other settings: where it would have gone another way is where the same life does."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tenacity import stop_after_attempt, wait_fixed

from rewake.actors import AgentConfig, ErrorPolicy, tool, what_if
from rewake.actors.agent import behaviour
from rewake.actors.agent.behaviour import react
from rewake.actors.agent.previewing import preview
from rewake.actors.providers import ScriptedProvider, call_tool, reply, server_error, slow
from rewake.actors.redecide import Difference, redecide
from rewake.actors.simulation import Simulation
from rewake.actors.supposing import Supposed
from rewake.actors.whatif import roomless
from rewake.events import (
    AgentStarted,
    Compiled,
    Event,
    Held,
    InvalidSetting,
    Log,
    Recorded,
    Refused,
    SettingChanged,
    TurnStarted,
    UnknownAgent,
)
from rewake.events.codec import decode, encode
from rewake.projections.plan import Refusal
from rewake.scripts.accounts import state_of
from tests.actors.test_agreement import living, one_of
from tests.actors.worlds import answers

SMALL: dict[str, Any] = {
    "model": "m",
    "context_budget_tokens": 900,
    "max_tokens": 100,
    "recent_window_tokens": 100,
    "target_chunk_tokens": 120,
}
CHOICES: dict[str, list[Any]] = {
    "context_budget_tokens": [300, 500, 700, 899, 2_000],
    "physical_window_tokens": [450, 800, 3_000],
    "recent_window_tokens": [0, 50, 300],
    "head_window_tokens": [200],
    "target_chunk_tokens": [60, 200],
    "merge_threshold": [2],
    "max_tokens": [60, 120],
    "model": ["n"],
    "compression_model": ["n"],
    "strategy": ["window"],
    "hold_stall_after": [20, 400],
}


def life(seed: int, **changes: Any) -> Simulation:
    """A life of one agent, that the seed decides, but for its settings."""
    config = AgentConfig(name="bob", **(SMALL | changes))
    sim, chance = Simulation(agents=[config], provider=answers(seed), seed=seed), random.Random(seed)
    for _ in range(11):
        match chance.randint(0, 5):
            case 0 | 1 | 2:
                sim.push("bob", "word " * chance.randint(1, 250))
            case 3:
                sim.wake("bob", "tick")
            case _:
                sim.advance(seconds=chance.choice([1, 40, 700]))
    sim.run()
    return sim


NUMBERS = re.compile(r"(against|leaves|now) [0-9,]+")
"""Where a text names what room there was."""


def told(log: Log, stream: str) -> Iterator[tuple[int, object]]:
    """A stream's events as they count: with their seqs, without what they were configured to."""
    for one in log.read(stream=stream):
        yield one.seq, counted(one.event)


def counted(event: Event) -> object:
    """Events that differ in the room that they name, and no more, are alike."""
    if isinstance(event, AgentStarted):
        return None
    plain = replace(event, refusal=roomless(event.refusal)) if isinstance(event, Held) else roomless(event)
    return NUMBERS.sub("", encode(plain).decode())


def parts(one: Log, other: Log) -> tuple[int, str, object] | None:
    """Where two logs of one agent go apart: the seq in the first, the stream, and what the other has there."""
    found: list[tuple[int, str, object]] = []
    for stream in ("agent/bob", "drain/bob"):
        left, right = list(told(one, stream)), list(told(other, stream))
        for place in range(max(len(left), len(right))):
            seq, mine = left[place] if place < len(left) else (one.head() + 1, None)
            theirs = right[place][1] if place < len(right) else None
            if mine != theirs:
                found.append((seq, stream, theirs))
                break
    return min(found, key=lambda one: one[0], default=None)


def instead(found: Difference) -> list[Event]:
    return [decode(json.loads(one)["kind"], one) for one in found.now]


@pytest.mark.scenario("C-28")
@settings(max_examples=25)
@given(st.integers(0, 2**64), st.sampled_from([(name, value) for name in CHOICES for value in CHOICES[name]]))
def test_it_is_where_the_same_life_with_these_settings_goes_another_way(seed: int, given: tuple[str, Any]):
    changes = dict([given])
    log = life(seed).log
    found, apart = what_if(log, "bob", **changes), parts(log, life(seed, **changes).log)
    if found is None:
        assert apart is None or apart[0] > log.head()
        return
    assert apart is not None
    assert apart[0] > found.seq
    if apart[1] == found.stream and found.now and apart[2]:
        assert apart[2] in [counted(one) for one in instead(found)]


@pytest.mark.scenario("C-28")
@settings(max_examples=25)
@given(st.integers(0, 2**64), st.integers(101, 1_000))
def test_it_is_refused_exactly_where_a_preview_of_that_budget_is(seed: int, budget: int):
    """At the first compile that differs, and at none before it."""
    log = life(seed).log
    found = what_if(log, "bob", context_budget_tokens=budget)
    compiles = [one for one in log.read(stream="agent/bob") if isinstance(one.event, Compiled | Refused)]
    for one in compiles:
        state = state_of(log, "bob", one.cause)
        trial = preview(state, {"context_budget_tokens": budget})
        if found and one.cause == found.seq:
            refused = one_of(instead(found), Refused) is not None
            assert refused == (isinstance(trial, Refusal) and not state.turn.step)
        if found and (one.cause or 0) >= found.seq:
            return
        assert isinstance(one.event, Refused) == isinstance(trial, Refusal) or state.turn.step


@pytest.mark.scenario("C-28")
@settings(max_examples=300)
@given(st.integers(0, 2**64))
def test_on_any_store_the_turn_is_refused_exactly_when_its_preview_is(seed: int):
    dice = random.Random(seed)
    state = living(dice)
    if state.turns.running is None:
        return
    changes = {"context_budget_tokens": 4_096 + dice.randint(1, 12_000)}
    begun = Recorded(state.version, 0, state.stream, state.version, None, 0, TurnStarted(("w",), "ada/turn/1"))
    answer = list(react(Supposed(changes).of(state), begun))
    assert (one_of(answer, Refused) is not None) == isinstance(preview(state, changes), Refusal)
    assert one_of(answer, SettingChanged) is None


def test_what_changes_nothing_is_no_difference():
    log = life(3).log
    assert what_if(log, "bob") is None
    assert what_if(log, "bob", **SMALL) is None
    assert what_if(log, "bob", physical_window_tokens=1_000_000) is None


def test_it_holds_over_what_was_configured_later():
    """The budget that was raised for a while is taken to have been the same all along."""
    sim = Simulation(agents=[AgentConfig(name="bob", **SMALL)], provider=ScriptedProvider())
    sim.configure("bob", context_budget_tokens=2_000)
    sim.result(sim.push("bob", "word " * 1_000))
    found = what_if(sim.log, "bob", context_budget_tokens=900)
    assert found is not None
    compiled = next(one for one in sim.events("bob") if one.kind == "compiled")
    assert (found.seq, found.stream) == (compiled.cause, "agent/bob")
    assert [one.kind for one in instead(found)] == ["refused"]
    assert what_if(sim.log, "bob", context_budget_tokens=1_999) is None


def test_a_hold_that_would_have_stalled_is_told_after_the_event_before():
    provider = ScriptedProvider(summarize=lambda request: slow("Short.", 600))
    sim = Simulation(agents=[AgentConfig(name="bob", **SMALL)], provider=provider)
    for _ in range(4):
        sim.result(sim.push("bob", "word " * 150))
    receipt = sim.push("bob", "word " * 500)
    sim.run()
    assert sim.result(receipt, 0).state == "held"
    sim.advance(seconds=900)
    found = what_if(sim.log, "bob", hold_stall_after=30)
    assert found is not None
    assert found.recorded == ()
    assert [(one.kind, getattr(one, "what", "")) for one in instead(found)] == [("hold_due", "stalled")]
    assert what_if(sim.log, "bob", hold_stall_after=3_000) is None


def test_a_policy_would_have_waited_otherwise():
    provider = ScriptedProvider([reply("fine"), server_error(), reply("ok")])
    sim = Simulation(agents=[AgentConfig(name="bob", model="m")], provider=provider)
    for _ in range(2):
        sim.result(sim.push("bob", "hello"))
    found = what_if(sim.log, "bob", error_policy=ErrorPolicy(stop_after_attempt(3), wait_fixed(7)))
    assert found is not None
    then, now = json.loads(found.recorded[0]), json.loads(found.now[0])
    assert (then["kind"], then["retry_ms"], now["retry_ms"]) == ("inference_failed", 1_000, 7_000)
    assert what_if(sim.log, "bob", error_policy=ErrorPolicy()) is None


@tool
def page() -> str:
    """A long page."""
    return "line\n" * 1_000


def test_a_result_would_have_been_shown_as_an_excerpt():
    provider = ScriptedProvider([call_tool("page", {}), reply("long")])
    sim = Simulation(agents=[AgentConfig(name="bob", model="m", tools=(page,))], provider=provider)
    sim.result(sim.push("bob", "read"))
    found = what_if(sim.log, "bob", result_excerpt_chars=2_000)
    assert found is not None
    then, now = json.loads(found.recorded[0]), json.loads(found.now[0])
    assert (then.get("excerpt_chars", 0), now["excerpt_chars"]) == (0, 2_000)
    assert now["tokens"] < then["tokens"]
    assert what_if(sim.log, "bob", result_excerpt_chars=6_000) is None


@pytest.mark.parametrize(
    "given",
    [
        {"context_budget_tokens": 100},
        {"max_tokens": 900},
        {"strategy": "nowhere:Nothing"},
        {"tools": []},
        {"encoding": "o200k_base"},
        {"call_timeout": 3},
        {"budget": 3},
        {"provider": None},
    ],
)
def test_what_can_not_be_supposed_is_refused(given: dict[str, Any]):
    log = life(1).log
    with pytest.raises(InvalidSetting) as refused:
        what_if(log, "bob", **given)
    assert refused.value.name in (*given, "context_budget_tokens")
    with pytest.raises(UnknownAgent):
        what_if(log, "eve", model="n")


def test_a_drain_that_never_had_work_would_have_begun():
    """Its stream is empty: that a pass would have been due is told after the event before."""
    wider: dict[str, Any] = SMALL | {"recent_window_tokens": 700}
    roomy = AgentConfig(name="bob", **wider)
    sim = Simulation(agents=[roomy], provider=ScriptedProvider())
    for _ in range(5):
        sim.result(sim.push("bob", "word " * 40))
        sim.advance(seconds=60)
    assert not any(one.stream == "drain/bob" for one in sim.log.read())
    found = what_if(sim.log, "bob", recent_window_tokens=0, target_chunk_tokens=40)
    assert found is not None
    assert (found.stream, found.recorded, [one.kind for one in instead(found)]) == ("drain/bob", (), ["drain_due"])


def test_what_todays_code_decides_otherwise_anyhow_is_no_answer(monkeypatch: pytest.MonkeyPatch):
    sim = Simulation(agents=[AgentConfig(name="bob", **SMALL)], provider=ScriptedProvider())
    for _ in range(6):
        sim.result(sim.push("bob", "word " * 150))
    log, head = sim.log, sim.log.head()
    with monkeypatch.context() as changed:
        changed.setattr(behaviour, "boundary", lambda state: [SettingChanged("model", "m", "n")])
        assert redecide(log)
        assert what_if(log, "bob", context_budget_tokens=901) is None
        found = what_if(log, "bob", max_tokens=99)
    assert found is not None
    assert found.seq < head


def test_the_steps_of_a_lowering_are_overruled_with_it():
    sim = Simulation(agents=[AgentConfig(name="bob", **SMALL)], provider=ScriptedProvider())
    sim.result(sim.push("bob", "word " * 40))
    sim.configure("bob", context_budget_tokens=800)
    sim.result(sim.push("bob", "word " * 40))
    paths = [one.event.path for one in sim.events("bob") if isinstance(one.event, SettingChanged)]
    assert paths == ["paced", "step"]
    assert what_if(sim.log, "bob", context_budget_tokens=1_000) is None
