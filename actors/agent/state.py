"""What an agent knows: its own stream's projections, beside those of its drain and its host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from immutables import Map
from msgspec import Struct
from msgspec.structs import replace

from rewake.events import Event, InferenceRequested, Overhead, Recorded, Settings
from rewake.projections import (
    alerts,
    calibration,
    compression,
    conversation,
    gates,
    holds,
    host,
    settings,
    strategies,
    turns,
    undo,
    usage,
    wakes,
)
from rewake.projections.calibration import meter
from rewake.projections.fitting import fit
from rewake.projections.plan import Plan, Refusal


class Agent(Struct, frozen=True, gc=False):
    """An agent's whole state. `version` is that of its stream; `compression` is its drain's, `host` the process's, `gates`
    the providers'; `asked` are the settings that the newest request was made with.
    """

    name: str
    version: int = 0
    settings: settings.AgentSettings = settings.AgentSettings()
    conversation: conversation.Conversation = conversation.Conversation()
    wakes: wakes.Wakes = wakes.Wakes()
    turns: turns.Turns = turns.Turns()
    holds: holds.Holds = holds.Holds()
    calibration: calibration.Calibration = calibration.Calibration()
    usage: usage.Usage = usage.Usage()
    undo: undo.Undo = undo.Undo()
    alerts: alerts.Alerts = alerts.Alerts()
    compression: compression.Compression = compression.Compression()
    host: host.Host = host.Host()
    gates: Map[str, gates.Gate] = Map()
    asked: Settings | None = None

    @property
    def live(self) -> Settings:
        """The settings that decisions read. Raises LookupError before the agent's start."""
        if self.settings.live is None:
            raise LookupError(f"{self.name} was never started")
        return self.settings.live

    @property
    def stream(self) -> str:
        return f"agent/{self.name}"

    @property
    def turn(self) -> turns.Turn:
        """The running turn. Raises LookupError when none runs."""
        if self.turns.running is None:
            raise LookupError(f"{self.name} runs no turn")
        return self.turns.running


Evolve = Callable[[Any, Recorded], Any]

PARTS: dict[str, tuple[frozenset[type[Event]], Evolve]] = {
    "settings": (settings.KINDS, settings.evolve),
    "conversation": (conversation.KINDS, conversation.evolve),
    "wakes": (wakes.KINDS, wakes.evolve),
    "turns": (turns.KINDS, turns.evolve),
    "holds": (holds.KINDS, holds.evolve),
    "calibration": (calibration.KINDS, calibration.evolve),
    "usage": (usage.KINDS, usage.evolve),
    "undo": (undo.KINDS, undo.evolve),
    "alerts": (alerts.KINDS, alerts.evolve),
    "compression": (compression.KINDS, compression.evolve),
    "host": (host.KINDS, host.evolve),
    "gates": (gates.KINDS, gates.evolve_all),
}


def dispatch(parts: dict[str, tuple[frozenset[type[Event]], Evolve]]) -> dict[type[Event], list[tuple[str, Evolve]]]:
    """For each kind, the parts of a state that fold it."""
    kinds = {kind for folded, _ in parts.values() for kind in folded}
    return {kind: [(name, fold) for name, (folded, fold) in parts.items() if kind in folded] for kind in kinds}


def folded(folds: dict[type[Event], list[tuple[str, Evolve]]], state: Any, recorded: Recorded) -> dict[str, Any]:
    """The parts of a state that an event changes, each by its name."""
    changes: dict[str, Any] = {}
    for name, fold in folds.get(type(recorded.event), ()):
        before = getattr(state, name)
        if (after := fold(before, recorded)) is not before:
            changes[name] = after
    return changes


FOLDS = dispatch(PARTS)


def evolve(state: Agent, recorded: Recorded) -> Agent:
    """Fold an event of the agent's own stream, or of one that it follows."""
    changes = folded(FOLDS, state, recorded)
    if recorded.stream == state.stream:
        changes["version"] = recorded.version
        if type(recorded.event) is InferenceRequested:
            changes["asked"] = state.settings.live
    return replace(state, **changes) if changes else state


def quiet(state: Agent) -> bool:
    """Whether a turn may start: none runs, none is held, the host takes new ones, the agent has what it needs."""
    started = state.settings.live is not None and not state.settings.disposed
    waits = state.holds.waiting or state.holds.gated
    stands = waits or state.host.quiesced or state.settings.missing
    return started and not state.turns.running and not stands


def planned(state: Agent, overhead: Overhead, settings: Settings | None = None) -> Plan | Refusal:
    """What the next compile gives: the one call of compile, release check and preview. Raises as `fit` does."""
    settings = settings or state.live
    return fit(state.conversation, state.compression, settings, meter(state.calibration, settings), overhead)


def is_pending(state: Agent) -> bool:
    """Whether compression could still make room."""
    return strategies.pending(state.conversation, state.compression, state.settings, state.holds.demand)


def revisions(state: Agent) -> tuple[tuple[str, int], ...]:
    """The versions of what a plan depends on: the agent's own stream, and its drain's."""
    own = max(state.conversation.revision, state.settings.revision, state.calibration.revision)
    return (state.stream, own), (f"drain/{state.name}", state.compression.revision)
