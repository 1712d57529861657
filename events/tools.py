"""Tools: recorded before they run, and after."""

from __future__ import annotations

from typing import Any

from rewake.events.base import AgentEvent, Tokens


class ToolCalled(AgentEvent, frozen=True, tag="tool_called"):
    """A tool is about to run.

    `tool_call` is ours and unique (`ada/call/13/0`), `provider_id` what the model called it.
    """

    tool_call: str
    call: str
    turn: str
    name: str
    arguments: dict[str, Any]
    idempotent: bool = False
    provider_id: str = ""


class ToolReturned(AgentEvent, frozen=True, tag="tool_returned"):
    """What a tool gave back, or why nothing: a restart cut it off (`interrupted`), its turn ended first (`ended`).

    `ends_turn`: the tool asked for the turn's end. `result` is whole; the conversation shows at most `excerpt_chars`
    characters of it (0: all), and `tokens` prices those.
    """

    tool_call: str
    turn: str
    result: str
    is_error: bool = False
    tokens: Tokens = 0
    encoding: str = ""
    why: str = ""
    ends_turn: bool = False
    excerpt_chars: int = 0
