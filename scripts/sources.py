"""A TOML file as it was written: what it says, and what is wrong with it, by line and key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from rewake.scripts.errors import ConfigError
from rewake.scripts.places import Place, line_of


class Source(Struct, frozen=True):
    """The file: its path as given, its text, what it says."""

    path: str
    text: str
    tables: dict[str, Any]

    def wrong(self, place: Place, key: str, why: str) -> ConfigError:
        shown = ".".join(str(part) for part in (*place, key) if not isinstance(part, int) and part)
        return ConfigError(self.path, line_of(self.text, place, key), shown, why)


def parsed(path: str) -> Source:
    try:
        with open(path, "rb") as file:
            text = file.read().decode()
    except OSError as error:
        raise ConfigError(path, None, "", error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise ConfigError(path, None, "", f"it is no UTF-8 text (byte {error.start})") from error
    try:
        return Source(path, text, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"line (\d+)", str(error))
        line = int(found[1]) if found else text.count("\n") + 1
        raise ConfigError(path, line, "", f"not TOML: {error}") from error


def tables(source: Source, name: str) -> list[dict[str, Any]]:
    """The `[[name]]` tables."""
    found: Any = source.tables.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in cast("list[Any]", found)):
        raise source.wrong((), name, f"agents are written as [[{name}]] tables")
    if not found:
        raise source.wrong((), name, f"there is no [[{name}]]")
    return cast("list[dict[str, Any]]", found)


def table(source: Source, of: Mapping[str, Any], place: Place, name: str) -> dict[str, Any]:
    found: Any = of.get(name, {})
    if not isinstance(found, dict):
        raise source.wrong(place, name, f"it is a table: [{'.'.join(str(part) for part in (*place, name))}]")
    return cast("dict[str, Any]", found)


def unknown(source: Source, place: Place, found: Mapping[str, Any], names: set[str] | frozenset[str]) -> None:
    for key in found:
        if key not in names:
            raise source.wrong(place, key, f"there is no such key; there are {', '.join(sorted(names))}")


def converted(source: Source, place: Place, key: str, value: Any, hint: Any) -> Any:
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        raise source.wrong(place, key, f"{value!r}: {error}") from error
