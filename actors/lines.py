"""A provider's line: the calls that wait to be sent, in the order in which they go, and those in flight."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from rewake.actors.agent.commands import NotSent
from rewake.actors.behaviour import Key
from rewake.actors.orders import Admit, Infer
from rewake.events import Failure
from rewake.projections.gates import closes_gate, shut


@dataclass
class Waiting:
    """A call that is ordered and not sent."""

    stream: str
    key: Key
    order: Infer


@dataclass
class Line:
    """One provider's calls: those that wait, turns before compression; those in flight, counted by model; and the models of
    those whose failures close the gate, until it has taken them in. `strict`: some calls are refused at present.
    """

    turns: deque[Waiting] = field(default_factory=deque[Waiting])
    others: deque[Waiting] = field(default_factory=deque[Waiting])
    admit: Admit | None = None
    flying: Counter[str] = field(default_factory=Counter[str])
    unheard: dict[str, str] = field(default_factory=dict[str, str])
    strict: bool = False

    @property
    def version(self) -> int:
        """The version of the gate that admits."""
        return self.admit.gate.version if self.admit else 0

    def put(self, waiting: Waiting) -> None:
        (self.turns if waiting.order.purpose == "turn" else self.others).append(waiting)

    def drop(self, stream: str, key: Key) -> None:
        """A call is not wanted any more; what became of it is nobody's business then."""
        for queue in (self.turns, self.others):
            for waiting in [one for one in queue if one.stream == stream and one.key == key]:
                queue.remove(waiting)
        if key[0] == "call":
            self.unheard.pop(str(key[1]), None)

    def take(self, admit: Admit) -> None:
        """What the gate says from now on."""
        self.admit = admit
        self.strict = not admit.fresh or any(lane.state in ("closed", "probing") for lane in admit.gate.lanes.values())
        for call in admit.gate.heard:
            self.unheard.pop(call, None)

    def failed(self, waiting: Waiting, error: Failure) -> None:
        """A call has failed: when that closes the gate nothing more goes for its model until the gate has said so."""
        if closes_gate(error):
            self.unheard[waiting.order.call] = waiting.order.model

    def refused(self) -> list[tuple[str, NotSent]]:
        """The calls that are not to go as things are, each with its stream: they leave the line."""
        admit, found = self.admit, list[tuple[str, NotSent]]()
        if admit is None or not self.strict:
            return found
        for queue in (self.turns, self.others):
            for waiting in [one for one in queue if refuses(admit, one)]:
                queue.remove(waiting)
                call, lane = waiting.order.call, admit.gate.lanes.get(waiting.order.model)
                stops = shut(admit.gate, waiting.order.model, waiting.stream)
                why = lane.why if lane and stops else "quiesced"
                found.append((waiting.stream, NotSent(call, admit.gate.version, why, admit.host_version)))
        return found

    def next(self) -> Waiting | None:
        """The next call to send: ordered and admitted, turns first, first come first served within each."""
        admit = self.admit
        if admit is None or (admit.limit and self.flying.total() >= admit.limit):
            return None
        for queue in (self.turns, self.others):
            for waiting in queue:
                if self.goes(waiting, admit):
                    queue.remove(waiting)
                    return waiting
        return None

    def goes(self, waiting: Waiting, admit: Admit) -> bool:
        model = waiting.order.model
        stopped = waiting.order.fresh and not admit.fresh  # if the gate has yet to hear of a resume it waits here
        if stopped or refuses(admit, waiting) or model in self.unheard.values():
            return False
        lane = admit.gate.lanes.get(model)
        return lane is None or lane.limit is None or self.flying[model] < lane.limit


def refuses(admit: Admit, waiting: Waiting) -> bool:
    """Whether a call is given back. One whose sender knows more of the host than the gate does is not."""
    order = waiting.order
    parks = order.fresh and not admit.fresh and admit.host_version >= order.host_version
    return parks or shut(admit.gate, order.model, waiting.stream)
