"""For the tests of those who build on rewake: decide by example, decide a log again, shuffle it, stay off the network."""

from __future__ import annotations

import ipaddress
import random
import socket
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from msgspec.structs import replace

from rewake.actors import snapshots
from rewake.actors.behaviour import Behaviour, Command, Position, command, consume, fold
from rewake.actors.incarnation import Incarnation, followed
from rewake.actors.redecide import Difference, differences, redecide
from rewake.events import Draft, Event, Log, Millis, Recorded, open_log
from rewake.events.base import identified
from rewake.projections.starting import Noted

SHUFFLES = 20


class Given:
    """What has happened to an actor."""

    def __init__(self, behaviour: Behaviour[Any], events: Iterable[Event | Recorded], at: Millis) -> None:
        self.behaviour = behaviour
        self.here: Position[Any] = Position(behaviour.initial(), at=at)
        for event in events:
            recorded = event if isinstance(event, Recorded) else self.own(event)
            fold(behaviour, self.here, recorded)

    def own(self, event: Event) -> Recorded:
        """An event of the actor's own stream, in the next place."""
        stream, version = self.behaviour.stream, self.here.version + 1
        named = identified(event, stream, version)
        return Recorded(0, self.here.at, stream, version, None, self.here.read, named)

    def when(self, said: Command | Recorded, *, at: Millis | None = None) -> When:
        """A command comes in at that time (its own, or the last event's), or an event of a stream that is followed."""
        return When(self, said, at)

    def orders(self) -> Mapping[Any, Any]:
        """What is wanted of the world."""
        return self.behaviour.orders(self.here.state)


class When:
    """What an actor makes of something: its events, or the error that it raises."""

    def __init__(self, given: Given, said: Command | Recorded, at: Millis | None) -> None:
        self.given = given
        self.here = given.here.copy()
        self.error: BaseException | None = None
        drafts: list[Draft] = []
        try:
            if isinstance(said, Recorded):
                self.here.at = max(self.here.at, said.at if at is None else at)
                consume(given.behaviour, self.here, drafts, said)
            else:
                self.here.at = max(self.here.at, said.at if at is None else at)
                command(given.behaviour, self.here, drafts, replace(said, at=self.here.at))
        except Exception as error:
            self.error = error
            drafts = []
        self.events: tuple[Event, ...] = tuple(draft.event for draft in drafts)

    def then(self, *events: Event) -> When:
        """These events, in this order, and no others; ids that they do not name are those of their places."""
        if self.error:
            raise AssertionError(f"raised {self.error!r}") from self.error
        stream, version = self.given.behaviour.stream, self.given.here.version
        wanted = tuple(identified(event, stream, version + place) for place, event in enumerate(events, 1))
        assert self.events == wanted, f"decided {self.events}, not {wanted}"
        return self

    def raises(self, error: type[BaseException]) -> BaseException:
        """Refused with that error."""
        if not isinstance(self.error, error):
            raise AssertionError(f"raised {self.error!r}, not {error.__name__}") from self.error
        return self.error


def given(*events: Event | Recorded, behaviour: Behaviour[Any], at: Millis = 0) -> Given:
    """An actor after these events: bare ones are its own, those of streams that it follows come as Recorded.

    `given(STARTED, behaviour=agent("ada")).when(Push(...)).then(MessageAdded(...), Wake(...), ...)`
    """
    return Given(behaviour, events, at)


def assert_redecides(log: Log, *behaviours: Behaviour[Any]) -> None:
    """Today's code decides every event as it was decided, with these behaviours for their streams."""
    own = {behaviour.stream: behaviour for behaviour in behaviours}
    found = [one for one in redecide(log) if one.stream not in own]
    found += [one for behaviour in own.values() for one in differences(behaviour, log)]
    assert not found, told(found)


def told(found: list[Difference]) -> str:
    lines = [f"{one.stream} on event {one.seq}: recorded {one.recorded}, now {one.now}" for one in found[:10]]
    return f"{len(found)} events are decided otherwise now:\n" + "\n".join(lines)


def assert_commutes(behaviour: Behaviour[Any], log: Log, *, seed: int = 0, times: int = SHUFFLES) -> None:
    """The order in which the events of two streams arrive never changes the state: shuffled merges fold to one."""
    chance = random.Random(seed)
    streams = streams_of(behaviour, log)
    states = [folded(behaviour, merged(streams, chance)) for _ in range(times)]
    recorded = sorted((one for stream in streams for one in stream), key=lambda one: one.seq)
    expected = snapshots.digest(folded(behaviour, recorded))
    for number, state in enumerate(states):
        assert snapshots.digest(state) == expected, f"{behaviour.stream}: merge {number} of seed {seed} folds otherwise"


def streams_of(behaviour: Behaviour[Any], log: Log) -> list[list[Recorded]]:
    """An actor's own events, and those that it follows, stream by stream."""
    head = log.head()
    streams: dict[str, list[Recorded]] = {behaviour.stream: list(log.read(stream=behaviour.stream, until=head))}
    for recorded in followed(behaviour, log, 0, head):
        streams.setdefault(recorded.stream, []).append(recorded)
    return list(streams.values())


def merged(streams: list[list[Recorded]], chance: random.Random) -> Iterator[Recorded]:
    """One of the orders in which these streams can arrive, each in its own; now evenly, now one long before another."""
    left = [iter(stream) for stream in streams if stream]
    weights = [chance.random() ** 3 for _ in left]
    while left:
        (source,) = chance.choices(range(len(left)), weights)
        if (recorded := next(left[source], None)) is None:
            del left[source], weights[source]
        else:
            yield recorded


def folded(behaviour: Behaviour[Any], events: Iterable[Recorded]) -> Any:
    state = behaviour.initial()
    for recorded in events:
        state = behaviour.evolve(state, recorded)
    return state


@contextmanager
def redecided() -> Generator[dict[int, tuple[Log, dict[str, Behaviour[Any]]]]]:
    """Every log that actors lived on inside is decided again at the end, by the behaviours that lived on it last.

    A log's file that is gone, or that something else writes, is left alone.
    """
    used: dict[int, tuple[Log, dict[str, Behaviour[Any]]]] = {}
    begin: Callable[..., None] = vars(Incarnation)["__init__"]

    def begun(self: Incarnation[Any], behaviour: Behaviour[Any], past: Log | Noted, *more: Any) -> None:
        log = past.log if isinstance(past, Noted) else past
        used.setdefault(id(log), (log, {}))[1][behaviour.stream] = behaviour
        begin(self, behaviour, past, *more)

    patched: Any = Incarnation
    patched.__init__ = begun
    try:
        yield used
    finally:
        patched.__init__ = begin
    for log, behaviours in used.values():
        with suppress(FileNotFoundError):
            check_again(log, behaviours)


def check_again(log: Log, behaviours: dict[str, Behaviour[Any]]) -> None:
    if log.path == ":memory:":
        assert_redecides(log, *behaviours.values())
    elif Path(log.path).exists():
        reader = open_log(log.path, readonly=True)
        try:
            assert_redecides(reader, *behaviours.values())
        finally:
            reader.close()


class RealProviderAsked(RuntimeError):
    """A test would have left this machine."""


def forbid_real_providers() -> ExitStack:
    """From here on no connection leaves this machine: a provider on the network raises, a scripted one answers.

    Call it once, or use it as a `with` block, which ends it.
    """
    undo = ExitStack()
    for owner, name in ((socket.socket, "connect"), (socket.socket, "connect_ex"), (socket, "getaddrinfo")):
        real = getattr(owner, name)
        setattr(owner, name, staying(real, 0 if owner is socket else 1))
        undo.callback(setattr, owner, name, real)
    return undo


def staying(call: Callable[..., Any], place: int) -> Callable[..., Any]:
    """A call that takes an address, refused for any but this machine's."""

    def called(*args: Any, **kwargs: Any) -> Any:
        address: Any = args[place] if len(args) > place else kwargs.get("host")
        if not local(address):
            refuse(address)
        return call(*args, **kwargs)

    return called


def refuse(host: Any) -> NoReturn:
    raise RealProviderAsked(f"a connection to {host!r}: tests use ScriptedProvider, or a server on this machine")


def local(address: Any) -> bool:
    """Whether that names this machine; a path of a Unix socket does."""
    name = address if isinstance(address, str | bytes | None) else address[0]
    name = name.decode() if isinstance(name, bytes) else name
    if name in (None, "", "localhost") or (isinstance(name, str) and name.startswith(("/", "\0"))):
        return True
    try:
        return ipaddress.ip_address(str(name).partition("%")[0]).is_loopback
    except ValueError:
        return False


try:
    import pytest
except ImportError:  # pragma: no cover
    pass
else:

    @pytest.fixture
    def only_scripted() -> Iterator[None]:
        """No connection leaves this machine while the test runs."""
        with forbid_real_providers():
            yield

    @pytest.fixture
    def every_log_redecides() -> Iterator[None]:
        """Every log that the test's simulations and runtimes make is decided again behind it, and must come out the same."""
        with redecided():
            yield
