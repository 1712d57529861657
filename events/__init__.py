"""What happened: the vocabulary of events, and the append-only log that keeps them.

Two errors have the name of an event, `Quiesced` and `ActorParked`: here these are the events, in `rewake.events.errors`
(and in `rewake.actors`) the errors.
"""

from __future__ import annotations

import os

from rewake.events.agents import (
    AgentConfigured,
    AgentDisposed,
    AgentStarted,
    AgentUnconfigured,
    Missing,
    SettingChanged,
    Settings,
    ToolSpec,
)
from rewake.events.base import AgentEvent, Draft, Event, Millis, Recorded, Tokens, Unknown
from rewake.events.calls import InferenceCompleted, InferenceFailed, InferenceInterrupted, InferenceRequested, Usage
from rewake.events.codec import EVENTS, AnyEvent
from rewake.events.context import LEFT_OUT, CalibrationSampled, Compiled, Overhead, Refused, Stretch
from rewake.events.copies import backup
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
    Work,
)
from rewake.events.errors import (
    AgentBusy,
    BudgetInfeasible,
    CalledFromInside,
    EventTooLarge,
    ExportCorrupt,
    Fenced,
    InvalidContent,
    InvalidPlan,
    InvalidSetting,
    LogCorrupt,
    LogError,
    LogFailed,
    LogFull,
    LogInUse,
    NotALog,
    NoWake,
    OutputRefused,
    RewakeError,
    RuntimeStopped,
    StreamConflict,
    StreamMoved,
    TurnNotRunning,
    UnknownAgent,
)
from rewake.events.gate import GateClosed, GateDue, GateOpened, WaitReleased
from rewake.events.holds import Held, HoldDue, HoldEnded, HoldLooked, ProviderHeld, ProviderReleased, ProviderTried
from rewake.events.host import ActorFailed, ActorParked, Alerted, HostStarted, HostStopped, Quiesced, Resumed, Waits
from rewake.events.log import MAX_EVENT_BYTES, Append, Durability, Log, Outcome, Refusal, Row, Snapshot
from rewake.events.memory import MemoryLog
from rewake.events.messages import (
    AnyBlock,
    Blocks,
    Document,
    Image,
    Message,
    MessageAdded,
    MessageEdited,
    MessagePlaced,
    MessageRemoved,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from rewake.events.tools import ToolCalled, ToolReturned
from rewake.events.turns import (
    Failure,
    Injections,
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

__all__ = [
    "ToolSpec",
    "Settings",
    "AgentStarted",
    "Missing",
    "AgentUnconfigured",
    "AgentConfigured",
    "AgentDisposed",
    "SettingChanged",
    "AgentEvent",
    "Draft",
    "Event",
    "Millis",
    "Recorded",
    "Tokens",
    "Unknown",
    "Usage",
    "InferenceRequested",
    "InferenceCompleted",
    "InferenceFailed",
    "InferenceInterrupted",
    "EVENTS",
    "AnyEvent",
    "LEFT_OUT",
    "Stretch",
    "Overhead",
    "Compiled",
    "Refused",
    "CalibrationSampled",
    "Work",
    "DrainKicked",
    "DrainPassed",
    "DrainDue",
    "CompressionRequested",
    "CompressionHeld",
    "CompressionReleased",
    "CompressionTried",
    "Compressed",
    "CompressionFailed",
    "CompressionDiscarded",
    "Quarantined",
    "Released",
    "RewakeError",
    "InvalidSetting",
    "InvalidContent",
    "InvalidPlan",
    "EventTooLarge",
    "UnknownAgent",
    "BudgetInfeasible",
    "TurnNotRunning",
    "AgentBusy",
    "NoWake",
    "CalledFromInside",
    "RuntimeStopped",
    "OutputRefused",
    "LogError",
    "LogInUse",
    "NotALog",
    "LogCorrupt",
    "ExportCorrupt",
    "StreamConflict",
    "StreamMoved",
    "LogFailed",
    "LogFull",
    "Fenced",
    "GateClosed",
    "GateDue",
    "GateOpened",
    "WaitReleased",
    "Held",
    "HoldLooked",
    "HoldDue",
    "HoldEnded",
    "ProviderHeld",
    "ProviderReleased",
    "ProviderTried",
    "HostStarted",
    "Waits",
    "HostStopped",
    "Quiesced",
    "Resumed",
    "ActorFailed",
    "ActorParked",
    "Alerted",
    "MAX_EVENT_BYTES",
    "Append",
    "Durability",
    "Log",
    "Outcome",
    "Refusal",
    "Row",
    "Snapshot",
    "MemoryLog",
    "Role",
    "Text",
    "ToolCall",
    "ToolResult",
    "Image",
    "Document",
    "Reasoning",
    "AnyBlock",
    "Blocks",
    "Message",
    "MessageAdded",
    "MessagePlaced",
    "MessageEdited",
    "MessageRemoved",
    "ToolCalled",
    "ToolReturned",
    "TurnStarted",
    "Injections",
    "TurnPrepared",
    "TurnDeclined",
    "TurnWithdrawn",
    "TurnCompleted",
    "Failure",
    "TurnExhausted",
    "TurnAborted",
    "RetryScheduled",
    "RetryDue",
    "UsageRecorded",
    "UndoPoint",
    "Wake",
    "WakeWithdrawn",
    "backup",
    "open_log",
]


def open_log(
    path_or_url: str | os.PathLike[str],
    *,
    readonly: bool = False,
    durability: Durability = "full",
    lock_timeout: float = 0.0,
    busy_timeout: float = 5.0,
) -> Log:
    """The log in a file, made when it is not there, or with `:memory:` one that lives as long as the object.

    `readonly` is for readers: a file that is not there is a NotALog error. `durability="normal"` survives a killed
    process, not a power cut. The timeouts are seconds: for another writer to leave (`open_writer` raises LogInUse), and
    for a lock that somebody else holds on the file.
    """
    path = os.fspath(path_or_url)
    if path == ":memory:":
        return MemoryLog()
    from rewake.events.sqlite import SqliteLog

    return SqliteLog(
        path, readonly=readonly, durability=durability, lock_timeout=lock_timeout, busy_timeout=busy_timeout
    )
