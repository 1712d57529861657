"""What the next compile would give, committing nothing: as it is, or with other settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from rewake.actors.agent.holding import next_start, over
from rewake.actors.agent.pacing import BUDGET, step
from rewake.actors.agent.planning import note, overhead, unplanned
from rewake.actors.agent.state import Agent, planned
from rewake.actors.agent.waking import cue
from rewake.events import InvalidPlan, InvalidSetting, Overhead
from rewake.projections import conversation, settings
from rewake.projections.plan import Plan, Refusal
from rewake.projections.pricing import count_tokens
from rewake.projections.settings import AgentSettings
from rewake.projections.turns import Turn
from rewake.projections.wakes import waiting


def preview(state: Agent, changes: Mapping[str, Any] = {}) -> Plan | Refusal:
    """The plan or refusal of the next compile, had these settings been changed at once before it.

    It names what is live now and what a lowering under way, or the budget asked for, comes down to.
    """
    asked = changed(state.settings, state, changes)
    trial = replace(state, settings=asked, conversation=at_boundary(state))
    beside = coming(trial)
    try:
        made = step(trial, beside)
        found = made.plan if made else planned(trial, beside)
    except (InvalidPlan, InvalidSetting) as error:
        found = unplanned(trial, beside, error)
    wanted = trial.live if asked.target is None else replace(trial.live, context_budget_tokens=asked.target)
    return replace(found, live_room=settings.room(state.live), target_room=settings.room(wanted))


def changed(present: AgentSettings, state: Agent, changes: Mapping[str, Any]) -> AgentSettings:
    """The settings with these changes made at once: another budget drops the target of a paced one."""
    target = None if BUDGET in changes else present.target
    return replace(present, live=replace(state.live, **changes), target=target)


def at_boundary(state: Agent) -> conversation.Conversation:
    """The conversation once what waits for the running turn's boundary is in it."""
    told = state.conversation
    if not told.waiting:
        return told
    return conversation.placed(replace(told, waiting=()), told.waiting, told.revision)


def coming(state: Agent) -> Overhead:
    """What the next request sends beside its history: that of the turn that runs, is held, or would start next."""
    if hold := state.holds.waiting:
        return overhead(state, next_start(state), note(over(hold, hold.until)))
    if state.turns.running:
        return overhead(state, state.turns.running, note(state.holds.over))
    if not (ready := waiting(state.wakes)):
        return overhead(state, None)
    line = cue(ready)
    return overhead(state, Turn("", 1, (), 0, cue=line, cue_tokens=count_tokens(line, state.live.encoding)))
