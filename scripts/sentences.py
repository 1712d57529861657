"""What each event of a turn says of it, as a sentence."""

from __future__ import annotations

from dataclasses import dataclass, field

from rewake.actors.agent.planning import room_of, spoken
from rewake.actors.agent.state import Agent
from rewake.events import (
    ActorFailed,
    ActorParked,
    Alerted,
    CalibrationSampled,
    Compiled,
    Event,
    Failure,
    Held,
    HoldDue,
    HoldEnded,
    HoldLooked,
    HostStarted,
    InferenceCompleted,
    InferenceFailed,
    InferenceInterrupted,
    InferenceRequested,
    MessageAdded,
    Millis,
    ProviderHeld,
    ProviderReleased,
    Recorded,
    Refused,
    RetryDue,
    RetryScheduled,
    Text,
    ToolCalled,
    ToolReturned,
    TurnAborted,
    TurnCompleted,
    TurnDeclined,
    TurnExhausted,
    TurnPrepared,
    TurnStarted,
    TurnWithdrawn,
    UndoPoint,
    UsageRecorded,
    Wake,
)
from rewake.projections.calibration import meter
from rewake.projections.gates import closes_gate
from rewake.projections.progress import clock
from rewake.scripts.tables import json, short


@dataclass
class Began:
    """When calls and tools began, which they are, and how many summaries there were when the last hold did."""

    at: dict[str, Millis] = field(default_factory=dict[str, Millis])
    calls: dict[str, InferenceRequested] = field(default_factory=dict[str, InferenceRequested])
    tools: dict[str, ToolCalled] = field(default_factory=dict[str, ToolCalled])
    summaries: int = 0

    def took(self, id: str, at: Millis) -> str:
        return f"{at - self.at.get(id, at):,} ms"


GOES_ON = {
    "opened": "goes on: the gate has opened",
    "resumed": "goes on: the host has resumed",
    "model": "goes on: with another model",
    "cancelled": "waits no longer: cancelled",
    "stopped": "waits no longer: the agent was disposed of",
}


def sentence(recorded: Recorded, state: Agent, began: Began) -> str:
    """What the event says, the state as it was right after it; empty for what goes without saying."""
    event, at = recorded.event, recorded.at
    match event:
        case InferenceRequested(call=call) | ToolCalled(tool_call=call):
            began.at[call] = at
            if isinstance(event, ToolCalled):
                began.tools[call] = event
                return f"calls {event.name} ({call}): {short(json(event.arguments))}"
            began.calls[call] = event
            return requested(event)
        case InferenceCompleted(call):
            return completed(event, began.calls.get(call), began.took(call, at))
        case InferenceFailed(call, error):
            gives_up = "" if event.retry_ms is not None or closes_gate(error) else ": it is not tried again"
            return f"{call} failed after {began.took(call, at)}: {error.told}{gives_up}"
        case InferenceInterrupted(call):
            return f"{call} was cut off by a restart: it may or may not have reached the provider"
        case ToolReturned(call):
            tool = began.tools.pop(call, None)
            return returned(event, tool.name if tool else "a tool", began.took(call, at))
        case Held() | HoldLooked() | HoldDue() | HoldEnded():
            return holding(recorded, state, began)
        case Wake(id=wake):
            return f"{wake} joins the hold" if state.holds.waiting else f"{wake} joins it"
        case CalibrationSampled():
            return sampled(event, state)
        case _:
            return plainly(event)


def plainly(event: Event) -> str:
    """What an event says by itself."""
    match event:
        case TurnStarted(wakes, _, attempt, resumes=resumes):
            again = "" if attempt == 1 else f" again, attempt {attempt}" + (", a continuation" if resumes else "")
            return f"started{again}, for {', '.join(wakes)}"
        case TurnPrepared(error=Failure() as error):
            return f"its policy failed: {error.told}"
        case TurnPrepared(admitted=admitted):
            return "its policy lets it run" if admitted else "its policy does not let it run"
        case Compiled(tokens=tokens, folded=folded):
            return f"compiled: {tokens:,} tokens" + (", a part of the history by its summaries" if folded else "")
        case Refused():
            return refused(event)
        case RetryScheduled(_, _, due, delay, error):
            return f"waits {delay / 1_000:g} s, until {clock(due)}, after {error.told}"
        case RetryDue():
            return "tries again"
        case ProviderHeld(why="quiesced"):
            return "waits: the host is quiesced"
        case ProviderHeld(wakes=wakes, provider=provider, model=model, why=why):
            return f"waits for the gate of {provider}, {model} ({why}), for {', '.join(wakes)}"
        case ProviderReleased(why=why):
            return GOES_ON[why]
        case MessageAdded(role="assistant", blocks=blocks):
            text = " ".join(block.text for block in blocks if isinstance(block, Text))
            return f"says: {short(text)}" if text else ""
        case MessageAdded(role="system", blocks=(Text(text),)):
            return f"the agent is told: {short(text)}"
        case Alerted(about, message):
            return f"an alert, {about}: {message}"
        case UsageRecorded(_, given, made, cached):
            return f"used {given:,} tokens of input ({cached:,} cached), {made:,} of output"
        case HostStarted(version, epoch):
            return f"process number {epoch} starts, with version {version}, and takes it up where it was"
        case ActorFailed(stream, error, count, on, command):
            return f"{stream} failed on {command or f'event {on}'}, failure {count} in a row: {error}"
        case ActorParked(stream, error):
            return f"{stream} is parked until the next start of the process: {error}"
        case UndoPoint() | MessageAdded():
            return ""
        case TurnCompleted(_, stop):
            return f"completed ({stop})"
        case TurnExhausted(error=error, attempts=failures, tools_run=ran):
            return f"given up after {failures} failures and {ran} tool calls: {error.told}"
        case TurnAborted(_, reason) | TurnWithdrawn(_, reason):
            return f"{'aborted' if isinstance(event, TurnAborted) else 'withdrawn'}: {reason}"
        case TurnDeclined():
            return "declined: its wakes are consumed without a call"
        case _:
            return event.kind.replace("_", " ")


def requested(event: InferenceRequested) -> str:
    tools = f", {len(event.tools)} tools offered" if event.tools else ""
    priced = f"estimated at {event.estimate:,} tokens, priced {event.payload:,}"
    return f"{event.call}, request {event.step} to {event.provider}/{event.model}: {priced}{tools}"


def completed(event: InferenceCompleted, asked: InferenceRequested | None, took: str) -> str:
    told = f"{event.call} answered after {took} ({event.stop_reason})"
    if event.usage is None:
        return f"{told}; the provider counted nothing"
    beside = f" against an estimate of {asked.estimate:,}" if asked else ""
    return f"{told}; the provider counted {event.usage.input:,} tokens{beside}, and {event.usage.output:,} of output"


def returned(event: ToolReturned, name: str, took: str) -> str:
    if event.why:
        return f"{name} ({event.tool_call}) was cut off: {event.result}"
    size = f"{len(event.result):,} characters"
    if event.excerpt_chars:
        size += f", of which an excerpt of {event.excerpt_chars:,} is shown"
    if event.is_error:
        return f"{name} ({event.tool_call}) failed after {took}: {short(event.result)}"
    return f"{name} ({event.tool_call}) returned after {took}: {size}" + (
        "; it ends the turn" if event.ends_turn else ""
    )


def refused(event: Refused) -> str:
    if event.why == "uncovered":
        return f"refused, uncovered: the plan shows neither {', '.join(event.missing)} nor a summary of it"
    helps = "summaries can make room" if event.compressible else "no summary can make room"
    beside = f" beside {event.overhead.total:,} of system, tools and the like" if event.binding == "window" else ""
    return (
        f"refused, {event.why}: {event.tokens:,} tokens against the {room_of(event):,} that its {event.binding} leaves"
        f"{beside}; {event.mandatory:,} must stay, {event.shortfall:,} are too many, at multiplier {event.multiplier:.3f}; "
        f"{helps}"
    )


def holding(recorded: Recorded, state: Agent, began: Began) -> str:
    made = len(state.compression.made)
    match recorded.event:
        case Held(wakes=wakes, since=since, until=until):
            again = "" if since == recorded.at else f" again, first at {clock(since)},"
            began.summaries = made
            return f"held{again} until {clock(until)} at the latest, for {', '.join(wakes)}"
        case HoldLooked(tokens=tokens):
            return f"looked at: {tokens:,} tokens do not fit yet"
        case HoldEnded(_, why, waited):
            hold = state.holds.over
            looks = f", {hold.looks} looks" if hold else ""
            new = made - began.summaries
            return f"the hold ends, {why}, after {spoken(waited)}: {new} summaries were made meanwhile{looks}"
        case _:
            return "the hold's deadline has come"


def sampled(event: CalibrationSampled, state: Agent) -> str:
    if not event.accepted:
        return f"the count is not believed: {event.why}"
    now = meter(state.calibration, state.live)
    return f"counted {event.counted:,} for {event.priced:,} priced: the multiplier is {now.multiplier:.3f}"
