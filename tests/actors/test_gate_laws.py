"""Laws of the gate: over random limits, overloads, crashes, restarts, rebuilds and time."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewake.actors.config import AgentConfig, RuntimeOptions
from rewake.actors.providers import (
    ScriptedProvider,
    call_tool,
    drop,
    limit,
    overloaded,
    reply,
    server_error,
    slow,
)
from rewake.actors.simulation import Simulation
from rewake.actors.tools import tool
from rewake.events import Compiled, GateClosed, GateOpened, Log, Recorded
from rewake.projections import gates
from rewake.projections.gates import Gate

NAMES = ("ada", "bob", "eve", "pat", "sue")
MODELS = {"ada": "a", "bob": "a", "eve": "a", "pat": "b", "sue": "b"}
KINDS = ("provider_held", "gate_closed", "gate_opened", "provider_released", "provider_tried", "inference_failed", "*")


@tool(idempotent=True)
def look(what: str) -> str:
    """Look something up."""
    return what


async def willing(agent: str, wakes: Any) -> bool:
    return len(wakes) != 2


class Life:
    """Several agents on two models of one provider, whose answers and acts a seed decides; every call made is noted with
    the log's head and the time.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.troubled = 0.5
        self.calls: list[tuple[int, int, str, str]] = []
        special: dict[str, dict[str, Any]] = {
            "ada": {"tools": (look,)},
            "bob": {"context_budget_tokens": 700},
            "eve": {"inference_policy": willing},
        }
        small: Any = {"max_tokens": 100, "recent_window_tokens": 100, "target_chunk_tokens": 120}
        self.sim = Simulation(
            agents=[AgentConfig(name=name, model=MODELS[name], **small, **special.get(name, {})) for name in NAMES],
            provider=ScriptedProvider(self.answer, summarize=self.answer),
            options=RuntimeOptions(max_in_flight=self.chance.choice([0, 1, 3])),
            seed=seed,
        )

    def answer(self, request: Any) -> Any:
        stream = f"{'agent' if request.purpose == 'turn' else 'drain'}/{request.agent}"
        self.calls.append((self.sim.log.head(), self.sim.now, stream, request.model))
        item = self.trouble() if self.chance.random() < self.troubled else self.success(request)
        return slow(item, seconds=self.chance.choice([1, 7, 40])) if self.chance.random() < 0.4 else item

    def trouble(self) -> Any:
        waits = [None, None, 0, 2, 90]
        return self.chance.choice(
            [
                limit(self.chance.choice(waits)),
                limit(self.chance.choice(waits)),
                overloaded(self.chance.choice(waits)),
                server_error(retry_after=self.chance.choice(waits)),
                drop(),
            ]
        )

    def success(self, request: Any) -> Any:
        if request.tools and self.chance.random() < 0.3:
            return call_tool("look", {"what": "it"})
        return reply("well " * self.chance.randint(1, 40))

    def act(self) -> None:
        sim, chance = self.sim, self.chance
        name = chance.choice(NAMES)
        match chance.randint(0, 13):
            case 0 | 1 | 2 | 3 | 4:
                sim.push(name, "word " * chance.randint(1, 200))
            case 5 | 6 | 7:
                sim.run()
            case 8 | 9 | 10:
                sim.advance(seconds=chance.choice([1, 6, 70, 300]))
            case 11 if not sim._armed:
                for _ in range(chance.randint(0, 30)):
                    sim.scheduler.step()
                sim.scheduler.rebuild(chance.choice(list(sim.scheduler.cells)))
            case 12:
                sim.crash_at(chance.choice(KINDS), chance.randint(1, 4), chance.choice(["before", "after"]))
            case _:
                chance.choice([sim.crash, sim.stop, lambda: sim.shift_clock(chance.choice([-600, 600]))])()

    def lived(self, acts: int) -> Simulation:
        for _ in range(acts):
            self.act()
            while not self.sim.running:
                self.sim.restart()
        self.troubled = 0
        self.sim._armed.clear()
        self.sim.advance(hours=2)
        return self.sim


def gate_at(events: list[Recorded], head: int) -> Gate:
    state = Gate()
    for recorded in events:
        if recorded.seq <= head:
            state = gates.evolve(state, recorded)
    return state


def compiles(log: Log) -> Counter[tuple[int, str]]:
    """How often each turn's context was compiled after an opening of its model: the probe's, or that for everybody."""
    model_of = {f"agent/{name}": model for name, model in MODELS.items()}
    openings, found = dict[str, GateOpened](), Counter[tuple[int, str]]()
    since = dict[str, int]()
    for recorded in log.read():
        match recorded.event:
            case GateClosed(model=model):
                openings.pop(model, None)
            case GateOpened(model=model) as event:
                if model not in openings or (openings[model].probing and not event.probing):
                    since[model] = recorded.seq
                openings[model] = event
            case Compiled(turn) if (model := model_of[recorded.stream]) in openings:
                found[since[model], turn] += 1
            case _:
                pass
    return found


@settings(max_examples=150)
@given(st.integers(0, 2**32))
def test_no_call_before_its_time_one_probe_one_compile_and_nothing_lost(seed: int):
    life = Life(seed)
    sim = life.lived(30)
    assert sim.owed() == []
    events = [one for one in sim.log.read(stream="gate/scripted") if type(one.event) in gates.KINDS]
    for head, at, stream, model in life.calls:
        lane = gate_at(events, head).lanes.get(model)
        if lane:
            assert lane.state != "closed", (at, stream, lane)
            assert lane.state != "probing" or lane.probe == stream, (at, stream, lane)
    until = dict[str, int]()
    for one in events:
        match one.event:
            case GateClosed(until=int(deadline), model=model):
                assert deadline >= until.get(model, 0)
                until[model] = deadline
            case GateOpened("due", model=model):
                assert one.at >= until.pop(model)
            case _:
                pass
    assert not {key: count for key, count in compiles(sim.log).items() if count > 1}


@pytest.mark.parametrize("seed", range(3))
def test_the_same_seed_gives_the_same_log(seed: int):
    logs = [list(Life(seed).lived(20).log.raw()) for _ in range(2)]
    assert logs[0] == logs[1]
