"""`run`'s configuration: a TOML file becomes a log, providers, options and agents, or an error with its line."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, get_type_hints

from msgspec import Struct

from rewake.actors import AgentConfig, RuntimeOptions
from rewake.actors.config import Providers, resolve
from rewake.actors.fleet import check_names
from rewake.actors.providers import Provider, ScriptedProvider, slow
from rewake.actors.providers.base import Request
from rewake.actors.providers.script import Item
from rewake.actors.providers.scripted import echo
from rewake.events import InvalidSetting
from rewake.scripts.places import Place
from rewake.scripts.sources import Source, converted, parsed, table, tables, unknown

IMPORTED = frozenset({"inference_policy", "error_policy", "context"})
"""Agent settings that name something to import, `package.module:name`."""

LATER = frozenset({"anthropic", "openai"})
"""Kinds of provider that this version does not have."""


class House(Struct, frozen=True):
    """What a configuration file describes."""

    log: str
    providers: Any
    options: RuntimeOptions
    agents: tuple[AgentConfig, ...]


class ScriptedTable(Struct, frozen=True, forbid_unknown_fields=True):
    """`[provider.NAME]` of kind `scripted`: what it replies (None: an echo), and after how many seconds."""

    kind: str
    reply: str | None = None
    delay: float = 0.0


def configured(path: str) -> House:
    """Read the file. Raises ConfigError with file, line and key. The log's path and the tools' modules are found from the
    file's folder.
    """
    source = parsed(path)
    unknown(source, (), source.tables, {"log", "provider", "options", "agent"})
    folder = os.path.dirname(os.path.abspath(path))
    if folder not in sys.path:
        sys.path.insert(0, folder)
    log = source.tables.get("log")
    if not isinstance(log, str) or not log:
        raise source.wrong((), "log", 'name the log\'s file: log = "agents.db"')
    agents = tuple(agent(source, index, table) for index, table in enumerate(tables(source, "agent")))
    every = providers(source, agents)
    place = log if log == ":memory:" else os.path.join(folder, log)
    return House(place, every, options(source), agents)


def options(source: Source) -> RuntimeOptions:
    """`[options]`."""
    place, found = ("options",), table(source, source.tables, (), "options")
    hints = {name: hint for name, hint in get_type_hints(RuntimeOptions).items() if name != "on_alert"}
    unknown(source, place, found, set(hints))
    values = {key: converted(source, place, key, value, hints[key]) for key, value in found.items()}
    try:
        return RuntimeOptions(**values)
    except InvalidSetting as error:
        raise source.wrong(place, error.name, f"{error.value!r}: {error.why}") from error


def agent(source: Source, index: int, found: dict[str, Any]) -> AgentConfig:
    """One `[[agent]]`."""
    place: Place = ("agent", index)
    hints = {name: get_type_hints(AgentConfig)[name] for name in AgentConfig.__struct_fields__}
    unknown(source, place, found, set(hints))
    for needed in ("name", "model"):
        if needed not in found:
            raise source.wrong(place, needed, "it is missing")
    values: dict[str, Any] = {}
    for key, value in found.items():
        if key == "tools":
            names = converted(source, place, key, value, list[str])
            values[key] = [imported(source, place, key, name) for name in names]
        elif key in IMPORTED:
            values[key] = imported(source, place, key, converted(source, place, key, value, str))
        else:
            values[key] = converted(source, place, key, value, str if key == "strategy" else hints[key])
    try:
        return AgentConfig(**values)
    except InvalidSetting as error:
        raise source.wrong(place, error.name, f"{error.value!r}: {error.why}") from error


def imported(source: Source, place: Place, key: str, named: str) -> Any:
    """What `package.module:name` names."""
    module, colon, name = named.partition(":")
    if not (module and colon and name):
        raise source.wrong(place, key, f'{named!r}: written as "package.module:name"')
    try:
        found = importlib.import_module(module)
    except Exception as error:
        raise source.wrong(
            place, key, f"{named!r}: {module} can not be imported: {type(error).__name__}: {error}"
        ) from error
    if not hasattr(found, name):
        raise source.wrong(place, key, f"{named!r}: {module} has no {name}")
    return getattr(found, name)


def providers(source: Source, agents: tuple[AgentConfig, ...]) -> Providers:
    """Every `[provider.NAME]`; one alone answers for every model. Each agent must have one."""
    found = table(source, source.tables, (), "provider")
    if not found:
        raise source.wrong((), "provider", 'there is no provider: add [provider.NAME] with kind = "scripted"')
    every = {name: provider(source, name, table(source, found, ("provider",), name)) for name in found}
    alone = len(every) == 1 and all(one.provider is None for one in agents)
    chosen: Providers = next(iter(every.values())) if alone else every
    for index, one in enumerate(agents):
        try:
            resolve(chosen, one.model, one.provider)
        except InvalidSetting as error:
            raise source.wrong(("agent", index), error.name, f"{error.value!r}: {error.why}") from error
    try:
        check_names(agents)
    except InvalidSetting as error:
        last = max(index for index, one in enumerate(agents) if one.name == error.value)
        raise source.wrong(("agent", last), "name", f"{error.value!r}: {error.why}") from error
    return chosen


def provider(source: Source, name: str, found: dict[str, Any]) -> Provider:
    place = ("provider", name)
    kind: Any = found.get("kind")
    if kind in LATER:
        raise source.wrong(place, "kind", f"{kind!r}: this version has no such provider; there is 'scripted'")
    if kind != "scripted":
        raise source.wrong(place, "kind", f"{kind!r}: there is 'scripted'" if kind else "it is missing")
    unknown(source, place, found, set(ScriptedTable.__struct_fields__))
    hints = get_type_hints(ScriptedTable)
    given = ScriptedTable(**{key: converted(source, place, key, value, hints[key]) for key, value in found.items()})
    return scripted(name, given)


def scripted(name: str, given: ScriptedTable) -> ScriptedProvider:
    def answer(request: Request) -> Item:
        said = echo(request) if given.reply is None else given.reply
        return slow(said, given.delay) if given.delay > 0 else said

    return ScriptedProvider(answer, name=name)
