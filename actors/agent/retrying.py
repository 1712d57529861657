"""What fails is tried again after a recorded wait, or given up with one marker."""

from __future__ import annotations

from rewake.actors.agent.alerting import alert, failed
from rewake.actors.agent.state import Agent
from rewake.actors.agent.tooling import cut_off
from rewake.actors.policy import FINAL
from rewake.events import (
    Event,
    Failure,
    MessageAdded,
    Millis,
    RetryScheduled,
    Text,
    TurnExhausted,
    UsageRecorded,
)
from rewake.projections.pricing import count_tokens
from rewake.projections.turns import Turn

HARD_DOWN = 3
"""Exhausted turns in a row that make an alert."""
MARKER_CHARS = 600
WINDOW_FULL = "window_full: the context does not fit the model's window"


def after_refused(state: Agent, at: Millis, failure: Failure, binding: str) -> list[Event]:
    """A start that was refused waits as its configuration says, or is given up; a run of its own at once."""
    delays, failures = state.live.refusal_delays_ms, state.turn.failures
    goes_on = failure.kind not in FINAL and failures <= len(delays) and state.live.kind != "ephemeral"
    return wait_or_end(state, at, failure, delays[failures - 1] if goes_on else None, binding)


def wait_or_end(state: Agent, at: Millis, failure: Failure, delay: Millis | None, binding: str = "") -> list[Event]:
    """Wait that long, durably; None: the turn is exhausted. `binding` is what refused its context, if something did."""
    if delay is None:
        return exhausted(state, at, failure, binding)
    turn = state.turn
    return [RetryScheduled(turn.id, turn.failures, at + delay, delay, failure)]


def exhausted(state: Agent, at: Millis, failure: Failure, binding: str = "") -> list[Event]:
    """The turn ends without an answer: the agent and the operator are told, nobody is woken."""
    turn, hold = state.turn, state.holds.over
    events: list[Event] = [*cut_off(state), marker(state, failure), *failed(state, at, failure, binding)]
    if state.turns.streak + 1 == HARD_DOWN:
        said = f"{HARD_DOWN} turns in a row ended without an answer, the last of them {turn.id}: {failure.told}"
        events.append(alert(state, "hard_down", said, at, worse=True))
    events += usage(state)
    told = f"held since {hold.since}, ended {hold.ended}" if hold and hold.turn == turn.id else ""
    stop = "context_overflow" if failure.kind == "overflow" else failure.kind
    events.append(TurnExhausted(turn.id, stop, failure, turn.failures, turn.tools_run, told))
    return events


def marker(state: Agent, failure: Failure) -> MessageAdded:
    """One message to the agent: what failed, that no reply was sent, what did run. A full window's figures are not its
    business.
    """
    turn = state.turn
    if failure.kind == "window_full":
        what, advice = WINDOW_FULL, "Trying again will not make room; whoever configures this agent can."
    else:
        what, advice = failure.told, "If this happens again, change the approach."
    what = f"[turn failed] {what}"[:MARKER_CHARS]
    text = f"{what}\nNo reply was sent; {turn.tools_run} tool calls did run. {advice}"
    encoding = state.live.encoding
    return MessageAdded("system", (Text(text),), count_tokens(text, encoding), encoding, turn=turn.id)


def usage(state: Agent, turn: Turn | None = None) -> list[Event]:
    """What the completed calls of a turn (None: the running one) used, if each of them said so."""
    turn = turn or state.turn
    if not turn.step or turn.usage is None:
        return []
    used = turn.usage
    return [
        UsageRecorded(
            turn.id,
            used.input,
            used.output,
            used.cached,
            last_counted=turn.last_counted,
            last_payload=turn.last_payload,
            model=state.live.model,
            connection=state.live.provider,
        )
    ]
