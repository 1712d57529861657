"""Wakes become turns: what is taken in, and when a turn starts with which of them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from rewake.actors.agent.commands import Push, Rouse
from rewake.actors.agent.state import Agent, quiet
from rewake.events import AgentDisposed, Event, MessageAdded, MessagePlaced, TurnStarted, Wake
from rewake.projections.pricing import count_tokens
from rewake.projections.turns import Turn
from rewake.projections.wakes import Pending, known, trigger, waiting

SILENT_CUE = "[tick]"


def push(state: Agent, said: Push) -> list[Event]:
    """A message, and the wake that came with it; nothing when its key is known."""
    if known(state.wakes, said.dedupe_key, said.at):
        return []
    message = MessageAdded(
        "user",
        said.blocks,
        said.tokens,
        said.encoding,
        author=said.author,
        channel=said.channel,
        deferred=state.turns.running is not None,
        dedupe_key=said.dedupe_key,
        woke=said.wake,
    )
    if not said.wake:
        return [message]
    wake = Wake(
        "message",
        source="push",
        channel=said.channel,
        author=said.author,
        addressed=said.addressed,
        message=f"{state.name}/msg/{state.version + 1}",
        dedupe_key=said.dedupe_key,
    )
    return [message, wake]


def rouse(state: Agent, said: Rouse) -> list[Event]:
    """A wake without a message; nothing when its key is known."""
    if known(state.wakes, said.dedupe_key, said.at):
        return []
    wake = Wake(
        said.reason,
        source="wake",
        channel=said.channel,
        author=said.author,
        addressed=said.addressed,
        wake_at=said.wake_at,
        silent=said.silent,
        dedupe_key=said.dedupe_key,
    )
    return [wake]


def next_turn(state: Agent) -> list[Event]:
    """What starts when nothing runs: the turn whose hold is over, else one for all the wakes that wait."""
    if not quiet(state):
        return []
    held = state.turns.held
    if held and any(hold and hold.turn == held.id for hold in (state.holds.over, state.holds.let)):
        return [started(state, owed_to(state, held), held)]
    ready = waiting(state.wakes)
    return [started(state, ready)] if ready else []


def placing(state: Agent) -> list[Event]:
    """At a boundary: what waited for it enters the conversation."""
    ids = tuple(message.id for message in state.conversation.waiting)
    return [MessagePlaced(ids)] if ids else []


def boundary(state: Agent) -> list[Event]:
    """At a turn's end: what waited for it is placed, and the next turn starts. An agent for one run has had it."""
    if state.settings.once and not state.wakes.owed:
        return [AgentDisposed("its run is over")]
    return placing(state) or next_turn(state)


def started(state: Agent, causes: Sequence[Pending], again: Turn | None = None) -> TurnStarted:
    """The turn that answers these wakes; `again`: the one that was held, with its next attempt.

    One that had an answer already keeps its place: whatever joined it moves no routing.
    """
    leading, line = trigger(causes), cue(causes)
    begun = TurnStarted(
        tuple(one.id for one in causes),
        again.id if again else "",
        again.attempt + 1 if again else 1,
        trigger=leading.reason,
        channel=leading.channel,
        addressed=leading.addressed,
        silent=all(one.silent for one in causes),
        cue=line,
        cue_tokens=count_tokens(line, state.live.encoding),
    )
    if again is None or again.opening:
        return begun
    place = {"trigger": again.trigger, "channel": again.channel, "addressed": again.addressed, "silent": again.silent}
    return replace(begun, resumes=True, cue=again.cue, cue_tokens=again.cue_tokens, **place)


def owed_to(state: Agent, held: Turn) -> tuple[Pending, ...]:
    """The wakes of a held turn, and all that came since: one compile answers them."""
    return tuple(one for one in state.wakes.owed if one.turn in (None, held.id))


def caused(state: Agent) -> tuple[str, ...]:
    """The running turn's own wakes, and those that came since it started."""
    return tuple(one.id for one in state.wakes.owed if one.turn in (None, state.turn.id))


def mine(state: Agent, wakes: Sequence[str]) -> tuple[Pending, ...]:
    taken = frozenset(wakes)
    return tuple(one for one in state.wakes.owed if one.id in taken)


def cue(causes: Sequence[Pending]) -> str:
    """The line that a turn's request ends on when none of its wakes came with a message."""
    if any(one.message for one in causes):
        return ""
    said = [f"[wake] {one.reason}" for one in causes if not one.silent]
    return "\n".join(dict.fromkeys(said)) or SILENT_CUE
