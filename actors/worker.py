"""The pykka actor under every shell and the journal: a thread with a mailbox that rings one object's bell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pykka

BELL = "bell"


class Worker(pykka.ThreadingActor):
    """Hands each message to `receive`. Nothing that it raises gets to pykka, which would drop the mailbox in silence."""

    use_daemon_thread = True

    def __init__(self, receive: Callable[[Any], Any]) -> None:
        super().__init__()
        self.receive = receive

    def on_receive(self, message: Any) -> Any:
        try:
            return self.receive(message)
        except BaseException as error:
            return error


class Rung:
    """An object whose queues are worked off by a worker of its own; it is rung once, however much comes meanwhile."""

    def __init__(self) -> None:
        self.rung = False
        self.worker = Worker.start(self.receive)

    def receive(self, message: Any) -> Any:
        raise NotImplementedError

    def dead(self) -> None:
        """Rung after its worker has stopped: whoever waits is refused."""
        raise NotImplementedError

    def ring(self) -> None:
        if not self.rung:
            self.rung = True
            self.tell(BELL)

    def tell(self, message: Any) -> None:
        try:
            self.worker.tell(message)
        except pykka.ActorDeadError:
            self.dead()
