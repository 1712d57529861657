"""The same behaviours on one thread, a virtual clock and a seeded scheduler, with crashes: for testing agents."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Literal

from rewake.actors.agent.commands import Start
from rewake.actors.agent.state import Agent
from rewake.actors.behaviour import Behaviour, Command, Due, Key, Restarted
from rewake.actors.config import AgentConfig, Providers, RuntimeOptions, all_providers, seconds
from rewake.actors.fleet import (
    VERSION,
    Subscriptions,
    behaviours,
    check_names,
    equipment,
    names_of,
    recorded_settings,
)
from rewake.actors.host import Closing, Opened, Raised
from rewake.actors.incarnation import Answer, Asked, Batch, Failed, Incarnation, answer
from rewake.actors.ports import Ports
from rewake.actors.reports import Alert, StopReport
from rewake.actors.surface import Duration, Surface
from rewake.actors.virtual import VirtualLoop
from rewake.events import (
    Alerted,
    Log,
    MemoryLog,
    Millis,
    Recorded,
    RewakeError,
    RuntimeStopped,
    StreamConflict,
    open_log,
)
from rewake.events.errors import ActorParked

EPOCH: Millis = 1_767_225_600_000
"""2026-01-01T00:00Z, where a simulation's clock starts."""
SNAPSHOT_EVERY = 40


class Crash(BaseException):
    """The simulated process is gone."""


class Cell:
    """An actor in the simulation: its incarnation, its mail, and the batch that waits for the journal."""

    def __init__(self, behaviour: Behaviour[Any], log: Log) -> None:
        self.behaviour = behaviour
        self.incarnation: Incarnation[Any] = Incarnation(behaviour, log)
        self.mail: deque[Asked] = deque()
        self.batch: Batch[Any] | None = None
        self.rung = bool(self.incarnation.feed)
        self.parked: BaseException | None = None
        self.fresh = True

    @property
    def ready(self) -> bool:
        return self.batch is None and self.parked is None and bool(self.mail or self.rung)


class Simulation(Surface):
    """Runs agents in virtual time, one step at a time in an order that the seed decides.

    The same seed gives the same log, byte for byte; another seed another legal interleaving. Has every call of a
    runtime; those that wait do so in virtual time. `log` is a Log, a path, or None for one in memory.
    """

    def __init__(
        self,
        *,
        agents: Iterable[AgentConfig],
        provider: Providers,
        sources: Sequence[Any] = (),
        seed: int = 0,
        log: Log | str | None = None,
        options: RuntimeOptions | None = None,
    ) -> None:
        self.options = options or RuntimeOptions()
        self.log: Log = MemoryLog() if log is None else open_log(log) if isinstance(log, str) else log
        self._path = log if isinstance(log, str) else None
        self.providers: Providers = provider
        self.crashed = False
        self.running = False
        self._random = random.Random(seed)
        self._configs = check_names(agents)
        self._mono: float = 0.0
        self._wall: float = float(EPOCH)
        self._armed: list[list[Any]] = []
        self._told: list[Alert] = []
        self._boot()

    # -- time

    @property
    def provider(self) -> Any:
        """The provider, or the first of several."""
        return next(iter(all_providers(self.providers).values()))

    @property
    def now(self) -> Millis:
        """Virtual time, UTC milliseconds: the process's while it runs, else the wall clock's."""
        return int(self._base + self._mono - self._booted) if self.running else int(self._wall)

    def shift_clock(self, seconds: float) -> None:
        """Move the wall clock against the monotonic one: a running process does not see it, a restarted one does."""
        self._wall += seconds * 1_000

    def run(self) -> None:
        """Everything that can happen at the present time, in the seed's order."""
        try:
            while self.running and self._step():
                pass
        except Crash:
            self._died()

    def advance(self, *, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Let virtual time go by, running what falls due on the way and at its last instant."""
        span = timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days).total_seconds() * 1_000
        until = self._mono + span
        self.run()
        while self.running and (due := self._next_due()) is not None and due <= until:
            self._tick(due)
            self.run()
        self._tick(until)
        self.run()

    def _tick(self, mono: float) -> None:
        if mono > self._mono:
            self._wall += mono - self._mono
            self._mono = mono
        if self.running:
            self._loop.at = self._mono / 1_000
            self._loop.settle()

    def _next_due(self) -> float | None:
        """When the next timer is due, on the monotonic clock."""
        while self._timers and self._timers[0][1:] not in self._set:
            heapq.heappop(self._timers)
        dues = [] if not self._timers else [self._timers[0][0] - self._base + self._booted]
        if (loop_due := self._loop.next_due()) is not None:
            dues.append(loop_due * 1_000)
        return max(min(dues), self._mono) if dues else None

    # -- life and death

    def crash(self, torn: bool = False) -> None:
        """Every actor's memory is lost; the log stays. With `torn` its last append is cut in the middle."""
        if self.running:
            self._died()
        if torn:
            self._reopened().tear()
            self.log.close()

    def crash_at(self, kind: str, nth: int = 1, when: Literal["before", "after"] = "before") -> None:
        """Arm a crash at the append of the `nth` event of that kind from now on."""
        self._armed.append([kind, nth, when])

    def stop(self, timeout: Duration = None) -> StopReport:
        """An orderly stop: what is owed is owed at the next start."""
        if not self.running:
            return StopReport()
        try:
            self._loop.run_until_complete(self._ports.close())
            self._outcomes.clear()
            pending = tuple(one.wake for one in self.owed())
            self._ask("host", Closing(len(pending)))
        except Crash:
            self._died()
            return StopReport()
        self._let_go()
        return StopReport(pending)

    def restart(self, agents: Iterable[AgentConfig] | None = None, provider: Providers | None = None) -> None:
        """A new process on the same log; the configuration may have changed."""
        if self.running:
            raise RewakeError("the simulation runs: crash() or stop() it first")
        if agents is not None:
            self._configs = check_names(agents)
        if provider is not None:
            self.providers = provider
        self.crashed = False
        self._reopened()
        self._boot()

    def _reopened(self) -> Log:
        if self._path is not None:
            self.log = open_log(self._path)
        return self.log

    def _boot(self) -> None:
        epoch = self.log.open_writer()
        newest = max((recorded.at for recorded in self.log.read(after=max(0, self.log.head() - 1_000))), default=0)
        self._base = float(max(int(self._wall), newest))
        self._booted = self._mono
        self._loop = VirtualLoop()
        self._loop.at = self._mono / 1_000
        self._timers: list[tuple[int, str, Key]] = []
        self._set: set[tuple[str, Key]] = set()
        self._outcomes: list[tuple[str, Command]] = []
        self._cells: dict[str, Cell] = {}
        self._subscriptions: Subscriptions[Cell] = Subscriptions()
        self._ports = Ports(
            all_providers(self.providers), equipment(self._configs), self._deliver, self, inline, self, None
        )
        self.running = True
        try:
            for behaviour in behaviours(self._configs, names_of(self._configs, self.log), self.providers):
                self._join(behaviour)
            options = self.options
            pause = round(options.maintenance_interval * 1_000)
            self._ask("host", Opened(VERSION, epoch, options.max_in_flight, pause))
            for stream in list(self._cells):
                self._ask(stream, Restarted())
            for config in self._configs.values():
                self._ask(f"agent/{config.name}", Start(recorded_settings(config, self.providers)))
        except Crash:
            self._died()

    def _join(self, behaviour: Behaviour[Any]) -> None:
        cell = Cell(behaviour, self.log)
        self._cells[behaviour.stream] = cell
        self._subscriptions.add(cell)

    def _died(self) -> None:
        self.crashed = True
        self._let_go()

    def _let_go(self) -> None:
        self.running = False
        self._cells = {}
        for task in list(self._ports.tasks.values()):
            task.cancel()
        self._ports.tasks.clear()
        self._loop.settle()
        self._loop.close()
        self.log.close()

    def __del__(self) -> None:
        if getattr(self, "running", False):
            self._let_go()

    # -- the scheduler

    def _step(self) -> bool:
        """Do one of the things that can happen now; False when nothing can."""
        choices: list[Callable[[], None]] = [
            lambda cell=cell: self._decide(cell) for cell in self._cells.values() if cell.ready
        ]
        if any(cell.batch for cell in self._cells.values()):
            choices.append(self._commit)
        choices += [lambda index=index: self._take(index) for index in range(min(len(self._outcomes), 8))]
        while self._timers and self._timers[0][1:] not in self._set:
            heapq.heappop(self._timers)
        if self._timers and self._timers[0][0] <= self.now:
            choices.append(self._fire)
        if not choices:
            return False
        self._random.choice(choices)()
        return True

    def _decide(self, cell: Cell) -> None:
        """One actor decides some of what waits for it."""
        incarnation = cell.incarnation
        count = self._random.randint(0 if cell.mail else 1, len(incarnation.feed)) if incarnation.feed else 0
        if cell.fresh:
            count = 0
        taken = list(incarnation.feed)[:count]
        mail = self._random.randint(0 if taken else 1, len(cell.mail)) if cell.mail else 0
        asked = [cell.mail.popleft() for _ in range(mail)]
        if not taken and not asked:
            cell.rung = False
            return
        cell.batch = incarnation.decide(taken, asked, self.now)
        if cell.batch.consumed < len(taken):
            cell.mail.extendleft(reversed([one for one in asked if one not in [a[0] for a in cell.batch.answers]]))
        if not cell.batch.drafts:
            self._adopt(cell, [])

    def _commit(self) -> None:
        """The journal commits some of the batches that wait, in an order of its own."""
        waiting = [cell for cell in self._cells.values() if cell.batch]
        self._random.shuffle(waiting)
        chosen = waiting[: self._random.randint(1, len(waiting))]
        appends = [cell.incarnation.append(cell.batch) for cell in chosen if cell.batch]
        crash = self._due_crash([draft.event.kind for append in appends for draft in append.events])
        if crash == "before":
            raise Crash
        outcomes = self.log.commit(appends)
        if crash == "after":
            raise Crash
        done = [recorded for outcome in outcomes if isinstance(outcome, list) for recorded in outcome]
        for recorded in done:
            self._publish(recorded)
        for cell, outcome in zip(chosen, outcomes, strict=True):
            if isinstance(outcome, list):
                self._adopt(cell, outcome)
            elif isinstance(outcome, StreamConflict):
                self._again(cell)
            else:
                self._refused(cell, outcome)

    def _publish(self, recorded: Recorded) -> None:
        for follower in self._subscriptions.of(recorded):
            if follower.incarnation.offer(recorded):
                follower.rung = True
        if isinstance(recorded.event, Alerted):
            event = recorded.event
            alert = Alert(event.agent, event.about, event.message, recorded.at, event.until)
            self._told.append(alert)
            if self.options.on_alert and event.posted:
                self.options.on_alert(alert)

    def _adopt(self, cell: Cell, recorded: list[Recorded]) -> None:
        batch = cell.batch
        assert batch is not None
        cell.batch, cell.fresh = None, False
        cell.incarnation.adopt(batch, recorded)
        cell.rung = any(cell.behaviour.rung(one) for one in cell.incarnation.feed)
        changes = cell.incarnation.reconcile()
        stream = cell.behaviour.stream
        for key in changes.cancel:
            self._in_loop(self._ports.cancel, stream, key)
        for key, order in changes.start:
            self._in_loop(self._ports.start, stream, key, order)
        self._loop.settle()
        if (snapshot := cell.incarnation.snapshot(every=SNAPSHOT_EVERY)) is not None:
            self.log.save(snapshot)
        answer(batch, recorded)
        for failure in batch.failures:
            self._supervise(cell, failure)

    def _in_loop(self, call: Callable[..., None], *args: Any) -> None:
        self._loop.call_soon(call, *args)
        self._loop.settle()

    def _again(self, cell: Cell) -> None:
        """A stream that the decision depended on has moved: what was asked is decided again, after taking that in."""
        assert cell.batch is not None
        cell.mail.extendleft(reversed([one for one, *_ in cell.batch.answers]))
        cell.batch, cell.rung = None, True

    def _refused(self, cell: Cell, error: BaseException) -> None:
        """The append can not be written: those who asked are told, the state stays as it was."""
        batch, cell.batch = cell.batch, None
        assert batch is not None
        for asked, *_ in batch.answers:
            if asked.answer:
                asked.answer(error)

    def _supervise(self, cell: Cell, failure: Failed) -> None:
        """An actor raised: it is recorded, rebuilt from the log, and parked at the third time on the same thing."""
        stream, error = cell.behaviour.stream, failure.error
        on = failure.recorded.seq if failure.recorded else None
        command = type(failure.asked.command).__name__ if failure.asked else ""
        said = f"{type(error).__name__}: {error}"
        if stream != "host":
            self._cells["host"].mail.append(Asked(Raised(stream, said, on, command), self._counted(cell, failure)))
        if failure.asked and failure.asked.answer:
            return
        cell.parked = error

    def _counted(self, cell: Cell, failure: Failed) -> Callable[[Answer | BaseException], None]:
        def told(answered: Answer | BaseException) -> None:
            parks = isinstance(answered, Answer) and any(
                recorded.kind == "actor_parked" for recorded in answered.recorded
            )
            if cell.parked is not None and not parks:
                self._rebuild(cell)
            elif parks:
                cell.parked = failure.error

        return told

    def _rebuild(self, cell: Cell) -> None:
        """A new incarnation in the same process: what the former one had started is cancelled."""
        stream = cell.behaviour.stream
        for key in list(cell.incarnation.started):
            self._in_loop(self._ports.cancel, stream, key)
        self._loop.settle()
        self._outcomes = [one for one in self._outcomes if one[0] != stream]
        cell.incarnation = Incarnation(cell.behaviour, self.log)
        cell.parked, cell.batch, cell.rung, cell.fresh = None, None, bool(cell.incarnation.feed), True
        cell.mail.appendleft(Asked(Restarted()))

    # -- ports and timers

    def _deliver(self, stream: str, command: Command) -> None:
        self._outcomes.append((stream, command))

    def _take(self, index: int) -> None:
        stream, command = self._outcomes.pop(index)
        if (cell := self._cells.get(stream)) is not None:
            cell.mail.append(Asked(command))

    def set(self, stream: str, key: Key, due: Millis) -> None:
        """The clock port: tell that actor when this time comes."""
        heapq.heappush(self._timers, (due, stream, key))
        self._set.add((stream, key))

    def cancel(self, stream: str, key: Key) -> None:
        self._set.discard((stream, key))

    def _fire(self) -> None:
        _, stream, key = heapq.heappop(self._timers)
        self._set.discard((stream, key))
        self._deliver(stream, Due(key))

    def _due_crash(self, kinds: Sequence[str]) -> str | None:
        for armed in self._armed:
            for kind in kinds:
                if kind == armed[0]:
                    armed[1] -= 1
                    if armed[1] == 0:
                        self._armed.remove(armed)
                        return armed[2]
        return None

    # -- how the surface reaches the actors

    def _ask(self, stream: str, command: Command) -> Answer:
        if not self.running:
            raise RuntimeStopped("the simulation does not run: restart() it")
        cell = self._cells[stream]
        if cell.parked is not None:
            raise ActorParked(stream, str(cell.parked))
        told: list[Answer | BaseException] = []
        cell.mail.append(Asked(command, told.append))
        while not told:
            if cell.batch:
                self._commit()
            elif cell.ready:
                self._decide(cell)
            else:
                raise ActorParked(stream, str(cell.parked))
        if isinstance(told[0], BaseException):
            raise told[0]
        return told[0]

    def _states(self, pattern: str) -> dict[str, Any]:
        if not self.running:
            raise RuntimeStopped("the simulation does not run: restart() it")
        if not pattern.endswith("*"):
            return {pattern: self._cells[pattern].incarnation.state} if pattern in self._cells else {}
        prefix = pattern[:-1]
        return {stream: cell.incarnation.state for stream, cell in self._cells.items() if stream.startswith(prefix)}

    def _until(self, done: Callable[[], bool], timeout: Duration) -> bool:
        limit = None if timeout is None else self._mono + seconds(timeout) * 1_000
        self.run()
        while self.running and not done():
            due = self._next_due()
            if due is None or (limit is not None and due > limit):
                if limit is not None:
                    self._tick(limit)
                    self.run()
                break
            self._tick(due)
            self.run()
        return self.running and done()

    def _alerts(self) -> tuple[Alert, ...]:
        return tuple(self._told[-100:])

    # -- looking at the log

    def kinds(self, agent: str | None = None) -> list[str]:
        """The kinds of an agent's stream in order; of the whole log without a name."""
        return [recorded.kind for recorded in self.events(agent)]

    def events(self, agent: str | None = None) -> list[Recorded]:
        """The events of an agent's stream in order; of the whole log without a name."""
        return list(self.log.read(stream=f"agent/{agent}" if agent else None))

    def agent(self, name: str) -> Agent:
        """An agent's whole state."""
        return self._agent(name)


async def inline(call: Callable[[], Any]) -> Any:
    """A tool that may block, in this one thread."""
    return call()


__all__ = ["EPOCH", "Simulation"]
