"""Simulated agents, let go of behind the test; a provider whose calls wait; threads, counted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rewake.actors.config import AgentConfig
from rewake.actors.providers import ScriptedProvider
from rewake.actors.providers.base import Provider
from rewake.actors.simulation import Simulation
from tests.actors.threads import Controlled

Simulate = Callable[..., Simulation]


@pytest.fixture
def simulate() -> Iterator[Simulate]:
    """Makes simulations: of `agents` by name, all configured alike, answered from a script or by a provider."""
    made: list[Simulation] = []

    def build(
        script: Any = None,
        *,
        agents: tuple[str, ...] = ("ada",),
        provider: Provider | None = None,
        seed: int = 0,
        log: Any = None,
        options: Any = None,
        **config: Any,
    ) -> Simulation:
        configs = [AgentConfig(name=name, **{"model": "m", **config}) for name in agents]
        answers = provider or ScriptedProvider(script)
        made.append(Simulation(agents=configs, provider=answers, seed=seed, log=log, options=options))
        return made[-1]

    yield build
    for simulation in made:
        simulation.crash()


@pytest.fixture
def controlled() -> Controlled:
    return Controlled()


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Every thread that a runtime started has ended with it."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive(), f"{thread.name} runs on"
