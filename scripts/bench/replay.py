"""What reading a log costs: folding it, planning a long context, opening it again."""

from __future__ import annotations

import os
import time
from statistics import median

from msgspec.structs import replace

from rewake.actors import AgentConfig, Runtime, RuntimeOptions
from rewake.actors.agent import agent
from rewake.actors.incarnation import recover
from rewake.events import Log, MessageAdded, Overhead, Recorded, Text
from rewake.projections import compression, conversation
from rewake.projections.fold import PROJECTIONS, fold
from rewake.projections.plan import Plan, bounds, plan
from rewake.scripts.bench.made import ENCODING, talked, written
from rewake.scripts.bench.measuring import Figure, folder, seconds
from rewake.scripts.bench.turns import Instant, opened


def folds(events: int) -> list[Figure]:
    """Decode and fold, from the file: one projection, then all of them in one reading."""
    with folder() as place:
        log = opened(os.path.join(place, "replay.db"), 0.0, "normal")
        written(log, 10, events)
        head = log.head()
        one = seconds(lambda: fold(log, "turns", stream="agent/agent-0000"), repeats=3)
        rows = log.version("agent/agent-0000")
        every = seconds(lambda: replayed(log))
        log.close()
    return [
        Figure("replay: decode and fold one projection (turns)", rows / one, "events/s", 200_000, "at_least"),
        Figure(f"replay: decode and fold all {len(PROJECTIONS)}", head / every, "events/s", 50_000, "at_least"),
    ]


def replayed(log: Log) -> dict[tuple[str, str], object]:
    """Every projection of every stream."""
    states: dict[tuple[str, str], object] = {}
    by_kind = {
        kind: [(name, found) for name, found in PROJECTIONS.items() if kind in found.KINDS]
        for kind in {kind for found in PROJECTIONS.values() for kind in found.KINDS}
    }
    for recorded in log.read():
        for name, found in by_kind.get(type(recorded.event), ()):
            key = name, recorded.stream
            state = states.get(key)
            states[key] = found.evolve(found.initial() if state is None else state, recorded)
    return states


def plans(messages: int, reach: float) -> list[Figure]:
    """`plan` over a long history of which nothing is remembered, and over one to which a message was added."""
    with folder() as place:
        log = opened(os.path.join(place, "plan.db"), 0.0, "normal")
        talked(log, "ada", messages, context_budget_tokens=10 * messages + 10_000)
        state = recover(agent("ada"), log, log.head())[0].state
        log.close()
    within = bounds(state.live, Overhead())
    made, fresh = list[object](), replace(state.conversation, shown=None)
    whole = seconds(lambda: made.append(plan(fresh, state.compression, state.live, 1.0, within)), repeats=3)
    assert isinstance(made[-1], Plan)
    version = state.version + 1
    more = MessageAdded("user", (Text("one more"),), 3, ENCODING, id=f"ada/msg/{version}")
    tail = conversation.evolve(state.conversation, Recorded(0, 0, "agent/ada", version, None, 0, more))
    again = seconds(lambda: plan(tail, compression.initial(), state.live, 1.0, within))
    what = f"plan, {messages:,} messages"
    return [
        Figure(what, whole * 1_000, "ms", reach),
        Figure(f"{what}, only the tail changed", again * 1_000, "ms", 2),
    ]


def restarts(events: int) -> list[Figure]:
    """From the file to a runtime whose agents answer, without snapshots, and with those that a stop in order has kept."""
    with folder() as place:
        path = os.path.join(place, "restart.db")
        log = opened(path, 0.0, "normal")
        written(log, 10, events)
        without = log.head()
        log.close()
        bare = entering(path, RuntimeOptions(maintenance_interval=0))  # it becomes idle: nothing is summarised
        kept = median(entering(path) for _ in range(5))
    empty = median(entering(None) for _ in range(5))
    what = f"restart on {without:,} events of 10 agents"
    return [
        Figure(f"{what}, with snapshots", kept * 1_000, "ms", 100),
        Figure(f"{what}, without", bare * 1_000, "ms"),
        Figure("start on an empty log, 10 agents", empty * 1_000, "ms"),
    ]


def entering(path: str | None, options: RuntimeOptions | None = None) -> float:
    """The CPU time from nothing to a runtime that runs. With `options` it stops when every actor has read what it follows."""
    agents = [AgentConfig(name=f"agent-{number:04}", model="instant") for number in range(10)]
    begun = time.process_time()
    with Runtime(path or ":memory:", provider=Instant(), agents=agents, options=options) as rt:
        taken = time.process_time() - begun
        if options:
            rt.run_until_idle()
    return taken
