"""Two logs: where they go apart, and of what the one has more."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import Result

from rewake.actors import AgentConfig
from rewake.actors.providers import ScriptedProvider
from rewake.actors.simulation import Simulation

Rewake = Callable[..., Result]


def life(path: Path, *said: str, seconds: float = 0) -> Path:
    agents = [AgentConfig(name=name, model="m") for name in ("ada", "bob")]
    sim = Simulation(agents=agents, provider=ScriptedProvider(), log=str(path))
    for text in said:
        sim.advance(seconds=seconds)
        sim.result(sim.push("ada", text))
    sim.stop()
    return path


def rows(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_copy_is_the_same(rewake: Rewake, held: Path, tmp_path: Path):
    copy = shutil.copy(held, tmp_path / "copy.db")
    result = rewake("diff", held, copy, "--exact")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "the same" in result.stderr


def test_the_first_difference_overall_and_by_stream(rewake: Rewake, tmp_path: Path):
    one, two = life(tmp_path / "a.db", "hello", "more"), life(tmp_path / "b.db", "hello", "less", "again")
    result = rewake("diff", one, two)
    first, ada, host, *counts = rows(result)
    assert result.exit_code == 3
    assert (first["what"], first["a"]["kind"], first["a"]["seq"]) == ("first", "message_added", first["b"]["seq"])
    assert ("more" in first["a"]["said"], "less" in first["b"]["said"]) == (True, True)
    assert (ada["stream"], ada["a"]) == ("agent/ada", first["a"])
    assert host["stream"] == "host" or counts
    turns = next(one for one in rows(result) if (one["stream"], one["kind"]) == ("agent/ada", "turn_completed"))
    assert (turns["what"], turns["a"], turns["b"]) == ("count", 2, 3)
    page = rewake("diff", one, two, "-t").stdout
    assert f"first at event {first['a']['seq']}" in page
    assert "turn_completed" in page


def test_a_log_that_goes_on_is_another(rewake: Rewake, tmp_path: Path):
    one, two = life(tmp_path / "a.db", "hello"), life(tmp_path / "b.db", "hello", "more")
    page = rewake("diff", one, two, "-t")
    assert page.exit_code == 3
    assert "A  has no more events" in page.stdout
    assert "first at event" in page.stdout  # its stop came sooner
    copied = tmp_path / "c.db"
    rewake("export", two, tmp_path / "c.jsonl", "--until", 9)
    rewake("import", copied, tmp_path / "c.jsonl")
    cut = rewake("diff", two, copied, "-t").stdout
    ours = json.loads(rewake("verify", two).stdout)["last_good_seq"]
    theirs = json.loads(rewake("verify", copied).stdout)["last_good_seq"]
    assert cut.startswith(f"B ends with event {theirs}: A goes on with {ours - theirs} more\n")
    assert " first at its version " not in cut


def test_what_of_an_event_is_otherwise_is_named(rewake: Rewake, tmp_path: Path):
    """In a long text from where it differs; a stream that one log alone has is only named."""
    text = "a b " * 40
    one, two = life(tmp_path / "a.db", f"{text}left c"), life(tmp_path / "b.db", f"{text}right d")
    first, *_ = rows(rewake("diff", one, two))
    assert first["unlike"] == {"blocks.0.text": f"…{text[-20:]}left c → …{text[-20:]}right d"}
    page = rewake("diff", one, two, "-t").stdout
    assert f"     A → B: blocks.0.text …{text[-20:]}left c → …{text[-20:]}right d\n" in page
    late = life(tmp_path / "late.db", f"{text}left c", seconds=5)
    assert "     A → B: at 2026-01-01T00:00:00.000Z → " in rewake("diff", one, late, "-t", "--exact").stdout
    alone = Simulation(
        agents=[AgentConfig(name="eve", model="m")], provider=ScriptedProvider(), log=str(tmp_path / "e")
    )
    alone.stop()
    page = rewake("diff", one, tmp_path / "e", "-t").stdout
    assert "only A has agent/ada, agent/bob\nonly B has agent/eve\n" in page
    assert "agent/bob first" not in page


def test_times_count_when_asked_for(rewake: Rewake, tmp_path: Path):
    one, two = life(tmp_path / "a.db", "hello"), life(tmp_path / "b.db", "hello", seconds=5)
    assert rewake("diff", one, two).exit_code == 0
    assert rewake("diff", one, two, "--exact").exit_code == 3


def test_the_log_of_the_environment_is_the_first(rewake: Rewake, tmp_path: Path):
    one, two = life(tmp_path / "a.db", "hello"), life(tmp_path / "b.db", "hallo")
    assert rewake("diff", two, env={"REWAKE_LOG": str(one)}).exit_code == 3
    assert rewake("diff", one, tmp_path / "none.db").exit_code == 1
    assert rewake("diff").exit_code == 2
