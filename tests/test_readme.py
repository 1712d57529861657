"""The README's examples run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_embedding_example_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    run(EXAMPLES[0])
    assert capsys.readouterr().out == "384,400 km, on average.\n"
    assert (tmp_path / "agents.db").exists()


def test_the_simulation_example_survives_its_crash():
    run(EXAMPLES[1])


def test_there_is_no_example_that_nobody_runs():
    assert len(EXAMPLES) == 2


def run(example: str) -> None:
    exec(compile(example, "README.md", "exec"), {"__name__": "readme"})
