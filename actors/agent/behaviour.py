"""The agent's behaviour: what comes in is embodied, what follows is decided, what is wanted of the world is listed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from rewake.actors.agent.calling import (
    after_answer,
    after_failure,
    answered,
    completed,
    failed,
    first_request,
    prepared,
    request,
)
from rewake.actors.agent.commands import (
    Abort,
    Answered,
    Cancel,
    Configure,
    Dispose,
    Failed,
    NotSent,
    Prepared,
    Push,
    Returned,
    Rouse,
    Start,
)
from rewake.actors.agent.configuring import configured
from rewake.actors.agent.ending import aborted, after_withdrawal, cancelled, disposed, refused
from rewake.actors.agent.equipping import LOG, Process, reconfigured, restarted, started, without
from rewake.actors.agent.gating import freed, kept_back, not_sent, passed_on, reported
from rewake.actors.agent.holding import after_refusal, due, look, looked, times
from rewake.actors.agent.outgrowing import outgrown
from rewake.actors.agent.pacing import reached
from rewake.actors.agent.planning import compile
from rewake.actors.agent.previewing import coming
from rewake.actors.agent.rendering import render
from rewake.actors.agent.retrying import wait_or_end
from rewake.actors.agent.sayings import Sayings
from rewake.actors.agent.state import Agent, evolve
from rewake.actors.agent.tooling import returned, round_of
from rewake.actors.agent.waking import boundary, mine, next_turn, placing, push, rouse
from rewake.actors.behaviour import Behaviour, Command, Due, Follow, Key, Order, Restarted, Timer
from rewake.actors.orders import Ask, Infer, RunTool
from rewake.events import (
    AgentConfigured,
    AgentDisposed,
    Alerted,
    CalibrationSampled,
    Compiled,
    Compressed,
    DrainPassed,
    Event,
    GateClosed,
    GateOpened,
    Held,
    HoldDue,
    HoldEnded,
    HoldLooked,
    InferenceCompleted,
    InferenceFailed,
    InferenceInterrupted,
    InferenceRequested,
    MessageAdded,
    MessageEdited,
    MessagePlaced,
    MessageRemoved,
    ProviderHeld,
    ProviderReleased,
    ProviderTried,
    Quarantined,
    Quiesced,
    Recorded,
    Refused,
    Released,
    Resumed,
    RetryDue,
    SettingChanged,
    ToolCalled,
    ToolReturned,
    TurnDeclined,
    TurnPrepared,
    TurnStarted,
    UndoPoint,
    UsageRecorded,
    Wake,
    WakeWithdrawn,
)
from rewake.events.messages import ERROR_POLICY
from rewake.events.turns import TURN_ENDS
from rewake.projections import compression, gates, host
from rewake.projections.turns import Turn, absent, open_tools

NOTHING_FOLLOWS = frozenset(
    {UndoPoint, InferenceRequested, ToolCalled, CalibrationSampled, UsageRecorded, ProviderTried, Alerted}
)
"""Kinds that are looked up before any `match`: the most frequent ones."""


def agent(name: str, process: Process = LOG) -> Behaviour[Agent]:
    """The behaviour of the agent of that name, with what the running process has for it: asked where something comes in."""
    return Behaviour(
        stream=f"agent/{name}",
        state=Agent,
        initial=lambda: Agent(name),
        evolve=evolve,
        accept=partial(accept, process=process),
        react=react,
        orders=partial(orders, sayings=Sayings()),
        follows=(
            Follow(f"drain/{name}", compression.KINDS, frozenset({Compressed, DrainPassed, Quarantined, Released})),
            Follow("host", host.KINDS, frozenset({Quiesced, Resumed})),
            Follow("gate/*", gates.KINDS, frozenset({GateClosed, GateOpened})),
        ),
    )


def accept(state: Agent, command: Command, process: Process = LOG) -> Sequence[Event]:
    """Embody what comes from outside, or refuse it with a typed error."""
    if state.settings.disposed:
        return gone(state, command)
    match command:
        case Push():
            return push(state, command)
        case Rouse():
            return rouse(state, command)
        case Answered():
            return answered(state, command)
        case Failed():
            return failed(state, command, process.policy)
        case NotSent():
            return not_sent(state, command)
        case Returned():
            return returned(state, command)
        case Prepared():
            return prepared(state, command, process.policy)
        case Due(key):
            return came_due(state, key)
        case Configure():
            return reconfigured(state, configured(state, command), process)
        case Start():
            return started(state, command, process)
        case Abort():
            return aborted(state, command)
        case Cancel():
            return cancelled(state, command)
        case Dispose():
            return disposed(state, command)
        case Restarted():
            return restarted(state, process)
        case _:
            raise TypeError(f"{state.stream} takes no {type(command).__name__}")


def react(state: Agent, recorded: Recorded) -> Sequence[Event]:
    """Decide what follows from one event."""
    event = recorded.event
    if state.settings.missing:
        return without(state, recorded)
    if type(event) in TURN_ENDS:
        return boundary(state) or passed_on(state)
    if type(event) in NOTHING_FOLLOWS:
        return []
    match event:  # the kinds that every turn has come first
        case TurnStarted():
            asked = asks(state) and not state.turn.admitted
            return kept_back(state, recorded.at) or ([] if asked else start(state))
        case Compiled():
            return first_request(state)
        case InferenceCompleted():
            return [*reported(state, event), *after_answer(state, event, recorded.at)]
        case MessageAdded(turn=str(turn)) if ends_round(state, event, turn):
            return after_round(state)
        case MessageAdded(woke=True):
            return []
        case MessageAdded():
            return look(state, recorded)
        case Wake(message=str()) if state.holds.waiting:
            return look(state, recorded)
        case Wake():
            return next_turn(state)
        case ToolReturned():
            return round_of(state, event)
        case HoldEnded(why="cancelled" | "stopped") | ProviderReleased(why="cancelled" | "stopped"):
            return []
        case ProviderReleased():
            return next_turn(state)
        case Resumed():
            return freed(state) or next_turn(state)
        case MessagePlaced():
            return goes_on(state) if state.turns.running else next_turn(state) or passed_on(state)
        case SettingChanged(more=True) | MessageRemoved(more=True):
            return []
        case SettingChanged() | AgentConfigured() if goes := freed(state):
            return goes
        case WakeWithdrawn():
            return after_withdrawal(state, recorded.at, event)
        case SettingChanged() | AgentConfigured() if asking(state) and not asks(state):
            return start(state)
        case SettingChanged() | AgentConfigured() if absent(state.turns.running):
            return again(state)
        case AgentConfigured():
            return look(state, recorded) or next_turn(state)
        case SettingChanged() if made := reached(state, coming(state)):
            return [made]
        case MessageEdited(by=by) if by == ERROR_POLICY and state.turns.running:
            return compile(state)
        case MessageEdited() | MessageRemoved() | SettingChanged():
            return look(state, recorded)
        case Compressed() | DrainPassed() | Quarantined() | Released():
            return look(state, recorded)
        case TurnPrepared(error=failure, retry_ms=delay) if failure:
            return wait_or_end(state, recorded.at, failure, delay)
        case TurnPrepared(turn, admitted=admitted):
            return start(state) if admitted else [TurnDeclined(turn, state.turn.wakes)]
        case Refused():
            return after_refusal(state, recorded, event)
        case HoldLooked():
            return looked(state, recorded)
        case HoldDue(what=what):
            return due(state, recorded, what)
        case HoldEnded():
            return next_turn(state)
        case InferenceFailed():
            return after_failure(state, recorded, event)
        case ProviderHeld():
            return freed(state)
        case GateOpened():
            return freed(state) or passed_on(state)
        case Held():
            return passed_on(state)
        case InferenceInterrupted():
            return [request(state)]
        case RetryDue():
            return again(state)
        case AgentDisposed():
            return passed_on(state)
        case _:
            return []


def orders(state: Agent, sayings: Sayings | None = None) -> Mapping[Key, Order]:
    """What the world is asked for now: the open call, the open tools, the time of a retry, the times of a hold. Of an agent
    that waits for its configuration nothing: it stands where it stood.
    """
    wanted: dict[Key, Order] = {}
    if state.settings.missing:
        return wanted
    if hold := state.holds.waiting:
        wanted |= {("hold", hold.turn, due_at, what): Timer(due_at) for what, due_at in times(state, hold).items()}
    if turn := state.turns.running:
        wanted.update(turn_orders(state, turn, sayings))
    return wanted


def turn_orders(state: Agent, turn: Turn, sayings: Sayings | None = None) -> Mapping[Key, Order]:
    live = state.live
    if call := turn.call:
        infer = Infer(
            call.call,
            state.stream,
            "turn",
            call.provider,
            call.model,
            turn.fresh,
            live.call_timeout_ms / 1_000,
            partial(render, state, call, sayings),
            state.host.moved,
        )
        return {("call", call.call): infer}
    if turn.retry:
        return {("retry", turn.id, turn.attempt, turn.failures, turn.retry.at): Timer(turn.retry.at)}
    if turn.stage == "starting" and asks(state):
        wakes = mine(state, turn.wakes)
        ask = Ask(
            state.name,
            turn.id,
            turn.attempt,
            wakes,
            turn.channel,
            turn.trigger,
            live.system,
            live.encoding,
            live.call_timeout_ms / 1_000,
        )
        return {("ask", turn.id, turn.attempt, turn.failures): ask}
    return {("tool", one.id): RunTool(state.name, turn.id, one.id, one.name, one.arguments) for one in open_tools(turn)}


def gone(state: Agent, command: Command) -> list[Event]:
    """What a disposed agent makes of a command: an outcome or a restart is nothing, anything else is refused."""
    if isinstance(command, Restarted | Due | Prepared) or command.ends:
        return []
    raise refused(state, isinstance(command, Start))


def came_due(state: Agent, key: Key) -> list[Event]:
    """A timer's time has come: a hold's deadline, a retry's delay."""
    turn, hold = state.turns.running, state.holds.waiting
    match key:
        case ("hold", str(held), due_at, *_) if hold and hold.turn == held:
            return [HoldDue(held, what) for what, at in times(state, hold).items() if (at, what) == (due_at, key[-1])]
        case ("retry", str(waiting), *_) if turn and turn.id == waiting and key in turn_orders(state, turn):
            return [RetryDue(waiting)]
        case _:
            return []


def start(state: Agent) -> list[Event]:
    """A start that is admitted: what came while it was asked about is placed, and the context compiled."""
    return placing(state) or compile(state)


def asks(state: Agent) -> bool:
    """Whether the agent has callables of its own that a start is asked about."""
    return bool(state.live.inference_policy or state.live.context)


def asking(state: Agent) -> bool:
    """Whether a start waits for what the agent's own callables say."""
    turn = state.turns.running
    return turn is not None and turn.stage == "starting"


def again(state: Agent) -> list[Event]:
    """A retry: the same request, or a fresh compile where there was none; the agent's callables are asked by an order."""
    turn = state.turn
    if turn.compiled:
        return [request(state)]
    return [] if asks(state) and not turn.admitted else start(state)


def ends_round(state: Agent, event: MessageAdded, turn: str) -> bool:
    running = state.turns.running
    return event.role == "user" and running is not None and running.id == turn


def after_round(state: Agent) -> list[Event]:
    """A round's results are in: what waited for them is placed, then the next request goes, or a tool has ended the
    turn.
    """
    if state.turn.ending:
        return completed(state, "end_turn")
    if state.turn.cut:
        return []
    return placing(state) or goes_on(state)


def goes_on(state: Agent) -> list[Event]:
    """The running turn, once what waited for its boundary is placed."""
    if not state.turn.compiled:
        return compile(state)
    return outgrown(state) or [request(state)]
