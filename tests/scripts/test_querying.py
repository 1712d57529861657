"""`rewake tables` and `rewake query`: a log asked in SQL."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import Result

from rewake.events import open_log

Rewake = Callable[..., Result]


def test_tables_writes_a_database_for_any_tool(rewake: Rewake, held: Path, tmp_path: Path):
    out = tmp_path / "out.db"
    assert rewake("tables", held, out).exit_code == 0
    with closing(sqlite3.connect(out)) as conn:
        assert conn.execute("SELECT state, count(*) FROM v_owed GROUP BY 1").fetchall() == [("held", 2)]
        assert conn.execute("PRAGMA foreign_key_check").fetchall() == []
    again = rewake("tables", held, out)
    assert (again.exit_code, len(again.stderr.splitlines())) == (1, 1)
    assert "nothing is overwritten" in again.stderr
    assert rewake("tables", tmp_path / "early.db", "--at", 3, env={"REWAKE_LOG": str(held)}).exit_code == 0
    with closing(sqlite3.connect(tmp_path / "early.db")) as conn:
        assert conn.execute("SELECT max(seq) FROM events").fetchone() == (3,)


def test_a_query_is_answered_in_every_form(rewake: Rewake, held: Path):
    """JSON lines, a table, CSV; with `--at` as it was then."""
    sql = "SELECT wake, state, until FROM v_owed"
    rows = [json.loads(line) for line in rewake("query", held, sql).stdout.splitlines()]
    assert [row["state"] for row in rows] == ["held", "held"]
    assert rows[0]["until"].startswith("2026-01-01T00:30")
    assert rewake("query", sql, env={"REWAKE_LOG": str(held)}).exit_code == 0
    assert rewake("query", held, sql, "-t").stdout.splitlines()[0].split() == ["wake", "state", "until"]
    assert rewake("query", held, f"{sql} WHERE 0", "--csv").stdout == "wake,state,until\n"
    assert json.loads(rewake("query", held, "SELECT 1 AS a, 2 AS a").stdout) == {"a": 1, "a:2": 2}
    assert json.loads(rewake("query", held, "SELECT count(*) AS n FROM events", "--at", 5).stdout) == {"n": 5}


@pytest.mark.parametrize(
    "sql",
    [
        "SELEC 1",
        "SELECT * FROM nothing",
        "",
        "/* nothing */",
        "SELECT 1; SELECT 2",
        "DELETE FROM events",
        "DROP TABLE events",
        "CREATE TABLE mine (x)",
        "ATTACH '{folder}/other.db' AS other",
        "VACUUM INTO '{folder}/other.db'",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA writable_schema = 1",
        "SELECT load_extension('it')",
        "SELECT CAST(x'ff' AS TEXT)",
        "SELECT json_extract('{', '$')",
        "BEGIN",
    ],
)
def test_a_bad_query_is_one_line_and_exit_code_1(rewake: Rewake, held: Path, sql: str):
    with closing(open_log(held, readonly=True)) as log:
        before = log.head()
    result = rewake("query", held, sql.replace("{folder}", str(held.parent)))
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (1, "", 1)
    assert "Traceback" not in result.stderr
    with closing(open_log(held, readonly=True)) as log:
        assert log.head() == before
    assert not (held.parent / "other.db").exists()


def test_a_query_tells_of_the_tables_themselves(rewake: Rewake, held: Path):
    shown = rewake("query", held, "SELECT name FROM sqlite_master WHERE type = 'view'").stdout
    assert {"v_turns", "v_owed", "v_holds", "v_calls", "v_tokens"} == {
        json.loads(one)["name"] for one in shown.splitlines()
    }
    assert '"name":"wake"' in rewake("query", held, "PRAGMA table_info(wakes)").stdout
