"""The compression drain of one agent: which chunk to compress next, in passes with pauses between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from rewake.actors.agent.calling import SUMMARY
from rewake.actors.agent.commands import Answered, Failed
from rewake.actors.agent.state import Evolve, dispatch
from rewake.actors.behaviour import Behaviour, Command, Due, Follow, Key, Order, Restarted, Timer
from rewake.actors.orders import Infer
from rewake.actors.providers.base import Message, Reply, Request
from rewake.events import (
    Compressed,
    CompressionDiscarded,
    CompressionFailed,
    CompressionRequested,
    DrainDue,
    DrainKicked,
    DrainPassed,
    Event,
    Failure,
    Held,
    HoldLooked,
    Millis,
    Overhead,
    Quarantined,
    Recorded,
    SettingChanged,
    Settings,
    Stretch,
    Text,
    ToolCall,
    ToolResult,
    TurnAborted,
    TurnCompleted,
    TurnExhausted,
    Work,
)
from rewake.events.drain import PassEnd
from rewake.projections import backlog, compression, conversation, holds, host, settings
from rewake.projections.conversation import Message as Said
from rewake.projections.conversation import digest
from rewake.projections.plan import bounds, plan
from rewake.projections.pricing import count_tokens

TICKS = 8
"""Calls of one pass at the most."""
HELD_PAUSE_MS: Millis = 5_000
"""The pause between two passes while a hold waits and no interval is set."""
PAUSE_MS: Millis = 30_000
LONGEST_PAUSE_MS: Millis = 600_000
TRIES = 2
"""Times that one piece of work is asked for before it is quarantined."""
SUMMARY_TOKENS = 2_000
"""The most that a summary may be, in tokens."""

INSTRUCTION = (
    "Summarise the conversation below for the assistant who took part in it and will read this in its place. "
    "Keep names, numbers, decisions, open requests and what tools returned. Write plain prose, shorter than the text."
)


class Drain(Struct, frozen=True):
    """The drain's state: its own stream's compression, beside what it follows of its agent and of the host."""

    name: str
    version: int = 0
    compression: compression.Compression = compression.Compression()
    conversation: conversation.Conversation = conversation.Conversation()
    settings: settings.AgentSettings = settings.AgentSettings()
    holds: holds.Holds = holds.Holds()
    host: host.Host = host.Host()

    @property
    def live(self) -> Settings:
        if self.settings.live is None:
            raise LookupError(f"{self.name} was never started")
        return self.settings.live


PARTS: dict[str, tuple[frozenset[type[Event]], Evolve]] = {
    "compression": (compression.KINDS, compression.evolve),
    "conversation": (conversation.KINDS, conversation.evolve),
    "settings": (settings.KINDS, settings.evolve),
    "holds": (holds.KINDS, holds.evolve),
    "host": (host.KINDS, host.evolve),
}
FOLDS = dispatch(PARTS)
RINGS = frozenset({Held, HoldLooked, TurnCompleted, TurnExhausted, TurnAborted, SettingChanged})


def drain(name: str) -> Behaviour[Drain]:
    """The behaviour of that agent's drain."""
    return Behaviour(
        stream=f"drain/{name}",
        state=Drain,
        initial=lambda: Drain(name),
        evolve=evolve,
        accept=accept,
        react=react,
        orders=orders,
        follows=(
            Follow(f"agent/{name}", conversation.KINDS | settings.KINDS | holds.KINDS, RINGS),
            Follow("host", host.KINDS, frozenset()),
        ),
    )


def evolve(state: Drain, recorded: Recorded) -> Drain:
    """Fold an event of the drain's stream, or of one that it follows."""
    folds = FOLDS.get(type(recorded.event), [])
    changes: dict[str, Any] = {name: fold(getattr(state, name), recorded) for name, fold in folds}
    if recorded.stream == f"drain/{state.name}":
        changes["version"] = recorded.version
    return replace(state, **changes) if changes else state


def accept(state: Drain, command: Command) -> Sequence[Event]:
    """Embody an answer of the summariser, its failure, or the end of a pause."""
    match command:
        case Answered(call, reply, gate_version):
            return answered(state, call, reply, gate_version)
        case Failed(call, error, _, gate_version):
            return failed(state, call, error, gate_version, command.at)
        case Due(("pass", passes)) if resting(state) and passes == state.compression.passes:
            return [DrainDue()]
        case Due() | Restarted():
            return []
        case _:
            raise TypeError(f"drain/{state.name} takes no {type(command).__name__}")


def react(state: Drain, recorded: Recorded) -> Sequence[Event]:
    """Decide what to compress next, and when to stop."""
    event = recorded.event
    match event:
        case Held():
            return [DrainKicked("hold", TICKS)]
        case TurnExhausted(_, _, error) if error.kind in ("over_budget", "uncovered"):
            return [DrainKicked("refusal", TICKS)]
        case DrainKicked() if state.compression.open is None:
            return tick(state, recorded.at)  # nothing during a pause: no pass began
        case DrainDue():
            return [DrainKicked("due", TICKS)]
        case Compressed() | CompressionDiscarded() | Quarantined():
            return tick(state, recorded.at)
        case CompressionFailed(_, _, _, _, True, retry_at):
            return [passed(state, "paused", retry_at or recorded.at)]
        case CompressionFailed(_, work, error, attempt):
            return (
                [Quarantined(work, f"{error.kind}: {error.message}")] if attempt >= TRIES else tick(state, recorded.at)
            )
        case _:
            return []


def orders(state: Drain) -> Mapping[Key, Order]:
    """The summary in flight, or the end of the pause when work waits for it."""
    going = state.compression.open
    if going:
        timeout = state.live.call_timeout_ms / 1_000
        render = partial(request, state, going)
        stream = f"drain/{state.name}"
        infer = Infer(going.id, stream, "compression", going.provider, going.model, False, timeout, render)
        return {("call", going.id): infer}
    if not resting(state):
        return {}
    return {("pass", state.compression.passes): Timer(state.compression.next_at)}


def resting(state: Drain) -> bool:
    """Whether the drain is between two passes, with work that the next one would do."""
    if state.settings.live is None or state.settings.disposed or state.compression.passing:
        return False
    kicks_only = state.host.maintenance_ms == 0 and state.holds.waiting is None
    return not kicks_only and next_work(state) is not None


def next_work(state: Drain) -> Work | None:
    return backlog.next_work(state.conversation, state.compression, state.settings, lacking(state))


def lacking(state: Drain) -> tuple[Stretch, ...]:
    """The stretches that the last refusal wants summaries of, and those that a paced lowering waits for."""
    demand, wanted = state.holds.demand, state.settings.target
    if wanted is None:
        return demand
    lower = replace(state.live, context_budget_tokens=wanted)
    beside = Overhead(lower.system_tokens, lower.tools_tokens)
    trial = plan(state.conversation, state.compression, lower, 1.0, bounds(lower, beside))
    return demand if trial.fits else (*demand, *trial.demand)


def tick(state: Drain, at: Millis) -> list[Event]:
    """One call more in this pass, or its end."""
    going = state.compression.passing
    if going is None:
        return []
    work = next_work(state)
    if work is None or going.left <= 0:
        return [passed(state, "dry" if work is None else "ticks", pause(state) + at)]
    live = state.live
    model = live.compression_model or live.model
    attempt = state.compression.attempts.get(work.digest, 0) + 1
    return [CompressionRequested(work, live.provider, model, attempt)]


def pause(state: Drain) -> Millis:
    return state.host.maintenance_ms or HELD_PAUSE_MS


def passed(state: Drain, why: PassEnd, next_at: Millis) -> DrainPassed:
    going = state.compression.passing
    return DrainPassed(going.made if going else 0, next_work(state) is not None, why, next_at)


def answered(state: Drain, call: str, reply: Reply, gate_version: int) -> Sequence[Event]:
    """The summariser's answer: stored when it is whole, not empty, and smaller than what it stands for."""
    going = state.compression.open
    if going is None or going.id != call:
        return []
    work, text = going.work, reply.text.strip()
    if moved := changed(state, work):
        return [CompressionDiscarded(call, work, moved)]
    encoding = state.live.encoding
    tokens = count_tokens(SUMMARY + text, encoding)
    if wrong := refused(text, reply.stop_reason, tokens, work):
        failure = Failure("invalid_summary", wrong)
        return [CompressionFailed(call, work, failure, going.attempt, gate_version=gate_version)]
    return [Compressed(call, work, text, tokens, encoding, usage=reply.usage, gate_version=gate_version)]


def changed(state: Drain, work: Work) -> str:
    """Why this work's sources are not what they were; empty when they are."""
    places = state.conversation.places
    start, last = places.get(work.first), places.get(work.last)
    if start is None or last is None:
        return "a source is gone"
    if work.level == 1:
        return "" if digest(state.conversation.messages[start : last + 1]) == work.digest else "a source changed"
    try:
        sources = compression.standing(state.conversation, state.compression, start, last + 1, work.level - 1)
    except LookupError:
        return "a source changed"
    return "" if backlog.said(sources) == work.digest else "a source changed"


def refused(text: str, stop: str, tokens: int, work: Work) -> str:
    if not text:
        return "the answer is empty"
    if stop in ("max_tokens", "length"):
        return "the answer was cut off"
    return "" if tokens < work.tokens else f"the answer takes {tokens} tokens, its sources {work.tokens}"


def failed(state: Drain, call: str, error: Failure, gate_version: int, at: Millis) -> Sequence[Event]:
    """A failed call: a transient one pauses the drain, anything else speaks against the request."""
    going = state.compression.open
    if going is None or going.id != call:
        return []
    if moved := changed(state, going.work):
        return [CompressionDiscarded(call, going.work, moved)]
    transient = error.retryable
    retry_at = at + backoff(error, state.compression.pauses) if transient else None
    return [CompressionFailed(call, going.work, error, going.attempt, transient, retry_at, gate_version)]


def backoff(error: Failure, pauses: int) -> Millis:
    """30 s, doubling with each failure in a row to 10 min; or the wait that the provider stated."""
    if error.retry_after_ms is not None:
        return error.retry_after_ms
    return min(PAUSE_MS * 2 ** min(pauses, 10), LONGEST_PAUSE_MS)


def request(state: Drain, going: CompressionRequested) -> Request:
    """The summariser's request: its sources as plain text, one after the other."""
    said = tuple(Message("user", (Text(text),)) for text in texts(state, going.work))
    return Request(
        agent=state.name,
        purpose="compression",
        system=INSTRUCTION,
        messages=said,
        max_tokens=min(SUMMARY_TOKENS, max(64, going.work.tokens - 1)),
        model=going.model,
        call=going.id,
        estimate=going.work.tokens + count_tokens(INSTRUCTION, state.live.encoding),
        encoding=state.live.encoding,
        timeout=state.live.call_timeout_ms / 1_000,
    )


def texts(state: Drain, work: Work) -> list[str]:
    """What is summarised: messages, or summaries of them."""
    told, places = state.conversation, state.conversation.places
    start, stop = places[work.first], places[work.last] + 1
    if work.level == 1:
        return [transcript(one) for one in told.messages[start:stop]]
    return [one.text for one in compression.standing(told, state.compression, start, stop, work.level - 1)]


def transcript(message: Said) -> str:
    """A message as text: who spoke, what was said, asked of a tool, returned by one."""
    lines: list[str] = []
    for block in message.blocks:
        match block:
            case Text(text):
                lines.append(text)
            case ToolCall(_, name, arguments):
                lines.append(f"called {name} {msgspec.json.encode(arguments).decode()}")
            case ToolResult(_, content):
                lines.append(f"result: {content}")
            case _:
                lines.append(f"({type(block).__name__.lower()})")
    return f"{message.role}: " + "\n".join(lines)
