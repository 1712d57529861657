"""What to do: agents as pure behaviours, the runtime and the simulation that run them, and the ports to the world."""

from rewake.actors.config import AgentConfig, RuntimeOptions
from rewake.actors.contents import Context, StartingTurn
from rewake.actors.owing import Owed
from rewake.actors.policy import ErrorPolicy
from rewake.actors.redecide import Difference, redecide
from rewake.actors.reports import (
    AbortReport,
    Alert,
    CancelReport,
    Health,
    IdleReport,
    Receipt,
    Result,
    StopReport,
)
from rewake.actors.runtime import Runtime
from rewake.actors.telling import Delta
from rewake.actors.tools import EndTurn, Tool, ToolContext, tool
from rewake.actors.whatif import what_if
from rewake.events.errors import (
    ActorParked,
    AgentBusy,
    BudgetInfeasible,
    CalledFromInside,
    EventTooLarge,
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
    Quiesced,
    RewakeError,
    RuntimeStopped,
    StreamConflict,
    StreamMoved,
    TurnNotRunning,
    UnknownAgent,
)
from rewake.projections.plan import Plan, Refusal

__all__ = [
    "AbortReport",
    "ActorParked",
    "AgentBusy",
    "AgentConfig",
    "Alert",
    "BudgetInfeasible",
    "CalledFromInside",
    "CancelReport",
    "Context",
    "Delta",
    "Difference",
    "EndTurn",
    "ErrorPolicy",
    "EventTooLarge",
    "Fenced",
    "Health",
    "IdleReport",
    "InvalidContent",
    "InvalidPlan",
    "InvalidSetting",
    "LogCorrupt",
    "LogError",
    "LogFailed",
    "LogFull",
    "LogInUse",
    "NoWake",
    "NotALog",
    "Owed",
    "Plan",
    "Quiesced",
    "Receipt",
    "Refusal",
    "Result",
    "RewakeError",
    "Runtime",
    "RuntimeOptions",
    "RuntimeStopped",
    "StartingTurn",
    "StopReport",
    "StreamConflict",
    "StreamMoved",
    "Tool",
    "ToolContext",
    "TurnNotRunning",
    "UnknownAgent",
    "redecide",
    "tool",
    "what_if",
]
