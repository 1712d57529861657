"""The runtime: a log, its actors on pykka threads, their ports on one asyncio loop, and the calls that people make."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

from rewake.actors.agent.commands import Start
from rewake.actors.behaviour import Behaviour, Command, Key, Order, Restarted
from rewake.actors.clock import LoopClock, ProcessTime
from rewake.actors.config import AgentConfig, Providers, RuntimeOptions, all_providers, seconds
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
from rewake.actors.host import Closing, Opened, Raised
from rewake.actors.incarnation import Answer, Asked, Failed
from rewake.actors.inside import INSIDE, forbid_inside, in_daemon_thread
from rewake.actors.journal import Journal
from rewake.actors.ports import Ports
from rewake.actors.reports import Alert, IdleReport, Receipt, Result, StopReport
from rewake.actors.shell import Shell
from rewake.actors.surface import Duration, Surface
from rewake.actors.telling import Delta, Subscription, alert_of
from rewake.events import (
    AgentStarted,
    Alerted,
    InvalidSetting,
    Log,
    LogFailed,
    Recorded,
    RewakeError,
    RuntimeStopped,
    open_log,
)
from rewake.events.errors import LogError

T = TypeVar("T")

START_TIMEOUT = 60.0
"""Seconds that the actors may take to come up."""


class Runtime(Surface):
    """Runs agents on a log: a path, a Log, or `:memory:`. Enter it to start, leave it to stop.

    Entering recovers the log, starts the actors and takes up what is owed. Raises LogInUse, NotALog, LogCorrupt or
    InvalidSetting then; nothing was started. Leaving stops within `options.stop_timeout` seconds.
    """

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
        self._given = log
        self._configs = check_names(agents)
        self._settings = {config.name: recorded_settings(config, provider) for config in self._configs.values()}
        self._shells: dict[str, Shell] = {}
        self._subscriptions: Subscriptions[Shell] = Subscriptions()
        self._watchers: set[threading.Event] = set()
        self._telling: list[Subscription] = []
        self._told: list[Alert] = []
        self._lock = threading.RLock()
        self._running = False
        self._failure: RewakeError | None = None

    # -- starting and stopping

    def __enter__(self) -> Runtime:
        with self._lock:
            if self._running:
                raise RewakeError("this runtime runs already")
            self._failure = None
            self._open()
            try:
                self._start()
            except BaseException:
                self._close(self.options.stop_timeout)
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Runtime:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

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
            self._epoch = self.log.open_writer()
        except BaseException:
            if self.log is not given:
                self.log.close()
            raise

    def _start(self) -> None:
        newest = max((recorded.at for recorded in self.log.read(after=max(0, self.log.head() - 1_000))), default=0)
        self._time = ProcessTime(newest)
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
        self.journal = Journal(self.log, self._publish, self._fail)
        self._running = True
        if self.options.on_alert:
            self._telling.append(Subscription(self._alerting(self.options.on_alert)))
        names = names_of(self._configs, self.log)
        for behaviour in behaviours(self._configs, names, self.providers):
            self._join(behaviour)
        options = self.options
        pause = round(options.maintenance_interval * 1_000)
        self._ask("host", Opened(VERSION, self._epoch, options.max_in_flight, pause))
        waiting = [self._told_later(stream, Restarted()) for stream in self._shells]
        waiting += [self._told_later(f"agent/{name}", Start(config)) for name, config in self._settings.items()]
        for wait in waiting:
            wait(START_TIMEOUT)

    def _join(self, behaviour: Behaviour[Any]) -> Shell:
        """An actor, rebuilt from the log, subscribed before it reads."""
        shell = Shell(behaviour, self)
        self._subscriptions.add(shell)
        self._shells[behaviour.stream] = shell
        try:
            shell.rise()
        except LogError:
            time.sleep(0.05)
            shell.rise()
        return shell

    def stop(self, timeout: Duration = None) -> StopReport:
        """Stop: calls in flight are cancelled, nothing owed is lost, and what is still owed is reported.

        `timeout` in seconds; None: `options.stop_timeout`. Raises CalledFromInside from a tool or a policy.
        """
        forbid_inside("stop")
        with self._lock:
            if not self._running:
                return StopReport()
            limit = self.options.stop_timeout if timeout is None else seconds(timeout)
            return self._close(limit)

    def _close(self, limit: float) -> StopReport:
        until = time.monotonic() + limit
        pending: tuple[str, ...] = ()
        with quietly():
            self._in_loop(self._ports.close(), max(0.1, limit / 2))
        with quietly():
            pending = tuple(one.wake for one in self.owed())
        if self._failure is None and "host" in self._shells:
            with quietly():
                self._told_later("host", Closing(len(pending)))(max(0.1, until - time.monotonic()))
        self._running = False
        stopped = self._failure or RuntimeStopped("the runtime has stopped")
        for shell in self._shells.values():
            with quietly():
                shell.tell(shell.finish)
        for shell in self._shells.values():
            shell.stopped = stopped
            with quietly():
                shell.worker.stop(block=False)
        for shell in self._shells.values():
            with quietly():
                shell.worker.actor_stopped.wait(max(0.0, until - time.monotonic()))
            shell.refuse(stopped)
        with quietly():
            self.journal.worker.stop(block=True, timeout=max(0.1, until - time.monotonic()))
        with quietly():
            self._loop.call_soon_threadsafe(self._clock.close)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(max(0.1, until - time.monotonic()))
            if not self._thread.is_alive():
                self._loop.close()
        for telling in self._telling:
            telling.close()
        self._telling.clear()
        self._shells = {}
        self._subscriptions = Subscriptions()
        self._wake_watchers()
        self.log.close()
        return StopReport(pending)

    def _in_loop(self, work: Any, timeout: float) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    def _fail(self, error: LogFailed) -> None:
        """A commit failed: nothing more is decided or sent; what is durable stays readable."""
        self._failure = error
        for shell in list(self._shells.values()):
            shell.stopped = error
            shell.ring()
        with quietly():
            asyncio.run_coroutine_threadsafe(self._ports.close(), self._loop)
        self._wake_watchers()

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
        if self._watchers:
            self._wake_watchers()

    def _wake_watchers(self) -> None:
        for watcher in tuple(self._watchers):
            watcher.set()

    def failed(self, shell: Shell, failure: Failed) -> None:
        stream, error = shell.behaviour.stream, failure.error
        on = failure.recorded.seq if failure.recorded else None
        command = type(failure.asked.command).__name__ if failure.asked else ""
        said = f"{type(error).__name__}: {error}"

        def supervised(answered: Answer | BaseException) -> None:
            parks = isinstance(answered, Answer) and any(one.kind == "actor_parked" for one in answered.recorded)
            with quietly():
                shell.tell((lambda: shell.park(said)) if parks else shell.rebuild)

        self._shells["host"].post(Asked(Raised(stream, said, on, command), supervised))

    def _publish(self, recorded: Recorded) -> None:
        for shell in self._subscriptions.of(recorded):
            shell.offer(recorded)
        for telling in self._telling:
            telling.tell(recorded)
        if isinstance(recorded.event, Alerted):
            self._told.append(alert_of(recorded, recorded.event))
            del self._told[:-100]

    def _deliver(self, stream: str, command: Command) -> None:
        if shell := self._shells.get(stream):
            shell.post(Asked(command))

    def _delta(self, agent: str, turn: str, call: str, text: str) -> None:
        for telling in self._telling:
            if telling.deltas:
                telling.tell(Delta(agent, turn, call, text))

    # -- how the surface reaches the actors

    def _told_later(self, stream: str, command: Command) -> Callable[[float | None], Answer]:
        """Post a command; what is returned waits for its answer, and raises its error."""
        shell = self._shell(stream)
        done = threading.Event()
        told: list[Answer | BaseException] = []

        def answered(answer: Answer | BaseException) -> None:
            told.append(answer)
            done.set()

        def wait(timeout: float | None) -> Answer:
            if not done.wait(timeout):
                raise RewakeError(f"{stream} did not answer within {timeout:g} s")
            if isinstance(told[0], BaseException):
                raise told[0]
            return told[0]

        shell.post(Asked(command, answered))
        return wait

    def _shell(self, stream: str) -> Shell:
        self._check()
        return self._shells[stream]

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if not self._running:
            raise RuntimeStopped("the runtime does not run: enter it first")

    def _ask(self, stream: str, command: Command) -> Answer:
        return self._told_later(stream, command)(None)

    def _states(self, pattern: str) -> dict[str, Any]:
        self._check()
        if not pattern.endswith("*"):
            shell = self._shells.get(pattern)
            return {pattern: shell.state} if shell and shell.state is not None else {}
        prefix = pattern[:-1]
        shells = list(self._shells.items())
        return {stream: shell.state for stream, shell in shells if stream.startswith(prefix)}

    def _alerts(self) -> tuple[Alert, ...]:
        return tuple(self._told)

    def _until(self, done: Callable[[], bool], timeout: Duration, stream: str | None = None) -> bool:
        until = None if timeout is None else time.monotonic() + seconds(timeout)
        if done():
            return True
        event = threading.Event()
        watched = self._watched(stream)
        watched.add(event)
        try:
            while not done():
                self._check()
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    return done()
                if event.wait(left):
                    event.clear()
            return True
        finally:
            watched.discard(event)

    def _watched(self, stream: str | None) -> set[threading.Event]:
        shell = self._shells.get(stream) if stream else None
        return shell.watchers if shell else self._watchers

    def _idle(self) -> bool:
        """Whether nothing runs and nothing can: asked of every mailbox, answered, and asked again."""
        if self._busy():
            return False
        before = self._barrier()
        return before == self._barrier() and not self._busy()

    def _barrier(self) -> list[int]:
        """Every actor has taken in what came before; how much each has recorded so far."""
        counts: list[tuple[threading.Event, list[int]]] = []
        for shell in list(self._shells.values()):
            asked, told = threading.Event(), list[int]()

            def answered(shell: Shell = shell, asked: threading.Event = asked, told: list[int] = told) -> None:
                shell.work()
                told.append(shell.activity)
                asked.set()

            if shell.worker.is_alive():
                shell.tell(answered)
                counts.append((asked, told))
        for asked, _ in counts:
            while not asked.wait(1.0):
                self._check()
        return [told[0] for _, told in counts if told]

    # -- calls beyond the surface

    def result(self, receipt: Receipt, timeout: Duration = None) -> Result:
        if timeout is None or seconds(timeout) > 0:
            forbid_inside("result", receipt.wake)
        return super().result(receipt, timeout)

    def run_until_idle(self, timeout: Duration = None) -> IdleReport:
        forbid_inside("run_until_idle")
        return super().run_until_idle(timeout)

    def start(self, config: AgentConfig, *, channel: str | None = None) -> None:
        """Start an agent at run time. Raises InvalidSetting for a name that was used before by a disposed agent."""
        if channel is not None:
            raise InvalidSetting("channel", channel, "conversations are not supported by this version")
        recorded = recorded_settings(config, self.providers)
        with self._lock:
            self._check()
            stream = f"agent/{config.name}"
            self._configs[config.name] = config
            self._ports.equipment = equipment(self._configs)
            if stream not in self._shells:
                for behaviour in pair(config.name, config):
                    self._join(behaviour)
                    self._ask(behaviour.stream, Restarted())
            self._ask(stream, Start(recorded))

    def subscribe(
        self, fn: Callable[[Any], None], *, agent: str | None = None, deltas: bool = False
    ) -> Callable[[], None]:
        """Call `fn` with each new Recorded (of one agent's streams), in order, in a thread of its own; it can break nothing.

        With `deltas=True` also with each Delta of a streamed answer, which is in no log. Returns what ends it.
        """
        telling = Subscription(fn, agent=agent, deltas=deltas)
        self._telling.append(telling)

        def unsubscribe() -> None:
            if telling in self._telling:
                self._telling.remove(telling)
            telling.close()

        return unsubscribe

    def _alerting(self, on_alert: Callable[[Alert], None]) -> Callable[[Any], None]:
        def told(said: Any) -> None:
            if isinstance(said, Recorded) and isinstance(said.event, Alerted) and said.event.posted:
                on_alert(alert_of(said, said.event))

        return told

    # -- the same, awaited

    async def apush(self, agent: str, content: Any, **how: Any) -> Receipt:
        """`push`, without blocking the caller's loop."""
        return await asyncio.to_thread(self.push, agent, content, **how)

    async def awake(self, agent: str, reason: str, **how: Any) -> Receipt:
        """`wake`, without blocking the caller's loop."""
        return await asyncio.to_thread(self.wake, agent, reason, **how)

    async def aresult(self, receipt: Receipt, timeout: Duration = None) -> Result:
        """`result`, without blocking the caller's loop, nor a thread while it waits."""
        if receipt.wake is None:
            return self.result(receipt, 0)
        wake, loop, moved = receipt.wake, asyncio.get_running_loop(), asyncio.Event()
        watcher = LoopWatcher(lambda: loop.call_soon_threadsafe(moved.set))
        watched = self._watched(f"agent/{wake.partition('/')[0]}")
        watched.add(watcher)
        try:
            async with asyncio.timeout(None if timeout is None else seconds(timeout)):
                while not (found := self._outcome(wake)).ended:
                    await moved.wait()
                    moved.clear()
                return found
        except TimeoutError:
            return self._outcome(wake)
        finally:
            watched.discard(watcher)

    async def aidle(self, timeout: Duration = None) -> IdleReport:
        """`run_until_idle`, without blocking the caller's loop."""
        return await asyncio.to_thread(self.run_until_idle, timeout)

    async def atail(
        self, after: int = 0, follow: bool = False, agent: str | None = None, kinds: Iterable[str] | None = None
    ) -> AsyncIterator[Recorded]:
        """`tail`, without blocking the caller's loop."""
        events = self.tail(after, follow, agent, kinds)
        while (recorded := await asyncio.to_thread(next, events, None)) is not None:
            yield recorded

    async def astop(self, timeout: Duration = None) -> StopReport:
        """`stop`, without blocking the caller's loop."""
        return await asyncio.to_thread(self.stop, timeout)


class LoopWatcher(threading.Event):
    """A watcher that calls when it is set."""

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__()
        self.call = call

    def set(self) -> None:
        with quietly():
            self.call()


@contextmanager
def quietly() -> Generator[None]:
    """A step of a stop: the next one is taken whatever becomes of it."""
    try:
        yield
    except Exception:
        return


__all__ = ["INSIDE", "AgentStarted", "Runtime"]
