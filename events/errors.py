"""Every error that rewake raises, with the numbers in fields.

RewakeError
├── InvalidSetting, InvalidContent, EventTooLarge, UnknownAgent     what was asked is not possible: nothing was appended
├── InvalidPlan                                                     a strategy's plan can not be sent: nothing is
├── BudgetInfeasible, TurnNotRunning, AgentBusy, NoWake             refused as things stand: nothing was appended
├── CalledFromInside, ActorParked, RuntimeStopped, Quiesced
├── OutputRefused                                                   a file can not be made there: nothing was written
└── LogError
    ├── LogInUse, NotALog, LogCorrupt                               the log does not open, or is damaged
    ├── ExportCorrupt                                               a log written out as lines is damaged
    ├── StreamConflict, StreamMoved                                 an append met another writer: nothing was written
    └── LogFailed ── LogFull, Fenced                                a commit failed: the runtime stops
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class RewakeError(Exception):
    """The root of all; `fields` are the numbers and names that the message is made of."""

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.fields = fields
        for name, value in fields.items():
            setattr(self, name, value)


class InvalidSetting(RewakeError):
    """A setting that can not be: its `name`, the `value` given and `why` not."""

    name: str
    value: Any
    why: str

    def __init__(self, name: str, value: Any, why: str) -> None:
        super().__init__(f"{name} = {value!r}: {why}", name=name, value=value, why=why)


class InvalidContent(RewakeError):
    """Content that is no text or blocks that a message can have."""

    why: str

    def __init__(self, why: str) -> None:
        super().__init__(why, why=why)


class EventTooLarge(RewakeError):
    """An event would be `size` bytes encoded; `limit` is the most that one may have."""

    size: int
    limit: int

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"the event would be {size:,} bytes; at most {limit:,} are taken", size=size, limit=limit)


class InvalidPlan(RewakeError):
    """A `strategy` gave a plan that can not be sent, or raised: `why`, and the id of the message, or the `tokens` and the
    `limit`, that are wrong.
    """

    strategy: str
    why: str
    message_id: str | None
    tokens: int | None
    limit: int | None

    def __init__(
        self,
        strategy: str,
        why: str,
        *,
        message_id: str | None = None,
        tokens: int | None = None,
        limit: int | None = None,
    ) -> None:
        numbers = {"message_id": message_id, "tokens": tokens, "limit": limit}
        super().__init__(f"strategy {strategy}: {why}", strategy=strategy, why=why, **numbers)


class UnknownAgent(RewakeError):
    """No agent of that name runs here."""

    agent: str

    def __init__(
        self, agent: str, why: str = "no agent of that name was started", *, there: Sequence[str] = ()
    ) -> None:
        near = f"; near it: {', '.join(there)}" if there else ""
        super().__init__(f"{agent!r}: {why}{near}", agent=agent)


class BudgetInfeasible(RewakeError):
    """The context does not fit the settings asked for, in tokens: it takes `tokens`, of which `mandatory` must stay.

    The budget would leave `room` (`bound` with grace), the window `window_room` (None without one); `binding` is the one
    that is too small. `error` says why there is no plan at all, where that is so. `allow_infeasible=True` makes the cut all
    the same.
    """

    agent: str
    tokens: int
    room: int
    bound: int
    window_room: int | None
    binding: str
    mandatory: int
    error: str

    def __init__(
        self,
        agent: str,
        tokens: int,
        room: int,
        bound: int,
        *,
        window_room: int | None = None,
        binding: str = "budget",
        mandatory: int = 0,
        error: str = "",
    ) -> None:
        left = f"the budget would leave room for {room:,} (at most {bound:,} with grace)"
        if binding == "window" and window_room is not None:
            left = f"the window would leave room for {window_room:,}"
        super().__init__(
            f"{agent}: {error or f'the context takes {tokens:,} tokens, {mandatory:,} of them must stay, {left}'}; "
            "allow_infeasible=True makes the cut all the same",
            agent=agent,
            tokens=tokens,
            room=room,
            bound=bound,
            window_room=window_room,
            binding=binding,
            mandatory=mandatory,
            error=error,
        )


class TurnNotRunning(RewakeError):
    """The turn named is not the one that runs or waits: that is `present`, None where there is none."""

    turn: str
    present: str | None

    def __init__(self, turn: str, present: str | None = None) -> None:
        there = f"{present} does" if present else "no turn does"
        super().__init__(f"{turn or 'a turn'} does not run; {there}", turn=turn, present=present)


class AgentBusy(RewakeError):
    """The agent is in a turn: what was asked needs it idle."""

    agent: str
    turn: str

    def __init__(self, agent: str, turn: str) -> None:
        super().__init__(f"{agent} is in {turn}", agent=agent, turn=turn)


class NoWake(RewakeError):
    """The receipt has no wake, so no turn is owed for it."""


class CalledFromInside(RewakeError):
    """The call would wait for the caller's own turn."""


class ActorParked(RewakeError):
    """The actor of `stream` failed three times on the same thing and takes nothing more until a new start."""

    stream: str

    def __init__(self, stream: str, error: str = "") -> None:
        super().__init__(f"{stream} is parked: {error}", stream=stream, error=error)


class RuntimeStopped(RewakeError):
    """The runtime has stopped, or never started; nothing was appended."""


class Quiesced(RewakeError):
    """The host is quiesced; nothing was appended."""


class OutputRefused(RewakeError):
    """A file can not be made at `path`, and `why`; what is there already is never overwritten."""

    path: str
    why: str

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}", path=path, why=why)


class LogError(RewakeError):
    """Something about the log itself."""


class LogInUse(LogError):
    """Another process, or another runtime of this one, writes this log: its `pid`, and `since` when (UTC
    milliseconds).
    """

    pid: int | None
    since: int | None

    def __init__(self, path: str, pid: int | None, since: int | None) -> None:
        super().__init__(f"{path} is written by process {pid}", path=path, pid=pid, since=since)


class NotALog(LogError):
    """The file is there and is no log of rewake's, or is one of a newer format."""

    path: str

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}", path=path, why=why)


class LogCorrupt(LogError):
    """The log at `path` is damaged at `seq`; 0 where no event of it can be read. Where the whole of it was looked at,
    `last_good_seq` is the last event before that, and the message says how to keep what is good.
    """

    seq: int
    reason: str
    path: str
    last_good_seq: int | None

    def __init__(self, seq: int, reason: str, *, path: str = "", last_good_seq: int | None = None) -> None:
        kept = (
            "" if last_good_seq is None else f"; the last good event is {last_good_seq}{keeping(path, last_good_seq)}"
        )
        fields = {"seq": seq, "reason": reason, "path": path, "last_good_seq": last_good_seq}
        super().__init__(f"event {seq}: {reason}{kept}" if seq else f"{reason}{kept}", **fields)


def keeping(path: str, good: int) -> str:
    """How to keep the good events of a damaged log."""
    return (
        f": `rewake export {path} FILE --until {good}` and `rewake import NEW.db FILE` keep what is good"
        if good
        else ""
    )


class ExportCorrupt(LogError):
    """A log written out as lines is damaged at `line` (the header is line 1): nothing of it was imported."""

    line: int
    reason: str

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}", line=line, reason=reason)


class StreamConflict(LogError):
    """The stream's head is not the one that the writer expected: another writer was there."""

    stream: str
    expected: int
    actual: int

    def __init__(self, stream: str, expected: int, actual: int) -> None:
        super().__init__(
            f"{stream}: expected version {expected}, actual {actual}", stream=stream, expected=expected, actual=actual
        )


class StreamMoved(StreamConflict):
    """A stream that the decision depended on (`unmoved`) has moved."""


class LogFailed(LogError):
    """A commit failed (`reason`): nothing of it was acknowledged or acted on, and the runtime stops.

    Where the disk failed in the middle of it, the next start may find it in the log all the same; what was pushed with a
    `dedupe_key` can be pushed again.
    """

    reason: str

    def __init__(self, reason: str) -> None:
        super().__init__(reason, reason=reason)


class LogFull(LogFailed):
    """There is no space left for the log."""


class Fenced(LogFailed):
    """A newer process has taken the log over."""
