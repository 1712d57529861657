"""The one shell around every behaviour: decide, record, adopt, reconcile, answer, in a pykka actor's thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, Protocol

from rewake.actors.behaviour import Behaviour, Key, Order, Restarted
from rewake.actors.cell import event_named, named
from rewake.actors.host import Raised
from rewake.actors.incarnation import Answer, Asked, Batch, Failed, Incarnation, answer
from rewake.actors.journal import Journal
from rewake.actors.scheduling import MOVES
from rewake.actors.snapshots import Unpacking
from rewake.actors.worker import Rung
from rewake.events import Log, LogFailed, Millis, Recorded, RewakeError, StreamConflict, StreamMoved
from rewake.events.errors import ActorParked, RuntimeStopped
from rewake.events.log import Past

MOST = 256
"""Commands that are decided for one append, at the most."""


class House(Protocol):
    """What a shell needs of the runtime around it."""

    log: Log
    journal: Journal

    def now(self) -> Millis: ...

    def reconciled(self, stream: str, cancel: Sequence[Key], start: Sequence[tuple[Key, Order]]) -> None:
        """Carry out the changes of an actor's orders."""

    def supervise(self, raised: Asked) -> None:
        """Have the host record that an actor raised."""

    def lost(self, error: BaseException) -> None:
        """The host itself raised: there is nobody to record it."""

    def moved(self, stream: str) -> None:
        """An actor has adopted a new state, or was parked."""


class Shell(Rung):
    """An actor. Its mail and its feed wait in queues of its own; pykka's inbox carries only the bell.

    `fresh`: its incarnation has yet to take `Restarted` in, and takes nothing before. `broken`: it raised, and its
    supervisor has not answered yet. `hand`: the mail that is being decided.
    """

    def __init__(self, behaviour: Behaviour[Any], house: House) -> None:
        self.behaviour = behaviour
        self.house = house
        self.mail: deque[Asked] = deque()
        self.published: deque[Recorded] = deque()
        self.incarnation: Incarnation[Any] | None = None
        self.state: Any = None
        self.hand: list[Asked] = []
        self.activity = 0
        self.fresh = True
        self.moved = 0
        self.trouble = ""
        self.broken: Failed | None = None
        self.parked: str | None = None
        self.stopped: RewakeError | None = None
        super().__init__()

    @property
    def stream(self) -> str:
        return self.behaviour.stream

    # -- called from any thread

    def post(self, asked: Asked) -> None:
        self.mail.append(asked)
        self.ring()

    def restart(self) -> None:
        """Begin: what the former incarnation had started is taken in as interrupted, before anything else."""
        self.mail.appendleft(Asked(Restarted()))
        self.ring()

    def offer(self, recorded: Recorded) -> None:
        """The journal publishes a followed event; whether it rings is its own affair."""
        self.published.append(recorded)

    def dead(self) -> None:
        self.refuse(self.stopped or RuntimeStopped(f"{self.stream} has stopped"))

    def refuse(self, error: BaseException) -> None:
        """Everyone whose command still waits is told."""
        with suppress(IndexError):
            while True:
                if told := self.mail.popleft().answer:
                    told(error)

    # -- in the actor's own thread

    def become(self, behaviour: Behaviour[Any]) -> None:
        """Decide by another error policy from here on."""
        self.behaviour = behaviour
        if self.incarnation is not None:
            self.incarnation.behaviour = behaviour

    def rise(self, unpacking: Unpacking | None = None, past: Past | None = None) -> None:
        """A new incarnation, rebuilt from the log: it begins by taking in that it was restarted."""
        self.incarnation = Incarnation(self.behaviour, past or self.house.log, unpacking)
        self.state = self.incarnation.state
        self.fresh = True

    def receive(self, message: Any) -> None:
        try:
            if callable(message):
                message()
            else:
                self.work()
        except BaseException as error:
            self.back(self.hand)
            self.failing(Failed(error))

    def work(self) -> None:
        """Take what waits until nothing does."""
        while True:
            self.rung = False
            if self.stopped:
                self.refuse(self.stopped)
                return
            if self.parked is not None:
                self.refuse(ActorParked(self.stream, self.parked))
                return
            if self.incarnation is None or self.broken or not self.turn(self.incarnation):
                return

    def turn(self, incarnation: Incarnation[Any]) -> bool:
        """Decide once; False when nothing waited."""
        while self.published:
            incarnation.offer(self.published.popleft())
        if self.fresh and not (self.mail and isinstance(self.mail[0].command, Restarted)):
            return False
        events = [] if self.fresh else [*incarnation.feed]
        self.hand = [self.mail.popleft() for _ in range(min(len(self.mail), 1 if self.fresh else MOST))]
        if not events and not self.hand:
            return False
        batch = incarnation.decide(events, self.hand, self.house.now())
        self.back(self.hand[len(batch.answers) :])
        self.hand = [asked for asked, *_ in batch.answers]
        try:
            outcome = self.house.journal.write(incarnation.append(batch)) if batch.drafts else []
        except LogFailed as error:
            self.stopped = self.stopped or error
            self.back(self.hand)
            return True
        if isinstance(outcome, list):
            self.adopt(incarnation, batch, outcome)
        else:
            self.unwritten(incarnation, batch, outcome)
        return True

    def back(self, asked: Sequence[Asked]) -> None:
        """Commands that are still to be decided, before all others."""
        self.mail.extendleft(reversed(asked))
        self.hand = []

    def adopt(self, incarnation: Incarnation[Any], batch: Batch[Any], recorded: list[Recorded]) -> None:
        """The batch is on disk: it is the state, its orders are carried out, whoever asked is answered."""
        self.settle(batch, incarnation)
        incarnation.adopt(batch, recorded)
        self.moved = 0
        self.hand = []
        try:
            if not (self.fresh and batch.failures):
                self.fresh = False
                self.reconcile(incarnation)
        finally:
            self.activity += len(recorded)
            self.state = incarnation.state
            answer(batch, recorded)
            self.house.moved(self.stream)
        for failure in batch.failures:
            self.failing(failure)
        if (snapshot := incarnation.snapshot()) is not None:
            self.house.journal.save(snapshot)

    def settle(self, batch: Batch[Any], incarnation: Incarnation[Any]) -> None:
        """What it has taken in without failing is no trouble any more."""
        if self.trouble:
            done = {named(one.command) for one, _, _, error in batch.answers if error is None}
            if self.trouble in done | {event_named(one) for one in islice(incarnation.feed, batch.consumed)}:
                self.trouble = ""

    def reconcile(self, incarnation: Incarnation[Any]) -> None:
        changes = incarnation.reconcile()
        if changes.cancel or changes.start:
            self.house.reconciled(self.stream, changes.cancel, changes.start)

    # -- what goes wrong

    def unwritten(self, incarnation: Incarnation[Any], batch: Batch[Any], error: Exception) -> None:
        """An append was refused: it is decided again once more is known, or its cause alone fails."""
        if isinstance(error, StreamMoved) and self.moved < MOVES:
            self.moved += 1
            self.back(self.hand)
        elif isinstance(error, StreamConflict):
            self.back(self.hand)
            self.failing(Failed(error))
        else:
            again, failures = incarnation.refuse(batch, error)
            self.back(again)
            for failure in failures:
                self.failing(failure)

    def failing(self, failure: Failed) -> None:
        """Something raised that should not have. A command that somebody waits for has failed alone; else the supervisor
        says what becomes of this actor.
        """
        asked, recorded = failure.asked, failure.recorded
        alone = asked is not None and asked.answer is not None
        command = named(asked.command) if asked else ""
        what = event_named(recorded) if recorded else command
        said = f"{type(failure.error).__name__}: {failure.error}"
        again = not alone and self.trouble == what
        raised = Raised(self.stream, said, recorded.seq if recorded else None, command, again)
        if not alone:
            self.trouble, self.broken = what, failure
        if self.stream == "host":
            if not alone:
                self.house.lost(failure.error)
            return
        self.house.supervise(Asked(raised, None if alone else partial(self.supervised, said)))

    def supervised(self, said: str, answered: Answer | BaseException) -> None:
        """The host has recorded the failure; while everything stops there is nothing more to do."""
        if isinstance(answered, RuntimeStopped | LogFailed):
            return
        parks = isinstance(answered, BaseException) or any(one.kind == "actor_parked" for one in answered.recorded)
        self.tell(partial(self.park, said) if parks else self.rebuild)

    def rebuild(self) -> None:
        """A new incarnation in this process: what the former one had started is cancelled first."""
        if self.incarnation is not None:
            self.house.reconciled(self.stream, list(self.incarnation.started), [])
        self.rise()
        self.mail.appendleft(Asked(Restarted()))
        self.broken = None
        self.work()

    def park(self, error: str) -> None:
        if self.incarnation is not None:
            self.house.reconciled(self.stream, list(self.incarnation.started), [])
            self.incarnation.started.clear()
        self.parked = error
        self.work()
        self.house.moved(self.stream)

    def rest(self) -> None:
        """What it had started goes on no more."""
        if self.incarnation is not None:
            self.house.reconciled(self.stream, list(self.incarnation.started), [])

    def finish(self) -> None:
        """At an orderly stop: keep a snapshot of what is newer than the last one."""
        standing = self.parked is None and not self.broken and not self.fresh
        if standing and self.incarnation and (snapshot := self.incarnation.snapshot(every=1)):
            self.house.journal.save(snapshot)
