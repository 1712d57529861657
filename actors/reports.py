"""What a runtime tells: receipts, results, what is owed and why. Pure questions over agents' states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from rewake.actors.agent.state import Agent
from rewake.actors.drain import Drain, resting
from rewake.events import Millis, Refused, Tokens
from rewake.projections.calibration import meter
from rewake.projections.conversation import reply
from rewake.projections.holds import Hold
from rewake.projections.wakes import Pending

State = Literal["owed", "held", "gated", "completed", "declined", "exhausted", "aborted", "withdrawn"]


class Receipt(Struct, frozen=True):
    """What was accepted, durably: the seq of its first event, the message's id and the wake's, where it has them."""

    seq: int
    message: str | None = None
    wake: str | None = None


class Result(Struct, frozen=True):
    """What became of a wake: its state, the answer's text, the turn, and why or when next where that is known."""

    state: State
    text: str | None = None
    turn: str | None = None
    why: str = ""
    next_at: Millis | None = None

    @property
    def ended(self) -> bool:
        return self.state not in ("owed", "held", "gated")


class Owed(Struct, frozen=True):
    """A wake that has not ended: what it waits for, since when, and when something happens next, where that is known."""

    wake: str
    agent: str
    state: State
    why: str
    since: Millis
    next_at: Millis | None = None


class IdleReport(Struct, frozen=True):
    """Whether nothing runs and nothing can; the wakes that are held, gated, or owed all the same."""

    idle: bool
    held: tuple[str, ...] = ()
    gated: tuple[str, ...] = ()
    owed: tuple[str, ...] = ()


class StopReport(Struct, frozen=True):
    """What a stop left to the next start: the wakes that are still owed."""

    pending: tuple[str, ...] = ()


class HoldHealth(Struct, frozen=True):
    """A hold while it waits: the looks that did not release it, and the last of them."""

    turn: str
    since: Millis
    until: Millis
    wakes: tuple[str, ...]
    refusal: Refused
    looks: int
    looked_at: Millis | None = None


class AgentHealth(Struct, frozen=True):
    """An agent now: what it does, in which turn, and its hold while it waits.

    `provisional`: no provider's count has told yet how its model counts, so its window is kept with caution.
    `target`: a lower budget that is made once the context fits it.
    """

    agent: str
    state: Literal["idle", "running", "retrying", "held", "parked", "disposed"]
    turn: str | None = None
    why: str = ""
    since: Millis | None = None
    next_at: Millis | None = None
    waiting: int = 0
    hold: HoldHealth | None = None
    provisional: bool = False
    multiplier: float = 1.0
    target: Tokens | None = None


class DrainHealth(Struct, frozen=True):
    """A drain now: whether it works, waits until a time, or has nothing to do; its summaries and what it gave up on."""

    agent: str
    state: Literal["idle", "working", "waiting", "parked"]
    summaries: int = 0
    quarantined: int = 0
    next_at: Millis | None = None
    tokens_saved: Tokens = 0


class GateHealth(Struct, frozen=True):
    """A provider's gate: the models it is closed for."""

    provider: str
    closed: tuple[str, ...] = ()


class Alert(Struct, frozen=True):
    """For an operator: about whom, what kind of thing, and since and until when."""

    agent: str
    kind: str
    message: str
    since: Millis
    until: Millis | None = None


class Health(Struct, frozen=True):
    """What every part does now, and the newest alerts of this process, whether or not what they tell of has passed."""

    agents: tuple[AgentHealth, ...]
    gates: tuple[GateHealth, ...]
    drains: tuple[DrainHealth, ...]
    alerts: tuple[Alert, ...] = ()


def outcome(state: Agent, wake: str) -> Result | None:
    """What became of a wake, from its agent's state; None when the state no longer remembers it."""
    if ended := state.wakes.ended.get(wake):
        text = reply(state.conversation, ended.turn) if ended.state == "completed" else None
        return Result(ended.state, text, ended.turn or None, ended.why)
    for pending in state.wakes.owed:
        if pending.id == wake:
            told = owed_of(state, pending)
            return Result(told.state, None, pending.turn, told.why, told.next_at)
    return None


def owed(state: Agent) -> Iterator[Owed]:
    """Every wake of an agent that has not ended."""
    return (owed_of(state, pending) for pending in state.wakes.owed)


def owed_of(state: Agent, pending: Pending) -> Owed:
    hold, turn = state.holds.waiting, state.turns.running
    if hold and pending.turn in (None, hold.turn):
        return Owed(pending.id, state.name, "held", held_why(hold), hold.since, hold.until)
    if turn and pending.id in turn.wakes:
        if turn.retry:
            error = turn.retry.error
            why = f"{turn.id} tries again after {error.kind}: {error.message}"
            return Owed(pending.id, state.name, "owed", why, pending.at, turn.retry.at)
        return Owed(pending.id, state.name, "owed", f"{turn.id} is {turn.stage}", pending.at)
    if turn:
        return Owed(pending.id, state.name, "owed", f"waits for the end of {turn.id}", pending.at)
    if state.host.quiesced:
        return Owed(pending.id, state.name, "gated", "the host is quiesced", pending.at)
    return Owed(pending.id, state.name, "owed", "its turn is about to start", pending.at)


def held_why(hold: Hold) -> str:
    refusal = hold.refusal
    room = refusal.window_room if refusal.binding == "window" else refusal.room
    return f"{hold.turn} waits for compression: {refusal.tokens:,} tokens against {room:,}"


def agent_health(state: Agent) -> AgentHealth:
    """What an agent does, with how well its model's counts are known."""
    if state.settings.live is None:
        return doing(state)
    learned = meter(state.calibration, state.settings.live)
    known = {"provisional": learned.provisional, "multiplier": learned.multiplier, "target": state.settings.target}
    return replace(doing(state), **known)


def doing(state: Agent) -> AgentHealth:
    turn, hold, waiting = state.turns.running, state.holds.waiting, len(state.wakes.owed)
    if state.stream in state.host.parked:
        return AgentHealth(state.name, "parked", why=state.host.parked[state.stream], waiting=waiting)
    if state.settings.disposed:
        return AgentHealth(state.name, "disposed")
    if hold:
        view = HoldHealth(hold.turn, hold.since, hold.until, hold.wakes, hold.refusal, hold.looks, hold.looked_at)
        why = held_why(hold)
        return AgentHealth(state.name, "held", hold.turn, why, hold.since, hold.until, waiting, view)
    if turn and turn.retry:
        why = f"{turn.retry.error.kind}: {turn.retry.error.message}"
        return AgentHealth(state.name, "retrying", turn.id, why, turn.since, turn.retry.at, waiting)
    if turn:
        return AgentHealth(state.name, "running", turn.id, turn.stage, turn.since, None, waiting)
    return AgentHealth(state.name, "idle", waiting=waiting)


def drain_health(state: Drain) -> DrainHealth:
    compression = state.compression
    summaries = compression.summaries
    facts: dict[str, Any] = {
        "summaries": len(summaries),
        "quarantined": len(compression.quarantined),
        "tokens_saved": sum(one.work.tokens - one.tokens for one in summaries),
    }
    if f"drain/{state.name}" in state.host.parked:
        return DrainHealth(state.name, "parked", **facts)
    if compression.open:
        return DrainHealth(state.name, "working", **facts)
    if resting(state):
        return DrainHealth(state.name, "waiting", next_at=compression.next_at, **facts)
    return DrainHealth(state.name, "idle", **facts)
