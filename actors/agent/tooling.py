"""A round of tools: each call is recorded before it runs, its result after; then the round is one message."""

from __future__ import annotations

from collections.abc import Sequence

from rewake.actors.agent.commands import Returned
from rewake.actors.agent.state import Agent
from rewake.actors.excerpts import excerpt
from rewake.events import (
    Event,
    InferenceCompleted,
    MessageAdded,
    ToolCall,
    ToolCalled,
    ToolResult,
    ToolReturned,
    ToolSpec,
)
from rewake.projections.pricing import count_tokens
from rewake.projections.turns import OpenTool, open_tools

INTERRUPTED = "interrupted: it may or may not have run"


def called(state: Agent, answer: InferenceCompleted, calls: Sequence[ToolCall]) -> list[Event]:
    """The calls of one answer, in order; an id of ours tells those of one id apart."""
    declared = {tool.name: tool.idempotent for tool in state.live.tools}
    return [
        ToolCalled(
            f"{answer.call}/{index}",
            answer.call,
            state.turn.id,
            call.name,
            call.arguments,
            declared.get(call.name, False),
            call.id,
        )
        for index, call in enumerate(calls)
    ]


def returned(state: Agent, said: Returned) -> list[Event]:
    """A tool's result; one that nobody waits for any more is nothing."""
    turn = state.turns.running
    if not turn or said.tool_call not in {one.id for one in open_tools(turn)}:
        return []
    live, id = state.live, said.tool_call
    most = live.result_excerpt_chars if len(said.result) > live.result_excerpt_chars else 0
    tokens, ends = count_tokens(excerpt(said.result, most, id), live.encoding), said.ends_turn
    return [ToolReturned(id, turn.id, said.result, said.is_error, tokens, live.encoding, "", ends, most)]


def round_of(state: Agent, returned: ToolReturned) -> list[Event]:
    """When every tool of the round has returned: their results, in the order of the calls, as one message.

    One that ends the turn waits for no other.
    """
    turn = state.turn
    if open_tools(turn):
        return cut_off(state) if returned.ends_turn else []
    if not turn.tools:
        return []
    blocks = tuple(result(tool) for tool in turn.tools)
    tokens = sum(tool.returned.tokens for tool in turn.tools if tool.returned)
    return [MessageAdded("user", blocks, tokens, state.live.encoding, turn=turn.id)]


def cut_off(state: Agent) -> list[Event]:
    """The tools that have not returned when their turn ends: each has a result, so that no request is without one."""
    return [unreturned(state, one, "ended") for one in open_tools(state.turn)]


def unreturned(state: Agent, tool: OpenTool, why: str) -> ToolReturned:
    encoding = state.live.encoding
    tokens = count_tokens(INTERRUPTED, encoding)
    return ToolReturned(tool.id, state.turn.id, INTERRUPTED, True, tokens, encoding, why)


def result(tool: OpenTool) -> ToolResult:
    back = tool.returned
    if back is None:
        return ToolResult(tool.provider_id, INTERRUPTED, True)
    return ToolResult(tool.provider_id, excerpt(back.result, back.excerpt_chars, tool.id), back.is_error)


def interrupted(state: Agent, declared: Sequence[ToolSpec]) -> list[Event]:
    """Tools that a crash cut off: those that were idempotent, and are as they are declared now, run again; the others are
    told so.
    """
    turn = state.turns.running
    if turn is None:
        return []
    again = {tool.name for tool in declared if tool.idempotent}
    return [
        unreturned(state, one, "interrupted") for one in open_tools(turn) if not (one.idempotent and one.name in again)
    ]
