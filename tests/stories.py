"""What a test does to its simulations from outside: noted act by act while it runs, to be done again."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from msgspec import Struct, field

from rewake.actors.reports import Receipt
from rewake.actors.simulation import Simulation
from rewake.events import MemoryLog, MessageAdded, TurnStarted, Wake

LOOKS = frozenset({"agent", "events", "health", "kinds", "owed", "preview", "receipt", "reply_to", "state", "tail"})
"""Calls that change nothing."""
CALLS = [name for name, call in vars(Simulation).items() if name[0] != "_" and inspect.isfunction(call)]
MINTED = {Wake: "id", TurnStarted: "turn", MessageAdded: "id"}
"""What mints an id, and where it says so."""


class Got(Struct, frozen=True):
    """What the act of that number gave."""

    act: int


class Minted(Struct, frozen=True):
    """An id of the log: the one in that place among those that events of the kind minted in its agent's stream. Its version
    is another one where a crash has added events.
    """

    agent: str
    kind: type[Wake | TurnStarted | MessageAdded]
    place: int

    def found(self, sim: Simulation) -> str:
        """The id in that place of another life; of what never came to be where there is none."""
        ids = minted(sim, self.agent, self.kind)
        return ids[self.place] if self.place < len(ids) else f"{self.agent}/gone/0"


class Act(Struct, frozen=True):
    """A call, with what it was given; ids and receipts by where they came from."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Story(Struct):
    """What was done to the simulation in that place of its test."""

    place: int
    acts: list[Act] = field(default_factory=list[Act])
    given: list[Any] = field(default_factory=list[Any])


class Watcher(Protocol):
    """Is told of each simulation before it is made, and of each call before it is done."""

    def making(self, sim: Simulation, made_with: dict[str, Any]) -> None: ...

    def booting(self, sim: Simulation) -> None: ...

    def booted(self, sim: Simulation) -> None: ...

    def acting(self, sim: Simulation, name: str, call: Callable[..., Any], args: Any, kwargs: Any) -> Any: ...


@contextmanager
def watched(watcher: Watcher) -> Generator[None]:
    """Every simulation that is made inside tells the watcher."""
    patched: Any = Simulation
    real = {name: vars(Simulation)[name] for name in ("__init__", "_boot", *CALLS)}

    def init(self: Simulation, **made_with: Any) -> None:
        watcher.making(self, made_with)
        real["__init__"](self, **made_with)

    def boot(self: Simulation) -> None:
        watcher.booting(self)
        real["_boot"](self)
        watcher.booted(self)

    def telling(name: str) -> Callable[..., Any]:
        def act(self: Simulation, *args: Any, **kwargs: Any) -> Any:
            return watcher.acting(self, name, partial(real[name], self), args, kwargs)

        return act

    patched.__init__, patched._boot = init, boot
    for name in CALLS:
        setattr(patched, name, telling(name))
    try:
        yield
    finally:
        for name, call in real.items():
            setattr(patched, name, call)


class Notes:
    """Notes the acts of all simulations that live in memory: a file is its test's, which may do anything to it. What a tool
    or a callback calls from inside is no act.
    """

    def __init__(self) -> None:
        self.stories: list[Story] = []
        self.inside = False

    def making(self, sim: Simulation, made_with: dict[str, Any]) -> None:
        self.stories.append(Story(len(self.stories)))
        log = made_with.get("log")
        if log is None or isinstance(log, MemoryLog):
            vars(sim)["story"] = self.stories[-1]

    def booting(self, sim: Simulation) -> None:
        """Nothing is done to it yet."""

    def booted(self, sim: Simulation) -> None:
        """Nor now."""

    def acting(self, sim: Simulation, name: str, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        story: Story | None = vars(sim).get("story")
        if self.inside or story is None:
            return call(*args, **kwargs)
        if name not in LOOKS:
            refer = partial(referred, sim, story)
            story.acts.append(Act(name, tuple(map(refer, args)), {key: refer(one) for key, one in kwargs.items()}))
            story.given.append(None)
        self.inside = True
        try:
            given = call(*args, **kwargs)
        finally:
            self.inside = False
        if name not in LOOKS:
            story.given[-1] = given
        return given

    def told(self) -> list[Story]:
        """Each story once: many a test tells one with several seeds."""
        found: dict[str, Story] = {}
        for story in self.stories:
            if story.acts:
                found.setdefault(repr(story.acts), Story(story.place, story.acts))
        return list(found.values())


def referred(sim: Simulation, story: Story, value: Any) -> Any:
    """An argument, by where it came from."""
    if isinstance(value, Receipt):
        return Got(story.given.index(value)) if value in story.given else value
    if isinstance(value, str) and value.count("/") == 2:
        agent = value.partition("/")[0]
        for kind in MINTED:
            if value in (ids := minted(sim, agent, kind)):
                return Minted(agent, kind, ids.index(value))
    return value


def minted(sim: Simulation, agent: str, kind: type[Any]) -> list[str]:
    """The ids that events of a kind minted, in order, each once."""
    events = (one.event for one in sim.events(agent))
    return list(dict.fromkeys(getattr(one, MINTED[kind]) for one in events if isinstance(one, kind)))
