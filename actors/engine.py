"""The engine of a runtime: its actors' shells, the journal, the ports on their loop, and how all of them start and stop."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from rewake.actors.agent.commands import Start
from rewake.actors.behaviour import Behaviour, Command, Key, Order
from rewake.actors.clock import LoopClock, ProcessTime
from rewake.actors.config import AgentConfig, Providers, RuntimeOptions, all_providers, waits
from rewake.actors.fleet import (
    VERSION,
    Subscriptions,
    behaviours,
    check_names,
    equipment,
    names_of,
    pair,
    recorded_settings,
)
from rewake.actors.host import Closing, Opened
from rewake.actors.incarnation import Answer, Asked
from rewake.actors.inside import in_daemon_thread
from rewake.actors.journal import Journal
from rewake.actors.operating import Operated
from rewake.actors.owing import owed
from rewake.actors.ports import Ports
from rewake.actors.reports import Alert, StopReport
from rewake.actors.shell import Shell
from rewake.actors.snapshots import Unpacking
from rewake.actors.surface import Duration
from rewake.actors.telling import Delta, Subscription, alert_of
from rewake.actors.waiting import ANY, Watchers
from rewake.actors.worker import Later
from rewake.events import (
    Alerted,
    CalledFromInside,
    InvalidSetting,
    Log,
    LogFailed,
    Recorded,
    RewakeError,
    RuntimeStopped,
    open_log,
)
from rewake.events.errors import ActorParked
from rewake.projections.starting import Noted, locating, start_whole

START_TIMEOUT = 60.0
"""Seconds that the actors may take to come up."""
READ_AGAIN = 0.05
"""Seconds after which a stream that could not be read at the start is tried again."""


class Engine(Operated):
    """Everything under a runtime's calls: threads, queues, the loop."""

    def __init__(
        self,
        log: str | os.PathLike[str] | Log,
        *,
        provider: Providers,
        agents: Iterable[AgentConfig] = (),
        sources: Sequence[Any] = (),
        options: RuntimeOptions | None = None,
    ) -> None:
        if sources:
            raise InvalidSetting("sources", sources, "not supported by this version")
        self.options = options or RuntimeOptions()
        self.providers: Providers = provider
        all_providers(provider)
        self._given = log
        self._configs = check_names(agents)
        self._settings = {config.name: recorded_settings(config, provider) for config in self._configs.values()}
        self._shells: dict[str, Shell] = {}
        self._subscriptions: Subscriptions[Shell] = Subscriptions()
        self._watchers = Watchers()
        self._telling: list[Subscription] = []
        self._told: list[Alert] = []
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._halting: asyncio.Task[None] | None = None
        self._running = False
        self._failure: RewakeError | None = None

    # -- starting and stopping

    def _open(self) -> None:
        options, given = self.options, self._given
        if isinstance(given, str | os.PathLike):
            self.log = open_log(
                os.fspath(given),
                durability=options.durability,
                lock_timeout=options.lock_timeout,
                busy_timeout=options.busy_timeout,
            )
        else:
            self.log = given
        try:
            with locating(self.log):
                self._epoch = self.log.open_writer()
        except BaseException:
            if self.log is not given:
                self.log.close()
            raise
        try:
            start_whole(self.log)
        except BaseException:
            self.log.close()
            raise

    def _start(self) -> None:
        unpacking, past = Unpacking(), Noted(self.log)
        self._time = ProcessTime(past.newest())
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rewake-ports", daemon=True)
        self._thread.start()
        self._clock = LoopClock(self._loop, self.now, self._deliver)
        self._ports = Ports(
            all_providers(self.providers),
            equipment(self._configs),
            self._deliver,
            self._clock,
            in_daemon_thread,
            self,
            self._delta,
        )
        self._later = Later(self._loop)
        self.journal = Journal(self.log, self._publish, self._fail)
        self._running = True
        if self.options.on_alert:
            self._telling.append(Subscription(self._alerting(self.options.on_alert)))
        names = names_of(self._configs, self.log)
        for behaviour in behaviours(self._configs, self._settings, names, self.providers):
            self._join(behaviour, unpacking, past)
        past.check()
        options = self.options
        pause = round(options.maintenance_interval * 1_000)
        host, *others = self._shells.values()
        host.restart()
        there = tuple(all_providers(self.providers))
        self._ask(
            "host", Opened(VERSION, self._epoch, options.max_in_flight, pause, waits(options), there, self._time.ahead)
        )
        for shell in others:
            shell.restart()
        waiting = [
            self._told_later(f"agent/{name}", Start(config))
            for name, config in [(name, self._settings[name]) for name in self._configs]
            if not self._shells[f"agent/{name}"].state.settings.disposed
        ]
        for wait in waiting:
            with suppress(ActorParked):
                wait(START_TIMEOUT)

    def _join(self, behaviour: Behaviour[Any], unpacking: Unpacking | None = None, past: Noted | None = None) -> Shell:
        """An actor, rebuilt from the log, subscribed before it reads; it does nothing before its `restart`."""
        shell = Shell(behaviour, self)
        self._subscriptions.add(shell)
        self._shells[behaviour.stream] = shell
        patience = time.monotonic() + self.options.busy_timeout
        while True:
            try:
                shell.rise(unpacking, past)
            except LogFailed as error:
                if time.monotonic() > patience:
                    raise LogFailed(f"{behaviour.stream} can not be read: {error}") from error
                time.sleep(READ_AGAIN)
            else:
                return shell

    def _launch(self, config: AgentConfig, once: bool = False) -> None:
        recorded = recorded_settings(config, self.providers)
        with self._lock:
            self._check()
            before, self._configs = self._configs, {**self._configs, config.name: config}
            self._ports.equipment = equipment(self._configs)
            try:
                for behaviour in pair(config.name, config, recorded, self.providers):
                    if shell := self._shells.get(behaviour.stream):
                        shell.tell(partial(shell.become, behaviour))
                    else:
                        with locating(self.log):
                            self._join(behaviour).restart()
                self._ask(f"agent/{config.name}", Start(recorded, once))
            except BaseException:
                self._configs = before
                self._ports.equipment = equipment(before)
                raise
            self._settings[config.name] = recorded

    def _leave(self, name: str) -> None:
        with self._lock:
            for stream in (f"agent/{name}", f"drain/{name}"):
                if self._running and (shell := self._shells.pop(stream, None)):
                    self._subscriptions.remove(shell)
                    shell.tell(shell.rest)
                    shell.worker.stop(block=False)

    def _forbid_waiting(self, call: str) -> None:
        if threading.current_thread() is self._thread:
            raise CalledFromInside(f"{call} would block the loop that it is called on")

    def _close(self, limit: float) -> StopReport:
        """Admission closes first; then each step is taken, whatever an earlier one did."""
        until = time.monotonic() + limit

        def left(least: float = 0.0) -> float:
            return max(least, until - time.monotonic())

        self._running = False
        self._watchers.wake()
        stopped = self._failure or RuntimeStopped("the runtime has stopped")
        shells = list(self._shells.values())
        with quietly():
            self._halt_ports(limit / 4).wait(max(0.1, limit / 2))
        host = self._shells.get("host")
        if self._failure is None and host and not host.fresh:
            with quietly():
                self._told_by(host, Closing(len(self._pending())))(left(0.1))
        for shell in shells:
            with quietly():
                shell.tell(shell.finish)
        for shell in shells:
            shell.stopped = stopped
            with quietly():
                shell.worker.stop(block=False)
        for shell in shells:
            with quietly():
                shell.worker.actor_stopped.wait(left())
            shell.refuse(stopped)
        with quietly():
            self.journal.worker.stop(block=True, timeout=left(0.1))
        with quietly():
            self._end_loop(left(0.1))
        for telling in self._telling:
            telling.close(left())
        self._telling.clear()
        pending = self._pending()
        self._watchers.wake()
        self._let_go(left(0.1))
        return StopReport(pending)

    def _pending(self) -> tuple[str, ...]:
        """The wakes that have not ended, as far as their agents came up."""
        agents = [shell.state for stream, shell in self._shells.items() if stream.startswith("agent/")]
        return tuple(one.wake for state in agents if state is not None and state.settings.live for one in owed(state))

    def _halt_ports(self, patience: float = 1.0) -> threading.Event:
        """Cancel what is carried out, and carry out nothing more; the event tells when that is done."""
        done = threading.Event()

        async def close() -> None:
            try:
                await self._ports.close(patience)
            finally:
                done.set()

        def halt() -> None:
            self._halting = self._loop.create_task(close())

        self._loop.call_soon_threadsafe(halt)
        return done

    def _end_loop(self, timeout: float) -> None:
        thread = self._thread
        if thread is None or self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._clock.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        thread.join(timeout)
        if not thread.is_alive():
            self._loop.close()

    def _let_go(self, timeout: float) -> None:
        """Close the log; a commit that hangs in the disk holds up nobody."""
        closing = threading.Thread(target=self.log.close, name="rewake-close", daemon=True)
        closing.start()
        closing.join(timeout)

    def _fail(self, error: RewakeError) -> None:
        """A commit failed: nothing more is decided or sent; what is durable stays readable."""
        self._failure = self._failure or error
        for shell in list(self._shells.values()):
            shell.stopped = shell.stopped or error
            shell.ring()
        with quietly():
            self._halt_ports()
        self._watchers.wake()

    # -- what the shells need

    def now(self) -> int:
        """Process time, UTC milliseconds: never behind the log, never running backwards."""
        return self._time.now()

    def reconciled(self, stream: str, cancel: Sequence[Key], start: Sequence[tuple[Key, Order]]) -> None:
        if self._running and self._failure is None:
            self._loop.call_soon_threadsafe(self._carry_out, stream, cancel, start)

    def _carry_out(self, stream: str, cancel: Sequence[Key], start: Sequence[tuple[Key, Order]]) -> None:
        for key in cancel:
            self._ports.cancel(stream, key)
        for key, order in start:
            self._ports.start(stream, key, order)

    def moved(self, stream: str) -> None:
        self._watchers.moved(stream)

    def supervise(self, raised: Asked) -> None:
        if host := self._shells.get("host"):
            host.post(raised)

    def lost(self, error: BaseException) -> None:
        self._fail(RuntimeStopped(f"the host failed: {type(error).__name__}: {error}"))

    def _publish(self, appended: Sequence[Recorded]) -> list[Shell]:
        rung: list[Shell] = []
        for recorded in appended:
            for shell, bell in self._subscriptions.of(recorded):
                shell.offer(recorded)
                if bell == "now":
                    rung.append(shell)
                elif bell:
                    self._later.put(shell)
            for telling in tuple(self._telling):
                telling.tell(recorded)
            if type(recorded.event) is Alerted:
                self._told.append(alert_of(recorded, recorded.event))
                del self._told[:-100]
        return rung

    def _deliver(self, stream: str, command: Command) -> None:
        if shell := self._shells.get(stream):
            shell.post(Asked(command))

    def _delta(self, agent: str, turn: str, call: str, text: str) -> None:
        for telling in tuple(self._telling):
            if telling.deltas:
                telling.tell(Delta(agent, turn, call, text))

    def _alerting(self, on_alert: Callable[[Alert], None]) -> Callable[[Any], None]:
        def told(said: Any) -> None:
            if isinstance(said, Recorded) and isinstance(said.event, Alerted) and said.event.posted:
                on_alert(alert_of(said, said.event))

        return told

    # -- how the surface reaches the actors

    def _told_later(self, stream: str, command: Command) -> Callable[[float | None], Answer]:
        """Post a command; what is returned waits for its answer, and raises its error."""
        self._check()
        return self._told_by(self._shells[stream], command)

    def _told_by(self, shell: Shell, command: Command) -> Callable[[float | None], Answer]:
        done = threading.Lock()
        done.acquire()
        told: list[Answer | BaseException] = []

        def answered(answer: Answer | BaseException) -> None:
            if not told:
                told.append(answer)
                done.release()

        def wait(timeout: float | None) -> Answer:
            if not done.acquire(timeout=-1 if timeout is None else timeout):
                raise RewakeError(f"{shell.stream} did not answer within {timeout:g} s")
            if isinstance(told[0], BaseException):
                raise told[0]
            return told[0]

        shell.post(Asked(command, answered))
        return wait

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if not self._running:
            raise RuntimeStopped("the runtime does not run: enter it first")

    def _ask(self, stream: str, command: Command) -> Answer:
        return self._told_later(stream, command)(None)

    def _states(self, pattern: str) -> dict[str, Any]:
        if not self._running:
            self._check()
        if not pattern.endswith("*"):
            shell = self._shells.get(pattern)
            return {pattern: shell.state} if shell and shell.state is not None else {}
        prefix = pattern[:-1]
        shells = list(self._shells.items())
        return {
            stream: shell.state for stream, shell in shells if stream.startswith(prefix) and shell.state is not None
        }

    def _now(self) -> int:
        return self.now()

    def _emitted(self, call: str) -> str:
        return self._ports.emitted(call)

    def _alerts(self) -> tuple[Alert, ...]:
        return tuple(self._told)

    def _until(self, done: Callable[[], bool], timeout: Duration, stream: str | None = None) -> bool:
        if done():
            return True
        if threading.current_thread() is self._thread:
            raise CalledFromInside("this would block the loop that it is called on: await aresult, aidle or atail")
        return self._watchers.until(done, timeout, stream, partial(self._check_waiting, stream))

    async def _auntil(self, done: Callable[[], Awaitable[bool]], timeout: Duration, stream: str | None = None) -> bool:
        """`_until`, on the caller's loop."""
        return await self._watchers.awaited(done, timeout, stream, partial(self._check_waiting, stream))

    def _check_waiting(self, stream: str | None) -> None:
        """Whether what is waited for may still come."""
        self._check()
        shell = self._shells.get(stream or ANY)
        if shell and shell.parked is not None:
            raise ActorParked(shell.stream, shell.parked)

    def _grown(self, after: int) -> bool:
        self._check()
        try:
            return self.log.head() > after
        except LogFailed:
            self._check()
            raise

    def _idle(self, until: int | None = None) -> bool:
        """Whether nothing runs and nothing can: asked of every mailbox, answered, and asked again."""
        if self._busy(until):
            return False
        before = self._barrier()
        return before == self._barrier() and not self._busy(until)

    def _barrier(self) -> list[int]:
        """Every actor has taken in what came before; how much each has recorded so far."""
        counts: list[tuple[Shell, threading.Event, list[int]]] = []
        for shell in list(self._shells.values()):
            asked, told = threading.Event(), list[int]()

            def answered(shell: Shell = shell, asked: threading.Event = asked, told: list[int] = told) -> None:
                try:
                    shell.work()
                finally:
                    told.append(shell.activity)
                    asked.set()

            shell.tell(answered)
            counts.append((shell, asked, told))
        for shell, asked, _ in counts:
            while not asked.wait(1.0) and not shell.ended:
                self._check()
        return [told[0] for *_, told in counts if told]


@contextmanager
def quietly() -> Generator[None]:
    """A step of a stop: the next one is taken whatever becomes of it."""
    try:
        yield
    except Exception:
        return
