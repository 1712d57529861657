"""How answers look: a table on a terminal, JSON lines otherwise, or as asked."""

from __future__ import annotations

import csv
import functools
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rewake.events.base import moment as iso

P = ParamSpec("P")
R = TypeVar("R")

Form = Literal["table", "json", "nl", "csv"]
Rows = Iterable[Mapping[str, Any]]

MOMENTS = frozenset({"at", "since", "until", "ended"})
"""The columns that are moments, beside those that end on `_at`: milliseconds for programs, ISO 8601 for people."""
EXCERPTS = frozenset({"text", "wakes", "sources"})
"""The columns that are cut to one line."""
LONG = EXCERPTS | {"why", "ends", "value", "reason", "key", "parked", "troubled"}
"""The columns that give way when a table is too wide: those that are no excerpt are folded."""
NARROW = 120
"""Columns of text below which a moment is only a time of the day."""
ROOM = 36
"""Columns of text that each of the long ones should have, before a moment is more than a time of the day."""
WIDE = 1_000
"""Columns of text that a table takes when it does not go to a terminal."""


def formed(command: Callable[Concatenate[Form, P], R]) -> Callable[P, R]:
    """Give a command the options of its output; it gets the form that they come to first."""

    @click.option("-t", "--table", "form", flag_value="table", help="A table, on a terminal or not.")
    @click.option("--csv", "form", flag_value="csv", help="CSV with a header.")
    @click.option("--nl", "form", flag_value="nl", help="JSON lines.")
    @click.option("--json", "form", flag_value="json", help="One JSON array.")
    @functools.wraps(command)
    def asked(*args: P.args, **kwargs: P.kwargs) -> R:
        form: Any = kwargs.pop("form")
        return command(form or ("table" if sys.stdout.isatty() else "nl"), *args, **kwargs)

    return asked  # pyright: ignore[reportReturnType]


def emit(rows: Rows, form: Form, columns: Sequence[str] | None = None) -> None:
    """Write rows to stdout. `columns` are those of a table or of CSV, in order; JSON has all."""
    match form:
        case "nl":
            for row in rows:
                click.echo(json(row))
        case "json":
            click.echo("[" + ",\n ".join(json(row) for row in rows) + "]")
        case "csv":
            kept = list(rows)
            emit_csv(kept, columns or all_names(kept))
        case "table":
            as_table(list(rows), columns)


def json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def emit_csv(rows: Rows, names: Sequence[str], header: bool = True) -> None:
    """Each row as it comes."""
    out = csv.writer(sys.stdout, lineterminator="\n")
    if header:
        out.writerow(names)
    for row in rows:
        out.writerow([cell(row.get(name)) for name in names])
        sys.stdout.flush()


def as_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None) -> None:
    names = list(columns or all_names(rows))
    console = screen()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        right = not is_moment(name) and numbers([row.get(name) for row in rows])
        table.add_column(name, justify="right" if right else "left", overflow="fold", no_wrap=name not in LONG)
    narrow = cramped(rows, names, console.width)
    for row in rows:
        table.add_row(*[laid(name, row.get(name), narrow) for name in names])
    if names:
        console.print(table)


def cramped(rows: Sequence[Mapping[str, Any]], names: Sequence[str], width: int) -> bool:
    """Whether a table's moments have to be short: the terminal is narrow, or they would leave its long columns no room."""
    folded = (LONG - EXCERPTS).intersection(names)
    if width < NARROW or width == WIDE or not folded:
        return width < NARROW
    sizes = [max([len(name), *(len(shown(name, row.get(name))) for row in rows)]) for name in names if name not in LONG]
    return width - sum(sizes) - 2 * len(names) < ROOM * len(folded)


def is_moment(name: str) -> bool:
    return name in MOMENTS or name.endswith("_at")


def numbers(values: Iterable[Any]) -> bool:
    """Whether all of them, as far as there are any, are numbers."""
    there = [value for value in values if value is not None]
    return bool(there) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in there)


def laid(name: str, value: Any, narrow: bool) -> Text:
    """A cell of a table: an excerpt is one line, cut where the column ends."""
    if name in EXCERPTS:
        return Text(short(shown(name, value), WIDE), no_wrap=True, overflow="ellipsis")
    return Text(shown(name, value, narrow))


def fitted(line: str) -> str:
    """The line cut to the terminal's width, if it goes to one."""
    if not sys.stdout.isatty():
        return line
    text = Text(line)
    text.truncate(columns(), overflow="ellipsis")
    return text.plain


def columns() -> int:
    """How wide stdout is."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDE


def screen() -> Console:
    """Stdout for people; its width is the terminal's, or none where there is no terminal."""
    return Console(highlight=False, width=columns(), height=25)  # with a height rich asks no terminal for its width


def all_names(rows: Rows) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def shown(name: str, value: Any, narrow: bool = False) -> str:
    """A value as a table has it: moments in UTC, nothing that could move a terminal's cursor."""
    if value is not None and is_moment(name) and isinstance(value, int):
        return moment(value, narrow)
    return printable(cell(value))


def cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case str():
            return value
        case bool() | int() | float():
            return str(value)
        case list() | tuple() if all(isinstance(one, str) for one in value):  # pyright: ignore[reportUnknownVariableType]
            return " ".join(value)  # pyright: ignore[reportUnknownArgumentType]
        case _:
            return json(value)


def moment(at: int, narrow: bool = False) -> str:
    """Milliseconds as ISO 8601 in UTC; `narrow`: the time of the day alone."""
    whole = iso(at)
    return whole[11:19] if narrow and whole.endswith("Z") else whole


def printable(text: str) -> str:
    """The text on one line, what can not be printed as an escape."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def short(text: str, most: int = 100) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
