"""Turns: the one that runs, stage by stage, the one that waits in a hold, and how the latest ended."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace
from pyrsistent import PVector, pvector

from rewake.events import (
    Compiled,
    Event,
    Failure,
    Held,
    InferenceCompleted,
    InferenceFailed,
    InferenceInterrupted,
    InferenceRequested,
    MessageAdded,
    MessageEdited,
    MessageRemoved,
    Millis,
    ProviderHeld,
    Recorded,
    Refused,
    RetryDue,
    RetryScheduled,
    Tokens,
    ToolCalled,
    ToolReturned,
    TurnCompleted,
    TurnDeclined,
    TurnExhausted,
    TurnPrepared,
    TurnStarted,
    TurnWithdrawn,
    UndoPoint,
    Usage,
    WakeWithdrawn,
)
from rewake.events.messages import ERROR_POLICY
from rewake.events.turns import TURN_ENDS
from rewake.projections.gates import closes_gate

NAME = "turns"
KINDS: frozenset[type[Event]] = TURN_ENDS | {
    TurnStarted,
    TurnPrepared,
    Compiled,
    Refused,
    Held,
    ProviderHeld,
    UndoPoint,
    InferenceRequested,
    InferenceCompleted,
    InferenceFailed,
    InferenceInterrupted,
    RetryScheduled,
    RetryDue,
    ToolCalled,
    ToolReturned,
    MessageAdded,
    MessageEdited,
    MessageRemoved,
    WakeWithdrawn,
}
STEPS = KINDS - TURN_ENDS - {TurnStarted, Held, ProviderHeld, MessageEdited, MessageRemoved, WakeWithdrawn}
"""Kinds that only the running turn is another after: the most frequent ones, looked up before any `match`."""
RECENT = 64

Stage = Literal[
    "starting", "admitted", "refused", "compiled", "calling", "answered", "failed", "waiting", "tooling", "gated"
]


class OpenTool(Struct, frozen=True, omit_defaults=True, gc=False):
    """A tool call of the running round, and what it returned."""

    id: str
    provider_id: str
    name: str
    arguments: dict[str, Any]
    idempotent: bool = False
    returned: ToolReturned | None = None


class Turn(Struct, frozen=True, omit_defaults=True, gc=False):
    """A turn that has not ended. `step` counts its answered requests, `partials` the answers that broke off, `failures` the
    requests in a row that failed. `fresh`: it has had no answer since it last started. `ending`: a tool asked for its end;
    `cut`: it ends before all of its tools have returned; `shed`: an exchange was left out for it.
    """

    id: str
    attempt: int
    wakes: tuple[str, ...]
    since: Millis
    stage: Stage = "starting"
    trigger: str = ""
    channel: str | None = None
    addressed: bool = False
    silent: bool = False
    cue: str = ""
    cue_tokens: Tokens = 0
    step: int = 0
    partials: int = 0
    failures: int = 0
    prepared: TurnPrepared | None = None
    compiled: Compiled | None = None
    call: InferenceRequested | None = None
    error: Failure | None = None
    retry: RetryScheduled | None = None
    tools: tuple[OpenTool, ...] = ()
    tools_run: int = 0
    undo: bool = False
    admitted: bool = False
    ending: bool = False
    fresh: bool = True
    cut: bool = False
    shed: bool = False
    usage: Usage | None = Usage(0, 0)
    last_counted: Tokens = 0
    last_payload: Tokens = 0
    last_flat: Tokens = 0

    @property
    def opening(self) -> bool:
        """Whether its next request is its first: nothing of an answer has come."""
        return not self.step and not self.partials


class Past(Struct, frozen=True, omit_defaults=True, gc=False):
    """A turn that ended: how, when, and after how many calls."""

    id: str
    how: str
    since: Millis
    at: Millis
    wakes: tuple[str, ...]
    attempts: int = 1
    steps: int = 0


class Turns(Struct, frozen=True, gc=False):
    """`running` has the turn token; `held` gave it back and waits; `streak` counts exhausted turns in a row, `rejected` those
    whose first request the provider refused as invalid, the history the same but for what they added to it. `sheddings` are
    the exchanges that were left out since the first of them.
    """

    running: Turn | None = None
    held: Turn | None = None
    streak: int = 0
    rejected: int = 0
    sheddings: int = 0
    past: PVector[Past] = pvector()


def initial() -> Turns:
    return Turns()


def evolve(state: Turns, recorded: Recorded) -> Turns:
    event, turn = recorded.event, state.running
    if type(event) in STEPS:
        went = turn and step(turn, recorded)
        return state if went is turn else replace(state, running=went)
    match event:
        case TurnStarted():
            return replace(state, running=started(state, event, recorded.at), held=None)
        case _ if type(event) in TURN_ENDS:
            last = turn or state.held
            return ended(state, last, recorded) if last else state
        case WakeWithdrawn(wakes):
            gone = frozenset(wakes)
            return replace(state, running=less(turn, gone), held=less(state.held, gone))
        case MessageEdited() | MessageRemoved():
            return edited(state, event)
        case Held() if turn:
            return replace(state, running=None, held=replace(turn, stage="refused", compiled=None))
        case ProviderHeld() if turn:
            waits = replace(turn, stage="gated", compiled=None, call=None, retry=None)
            return replace(state, running=None, held=waits)
        case _:
            return state


def rows(state: Turns) -> list[dict[str, Any]]:
    past = [
        {"turn": one.id, "state": one.how, "since": one.since, "ended": one.at, "wakes": list(one.wakes)}
        | {"attempts": one.attempts, "steps": one.steps, "next_at": None}
        for one in state.past
    ]
    waits = "gated" if state.held and state.held.stage == "gated" else "held"
    alive = [
        {"turn": one.id, "state": stage, "since": one.since, "ended": None, "wakes": list(one.wakes)}
        | {"attempts": one.attempt, "steps": one.step, "next_at": one.retry and one.retry.at}
        for one, stage in ((state.held, waits), (state.running, state.running and state.running.stage))
        if one
    ]
    return past + alive


def started(state: Turns, event: TurnStarted, at: Millis) -> Turn:
    """A fresh turn; or the one that was held, or has outgrown its plan, with what it had done."""
    before = state.held or state.running
    goes_on = before is state.running
    if before and before.id == event.turn:
        return replace(
            before,
            attempt=event.attempt,
            wakes=event.wakes,
            stage="starting",
            failures=before.failures if before.stage == "gated" else 0,
            admitted=before.admitted and goes_on,
            prepared=before.prepared if goes_on else None,
            fresh=before.fresh or not goes_on,
            trigger=event.trigger,
            channel=event.channel,
            addressed=event.addressed,
            silent=event.silent,
            cue=event.cue,
            cue_tokens=event.cue_tokens,
        )
    return Turn(
        event.turn,
        event.attempt,
        event.wakes,
        at,
        trigger=event.trigger,
        channel=event.channel,
        addressed=event.addressed,
        silent=event.silent,
        cue=event.cue,
        cue_tokens=event.cue_tokens,
    )


def less(turn: Turn | None, gone: frozenset[str]) -> Turn | None:
    """The turn without the causes that were withdrawn."""
    return turn and replace(turn, wakes=tuple(one for one in turn.wakes if one not in gone))


def step(turn: Turn, recorded: Recorded) -> Turn:
    """The running turn after one of its events; the kinds that every turn has come first."""
    event = recorded.event
    match event:
        case MessageAdded(role="assistant", turn=made, partial=True) if made == turn.id:
            return replace(turn, partials=turn.partials + 1)
        case MessageAdded(role="user", turn=made) if made == turn.id:
            return replace(turn, stage="answered", tools=())
        case MessageAdded():
            return turn
        case Compiled():
            return replace(turn, stage="compiled", compiled=event)
        case UndoPoint():
            return replace(turn, undo=True)
        case InferenceRequested():
            return replace(turn, stage="calling", call=event, retry=None)
        case InferenceCompleted() if turn.call:
            return answered(turn, turn.call, event)
        case TurnPrepared(_, _, _, error) if error:
            return replace(turn, stage="failed", failures=turn.failures + 1, error=error)
        case TurnPrepared():
            return replace(turn, stage="admitted", admitted=True, prepared=event)
        case Refused():
            return replace(turn, stage="refused", compiled=None, failures=turn.failures + 1)
        case InferenceFailed(_, error):
            failures = turn.failures if closes_gate(error) else turn.failures + 1
            return replace(counted(turn, error), stage="failed", call=None, failures=failures, error=error)
        case InferenceInterrupted():
            return replace(turn, stage="failed", call=None)
        case RetryScheduled():
            return replace(turn, stage="waiting", retry=event)
        case RetryDue():
            return replace(turn, stage="failed" if turn.compiled or turn.admitted else "starting", retry=None)
        case ToolCalled():
            tool = OpenTool(event.tool_call, event.provider_id, event.name, event.arguments, event.idempotent)
            return replace(turn, stage="tooling", tools=(*turn.tools, tool), tools_run=turn.tools_run + 1)
        case ToolReturned():
            tools = tuple(replace(one, returned=event) if one.id == event.tool_call else one for one in turn.tools)
            cut = turn.cut or event.why == "ended"
            return replace(turn, tools=tools, ending=turn.ending or event.ends_turn, cut=cut)
        case _:
            return turn


def answered(turn: Turn, call: InferenceRequested, event: InferenceCompleted) -> Turn:
    used, total = event.usage, turn.usage
    if used is None or total is None:
        total = None
    else:
        total = Usage(
            total.input + used.input,
            total.output + used.output,
            total.cached + used.cached,
            total.reasoning + used.reasoning,
        )
    return replace(
        turn,
        stage="answered",
        call=None,
        step=turn.step + 1,
        failures=0,
        fresh=False,
        error=None,
        usage=total,
        last_counted=used.input if used else 0,
        last_payload=call.payload,
        last_flat=call.flat,
    )


def counted(turn: Turn, error: Failure) -> Turn:
    """The turn with what the provider counted of a request that it refused."""
    if error.counted is None or turn.call is None:
        return turn
    return replace(turn, last_counted=error.counted, last_payload=turn.call.payload, last_flat=turn.call.flat)


def ended(state: Turns, turn: Turn, recorded: Recorded) -> Turns:
    event = recorded.event
    past = Past(turn.id, event.kind, turn.since, recorded.at, turn.wakes, turn.attempt, turn.step)
    kept = state.past.append(past)
    streak = state.streak + 1 if isinstance(event, TurnExhausted) else state.streak
    streak = 0 if isinstance(event, TurnCompleted) else streak
    running = None if state.running is turn else state.running
    held = None if state.held is turn else state.held
    rejected, sheddings = episode(state, turn, event)
    return Turns(running, held, streak, rejected, sheddings, kept if len(kept) <= RECENT else kept[-RECENT:])


def episode(state: Turns, turn: Turn, event: Event) -> tuple[int, int]:
    """The turns that were refused as invalid in a row, and the exchanges left out for them, after a turn's end."""
    match event:
        case TurnExhausted(error=Failure("invalid_request")) if turn.opening:
            return state.rejected + 1, state.sheddings
        case TurnDeclined() | TurnWithdrawn():
            return state.rejected, state.sheddings
        case _:
            return 0, 0


def edited(state: Turns, event: MessageEdited | MessageRemoved) -> Turns:
    """Another history: what was refused before says nothing of it, unless it is the error policy that tries."""
    if event.by != ERROR_POLICY:
        return replace(state, rejected=0, sheddings=0) if state.rejected else state
    if isinstance(event, MessageRemoved):
        return state
    running = state.running and replace(state.running, shed=True)
    return replace(state, running=running, sheddings=state.sheddings + 1)


def absent(turn: Turn | None) -> bool:
    """Whether a turn waits for its strategy to be there: the code that its configuration names can not be imported."""
    return turn is not None and turn.retry is not None and turn.retry.error.kind == "no_strategy"


def open_tools(turn: Turn) -> tuple[OpenTool, ...]:
    """The tools of the running round that have not returned."""
    return tuple(one for one in turn.tools if one.returned is None)
