"""What an operator is told: that a turn failed and what would help, that compression is stuck and what it waits for."""

from __future__ import annotations

from rewake.actors.agent.planning import spoken
from rewake.actors.agent.state import Agent, is_pending
from rewake.events import Alerted, Failure, Millis
from rewake.projections.alerts import Alerts, due
from rewake.projections.compression import Compression
from rewake.projections.conversation import price
from rewake.projections.holds import Hold
from rewake.projections.progress import Status, clock
from rewake.projections.settings import budget

REFUSALS = frozenset({"over_budget", "uncovered", "invalid_plan"})


def alert(
    state: Agent, about: str, message: str, at: Millis, *, until: Millis | None = None, worse: bool = False
) -> Alerted:
    """An alert, posted unless one of its kind was in the last quarter of an hour; `worse` news is posted whatever was."""
    turn = state.turns.running or state.turns.held
    posted = worse or due(state.alerts, about, at)
    return Alerted(about, message, posted, turn=turn.id if turn else "", until=until, agent=state.name)


def failed(state: Agent, at: Millis, failure: Failure, binding: str) -> list[Alerted]:
    """What is told of a turn that ends without an answer. `binding` is what refused its context, if something did."""
    what = failure.message if failure.kind in ("window_full", *REFUSALS) else failure.told
    said = f"{state.turn.id} ended without an answer: {what}"
    if failure.kind == "window_full":
        told = state.conversation
        newest = price(told, told.newest, len(told.messages)) if told.messages else 0
        sizes = f"{said}; its newest message, with all that came behind it, takes {newest:,}"
        return [alert(state, "window_full", f"{sizes}. {advice(state, 'window')}", at, worse=True)]
    if failure.kind in REFUSALS:
        kick = f". {kicked(state, at)}" if failure.kind != "invalid_plan" else ""
        helps = f" {advice(state, binding)}" if failure.kind == "over_budget" else ""
        return [alert(state, "context_refusal", said + kick + helps, at, worse=True)]
    return [alert(state, "auth", said, at)] if failure.kind == "auth" else []


def advice(state: Agent, binding: str) -> str:
    """What would make room, with the sizes. A larger budget helps nobody whose window binds."""
    live = state.live
    if binding == "window":
        return (
            f"To make room: fewer tokens for the reply (max_tokens = {live.max_tokens:,}), a shorter system prompt "
            f"({live.system_tokens:,}), fewer tools ({live.tools_tokens:,}), or a model with a larger window "
            f"(physical_window_tokens = {live.physical_window_tokens or 0:,})."
        )
    return (
        f"To make room: a larger context_budget_tokens (now {budget(live):,}) or a smaller recent_window_tokens "
        f"({live.recent_window_tokens:,})."
    )


def kicked(state: Agent, at: Millis) -> str:
    """What the kick that compression gets at such an end does."""
    work, given = state.compression, len(state.compression.quarantined)
    if work.passing:
        return f"Compression was kicked: a pass is under way ({work.passing.made} ticks so far)."
    if work.paused_until > at:
        return f"Compression was kicked: 0 ticks, it pauses until {clock(work.paused_until)} after a failure."
    if is_pending(state):
        return "Compression was kicked: a pass of at most 8 ticks begins."
    why = f"{given} stretches are quarantined and nothing else is left" if given else "nothing is left to compress"
    return f"Compression was kicked: 0 ticks, {why}."


def moved(compression: Compression, hold: Hold) -> Millis:
    """When compression last made something for this hold, or the hold began."""
    return max(hold.held_at, compression.moved_at)


def stuck(name: str, hold: Hold, since: Millis, stands: Status, alerts: Alerts, at: Millis) -> Alerted:
    """Tells that compression has made nothing for a held turn since then, and what it waits for."""
    said = f"{hold.turn} is held, and nothing was summarised for {spoken(at - since)}: {stands.told}"
    return Alerted("stuck", said, due(alerts, "stuck", at), turn=hold.turn, until=hold.until, agent=name)
