"""One life of an actor: rebuilt from the log, it decides, takes in what was recorded, and says what is to start and stop.

No threads, no clock, no log of its own: the pykka shell and the simulation both drive this.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from rewake.actors.behaviour import Behaviour, Command, Key, Order, Position, command, consume, fold
from rewake.actors.snapshots import Packed, Unpacking, encode
from rewake.events import Append, Draft, LogCorrupt, Millis, Recorded, RewakeError, Snapshot
from rewake.events.base import kind_of
from rewake.events.log import Past

S = TypeVar("S")

SNAPSHOT_EVERY = 1_000
"""Events of its own stream after which an actor is snapshot."""
READ_EVERY = 4_000
"""Events of the streams that it follows after which it is too: seldom, for a state takes more room than it saves time. And
events of the whole log, of which it had only to be found out that it follows none.
"""


class Asked(Struct):
    """A command, and who is told what became of it: the events that it was embodied as, with the state; or the error."""

    command: Command
    answer: Callable[[Answer | BaseException], None] | None = None


class Answer(Struct, frozen=True):
    """What a command led to: its events, in order, and the state that its actor then had."""

    recorded: tuple[Recorded, ...]
    state: Any


class Failed(Struct, frozen=True):
    """What a decision broke on: a followed event, or a command."""

    error: BaseException
    recorded: Recorded | None = None
    asked: Asked | None = None


class Batch(Struct, Generic[S]):
    """What several messages were decided to, for one append."""

    here: Position[S]
    drafts: list[Draft] = []
    consumed: int = 0
    answers: list[tuple[Asked, int, int, BaseException | None]] = []
    failures: list[Failed] = []
    unmoved: dict[str, int] = {}


class Changes(Struct):
    """What a new state wants started and stopped."""

    start: list[tuple[Key, Order]]
    cancel: list[Key]


class Incarnation(Generic[S]):
    """An actor's state, its feed of followed events, and the orders that it has started."""

    def __init__(self, behaviour: Behaviour[S], log: Past, unpacking: Unpacking | None = None) -> None:
        self.behaviour = behaviour
        self.feed: deque[Recorded] = deque()
        self.started: dict[Key, Order] = {}
        self.ended: set[Key] = set()
        self.singly = 0
        self.consumed = 0
        self.behind: int | None = None
        head = log.head()
        self.offered = self.looked = head
        self.here, self.saved, self.saved_read = recover(behaviour, log, head, unpacking)
        self.feed.extend(followed(behaviour, log, self.here.read, head))

    @property
    def state(self) -> S:
        return self.here.state

    @property
    def stream(self) -> str:
        return self.behaviour.stream

    def offer(self, recorded: Recorded) -> bool:
        """Take an event that was published; one that was read at the start is dropped: false."""
        if recorded.seq <= self.offered:
            return False
        self.offered = recorded.seq
        self.feed.append(recorded)
        return True

    def decide(self, events: Sequence[Recorded], asked: Sequence[Asked], now: Millis) -> Batch[S]:
        """Decide followed events, then commands, one by one. One that raises is cut off with its events.

        Those of `asked` that are not in the batch's `answers` are still to be decided: behind a followed event that
        raised, or where the log has refused several messages and each is decided by itself.
        """
        if self.singly:
            events, asked = (events[:1], ()) if events else ((), asked[:1])
        batch = Batch(self.here.copy())
        batch.here.at = max(batch.here.at, now)
        for recorded in events:
            error = self._tried(batch, consume, recorded)
            if error:
                batch.failures.append(Failed(error, recorded=recorded))
                return batch
            batch.consumed += 1
        for one in asked:
            before = len(batch.drafts)
            error = self._tried(batch, command, replace(one.command, at=batch.here.at))
            batch.answers.append((one, before, len(batch.drafts), error))
            if error and not isinstance(error, RewakeError):
                batch.failures.append(Failed(error, asked=one))
        return batch

    def _tried(self, batch: Batch[S], decide: Callable[..., None], said: Any) -> BaseException | None:
        before, kept = batch.here.copy(), len(batch.drafts)
        try:
            decide(self.behaviour, batch.here, batch.drafts, said)
        except BaseException as error:
            batch.here = before
            del batch.drafts[kept:]
            return error
        if self.behaviour.unmoved and (decided := [draft.event for draft in batch.drafts[kept:]]):
            batch.unmoved = {**self.behaviour.unmoved(batch.here.state, decided), **batch.unmoved}
        return None

    def append(self, batch: Batch[S]) -> Append:
        return Append(self.stream, self.here.version, tuple(batch.drafts), batch.unmoved)

    def adopt(self, batch: Batch[S], recorded: Sequence[Recorded]) -> None:
        """The batch is on disk: its state is the state. Whoever asked is answered by `answer`."""
        self.here = batch.here
        self.singly = max(0, self.singly - batch.consumed - len(batch.answers))
        self.ended.update(key for asked, *_ in batch.answers if (key := asked.command.ends))
        self.consumed += batch.consumed
        for _ in range(batch.consumed):
            self.feed.popleft()

    def refuse(self, batch: Batch[S], error: BaseException) -> tuple[list[Asked], list[Failed]]:
        """The log can not take this append: what is to be decided once more, and what has failed.

        Several messages are decided again, each by itself. Of a single one whoever asked is told; an outcome becomes what
        its command says `instead`; anything else has failed.
        """
        commands = [asked for asked, *_ in batch.answers]
        if batch.consumed + len(commands) > 1:
            self.singly = batch.consumed + len(commands)
            return commands, []
        self.singly = max(0, self.singly - 1)
        for asked in commands:
            if asked.answer:
                asked.answer(error)
                return [], []
            if (said := asked.command.instead(str(error))) is not None:
                return [Asked(said)], []
            return [], [Failed(error, asked=asked)]
        return [], [Failed(error, recorded=self.feed[0])]

    def reconcile(self) -> Changes:
        """The orders that are new or other than they were, and the keys that are gone, but for those that have ended.

        None before what had rung at the first time is taken in: a former process's options order nothing.
        """
        if self.behind is None:
            self.behind = max((one.seq for one in self.feed if self.behaviour.rung(one)), default=0)
        if self.here.read < self.behind:
            return Changes([], [])
        wanted = self.behaviour.orders(self.here.state)
        cancel = [key for key, order in self.started.items() if key not in wanted or wanted[key] != order]
        for key in cancel:
            del self.started[key]
        start = [(key, order) for key, order in wanted.items() if key not in self.started]
        self.started.update(start)
        cancel = [key for key in cancel if key not in self.ended]
        self.ended.clear()
        return Changes(start, cancel)

    def snapshot(self, *, every: int = SNAPSHOT_EVERY, read: int = READ_EVERY) -> Snapshot | None:
        """The state to keep, when its tail has grown long enough: by `every` events of its own, or `read` of others. None
        also for one that can not be packed: it is kept in the log alone.
        """
        until = self.read
        if self.here.version - self.saved < every and self.consumed < read and until - self.saved_read < read:
            return None
        self.saved, self.saved_read, self.consumed = self.here.version, until, 0
        with suppress(OverflowError):
            return taken(self.behaviour, self.here, until)
        return None

    @property
    def read(self) -> int:
        """The seq up to which all that it follows is taken in: an event's, or how far it was looked for at the start."""
        waits = self.feed and self.feed[0].seq <= self.looked
        return self.here.read if waits else max(self.here.read, self.looked)


def taken(behaviour: Behaviour[S], here: Position[S], read: int) -> Snapshot:
    """A snapshot of where an actor stands, that has read so far. Raises OverflowError as `encode` does."""
    return Snapshot(behaviour.stream, here.version, read, behaviour.coded, *encode(here.state))


def answer(batch: Batch[Any], recorded: Sequence[Recorded]) -> None:
    """Tell whoever asked: the events of their command, or why there are none."""
    for asked, start, stop, error in batch.answers:
        if asked.answer:
            asked.answer(error if error else Answer(tuple(recorded[start:stop]), batch.here.state))


def recover(
    behaviour: Behaviour[S], log: Past, head: int, unpacking: Unpacking | None = None
) -> tuple[Position[S], int, int]:
    """Where the actor stood: the newest valid snapshot, its own events after it, and what it had read of the others.

    Also the version and the `read` of the snapshot taken. One of another code version, or damaged, gives only how far had
    been read; one that is ahead of the log gives nothing. Actors that are recovered with the same `unpacking` share what
    their snapshots have in common. Raises LogCorrupt where an event of its own is missing.
    """
    unpacking = unpacking or Unpacking()
    here, saved, read = Position(behaviour.initial()), 0, 0
    for snapshot in log.snapshots(behaviour.stream):
        if snapshot.read > head or snapshot.version > log.version(behaviour.stream):
            continue
        read = max(read, snapshot.read)
        state = restored(behaviour, log, snapshot, unpacking)
        if state is not None:
            here, saved = Position(state, snapshot.version, read=snapshot.read), snapshot.version
            break
    since = here.read
    for recorded in log.read(stream=behaviour.stream, until=head, after_version=here.version):
        if recorded.version != here.version + 1:
            why = f"{behaviour.stream} has version {recorded.version} where {here.version + 1} comes next"
            raise LogCorrupt(recorded.seq, why)
        fold(behaviour, here, recorded)
    until = max(read, here.read)
    for recorded in followed(behaviour, log, since, until):
        fold(behaviour, here, recorded)
    here.read = until
    return here, saved, since


def restored(behaviour: Behaviour[S], log: Past, snapshot: Snapshot, unpacking: Unpacking) -> S | None:
    if snapshot.code != behaviour.coded:
        return None
    try:
        lacking = unpacking.lacking(snapshot.pages)
        pages = log.pages(lacking) if lacking else {}
        return unpacking.decode(Packed(snapshot.state, pages), behaviour.state)
    except msgspec.MsgspecError:
        return None


def followed(behaviour: Behaviour[Any], log: Past, after: int, until: int) -> Iterator[Recorded]:
    """What the actor follows, of all streams, in the order of the log."""
    if after >= until:
        return
    feeds = [
        log.read(after, follow.stream, [kind_of(kind) for kind in follow.folds], until) for follow in behaviour.follows
    ]
    last = after
    for recorded in heapq.merge(*feeds, key=lambda recorded: recorded.seq):
        if recorded.seq > last:
            last = recorded.seq
            yield recorded
