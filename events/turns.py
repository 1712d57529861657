"""A turn's life: the token is taken, the turn is prepared, retried, and ends."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from rewake.events.base import AgentEvent, Event, Millis, Tokens
from rewake.events.messages import Message


class Failure(Struct, frozen=True, omit_defaults=True, gc=False):
    """Why a start or a call did not succeed. `kind` is one of the error policy's, `type` the exception's own name.

    `counted` is what the provider says that the input of a request too long was, `limit` what it takes.
    """

    kind: str
    message: str
    retryable: bool = False
    type: str = ""
    status: int | None = None
    retry_after_ms: Millis | None = None
    counted: Tokens | None = None
    limit: Tokens | None = None

    @property
    def told(self) -> str:
        """As people are told it; where its kind says nothing, by the exception's own name."""
        what = self.type if self.kind == "unknown" and self.type else self.kind
        return f"{what}: {self.message}"


class TurnStarted(AgentEvent, frozen=True, tag="turn_started"):
    """The turn token is taken; `wakes` are all that it answers, in order. The same turn again has its next `attempt`.

    `cue` is the line that the turn's request ends on when none of its wakes came with a message.
    """

    MINTS: ClassVar[tuple[str, str]] = ("turn", "turn")

    wakes: tuple[str, ...]
    turn: str = ""
    attempt: int = 1
    batches: tuple[str, ...] = ()
    trigger: str = ""
    channel: str | None = None
    addressed: bool = False
    silent: bool = False
    resumes: bool = False
    cue: str = ""
    cue_tokens: Tokens = 0


class Injections(Struct, frozen=True, omit_defaults=True, gc=False):
    """What a turn's requests carry beside the conversation: behind the system prompt, before and after its newest message.

    `tokens` is what all of it adds to a request, `flat` the part of that which no multiplier is for.
    """

    system: str = ""
    before: tuple[Message, ...] = ()
    after: tuple[Message, ...] = ()
    tokens: Tokens = 0
    flat: Tokens = 0


class TurnPrepared(AgentEvent, frozen=True, tag="turn_prepared"):
    """What the agent's own callables said for this start: whether the policy admits it, what `context=` gives it, or how a
    callable failed.

    `retry_ms` is the error policy's delay for that failure; None: it gives up. `prefill` is how the first answer begins,
    `tail` stands behind the newest message.
    """

    turn: str
    attempt: int
    admitted: bool = True
    error: Failure | None = None
    retry_ms: Millis | None = None
    injections: Injections = Injections()
    prefill: str = ""
    prefill_tokens: Tokens = 0
    tail: str = ""
    tail_tokens: Tokens = 0


class TurnDeclined(AgentEvent, frozen=True, tag="turn_declined"):
    """The inference policy said no: these wakes are consumed without a call."""

    turn: str
    wakes: tuple[str, ...]


class TurnWithdrawn(AgentEvent, frozen=True, tag="turn_withdrawn"):
    """Every cause of the turn was gone: nothing was sent."""

    turn: str
    why: str


class TurnCompleted(AgentEvent, frozen=True, tag="turn_completed"):
    """The turn ended with an answer; `stop_reason` is the last call's."""

    turn: str
    stop_reason: str


class TurnExhausted(AgentEvent, frozen=True, tag="turn_exhausted"):
    """The error policy gave up on the turn. `hold` tells of its budget hold, when it had one."""

    turn: str
    stop_reason: str
    error: Failure
    attempts: int = 0
    tools_run: int = 0
    hold: str = ""


class TurnAborted(AgentEvent, frozen=True, tag="turn_aborted"):
    """The turn was ended from outside."""

    turn: str
    reason: str = ""


TurnEnd = TurnCompleted | TurnExhausted | TurnAborted | TurnDeclined | TurnWithdrawn
"""How a turn may end."""

TURN_ENDS: frozenset[type[Event]] = frozenset({TurnCompleted, TurnExhausted, TurnAborted, TurnDeclined, TurnWithdrawn})
"""The kinds of a turn's end, to look a kind up."""


class RetryScheduled(AgentEvent, frozen=True, tag="retry_scheduled"):
    """The error policy waits: the turn goes on at `at`, which is `delay_ms` after the failure."""

    turn: str
    attempt: int
    at: Millis
    delay_ms: Millis
    error: Failure


class RetryDue(AgentEvent, frozen=True, tag="retry_due"):
    """A retry's time has come."""

    turn: str


class UsageRecorded(AgentEvent, frozen=True, tag="usage_recorded"):
    """What the turn's completed calls used, in the provider's own counts, when every one of them gave a usable sample.

    `last_counted` and `last_payload` are the newest call's counted input and priced payload.
    """

    turn: str
    input: Tokens
    output: Tokens
    cached: Tokens = 0
    last_counted: Tokens = 0
    last_payload: Tokens = 0
    model: str = ""
    connection: str = ""
