"""Calls to a provider: ordered, answered, failed, found without an outcome."""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import Struct

from rewake.events.base import AgentEvent, Millis, Tokens
from rewake.events.messages import Blocks
from rewake.events.turns import Failure


class Usage(Struct, frozen=True, omit_defaults=True, gc=False):
    """What a provider says that a call used: `input` is all of the input, `cached` the part of it read from a cache.

    `dropped_input`: it left out a part of what it was sent (reasoning, say), so that `input` is no count of that.
    """

    input: Tokens
    output: Tokens
    cached: Tokens = 0
    reasoning: Tokens = 0
    dropped_input: bool = False


class InferenceRequested(AgentEvent, frozen=True, tag="inference_requested"):
    """A call is ordered; it is sent only once this is on disk.

    `payload` is the price of all that it sends, `flat` the part of it that no multiplier is for, `estimate` what the provider
    is expected to count.
    """

    MINTS: ClassVar[tuple[str, str]] = ("call", "call")

    turn: str
    step: int
    provider: str
    model: str
    max_tokens: Tokens
    call: str = ""
    purpose: Literal["turn", "fold"] = "turn"
    connection: str = ""
    tools: tuple[str, ...] = ()
    digest: str = ""
    estimate: Tokens = 0
    payload: Tokens = 0
    encoding: str = ""
    flat: Tokens = 0


class InferenceCompleted(AgentEvent, frozen=True, tag="inference_completed"):
    """The answer, once. `gate_version` is the gate's when the call was sent."""

    call: str
    blocks: Blocks
    stop_reason: str
    usage: Usage | None = None
    provider: str = ""
    model: str = ""
    gate_version: int = 0


class InferenceFailed(AgentEvent, frozen=True, tag="inference_failed"):
    """The call failed. `retry_ms` is the error policy's delay, asked where the failure came in; None: it gives up, or the
    failure is the gate's.

    `text` is what of an answer had come before; tools that it had asked for are not known here and do not run.
    """

    call: str
    error: Failure
    emitted: bool = False
    retry_ms: Millis | None = None
    provider: str = ""
    model: str = ""
    gate_version: int = 0
    text: str = ""


class InferenceInterrupted(AgentEvent, frozen=True, tag="inference_interrupted"):
    """Found at a restart without an outcome: it may or may not have reached the provider."""

    call: str
    why: str = "restart"
