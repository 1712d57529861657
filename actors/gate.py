"""A provider's gate: closed by the limits that agents and drains report, it opens by itself, for one call first."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from immutables import Map
from msgspec import Struct
from msgspec.structs import replace

from rewake.actors.behaviour import Behaviour, Command, Due, Follow, Key, Order, Restarted, Timer
from rewake.actors.orders import Admit
from rewake.actors.providers.failures import NEVER_MS
from rewake.events import (
    ActorParked,
    Alerted,
    CompressionFailed,
    CompressionHeld,
    CompressionReleased,
    CompressionTried,
    Event,
    Failure,
    GateClosed,
    GateDue,
    GateOpened,
    HostStarted,
    InferenceFailed,
    Millis,
    ProviderHeld,
    ProviderReleased,
    ProviderTried,
    Quiesced,
    Recorded,
    Resumed,
    WaitReleased,
    Waits,
)
from rewake.events.gate import Opening
from rewake.projections import gates, host
from rewake.projections.gates import Lane, closes_gate
from rewake.projections.maps import without

SHORTEST_MS: Millis = 1_000
"""No stated wait is taken for shorter."""
HOUR_MS: Millis = 3_600_000
UNBOUND = 64
"""Calls at a time that a ramp goes up to where nothing bounds them."""

OF_AGENTS: frozenset[type[Event]] = frozenset({InferenceFailed, ProviderHeld, ProviderReleased, ProviderTried})
OF_DRAINS: frozenset[type[Event]] = frozenset(
    {CompressionFailed, CompressionHeld, CompressionReleased, CompressionTried}
)


class ReleaseWait(Command, frozen=True):
    """An operator opens the gate for a model, or for all."""

    model: str | None = None
    by: str | None = None


class Waiter(Struct, frozen=True, gc=False):
    """Whoever waits for the gate: with a call for which model, since when."""

    model: str
    since: Millis


class Gate(Struct, frozen=True):
    """The gate's own stream beside the host's options; `waiting`: who waits for it, by stream."""

    provider: str
    gate: gates.Gate = gates.Gate()
    host: host.Host = host.Host()
    waiting: Map[str, Waiter] = Map()


def gate(provider: str) -> Behaviour[Gate]:
    """The behaviour of that provider's gate."""
    return Behaviour(
        stream=f"gate/{provider}",
        state=Gate,
        initial=lambda: Gate(provider),
        evolve=evolve,
        accept=accept,
        react=react,
        orders=orders,
        follows=(
            Follow("host", host.KINDS, frozenset({HostStarted, Quiesced, Resumed, ActorParked})),
            Follow("agent/*", OF_AGENTS, OF_AGENTS),
            Follow("drain/*", OF_DRAINS, OF_DRAINS),
        ),
    )


def evolve(state: Gate, recorded: Recorded) -> Gate:
    """Fold an event of the gate's stream, or of one that it follows: of each agent and drain only whether it waits."""
    if recorded.stream == f"gate/{state.provider}":
        return replace(state, gate=gates.evolve(state.gate, recorded))
    match recorded.event:
        case ProviderHeld(provider=provider, model=model, since=since, why=why):
            waits = provider == state.provider and why != "quiesced"
        case CompressionHeld(provider=provider, model=model, since=since):
            waits = provider == state.provider
        case ProviderReleased() | CompressionReleased() | ProviderTried(ok=False) | CompressionTried(ok=False):
            return replace(state, waiting=without(state.waiting, recorded.stream))
        case _ if recorded.stream == "host":
            return replace(state, host=host.evolve(state.host, recorded))
        case _:
            return state
    if not waits:
        return replace(state, waiting=without(state.waiting, recorded.stream))
    return replace(state, waiting=state.waiting.set(recorded.stream, Waiter(model, since)))


def accept(state: Gate, command: Command) -> Sequence[Event]:
    match command:
        case Due(("due", str(model), _) as key) if key in orders(state):
            return [GateDue(model)]
        case ReleaseWait(model, by):
            return [WaitReleased(model, by)] if shut_for(state, model) else []
        case Due() | Restarted():
            return []
        case _:
            raise TypeError(f"gate/{state.provider} takes no {type(command).__name__}")


def react(state: Gate, recorded: Recorded) -> Sequence[Event]:
    """Decide when the gate closes, and who goes first when it opens."""
    match recorded.event:
        case InferenceFailed(call, error, provider=provider, model=model, gate_version=version) if closes_gate(error):
            return closing(state, recorded, call, error, model, version) if provider == state.provider else []
        case CompressionFailed(call, _, error, provider=provider, model=model, gate_version=version) if closes_gate(
            error
        ):
            return closing(state, recorded, call, error, model, version) if provider == state.provider else []
        case GateDue(model):
            return [opening(state, model, "due")]
        case WaitReleased(model):
            return [released(state, one) for one in shut_for(state, model)]
        case ProviderTried(provider, model, version, ok) | CompressionTried(provider, model, version, ok):
            return tried(state, recorded.stream, model, version, ok) if provider == state.provider else []
        case (
            ProviderReleased(provider=provider, gate_version=version)
            | CompressionReleased(provider=provider, gate_version=version)
        ) if provider == state.provider:
            return passed_on(state, recorded.stream, version)
        case ActorParked(stream):
            return passed_on(state, stream)
        case _:
            return []


def orders(state: Gate) -> Mapping[Key, Order]:
    """The standing order to the provider's port, once a process runs, and the times at which closed lanes open."""
    if not state.host.running:
        return {}
    timers = {
        ("due", model, lane.version): Timer(lane.until)
        for model, lane in state.gate.lanes.items()
        if lane.state == "closed" and lane.until is not None
    }
    host = state.host
    return {("admit",): Admit(state.provider, host.max_in_flight, state.gate, not host.quiesced, host.moved), **timers}


def closing(state: Gate, recorded: Recorded, call: str, error: Failure, model: str, version: int) -> list[Event]:
    """Close for as long as the failure says, or as is guessed; a wait that is longer already stays as it is."""
    lane, at = state.gate.lanes.get(model), recorded.at
    closed = lane if lane and lane.state == "closed" else None
    n = counted(lane, error.kind, version)
    hint, jitter = wait(state.host.waits, error, n, recorded.stream)
    until = None if hint >= NEVER_MS else at + hint + jitter
    why = "quota" if error.kind == "limit" and error.retry_after_ms and hint > HOUR_MS else error.kind
    if closed and not later(until, closed.until):
        until, why = closed.until, closed.why
    since = lane.since if lane and lane.n else at
    event = GateClosed(why, since, until, model, hint, jitter, bool(error.retry_after_ms), n, call)
    return [event, *alert(state, event, at, lane)]


def counted(lane: Lane | None, kind: str, version: int) -> int:
    """How many closings in a row this is. A call that was sent before the last one's opening tells nothing new."""
    if lane is None or not lane.n:
        return 1
    if lane.state == "closed" or version < lane.opened:
        return lane.n
    return lane.n + 1 if (lane.why == "overloaded") == (kind == "overloaded") else 1


def wait(waits: Waits, error: Failure, n: int, stream: str) -> tuple[Millis, Millis]:
    """How long, and the jitter on top: as stated; or the guess for the n-th time, with a jitter of the agent's own."""
    if error.retry_after_ms:
        return max(error.retry_after_ms, SHORTEST_MS), 0
    if error.kind == "overloaded":
        return doubled(waits.overload_ms, n, waits.longest_overload_ms), 0
    return doubled(waits.limit_ms, n, waits.longest_limit_ms), jitter(stream.partition("/")[2], waits.jitter_ms)


def doubled(first: Millis, n: int, longest: Millis) -> Millis:
    return min(first * 2 ** min(n - 1, 32), longest)


def jitter(name: str, most: Millis) -> Millis:
    """The same for the same name: 0 to `most`."""
    hashed = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(hashed) % (most + 1)


def later(until: Millis | None, than: Millis | None) -> bool:
    """Whether one wait outlasts another; None outlasts all."""
    return than is not None and (until is None or until > than)


def opening(state: Gate, model: str, why: Opening) -> GateOpened:
    """One of those who wait goes first, a turn before compression; where nobody waits, whoever comes, one at a time."""
    first, quiet = "drain/" if state.host.quiesced else "agent/", state.host.parked
    waiting = [
        (not stream.startswith(first), waiter.since, stream)
        for stream, waiter in state.waiting.items()
        if waiter.model == model and stream not in quiet
    ]
    if not waiting:
        return GateOpened(why, model, limit=1)
    return GateOpened(why, model, probing=True, probe=min(waiting)[2])


def released(state: Gate, model: str) -> GateOpened:
    """An operator's hand: a closed lane opens as it would have by itself, one that is opening opens wholly."""
    closed = state.gate.lanes[model].state == "closed"
    return opening(state, model, "operator") if closed else GateOpened("operator", model)


def shut_for(state: Gate, model: str | None) -> list[str]:
    """The models that do not go freely; of one model, or of all."""
    lanes = state.gate.lanes
    return sorted(one for one in lanes if lanes[one].state != "open" and model in (None, one))


def tried(state: Gate, stream: str, model: str, version: int, ok: bool) -> list[Event]:
    """The probe's success lets the others follow, each success twice as many; without a call another one probes."""
    lane = state.gate.lanes.get(model)
    if lane is None or lane.state in ("closed", "open"):
        return []
    if not ok:
        return passed_on(state, stream) if version == lane.version else []
    if version < lane.opened or (lane.state == "probing" and lane.probe != stream):
        return []
    limit = (lane.limit or 0) * 2 or 1
    bound = state.host.max_in_flight or UNBOUND
    return [GateOpened("probe_succeeded", model, limit=limit if limit < bound else None)]


def passed_on(state: Gate, stream: str, version: int = 0) -> list[Event]:
    """Where that stream was to probe another one is; `version`: the opening that has let it go, if it was let go."""
    return [
        opening(state, model, "probe_passed_on")
        for model, lane in sorted(state.gate.lanes.items())
        if lane.state == "probing" and lane.probe == stream and lane.version != version
    ]


def alert(state: Gate, closed: GateClosed, at: Millis, before: Lane | None) -> list[Event]:
    """Told when a wait begins to last for more than an hour, or until somebody releases it."""
    known = before is not None and before.n > 0 and lasts(before.since, before.until)
    worse = closed.until is None and not (known and before is not None and before.until is None)
    if not lasts(closed.since, closed.until) or (known and not worse):
        return []
    how_long = "until it is released" if closed.until is None else f"for {(closed.until - at) // 60_000} min"
    said = f"{state.provider} takes no calls for {closed.model} {how_long}: {closed.why}"
    return [Alerted("provider_wait", said, until=closed.until)]


def lasts(since: Millis, until: Millis | None) -> bool:
    return until is None or until - since > HOUR_MS
