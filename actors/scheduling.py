"""One life of a simulated process: its actors, their mail, the journal and the ports, one step at a time, in an order
that a seed decides.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any

from rewake.actors.behaviour import Behaviour, Command, Due, Restarted
from rewake.actors.cell import Armed, Cell, Crash, event_named, named
from rewake.actors.fleet import Subscriptions
from rewake.actors.host import Raised
from rewake.actors.incarnation import Answer, Asked, Batch, Failed, answer
from rewake.actors.ports import Ports
from rewake.actors.virtual import Timers, VirtualLoop
from rewake.events import Append, Log, Millis, Recorded, StreamConflict, StreamMoved
from rewake.events.errors import ActorParked
from rewake.events.log import Past

SNAPSHOTS = 1 / 32
"""How likely an actor is snapshot after it has decided something."""
MOVES = 100
"""Times in a row that a decision may find a stream moved before it is taken to be one that never can be made."""


class Scheduler:
    """Everything between the calls that people make and the log. `ports` is given to it before the first actor joins."""

    ports: Ports

    def __init__(
        self,
        log: Log,
        chance: random.Random,
        armed: list[Armed],
        now: Callable[[], Millis],
        told: Callable[[Recorded], None],
    ) -> None:
        self.log = log
        self.chance = chance
        self.armed = armed
        self.now = now
        self.told = told
        self.loop = VirtualLoop()
        self.timers = Timers()
        self.cells: dict[str, Cell] = {}
        self.stirring: dict[str, Cell] = {}
        self.subscriptions: Subscriptions[Cell] = Subscriptions()
        self.outcomes: deque[tuple[str, Command]] = deque()
        self.dying = False
        self.closing = False

    def join(self, behaviour: Behaviour[Any], past: Past | None = None) -> None:
        """Start an actor: it takes in first that it was restarted."""
        cell = Cell(behaviour, past or self.log)
        self.cells[behaviour.stream] = cell
        self.subscriptions.add(cell)
        self.post(behaviour.stream, Asked(Restarted()))

    def leave(self, stream: str) -> None:
        """Let go of an actor: nothing that it had started goes on."""
        cell = self.cells.pop(stream)
        self.stirring.pop(stream, None)
        self.subscriptions.remove(cell)
        self.cancel(stream, list(cell.incarnation.started))

    # -- one thing after the other

    def step(self) -> bool:
        """Do one of the things that can happen now; False when nothing can."""
        choices: list[Callable[[], None]] = []
        waiting = False
        for stream, cell in list(self.stirring.items()):
            if cell.batch:
                waiting = True
            elif cell.ready:
                choices.append(partial(self.decide, cell))
            else:
                del self.stirring[stream]
        if waiting:
            choices.append(self.commit)
        choices += [partial(self.take, index) for index in range(min(len(self.outcomes), 8))]
        if (due := self.timers.next_due()) is not None and due <= self.now():
            choices.append(self.fire)
        if self.loop.ready:
            choices.append(self.settle)
        if choices:
            self.chance.choice(choices)()
        return bool(choices)

    def drive(self, cell: Cell) -> bool:
        """One step towards an answer of this actor; False when it gives none."""
        if cell.batch:
            self.commit()
        elif cell.ready:
            self.decide(cell)
        elif cell.stalled and cell is not self.cells["host"]:
            return self.drive(self.cells["host"])
        else:
            return False
        return True

    def ask(self, stream: str, command: Command) -> Answer:
        """Put a command to an actor; the others stand still until it is answered. A refusal is raised."""
        if self.dying:
            raise Crash
        cell, told = self.cells[stream], list[Answer | BaseException]()
        if cell.parked:
            raise ActorParked(stream, cell.parked)
        self.post(stream, Asked(command, told.append))
        while not told and self.drive(cell):
            pass
        if isinstance(told[0], BaseException):
            raise told[0]
        return told[0]

    def post(self, stream: str, asked: Asked) -> None:
        cell = self.cells[stream]
        if not cell.parked:
            cell.mail.append(asked)
            self.stirring[stream] = cell
        elif asked.answer:
            asked.answer(ActorParked(stream, cell.parked))

    def decide(self, cell: Cell) -> None:
        """One actor decides some of what waits for it; a fresh one only commands, the first of which is `Restarted`."""
        feed, mail = cell.incarnation.feed, cell.mail
        count = self.chance.randint(0 if mail else 1, len(feed)) if feed and not cell.fresh else 0
        if cell.moved:
            count = len(feed)
        many = self.chance.randint(0 if count else 1, len(mail)) if mail else 0
        if not count and not many:
            cell.rung = False
            return
        asked = [mail.popleft() for _ in range(many)]
        batch = cell.incarnation.decide(list(islice(feed, count)), asked, self.now())
        mail.extendleft(reversed(asked[len(batch.answers) :]))
        if batch.drafts:
            cell.batch = batch
        else:
            self.adopt(cell, batch, [])

    def commit(self) -> None:
        """The journal commits some of the batches that wait, in an order of its own."""
        if self.dying:
            raise Crash
        waiting = [cell for cell in self.stirring.values() if cell.batch]
        self.chance.shuffle(waiting)
        chosen = [(cell, cell.batch) for cell in waiting[: self.chance.randint(1, len(waiting))] if cell.batch]
        appends = [cell.incarnation.append(batch) for cell, batch in chosen]
        crash = self.crashes(appends)
        if crash == "before":
            self.die()
        outcomes = self.log.commit(appends)
        if crash == "after":
            self.die()
        done = [recorded for outcome in outcomes if isinstance(outcome, list) for recorded in outcome]
        for recorded in done:
            self.publish(recorded)
        for (cell, batch), outcome in zip(chosen, outcomes, strict=True):
            cell.batch = None
            if isinstance(outcome, list):
                self.adopt(cell, batch, outcome)
            else:
                self.unwritten(cell, batch, outcome)
        for recorded in done:
            self.told(recorded)

    def crashes(self, appends: Sequence[Append]) -> str | None:
        """Whether a crash goes off at this commit, before it or after."""
        met = [one for one in self.armed if any(one.met(append) for append in appends)]
        for one in met:
            self.armed.remove(one)
        return met[0].when if met else None

    def die(self) -> None:
        """From here nothing happens any more, whoever catches this on its way out."""
        self.dying = True
        raise Crash

    def publish(self, recorded: Recorded) -> None:
        for cell, bell in self.subscriptions.of(recorded):
            if cell.incarnation.offer(recorded) and bell:
                cell.rung = True
                self.stirring[cell.stream] = cell

    def adopt(self, cell: Cell, batch: Batch[Any], recorded: list[Recorded]) -> None:
        """The batch is on disk: it is the state, its orders are carried out, whoever asked is answered."""
        incarnation = cell.incarnation
        if cell.trouble:
            cell.settled(batch, list(islice(incarnation.feed, batch.consumed)))
        incarnation.adopt(batch, recorded)
        cell.moved = 0
        cell.rung = any(cell.behaviour.rung(one) for one in incarnation.feed)
        self.stirring[cell.stream] = cell
        if not (cell.fresh and batch.failures):
            cell.fresh = False
            self.reconcile(cell)
        if self.chance.random() < SNAPSHOTS and (kept := incarnation.snapshot(every=1, read=1)):
            self.log.save(kept)
        answer(batch, recorded)
        for failure in batch.failures:
            self.failed(cell, failure)

    def reconcile(self, cell: Cell) -> None:
        changes = cell.incarnation.reconcile()
        self.cancel(cell.stream, changes.cancel)
        for key, order in changes.start:
            if not self.closing:
                self.loop.call_soon(self.ports.start, cell.stream, key, order)

    def cancel(self, stream: str, keys: Sequence[Any]) -> None:
        for key in keys:
            self.loop.call_soon(self.ports.cancel, stream, key)

    # -- what goes wrong

    def unwritten(self, cell: Cell, batch: Batch[Any], error: Exception) -> None:
        """An append was refused: it is decided again once more is known, or its cause alone fails."""
        if isinstance(error, StreamMoved) and cell.moved < MOVES:
            cell.moved += 1
            cell.mail.extendleft(reversed([one for one, *_ in batch.answers]))
            cell.rung = True
            return
        if isinstance(error, StreamConflict):
            for one, *_ in batch.answers:
                if one.answer:
                    one.answer(error)
            self.failed(cell, Failed(error))
            return
        again, failures = cell.incarnation.refuse(batch, error)
        cell.mail.extendleft(reversed(again))
        cell.rung = cell.rung or batch.consumed > 0
        for failure in failures:
            self.failed(cell, failure)

    def failed(self, cell: Cell, failure: Failed) -> None:
        """An actor raised: it is recorded. On a command that somebody waits for, that alone has failed; else the actor is
        rebuilt, or parked at the third time on the same thing.
        """
        alone = failure.asked is not None and failure.asked.answer is not None
        on = failure.recorded.seq if failure.recorded else None
        command = named(failure.asked.command) if failure.asked else ""
        what = event_named(failure.recorded) if failure.recorded else command
        said = f"{type(failure.error).__name__}: {failure.error}"
        raised = Raised(cell.stream, said, on, command, not alone and cell.trouble == what)
        if alone:
            if cell.stream != "host":
                self.post("host", Asked(raised))
            return
        if cell.stream == "host":
            raise failure.error
        cell.trouble, cell.stalled = what, True
        self.post("host", Asked(raised, partial(self.supervised, cell, said)))

    def supervised(self, cell: Cell, said: str, answered: Answer | BaseException) -> None:
        """The host has recorded a failure, and said whether the actor goes on."""
        if isinstance(answered, BaseException) or any(one.kind == "actor_parked" for one in answered.recorded):
            self.cancel(cell.stream, list(cell.incarnation.started))
            cell.incarnation.started.clear()
            cell.parked = said
            while cell.mail:
                if told := cell.mail.popleft().answer:
                    told(ActorParked(cell.stream, said))
        else:
            self.rebuild(cell.stream)

    def rebuild(self, stream: str) -> None:
        """A new incarnation in the same process: what the former one had started is cancelled."""
        cell = self.cells[stream]
        while cell.batch:
            self.commit()
        self.cancel(stream, list(cell.incarnation.started))
        cell.rise(self.log)
        cell.mail.appendleft(Asked(Restarted()))
        self.stirring[stream] = cell

    # -- ports and timers

    def deliver(self, stream: str, command: Command) -> None:
        self.outcomes.append((stream, command))

    def take(self, index: int) -> None:
        stream, command = self.outcomes[index]
        del self.outcomes[index]
        if stream in self.cells:
            self.post(stream, Asked(command))

    def fire(self) -> None:
        stream, key = self.timers.pop()
        if stream in self.cells:
            self.post(stream, Asked(Due(key=key)))

    def settle(self) -> None:
        """What runs on the loop runs until it waits."""
        self.loop.settle()
        if self.dying:
            raise Crash
        if error := self.loop.failed():
            raise error

    def close(self) -> None:
        """Orderly: calls and tools are cancelled, what was decided is recorded, nothing more is started."""
        self.closing = True
        self.halt()
        self.outcomes.clear()
        while any(cell.batch for cell in self.stirring.values()):
            self.commit()

    def halt(self) -> None:
        """Nothing runs on any more; what does not let itself be cancelled is left behind."""
        for line in self.ports.lines.values():
            line.admit = None
        for task in list(self.ports.tasks.values()):
            task.cancel()
        self.ports.tasks.clear()
        self.loop.settle()

    def end(self) -> None:
        """The process is gone, with all that was in its memory."""
        self.dying = self.closing = True
        self.cells.clear()
        if not self.loop.is_closed():  # a simulation that was forgotten may have lost it already
            self.halt()
            self.loop.close()


async def inline(call: Callable[[], Any]) -> Any:
    """A tool that may block, in this one thread."""
    return call()


__all__ = ["MOVES", "Armed", "Crash", "Scheduler", "event_named", "inline", "named"]
