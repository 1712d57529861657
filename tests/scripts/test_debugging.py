"""The README's way from a log to the cause runs as it stands, and shows what it says."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rewake.scripts import stepping
from rewake.scripts.cli import main

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")


def commands() -> list[list[str]]:
    story = README.partition("From a log to the cause")[2].partition("```\n")[2].partition("```")[0]
    return [shlex.split(line, comments=True)[3:] for line in story.splitlines()]


def test_five_commands_lead_from_a_wake_that_waits_to_the_cause(
    rewake: Callable[..., Result], held: Path, monkeypatch: pytest.MonkeyPatch
):
    turn = json.loads(rewake("agents", held).stdout.splitlines()[0])["turn"]
    owed, why, replay, what_if, redecide = (
        [{"agents.db": str(held), "ada/turn/9": turn}.get(word, word) for word in words] for words in commands()
    )
    assert "held" in rewake(*owed).stdout
    assert "refused, over_budget" in rewake(*why).stdout
    found = rewake(*what_if, "-t")
    assert (found.exit_code, "it would not have been refused" in found.stdout) == (3, True)
    assert rewake(*redecide).exit_code == 0
    monkeypatch.setattr(stepping, "attended", lambda: True)
    walked = CliRunner().invoke(main, replay, input="rpsq", catch_exceptions=False).stdout
    assert re.search(r"ada@\d+  refused", walked)
    assert re.search(r"budget +900", walked)
