"""How events become bytes and come back: one closed union, one encoder, one decoder; old shapes are upcast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import msgspec

from rewake.events.agents import AgentConfigured, AgentDisposed, AgentStarted, AgentUnconfigured, SettingChanged
from rewake.events.base import Event, Unknown, kind_of
from rewake.events.calls import InferenceCompleted, InferenceFailed, InferenceInterrupted, InferenceRequested
from rewake.events.context import CalibrationSampled, Compiled, Refused
from rewake.events.drain import (
    Compressed,
    CompressionDiscarded,
    CompressionFailed,
    CompressionHeld,
    CompressionReleased,
    CompressionRequested,
    CompressionTried,
    DrainDue,
    DrainKicked,
    DrainPassed,
    Quarantined,
    Released,
)
from rewake.events.gate import GateClosed, GateDue, GateOpened, WaitReleased
from rewake.events.holds import Held, HoldDue, HoldEnded, HoldLooked, ProviderHeld, ProviderReleased, ProviderTried
from rewake.events.host import ActorFailed, ActorParked, Alerted, HostStarted, HostStopped, Quiesced, Resumed
from rewake.events.messages import MessageAdded, MessageEdited, MessagePlaced, MessageRemoved
from rewake.events.tools import ToolCalled, ToolReturned
from rewake.events.turns import (
    RetryDue,
    RetryScheduled,
    TurnAborted,
    TurnCompleted,
    TurnDeclined,
    TurnExhausted,
    TurnPrepared,
    TurnStarted,
    TurnWithdrawn,
    UsageRecorded,
)
from rewake.events.undo import UndoPoint
from rewake.events.wakes import Wake, WakeWithdrawn

AnyEvent = (
    AgentStarted | AgentUnconfigured | AgentConfigured | AgentDisposed | SettingChanged
    | Wake | WakeWithdrawn
    | MessageAdded | MessagePlaced | MessageEdited | MessageRemoved
    | TurnStarted | TurnPrepared | TurnDeclined | TurnWithdrawn | TurnCompleted | TurnExhausted | TurnAborted
    | RetryScheduled | RetryDue | UsageRecorded
    | Compiled | Refused | CalibrationSampled
    | Held | HoldLooked | HoldDue | HoldEnded | ProviderHeld | ProviderReleased | ProviderTried
    | InferenceRequested | InferenceCompleted | InferenceFailed | InferenceInterrupted
    | ToolCalled | ToolReturned
    | UndoPoint
    | DrainKicked | DrainDue | CompressionRequested | CompressionHeld | CompressionReleased | CompressionTried
    | Compressed | CompressionFailed | CompressionDiscarded | Quarantined | Released | DrainPassed
    | GateClosed | GateDue | GateOpened | WaitReleased
    | HostStarted | HostStopped | Quiesced | Resumed | ActorFailed | ActorParked | Alerted
)  # fmt: skip
"""Every event that this version knows."""

EVENTS: dict[str, type[Event]] = {kind_of(event): event for event in get_args(AnyEvent)}
"""The class of each kind."""

KINDS: dict[type[Event], str] = {event: kind for kind, event in EVENTS.items()}
"""The kind of each class."""

Upcast = Callable[[dict[str, Any]], dict[str, Any]]
"""From an old JSON shape to the next one. Given a shape that is not old it returns it as it is."""

UPCASTS: dict[str, list[Upcast]] = {}
"""What is applied on reading, by the kind as stored, in order. If one changes `kind`, the new kind's come after."""

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(AnyEvent)


class Undecodable(ValueError):
    """The data of a known kind is none that it can have."""


def encode(event: Event) -> bytes:
    """The event as JSON; an unknown one as it was found."""
    return bytes(event.data) if isinstance(event, Unknown) else _encoder.encode(event)


def decode(kind: str, data: bytes | str) -> Event:
    """The event of a kind, from its JSON; of a kind that this version does not know, kept whole. Raises Undecodable."""
    current = data
    try:
        if UPCASTS and kind in UPCASTS:
            kind, current = upcast(kind, data)
        if (expected := EVENTS.get(kind)) is None:
            return Unknown(kind, msgspec.Raw(data))
        event = _decoder.decode(current)
    except (msgspec.MsgspecError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise Undecodable(f"{kind} does not decode: {error}") from error
    if type(event) is not expected:
        raise Undecodable(f"recorded as {kind}, but its data says {KINDS[type(event)]}")
    return event


def upcast(kind: str, data: bytes | str) -> tuple[str, bytes]:
    """The present kind and JSON of something stored in an older shape."""
    shape: dict[str, Any] = msgspec.json.decode(data)
    seen: set[str] = set()
    while kind in UPCASTS and kind not in seen:
        seen.add(kind)
        for change in UPCASTS[kind]:
            shape = change(shape)
        kind = shape["kind"]
    return kind, _encoder.encode(shape)


def stored_kinds(kinds: frozenset[str]) -> frozenset[str]:
    """The kinds under which events of these kinds may be stored: whatever is upcast may become one of them."""
    return kinds.union(UPCASTS)


def kind(event: Event) -> str:
    """The kind under which an event is recorded."""
    return KINDS.get(type(event)) or event.kind
