"""Budget holds: a turn that is refused waits for compression, is looked at when something it depends on moved, and
ends.
"""

from __future__ import annotations

from msgspec.structs import replace

from rewake.actors.agent.alerting import alert, moved
from rewake.actors.agent.planning import note, overhead, room_of, spoken
from rewake.actors.agent.retrying import after_refused, wait_or_end
from rewake.actors.agent.state import Agent, is_pending, planned, revisions
from rewake.actors.agent.waking import caused, owed_to, started
from rewake.events import Alerted, Event, Failure, Held, HoldEnded, HoldLooked, Millis, Recorded, Refused
from rewake.events.holds import HoldEnd, HoldTime
from rewake.projections.holds import Hold, record, spent
from rewake.projections.turns import Turn

DEADLINE_MS: Millis = 30 * 60_000
"""How long a turn waits for compression at the most, from its first refusal."""
MOST_NAMED = 10
"""Messages that a failure names, at the most."""
ABSENT_MS: Millis = 60_000
"""How long a turn waits for its strategy to be found, doubling each time up to an hour."""


def after_refusal(state: Agent, recorded: Recorded, refusal: Refused) -> list[Event]:
    """Hold the turn when compression can make it fit, else ask the error policy."""
    earlier = record(state.holds, refusal.turn)
    if refusal.why == "no_strategy":
        delay = ABSENT_MS * min(2 ** min(state.turn.failures - 1, 6), 60)
        return wait_or_end(state, recorded.at, failure(refusal, earlier, recorded.at), delay)
    until = earlier.until if earlier else recorded.at + DEADLINE_MS
    if may_hold(state, refusal) and recorded.at < until:
        since = earlier.since if earlier else recorded.at
        held = Held(
            refusal.turn, caused(state), since, until, refusal, revisions(state), resumes=not state.turn.opening
        )
        return [held] if earlier else [held, told(state, refusal, recorded.at, until)]
    return after_refused(state, recorded.at, failure(refusal, earlier, recorded.at), refusal.binding)


def may_hold(state: Agent, refusal: Refused) -> bool:
    return (
        refusal.why in ("over_budget", "uncovered")
        and refusal.compressible
        and state.live.kind != "ephemeral"
        and not spent(state.holds, refusal.turn)
        and not stands_still(state)
        and is_pending(state)
    )


def stands_still(state: Agent) -> bool:
    """Whether a hold has stalled, and compression has made nothing since."""
    since = state.holds.stalled_at
    return since is not None and state.live.hold_stall_after_ms is not None and state.compression.moved_at < since


def times(state: Agent, hold: Hold) -> dict[HoldTime, Millis]:
    """When a hold ends at the latest, and when because compression has made nothing for so long."""
    stall = state.live.hold_stall_after_ms
    due: dict[HoldTime, Millis] = {"deadline": hold.until}
    if stall is not None:
        due["stalled"] = moved(state.compression, hold) + stall
    return due


def look(state: Agent, recorded: Recorded) -> list[Event]:
    """Whether the held turn fits now; not asked again of the same inputs."""
    hold = state.holds.waiting
    if hold is None or not hold.wakes or revisions(state) == hold.seen:
        return []
    try:
        plan = planned(state, overhead(state, next_start(state), note(over(hold, recorded.at))))
    except Exception:
        return ended(hold, "check_failed", recorded.at)
    if plan.fits:
        return ended(hold, "fit", recorded.at)
    looked = HoldLooked(hold.turn, revisions(state), plan.tokens, plan.demand)
    return [looked]


def next_start(state: Agent) -> Turn | None:
    """The held turn as it will start again: the line that it ends on is that of all who have joined it."""
    held = state.turns.held
    if held is None:
        return None
    begun = started(state, owed_to(state, held), held)
    return replace(held, cue=begun.cue, cue_tokens=begun.cue_tokens)


def looked(state: Agent, recorded: Recorded) -> list[Event]:
    """After a look that did not release: the hold ends when nothing is left that could make room."""
    hold = state.holds.waiting
    return ended(hold, "nothing_pending", recorded.at) if hold and not is_pending(state) else []


def due(state: Agent, recorded: Recorded, why: HoldTime) -> list[Event]:
    """A hold's time has come."""
    return ended(state.holds.waiting, why, recorded.at) if state.holds.waiting else []


def ended(hold: Hold, why: HoldEnd, at: Millis) -> list[Event]:
    return [HoldEnded(hold.turn, why, max(0, at - hold.since))]


def over(hold: Hold, at: Millis) -> Hold:
    """The hold as it would be if it ended now, fitting."""
    return Hold(
        hold.turn, hold.wakes, hold.since, hold.until, hold.refusal, ended="fit", waited_ms=max(0, at - hold.since)
    )


def failure(refusal: Refused, earlier: Hold | None, at: Millis) -> Failure:
    """The refusal as a failure, with the sizes and, when the turn was held, since when and why that ended."""
    said = wrong(refusal) or (
        f"the context takes {refusal.tokens:,} tokens, its {refusal.binding} leaves {room_of(refusal):,}; "
        f"{refusal.mandatory:,} of them must stay"
    )
    if earlier:
        said += f"; first held {spoken(max(0, at - earlier.since))} ago, the hold ended: {earlier.ended}"
    return Failure(refusal.why, said, retryable=refusal.why != "window_full")


def wrong(refusal: Refused) -> str:
    """What is wrong with the plan, or with the strategy; empty where the context is too large."""
    if refusal.why != "uncovered":
        return refusal.error
    first, more = ", ".join(refusal.missing[:MOST_NAMED]), len(refusal.missing) - MOST_NAMED
    named = f"{first} and {more} more" if more > 0 else first
    return f"its plan neither shows nor summarises {named}"


def told(state: Agent, refusal: Refused, at: Millis, until: Millis) -> Alerted:
    """Tells that a turn is held and until when."""
    sizes = f"{refusal.tokens:,} tokens against {room_of(refusal):,}"
    said = f"{refusal.turn} is held: {wrong(refusal) or sizes}; it runs when compression has made room"
    return alert(state, "context_refusal", said, at, until=until)
