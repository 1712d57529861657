"""Lives of several agents, made by a seed: tools, holds, failures, crashes, rebuilds, commands at any moment."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter
from contextlib import suppress
from typing import Any

from rewake.actors import snapshots
from rewake.actors.behaviour import Behaviour, fold
from rewake.actors.config import AgentConfig
from rewake.actors.incarnation import Incarnation
from rewake.actors.providers import ScriptedProvider, call_tool, drop, limit, overloaded, reply, server_error, slow
from rewake.actors.providers.extract import extract
from rewake.actors.simulation import Simulation
from rewake.actors.tools import tool
from rewake.events import Event, Log, RewakeError
from rewake.projections.fold import PROJECTIONS, STREAMS
from rewake.projections.fold import fold as folded_offline

NAMES = ("ada", "bob", "bob", "eve", "eve")
KINDS = ("wake", "inference_requested", "inference_completed", "tool_called", "held", "compressed", "hold_ended", "*")


@tool(idempotent=True)
def look(what: str) -> str:
    """Look something up: the second of a round finds a lot."""
    return f"found {what} " * (80 if what == "1" else 1)


@tool
async def send(what: str) -> str:
    """Send something: the first of a round takes its time."""
    if what == "0":
        await asyncio.sleep(20)
    return f"sent {what}"


def configs() -> list[AgentConfig]:
    """One with tools, one that hardly fits its budget, one with a policy to ask."""
    small: Any = {"max_tokens": 100, "recent_window_tokens": 100, "target_chunk_tokens": 120}
    return [
        AgentConfig(name="ada", model="m", tools=(look, send), max_rounds=1),
        AgentConfig(name="bob", model="m", tools=(look,), context_budget_tokens=600, **small),
        AgentConfig(
            name="eve", model="m", inference_policy=willing, tools=(look, send), context_budget_tokens=600, **small
        ),
    ]


async def willing(agent: str, wakes: Any) -> bool:
    """Not where two ask; one in six it can not tell of."""
    if int(wakes[0].id.rpartition("/")[2]) % 6 == 0:
        raise KeyError(wakes[0].id)
    return len(wakes) != 2


def answers(seed: int) -> ScriptedProvider:
    """The same request has the same answer, but for a limit or an overload that one in six meets once or twice before.
    In one life of eight no summary is ever made.
    """
    asked = Counter[str]()

    def limits(request: Any) -> Any:
        """The limit that this request meets now, if any."""
        key = f"{seed} {request.agent} {request.purpose} {request.turn} {request.step}"
        chance = random.Random(hashlib.sha256(key.encode()).digest())
        asked[key] += 1
        times, wait = chance.choice([0, 0, 0, 0, 0, 1, 2]), chance.choice([None, 2, 30, 600])
        if asked[key] > times:
            return None
        return slow(chance.choice([limit(wait), overloaded(wait)]), seconds=chance.choice([0, 3]))

    def script(request: Any) -> Any:
        if met := limits(request):
            return met
        said = f"{seed} {request.agent} {request.turn} {request.step}"
        chance = random.Random(hashlib.sha256(said.encode()).digest())
        tools = [one.name for one in request.tools]
        match chance.randint(0, 9):
            case 0:
                return server_error()
            case 1:
                return drop(after="I was")
            case 2:
                return slow(reply("late"), seconds=chance.randint(1, 90))
            case 3 | 4 | 5 | 6 if tools:
                names = [chance.choice(tools) for _ in range(chance.randint(1, 3))]
                return [call_tool(name, {"what": str(number)}) for number, name in enumerate(names)]
            case _:
                return reply("well " * chance.randint(1, 40))

    def summarize(request: Any) -> Any:
        return limits(request) or (server_error() if seed % 8 == 7 else extract(request))

    return ScriptedProvider(script, summarize=summarize)


def begun(seed: int, log: Any = None) -> Simulation:
    return Simulation(agents=configs(), provider=answers(seed), seed=seed, log=log)


def lived(seed: int, acts: int = 20, log: Any = None) -> Simulation:
    """A life: whatever may happen to agents, in an order that the seed decides; at its end nothing can happen now."""
    sim, chance = begun(seed, log), random.Random(seed)
    for _ in range(acts):
        act(sim, chance)
        while not sim.running:
            sim.restart()
    while True:
        sim.run()
        if sim.running:
            return sim
        sim.restart()


def act(sim: Simulation, chance: random.Random) -> None:
    name = chance.choice(NAMES)
    match chance.randint(0, 18):
        case 0 | 1 | 2 | 3:
            sim.push(
                name, "word " * chance.randint(1, 90 if name == "ada" else 400), channel=chance.choice(["a", "b", None])
            )
        case 4:
            sim.wake(name, "tick", dedupe_key=chance.choice(["one", "two", None]))
        case 5 | 6:
            sim.run()
        case 7:
            sim.advance(seconds=chance.choice([0.5, 3, 40, 2_000]))
        case 8:
            some = [sim.scheduler.step() for _ in range(chance.randint(0, 30)) if sim.running and not sim._armed]
            if some:
                sim.scheduler.rebuild(chance.choice(list(sim.scheduler.cells)))
        case 9:
            sim.crash_at(chance.choice(KINDS), chance.randint(1, 6), chance.choice(["before", "after"]))
        case 10:
            chance.choice([sim.crash, sim.stop, lambda: sim.crash(torn=True)])()
        case 11:
            with suppress(RewakeError):
                smaller = {"context_budget_tokens": chance.choice([400, 700, 1_000])}
                changes: dict[str, Any] = chance.choice([{"max_tokens": 80}, smaller])
                sim.configure(name, immediate=True, allow_infeasible=chance.random() < 0.8, **changes)
        case 12:
            with suppress(RewakeError):
                sim.abort(name, reason="enough")
        case 13:
            with suppress(RewakeError):
                sim.cancel(name, drop=chance.choice(["machine", "all"]))
        case 14:
            come_and_go(sim, chance)
        case 15 | 16 | 17:
            for one in sim.health().agents:
                with suppress(RewakeError):
                    if one.state in ("held", "retrying"):
                        sim.configure(one.agent, context_budget_tokens=5_000, immediate=True)
            sim.advance(seconds=5)
        case _:
            config = AgentConfig(name="run", model="m", tools=(look,))
            with suppress(RewakeError):
                sim.run_once(config, "look around", timeout=chance.choice([0, 2, 60]))


def host_says(sim: Simulation, event: Event) -> None:
    """The host records it and everybody takes it in."""
    cell = sim.scheduler.cells["host"]
    (recorded,) = sim.log.append("host", sim.log.version("host"), [event])
    cell.rise(sim.log)
    cell.fresh = False
    sim.scheduler.publish(recorded)
    sim.run()


def come_and_go(sim: Simulation, chance: random.Random) -> None:
    """An agent that starts, is pushed to, and is disposed."""
    guests = [name for name in sim._configs if name.startswith("guest")]
    with suppress(RewakeError):
        if not guests:
            sim.start(AgentConfig(name=f"guest{len(sim.log.streams())}", model="m", tools=(look, send)))
        elif chance.randint(0, 2):
            sim.push(guests[0], "welcome", addressed=chance.random() < 0.5)
        else:
            sim.dispose(guests[0])


def caught_up(incarnation: Incarnation[Any]) -> Any:
    """An actor's state with all that it follows taken in."""
    here = incarnation.here.copy()
    for recorded in incarnation.feed:
        fold(incarnation.behaviour, here, recorded)
    return here.state


def living(sim: Simulation) -> dict[str, str]:
    """Digests of the living states."""
    return {stream: snapshots.digest(caught_up(cell.incarnation)) for stream, cell in sim.scheduler.cells.items()}


def actors(sim: Simulation) -> list[Behaviour[Any]]:
    return [cell.behaviour for cell in sim.scheduler.cells.values()]


def restarted(behaviours: list[Behaviour[Any]], log: Log) -> dict[str, str]:
    """Digests of the states that a new process would begin with."""
    return {one.stream: snapshots.digest(caught_up(Incarnation(one, log))) for one in behaviours}


def strayed(sim: Simulation) -> list[tuple[str, str]]:
    """The streams whose living state is not the one after a restart, with snapshots and without, and offline; where it is
    not. The simulation ends.
    """
    live, behaviours, log = living(sim), actors(sim), sim.log
    states = {cell.stream: cell.incarnation.state for cell in sim.scheduler.cells.values()}
    sim.crash()
    wrong = [(stream, "after a restart") for stream, made in restarted(behaviours, log).items() if made != live[stream]]
    log.drop_snapshots()
    wrong += [
        (stream, "without snapshots") for stream, made in restarted(behaviours, log).items() if made != live[stream]
    ]
    for stream, state in states.items():
        own = {name: snapshots.digest(part) for name, part in parts(state, stream).items()}
        wrong += [(stream, "offline")] if own != offline(log, stream) else []
    return wrong


OWNERS = {"gates": "gate", "host": "host", "compression": "drain"}


def parts(state: Any, stream: str) -> dict[str, Any]:
    """The projections that an actor's state holds of its own stream."""
    kind = stream.partition("/")[0]
    own = [name for name in PROJECTIONS if OWNERS.get(name, "agent") == kind]
    attribute = {"gates": "gate"}
    return {name: state if kind == "host" else getattr(state, attribute.get(name, name), None) for name in own}


def offline(log: Log, stream: str, at: int | None = None) -> dict[str, str]:
    """Digests of a stream's projections folded from the log; with `at` to that seq first, and then on."""
    kind = stream.partition("/")[0]
    digests: dict[str, str] = {}
    for name, projection in PROJECTIONS.items():
        if STREAMS.get(name, "agent/*").partition("/")[0] == kind:
            state = folded_offline(log, name, stream=stream, until=at)
            if at is not None:
                for recorded in log.read(at, stream):
                    state = projection.evolve(state, recorded) if type(recorded.event) in projection.KINDS else state
            digests[name] = snapshots.digest(state)
    return digests
