"""Wakes become turns: what is taken in, and when a turn starts with which of them."""

from __future__ import annotations

from collections.abc import Sequence

from rewake.actors.agent.commands import Push, Rouse
from rewake.actors.agent.state import Agent, quiet
from rewake.events import Event, MessageAdded, MessagePlaced, TurnStarted, Wake
from rewake.projections.pricing import count_tokens
from rewake.projections.turns import Turn
from rewake.projections.wakes import Pending, known, trigger, waiting

SILENT_CUE = "[tick]"


def push(state: Agent, said: Push) -> list[Event]:
    """A message, and the wake that came with it; nothing when its key is known."""
    if known(state.wakes, said.dedupe_key, said.at):
        return []
    key = None if said.wake else said.dedupe_key
    message = MessageAdded(
        "user",
        said.blocks,
        said.tokens,
        said.encoding,
        author=said.author,
        channel=said.channel,
        deferred=state.turns.running is not None,
        dedupe_key=key,
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
    over, held = state.holds.over, state.turns.held
    if over and held and over.turn == held.id:
        return [started(state, mine(state, over.wakes), held)]
    ready = waiting(state.wakes)
    return [started(state, ready)] if ready else []


def boundary(state: Agent) -> list[Event]:
    """At a turn's end: what waited for it is placed, and the next turn starts."""
    ids = tuple(message.id for message in state.conversation.waiting)
    return [MessagePlaced(ids)] if ids else next_turn(state)


def started(state: Agent, causes: Sequence[Pending], again: Turn | None = None) -> TurnStarted:
    """The turn that answers these wakes; `again`: the one that was held, with its next attempt."""
    leading = trigger(causes)
    line = cue(causes)
    return TurnStarted(
        tuple(one.id for one in causes),
        again.id if again else "",
        again.attempt + 1 if again else 1,
        trigger=leading.reason,
        channel=leading.channel,
        addressed=any(one.addressed for one in causes),
        silent=all(one.silent for one in causes),
        resumes=bool(again and again.step),
        cue=line,
        cue_tokens=count_tokens(line, state.live.encoding),
    )


def mine(state: Agent, wakes: Sequence[str]) -> tuple[Pending, ...]:
    taken = frozenset(wakes)
    return tuple(one for one in state.wakes.owed if one.id in taken)


def cue(causes: Sequence[Pending]) -> str:
    """The line that a turn's request ends on when none of its wakes came with a message."""
    if any(one.message for one in causes):
        return ""
    said = [f"[wake] {one.reason}" for one in causes if not one.silent]
    return "\n".join(dict.fromkeys(said)) or SILENT_CUE
