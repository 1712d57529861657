"""Where in a TOML file a key stands: the parser gives values without their lines."""

from __future__ import annotations

import re

Place = tuple[str | int, ...]
"""A table's name; with a number for one of several `[[tables]]`."""

HEADER = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]")
KEY = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*[=.]""")


def line_of(text: str, place: Place, key: str) -> int:
    """The line of a key in its table; that of the table's header when it has no such key; 1 when there is none."""
    here: Place = ()
    counts: dict[str, int] = {}
    header = 1
    for number, line in enumerate(text.splitlines(), 1):
        if found := HEADER.match(line):
            here = named(found, counts)
            if here[: len(place) + 1] == (*place, key):
                return number
            header = number if here == place else header
        elif here == place and (found := KEY.match(line)) and key in found.groups():
            return number
    return header


def named(found: re.Match[str], counts: dict[str, int]) -> Place:
    """The place that a header opens."""
    name = ".".join(part.strip().strip("\"'") for part in found[2].split("."))
    if found[1] == "[[":
        counts[name] = counts.get(name, -1) + 1
        return (name, counts[name])
    return tuple(name.split("."))
