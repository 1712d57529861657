"""A month of many agents in virtual time, with all that may befall them: what was acknowledged is neither lost nor done
twice.

    python -m rewake.scripts.soak --days 30 --agents 50
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import click
from msgspec import Struct

from rewake.actors import AgentConfig, Receipt, redecide
from rewake.actors.simulation import EPOCH, Simulation
from rewake.actors.tools import tool
from rewake.events import Log, MessageAdded, Millis, Recorded, RewakeError, TurnStarted, Wake, WakeWithdrawn
from rewake.events.turns import TurnEnd
from rewake.projections import verify
from rewake.projections.wakes import KEPT_MS
from rewake.scripts.weather import Weather, spells

MODELS = ("a", "b", "small")
DAY = 86_400.0
ENDS = 4.0
"""How often a day the process ends."""
CUT = (
    "*",
    "held",
    "compressed",
    "inference_completed",
    "gate_closed",
    "provider_held",
    "tool_called",
    "turn_completed",
)
SETTLED = 2.0
"""Days of fair weather at the end, in which everything may end."""


@tool(idempotent=True)
async def look(what: str) -> str:
    """Look something up, in three seconds."""
    await asyncio.sleep(3)
    return f"found {what}"


@tool
async def send(what: str) -> str:
    """Send something, in a second."""
    await asyncio.sleep(1)
    return f"sent {what}"


async def willing(agent: str, wakes: Any) -> bool:
    return len(wakes) != 4


class Report(Struct, frozen=True):
    """What came of it. `twice`: wakes that ended more than once, and keys that were taken for new too early. `untold`: rows
    of `owed` that did not say why, or neither until when nor what ends it. `seconds`: CPU time of each virtual day.
    """

    acknowledged: int
    ended: dict[str, int]
    owed: tuple[str, ...]
    lost: tuple[str, ...]
    twice: tuple[str, ...]
    untold: tuple[str, ...]
    restarts: int
    torn: int
    calls: int
    events: dict[str, int]
    seconds: tuple[float, ...]
    verified: bool
    differences: int

    @property
    def good(self) -> bool:
        wrong = self.lost or self.twice or self.untold or self.differences
        return self.verified and not wrong


class Soak:
    """The life of many agents, whose every act a seed decides; `rate` acts a day for each of them."""

    def __init__(self, days: float, agents: int, seed: int = 0, rate: float = 10.0) -> None:
        self.days, self.rate = days, rate
        self.chance = random.Random(seed)
        self.names = tuple(f"agent{number:02}" for number in range(agents))
        self.weather = Weather(self.chance, spells(self.chance, MODELS, EPOCH, days), lambda: self.sim.now)
        self.kept: list[Receipt] = []
        self.untold: list[str] = []
        self.restarts = self.torn = 0
        self.sim = Simulation(agents=self.configs(), provider=self.weather, seed=seed)

    def configs(self) -> list[AgentConfig]:
        """Each agent as a start may find it configured: its limits differ from those before."""
        return [self.config(name) for name in self.names]

    def config(self, name: str) -> AgentConfig:
        chance, small = self.chance, hash_of(name) % 3
        budget = (chance.choice([700, 900, 1_500]), chance.choice([3_000, 6_000]), None)[small]
        return AgentConfig(
            name=name,
            model=MODELS[hash_of(name) % 2] if chance.random() < 0.9 else "a",
            compression_model="small" if small else None,
            max_tokens=100,
            context_budget_tokens=budget,
            recent_window_tokens=100 if small == 0 else 600,
            target_chunk_tokens=120 if small == 0 else 500,
            tools=(look, send) if hash_of(name) % 4 else (),
            inference_policy=willing if hash_of(name) % 7 == 0 else None,
            hold_stall_after=600 if hash_of(name) % 5 == 0 else None,
            call_timeout=chance.choice([90, 300]),
        )

    def run(self, again: bool = True, told: Callable[[str], None] = lambda _: None) -> Report:
        """Live, and tell what came of it, each day in between too; `again`: the log is decided again."""
        spent: list[float] = []
        for number in range(max(1, round(self.days))):
            began = time.process_time()
            self.day()
            spent.append(time.process_time() - began)
            told(f"day {number + 1}: {self.sim.log.head():,} events, {self.restarts} restarts, {spent[-1]:.1f} s")
        self.settle()
        return self.report(spent, again)

    def day(self) -> None:
        """One day's acts, and now and then an end of the process."""
        left = DAY
        while left > 0:
            gap = min(left, self.chance.expovariate(self.rate * len(self.names) / DAY))
            left -= gap
            self.sim.advance(seconds=gap)
            if left > 0 and self.sim.running:
                self.act(self.chance.choice(self.names))
            if not self.sim.running:
                self.rise()
        self.look()

    def act(self, name: str) -> None:
        sim, chance = self.sim, self.chance
        if chance.random() < ENDS / (self.rate * len(self.names)):
            self.fall()
            return
        match chance.choices(range(5), [80, 11, 5, 2, 2])[0]:
            case 0:
                key = f"{name} {chance.randint(0, 300)}" if chance.random() < 0.2 else None
                said = "word " * chance.randint(1, 120)
                self.keep(sim.push(name, said, channel=chance.choice(["a", "b", None]), dedupe_key=key))
            case 1:
                self.keep(sim.wake(name, "tick", dedupe_key=f"tick/{(sim.now - EPOCH) // 3_600_000}"))
            case 2:
                self.configure(name)
            case 3:
                with suppress(RewakeError):
                    sim.abort(self.owing(name), reason="enough")
            case _:
                with suppress(RewakeError):
                    sim.cancel(self.owing(name), drop=chance.choice(["machine", "all"]))

    def owing(self, name: str) -> str:
        """An agent that owes something now, if one does."""
        return next((one.agent for one in self.sim.owed()), name)

    def keep(self, receipt: Receipt | None) -> None:
        """A receipt that came: the process lived to give it."""
        if receipt is not None and receipt.wake is not None and self.sim.running:
            self.kept.append(receipt)

    def configure(self, name: str) -> None:
        changes: Any = self.chance.choice(
            [
                {"context_budget_tokens": self.chance.choice([700, 1_000, 4_000, 20_000])},
                {"max_tokens": self.chance.choice([60, 120])},
                {"model": self.chance.choice(MODELS[:2])},
                {"transition_pace_tokens": 400},
            ]
        )
        at_once = self.chance.random() < 0.5
        with suppress(RewakeError):
            self.sim.configure(name, immediate=at_once, allow_infeasible=at_once, **changes)

    def fall(self) -> None:
        """The process stops, dies, will die at some event, or dies in the middle of a write that nobody was told of."""
        match self.chance.randint(0, 4):
            case 0:
                self.sim.stop()
            case 1:
                self.sim.crash()
            case 2 | 3:
                kind = self.chance.choice(CUT)
                self.sim.crash_at(kind, self.chance.randint(1, 9), self.chance.choice(["before", "after"]))
            case _:
                self.torn += 1
                self.sim.crash(torn=True)
                self.sim.log.open_writer()  # cuts back the append that tore
                self.sim.log.close()
                self.kept = [*self.kept[:-50], *(one for one in self.kept[-50:] if written(self.sim.log, one))]

    def rise(self) -> None:
        """The process starts again, after a while; one in three finds other configurations. A start may crash, too."""
        while not self.sim.running:
            self.sim.advance(seconds=self.chance.choice([0, 5, 600, 7_200]))
            self.restarts += 1
            self.sim.restart(agents=self.configs() if self.chance.random() < 0.3 else None)

    def settle(self) -> None:
        """Fair weather, and budgets in which every agent can live."""
        self.weather.spells.clear()
        self.sim._armed.clear()  # pyright: ignore[reportPrivateUsage]
        for name in self.names:
            self.sim.configure(name, context_budget_tokens=20_000)
        self.sim.advance(days=SETTLED)
        self.look()

    def look(self) -> None:
        """Whoever is owed a turn is told why it waits, and until when or for what."""
        if self.sim.running:
            self.untold += [str(one) for one in self.sim.owed() if not (one.why and one.ends)]

    def report(self, spent: list[float], again: bool) -> Report:
        log, owed = self.sim.log, tuple(one.wake for one in self.sim.owed())
        self.sim.crash()
        ends, twice, kinds = ledger(log)
        known = ends.keys() | set(owed)
        return Report(
            acknowledged=len({one.wake for one in self.kept}),
            ended=dict(Counter(ends.values())),
            owed=owed,
            lost=tuple(str(one.wake) for one in self.kept if one.wake not in known),
            twice=(*twice, *(one for one in owed if one in ends)),
            untold=tuple(self.untold),
            restarts=self.restarts,
            torn=self.torn,
            calls=self.weather.calls,
            events=dict(kinds.most_common()),
            seconds=tuple(round(one, 2) for one in spent),
            verified=verify(log).ok,
            differences=len(redecide(log)) if again else 0,
        )


def ledger(log: Log) -> tuple[dict[str, str], list[str], Counter[str]]:
    """How each wake of the log ended; what happened twice: a wake that ended twice, a key that was taken for a new one while
    it was remembered; how many events there are of each kind.
    """
    ends, twice, kinds = dict[str, str](), list[str](), Counter[str]()
    taken, keys = dict[str, set[str]](), dict[tuple[str, str], Millis]()
    for recorded in log.read():
        event = recorded.event
        kinds[recorded.kind] += 1
        over: set[str] = set()
        match event:
            case Wake(dedupe_key=str(key)):
                if recorded.at - keys.get((recorded.stream, key), -KEPT_MS) < KEPT_MS:
                    twice.append(f"{recorded.stream} {key}")
                keys[recorded.stream, key] = recorded.at
            case TurnStarted(wakes, turn):
                taken.setdefault(turn, set()).update(wakes)
            case WakeWithdrawn(wakes):
                over = set(wakes)
                for turn in taken.values():
                    turn -= over
            case _ if isinstance(event, TurnEnd):
                over = taken.pop(event.turn, set())
            case _:
                pass
        twice += [wake for wake in over if wake in ends]
        ends |= dict.fromkeys(over, recorded.kind)
    return ends, twice, kinds


def written(log: Log, receipt: Receipt) -> bool:
    """Whether what the receipt is for is in the log still: the write that tore had not been confirmed to anybody."""
    found = next(iter(log.read(receipt.seq - 1, until=receipt.seq)), None)
    return found is not None and said(found) in (receipt.message, receipt.wake)


def said(recorded: Recorded) -> str | None:
    return recorded.event.id if isinstance(recorded.event, MessageAdded | Wake) else None


def hash_of(name: str) -> int:
    """A number of one's own, the same in every process."""
    return sum(name.encode())


def told(report: Report) -> None:
    """The report on a page."""
    for kind, count in report.events.items():
        click.echo(f"{count:>10,}  {kind}")
    cpu, head = sum(report.seconds), sum(report.events.values())
    quarter = max(1, len(report.seconds) // 4)
    first, last = report.seconds[:quarter], report.seconds[-quarter:]
    click.echo(
        f"{head:,} events, {report.calls:,} calls, {report.restarts} restarts ({report.torn} torn) in {cpu:.0f} s of CPU: "
        f"{sum(first) / quarter:.1f} s a day in the first quarter, {sum(last) / quarter:.1f} s in the last"
    )
    ends = ", ".join(f"{count:,} {how}" for how, count in sorted(report.ended.items()))
    click.echo(f"{report.acknowledged:,} wakes were acknowledged; all that ended: {ends}; {len(report.owed)} are owed")
    click.echo(f"{len(report.lost)} lost, {len(report.twice)} twice, {len(report.untold)} owed without a reason")
    whole = "the log is whole" if report.verified else "THE LOG IS NOT WHOLE"
    click.echo(f"{whole}; decided again: {report.differences} differences")


@click.command()
@click.option("--days", type=click.FloatRange(min=1), default=30.0, show_default=True, help="Virtual days.")
@click.option("--agents", type=click.IntRange(min=1), default=50, show_default=True, help="How many agents there are.")
@click.option("--rate", type=click.FloatRange(min=0.1), default=10.0, show_default=True, help="Acts of each in a day.")
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed, another life.")
def soak(days: float, agents: int, rate: float, seed: int) -> None:
    """Let many agents live for a month in virtual time, through limits, outages and crashes, and count what was lost."""
    began = time.monotonic()
    report = Soak(days, agents, seed, rate).run(told=partial(click.echo, err=True))
    told(report)
    click.echo(f"all of it took {time.monotonic() - began:.0f} s")
    for wrong in (*report.lost, *report.twice, *report.untold):
        click.echo(f"rewake: {wrong}", err=True)
    raise SystemExit(0 if report.good else 1)


if __name__ == "__main__":
    soak()
