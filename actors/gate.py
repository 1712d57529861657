"""A provider's gate: its one order says how many calls go at a time, and which do not go now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rewake.actors.behaviour import Behaviour, Command, Follow, Key, Order, Restarted
from rewake.actors.orders import Admit
from rewake.events import Event, HostStarted, Quiesced, Recorded, Resumed
from rewake.projections import gates, host


class Gate(Struct, frozen=True):
    """The gate's own stream beside the host's options."""

    provider: str
    gate: gates.Gate = gates.Gate()
    host: host.Host = host.Host()


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
        follows=(Follow("host", host.KINDS, frozenset({HostStarted, Quiesced, Resumed})),),
    )


def evolve(state: Gate, recorded: Recorded) -> Gate:
    if recorded.stream == "host":
        return replace(state, host=host.evolve(state.host, recorded))
    return replace(state, gate=gates.evolve(state.gate, recorded))


def accept(state: Gate, command: Command) -> Sequence[Event]:
    if isinstance(command, Restarted):
        return []
    raise TypeError(f"gate/{state.provider} takes no {type(command).__name__}")


def react(state: Gate, recorded: Recorded) -> Sequence[Event]:
    return []


def orders(state: Gate) -> Mapping[Key, Order]:
    """The standing order to the provider's port, once a process runs."""
    if not state.host.running:
        return {}
    limit = state.host.max_in_flight if state.gate.limit is None else state.gate.limit
    closed = tuple(sorted(state.gate.closed))
    return {("admit",): Admit(state.provider, limit, state.gate.version, not state.host.quiesced, closed)}
