"""What a crash takes with it, and what must outlive it: answers, tools that ran, waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rewake.actors.providers import Request, ScriptedProvider
from rewake.actors.providers.scripted import digest
from rewake.actors.simulation import Simulation
from rewake.events import Log, Millis, ToolCalled, ToolReturned
from rewake.projections.fold import fold


def providers(sim: Simulation) -> list[Any]:
    named: Any = sim.providers
    return list(named.values()) if isinstance(named, dict) else [named]


def sent(sim: Simulation) -> set[str]:
    """The calls that its providers were sent."""
    return {request.call for provider in providers(sim) for request in getattr(provider, "requests", ())}


def interrupts(log: Log) -> bool:
    """Whether a tool is open that is not to run again."""
    once = set[str]()
    for recorded in log.read(kinds=["tool_called", "tool_returned"]):
        match recorded.event:
            case ToolCalled(tool_call=called, idempotent=False):
                once.add(called)
            case ToolReturned(tool_call=returned):
                once.discard(returned)
            case _:
                pass
    return bool(once)


def waits(log: Log) -> dict[str, tuple[int, int]]:
    """Each turn that is held, or waits for its gate: since when, and until when."""
    found: dict[str, tuple[int, int]] = {}
    for stream in log.streams():
        if stream.startswith("agent/"):
            holds = fold(log, "holds", stream=stream)
            if hold := holds.waiting:
                found[hold.turn] = hold.since, hold.until
            if gated := holds.gated:
                found[gated.turn] = gated.since, 0
    return found


class Memory:
    """What providers answered: an answer that a crash lost is given again for the same request, a failure too."""

    def __init__(self, now: Callable[[], Millis]) -> None:
        self.now = now
        self.asked: dict[str, tuple[str, Any, Millis]] = {}
        self.lost: dict[str, Any] = {}

    def of(self, provider: Any) -> None:
        if isinstance(provider, ScriptedProvider):
            provider._ask = self.remembered(provider._ask)
            provider._summarize = self.remembered(provider._summarize)

    def remembered(self, ask: Callable[[Request], Any]) -> Callable[[Request], Any]:
        def answer(request: Request) -> Any:
            key = f"{request.agent} {request.purpose} {request.turn} {request.step} {digest(request)}"
            if key in self.lost:
                item = self.lost.pop(key)
            else:
                try:
                    item = ask(request)
                except Exception as error:
                    item = error
            self.asked[request.call] = key, item, self.now()
            if isinstance(item, BaseException):
                raise item
            return item

        return answer

    def lose(self, log: Log) -> bool:
        """The process is gone: what is not in its log is not known. Whether that had taken time."""
        for recorded in log.read():
            if not recorded.kind.endswith(("_requested", "_interrupted")):
                for name in ("call", "request", "id"):
                    self.asked.pop(getattr(recorded.event, name, ""), None)
        lost = list(self.asked.values())
        self.lost |= {key: item for key, item, _ in lost}
        self.asked.clear()
        return any(at < self.now() for *_, at in lost)
