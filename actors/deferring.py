"""A drain at its provider's gate: its calls wait while the gate is shut for their model, and go on when it opens."""

from __future__ import annotations

from rewake.events import (
    CompressionFailed,
    CompressionHeld,
    CompressionReleased,
    CompressionTried,
    Event,
    Millis,
    Settings,
)
from rewake.projections.compression import Compression
from rewake.projections.gates import Gate, Gates, opened_for, probes, reopening, shut_off


def asked(live: Settings) -> tuple[str, str]:
    """The provider and the model that summarise."""
    return live.provider, live.compression_model or live.model


def kept_back(compression: Compression, gates: Gates, live: Settings, stream: str, at: Millis) -> list[Event]:
    """No request is made where the gate is known to be shut."""
    provider, model = asked(live)
    gate = shut_off(gates, provider, model, stream, compression.tried)
    return [CompressionHeld("", gate.version, provider, model, at)] if gate else []


def met_limit(gates: Gates, failure: CompressionFailed, at: Millis) -> list[Event]:
    """After a failure that closes the gate: the pass waits for an opening that is still to come."""
    version = max(failure.gate_version, gates.get(failure.provider, Gate()).version)
    return [CompressionHeld(failure.id, version, failure.provider, failure.model, at, met=True)]


def freed(compression: Compression, gates: Gates, live: Settings, stream: str) -> list[Event]:
    """What waits goes on: the gate lets it, or another model summarises now."""
    held = compression.gated
    if held is None:
        return []
    if (held.provider, held.model) != asked(live):
        return [CompressionReleased(held.provider, held.model, held.gate_version, "model")]
    opening = opened_for(gates.get(held.provider, Gate()), stream, held)
    return [CompressionReleased(held.provider, held.model, opening)] if opening else []


def reported(gates: Gates, live: Settings, version: int) -> list[Event]:
    """A success that a reopening gate waits for."""
    provider, model = asked(live)
    if not reopening(gates.get(provider, Gate()), model, version):
        return []
    return [CompressionTried(provider, model, version)]


def passed_on(compression: Compression, gates: Gates, live: Settings, stream: str) -> list[Event]:
    """The gate has named this drain to probe, and it makes no call: another may."""
    going = compression.passing is not None
    return [
        CompressionTried(provider, model, lane.version, ok=False)
        for provider, model, lane in probes(gates, stream, compression.tried)
        if not (going and (provider, model) == asked(live))
    ]
