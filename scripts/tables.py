"""How answers look: a table on a terminal, JSON lines otherwise, or as asked."""

from __future__ import annotations

import csv
import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

P = ParamSpec("P")
R = TypeVar("R")

Form = Literal["table", "json", "nl", "csv"]
Rows = Iterable[Mapping[str, Any]]

MOMENTS = frozenset({"at", "since", "until", "next_at", "ended", "looked_at", "started_at"})
"""The columns that are moments: milliseconds for programs, ISO 8601 for people."""
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
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        numbers = any(isinstance(row.get(name), int) for row in rows) and name not in MOMENTS
        table.add_column(name, justify="right" if numbers else "left", overflow="fold", no_wrap=name in MOMENTS)
    for row in rows:
        table.add_row(*[Text(shown(name, row.get(name))) for name in names])
    if names:
        screen().print(table)


def screen() -> Console:
    """Stdout for people; its width is the terminal's, or none where there is no terminal."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else WIDE)


def all_names(rows: Rows) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def shown(name: str, value: Any) -> str:
    """A value as a table has it: moments in UTC, nothing that could move a terminal's cursor."""
    if value is not None and name in MOMENTS and isinstance(value, int):
        return moment(value)
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


def moment(at: int) -> str:
    """Milliseconds as ISO 8601 in UTC."""
    try:
        return datetime.fromtimestamp(at / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return str(at)


def printable(text: str) -> str:
    """The text on one line, what can not be printed as an escape."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def short(text: str, most: int = 100) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
