"""Requests to the provider: ordered, rendered, answered, failed, ordered again."""

from __future__ import annotations

import hashlib

from msgspec.structs import replace

from rewake.actors.agent.alerting import alert
from rewake.actors.agent.commands import Answered, Failed, Prepared
from rewake.actors.agent.gating import met_limit
from rewake.actors.agent.planning import overhead
from rewake.actors.agent.rendering import cue, prefill
from rewake.actors.agent.retrying import exhausted, usage, wait_or_end
from rewake.actors.agent.shedding import shed
from rewake.actors.agent.state import Agent
from rewake.actors.agent.tooling import called
from rewake.actors.policy import ErrorPolicy
from rewake.actors.providers.base import says
from rewake.events import (
    Alerted,
    AnyBlock,
    CalibrationSampled,
    Event,
    Failure,
    InferenceCompleted,
    InferenceFailed,
    InferenceRequested,
    MessageAdded,
    Millis,
    Reasoning,
    Recorded,
    Text,
    Tokens,
    ToolCall,
    TurnCompleted,
    TurnPrepared,
    UndoPoint,
    Usage,
)
from rewake.projections import pricing
from rewake.projections.calibration import REJECTED_ALIKE, after_rejected, estimate, judged, meter
from rewake.projections.conversation import flat_price, price
from rewake.projections.gates import closes_gate
from rewake.projections.plan import shown
from rewake.projections.turns import Turn

DROPPED = "the provider dropped part of the input"


def first_request(state: Agent) -> list[Event]:
    """A compiled turn is sent: its undo point, once, and its request."""
    turn = state.turn
    point = [] if turn.undo else [UndoPoint(turn.id, state.version)]
    return [*point, request(state)]


def request(state: Agent) -> InferenceRequested:
    """The next request of the running turn, with the price of all that it sends and what that is expected to count."""
    turn, live = state.turn, state.live
    payload, flat = priced(state, turn)
    learned = meter(state.calibration, live)
    return InferenceRequested(
        turn.id,
        turn.step + 1,
        live.provider,
        live.model,
        live.max_tokens,
        tools=tuple(tool.name for tool in live.tools),
        digest=request_digest(state, turn),
        estimate=round(estimate(learned, payload, flat, live.overhead_digest)),
        payload=payload,
        encoding=live.encoding,
        flat=flat,
    )


def priced(state: Agent, turn: Turn) -> tuple[Tokens, Tokens]:
    """What the plan shows, as it is by now, every message that came after it, and what the request sends beside them.

    Also the part of that price that no multiplier is for.
    """
    compiled = turn.compiled
    if compiled is None:
        return 0, 0
    beside = overhead(state, turn, compiled.note)
    taken, flat = beside.total, beside.flat
    for start, stop, summaries in shown(state.conversation, state.compression, compiled.plan):
        if summaries:
            taken += sum(one.tokens for one in summaries)
        else:
            taken += price(state.conversation, start, stop)
            flat += flat_price(state.conversation, start, stop)
    return taken, flat


def request_digest(state: Agent, turn: Turn) -> str:
    plan = turn.compiled.digest if turn.compiled else ""
    said = f"{plan} {state.conversation.revision} {turn.step}"
    return hashlib.blake2b(said.encode(), digest_size=12).hexdigest()


def prepared(state: Agent, said: Prepared, policy: ErrorPolicy) -> list[Event]:
    turn = state.turns.running
    if not turn or (turn.id, turn.attempt, turn.stage) != (said.turn, said.attempt, "starting"):
        return []
    delay = policy.delay(said.error, turn.failures + 1, said.at - turn.since) if said.error else None
    return [
        TurnPrepared(
            said.turn,
            said.attempt,
            said.admitted,
            said.error,
            delay,
            said.injections,
            said.prefill,
            said.prefill_tokens,
            said.tail,
            said.tail_tokens,
        )
    ]


def answered(state: Agent, said: Answered) -> list[Event]:
    """The outcome of the open call; a late one, of a call that is gone, is nothing."""
    call = open_call(state, said.call)
    if call is None:
        return []
    reply = said.reply
    return [
        InferenceCompleted(
            call.call, reply.blocks, reply.stop_reason, reply.usage, call.provider, call.model, said.gate_version
        )
    ]


def failed(state: Agent, said: Failed, policy: ErrorPolicy) -> list[Event]:
    """A failure of the open call, with the error policy's answer to it."""
    call = open_call(state, said.call)
    if call is None:
        return []
    turn = state.turn
    delay = None if closes_gate(said.error) else policy.delay(said.error, turn.failures + 1, said.at - turn.since)
    return [
        InferenceFailed(
            call.call, said.error, said.emitted, delay, call.provider, call.model, said.gate_version, said.text
        )
    ]


def open_call(state: Agent, call: str) -> InferenceRequested | None:
    turn = state.turns.running
    return turn.call if turn and turn.call and turn.call.call == call else None


def after_answer(state: Agent, answer: InferenceCompleted, at: Millis) -> list[Event]:
    """The answer enters the conversation; its tools are called, or the turn ends with it."""
    blocks = own_ids(answer, answer.blocks)
    calls = tuple(block for block in blocks if isinstance(block, ToolCall))
    looping = bool(calls) and state.turn.step > state.live.max_rounds
    if looping:
        blocks = tuple(block for block in blocks if not isinstance(block, ToolCall))
    events: list[Event] = [*said(state, answer, blocks), *sampled(state, answer, at)]
    if looping:
        text = f"the model asked for tools in {state.turn.step} rounds; {state.live.max_rounds} are allowed"
        return [*events, *exhausted(state, at, Failure("tool_loop", text))]
    if calls:
        return [*events, *called(state, answer, calls)]
    return [*events, *completed(state, answer.stop_reason)]


def said(state: Agent, answer: InferenceCompleted, blocks: tuple[AnyBlock, ...]) -> list[Event]:
    """The answer as a message. One that says nothing is none: no request may have it."""
    turn, encoding = replaced(state.turn), state.live.encoding
    blocks = begun(prefill(turn)[0], blocks)
    if not any(says(block) for block in blocks):
        return []
    if not any(isinstance(block, Reasoning) for block in blocks):
        return [message(state, turn, blocks)]
    signed = [block for block in blocks if isinstance(block, Reasoning) and block.signature]
    reasoning = pricing.price_all(signed, encoding)
    sent = [block for block in blocks if not isinstance(block, Reasoning)]
    tokens = reasoning + pricing.price_all(sent, encoding)
    by = {"reasoning": reasoning, "provider": answer.provider, "model": answer.model}
    return [replace(message(state, turn, blocks), tokens=tokens, **by)]


def kept(state: Agent, text: str) -> list[Event]:
    """What had come of an answer before its call failed, or was aborted, as a message."""
    if not text.strip():
        return []
    blocks = begun(prefill(state.turn)[0], (Text(text),))
    return [message(state, state.turn, blocks, partial=True)]


def message(state: Agent, turn: Turn, blocks: tuple[AnyBlock, ...], partial: bool = False) -> MessageAdded:
    """What the model said, beside the line that prompted it."""
    encoding = state.live.encoding
    line, tokens = cue(state, turn)
    return MessageAdded(
        "assistant",
        blocks,
        pricing.price_all(blocks, encoding),
        encoding,
        turn=turn.id,
        channel=turn.channel,
        partial=partial,
        cue=line,
        cue_tokens=tokens,
    )


def begun(prefill: str, blocks: tuple[AnyBlock, ...]) -> tuple[AnyBlock, ...]:
    """The answer from its beginning, which the request had already."""
    if not prefill:
        return blocks
    first = next((place for place, block in enumerate(blocks) if not isinstance(block, Reasoning)), len(blocks))
    if first < len(blocks) and isinstance(block := blocks[first], Text):
        return (*blocks[:first], Text(prefill + block.text), *blocks[first + 1 :])
    return (*blocks[:first], Text(prefill), *blocks[first:])


def replaced(turn: Turn) -> Turn:
    """The turn as it was when its last request was rendered."""
    return replace(turn, step=turn.step - 1)


def own_ids(answer: InferenceCompleted, blocks: tuple[AnyBlock, ...]) -> tuple[AnyBlock, ...]:
    """Calls of one answer that share an id get ids of ours, in the letters that every provider takes."""
    ids = [block.id for block in blocks if isinstance(block, ToolCall)]
    if len(set(ids)) == len(ids):
        return blocks
    call = answer.call.rpartition("/")[2]
    return tuple(
        replace(block, id=f"call_{call}_{place}") if isinstance(block, ToolCall) else block
        for place, block in enumerate(blocks)
    )


def completed(state: Agent, stop_reason: str) -> list[Event]:
    return [*usage(state), TurnCompleted(state.turn.id, stop_reason)]


def sampled(state: Agent, call: InferenceCompleted | InferenceFailed, at: Millis) -> list[Event]:
    """What the provider counted of a call, answered or refused as too long, beside what we had priced; whether the
    calibration takes it, and why not.
    """
    used = Usage(call.error.counted or 0, 0) if isinstance(call, InferenceFailed) else call.usage
    if used is None or not used.input:
        return []
    live, turn = state.live, state.turn
    learned = meter(state.calibration, live)
    sample = CalibrationSampled(
        call.call,
        call.provider,
        call.model,
        live.encoding,
        pricing.VERSION,
        turn.last_payload,
        live.system_tokens + live.tools_tokens,
        used.input,
        offset=round(learned.offsets.get(live.overhead_digest, 0.0)),
        flat=turn.last_flat,
        digest=live.overhead_digest,
    )
    if used.dropped_input:
        return [replace(sample, accepted=False, why=DROPPED, dropped=True)]
    accepted, why = judged(learned, sample)
    if accepted:
        return [sample]
    rejected = replace(sample, accepted=False, why=why)
    stuck = not learned.accepted and after_rejected(learned, rejected).alike == REJECTED_ALIKE
    return [rejected, off(state, rejected, at)] if stuck else [rejected]


def off(state: Agent, sample: CalibrationSampled, at: Millis) -> Alerted:
    """Estimates are off: every sample so far was outside what is believed."""
    said = f"{state.name}: estimates for {sample.model} are off: {sample.why}"
    return alert(state, "calibration", said, at)


def after_failure(state: Agent, recorded: Recorded, failure: InferenceFailed) -> list[Event]:
    """What had come of an answer is kept, and the turn goes on from there; then it waits for the gate, or as the error policy
    says.
    """
    events = [*sampled(state, failure, recorded.at), *kept(state, failure.text)]
    if waits := met_limit(state, failure, recorded.at):
        return [*events, *waits]
    if failure.error.kind == "invalid_request" and (left_out := shed(state)):
        return [*events, *left_out]
    return [*events, *wait_or_end(state, recorded.at, failure.error, failure.retry_ms)]
