"""The README's examples run as they stand."""

from __future__ import annotations

import asyncio
import importlib
import re
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from rewake.actors import AgentConfig, Runtime
from rewake.actors.providers import Reply, Request, ScriptedProvider, server_error
from rewake.actors.simulation import Simulation
from rewake.events import Text
from rewake.projections import backlog

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


def test_a_strategy_and_an_error_policy_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What was decided is shown, small talk is not; a call that fails is tried nine times, every 30 s."""
    (tmp_path / "mine.py").write_text(EXAMPLES[2], "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    mine = importlib.import_module("mine")
    monkeypatch.setitem(sys.modules, "mine", mine)
    provider = ScriptedProvider([*["fine"] * 3, *[server_error()] * 9])
    sim = Simulation(agents=[mine.ada], provider=provider)
    for said in ("Good morning.", "DECISION: we ship in May.", "When do we ship?"):
        sim.push("ada", said)
        sim.run_until_idle()
    shown = [block.text for one in provider.requests[-1].messages for block in one.blocks if isinstance(block, Text)]
    assert [one for one in shown if one != "fine"] == ["DECISION: we ship in May.", "When do we ship?"]
    began, failing = sim.now, sim.push("ada", "Are you there?")
    sim.run_until_idle()
    assert sim.result(failing).state == "exhausted"
    assert (len(provider.requests), sim.now - began) == (12, 8 * 30_000)


def test_the_simulation_example_survives_its_crash():
    run(EXAMPLES[3])


def test_there_is_no_example_that_nobody_runs():
    assert len(EXAMPLES) == 4


def test_an_infer_that_blocks_in_a_thread_stands_in_nobodys_way(tmp_path: Path):
    """As the README has it; one that blocks the loop would let nobody else's call end before its own."""
    assert "`return await asyncio.to_thread(self.ask, request)`" in README
    go_on = threading.Event()

    class Blocking(ScriptedProvider):
        def ask(self, request: Request) -> Reply:
            assert go_on.wait(30)
            return Reply((Text("late"),), "end_turn")

        async def infer(self, request: Request, on_delta: Any) -> Reply:
            if request.agent == "ada":
                return await asyncio.to_thread(self.ask, request)
            return await super().infer(request, on_delta)

    agents = [AgentConfig(name=name, model="m") for name in ("ada", "bob")]
    with Runtime(tmp_path / "log.db", provider=Blocking(), agents=agents) as rt:
        waits, goes = rt.push("ada", "hello"), rt.push("bob", "hello")
        assert rt.result(goes, timeout=20).state == "completed"
        assert rt.result(waits, timeout=0).state == "owed"
        go_on.set()
        assert rt.result(waits, timeout=20).text == "late"


def test_what_compression_costs_is_told_as_the_readme_has_it():
    """Its numbers are the defaults."""
    defaults = AgentConfig(name="ada", model="m")
    for name in ("recent_window_tokens", "target_chunk_tokens"):
        assert f"`{name}` ({getattr(defaults, name):,})" in " ".join(README.split())
    assert (defaults.merge_threshold, defaults.compression_model, backlog.LONGEST) == (6, None, 2_000)


def run(example: str) -> dict[str, Any]:
    defined: dict[str, Any] = {"__name__": "readme"}
    exec(compile(example, "README.md", "exec"), defined)
    return defined
