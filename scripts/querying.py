"""The commands that ask a log in SQL: tables, query."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import click

from rewake.events import Log
from rewake.projections import tables as written
from rewake.projections.tables import fill
from rewake.scripts.errors import Failed
from rewake.scripts.logs import on_log
from rewake.scripts.reading import at
from rewake.scripts.tables import Form, emit, formed

ASKING = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})
"""What a question may do, and nothing else."""
SHAPES = frozenset({"table_info", "table_xinfo", "table_list", "foreign_key_list"})
"""The pragmas that tell of tables."""


@click.command()
@on_log(out=())
@at
def tables(log: Log, out: str, until: int | None) -> None:
    """Write the log's events and every projection as tables into the new SQLite database OUT, for any tool.

    Views open the events' JSON: v_turns, v_owed, v_holds, v_calls, v_tokens.
    """
    written(log, out, until=until)


@click.command()
@on_log(sql=())
@at
@formed
def query(form: Form, log: Log, sql: str, until: int | None) -> None:
    """Ask SQL of the log: of its events, every projection, and the views that `rewake tables` writes.

    The names of all: SELECT name FROM sqlite_master.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as conn:
        fill(conn, log, until)
        conn.set_authorizer(permitted)
        try:
            found = conn.execute(sql)
            names = distinct([one[0] for one in found.description or ()])
            rows: list[dict[str, Any]] = [dict(zip(names, row, strict=True)) for row in found]
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise Failed(f"the query failed: {reason(error)}") from error
    if not names:
        raise Failed("the query asks nothing: write a SELECT")
    emit(rows, form, names)


def permitted(action: int, first: str | None, *_: str | None) -> int:
    asks = action in ASKING or (action == sqlite3.SQLITE_PRAGMA and first in SHAPES)
    return sqlite3.SQLITE_OK if asks else sqlite3.SQLITE_DENY


def reason(error: Exception) -> str:
    """What SQLite says of a query; it may only read."""
    told = str(error)
    return "it may only read: a log is never changed" if "not authorized" in told or "prohibited" in told else told


def distinct(names: list[str]) -> list[str]:
    """Columns of one name are told apart by a number."""
    return [name if names.index(name) == place else f"{name}:{place + 1}" for place, name in enumerate(names)]
