"""Logs and configurations for the command line to read."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rewake.actors import AgentConfig
from rewake.actors.providers import ScriptedProvider, slow
from rewake.actors.simulation import Simulation
from rewake.scripts.cli import main

CONFIG = """\
log = "agents.db"

[provider.claude]
kind = "scripted"

[options]
durability = "normal"

[[agent]]
name = "ada"
model = "m"
"""


@pytest.fixture
def rewake() -> Callable[..., Result]:
    """The command, in this process."""

    def run(*args: object, env: dict[str, str] | None = None) -> Result:
        return CliRunner().invoke(main, [str(arg) for arg in args], env=env, catch_exceptions=False)

    return run


@pytest.fixture
def held(tmp_path: Path) -> Path:
    """A log whose process is gone, with two wakes held and an idle second agent."""
    path = tmp_path / "held.db"
    small = AgentConfig(name="ada", model="m", max_tokens=200, target_chunk_tokens=100)
    provider = ScriptedProvider(summarize=lambda request: slow("Short.", 600))
    simulation = Simulation(agents=[small, AgentConfig(name="bob", model="m")], provider=provider, log=str(path))
    for number in range(12):
        simulation.result(simulation.push("ada", f"{'word ' * 80}{number}"))
    simulation.configure("ada", context_budget_tokens=900, immediate=True, allow_infeasible=True)
    simulation.push("ada", "one \x1b[31mred")
    simulation.push("ada", "two")
    simulation.run()
    simulation.crash()
    return path


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "agents.toml"
    path.write_text(CONFIG, "utf-8")
    return path
