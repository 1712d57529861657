"""Settings: at a start, and while the agent lives."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from rewake.actors.agent.commands import Configure, Start
from rewake.actors.agent.planning import overhead, trial
from rewake.actors.agent.state import Agent
from rewake.events import AgentStarted, BudgetInfeasible, Event, SettingChanged, Settings
from rewake.projections.plan import Refusal
from rewake.projections.settings import bound, budget, room


def started(state: Agent, said: Start) -> list[Event]:
    """The agent's first start; at a later one, what differs from the configuration recorded last."""
    before = state.settings.configured
    if before is None:
        return [AgentStarted(said.config)]
    old, new = fields(before), fields(said.config)
    return together([SettingChanged(name, old[name], new[name], "config") for name in new if old[name] != new[name]])


def configured(state: Agent, said: Configure) -> list[Event]:
    """An operator's change, all of it or nothing. Raises InvalidSetting or BudgetInfeasible."""
    live = fields(state.live)
    changes = {name: value for name, value in said.changes.items() if live[name] != value}
    lowering = lowered(state.live, changes)
    refusal = infeasible(state, changes) if lowering else None
    if refusal and said.immediate and not said.allow_infeasible:
        asked = replace(state.live, **changes)
        raise BudgetInfeasible(state.name, refusal.tokens, room(asked), bound(asked))
    paced = refusal is not None and not said.immediate
    return together(
        [
            SettingChanged(
                name,
                live[name],
                value,
                "paced" if paced and name == "context_budget_tokens" else "immediate",
                said.by,
            )
            for name, value in changes.items()
        ]
    )


def together(changes: list[SettingChanged]) -> list[Event]:
    """Changes of several settings as one: what follows, follows from the last."""
    return [*(replace(change, more=True) for change in changes[:-1]), *changes[-1:]]


def lowered(settings: Settings, changes: dict[str, Any]) -> bool:
    return budget(replace(settings, **changes)) < budget(settings)


def infeasible(state: Agent, changes: dict[str, Any]) -> Refusal | None:
    plan = trial(state, overhead(state, state.turns.running or state.turns.held), **changes)
    return plan if isinstance(plan, Refusal) else None


def fields(settings: Settings) -> dict[str, Any]:
    return {name: msgspec.to_builtins(getattr(settings, name)) for name in settings.__struct_fields__}
