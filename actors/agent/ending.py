"""Ends from outside: a turn is aborted, an operator withdraws wakes, the agent is disposed."""

from __future__ import annotations

from collections.abc import Sequence

from rewake.actors.agent.calling import kept
from rewake.actors.agent.commands import Abort, Cancel, Dispose
from rewake.actors.agent.gating import let_go
from rewake.actors.agent.holding import ended
from rewake.actors.agent.retrying import usage
from rewake.actors.agent.state import Agent
from rewake.actors.agent.tooling import cut_off
from rewake.actors.agent.waking import owed_to
from rewake.events import (
    AgentDisposed,
    Event,
    InvalidSetting,
    MessageRemoved,
    Millis,
    TurnAborted,
    TurnNotRunning,
    TurnWithdrawn,
    UnknownAgent,
    WakeWithdrawn,
)
from rewake.projections.conversation import seen
from rewake.projections.turns import Turn
from rewake.projections.wakes import Pending

DISPOSED = "it was disposed"


def aborted(state: Agent, said: Abort) -> list[Event]:
    """The turn ends where it is: what it had said so far is kept, its tools are cut off. Raises TurnNotRunning."""
    turn = present(state)
    if turn is None or turn.id != said.turn:
        raise TurnNotRunning(said.turn, turn.id if turn else None)
    if hold := state.holds.waiting:
        return [*ended(hold, "cancelled", said.at), *usage(state, turn), TurnAborted(turn.id, said.reason)]
    if gated := state.holds.gated:
        return [let_go(gated, "cancelled"), *usage(state, turn), TurnAborted(turn.id, said.reason)]
    if turn is state.turns.held:  # let go while the host is quiesced: nothing of it is open
        return [*usage(state, turn), TurnAborted(turn.id, said.reason)]
    return [*unfinished(state, said), *cut_short(state, said.reason)]


def present(state: Agent) -> Turn | None:
    """The turn that has not ended: it runs, or it waits."""
    return state.turns.running or state.turns.held


def cut_short(state: Agent, reason: str) -> list[Event]:
    return [*cut_off(state), *usage(state), TurnAborted(state.turn.id, reason)]


def unfinished(state: Agent, said: Abort) -> list[Event]:
    """What the open call had said when it was cut off, as a partial message."""
    call = state.turn.call
    return kept(state, said.text) if call and call.call == said.call else []


def cancelled(state: Agent, said: Cancel) -> list[Event]:
    """What no turn works on is no longer owed: machines' wakes, with `drop="all"` those of people too."""
    gone = [one for one in idle(state) if said.drop == "all" or not personal(one)]
    return [WakeWithdrawn(ids(gone), "cancelled", unshown(state, gone))] if gone else []


def idle(state: Agent) -> list[Pending]:
    """The wakes that wait: for their turn, with a held one, or for a retry."""
    turn = state.turns.running
    works = turn.id if turn and not turn.retry else None
    return [one for one in state.wakes.owed if one.turn is None or one.turn != works]


def personal(wake: Pending) -> bool:
    """Whether people sent it: a message to the agent."""
    return wake.addressed and wake.message is not None


def ids(wakes: Sequence[Pending]) -> tuple[str, ...]:
    return tuple(one.id for one in wakes)


def unshown(state: Agent, wakes: Sequence[Pending]) -> tuple[str, ...]:
    """The messages that these came with, but for those that a request has had."""
    return tuple(one.message for one in wakes if one.message and not seen(state.conversation, one.message))


def after_withdrawal(state: Agent, at: Millis, gone: WakeWithdrawn) -> list[Event]:
    """What goes with withdrawn wakes: their messages, and the turn that they were the last causes of."""
    ends = causeless(state, at, gone.why)
    removed = [MessageRemoved(id, more=True) for id in gone.messages]
    if removed and not ends:
        removed[-1] = MessageRemoved(gone.messages[-1])
    return [*removed, *ends]


def causeless(state: Agent, at: Millis, why: str) -> list[Event]:
    """The end of a turn whose last cause is gone. One that waits in a hold, for its provider's gate, or for the host to
    resume after those, was not sent.
    """
    hold, gated, turn, held = state.holds.waiting, state.holds.gated, state.turns.running, state.turns.held
    over = "stopped" if why == "disposed" else "cancelled"
    if hold and not hold.wakes:
        return [*ended(hold, over, at), TurnWithdrawn(hold.turn, why)]
    if gated and not gated.wakes:
        return [let_go(gated, over), TurnWithdrawn(gated.turn, why)]
    if held and not hold and not gated and not owed_to(state, held):
        return [TurnWithdrawn(held.id, why)]
    return cut_short(state, why) if turn and not turn.wakes else []


def disposed(state: Agent, said: Dispose) -> list[Event]:
    """The agent is gone, with all that it owed."""
    owed = state.wakes.owed
    withdrawn: list[Event] = [WakeWithdrawn(ids(owed), "disposed")] if owed else []
    goes = state.settings.once and present(state)  # it goes by itself when its turn ends
    return withdrawn if goes else [*withdrawn, AgentDisposed(said.reason)]


def never_begun(state: Agent) -> list[Event]:
    """A run of its own whose process died before it was given anything to do: nobody gives it that any more."""
    gone = state.settings.once and not state.settings.disposed and not state.wakes.owed
    return [AgentDisposed("its run never began")] if gone else []


def refused(state: Agent, starts: bool) -> Exception:
    """What a disposed agent answers."""
    if starts:
        return InvalidSetting("name", state.name, f"{DISPOSED}, and names are not used again")
    return UnknownAgent(state.name, DISPOSED)
