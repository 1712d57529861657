"""The one shell around every behaviour: decide, record, adopt, reconcile, answer, in a pykka actor's thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from rewake.actors.behaviour import Behaviour, Key, Order, Restarted
from rewake.actors.incarnation import Answer, Asked, Batch, Failed, Incarnation, answer
from rewake.actors.journal import Journal
from rewake.actors.worker import Rung
from rewake.events import Log, LogFailed, Millis, Recorded, RewakeError, StreamMoved
from rewake.events.errors import ActorParked, RuntimeStopped

MOST = 256
"""Messages that are decided for one append, at the most."""

Told = Callable[[Answer | BaseException], None]


class House(Protocol):
    """What a shell needs of the runtime around it."""

    log: Log
    journal: Journal

    def now(self) -> Millis: ...

    def reconciled(self, stream: str, cancel: Sequence[Key], start: Sequence[tuple[Key, Order]]) -> None:
        """Carry out the changes of an actor's orders."""

    def failed(self, shell: Shell, failure: Failed) -> None:
        """An actor raised: record it, and tell the shell to `rebuild` or to `park`."""

    def moved(self, stream: str) -> None:
        """An actor has adopted a new state."""


class Shell(Rung):
    """An actor. Its mail and its feed wait in queues of its own; pykka's inbox carries only the bell."""

    def __init__(self, behaviour: Behaviour[Any], house: House) -> None:
        self.behaviour = behaviour
        self.house = house
        self.mail: deque[Asked] = deque()
        self.published: deque[Recorded] = deque()
        self.incarnation: Incarnation[Any] | None = None
        self.state: Any = None
        self.version = 0
        self.activity = 0
        self.fresh = True
        self.broken: Failed | None = None
        self.parked: str | None = None
        self.stopped: RewakeError | None = None
        self.watchers: set[threading.Event] = set()
        super().__init__()

    # -- called from any thread

    def post(self, asked: Asked) -> None:
        self.mail.append(asked)
        self.ring()

    def offer(self, recorded: Recorded) -> None:
        """The journal publishes a followed event; only a few kinds ring."""
        self.published.append(recorded)
        if self.behaviour.rung(recorded):
            self.ring()

    def dead(self) -> None:
        self.refuse(self.stopped or RuntimeStopped(f"{self.behaviour.stream} has stopped"))

    # -- in the actor's own thread

    def rise(self) -> None:
        """A new incarnation, rebuilt from the log."""
        self.incarnation = Incarnation(self.behaviour, self.house.log)
        self.fresh = True
        self.shows(self.incarnation)

    def shows(self, incarnation: Incarnation[Any]) -> None:
        self.state, self.version = incarnation.state, incarnation.here.version

    def receive(self, message: Any) -> Any:
        try:
            if callable(message):
                return message()
            self.work()
        except BaseException as error:
            stopped = error if isinstance(error, RewakeError) else RuntimeStopped(f"{type(error).__name__}: {error}")
            self.stopped = self.stopped or stopped
            self.refuse(self.stopped)
        return None

    def work(self) -> None:
        """Take what waits until nothing does."""
        while True:
            self.rung = False
            if self.stopped:
                self.refuse(self.stopped)
                return
            if self.parked is not None:
                self.refuse(ActorParked(self.behaviour.stream, self.parked))
                return
            if self.incarnation is None or self.broken or not self.turn(self.incarnation):
                return

    def turn(self, incarnation: Incarnation[Any]) -> bool:
        """Decide once; False when nothing waited."""
        while self.published:
            incarnation.offer(self.published.popleft())
        events = [] if self.fresh else [*incarnation.feed]
        asked = [self.mail.popleft() for _ in range(min(len(self.mail), MOST))]
        if not events and not asked:
            return False
        batch = incarnation.decide(events, asked, self.house.now())
        if batch.drafts:
            try:
                outcome = self.house.journal.write(incarnation.append(batch))
            except LogFailed as error:
                self.stopped = error
                self.mail.extendleft(reversed(asked))
                return True
            if isinstance(outcome, StreamMoved):
                self.mail.extendleft(reversed(asked))
                return True
            if not isinstance(outcome, list):
                self.not_written(batch, asked, outcome)
                return True
            self.adopt(incarnation, batch, outcome)
        else:
            self.adopt(incarnation, batch, [])
        self.fresh = False
        told = {id(one) for one, *_ in batch.answers}
        self.mail.extendleft(reversed([one for one in asked if id(one) not in told]))
        for failure in batch.failures:
            self.failing(failure)
        return True

    def adopt(self, incarnation: Incarnation[Any], batch: Batch[Any], recorded: list[Recorded]) -> None:
        incarnation.adopt(batch, recorded)
        changes = incarnation.reconcile()
        if changes.cancel or changes.start:
            self.house.reconciled(self.behaviour.stream, changes.cancel, changes.start)
        self.activity += len(recorded)
        self.shows(incarnation)
        answer(batch, recorded)
        for watcher in tuple(self.watchers):
            watcher.set()
        self.house.moved(self.behaviour.stream)
        if (snapshot := incarnation.snapshot()) is not None:
            self.house.journal.save(snapshot)

    def not_written(self, batch: Batch[Any], asked: list[Asked], error: Exception) -> None:
        """The log refused this append alone (an event too large): decide one by one, so that only its cause fails."""
        if len(asked) > 1 or (asked and batch.consumed):
            for one in reversed(asked):
                self.mail.appendleft(one)
            self.one_by_one(error)
            return
        for one in asked:
            if one.answer:
                one.answer(error)
            else:
                self.failing(Failed(error, asked=one))
        if not asked:
            self.failing(Failed(error, recorded=self.incarnation.feed[0] if self.incarnation else None))

    def one_by_one(self, error: Exception) -> None:
        """Decide the first of the mail alone; the rest is taken up as ever."""
        rest = list(self.mail)[1:]
        self.mail = deque([self.mail[0]])
        if self.incarnation:
            self.turn(self.incarnation)
        self.mail.extend(rest)

    def failing(self, failure: Failed) -> None:
        """Something raised that should not have: the supervisor says what becomes of this actor."""
        asked = failure.asked
        if not (asked and asked.answer):
            self.broken = failure
        self.house.failed(self, failure)

    def rebuild(self) -> None:
        """A new incarnation in this process: what the former one had started is cancelled first."""
        if self.incarnation is None or self.broken is None:
            return
        self.house.reconciled(self.behaviour.stream, list(self.incarnation.started), [])
        self.broken = None
        self.rise()
        self.mail.appendleft(Asked(Restarted()))
        self.work()

    def park(self, error: str) -> None:
        if self.incarnation is not None:
            self.house.reconciled(self.behaviour.stream, list(self.incarnation.started), [])
            self.incarnation.started.clear()
        self.parked = error
        self.work()

    def finish(self) -> None:
        """At an orderly stop: keep a snapshot of what is newer than the last one."""
        if self.incarnation and self.parked is None and (snapshot := self.incarnation.snapshot(every=1)):
            self.house.journal.save(snapshot)

    def refuse(self, error: BaseException) -> None:
        while self.mail:
            asked = self.mail.popleft()
            if asked.answer:
                asked.answer(error)
