"""A preview, a change, a hold's check and the compile ask one question: what one says, the others do."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from immutables import Map
from msgspec.structs import replace

from rewake.actors.agent import agent
from rewake.actors.agent.commands import Configure
from rewake.actors.agent.previewing import preview
from rewake.actors.agent.state import Agent, evolve
from rewake.actors.behaviour import Position, command
from rewake.events import (
    BudgetInfeasible,
    Compiled,
    Draft,
    Event,
    Held,
    HoldEnded,
    Recorded,
    Refused,
    SettingChanged,
    TurnStarted,
    Wake,
)
from rewake.projections.calibration import Calibration, Meter, key_of
from rewake.projections.plan import Plan, Refusal
from rewake.projections.settings import AgentSettings, bound, budget
from tests.projections.test_plan import chosen, told

CHANGING = ("context_budget_tokens", "physical_window_tokens", "recent_window_tokens", "head_window_tokens")
REFUSED = Refused("ada/turn/1", 1, "over_budget", 50_000, 10_000, "e", mandatory=400, compressible=True)


def living(dice: random.Random) -> Agent:
    """An agent with a story behind it whose turn is about to be compiled, or is held; a lowering may be under way."""
    story = told(dice)
    live = replace(
        chosen(dice)[0],
        context_budget_tokens=dice.choice([None, 4_096 + dice.randint(1, 12_000)]),
        physical_window_tokens=dice.choice([None, None, 4_096 + dice.randint(0, 12_000)]),
        transition_pace_tokens=dice.choice([0, 500, 16_000]),
        system_tokens=dice.randint(0, 50),
    )
    multiplier = dice.choice([1.0, dice.uniform(0.6, 1.8)])
    learned = Meter(multiplier, accepted=dice.choice([0, 3]), offsets=Map({"": dice.choice([0.0, 40.0])}))
    wanted = dice.choice([None, None, 4_096 + dice.randint(1, 6_000)])
    target = wanted if wanted and wanted < budget(live) else None
    state = Agent(
        "ada",
        story.version,
        AgentSettings(live, live, target),
        story.conversation,
        calibration=Calibration(Map({key_of("", "m", live.encoding): learned})),
        compression=story.compression,
    )
    state = after(state, Wake("message", id="w", message=dice.choice([None, "ada/msg/1"])))
    state = after(state, TurnStarted(("w",), "ada/turn/1"))
    if dice.random() < 0.5:
        state = after(state, REFUSED, Held("ada/turn/1", ("w",), 0, 1_800_000, REFUSED))
    return state


def after(state: Agent, *events: Event) -> Agent:
    for event in events:
        version = state.version + 1
        state = evolve(state, Recorded(version, 0, "agent/ada", version, None, 0, event))
    return state


def told_to(state: Agent, said: Configure) -> list[Event]:
    """All that follows from a change, for the turn that waits too. Raises BudgetInfeasible."""
    drafts: list[Draft] = []
    command(agent("ada"), Position(state, state.version, 60_000), drafts, said)
    return [draft.event for draft in drafts]


def one_of(events: list[Event], kind: type[Any]) -> Any:
    return next((event for event in events if isinstance(event, kind)), None)


@pytest.mark.scenario("C-28")
@settings(max_examples=1_500)
@given(st.integers(0, 2**64))
def test_what_a_preview_says_a_change_and_the_compile_after_it_do(seed: int):
    dice = random.Random(seed)
    state = living(dice)
    asked = chosen(dice)[0]
    changes = {name: getattr(asked, name) for name in CHANGING if dice.random() < 0.6}
    changes["max_tokens"] = dice.choice([4_000, 4_096])
    if changes.get("context_budget_tokens", 5_000) <= changes["max_tokens"]:
        return
    found = preview(state, changes)
    forced = told_to(state, Configure(changes, immediate=True, allow_infeasible=True))
    compiled = one_of(forced, Compiled)
    if not one_of(forced, SettingChanged):
        return
    assert found.fits == (compiled is not None)
    if state.holds.waiting:
        ended = one_of(forced, HoldEnded)
        assert found.fits == (ended is not None and ended.why == "fit")
    if isinstance(found, Plan):
        assert (found.stretches, found.probe, found.room) == (compiled.plan, compiled.probe, compiled.room)
        assert one_of(forced, Refused) is None
    elif not state.holds.waiting:
        assert isinstance(found, Refusal)
        refused = one_of(forced, Refused)
        assert (refused.tokens, refused.why, refused.binding) == (found.tokens, found.why, found.bounds.binding)
    if found.fits or raised(state, changes):
        assert told_to(state, Configure(changes, immediate=True)) == forced
    else:
        with pytest.raises(BudgetInfeasible) as refusal:
            told_to(state, Configure(changes, immediate=True))
        assert refusal.value.tokens == found.tokens


def raised(state: Agent, changes: dict[str, Any]) -> bool:
    """Whether a change leaves no less of the budget and of the window than there was."""
    before, now = state.live, replace(state.live, **changes)
    windows = [(one.physical_window_tokens or 10**9) - one.max_tokens for one in (before, now)]
    return bound(now) >= bound(before) and windows[1] >= windows[0]


@pytest.mark.scenario("C-28", "C-20")
@settings(max_examples=300)
@given(st.integers(0, 2**64))
def test_a_budget_that_comes_down_keeps_what_fits(seed: int):
    """A step is never one that refuses; the bound is never below the target, and what the preview showed is compiled."""
    dice = random.Random(seed)
    state = living(dice)
    wanted = 4_096 + dice.randint(1, 6_000)
    before = preview(state)
    events = told_to(state, Configure({"context_budget_tokens": wanted}))
    compiled = one_of(events, Compiled)
    if before.fits and events:
        assert compiled is not None
    steps = [event.new for event in events if isinstance(event, SettingChanged) and event.path == "step"]
    assert all(step >= wanted for step in steps)
    if compiled and steps and steps[-1] > wanted:
        assert compiled.tokens <= compiled.room * 1.1
