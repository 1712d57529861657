"""Other settings for an agent of a log: which may be supposed, as they are recorded, and its state as if it had them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from rewake.actors.agent.pacing import BUDGET
from rewake.actors.agent.state import Agent
from rewake.actors.config import AgentConfig
from rewake.actors.config import settings as recorded_as
from rewake.actors.drain import Drain
from rewake.actors.policy import ErrorPolicy
from rewake.events import InvalidSetting, Log, SettingChanged, Settings, UnknownAgent
from rewake.projections import settings

S = TypeVar("S", Agent, Drain)

UNANSWERED = "what would have come of it is in no log"
UNDECIDED = {
    "name": "the log has the agent under its own name",
    "kind": UNANSWERED,
    "system": UNANSWERED,
    "tools": UNANSWERED,
    "context": UNANSWERED,
    "inference_policy": UNANSWERED,
    "call_timeout": "how long its calls would have taken is in no log",
    "encoding": "its messages were counted in the one that it had",
}
"""Settings that a log can not be decided again with, and why."""

RECORDED = {
    "hold_stall_after": ("hold_stall_after_ms",),
    "error_policy": ("error_policy", "refusal_delays_ms"),
}
"""The settings that are recorded otherwise than they are called."""

APART = {*UNDECIDED, "error_policy", "strategy"}
CHECKED = frozenset(AgentConfig.__struct_fields__) & (frozenset(Settings.__struct_fields__) - APART)
"""What was recorded of a configuration that a supposed setting is checked beside."""


class Supposed(Struct, frozen=True):
    """Settings as they are recorded, and the error policy where another one is supposed."""

    changes: Mapping[str, Any]
    policy: ErrorPolicy | None = None

    def of(self, state: S) -> S:
        """The state, had its agent had these settings all along: what it was set to meanwhile is as if it were these."""
        told = state.settings
        if told.live is None:
            return state
        known = {name: self.instead(getattr(told, name)) for name in ("live", "configured", "own")}
        target = None if BUDGET in self.changes else told.target
        return replace(state, settings=replace(told, target=target, **known))

    def instead(self, present: Settings | None) -> Settings | None:
        return present and replace(present, **self.changes)


def supposed(log: Log, agent: str, given: Mapping[str, Any]) -> Supposed:
    """These settings for that agent of the log, checked with each configuration that it had.

    Raises UnknownAgent, and InvalidSetting for what can not be, or can not be decided from a log.
    """
    lives = list(configurations(log, agent))
    if not lives:
        raise UnknownAgent(agent, "the log has no agent of that name")
    for name, value in given.items():
        if name not in AgentConfig.__struct_fields__:
            raise InvalidSetting(name, value, "there is no such setting")
        if why := UNDECIDED.get(name):
            raise InvalidSetting(name, value, why)
        if name == "provider" and value is None:
            raise InvalidSetting(name, value, "name the provider")
    changes: dict[str, Any] = {}
    for live in lives:
        fields: dict[str, Any] = {name: getattr(live, name) for name in CHECKED}
        config = AgentConfig(name=agent, **(fields | dict(given)))
        new = recorded_as(config, config.provider or live.provider)
        changes = {one: getattr(new, one) for name in given for one in RECORDED.get(name, (name,))}
    return Supposed(changes, given.get("error_policy"))


def configurations(log: Log, agent: str) -> Iterator[Settings]:
    """What the agent was set to, one after the other; not the halves of a change of several settings."""
    state = settings.initial()
    for recorded in log.read(stream=f"agent/{agent}", kinds=["agent_started", "setting_changed"]):
        state = settings.evolve(state, recorded)
        more = isinstance(recorded.event, SettingChanged) and recorded.event.more
        if state.live is not None and not more:
            yield state.live
