"""The calls that people make, written once: the runtime and the simulation differ only in how an actor is asked and
time passes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator
from datetime import timedelta
from difflib import get_close_matches
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from rewake.actors.agent.commands import Configure, Push, ReleaseQuarantine, Rouse
from rewake.actors.agent.ending import DISPOSED
from rewake.actors.agent.previewing import preview
from rewake.actors.agent.state import Agent
from rewake.actors.behaviour import Command
from rewake.actors.config import (
    LIVING,
    AgentConfig,
    Providers,
    RuntimeOptions,
    all_providers,
    check_budget,
    milliseconds,
    resolve,
    seconds,
)
from rewake.actors.contents import Content, blocks_of, flag, moment_or_none, text, text_or_none
from rewake.actors.drain import Drain
from rewake.actors.gate import ReleaseWait
from rewake.actors.incarnation import Answer
from rewake.actors.owing import Owed, owed
from rewake.actors.reports import (
    Alert,
    Health,
    IdleReport,
    QuarantineReleased,
    Receipt,
    Result,
    WaitsReleased,
    agent_health,
    drain_health,
    gate_health,
    outcome,
    wake_of,
)
from rewake.events import (
    GateOpened,
    InvalidSetting,
    Log,
    MessageAdded,
    Millis,
    NoWake,
    Recorded,
    Released,
    RuntimeStopped,
    Text,
    TurnStarted,
    UnknownAgent,
    Wake,
    WakeWithdrawn,
)
from rewake.events.turns import TurnEnd
from rewake.projections import pricing
from rewake.projections.plan import Plan, Refusal
from rewake.projections.turns import absent
from rewake.projections.wakes import ending, known

T = TypeVar("T")
A = TypeVar("A", Agent, Drain)

Duration = float | timedelta | None
"""Seconds, a timedelta, or None: for ever."""


class Surface(ABC):
    """Everything that can be asked of agents, over four ways to reach them that a subclass has."""

    log: Log
    providers: Providers
    options: RuntimeOptions
    _configs: dict[str, AgentConfig]

    @abstractmethod
    def _ask(self, stream: str, command: Command) -> Answer:
        """Put a command to an actor and wait for what became of it; a refusal is raised."""

    @abstractmethod
    def _states(self, pattern: str) -> dict[str, Any]:
        """The adopted states of the actors of these streams."""

    @abstractmethod
    def _until(self, done: Callable[[], bool], timeout: Duration, stream: str | None = None) -> bool:
        """Let time pass until it is so, or the timeout has gone by; `stream`: only what that actor does can make it so."""

    @abstractmethod
    def _now(self) -> Millis:
        """Process time, UTC milliseconds."""

    @abstractmethod
    def _alerts(self) -> tuple[Alert, ...]:
        """The newest alerts of this process."""

    def push(
        self,
        agent: str,
        content: Content,
        *,
        channel: str | None = None,
        author: str | None = None,
        addressed: bool = True,
        wake: bool = True,
        dedupe_key: str | None = None,
    ) -> Receipt:
        """Say something to an agent; durable when it returns. With `wake` it is owed a turn.

        The same `dedupe_key` again within 7 days gives the first receipt. Raises UnknownAgent, InvalidContent,
        EventTooLarge; then nothing was appended.
        """
        state = self._agent(agent)
        blocks = blocks_of(content)
        encoding = state.live.encoding
        said = Push(
            blocks,
            pricing.price_all(blocks, encoding),
            encoding,
            text_or_none("channel", channel),
            text_or_none("author", author),
            flag("addressed", addressed),
            flag("wake", wake),
            text_or_none("dedupe_key", dedupe_key),
        )
        return self._receipt(state.stream, dedupe_key, self._ask(state.stream, said))

    def wake(
        self,
        agent: str,
        reason: str,
        *,
        channel: str | None = None,
        author: str | None = None,
        addressed: bool = False,
        wake_at: Millis | None = None,
        silent: bool = False,
        dedupe_key: str | None = None,
    ) -> Receipt:
        """Wake an agent without a message: it is owed a turn. `wake_at` (UTC milliseconds) is when it was meant for."""
        state = self._agent(agent)
        said = Rouse(
            text("reason", reason),
            text_or_none("channel", channel),
            text_or_none("author", author),
            flag("addressed", addressed),
            moment_or_none("wake_at", wake_at),
            flag("silent", silent),
            text_or_none("dedupe_key", dedupe_key),
        )
        return self._receipt(state.stream, dedupe_key, self._ask(state.stream, said))

    def _receipt(self, stream: str, key: str | None, answer: Answer) -> Receipt:
        if answer.recorded:
            events = [recorded.event for recorded in answer.recorded]
            first = events[0]  # a later message is one of what followed: a failed turn's marker
            message = first.id if isinstance(first, MessageAdded) else None
            wake = next((one.id for one in events if isinstance(one, Wake)), None)
            return Receipt(answer.recorded[0].seq, message, wake)
        seen = known(answer.state.wakes, key, 0)
        if seen is None:
            raise LookupError(f"{stream} took a command in without an event")
        first = next(one for one in self.log.read(stream=stream) if one.version == seen.version)
        return Receipt(first.seq, seen.message, seen.wake)

    def result(self, receipt: Receipt, timeout: Duration = None) -> Result:
        """What became of this receipt's wake, waiting for it alone; past the timeout, what it is now. Raises NoWake."""
        wake = wake_of(receipt)
        ended = partial(self._ended, wake)
        if not ended():
            self._until(ended, timeout, f"agent/{wake.partition('/')[0]}")
        return self._outcome(wake)

    def reply_to(self, receipt: Receipt) -> str | None:
        """The text that answered this receipt, if it has been answered."""
        return self.result(receipt, 0).text

    def receipt(self, wake: str) -> Receipt:
        """The receipt of a wake, found again by its id."""
        stream = self._known(wake.partition("/")[0]).stream
        said = 0
        for recorded in self.log.read(stream=stream, kinds=["message_added", "wake"]):
            match recorded.event:
                case MessageAdded(turn=None):
                    said = recorded.seq
                case Wake(id=id, message=message) if id == wake:
                    return Receipt(said if message else recorded.seq, message, id)
                case _:
                    pass
        raise NoWake(f"there is no wake {wake}")

    def _ended(self, wake: str) -> bool:
        """Whether nothing is owed for this wake any more, if there is such a one."""
        return all(one.id != wake for one in self._known(wake.partition("/")[0]).wakes.owed)

    def _outcome(self, wake: str) -> Result:
        state = self._seen(self._known(wake.partition("/")[0]))
        return outcome(state, wake, self._drain(state.name)) or self._older(state, wake)

    def _older(self, state: Agent, wake: str) -> Result:
        """A wake that ended long ago, read from the log."""
        turn, answers = "", dict[str, str]()
        for recorded in self.log.read(stream=state.stream):
            event = recorded.event
            match event:
                case MessageAdded(role="assistant", turn=str(made), blocks=blocks):
                    answers[made] = "\n".join(block.text for block in blocks if isinstance(block, Text))
                case TurnStarted(wakes, started) if wake in wakes:
                    turn = started
                case WakeWithdrawn(wakes, why) if wake in wakes:
                    return Result("withdrawn", None, None, why)
                case _ if isinstance(event, TurnEnd) and turn and event.turn == turn:
                    ended = ending(event)
                    return Result(ended.state, answers.get(turn), turn, ended.why)
                case _:
                    pass
        raise NoWake(f"there is no wake {wake}")

    def owed(self, agent: str | None = None) -> list[Owed]:
        """Every wake that has not ended: its state, why, since when, its next time, and what ends the wait."""
        states = [self._known(agent)] if agent else self._agents()
        return [one for state in states for one in owed(self._seen(state), self._drain(state.name))]

    def run_until_idle(self, timeout: Duration = None) -> IdleReport:
        """Wait until nothing runs and nothing can; retries and the compression that a hold waits for are waited for.

        So is a provider's gate that opens within the timeout.
        """
        return self._report(self._until(partial(self._idle, self._ending(timeout)), timeout))

    def _ending(self, timeout: Duration) -> Millis | None:
        return None if timeout is None else self._now() + round(seconds(timeout) * 1_000)

    def _report(self, idle: bool) -> IdleReport:
        left = self.owed()

        def those(state: str) -> tuple[str, ...]:
            return tuple(one.wake for one in left if one.state == state)

        return IdleReport(idle, those("held"), those("gated"), those("owed"))

    def configure(
        self,
        agent: str,
        *,
        immediate: bool = False,
        allow_infeasible: bool = False,
        by: str | None = None,
        **changes: Any,
    ) -> Plan | Refusal:
        """Change settings of a living agent: its budget, its windows, the pace, `model`, `provider`, `max_tokens` and
        `hold_stall_after` (seconds).

        A lower budget is come down to compile by compile, with `immediate` at once. The answer is that of `preview`
        afterwards. Raises InvalidSetting, or BudgetInfeasible where an immediate cut would refuse the present context
        (`allow_infeasible=True` makes it all the same); then nothing was appended.
        """
        state = self._agent(agent)
        given = self._checked(state, changes)
        said = Configure(given, immediate, allow_infeasible, text_or_none("by", by))
        return preview(self._ask(state.stream, said).state)

    def preview(self, agent: str, **settings: Any) -> Plan | Refusal:
        """What the agent's next compile would give, had these settings been changed at once; nothing is committed.

        `fits` says whether there would be a request. `tokens` is what its history takes, `room`, `bound` and `window_room`
        what there is for it, `bounds.overhead` what goes beside it; `live_room` is what the present budget leaves,
        `target_room` what the one leaves that is asked for. Raises InvalidSetting.
        """
        state = self._agent(agent)
        return preview(state, self._checked(state, settings))

    def _checked(self, state: Agent, changes: dict[str, Any]) -> dict[str, Any]:
        """Settings from outside as they are recorded. Raises InvalidSetting."""
        given = checked(state, changes)
        if "model" in given or "provider" in given:
            named = given.get("provider")
            given["provider"] = resolve(self.providers, given.get("model", state.live.model), named).name
        return given

    def release_quarantine(self, agent: str, *, by: str | None = None) -> QuarantineReleased:
        """What compression gave up of an agent's history is tried again. Where nothing was given up nothing is recorded."""
        said = ReleaseQuarantine(text_or_none("by", by))
        recorded = self._ask(f"drain/{self._agent(agent).name}", said).recorded
        return QuarantineReleased(
            agent, sum(len(one.event.digests) for one in recorded if isinstance(one.event, Released))
        )

    def release(self, provider: str, model: str | None = None, *, by: str | None = None) -> WaitsReleased:
        """Open a provider's gate now, for one model or for all that wait: the next call goes first, then the others.

        Tells which models that was; where nothing waited nothing is recorded. Raises InvalidSetting for a provider that
        there is not.
        """
        if f"gate/{provider}" not in self._states("gate/*"):
            raise InvalidSetting("provider", provider, f"there are {', '.join(sorted(all_providers(self.providers)))}")
        said = ReleaseWait(text_or_none("model", model), text_or_none("by", by))
        recorded = self._ask(f"gate/{provider}", said).recorded
        return WaitsReleased(provider, tuple(one.event.model for one in recorded if isinstance(one.event, GateOpened)))

    def state(self, projection: str, agent: str | None = None) -> Any:
        """A projection's state as its actor has it now: `agent` names the agent, or the provider for `gates`."""
        if projection == "host":
            return self._states("host")["host"]
        if projection == "gates":
            name = agent or next(iter(all_providers(self.providers)))
            return self._states(f"gate/{name}")[f"gate/{name}"].gate
        if agent is None:
            raise UnknownAgent("", f"{projection} is an agent's: name one")
        state: Any = self._known(agent)
        if projection == "compression":
            state = self._states(f"drain/{agent}")[f"drain/{agent}"]
        if not hasattr(state, projection) or projection in ("name", "version", "live", "stream", "turn"):
            raise InvalidSetting("projection", projection, "no actor has a state of that name")
        return getattr(state, projection)

    def health(self) -> Health:
        """What every agent, gate and drain does now, and what it waits for."""
        gates = tuple(gate_health(state) for state in self._states("gate/*").values())
        drains = tuple(drain_health(self._seen(state)) for state in self._states("drain/*").values())
        now, configs = self._now(), self._configs
        agents = tuple(
            agent_health(self._seen(one), self._drain(one.name), now, one.name in configs) for one in self._agents()
        )
        return Health(agents, gates, drains, self._alerts())

    def tail(
        self, after: int = 0, follow: bool = False, agent: str | None = None, kinds: Iterable[str] | None = None
    ) -> Iterator[Recorded]:
        """The events of the log after a seq, in order; with `follow` the new ones too, as they come. Raises UnknownAgent."""
        return self._tailed(after, follow, self._stream(agent), kinds)

    def _stream(self, agent: str | None) -> str | None:
        """An agent's stream, if it lives or has lived; None: every stream. Raises UnknownAgent where there is none."""
        stream = f"agent/{agent}" if agent else None
        if agent and stream not in self.log.streams():
            raise UnknownAgent(agent)
        return stream

    def _tailed(self, after: int, follow: bool, stream: str | None, kinds: Iterable[str] | None) -> Iterator[Recorded]:
        wanted = None if kinds is None else tuple(kinds)
        while True:
            head = self.log.head()
            yield from self.log.read(after, stream, wanted, head)
            after = max(after, head)
            try:
                if not follow or not self._until(partial(self._grown, after), None):
                    return
            except RuntimeStopped:
                return

    def _grown(self, after: int) -> bool:
        """Whether the log has events after this seq."""
        return self.log.head() > after

    def _agent(self, name: str) -> Agent:
        """An agent that takes something in. Raises UnknownAgent."""
        found = self._known(name)
        if found.settings.disposed:
            raise UnknownAgent(name, DISPOSED)
        return found

    def _known(self, name: str) -> Agent:
        """An agent, disposed or not. Raises UnknownAgent."""
        found = self._states(f"agent/{name}").get(f"agent/{name}")
        if found is None or found.settings.live is None:
            there = [one.removeprefix("agent/") for one in self._states("agent/*")]
            raise UnknownAgent(name, there=get_close_matches(str(name), there))
        return found

    def _agents(self) -> list[Agent]:
        return list(self._states("agent/*").values())

    def _drain(self, name: str) -> Drain | None:
        found = self._states(f"drain/{name}").get(f"drain/{name}")
        return found and self._seen(found)

    def _seen(self, state: A) -> A:
        """A state with what the host says by now: an actor that idles, or is parked, has not taken that in."""
        return replace(state, host=self._states("host")["host"])

    def _idle(self, until: Millis | None = None) -> bool:
        return not self._busy(until)

    def _busy(self, until: Millis | None = None) -> bool:
        """Whether something runs or can: a turn, a wake that may start one, compression that a hold waits for; or may once
        a gate has opened, before `until`.
        """
        drains, parked = self._states("drain/*"), self._states("host")["host"].parked
        return any(busy(state, drains.get(f"drain/{state.name}"), parked, until) for state in self._agents())


def busy(state: Agent, drain: Drain | None, parked: Container[str], until: Millis | None) -> bool:
    if state.stream in parked or state.settings.missing:
        return False
    if gated := state.holds.gated:
        return gated.why != "quiesced" and not state.host.quiesced and opens(state, gated.provider, gated.model, until)
    if state.holds.waiting:
        if drain is None or f"drain/{state.name}" in parked:
            return False
        if gated := drain.compression.gated:
            return opens(state, gated.provider, gated.model, until)
        paused = drain.compression.paused_until > 0 and drain.compression.passing is None
        return not paused
    if absent(state.turns.running):
        return False
    waits = any(one.turn is None for one in state.wakes.owed) and not state.host.quiesced
    return state.turns.running is not None or waits


def opens(state: Agent, provider: str, model: str, until: Millis | None) -> bool:
    """Whether calls for the model go by that time, as far as is known: None is for ever."""
    gate = state.gates.get(provider)
    lane = gate.lanes.get(model) if gate else None
    if lane is None or lane.state != "closed":
        return True
    return lane.until is not None and (until is None or lane.until <= until)


def checked(state: Agent, changes: dict[str, Any]) -> dict[str, Any]:
    """Settings from outside as they are recorded. Raises InvalidSetting for those that can not be."""
    live = state.live
    for name, value in changes.items():
        if name not in LIVING:
            why = "it can not change while the agent lives" if hasattr(live, name) else "there is no such setting"
            raise InvalidSetting(name, value, f"{why}; these can: {', '.join(sorted(LIVING))}")
    present = {name: getattr(live, name) for name in LIVING if hasattr(live, name)}
    AgentConfig(name=live.name, **(present | changes))
    target = state.settings.target
    if target is not None and "context_budget_tokens" not in changes and "max_tokens" in changes:
        check_budget(target, changes["max_tokens"])
    given = dict(changes)
    if "hold_stall_after" in given:
        given["hold_stall_after_ms"] = milliseconds(given.pop("hold_stall_after"))
    return given
