"""What an agent is set to: as configured at its start, and as it lives."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from rewake.events import (
    AgentConfigured,
    AgentDisposed,
    AgentStarted,
    AgentUnconfigured,
    Event,
    Millis,
    Missing,
    Recorded,
    SettingChanged,
    Settings,
    Tokens,
    ToolReturned,
)
from rewake.projections.pricing import digest_of

NAME = "settings"
KINDS: frozenset[type[Event]] = frozenset(
    {AgentStarted, AgentUnconfigured, AgentConfigured, AgentDisposed, SettingChanged, ToolReturned}
)

DEFAULT_ROOM: Tokens = 96_000
"""The room of an agent without a budget."""

DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Settings)}


class AgentSettings(Struct, frozen=True):
    """`live` is what decisions read, `configured` what the last start asked for; `revision` the version of the last change.

    `target` is a lower budget that the live one comes down to, compile by compile, as summaries make the context fit. `own`
    are the live settings without what is built in; None: there is nothing, since no result was too long to be shown whole.
    `once`: it has one run, then it is disposed. `missing`: what of its configuration the running process has not, since
    `missed_at`.
    """

    live: Settings | None = None
    configured: Settings | None = None
    target: Tokens | None = None
    own: Settings | None = None
    disposed: bool = False
    once: bool = False
    revision: int = 0
    missing: Missing | None = None
    missed_at: Millis = 0


def initial() -> AgentSettings:
    return AgentSettings()


def evolve(state: AgentSettings, recorded: Recorded) -> AgentSettings:
    match recorded.event:
        case AgentStarted(config, once):
            return AgentSettings(config, config, once=once, revision=recorded.version)
        case AgentUnconfigured(missing):
            return replace(state, missing=missing, missed_at=state.missed_at if state.missing else recorded.at)
        case AgentConfigured():
            return replace(state, missing=None)
        case AgentDisposed():
            return replace(state, disposed=True, revision=recorded.version)
        case SettingChanged("context_budget_tokens", _, new, "paced"):
            return replace(state, target=new, revision=recorded.version)
        case SettingChanged(name, _, new, path) if state.live and state.configured:
            configured = changed(state.configured, name, new) if path == "config" else state.configured
            own = changed(state.own or state.live, name, new)
            live, own = (offering(own), own) if state.own else (own, None)
            kept = path == "step" or name != "context_budget_tokens"
            target = state.target if kept and (state.target or 0) < budget(live) else None
            return replace(state, live=live, configured=configured, target=target, own=own, revision=recorded.version)
        case ToolReturned(excerpt_chars=cut) if cut and state.live and not state.own:
            return replace(state, live=offering(state.live), own=state.live, revision=recorded.version)
        case _:
            return state


def rows(state: AgentSettings) -> list[dict[str, Any]]:
    if state.live is None:
        return []
    name, fields = state.live.name, {one: getattr(state.live, one) for one in state.live.__struct_fields__}
    if state.target is not None:
        fields["context_budget_tokens (wanted)"] = state.target
    return [{"agent": name, "name": one, "value": msgspec.to_builtins(fields[one])} for one in sorted(fields)]


def changed(settings: Settings, name: str, value: Any) -> Settings:
    """The settings with one field replaced, its value checked against the field's type. A default is the default's own
    object: equal settings are encoded alike, however they were come by.
    """
    found = msgspec.convert({**msgspec.to_builtins(settings), name: value}, Settings)
    default = DEFAULTS.get(name)
    return replace(found, **{name: default}) if default is not None and getattr(found, name) == default else found


def offering(settings: Settings) -> Settings:
    """The settings with the tool that reads long results among the tools, and in what they cost."""
    if settings.reader is None:
        return settings
    tools, tokens = (*settings.tools, settings.reader), settings.tools_tokens + settings.reader_tokens
    return replace(settings, tools=tools, tools_tokens=tokens, overhead_digest=digest_of(settings.system, tools))


def room(settings: Settings) -> Tokens:
    """What the budget leaves for the conversation: budget − max_tokens, or 96,000 without a budget."""
    budget = settings.context_budget_tokens
    return DEFAULT_ROOM if budget is None else budget - settings.max_tokens


def bound(settings: Settings) -> Tokens:
    """The most that a plan may take: the room with its grace."""
    return math.floor(room(settings) * (1 + settings.over_budget_grace_ratio))


def goal(state: AgentSettings) -> Tokens:
    """The bound that compression works toward: the live one, or a paced lowering's, and the window's room beside the
    system prompt and the tools.
    """
    live = state.live
    if live is None:
        return 0
    goals = [bound(live)]
    if state.target is not None:
        goals.append(bound(replace(live, context_budget_tokens=state.target)))
    if live.physical_window_tokens is not None:
        goals.append(live.physical_window_tokens - live.max_tokens - live.system_tokens - live.tools_tokens)
    return max(0, min(goals))


def budget(settings: Settings) -> Tokens:
    """The budget as it is read back: room + max_tokens."""
    return room(settings) + settings.max_tokens
