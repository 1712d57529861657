"""A story played again, in a world of its own, with crashes: what was not acknowledged is done again, as a client would."""

from __future__ import annotations

from asyncio import Future
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any, Literal

from rewake.actors.behaviour import Command, Key
from rewake.actors.orders import RunTool
from rewake.actors.ports import Ports
from rewake.actors.reports import Receipt
from rewake.actors.scheduling import Armed
from rewake.actors.simulation import Simulation
from rewake.events import Event, Millis, RewakeError
from rewake.scripts.soak import written
from tests.outliving import Memory, interrupts, providers, sent, waits
from tests.stories import LOOKS, Act, Got, Minted, Story

SETTLED = 2 * 86_400
"""Seconds of virtual time in which a story comes to its end."""
CAUGHT_UP = 3_600
"""Seconds of virtual time in which what a crash cut off is as far as it was without one."""
TIMES = frozenset({"advance", "run", "run_until_idle", "result", "run_once"})
"""Acts in which time passes, or everything runs that can."""
AGAIN = TIMES | {"push", "wake"}
"""Acts that are done again whatever is on disk: time goes on, and a key says what was pushed before."""
Side = Literal["before", "after"]
Point = tuple[int, Side]
"""A crash: at which append, and on which side of its commit."""


class Over(BaseException):
    """The story was played where its test would have gone on."""


class Play:
    """Plays a story on the simulation of its test that it was noted of, as soon as the test does something to it.

    `ended`: for each act of the play without a crash, which acts' wakes had ended behind it. `shifted`: a crash cut off what
    was under way, or lost an outcome that had taken time: that takes its time again, and a tool that is not to run again is
    over at once. What comes later meets another moment.
    """

    def __init__(self, story: Story, seed: int, crashes: tuple[Point, ...] = (), ended: list[set[int]] | None = None):
        self.story = story
        self.seed = seed
        self.sim: Simulation
        self.crashes = crashes
        self.expected = ended
        self.ended: list[set[int]] = []
        self.given: list[Any] = []
        self.armed: list[Armed] | None = None
        self.waiting = len(crashes)
        self.memory = Memory(lambda: self.sim._mono)
        self.ran = Counter[str]()
        self.shifted = False
        self.returned = -1
        self.error: BaseException | None = None
        self.over = False
        self.told = False
        self.made = 0
        self.before: set[str] = set()
        self.asked: tuple[str, int, set[type[Event]]] = ("", 0, set())

    @property
    def appends(self) -> int:
        """How many appends its log has."""
        return sum(row.rest == 0 for row in self.sim.log.raw())

    # -- the world is made by the test

    def making(self, sim: Simulation, made_with: dict[str, Any]) -> None:
        if self.made == self.story.place:
            self.sim = sim
            made_with["seed"] = self.seed
        self.made += 1

    def began(self, sim: Simulation) -> bool:
        return self.made > self.story.place and sim is self.sim

    def booting(self, sim: Simulation) -> None:
        if self.began(sim) and self.armed is None:
            self.armed = [Armed("*", nth, when) for nth, when in self.crashes]
            sim._armed += self.armed
            self.before = sent(sim)

    def booted(self, sim: Simulation) -> None:
        if self.began(sim) and not self.over and self.went_off(sim):
            self.over = True
            self.rise(sim)
            self.over = False

    def acting(self, sim: Simulation, name: str, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if name in LOOKS or not self.began(sim) or (self.over and not self.told):
            return call(*args, **kwargs)
        if not self.told:
            self.over = True
            try:
                with self.ports_watched():
                    self.tell(sim)
            except BaseException as error:
                self.error = error
            self.told = True
        raise Over  # also to what the test does on its way out: the world is as the story left it

    @contextmanager
    def ports_watched(self) -> Iterator[None]:
        """Note how often each call of a tool runs that is not to run twice, and what a crash cuts off."""
        patched: Any = Ports
        real = {name: vars(Ports)[name] for name in ("run_tool", "spawn")}

        def run_tool(ports: Ports, stream: str, order: RunTool) -> Any:
            tool = ports.equipment[order.agent].tools.get(order.name) if order.agent in ports.equipment else None
            if tool is not None and not tool.spec.idempotent:
                self.ran[order.tool_call] += 1
            return real["run_tool"](ports, stream, order)

        def spawn(ports: Ports, stream: str, key: Key, *more: Any) -> None:
            real["spawn"](ports, stream, key, *more)
            ports.tasks[stream, key].add_done_callback(partial(self.landed, key, self.sim._mono))

        patched.run_tool, patched.spawn = run_tool, spawn
        try:
            yield
        finally:
            for name, call in real.items():
                setattr(patched, name, call)

    def landed(self, key: Key, began: Millis, task: Future[None]) -> None:
        """An order's work is over, or cut off: by a crash, where one is going off."""
        took = self.sim._mono - began
        if task.cancelled():
            self.shifted |= took > 0 and self.going_off(self.sim)
        elif took and key[0] != "call":
            self.returned = self.sim._mono

    # -- the story

    def tell(self, sim: Simulation) -> None:
        vars(sim)["_ask"] = partial(self.ask, sim)
        vars(sim)["_tick"] = partial(self.tick, sim)
        for provider in providers(sim):
            self.memory.of(provider)
        for number, act in enumerate(self.story.acts):
            crashed = self.done(sim, number, act)
            self.ended.append(self.answered(sim) if sim.running and act.name in TIMES else set())
            if crashed and self.expected:
                self.catch_up(sim, self.expected[number])
        self.settle(sim)

    def done(self, sim: Simulation, number: int, act: Act) -> bool:
        """Do it until it is acknowledged; whether a crash went off on the way."""
        args, kwargs = self.arguments(sim, number, act)
        until = sim._mono + round(timedelta(**act.kwargs).total_seconds() * 1_000) if act.name == "advance" else 0
        crashed = False
        while True:
            if act.name == "restart" and sim.running:
                sim.crash()
            if act.name == "advance":
                args, kwargs = (), {"seconds": (until - sim._mono) / 1_000}
            try:
                given = getattr(sim, act.name)(*args, **kwargs)
            except RewakeError as refused:
                given = refused
            if not self.went_off(sim):
                self.given.append(given)
                if act.name == "restart" and any(one.kwargs.get("torn") for one in self.story.acts[:number]):
                    self.forget_torn(sim)
                return crashed
            crashed = True
            over = act.name in ("restart", "run_once") or (act.name not in AGAIN and self.embodied(sim))
            self.rise(sim)
            if over:
                self.given.append(None)
                return crashed

    def ask(self, sim: Simulation, stream: str, command: Command) -> Any:
        """Put a command to an actor, and note what it is to be embodied as."""
        kinds: set[type[Event]] = set()
        if cell := sim.scheduler.cells.get(stream):
            with suppress(Exception):
                kinds = {type(one) for one in cell.behaviour.accept(cell.incarnation.state, command)}
        self.asked = stream, sim.log.version(stream), kinds
        return Simulation._ask(sim, stream, command)

    def tick(self, sim: Simulation, mono: Millis) -> None:
        """Time goes on but for a process that a crash has just ended: it starts again at once."""
        if not (sim.crashed and self.going_off(sim)):
            Simulation._tick(sim, mono)

    def embodied(self, sim: Simulation) -> bool:
        """Whether what was asked last is on disk: whoever was not answered can see that."""
        stream, version, kinds = self.asked
        later = (one for one in sim.log.read(stream=stream) if one.version > version)
        return any(one.cause is None and type(one.event) in kinds for one in later)

    def forget_torn(self, sim: Simulation) -> None:
        """A receipt for what a torn write has taken with it is none: that power cut is the story's own."""
        self.given = [None if isinstance(one, Receipt) and not written(sim.log, one) else one for one in self.given]

    def arguments(self, sim: Simulation, number: int, act: Act) -> tuple[list[Any], dict[str, Any]]:
        """What the act is given in this life; a push and a wake have a key, an abort has its turn."""
        args = [self.found(sim, one) for one in act.args]
        kwargs = {key: self.found(sim, one) for key, one in act.kwargs.items()}
        if act.name in ("push", "wake") and kwargs.get("dedupe_key") is None:
            kwargs["dedupe_key"] = f"act {number}"
        if act.name == "abort" and "turn" not in kwargs and sim.running:
            kwargs["turn"] = next((one.turn for one in sim.health().agents if one.agent == act.args[0]), None)
        return args, kwargs

    def found(self, sim: Simulation, value: Any) -> Any:
        match value:
            case Got(act):
                return self.given[act]
            case Minted():
                return value.found(sim)
            case _:
                return value

    def answered(self, sim: Simulation) -> set[int]:
        """The acts whose wakes have ended."""
        owed = {pending.id for state in sim._states("agent/*").values() for pending in state.wakes.owed}
        return {number for number, given in self.receipts() if given.wake and given.wake not in owed}

    def receipts(self) -> list[tuple[int, Receipt]]:
        return [(number, one) for number, one in enumerate(self.given) if isinstance(one, Receipt)]

    def catch_up(self, sim: Simulation, ended: set[int]) -> None:
        """Wait for the answers that had come by now without the crash."""
        for number, receipt in self.receipts():
            if number in ended and receipt.wake:
                while sim.running:
                    sim.result(receipt, timeout=CAUGHT_UP)
                    if not self.went_off(sim):
                        break
                    self.rise(sim)

    def settle(self, sim: Simulation) -> None:
        """Whatever the story left, a process runs until nothing can."""
        while True:
            if self.went_off(sim):
                self.rise(sim)
            while not sim.running:
                sim.restart()
            sim.run_until_idle(timeout=SETTLED)
            if sim.running:
                return

    # -- crashes

    def went_off(self, sim: Simulation) -> bool:
        """Whether one of the crashes of this play has gone off just now."""
        went = sim.crashed and self.going_off(sim)
        self.waiting = self.left(sim)
        return went

    def going_off(self, sim: Simulation) -> bool:
        return self.left(sim) < self.waiting

    def left(self, sim: Simulation) -> int:
        """The crashes that have not gone off yet."""
        return sum(any(one is armed for armed in sim._armed) for one in self.armed or ())

    def rise(self, sim: Simulation) -> None:
        """Start again: what was sent was on disk; what waits, waits as before; lost answers are given again."""
        while True:
            ordered = {getattr(one.event, "call", "") or getattr(one.event, "id", "") for one in sim.events()}
            early = sent(sim) - self.before - ordered
            assert not early, f"sent, and not on disk: {early}"
            self.shifted |= self.memory.lose(sim.log) or self.returned == sim._mono or interrupts(sim.log)
            before = waits(sim.log)
            sim.restart()
            now = waits(sim.log)
            kept = {turn: since for turn, since in before.items() if turn in now}
            assert kept == {turn: now[turn] for turn in kept}, f"waits since {kept}, then {now}"
            if not self.went_off(sim):
                return
