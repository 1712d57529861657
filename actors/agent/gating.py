"""The provider's gate: a turn that it does not let go waits for it, and goes on when it opens."""

from __future__ import annotations

from msgspec.structs import replace

from rewake.actors.agent.commands import NotSent
from rewake.actors.agent.state import Agent
from rewake.actors.agent.waking import caused
from rewake.events import (
    Event,
    InferenceCompleted,
    InferenceFailed,
    Millis,
    ProviderHeld,
    ProviderReleased,
    ProviderTried,
)
from rewake.events.holds import ReleaseWhy
from rewake.projections.gates import Gate, closes_gate, next_at, opened_for, probes, reopening, shut_off


def gate_of(state: Agent, provider: str) -> Gate:
    """A provider's gate, as far as its events have come."""
    return state.gates.get(provider, Gate())


def kept_back(state: Agent, at: Millis) -> list[Event]:
    """At a turn's start: where the gate is known to be shut the turn waits without a compile."""
    live = state.live
    gate = shut_off(state.gates, live.provider, live.model, state.stream, state.holds.tried)
    if gate is None:
        return []
    return [waits(state, live.provider, live.model, gate.version, at, gate.lanes[live.model].why)]


def not_sent(state: Agent, said: NotSent) -> list[Event]:
    """The open call was not sent: the gate, or the quiesced host, did not let it go."""
    turn = state.turns.running
    call = turn.call if turn else None
    if call is None or call.call != said.call:
        return []
    return [waits(state, call.provider, call.model, said.gate_version, said.at, said.why, said.host_version)]


def met_limit(state: Agent, failure: InferenceFailed, at: Millis) -> list[Event]:
    """A failure that closes the gate is none of the turn's: it waits for an opening that is still to come."""
    if not closes_gate(failure.error):
        return []
    version = max(failure.gate_version, gate_of(state, failure.provider).version)
    return [replace(waits(state, failure.provider, failure.model, version, at, failure.error.kind), met=True)]


def waits(
    state: Agent, provider: str, model: str, version: int, at: Millis, why: str, host_version: int = 0
) -> ProviderHeld:
    """The running turn gives its token back; what it had waited in a row before counts too."""
    turn, earlier = state.turn, state.holds.let
    again = earlier is not None and (earlier.turn, earlier.step) == (turn.id, turn.step)
    return ProviderHeld(
        turn.id,
        caused(state),
        provider,
        model,
        earlier.since if earlier and again else at,
        version,
        next_at(gate_of(state, provider), model),
        why,
        host_version,
        turn.step,
    )


def freed(state: Agent) -> list[Event]:
    """A turn that waits goes on: the gate lets it, the host has resumed, or the agent asks another model now."""
    held = state.holds.gated
    if held is None:
        return []
    if (held.provider, held.model) != (state.live.provider, state.live.model):
        return [let_go(held, "model")]
    if held.why == "quiesced":
        resumed = not state.host.quiesced and state.host.moved > held.host_version
        return [let_go(held, "resumed")] if resumed else []
    opening = opened_for(gate_of(state, held.provider), state.stream, held)
    return [let_go(held, "opened", opening)] if opening else []


def let_go(held: ProviderHeld, why: ReleaseWhy, version: int = 0) -> ProviderReleased:
    """The wait is over. What ends a turn that waits says this first: so the gate does not count on it."""
    return ProviderReleased(held.turn, held.provider, held.model, version or held.gate_version, why)


def reported(state: Agent, answer: InferenceCompleted) -> list[Event]:
    """A success that a reopening gate waits for."""
    gate = gate_of(state, answer.provider)
    if not reopening(gate, answer.model, answer.gate_version):
        return []
    return [ProviderTried(answer.provider, answer.model, answer.gate_version)]


def passed_on(state: Agent) -> list[Event]:
    """The gate has named this agent to probe, and it makes no call: another may."""
    turn = state.turns.running or (None if state.holds.waiting else state.turns.held)
    return [
        ProviderTried(provider, model, lane.version, ok=False)
        for provider, model, lane in probes(state.gates, state.stream, state.holds.tried)
        if turn is None or state.settings.missing or (provider, model) != (state.live.provider, state.live.model)
    ]
