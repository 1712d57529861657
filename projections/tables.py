"""A log as tables for SQL: its events and what every projection says of them, in a database of its own."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any

import msgspec
from msgspec import Struct

from rewake.events import Log
from rewake.events.base import moment
from rewake.events.codec import encode
from rewake.events.copies import fresh
from rewake.events.opening import failed
from rewake.events.schema import transaction
from rewake.projections.fold import PROJECTIONS, rows_of
from rewake.projections.views import VIEWS

MOMENT = "moment"
"""The type of a column of moments: UTC milliseconds in a projection's row, ISO 8601 in its table."""
ANY = "blob"
"""The type of a column that keeps each value as it is."""

Columns = Mapping[str, Any]

COLUMNS: Mapping[str, Columns] = {
    "conversation": {"agent": str, "place": int, "id": str, "role": str, "text": str, "blocks": str, "tokens": int}
    | {"turn": str, "author": str, "channel": str, "at": MOMENT, "partial": int, "waiting": int},
    "wakes": {"agent": str, "wake": str, "state": str, "turn": str, "reason": str, "why": str, "at": MOMENT}
    | {"channel": str, "author": str, "message": str},
    "turns": {"agent": str, "turn": str, "state": str, "since": MOMENT, "ended": MOMENT, "wakes": str}
    | {"attempts": int, "steps": int, "next_at": MOMENT},
    "holds": {"agent": str, "turn": str, "since": MOMENT, "until": MOMENT, "wakes": str, "why": str, "tokens": int}
    | {"room": int, "looks": int, "looked_at": MOMENT, "ended": str, "provider": str, "model": str},
    "compression": {"agent": str, "id": str, "state": str, "level": int, "first": str, "last": str, "sources": int}
    | {"source_tokens": int, "tokens": int, "text": str},
    "gates": {"provider": str, "model": str, "state": str, "since": MOMENT, "until": MOMENT, "why": str, "n": int}
    | {"probe": str, "limit": int},
    "settings": {"agent": str, "name": str, "value": ANY},
    "host": {"epoch": int, "version": str, "running": int, "since": MOMENT, "quiesced": int, "reason": str}
    | {"max_in_flight": int, "parked": str, "troubled": str},
    "calibration": {"agent": str, "key": str, "multiplier": float, "accepted": int, "rejected": int}
    | {"provisional": int, "offsets": str},
    "usage": {"agent": str, "turn": str, "input": int, "output": int, "cached": int, "model": str},
    "undo": {"agent": str, "turn": str, "version": int, "branch": str},
    "alerts": {"agent": str, "kind": str, "turn": str, "posted_at": MOMENT},
}
"""The columns of each projection's table, which are those of its rows, with their types."""

EVENTS: Columns = (
    {"seq": int, "at": MOMENT, "stream": str, "version": int, "cause": int, "read": int}
    | {"kind": str, "turn": str, "call": str, "data": str}
)  # fmt: skip
REFERENCES = [("stream", "streams", "stream"), ("cause", "events", "seq")]

OWNERS = {"agent": "agents", "provider": "providers"}
"""The table of what a column names."""

CALLS = {
    "compression_requested": "id",
    "compression_failed": "id",
    "compression_discarded": "id",
    "compressed": "request",
}
"""The field in which an event of a drain names its call."""


class Names(Struct, frozen=True):
    """What an event may name."""

    turn: Any = None
    call: Any = None
    id: Any = None
    request: Any = None


_names = msgspec.json.Decoder(Names)


def tables(log: Log, db_path: str | os.PathLike[str], *, until: int | None = None) -> None:
    """Write a log up to a seq as a new SQLite database: `events` and a table of every projection, with foreign keys, and the
    views of `VIEWS`. Moments are ISO 8601 in UTC, lists and objects JSON.

    Raises OutputRefused where something is at `db_path` already, LogFailed where it can not be written; then it is not there.
    """
    with fresh(db_path) as made:
        try:
            with closing(sqlite3.connect(made, isolation_level=None)) as conn:
                fill(conn, log, until)
        except sqlite3.Error as error:
            raise failed(error, os.fspath(db_path)) from error


def fill(conn: sqlite3.Connection, log: Log, until: int | None = None) -> None:
    """Write the tables and views into an empty database, in one transaction. `conn` begins none by itself."""
    head = log.head() if until is None else max(0, min(until, log.head()))
    with transaction(conn):
        shape(conn)
        put(conn, "events", EVENTS, events(log, head))
        conn.execute(
            "INSERT INTO streams SELECT stream, count(*), min(seq), max(seq) FROM events GROUP BY 1 ORDER BY 3"
        )
        for name in PROJECTIONS:
            put(conn, name, COLUMNS[name], rows_of(log, name, until=head))
            for column in OWNERS.keys() & COLUMNS[name].keys():
                conn.execute(f"INSERT OR IGNORE INTO {OWNERS[column]} SELECT {column} FROM {name}")
        conn.execute("INSERT OR IGNORE INTO agents SELECT substr(stream, 7) FROM streams WHERE stream LIKE 'agent/%'")


def shape(conn: sqlite3.Connection) -> None:
    """The empty tables, their indices and the views."""
    from sqlite_utils import Database  # a slow import

    database = Database(conn, recursive_triggers=False, execute_plugins=False)

    def make(name: str, columns: Columns, **how: Any) -> None:
        kinds = {column: str if kind == MOMENT else kind for column, kind in columns.items()}
        conn.execute(database.create_table_sql(name, kinds, **how))

    make("streams", {"stream": str, "events": int, "first_seq": int, "last_seq": int}, pk="stream")
    make("events", EVENTS, pk="seq", foreign_keys=REFERENCES)
    for column, name in OWNERS.items():
        make(name, {column: str}, pk=column)
    for name, columns in COLUMNS.items():
        make(name, columns, foreign_keys=[(column, OWNERS[column], column) for column in columns if column in OWNERS])
    for column in ("kind", "turn", "call"):
        conn.execute(f"CREATE INDEX events_{column} ON events({column})")
    for name, sql in VIEWS.items():
        conn.execute(f"CREATE VIEW {name} AS {sql}")


def put(conn: sqlite3.Connection, table: str, columns: Columns, rows: Iterable[Mapping[str, Any]]) -> None:
    names, marks = ", ".join(f'"{name}"' for name in columns), ", ".join("?" * len(columns))
    values = ([cell(row.get(name), kind) for name, kind in columns.items()] for row in rows)
    conn.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks})", values)


def cell(value: Any, kind: Any = ANY) -> Any:
    """A value as a table has it."""
    match value:
        case None | str() | float():
            return value
        case int():
            return moment(value) if kind == MOMENT else int(value)
        case _:
            return msgspec.json.encode(value).decode()


def events(log: Log, until: int) -> Iterator[dict[str, Any]]:
    """The events as rows, with the turn and the call that each names. An old shape is as it is read today."""
    for one in log.read(until=until):
        data = encode(one.event)
        names = named(data)
        call = getattr(names, CALLS.get(one.kind, "call"))
        yield {"seq": one.seq, "at": one.at, "stream": one.stream, "version": one.version, "cause": one.cause} | {
            "read": one.read,
            "kind": one.kind,
            "turn": names.turn if isinstance(names.turn, str) else None,
            "call": call if isinstance(call, str) else None,
            "data": data.decode(),
        }


def named(data: bytes) -> Names:
    """What an event names; an unknown one may be anything."""
    try:
        return _names.decode(data)
    except msgspec.MsgspecError:
        return Names()
