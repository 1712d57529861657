"""The pykka actor under every shell and the journal: a thread with a mailbox that rings one object's bell, now or later."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pykka

BELL = "bell"
MOMENT = 0.1
"""Seconds after which a bell rings that need not ring at once."""


class Worker(pykka.ThreadingActor):
    """Hands each message to `receive`. Nothing that it raises gets to pykka, which would drop the mailbox in silence."""

    use_daemon_thread = True

    @staticmethod
    def _create_actor_inbox() -> queue.SimpleQueue[Any]:
        """Nobody waits for room in it, nobody joins it: so the queue need not be one that can be waited for."""
        return queue.SimpleQueue()

    def __init__(self, receive: Callable[[Any], Any], end: Callable[[], None]) -> None:
        super().__init__()
        self.receive = receive
        self.end = end

    def on_receive(self, message: Any) -> Any:
        try:
            return self.receive(message)
        except BaseException as error:
            return error

    def on_stop(self) -> None:
        self.end()


class Rung:
    """An object whose queues are worked off by a worker of its own; it is rung once, however much comes meanwhile.

    Whoever puts something into a queue rings afterwards. A worker that has ended loses its bell: then whoever rings, and
    the end itself, call `dead`, and one of the two finds what was put.
    """

    def __init__(self) -> None:
        self.rung = False
        self.ended = False
        self.worker = Worker.start(self.receive, self.end)

    def receive(self, message: Any) -> Any:
        raise NotImplementedError

    def dead(self) -> None:
        """The worker has stopped: whoever waits is refused."""
        raise NotImplementedError

    def end(self) -> None:
        self.ended = True
        self.dead()

    def ring(self) -> None:
        if not self.rung:
            self.rung = True
            self.tell(BELL)
        if self.ended:
            self.dead()

    def tell(self, message: Any) -> None:
        try:
            self.worker.tell(message)
        except pykka.ActorDeadError:
            self.dead()


class Later:
    """Bells that need not ring at once: all of them ring together, a moment after the first. So whoever has much to read,
    little at a time, is not woken each time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.waiting: set[Rung] = set()
        self.armed = False

    def put(self, bell: Rung) -> None:
        """Called in any thread."""
        self.waiting.add(bell)
        if not self.armed:
            self.armed = True
            with suppress(RuntimeError):  # the loop is closed: nobody is woken any more
                self.loop.call_soon_threadsafe(self.loop.call_later, MOMENT, self.ring)

    def ring(self) -> None:
        """In the loop's thread. What is put from here on arms it anew."""
        self.armed = False
        while self.waiting:
            self.waiting.pop().ring()
