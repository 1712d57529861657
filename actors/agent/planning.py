"""A turn's start: its context is compiled, or refused."""

from __future__ import annotations

from rewake.actors.agent.continuing import regardless
from rewake.actors.agent.pacing import step, stepped
from rewake.actors.agent.rendering import cue, prefill
from rewake.actors.agent.state import Agent, planned
from rewake.events import (
    Compiled,
    Event,
    InvalidPlan,
    InvalidSetting,
    Millis,
    Overhead,
    Refused,
    Tokens,
)
from rewake.projections.calibration import meter
from rewake.projections.holds import Hold
from rewake.projections.plan import Plan, Refusal, bounds
from rewake.projections.pricing import count_tokens
from rewake.projections.turns import Turn

MOST_SAID = 500
"""Characters of what a strategy's error says, at the most."""


def compile(state: Agent) -> list[Event]:
    """The plan of the running turn's next request, committed; or why there is none."""
    turn, text = state.turn, note(state.holds.over)
    beside = overhead(state, turn, text)
    try:
        if made := step(state, beside):
            return [stepped(state, made.budget, more=True), compiled(state, turn, made.plan, text)]
        found = planned(state, beside)
        if isinstance(found, Refusal) and (plan := regardless(state, beside, found)):
            found = plan
    except (InvalidPlan, InvalidSetting) as error:
        found = unplanned(state, beside, error)
    match found:
        case Plan() as plan:
            return [compiled(state, turn, plan, text)]
        case Refusal() as refusal:
            return [refused(state, turn, refusal)]


def compiled(state: Agent, turn: Turn, plan: Plan, text: str) -> Compiled:
    return Compiled(
        turn.id,
        turn.attempt,
        plan.stretches,
        plan.digest,
        plan.tokens,
        plan.bounds.room,
        state.live.encoding,
        window_room=plan.bounds.window_room,
        overhead=plan.bounds.overhead,
        folded=plan.folded,
        demand=plan.demand,
        multiplier=meter(state.calibration, state.live).multiplier,
        note=text,
        probe=plan.probe,
        price=plan.price,
        flat=plan.flat,
    )


def refused(state: Agent, turn: Turn, refusal: Refusal) -> Refused:
    return Refused(
        turn.id,
        turn.attempt,
        refusal.why,
        refusal.tokens,
        refusal.bounds.room,
        state.live.encoding,
        binding=refusal.bounds.binding,
        mandatory=refusal.mandatory,
        shortfall=refusal.shortfall,
        compressible=refusal.compressible,
        window_room=refusal.bounds.window_room,
        overhead=refusal.bounds.overhead,
        multiplier=meter(state.calibration, state.live).multiplier,
        demand=refusal.demand,
        missing=refusal.missing,
        error=refusal.error,
    )


def unplanned(state: Agent, beside: Overhead, error: InvalidPlan | InvalidSetting) -> Refusal:
    """What is refused because the strategy gave nothing that can be sent, or is not here."""
    learned = meter(state.calibration, state.live)
    within = bounds(state.live, beside, learned.multiplier, learned.offsets.get(state.live.overhead_digest, 0.0))
    why = "invalid_plan" if isinstance(error, InvalidPlan) else "no_strategy"
    told = str(error)[:MOST_SAID].encode(errors="replace").decode()
    tokens = error.fields.get("tokens")
    return Refusal(why, tokens if isinstance(tokens, int) else 0, within, 0, 0, False, error=told)


def overhead(state: Agent, turn: Turn | None, text: str = "") -> Overhead:
    """What the request sends beside its history: system prompt, tools, what `context=` gave, the line and the beginning
    of an answer that it ends on, a hold's note.
    """
    live, beside = state.live, count_tokens(text, state.live.encoding)
    if turn is None:
        return Overhead(live.system_tokens, live.tools_tokens, 0, beside)
    prepared = turn.prepared
    injected, flat = (
        (prepared.injections.tokens + prepared.tail_tokens, prepared.injections.flat) if prepared else (0, 0)
    )
    beside += cue(state, turn)[1] + prefill(turn)[1]
    return Overhead(live.system_tokens, live.tools_tokens, injected, beside, flat)


def note(hold: Hold | None) -> str:
    """What the first compile after a hold tells the agent, that once."""
    if hold is None or hold.compiled or hold.ended in ("", "stopped", "cancelled"):
        return ""
    refusal, waited = hold.refusal, spoken(hold.waited_ms)
    if refusal.why == "uncovered":
        return f"[budget-hold] Your context could not be shown whole, so this turn waited {waited}. It fits now."
    sizes = f"({refusal.tokens:,} tokens against {room_of(refusal):,})"
    whose = "its window" if refusal.binding == "window" else "its budget"
    return f"[budget-hold] Your context didn't fit {whose} {sizes}, so this turn waited {waited}. It fits now."


def room_of(refusal: Refused) -> Tokens:
    """The room of the bound that refused."""
    window = refusal.window_room if refusal.binding == "window" else None
    return refusal.room if window is None else window


def spoken(wait_ms: Millis) -> str:
    """A wait in whole minutes rounded down, in seconds under one minute."""
    return f"{wait_ms // 60_000} min" if wait_ms >= 60_000 else f"{wait_ms // 1_000} s"
