"""What is owed: for each wake that has not ended what it waits for, since when, until when, and what ends the wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from rewake.actors.agent.equipping import ended_by, waits_for
from rewake.actors.agent.state import Agent
from rewake.actors.drain import Drain, standing
from rewake.events import Millis, ProviderHeld
from rewake.projections.gates import next_at
from rewake.projections.holds import Hold
from rewake.projections.turns import Turn, absent, open_tools
from rewake.projections.wakes import Pending

State = Literal["owed", "held", "gated", "completed", "declined", "exhausted", "aborted", "withdrawn"]

START = "the next start of the process"


class Owed(Struct, frozen=True):
    """A wake that has not ended: what it waits for, since when, when something happens next, where that is known, and what
    ends the wait.
    """

    wake: str
    agent: str
    state: State
    why: str
    since: Millis
    next_at: Millis | None = None
    ends: str = ""


class Doing(Struct, frozen=True):
    """What a running turn is doing, as the end of a sentence; when something happens next, and what ends it."""

    what: str
    next_at: Millis | None
    ends: str


def owed(state: Agent, drain: Drain | None = None) -> Iterator[Owed]:
    """Every wake of an agent that has not ended; with its drain's state, what a held one waits for there."""
    return (owed_of(state, pending, drain) for pending in state.wakes.owed)


def owed_of(state: Agent, pending: Pending, drain: Drain | None = None) -> Owed:
    """What one wake waits for. Where the agent takes nothing in any more, has not what it needs, or no process runs, that
    comes first.
    """
    told = waits(state, pending, drain)
    if error := state.host.parked.get(state.stream):
        return replace(told, why=f"{state.stream} is parked: {error}", next_at=None, ends=START)
    if missing := state.settings.missing:
        since = max(pending.at, state.settings.missed_at)
        return replace(told, why=waits_for(missing), since=since, next_at=None, ends=ended_by(missing))
    return told if state.host.running else replace(told, ends=f"{START}, then {told.ends}")


def waits(state: Agent, pending: Pending, drain: Drain | None) -> Owed:
    hold, gated, turn = state.holds.waiting, state.holds.gated, state.turns.running
    if hold and pending.turn in (None, hold.turn):
        ends = "summaries that make room, or the deadline"
        return Owed(pending.id, state.name, "held", held_why(hold, drain), hold.since, hold.until, ends)
    if gated and pending.turn in (None, gated.turn):
        opens = opens_at(state, gated.provider, gated.model)
        return Owed(pending.id, state.name, "gated", gated_why(gated), gated.since, opens, opened_by(state, gated))
    if turn:
        does = doing(state, turn)
        why, ends = f"{turn.id} {does.what}", does.ends
        if pending.id not in turn.wakes:
            why, ends = f"waits for the end of {turn.id}, which {does.what}", f"the end of {turn.id}"
        return Owed(pending.id, state.name, "owed", why, pending.at, does.next_at, ends)
    if state.host.quiesced:
        return Owed(pending.id, state.name, "gated", "the host is quiesced", pending.at, None, "the host's resume")
    return Owed(pending.id, state.name, "owed", "its turn is about to start", pending.at, None, "the agent's next step")


def doing(state: Agent, turn: Turn) -> Doing:
    """What a running turn does or waits for."""
    if retry := turn.retry:
        ends = "a start where its strategy can be imported" if absent(turn) else "the retry"
        return Doing(f"tries again after {retry.error.kind}: {retry.error.message}", retry.at, ends)
    live, late = state.live, f"{state.live.call_timeout_ms / 1_000:g} s"
    if call := turn.call:
        if lacks(state, call.provider):
            what = f"is calling {call.provider}, a provider that this process does not have"
            return Doing(what, None, "a start that has it")
        ends = f"the answer to {call.call}, or {late} without one once it is sent"
        return Doing(f"is calling {call.provider}, {call.model}", None, ends)
    if turn.stage == "starting" and (asked := [one for one in (live.inference_policy, live.context) if one]):
        return Doing(
            f"is starting: {' and '.join(asked)} is asked", None, f"what that says, or {late} without an answer"
        )
    if tools := open_tools(turn):
        return Doing(f"is tooling: {', '.join(one.name for one in tools)}", None, "the results")
    return Doing(f"is {turn.stage}", None, "the agent's next step")


def lacks(state: Agent, provider: str) -> bool:
    """Whether the running process is known to have no such provider."""
    there = state.host.providers
    return bool(there) and provider not in there


def held_why(hold: Hold, drain: Drain | None = None) -> str:
    refusal = hold.refusal
    if refusal.why == "uncovered":
        return f"{hold.turn} waits for compression: its plan loses {len(refusal.missing):,} messages"
    room = refusal.window_room if refusal.binding == "window" else refusal.room
    why = f"{hold.turn} waits for compression: {refusal.tokens:,} tokens against {room:,}"
    return f"{why}; {standing(drain).told}" if drain else why


def gated_why(gated: ProviderHeld) -> str:
    if gated.why == "quiesced":
        return f"{gated.turn} waits: the host is quiesced"
    return f"{gated.turn} waits for {gated.provider}, {gated.model}: {gated.why}"


def opened_by(state: Agent, gated: ProviderHeld) -> str:
    """What lets a turn go that waits for its provider's gate."""
    gate = state.gates.get(gated.provider)
    lane = gate.lanes.get(gated.model) if gate else None
    if gated.why == "quiesced":
        return "the host's resume"
    if lacks(state, gated.provider):
        return f"a start with the provider {gated.provider}, which this process does not have"
    if f"gate/{gated.provider}" in state.host.parked:
        return f"{START}: gate/{gated.provider} is parked"
    if lane and lane.state == "closed" and lane.until is None:
        return f"release({gated.provider!r}) by an operator"
    if lane and lane.state == "probing":
        return f"the success of {lane.probe}, whose call goes first"
    return "the opening of the gate"


def opens_at(state: Agent, provider: str, model: str) -> Millis | None:
    """When the gate opens for a model, where that is known."""
    gate = state.gates.get(provider)
    return next_at(gate, model) if gate else None
