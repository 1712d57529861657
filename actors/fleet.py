"""Which actors there are, and who is told of which events: built alike by the runtime and the simulation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.metadata import version
from typing import Any, Generic, Protocol, TypeVar

from rewake.actors.agent import agent
from rewake.actors.agent.equipping import Process
from rewake.actors.behaviour import Behaviour, Bell
from rewake.actors.config import AgentConfig, Providers, all_providers, named, policy, resolve, settings
from rewake.actors.drain import drain
from rewake.actors.gate import gate
from rewake.actors.host import host
from rewake.actors.ports import Equipment
from rewake.events import Event, InvalidSetting, Log, Recorded, Settings

VERSION = version("rewake")


class Follower(Protocol):
    """Whoever is offered published events."""

    @property
    def behaviour(self) -> Behaviour[Any]: ...


F = TypeVar("F", bound=Follower)


class Subscriptions(Generic[F]):
    """Followers by the streams that they follow: a name, or a pattern ending in `*`."""

    def __init__(self) -> None:
        self.exact: dict[str, list[F]] = {}
        self.patterns: list[tuple[str, F]] = []
        self._found: dict[tuple[str, type[Event]], tuple[tuple[F, Bell], ...]] = {}

    def add(self, follower: F) -> None:
        for follow in follower.behaviour.follows:
            if follow.stream.endswith("*"):
                self.patterns.append((follow.stream[:-1], follower))
            else:
                self.exact.setdefault(follow.stream, []).append(follower)
        self._found = {}  # last: whoever looks something up meanwhile may have missed this one

    def remove(self, follower: F) -> None:
        for followers in self.exact.values():
            if follower in followers:
                followers.remove(follower)
        self.patterns = [(prefix, one) for prefix, one in self.patterns if one is not follower]
        self._found = {}

    def of(self, recorded: Recorded) -> tuple[tuple[F, Bell], ...]:
        """Who folds this event, each with its bell: looked up once for each stream and kind."""
        key = recorded.stream, type(recorded.event)
        found = self._found
        if (followers := found.get(key)) is None:
            followers = found[key] = tuple((one, one.behaviour.bell(recorded)) for one in self._of(recorded))
        return followers

    def _of(self, recorded: Recorded) -> Iterator[F]:
        for follower in self.exact.get(recorded.stream, ()):
            if follower.behaviour.followed(recorded):
                yield follower
        for prefix, follower in self.patterns:
            if recorded.stream.startswith(prefix) and follower.behaviour.followed(recorded):
                yield follower


def check_names(configs: Iterable[AgentConfig]) -> dict[str, AgentConfig]:
    """The configurations by name. Raises InvalidSetting when two share one, and for what is no configuration."""
    found: dict[str, AgentConfig] = {}
    given: Any = configs
    try:
        several: list[Any] = list(given)
    except TypeError as error:
        raise InvalidSetting("agents", given, "a list of AgentConfigs") from error
    for config in several:
        if not isinstance(config, AgentConfig):
            raise InvalidSetting("agents", given, "a list of AgentConfigs")
        if config.name in found:
            raise InvalidSetting("name", config.name, "two agents have this name")
        found[config.name] = config
    return found


def names_of(configs: dict[str, AgentConfig], log: Log) -> list[str]:
    """The agents of the configuration, then those that only the log knows."""
    logged = [stream.removeprefix("agent/") for stream in log.streams() if stream.startswith("agent/")]
    return [*configs, *(name for name in logged if name not in configs)]


def behaviours(
    configs: dict[str, AgentConfig], recorded: dict[str, Settings], names: Iterable[str], providers: Providers
) -> list[Behaviour[Any]]:
    """The host, a gate for each provider, and an agent with its drain for each name. `recorded`: the configurations as the
    log has them.
    """
    gates = [gate(name) for name in all_providers(providers)]
    agents = [one for name in names for one in pair(name, configs.get(name), recorded.get(name), providers)]
    return [host(), *gates, *agents]


def pair(
    name: str, config: AgentConfig | None, recorded: Settings | None, providers: Providers
) -> tuple[Behaviour[Any], Behaviour[Any]]:
    """An agent and its drain; without a configuration no start of this process has named it."""
    return agent(name, Process(policy(config), recorded, frozenset(all_providers(providers)))), drain(name)


def equipment(configs: dict[str, AgentConfig]) -> dict[str, Equipment]:
    """What the agents' orders call."""
    return {
        name: Equipment({tool.spec.name: tool for tool in config.tools}, config.inference_policy, config.context)
        for name, config in configs.items()
    }


def recorded_settings(config: AgentConfig, providers: Providers) -> Settings:
    """The configuration as the log has it, its provider resolved."""
    return settings(config, resolve(providers, config.model, config.provider).name)


__all__ = [
    "VERSION",
    "Subscriptions",
    "behaviours",
    "check_names",
    "equipment",
    "named",
    "names_of",
    "pair",
    "recorded_settings",
]
