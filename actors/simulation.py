"""The same behaviours on one thread, a virtual clock and a seeded scheduler, with crashes: for testing agents."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import wraps
from typing import Any, Literal

from rewake.actors.agent.commands import Start
from rewake.actors.agent.state import Agent
from rewake.actors.behaviour import Command
from rewake.actors.config import AgentConfig, Providers, RuntimeOptions, all_providers, seconds, waits
from rewake.actors.fleet import VERSION, behaviours, check_names, equipment, names_of, pair, recorded_settings
from rewake.actors.host import Closing, Opened
from rewake.actors.incarnation import Answer
from rewake.actors.inside import forbid_inside
from rewake.actors.operating import Operated
from rewake.actors.ports import Ports
from rewake.actors.reports import Alert, IdleReport, Receipt, Result, StopReport
from rewake.actors.scheduling import Armed, Crash, Scheduler, inline
from rewake.actors.surface import Duration, Surface
from rewake.events import Alerted, Log, MemoryLog, Millis, Recorded, RewakeError, RuntimeStopped, open_log
from rewake.projections.starting import Noted, locating, start_whole

EPOCH: Millis = 1_767_225_600_000
"""2026-01-01T00:00Z, where a simulation's clock starts."""


class Simulation(Operated):
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
        all_providers(provider)
        self.options = options or RuntimeOptions()
        self.log: Log = MemoryLog() if log is None else open_log(log) if isinstance(log, str) else log
        self.providers: Providers = provider
        self.crashed = False
        self.running = False
        self._chance = random.Random(seed)
        self._configs = check_names(agents)
        self._mono: Millis = 0
        self._wall: Millis = EPOCH
        self._armed: list[Armed] = []
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
        return self._base + self._mono if self.running else self._wall

    def shift_clock(self, seconds: float) -> None:
        """Move the wall clock against the monotonic one: a running process does not see it, a restarted one does."""
        self._wall += round(seconds * 1_000)

    def run(self) -> None:
        """Everything that can happen at the present time, in the seed's order."""
        forbid_inside("run")
        try:
            while self.running and self.scheduler.step():
                pass
        except Crash:
            self._died()

    def advance(self, *, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Let virtual time go by, running what falls due on the way and at its last instant."""
        span = timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days)
        until = self._mono + round(span.total_seconds() * 1_000)
        self.run()
        while self.running and (due := self._next_due()) is not None and due <= until:
            self._tick(due)
            self.run()
        self._tick(until)
        self.run()

    def _tick(self, mono: Millis) -> None:
        if mono > self._mono:
            self._wall += mono - self._mono
            self._mono = mono
        if self.running:
            self.scheduler.loop.at = self._mono / 1_000

    def _next_due(self) -> Millis | None:
        """When the next timer is due, on the monotonic clock: later than now, since what is due has run."""
        timer, call = self.scheduler.timers.next_due(), self.scheduler.loop.next_due()
        dues = [timer - self._base] if timer is not None else []
        dues += [call] if call is not None else []
        return max(min(dues), self._mono + 1) if dues else None

    # -- life and death

    def crash(self, torn: bool = False) -> None:
        """Every actor's memory is lost; the log stays. With `torn` its last append is cut in the middle."""
        if self.running and self.scheduler.loop.is_running():
            self.scheduler.die()
        if self.running:
            self._died()
        if torn:
            self._reopened().tear()
            self.log.close()

    def crash_at(self, kind: str, nth: int = 1, when: Literal["before", "after"] = "before") -> None:
        """Arm a crash at the append of the `nth` event of that kind from now on; `*`: at the `nth` append."""
        self._armed.append(Armed(kind, nth, when))

    def stop(self, timeout: Duration = None) -> StopReport:
        """An orderly stop: what is owed is owed at the next start."""
        forbid_inside("stop")
        if not self.running:
            return StopReport()
        self.scheduler.close()
        pending = tuple(one.wake for one in self.owed())
        self._ask("host", Closing(len(pending)))
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
        self._reopened()
        self._boot()

    def _reopened(self) -> Log:
        if not isinstance(self.log, MemoryLog):
            self.log = open_log(self.log.path)
        return self.log

    def _boot(self) -> None:
        with locating(self.log):
            epoch, past = self.log.open_writer(), Noted(self.log)
        try:
            start_whole(self.log)
            with locating(self.log):
                self._base = max(self._wall, past.newest()) - self._mono
        except BaseException:
            self.log.close()
            raise
        self.scheduler = Scheduler(self.log, self._chance, self._armed, lambda: self.now, self._alerted)
        self.scheduler.loop.at = self._mono / 1_000
        self.crashed, self.running = False, True
        try:
            with locating(self.log):
                self._start(epoch, past)
        except Crash:
            self._died()
        except BaseException:
            self._let_go()
            raise

    def _start(self, epoch: int, past: Noted) -> None:
        """The host says that a process runs; then every actor takes in that it was restarted, and its configuration."""
        scheduler, options = self.scheduler, self.options
        scheduler.ports = Ports(
            all_providers(self.providers), equipment(self._configs), scheduler.deliver, scheduler.timers, inline, self
        )
        recorded = {name: recorded_settings(config, self.providers) for name, config in self._configs.items()}
        names = names_of(self._configs, self.log)
        first, *others = behaviours(self._configs, recorded, names, self.providers)
        scheduler.join(first, past)
        pause = round(options.maintenance_interval * 1_000)
        there = tuple(all_providers(self.providers))
        ahead = self.now - self._wall
        self._ask("host", Opened(VERSION, epoch, options.max_in_flight, pause, waits(options), there, ahead))
        for behaviour in others:
            scheduler.join(behaviour, past)
        past.check()
        for cell in list(scheduler.cells.values()):
            while cell.fresh and scheduler.drive(cell):
                pass
        for name, config in recorded.items():
            cell = scheduler.cells[f"agent/{name}"]
            if not cell.parked and not cell.incarnation.state.settings.disposed:
                self._ask(f"agent/{name}", Start(config))

    def _died(self) -> None:
        self.crashed = True
        self._let_go()

    def _let_go(self) -> None:
        self.running = False
        self.scheduler.end()
        self.log.close()

    def __del__(self) -> None:
        if getattr(self, "running", False):
            self._let_go()

    def _launch(self, config: AgentConfig, once: bool = False) -> None:
        self._check()
        recorded, before = recorded_settings(config, self.providers), self._configs
        self._configs = {**before, config.name: config}
        self.scheduler.ports.equipment = equipment(self._configs)
        try:
            for behaviour in pair(config.name, config, recorded, self.providers):
                if cell := self.scheduler.cells.get(behaviour.stream):
                    cell.behaviour = cell.incarnation.behaviour = behaviour
                else:
                    self.scheduler.join(behaviour)
            self._ask(f"agent/{config.name}", Start(recorded, once))
        except RewakeError:
            self._configs = before
            self.scheduler.ports.equipment = equipment(before)
            raise

    def _leave(self, name: str) -> None:
        for stream in (f"agent/{name}", f"drain/{name}"):
            if self.running and stream in self.scheduler.cells:
                self.scheduler.leave(stream)

    def _forbid_waiting(self, call: str) -> None:
        forbid_inside(call)

    # -- how the surface reaches the actors

    def _ask(self, stream: str, command: Command) -> Answer:
        self._check()
        return self.scheduler.ask(stream, command)

    def _states(self, pattern: str) -> dict[str, Any]:
        self._check()
        cells = self.scheduler.cells
        if not pattern.endswith("*"):
            return {pattern: cells[pattern].incarnation.state} if pattern in cells else {}
        prefix = pattern[:-1]
        return {stream: cell.incarnation.state for stream, cell in cells.items() if stream.startswith(prefix)}

    def _check(self) -> None:
        if not self.running:
            raise RuntimeStopped("the simulation does not run: restart() it")

    def _until(self, done: Callable[[], bool], timeout: Duration, stream: str | None = None) -> bool:
        if self.running and self.scheduler.loop.is_running():
            return done()
        limit = None if timeout is None else self._mono + round(seconds(timeout) * 1_000)
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

    def _now(self) -> Millis:
        return self.now

    def _emitted(self, call: str) -> str:
        return self.scheduler.ports.emitted(call)

    def _alerts(self) -> tuple[Alert, ...]:
        return tuple(self._told)

    def _alerted(self, recorded: Recorded) -> None:
        event = recorded.event
        if isinstance(event, Alerted):
            alert = Alert(event.agent, event.about, event.message, recorded.at, event.until)
            self._told.append(alert)
            del self._told[:-100]
            if self.options.on_alert and event.posted:
                self._call(self.options.on_alert, alert)

    def _call(self, callback: Callable[[Any], None], said: Any) -> None:
        """A user's callback: what it raises is its own affair."""
        try:
            callback(said)
        except Exception:
            return

    def result(self, receipt: Receipt, timeout: Duration = None) -> Result:
        if timeout is None or seconds(timeout) > 0:
            forbid_inside("result", receipt.wake)
        return super().result(receipt, timeout)

    def run_until_idle(self, timeout: Duration = None) -> IdleReport:
        forbid_inside("run_until_idle")
        return super().run_until_idle(timeout)

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


def ending(call: Callable[..., Any]) -> Callable[..., Any]:
    """A call in which a crash goes off ends without an exception, and gives None; one from inside a tool ends with it."""

    @wraps(call)
    def called(self: Simulation, *args: Any, **kwargs: Any) -> Any:
        ran = self.running
        try:
            return call(self, *args, **kwargs)
        except Crash:
            if self.scheduler.loop.is_running():
                raise
            self.crash()
        except RuntimeStopped:
            if not (ran and self.crashed):
                raise

    return called


def end_with_crashes() -> None:
    for name in {*vars(Surface), *vars(Operated), *vars(Simulation)}:
        call = getattr(Simulation, name)
        if callable(call) and not name.startswith("_") and name != "tail":
            setattr(Simulation, name, ending(call))


end_with_crashes()

__all__ = ["EPOCH", "Simulation"]
