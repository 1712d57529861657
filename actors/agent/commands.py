"""What comes to an agent from outside."""

from __future__ import annotations

from typing import Any, Literal

from rewake.actors.behaviour import Command, Key
from rewake.actors.providers.base import Reply
from rewake.events import Blocks, Failure, Injections, Settings, Tokens


class Start(Command, frozen=True):
    """A process started the agent with this configuration; `once`: for one run."""

    config: Settings
    once: bool = False


class Push(Command, frozen=True):
    """A person or a program says something; with `wake` it is owed a turn. The price is counted by the caller."""

    blocks: Blocks
    tokens: Tokens
    encoding: str
    channel: str | None = None
    author: str | None = None
    addressed: bool = True
    wake: bool = True
    dedupe_key: str | None = None


class Rouse(Command, frozen=True):
    """A wake without a message."""

    reason: str
    channel: str | None = None
    author: str | None = None
    addressed: bool = False
    wake_at: int | None = None
    silent: bool = False
    dedupe_key: str | None = None


class Configure(Command, frozen=True):
    """An operator changes settings of a living agent."""

    changes: dict[str, Any]
    immediate: bool = False
    allow_infeasible: bool = False
    by: str | None = None


class Abort(Command, frozen=True):
    """An operator ends a turn. `text` is what its call, if it is `call`, had said so far."""

    turn: str
    reason: str = ""
    call: str = ""
    text: str = ""


class Cancel(Command, frozen=True):
    """An operator withdraws what waits: what machines sent, or all of it."""

    drop: Literal["machine", "all"] = "machine"


class Dispose(Command, frozen=True):
    """An operator ends the agent."""

    reason: str = ""


class ReleaseQuarantine(Command, frozen=True):
    """An operator wants what compression gave up to be tried again."""

    by: str | None = None


class Prepared(Command, frozen=True):
    """What the agent's own callables said about a start, priced by whoever asked them."""

    turn: str
    attempt: int
    admitted: bool = True
    error: Failure | None = None
    injections: Injections = Injections()
    prefill: str = ""
    prefill_tokens: Tokens = 0
    tail: str = ""
    tail_tokens: Tokens = 0


class Answered(Command, frozen=True):
    """The provider answered a call, sent when its gate was at `gate_version`."""

    call: str
    reply: Reply
    gate_version: int = 0

    @property
    def ends(self) -> Key | None:
        return "call", self.call

    def instead(self, why: str) -> Command | None:
        return Failed(self.call, Failure("unknown", why, retryable=True), True, self.gate_version)


class Failed(Command, frozen=True):
    """A call failed; `emitted` tells whether some of an answer had come, `text` what."""

    call: str
    error: Failure
    emitted: bool = False
    gate_version: int = 0
    text: str = ""

    @property
    def ends(self) -> Key | None:
        return "call", self.call


class NotSent(Command, frozen=True):
    """A call was not sent: its gate, at `gate_version`, is shut for it; or (`why` "quiesced") the host takes no new turns."""

    call: str
    gate_version: int
    why: str = ""
    host_version: int = 0

    @property
    def ends(self) -> Key | None:
        return "call", self.call


class Returned(Command, frozen=True):
    """A tool returned."""

    tool_call: str
    result: str
    is_error: bool = False
    ends_turn: bool = False

    @property
    def ends(self) -> Key | None:
        return "tool", self.tool_call

    def instead(self, why: str) -> Command | None:
        return None if self.is_error else Returned(self.tool_call, f"the result can not be recorded: {why}", True)
