"""Settings: at a start, and while the agent lives."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from rewake.actors.agent.commands import Configure
from rewake.actors.agent.pacing import BUDGET
from rewake.actors.agent.previewing import coming, preview
from rewake.actors.agent.state import Agent
from rewake.events import BudgetInfeasible, Event, SettingChanged, Settings
from rewake.projections.calibration import meter
from rewake.projections.plan import Bounds, Plan, bounds
from rewake.projections.settings import budget, room


def differing(state: Agent, config: Settings) -> list[SettingChanged]:
    """What is other in a configuration than in the one recorded last."""
    before = state.settings.configured
    old, new = fields(before) if before else {}, fields(config)
    differ = {name: new[name] for name in new if old[name] != new[name]}
    changes = [SettingChanged(name, old[name], value, "config") for name, value in differ.items()]
    return [*changes, *overtaken(state, config, differ)]


def overtaken(state: Agent, config: Settings, differ: dict[str, Any]) -> list[SettingChanged]:
    """What `configure` had set of the budget and the reply, where together with a later configuration it can not be: it
    gives way to the configuration's own.
    """
    after, target = msgspec.convert(fields(state.live) | differ, Settings), state.settings.target
    if room(after) <= 0:
        own = ((name, getattr(config, name)) for name in (BUDGET, "max_tokens"))
        return [SettingChanged(name, getattr(after, name), value) for name, value in own]
    if target is not None and BUDGET not in differ and target <= after.max_tokens:
        return [SettingChanged(BUDGET, after.context_budget_tokens, after.context_budget_tokens)]
    return []


def configured(state: Agent, said: Configure) -> list[SettingChanged]:
    """An operator's change, all of it or nothing. Raises InvalidSetting or BudgetInfeasible.

    A lower budget becomes the target that the live one comes down to, unless it is to be `immediate`.
    """
    live = fields(state.live)
    paced = lowered(state.live, said.changes) and not said.immediate
    if said.immediate and not said.allow_infeasible:
        feasible(state, said.changes)
    events: list[SettingChanged] = []
    for name, value in said.changes.items():
        if name == BUDGET and paced:
            wanted = budget(replace(state.live, **said.changes))
            if wanted != state.settings.target:
                events.append(SettingChanged(name, live[name], wanted, "paced", said.by))
        elif live[name] != value or (name == BUDGET and state.settings.target is not None):
            events.append(SettingChanged(name, live[name], value, "immediate", said.by))
    return events


def feasible(state: Agent, changes: dict[str, Any]) -> None:
    """Raise BudgetInfeasible where a change that leaves less room makes the next compile refuse."""
    found = preview(state, changes)
    if isinstance(found, Plan) or no_cut(state, changes):
        return
    raise BudgetInfeasible(
        state.name,
        found.tokens,
        found.room,
        found.bound,
        window_room=found.window_room,
        binding=found.bounds.binding,
        mandatory=found.mandatory,
        error=found.error,
    )


def no_cut(state: Agent, changes: dict[str, Any]) -> bool:
    """Whether budget and window both leave at least as much room as they do now."""
    before, after = bounds_of(state, state.live), bounds_of(state, replace(state.live, **changes))
    windows = before.window_room, after.window_room
    return after.bound >= before.bound and (windows[1] is None or (windows[0] is not None and windows[0] <= windows[1]))


def bounds_of(state: Agent, settings: Settings) -> Bounds:
    return bounds(settings, coming(state), meter(state.calibration, settings).multiplier)


def together(changes: list[SettingChanged]) -> list[Event]:
    """Changes of several settings as one: what follows, follows from the last."""
    return [*(replace(change, more=True) for change in changes[:-1]), *changes[-1:]]


def lowered(settings: Settings, changes: dict[str, Any]) -> bool:
    return budget(replace(settings, **changes)) < budget(settings)


def fields(settings: Settings) -> dict[str, Any]:
    return {name: msgspec.to_builtins(getattr(settings, name)) for name in settings.__struct_fields__}
