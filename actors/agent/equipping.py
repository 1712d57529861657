"""What an agent needs of its process beside the log: its configuration's callables, its provider. Without them it waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from rewake.actors.agent.alerting import alert
from rewake.actors.agent.commands import Dispose, Start
from rewake.actors.agent.configuring import differing, together
from rewake.actors.agent.ending import after_withdrawal, disposed, never_begun
from rewake.actors.agent.gating import passed_on
from rewake.actors.agent.state import Agent
from rewake.actors.agent.tooling import interrupted, round_of
from rewake.actors.agent.waking import boundary
from rewake.actors.policy import DEFAULT, ErrorPolicy
from rewake.events import (
    AgentConfigured,
    AgentStarted,
    AgentUnconfigured,
    Event,
    GateOpened,
    InferenceInterrupted,
    Missing,
    Recorded,
    SettingChanged,
    Settings,
    ToolReturned,
    ToolSpec,
    WakeWithdrawn,
)
from rewake.events.turns import TURN_ENDS

CALLABLES = ("context", "inference_policy", "error_policy")
"""Settings that a log has the names of, and a process the functions."""


@dataclass(frozen=True)
class Process:
    """What the running process has for an agent: its error policy; its configuration, None where no start named the agent;
    the names of the providers, None where all are taken to be there.
    """

    policy: ErrorPolicy = DEFAULT
    config: Settings | None = None
    providers: frozenset[str] | None = None


LOG = Process()
"""No process: a log that is read."""


def restarted(state: Agent, process: Process) -> list[Event]:
    """A new incarnation takes in its process's configuration, and that what the former one had started was cut off: where
    something is missing once it is there, until then all stays as it is. A run whose process has gone is over then.
    """
    if state.settings.configured is None:
        return []
    changes = differing(state, process.config) if process.config else []
    missing = lacking(state, changes, process)
    if missing and state.settings.once:
        return disposed(state, Dispose(f"its run's process is gone, and with it {missing.told}"))
    if missing or state.settings.missing:
        return taken_up(state, changes, missing, process)
    return [*together(changes), *cut_off(state, process), *never_begun(state)]


def started(state: Agent, said: Start, process: Process) -> list[Event]:
    """The agent's first start; at a later one, what differs from the configuration recorded last."""
    if state.settings.configured is None:
        return [AgentStarted(said.config, said.once)]
    changes = differing(state, said.config)
    return taken_up(state, changes, lacking(state, changes, process), process)


def reconfigured(state: Agent, changes: list[SettingChanged], process: Process) -> list[Event]:
    """An operator's changes: another provider, which is always one that there is, may be all that was missing."""
    missing = state.settings.missing
    if missing and any(one.name == "provider" for one in changes):
        missing = told(replace(missing, provider=""))
    return taken_up(state, changes, missing, process)


def lacking(state: Agent, changes: Sequence[SettingChanged], process: Process) -> Missing | None:
    """What of the agent's configuration, so changed, the process has not; None: nothing is missing."""
    configured, provider = state.settings.configured, state.live.provider
    if process.providers is None or configured is None:
        return None
    provider = next((str(one.new) for one in changes if one.name == "provider"), provider)
    absent = "" if provider in process.providers else provider
    if process.config:
        return told(Missing(provider=absent))
    tools = tuple(tool.name for tool in configured.tools)
    return told(Missing(tools, tuple(name for name in CALLABLES if getattr(configured, name)), absent))


def told(missing: Missing) -> Missing | None:
    return missing if missing != Missing() else None


def taken_up(state: Agent, changes: list[SettingChanged], missing: Missing | None, process: Process) -> list[Event]:
    """Changes of the settings, with what is missing now: from when nothing is any more the agent goes on."""
    before = state.settings.missing
    if missing:
        return [*([AgentUnconfigured(missing)] if missing != before else []), *together(changes)]
    if before:
        return [*(replace(one, more=True) for one in changes), AgentConfigured(), *cut_off(state, process)]
    return together(changes)


def cut_off(state: Agent, process: Process) -> list[Event]:
    """What a former incarnation had started: its call, and the tools that may not run again."""
    turn = state.turns.running
    call = [InferenceInterrupted(turn.call.call)] if turn and turn.call else []
    return [*call, *interrupted(state, declared(process.config) if process.config else state.live.tools)]


def declared(config: Settings) -> tuple[ToolSpec, ...]:
    """The tools of a configuration, and the one that is built in."""
    return (*config.tools, config.reader) if config.reader else config.tools


def without(state: Agent, recorded: Recorded) -> Sequence[Event]:
    """What follows while something is missing: an end, and what goes with it; nothing starts or goes on. A gate is told to
    name another one to probe.
    """
    event = recorded.event
    if type(event) in TURN_ENDS:
        return boundary(state) or passed_on(state)
    match event:
        case AgentUnconfigured(missing):
            told = [alert(state, "unconfigured", waits_for(missing), recorded.at)] if state.wakes.owed else []
            return [*told, *passed_on(state)]
        case WakeWithdrawn():
            return after_withdrawal(state, recorded.at, event)
        case ToolReturned():
            return round_of(state, event)
        case GateOpened():
            return passed_on(state)
        case _:
            return []


def waits_for(missing: Missing) -> str:
    """Why an agent does not go on, as a sentence without its subject."""
    if missing == Missing(provider=missing.provider):
        return f"waits for {missing.told}, which this process does not have"
    return f"waits for its configuration: {missing.told}; start it with its AgentConfig"


def ended_by(missing: Missing) -> str:
    if missing == Missing(provider=missing.provider):
        return f"a start that has {missing.told}, or another provider"
    return "a start with its AgentConfig"
