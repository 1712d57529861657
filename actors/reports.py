"""What a runtime tells: receipts, results, what is owed and why. Pure questions over agents' states."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from rewake.actors.agent.equipping import waits_for
from rewake.actors.agent.state import Agent
from rewake.actors.drain import Drain, standing
from rewake.actors.gate import Gate
from rewake.actors.owing import State, gated_why, held_why, opens_at, owed_of
from rewake.events import Millis, NoWake, Quarantined, Refused, Tokens
from rewake.projections.calibration import meter
from rewake.projections.conversation import reply
from rewake.projections.progress import given_up
from rewake.projections.wakes import Pending

LATE_MS: Millis = 30_000
"""How long a wake waits before it is reported."""


class Receipt(Struct, frozen=True):
    """What was accepted, durably: the seq of its first event, the message's id and the wake's, where it has them."""

    seq: int
    message: str | None = None
    wake: str | None = None


def wake_of(receipt: Receipt) -> str:
    """The wake that a receipt is of. Raises NoWake."""
    given: Any = receipt
    if not isinstance(given, Receipt):
        raise NoWake(f"{given!r} is no receipt: push returns one, and receipt(wake) finds it again")
    if receipt.wake is None:
        raise NoWake("this receipt has no wake: no turn is owed for it")
    return receipt.wake


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


class IdleReport(Struct, frozen=True):
    """Whether nothing runs and nothing can; the wakes that are held, gated, or owed all the same."""

    idle: bool
    held: tuple[str, ...] = ()
    gated: tuple[str, ...] = ()
    owed: tuple[str, ...] = ()


class AbortReport(Struct, frozen=True):
    """The turn that an abort ended, the wakes that ended with it, and the message that keeps what it had said, if any."""

    turn: str
    wakes: tuple[str, ...] = ()
    partial: str | None = None


class CancelReport(Struct, frozen=True):
    """What a cancel withdrew: wakes, and the messages that went with them; the turn that had no cause left, if one
    waited. `kept`: the wakes that are still owed.
    """

    agent: str
    wakes: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    turn: str | None = None
    kept: tuple[str, ...] = ()


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

    `unconfigured`: it waits for what of its configuration this process has not, wherever its turn stands.
    `provisional`: no provider's count has told yet how its model counts, so its window is kept with caution.
    `target`: a lower budget that is made once the context fits it. `waiting` wakes have not ended; the `late` ones of them
    have waited over 30 s for a turn that runs, `oldest` is when the first of those that wait for one was accepted.
    """

    agent: str
    state: Literal["idle", "running", "retrying", "held", "gated", "unconfigured", "parked", "disposed"]
    turn: str | None = None
    why: str = ""
    since: Millis | None = None
    next_at: Millis | None = None
    waiting: int = 0
    hold: HoldHealth | None = None
    provisional: bool = False
    multiplier: float = 1.0
    target: Tokens | None = None
    late: tuple[str, ...] = ()
    oldest: Millis | None = None


class DrainHealth(Struct, frozen=True):
    """A drain now: whether it works, waits until a time, is stuck, or has nothing to do, and why; its summaries.

    `quarantined` pieces of work were given up; `given_up` tells of those whose messages are still there.
    """

    agent: str
    state: Literal["idle", "working", "waiting", "stuck", "parked"]
    summaries: int = 0
    quarantined: int = 0
    next_at: Millis | None = None
    tokens_saved: Tokens = 0
    why: str = ""
    given_up: tuple[str, ...] = ()


class WaitHealth(Struct, frozen=True):
    """Calls for a model that do not go freely: since when, until when where that is known, why, for the `n`-th time in a
    row; who probes, how many may go at a time; and who waits, by stream.
    """

    model: str
    state: Literal["closed", "probing", "ramping", "open"]
    why: str
    since: Millis
    until: Millis | None
    n: int
    probe: str | None = None
    limit: int | None = None
    waiting: tuple[str, ...] = ()


class GateHealth(Struct, frozen=True):
    """A provider's gate: the models it is closed for, and every model whose calls do not go freely."""

    provider: str
    closed: tuple[str, ...] = ()
    waits: tuple[WaitHealth, ...] = ()


class WaitsReleased(Struct, frozen=True):
    """What an operator's release of a provider's gate opened."""

    provider: str
    models: tuple[str, ...] = ()


class QuarantineReleased(Struct, frozen=True):
    """What an operator's release of an agent's quarantine lets be tried again: how many pieces of work."""

    agent: str
    released: int


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


def outcome(state: Agent, wake: str, drain: Drain | None = None) -> Result | None:
    """What became of a wake, from its agent's state; None when the state no longer remembers it."""
    if ended := state.wakes.ended.get(wake):
        text = reply(state.conversation, ended.turn) if ended.state == "completed" else None
        return Result(ended.state, text, ended.turn or None, ended.why)
    for pending in state.wakes.owed:
        if pending.id == wake:
            told = owed_of(state, pending, drain)
            return Result(told.state, None, pending.turn, told.why, told.next_at)
    return None


def agent_health(
    state: Agent, drain: Drain | None = None, now: Millis | None = None, configured: bool = False
) -> AgentHealth:
    """What an agent does, with how well its model's counts are known, and the wakes that wait too long.

    `now`: None where time has stopped, in a log that is read. `configured`: a start named it; a disposed one is passed over.
    """
    if state.settings.disposed and configured:
        why = "its configuration is passed over: the name of a disposed agent is not used again"
        return AgentHealth(state.name, "disposed", why=why)
    if state.settings.live is None:
        return doing(state)
    waits = waiting(state)
    late = tuple(one.id for one in waits if now is not None and now - one.at > LATE_MS)
    learned = meter(state.calibration, state.settings.live)
    known = {"provisional": learned.provisional, "multiplier": learned.multiplier, "target": state.settings.target}
    oldest = min((one.at for one in waits), default=None)
    return replace(doing(state, drain), **known, late=late, oldest=oldest)


def waiting(state: Agent) -> list[Pending]:
    """The wakes that no running turn has taken: queued, parked, held."""
    turn = state.turns.running
    return [one for one in state.wakes.owed if turn is None or one.id not in turn.wakes]


def doing(state: Agent, drain: Drain | None = None) -> AgentHealth:
    turn, hold, waiting = state.turns.running, state.holds.waiting, len(state.wakes.owed)
    if state.stream in state.host.parked:
        return AgentHealth(state.name, "parked", why=state.host.parked[state.stream], waiting=waiting)
    if state.settings.disposed:
        return AgentHealth(state.name, "disposed")
    if missing := state.settings.missing:
        why, since, now = waits_for(missing), state.settings.missed_at, turn or state.turns.held
        return AgentHealth(state.name, "unconfigured", now and now.id, why, since, None, waiting)
    if hold:
        view = HoldHealth(hold.turn, hold.since, hold.until, hold.wakes, hold.refusal, hold.looks, hold.looked_at)
        why = held_why(hold, drain)
        return AgentHealth(state.name, "held", hold.turn, why, hold.since, hold.until, waiting, view)
    if gated := state.holds.gated:
        opens = opens_at(state, gated.provider, gated.model)
        return AgentHealth(state.name, "gated", gated.turn, gated_why(gated), gated.since, opens, waiting)
    if turn and turn.retry:
        why = f"{turn.retry.error.kind}: {turn.retry.error.message}"
        return AgentHealth(state.name, "retrying", turn.id, why, turn.since, turn.retry.at, waiting)
    if turn:
        return AgentHealth(state.name, "running", turn.id, turn.stage, turn.since, None, waiting)
    return AgentHealth(state.name, "idle", waiting=waiting)


def gate_health(state: Gate) -> GateHealth:
    waits = tuple(
        WaitHealth(
            model,
            lane.state,
            lane.why,
            lane.since,
            lane.until if lane.state == "closed" else None,
            lane.n,
            lane.probe,
            lane.limit,
            tuple(sorted(stream for stream, waiter in state.waiting.items() if waiter.model == model)),
        )
        for model, lane in sorted(state.gate.lanes.items())
        if lane.state != "open"
    )
    return GateHealth(state.provider, tuple(one.model for one in waits if one.state == "closed"), waits)


def drain_health(state: Drain) -> DrainHealth:
    compression = state.compression
    summaries, now = compression.summaries, standing(state)
    facts: dict[str, Any] = {
        "summaries": len(summaries),
        "quarantined": len(compression.quarantined),
        "tokens_saved": sum(one.work.tokens - one.tokens for one in summaries),
        "why": now.why,
        "given_up": tuple(told(one) for one in given_up(state.conversation, compression)),
    }
    if f"drain/{state.name}" in state.host.parked:
        return DrainHealth(state.name, "parked", **facts)
    return DrainHealth(state.name, now.state, next_at=now.until, **facts)


def told(given: Quarantined) -> str:
    """A stretch that was given up, as one line."""
    work = given.work
    return f"{work.first} to {work.last}, {work.tokens:,} tokens, can not be summarised and stays as it is: {given.why}"
