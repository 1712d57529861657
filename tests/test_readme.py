"""The README's examples run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rewake.actors import AgentConfig, Runtime

README = (Path(__file__).parents[1] / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_embedding_example_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    run(EXAMPLES[0])
    assert capsys.readouterr().out == "384,400 km, on average.\n"
    assert (tmp_path / "agents.db").exists()


def test_the_example_of_a_provider_is_one(tmp_path: Path):
    provider = run(EXAMPLES[1])["Echo"]()
    with Runtime(tmp_path / "log.db", provider=provider, agents=[AgentConfig(name="ada", model="m")]) as rt:
        assert rt.result(rt.push("ada", "hello"), timeout=20).text == "HELLO"


def test_the_simulation_example_survives_its_crash():
    run(EXAMPLES[2])


def test_there_is_no_example_that_nobody_runs():
    assert len(EXAMPLES) == 3


def run(example: str) -> dict[str, Any]:
    defined: dict[str, Any] = {"__name__": "readme"}
    exec(compile(example, "README.md", "exec"), defined)
    return defined
