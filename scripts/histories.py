"""The whole story of a wake or a turn, from the log alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import replace

from rewake.actors.agent import agent
from rewake.actors.agent.state import Agent
from rewake.actors.behaviour import Position, fold
from rewake.actors.incarnation import followed
from rewake.actors.owing import Owed, owed
from rewake.actors.redecide import consumed
from rewake.events import Compiled, Event, Log, MessageAdded, Millis, Recorded, Text, TurnStarted, Wake, WakeWithdrawn
from rewake.events.base import kind_of
from rewake.events.turns import TURN_ENDS, TurnEnd
from rewake.projections.wakes import ending
from rewake.scripts.accounts import drain_of
from rewake.scripts.planned import Planned, explained
from rewake.scripts.sentences import Began, plainly, sentence
from rewake.scripts.tables import short

BEFALLS = ("host_started", "actor_failed", "actor_parked")
"""What befalls an agent's process, or the agent itself."""
ENDS = frozenset(map(kind_of, TURN_ENDS))


class Step(Struct, frozen=True, omit_defaults=True):
    """One event of a turn: what it says; `plan`: what was compiled."""

    seq: int
    at: Millis
    kind: str
    text: str
    plan: Planned | None = None


class TurnStory(Struct, frozen=True):
    """A turn from its start on. `state` is how it ended, or what it does now, `why` what it waits for, until `next_at`,
    and what `ends` the wait.
    """

    id: str
    wakes: tuple[str, ...]
    state: str
    why: str
    since: Millis
    next_at: Millis | None
    steps: tuple[Step, ...]
    ends: str = ""


class WakeStory(Struct, frozen=True):
    """A wake: when it was accepted and from where, which turns took it, how it ended or what it waits for now."""

    id: str
    seq: int
    at: Millis
    reason: str
    source: str
    channel: str | None
    author: str | None
    addressed: bool
    message: str | None
    text: str
    turns: tuple[str, ...]
    state: str
    why: str
    next_at: Millis | None
    ends: str = ""


class Story(Struct, frozen=True):
    """What was asked for, the wakes that it is about, and the turns."""

    asked: str
    wakes: tuple[WakeStory, ...]
    turns: tuple[TurnStory, ...]


@dataclass
class Life:
    """What one pass over an agent's stream found, of wakes and turns; `said`: the texts of messages whose wake is next."""

    wakes: dict[str, WakeStory] = field(default_factory=dict[str, WakeStory])
    turns: dict[str, TurnStory] = field(default_factory=dict[str, TurnStory])
    calls: dict[str, str] = field(default_factory=dict[str, str])
    said: dict[str, str] = field(default_factory=dict[str, str])
    began: Began = field(default_factory=Began)


def story(log: Log, id: str, until: int | None = None) -> Story:
    """The story of a wake or a turn by its id. Raises LookupError, with the nearest ids of its kind."""
    name, kind, _ = id.split("/")
    life = lived(log, name, log.head() if until is None else until)
    if kind == "wake" and (wake := life.wakes.get(id)):
        return Story(id, (wake,), tuple(befallen(log, life.turns[one], until) for one in wake.turns))
    if kind == "turn" and (turn := life.turns.get(id)):
        wakes = tuple(life.wakes[one] for one in turn.wakes if one in life.wakes)
        return Story(id, wakes, (befallen(log, turn, until),))
    there = nearest(id, life.wakes if kind == "wake" else life.turns)
    raise LookupError(
        f"there is no {id} in this log; " + (f"near it: {', '.join(there)}" if there else "there is none")
    )


def befallen(log: Log, turn: TurnStory, until: int | None) -> TurnStory:
    """The turn's story with what befell its agent and its process meanwhile."""
    stream = f"agent/{turn.id.partition('/')[0]}"
    first, last = turn.steps[0], turn.steps[-1]
    befell = (
        Step(one.seq, one.at, one.kind, plainly(one.event))
        for one in log.read(first.seq, "host", BEFALLS, last.seq if last.kind in ENDS else until)
        if getattr(one.event, "stream", stream) == stream
    )
    return replace(turn, steps=tuple(sorted((*turn.steps, *befell), key=lambda step: step.seq)))


def nearest(id: str, ids: Iterable[str]) -> list[str]:
    """Those of the ids whose numbers are nearest to this one's."""
    number = int(id.rpartition("/")[2])
    return sorted(ids, key=lambda one: (abs(int(one.rpartition("/")[2]) - number), one))[:3]


def lived(log: Log, name: str, until: int) -> Life:
    life, last = Life(), None
    for recorded, last in walked(log, name, until):
        if recorded is not None:
            told(life, recorded, last)
    if last is None or last.settings.live is None:
        return life
    drain = drain_of(log, name, until) if last.holds.waiting else None
    for one in owed(last, drain):
        standing(life, one, last)
    return life


def walked(log: Log, name: str, until: int) -> Iterator[tuple[Recorded | None, Agent]]:
    """Each event of an agent's stream with the state that it left, as the agent knew it; None: what it came to know since."""
    behaviour = agent(name)
    own = list(log.read(stream=behaviour.stream, until=until))
    here = Position(behaviour.initial())
    for recorded in consumed(behaviour, log, own):
        fold(behaviour, here, recorded)
        if recorded.stream == behaviour.stream:
            yield recorded, here.state
    for recorded in followed(behaviour, log, here.read, until):
        fold(behaviour, here, recorded)
    yield None, here.state


def told(life: Life, recorded: Recorded, state: Agent) -> None:
    """Take an event into the stories that it belongs to."""
    event = recorded.event
    match event:
        case MessageAdded(woke=True):
            life.said[event.id] = " ".join(block.text for block in event.blocks if isinstance(block, Text))
        case Wake():
            life.wakes[event.id] = accepted(event, recorded, short(life.said.pop(event.message or "", "")))
        case WakeWithdrawn(wakes, why):
            for one in wakes:
                life.wakes[one] = replace(life.wakes[one], state="withdrawn", why=why)
        case TurnStarted(wakes, turn):
            begun = life.turns.get(turn) or TurnStory(turn, (), "owed", "", recorded.at, None, ())
            life.turns[turn] = replace(begun, wakes=wakes)
            for one in wakes:
                taken(life, one, turn)
        case _:
            pass
    if turn := turn_of(life, event, state):
        step = Step(recorded.seq, recorded.at, recorded.kind, sentence(recorded, state, life.began))
        if isinstance(event, Compiled):
            step = replace(step, plan=explained(state, event))
        if step.text:
            life.turns[turn] = replace(life.turns[turn], steps=(*life.turns[turn].steps, step))
    if isinstance(event, TurnEnd) and event.turn in life.turns:
        ended(life, event)


def accepted(wake: Wake, recorded: Recorded, text: str) -> WakeStory:
    return WakeStory(
        wake.id,
        recorded.seq,
        recorded.at,
        wake.reason,
        wake.source,
        wake.channel,
        wake.author,
        wake.addressed,
        wake.message,
        text,
        (),
        "owed",
        "",
        None,
    )


def taken(life: Life, wake: str, turn: str) -> None:
    if wake in life.wakes and turn not in life.wakes[wake].turns:
        life.wakes[wake] = replace(life.wakes[wake], turns=(*life.wakes[wake].turns, turn))


def turn_of(life: Life, event: Event, state: Agent) -> str | None:
    """The turn that an event belongs to: it names it, or a call of it; a wake belongs to the one that it joins."""
    if isinstance(event, Wake):
        hold = state.holds.waiting or state.holds.gated
        return hold.turn if hold else None
    turn, call = getattr(event, "turn", None), getattr(event, "call", None)
    if turn in life.turns:
        if call:
            life.calls[call] = turn
        return turn
    return life.calls.get(call or "")


def ended(life: Life, event: TurnEnd) -> None:
    how, turn = ending(event), life.turns[event.turn]
    life.turns[turn.id] = replace(turn, state=how.state, why=how.why)
    for one in turn.wakes:
        if one in life.wakes:
            life.wakes[one] = replace(life.wakes[one], state=how.state, why=how.why)


def standing(life: Life, now: Owed, state: Agent) -> None:
    """What a wake that has not ended waits for, and with it the turn that has taken it, or that it joins."""
    hold, running = state.holds.waiting or state.holds.gated, state.turns.running
    if hold and now.wake in hold.wakes:
        taken(life, now.wake, hold.turn)
    if now.wake in life.wakes:
        wake = life.wakes[now.wake]
        life.wakes[now.wake] = replace(wake, state=now.state, why=now.why, next_at=now.next_at, ends=now.ends)
    went = running if running and now.wake in running.wakes else state.turns.held
    if went:
        waits = "gated" if state.holds.gated else "held"
        does = waits if hold else "owed" if went is not running else "retrying" if went.retry else "running"
        turn = life.turns[went.id]
        life.turns[went.id] = replace(turn, state=does, why=now.why, next_at=now.next_at, ends=now.ends)
