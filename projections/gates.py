"""A provider's gate: for each model whether calls go, wait until a time, or go again one after the other."""

from __future__ import annotations

from typing import Any, Literal

from immutables import Map
from msgspec import Struct
from msgspec.structs import replace

from rewake.events import (
    CompressionHeld,
    CompressionTried,
    Event,
    Failure,
    GateClosed,
    GateOpened,
    Millis,
    ProviderHeld,
    ProviderTried,
    Recorded,
)

NAME = "gates"
KINDS: frozenset[type[Event]] = frozenset({GateClosed, GateOpened})
HEARD = 64
"""How many of the newest failures that closed the gate it remembers."""


class Lane(Struct, frozen=True, gc=False):
    """Calls for one model, since its first limit.

    Closed until `until` (None: until an operator releases them); then only the stream `probe` calls; then at most `limit`
    calls go at a time; then it is open. `since` is the first closing that no success came after, `n` how many such there
    were. Versions of the gate's stream: `version` of the last change, `closed` of the last closing, `opened` of the
    first opening after it, `let` of the first that was for everybody.
    """

    state: Literal["closed", "probing", "ramping", "open"]
    why: str
    since: Millis
    until: Millis | None
    n: int
    version: int
    closed: int
    probe: str | None = None
    limit: int | None = None
    opened: int = 0
    let: int = 0


class Gate(Struct, frozen=True):
    """`lanes` by model; `heard`: the newest calls whose failures closed it; `version` of the gate's stream."""

    lanes: Map[str, Lane] = Map()
    heard: tuple[str, ...] = ()
    version: int = 0


Gates = Map[str, Gate]
"""The gates of several providers, by name."""

Tried = ProviderTried | CompressionTried
"""What an agent or a drain tells of its calls."""


def initial() -> Gate:
    return Gate()


def evolve(state: Gate, recorded: Recorded) -> Gate:
    match recorded.event:
        case GateClosed(why, since, until, model, n=n, call=call):
            lane = Lane("closed", why, since, until, n, recorded.version, recorded.version)
            heard = (*state.heard, call)[-HEARD:]
            return Gate(state.lanes.set(model, lane), heard, recorded.version)
        case GateOpened(model=model) as event if lane := state.lanes.get(model):
            lanes = state.lanes.set(model, opened(lane, event, recorded.version))
            return replace(state, lanes=lanes, version=recorded.version)
        case _:
            return state


def opened(lane: Lane, event: GateOpened, version: int) -> Lane:
    """The lane after an opening; only a success ends the count of its closings."""
    return replace(
        lane,
        state="probing" if event.probing else "open" if event.limit is None else "ramping",
        n=0 if event.why == "probe_succeeded" else lane.n,
        version=version,
        probe=event.probe,
        limit=event.limit,
        opened=lane.opened or version,
        let=0 if event.probing else lane.let or version,
    )


def evolve_all(state: Gates, recorded: Recorded) -> Gates:
    """Fold an event of any provider's gate into them."""
    provider = recorded.stream.partition("/")[2]
    return state.set(provider, evolve(state.get(provider, Gate()), recorded))


def rows(state: Gate) -> list[dict[str, Any]]:
    return [
        {"model": model, "state": lane.state, "since": lane.since, "until": lane.until, "why": lane.why, "n": lane.n}
        | {"probe": lane.probe, "limit": lane.limit}
        for model, lane in sorted(state.lanes.items())
        if lane.state != "open"
    ]


def closes_gate(error: Failure) -> bool:
    """Whether a failure closes the gate: a limit, an overload, or any other that may be tried again and states a wait."""
    return error.retryable and (error.kind in ("limit", "overloaded") or bool(error.retry_after_ms))


def shut(state: Gate, model: str, stream: str) -> bool:
    """Whether a call of that stream for the model would not go now."""
    lane = state.lanes.get(model)
    return lane is not None and (lane.state == "closed" or (lane.state == "probing" and lane.probe != stream))


def shut_off(gates: Gates, provider: str, model: str, stream: str, tried: Tried | None) -> Gate | None:
    """The gate, where it is known to be shut for that call, or is told that the stream makes none and another is to probe.
    None: the call goes, as far as is known.
    """
    gate = gates.get(provider)
    if gate is None or not (lane := gate.lanes.get(model)):
        return None
    declined = lane.state == "probing" and told(tried, provider, lane) and not (tried and tried.ok)
    return gate if declined or shut(gate, model, stream) else None


def told(tried: Tried | None, provider: str, lane: Lane) -> bool:
    """Whether what was told last was about this opening."""
    return tried is not None and tried.provider == provider and tried.gate_version >= lane.version


def opened_for(state: Gate, stream: str, held: ProviderHeld | CompressionHeld) -> int | None:
    """The version of the opening that lets what waits go now. None: there is none."""
    lane, version = state.lanes.get(held.model), held.gate_version
    if lane is None or lane.state == "closed" or (held.met and lane.closed <= version):
        return None
    if lane.state == "probing":
        return lane.version if lane.probe == stream and lane.version > version else None
    return lane.let if lane.let > version else None


def reopening(state: Gate, model: str, version: int) -> bool:
    """Whether the success of a call that was sent at `version` may be news to the gate, as far as this state knows it."""
    lane = state.lanes.get(model)
    return version > state.version or (
        lane is not None and lane.state in ("probing", "ramping") and version >= lane.opened
    )


def probes(gates: Gates, stream: str, tried: Tried | None) -> list[tuple[str, str, Lane]]:
    """The providers and models that this stream is named to probe, and has told nothing of."""
    return [
        (provider, model, lane)
        for provider, gate in gates.items()
        for model, lane in gate.lanes.items()
        if lane.state == "probing" and lane.probe == stream and not told(tried, provider, lane)
    ]


def next_at(state: Gate, model: str) -> Millis | None:
    """When calls for the model go again, where that is known."""
    lane = state.lanes.get(model)
    return lane.until if lane and lane.state == "closed" else None
