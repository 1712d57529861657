"""Every command's exit codes: 0 fine, 1 failed, 2 usage, 3 divergence found, 4 log in use, 5 log corrupt."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import Result

from rewake.actors.agent import holding
from rewake.events import open_log
from rewake.scripts.cli import COMMANDS
from tests.scripts.test_reading import MORE, ON_A_LOG, damaged

Rewake = Callable[..., Result]

FINE: dict[str, tuple[str, ...]] = {
    "agents": ("{log}",),
    "backup": ("{log}", "{out}"),
    "diff": ("{log}", "{copy}"),
    "export": ("{log}", "{out}"),
    "import": ("{out}", "{lines}"),
    "owed": ("{log}",),
    "query": ("{log}", "SELECT 1"),
    "redecide": ("{log}",),
    "replay": ("{log}",),
    "run": ("{config}",),
    "show": ("{log}", "settings"),
    "tables": ("{log}", "{out}"),
    "tail": ("{log}",),
    "verify": ("{log}",),
    "what-if": ("{log}", "--set", "bob.max_tokens=99"),
    "why": ("{log}", "ada/turn/4"),
}
OTHERWISE = {
    1: {
        "import": ("{out}", "{log}"),
        "query": ("{log}", "SELECT nothing"),
        "redecide": ("{log}", "--stream", "agent/nobody"),
        "run": ("{taken}",),
        "tail": ("{log}", "--agent", "nobody"),
        "what-if": ("{log}", "--set", "nobody.max_tokens=3"),
        "why": ("{log}", "ada/turn/1"),
    },
    2: {
        "bench": ("--fly",),
        "demo": ("--fly",),
        "import": ("{out}", "{lines}", "more"),
        "run": ("{wrong}",),
        "why": ("{log}", "ada"),
        "what-if": ("{log}", "--set", "ada.tools=[]"),
    },
    3: {"diff": ("{log}", "{less}"), "what-if": ("{log}", "--set", "ada.context_budget_tokens=60_000")},
    4: {"run": ("{config}",)},
    5: {"import": ("{out}", "{edited}"), "run": ("{torn}",)},
}


@pytest.fixture
def places(held: Path, config: Path, rewake: Rewake, tmp_path: Path) -> dict[str, Path]:
    """What the arguments name."""
    there = {name: tmp_path / name for name in ("out", "copy", "lines", "edited", "less", "taken", "wrong", "torn")}
    there |= {"log": held, "config": config, "damaged": damaged(held, "UPDATE log SET data = '{' WHERE seq = 2")}
    shutil.copy(held, there["copy"])
    rewake("export", held, there["lines"])
    there["edited"].write_bytes(there["lines"].read_bytes().replace(b"Short", b"Shirt", 1).replace(b"word", b"ward", 1))
    rewake("export", held, tmp_path / "some", "--until", 9)
    rewake("import", there["less"], tmp_path / "some")
    (tmp_path / "text.db").write_text("no log\n")
    for name, log in (("taken", "text.db"), ("wrong", 'a" b'), ("torn", "damaged.db")):
        there[name].write_text(config.read_text("utf-8").replace("agents.db", log), "utf-8")
    return there


def code(rewake: Rewake, command: str, args: tuple[str, ...], places: dict[str, Path]) -> int:
    """What the command ends with; `run` in a process of its own, whose input it reads."""
    given = [arg.format(**places) for arg in args]
    if command != "run":
        return rewake(command, *given).exit_code
    asked = [sys.executable, "-m", "rewake.scripts.cli", "run", *given]
    done = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode


def test_every_command_has_its_codes(rewake: Rewake, places: dict[str, Path]):
    out = places["out"]
    found = {
        command: code(rewake, command, args, places | {"out": out.with_suffix(f".{command}")})
        for command, args in FINE.items()
    }
    assert found == dict.fromkeys(FINE, 0)
    assert found.keys() == COMMANDS.keys() - {"bench", "demo"}  # they have no other argument, and take their time
    for expected in (1, 2, 3, 5):
        found = {command: code(rewake, command, args, places) for command, args in OTHERWISE[expected].items()}
        assert found == dict.fromkeys(OTHERWISE[expected], expected)


def test_a_log_that_is_written_has_code_4_for_a_writer_alone(rewake: Rewake, places: dict[str, Path]):
    with closing(open_log(places["config"].parent / "agents.db")) as log:
        log.open_writer()
        assert code(rewake, "run", OTHERWISE[4]["run"], places) == 4
    with closing(open_log(places["log"])) as log:
        log.open_writer()
        assert code(rewake, "owed", FINE["owed"], places) == 0


def test_a_log_and_its_options_are_checked_by_every_command(rewake: Rewake, places: dict[str, Path]):
    for command in ON_A_LOG:
        more = {**MORE, "show": ("settings",), "why": ("ada/turn/4",)}.get(command, ())
        out = places["less"] if command == "diff" else places["out"].with_suffix(f".{command}")
        args = [one.format(out=out) for one in more]
        assert rewake(command, places["log"].with_name("none.db"), *args).exit_code == 1, command
        assert rewake(command, places["log"], *args, "--fly").exit_code == 2, command
        assert rewake(command, places["damaged"], *args).exit_code == 5, command


def test_a_decision_that_differs_has_code_3(rewake: Rewake, held: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as changed:
        changed.setattr(holding, "may_hold", lambda *_: False)
        assert rewake("redecide", held).exit_code == 3
