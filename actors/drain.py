"""The compression drain of one agent: which chunk to compress next, in passes with pauses between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from immutables import Map
from msgspec import Struct
from msgspec.structs import replace

from rewake.actors import deferring
from rewake.actors.agent.alerting import moved, stuck
from rewake.actors.agent.commands import Answered, Failed, NotSent, ReleaseQuarantine
from rewake.actors.agent.state import Evolve, dispatch, folded
from rewake.actors.behaviour import Behaviour, Command, Due, Follow, Key, Order, Restarted, Timer
from rewake.actors.orders import Infer
from rewake.actors.providers.base import Reply
from rewake.actors.summarising import priced, request, stub, whole, wrong
from rewake.events import (
    AgentDisposed,
    Alerted,
    CalibrationSampled,
    Compiled,
    Compressed,
    CompressionDiscarded,
    CompressionFailed,
    CompressionHeld,
    CompressionReleased,
    CompressionRequested,
    DrainDue,
    DrainKicked,
    DrainPassed,
    Event,
    Failure,
    GateClosed,
    GateOpened,
    Held,
    HoldEnded,
    HoldLooked,
    InferenceRequested,
    MessageAdded,
    Millis,
    Overhead,
    Quarantined,
    Recorded,
    Released,
    RewakeError,
    SettingChanged,
    Settings,
    Stretch,
    TurnAborted,
    TurnCompleted,
    TurnExhausted,
    Wake,
    Work,
)
from rewake.events.drain import PassEnd
from rewake.projections import (
    alerts,
    backlog,
    calibration,
    compression,
    conversation,
    gates,
    holds,
    host,
    settings,
    strategies,
)
from rewake.projections.backlog import spent
from rewake.projections.calibration import meter
from rewake.projections.compression import key
from rewake.projections.conversation import digest
from rewake.projections.fitting import fit
from rewake.projections.gates import closes_gate
from rewake.projections.holds import Hold
from rewake.projections.progress import Status, status

TICKS = 8
"""Calls of one pass at the most."""
HELD_PAUSE_MS: Millis = 5_000
"""The pause between two passes while a hold waits and no interval is set."""
PAUSE_MS: Millis = 30_000
LONGEST_PAUSE_MS: Millis = 600_000
STUCK_MS: Millis = 5 * 60_000
"""How long nothing may come for a hold before an operator is told."""
VAIN = 12
"""Answers in a row that are no summaries: after as many the summariser is asked once in a while only."""
LONGEST_VAIN_MS: Millis = 6 * 3_600_000
DAY_MS: Millis = 86_400_000


class Drain(Struct, frozen=True):
    """The drain's state: its own stream's compression, beside what it follows of its agent, of the host and the gates."""

    name: str
    version: int = 0
    compression: compression.Compression = compression.Compression()
    conversation: conversation.Conversation = conversation.Conversation()
    settings: settings.AgentSettings = settings.AgentSettings()
    holds: holds.Holds = holds.Holds()
    calibration: calibration.Calibration = calibration.Calibration()
    alerts: alerts.Alerts = alerts.Alerts()
    host: host.Host = host.Host()
    gates: Map[str, gates.Gate] = Map()

    @property
    def live(self) -> Settings:
        if self.settings.live is None:
            raise LookupError(f"{self.name} was never started")
        return self.settings.live

    @property
    def stream(self) -> str:
        return f"drain/{self.name}"


PARTS: dict[str, tuple[frozenset[type[Event]], Evolve]] = {
    "compression": (compression.KINDS, compression.evolve),
    "conversation": (conversation.KINDS, conversation.evolve),
    "settings": (settings.KINDS, settings.evolve),
    "holds": (holds.KINDS, holds.evolve),
    "calibration": (calibration.KINDS, calibration.evolve),
    "alerts": (alerts.KINDS, alerts.evolve),
    "host": (host.KINDS, host.evolve),
    "gates": (gates.KINDS, gates.evolve_all),
}
FOLDS = dispatch(PARTS)
UNREAD: frozenset[type[Event]] = frozenset({InferenceRequested})
"""What only the agent itself asks of its conversation: which messages were sent."""
FOLDED = (conversation.KINDS | settings.KINDS | holds.KINDS | calibration.KINDS) - UNREAD
RINGS = frozenset(
    {Held, HoldLooked, HoldEnded, TurnCompleted, TurnExhausted, TurnAborted, SettingChanged, AgentDisposed}
)
LATER: frozenset[type[Event]] = frozenset({TurnCompleted})
"""What a turn has added may be enough for a summary, before the next pass begins: that is no hurry."""

NOTHING_FOLLOWS = frozenset({MessageAdded, Wake, Compiled, CalibrationSampled, TurnCompleted})
"""Kinds that are looked up before any `match`: the most frequent ones."""


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
            Follow(f"agent/{name}", FOLDED, RINGS, LATER),
            Follow("host", host.KINDS, frozenset()),
            Follow("gate/*", gates.KINDS, frozenset({GateClosed, GateOpened})),
        ),
    )


def evolve(state: Drain, recorded: Recorded) -> Drain:
    """Fold an event of the drain's stream, or of one that it follows."""
    changes = folded(FOLDS, state, recorded)
    if recorded.stream == state.stream:
        changes["version"] = recorded.version
    return replace(state, **changes) if changes else state


def accept(state: Drain, command: Command) -> Sequence[Event]:
    """Embody an answer of the summariser, its failure, or the end of a pause."""
    match command:
        case Answered(call, reply, gate_version):
            return answered(state, call, reply, gate_version)
        case Failed(call, error, _, gate_version):
            return failed(state, call, error, gate_version, command.at)
        case NotSent(call, gate_version) if (going := state.compression.open) and going.id == call:
            return [CompressionHeld(call, gate_version, going.provider, going.model, command.at)]
        case Due(("pass", passes)) if resting(state) and passes == state.compression.passes:
            return [DrainDue()]
        case Due(("stuck", *key)) if (hold := unmoved(state)) and key == [hold.turn, moved(state.compression, hold)]:
            since = moved(state.compression, hold)
            return [stuck(state.name, hold, since, standing(state), state.alerts, command.at)]
        case ReleaseQuarantine():
            given = tuple(sorted(state.compression.quarantined))
            return [Released(given, "operator", command.by)] if given else []
        case Due() | Restarted() | NotSent():
            return []
        case _:
            raise TypeError(f"drain/{state.name} takes no {type(command).__name__}")


def react(state: Drain, recorded: Recorded) -> Sequence[Event]:
    """Decide what to compress next, and when to stop."""
    event = recorded.event
    if type(event) in NOTHING_FOLLOWS:
        return []
    match event:
        case Compressed(request) if request:
            told = deferring.reported(state.gates, state.live, event.gate_version)
            return [*told, *after_summary(state, event, recorded.at)]
        case Held():
            return [DrainKicked("hold", TICKS)]
        case TurnExhausted(_, _, error) if error.kind in ("over_budget", "uncovered"):
            return [DrainKicked("refusal", TICKS)]
        case DrainKicked() if state.compression.open is None:
            return tick(state, recorded.at)  # nothing during a pause: no pass began
        case DrainDue():
            return [DrainKicked("due", TICKS)]
        case Compressed() | CompressionDiscarded() | CompressionReleased():
            return tick(state, recorded.at)
        case CompressionFailed(error=error) if closes_gate(error):
            return deferring.met_limit(state.gates, event, recorded.at)
        case CompressionHeld():
            return deferring.freed(state.compression, state.gates, state.live, state.stream)
        case GateOpened() if state.settings.live:
            return deferring.freed(state.compression, state.gates, state.live, state.stream) or passed_on(state)
        case DrainPassed():
            return passed_on(state)
        case CompressionFailed(_, _, _, _, True, retry_at):
            return [passed(state, "paused", retry_at or recorded.at)]
        case CompressionFailed(_, work, error):
            if spent(state.conversation, state.compression, state.live, work):
                return [Quarantined(replace(work, part=None), f"{error.kind}: {error.message}")]
            return tick(state, recorded.at)
        case Quarantined():
            return [*alert(state, event, recorded.at), *tick(state, recorded.at)]
        case Released():
            return tick(state, recorded.at) if state.compression.passing else [DrainKicked("released", TICKS)]
        case SettingChanged() if moved_on := deferring.freed(state.compression, state.gates, state.live, state.stream):
            return moved_on
        case AgentDisposed() if going := state.compression.open:
            return [CompressionDiscarded(going.id, going.work, "the agent was disposed")]
        case SettingChanged(name) if other_model(state, name):
            return [Released(tuple(sorted(state.compression.quarantined)), "model")]
        case _:
            return []


def after_summary(state: Drain, event: Compressed, at: Millis) -> list[Event]:
    """The whole of a message whose last part came, what may be tried once more after a success, or the next call."""
    if event.work.part:
        made = whole(state.compression, event)
        return [made] if made else tick(state, at)
    again = due_again(state, at)
    return [Released(again, "success")] if again else tick(state, at)


def orders(state: Drain) -> Mapping[Key, Order]:
    """The summary in flight, or the end of the pause when work waits for it; when a hold has waited in vain for long."""
    going, hold, wanted = state.compression.open, unmoved(state), dict[Key, Order]()
    if hold:
        since = moved(state.compression, hold)
        wanted["stuck", hold.turn, since] = Timer(since + STUCK_MS)
    if going:
        timeout = state.live.call_timeout_ms / 1_000
        render = partial(request, state.name, state.conversation, state.compression, state.live, going)
        infer = Infer(going.id, state.stream, "compression", going.provider, going.model, False, timeout, render)
        wanted["call", going.id] = infer
    elif resting(state):
        wanted["pass", state.compression.passes] = Timer(state.compression.next_at)
    return wanted


def unmoved(state: Drain) -> Hold | None:
    """The hold that waits for compression, until an operator was told that nothing comes."""
    hold = state.holds.waiting
    return hold if hold and state.alerts.turns.get("stuck") != hold.turn else None


def resting(state: Drain) -> bool:
    """Whether the drain is between two passes, with work that the next one would do."""
    if state.settings.live is None or state.settings.disposed or state.compression.passing:
        return False
    return not kicks_only(state) and next_work(state) is not None


def kicks_only(state: Drain) -> bool:
    """Whether no pass begins by itself."""
    return state.host.maintenance_ms == 0 and state.holds.waiting is None


def standing(state: Drain) -> Status:
    """Whether the drain is idle, works, waits until a time or is stuck, and why."""
    if state.stream in state.host.parked:
        return Status("stuck", f"its drain is parked: {state.host.parked[state.stream]}")
    if state.settings.live is None or state.settings.disposed:
        return Status("idle", "nothing has called for it yet")
    if gated := state.compression.gated:
        gate = state.gates.get(gated.provider)
        opens = gates.next_at(gate, gated.model) if gate else None
        return Status("waiting", f"{gated.provider} takes no calls for {gated.model} now", opens)
    return status(state.conversation, state.compression, next_work(state), kicks_only(state))


def next_work(state: Drain) -> Work | None:
    return strategies.next_work(state.conversation, state.compression, state.settings, lacking(state))


def lacking(state: Drain) -> tuple[Stretch, ...]:
    """The stretches that the last refusal wants summaries of, and those that a paced lowering waits for."""
    demand, wanted = state.holds.demand, state.settings.target
    if wanted is None:
        return demand
    lower = replace(state.live, context_budget_tokens=wanted)
    beside = Overhead(lower.system_tokens, lower.tools_tokens)
    try:
        trial = fit(state.conversation, state.compression, lower, meter(state.calibration, lower), beside)
    except RewakeError:  # the compile says what is wrong with the strategy
        return demand
    return demand if trial.fits else (*demand, *trial.demand)


def tick(state: Drain, at: Millis) -> list[Event]:
    """One call more in this pass, or its end; nothing while it waits for the gate."""
    going = state.compression.passing
    if going is None or state.compression.gated:
        return []
    if state.settings.disposed:
        return [passed(state, "stopped", at)]
    work = next_work(state)
    if work is None or going.left <= 0:
        return [passed(state, "dry" if work is None else "ticks", pause(state) + at)]
    live, over = state.live, state.compression.vain - VAIN
    if kept := stub(state.conversation, work, live.encoding):
        return [kept]
    if over >= 0 and going.made:
        return [passed(state, "paused", at + min(PAUSE_MS * 2 ** min(over, 20), LONGEST_VAIN_MS))]
    if shut := deferring.kept_back(state.compression, state.gates, live, state.stream, at):
        return shut
    provider, model = deferring.asked(live)
    attempt = state.compression.attempts.get(key(work), 0) + 1
    return [CompressionRequested(work, provider, model, attempt)]


def pause(state: Drain) -> Millis:
    return state.host.maintenance_ms or HELD_PAUSE_MS


def passed(state: Drain, why: PassEnd, next_at: Millis) -> DrainPassed:
    going = state.compression.passing
    return DrainPassed(going.made if going else 0, next_work(state) is not None, why, next_at)


def passed_on(state: Drain) -> list[Event]:
    return deferring.passed_on(state.compression, state.gates, state.live, state.stream)


def answered(state: Drain, call: str, reply: Reply, gate_version: int) -> Sequence[Event]:
    """The summariser's answer: stored when it is whole, not empty, and smaller than what it stands for."""
    going = state.compression.open
    if going is None or going.id != call:
        return []
    work, text = going.work, reply.text.strip()
    if moved := changed(state, work):
        return [CompressionDiscarded(call, work, moved)]
    encoding = state.live.encoding
    tokens = priced(text, encoding)
    if why := wrong(reply, tokens, work):
        failure = Failure("invalid_summary", why)
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


def failed(state: Drain, call: str, error: Failure, gate_version: int, at: Millis) -> Sequence[Event]:
    """A failed call: a transient one pauses the drain, or closes the gate; anything else speaks against the request."""
    going = state.compression.open
    if going is None or going.id != call:
        return []
    if not closes_gate(error) and (moved := changed(state, going.work)):
        return [CompressionDiscarded(call, going.work, moved)]
    transient = error.retryable
    retry_at = at + backoff(state.compression.pauses) if transient and not closes_gate(error) else None
    failed = CompressionFailed(call, going.work, error, going.attempt, transient, retry_at, gate_version)
    return [replace(failed, provider=going.provider, model=going.model)]


def backoff(pauses: int) -> Millis:
    """30 s, doubling with each failure in a row to 10 min."""
    return min(PAUSE_MS * 2 ** min(pauses, 10), LONGEST_PAUSE_MS)


def due_again(state: Drain, at: Millis) -> tuple[str, ...]:
    """What was given up and may be tried once more now that the summariser has made something: each at most daily."""
    given, retried = state.compression.quarantined, state.compression.retried
    return tuple(sorted(one for one in given if one not in retried or at - retried[one] >= DAY_MS))


def other_model(state: Drain, name: str) -> bool:
    """Whether another model summarises from now on, and there is something that the former one could not."""
    asked = "model" if state.live.compression_model is None else "compression_model"
    return name in (asked, "compression_model") and bool(state.compression.quarantined or state.compression.vain)


def alert(state: Drain, event: Quarantined, at: Millis) -> list[Event]:
    """Tells of the first work that is given up, while nothing else is."""
    if len(state.compression.quarantined) > 1 or event.work.digest in state.compression.retried:
        return []
    said = (
        f"a stretch of {state.name}'s history can not be summarised and stays as it is: {event.work.first} to "
        f"{event.work.last}, {event.work.tokens:,} tokens ({event.why})"
    )
    return [Alerted("quarantine", said, alerts.due(state.alerts, "quarantine", at), agent=state.name)]
