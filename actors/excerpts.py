"""Long results of tools: the conversation shows the head and the tail of one, the log has it whole, the model reads on."""

from __future__ import annotations

from rewake.actors.tools import ToolContext, tool
from rewake.events import ToolReturned


def excerpt(text: str, most: int, id: str) -> str:
    """A result as the conversation shows it: at most `most` characters, its head and its tail around a line that names it.

    0: whole.
    """
    if not most or len(text) <= most:
        return text
    room = most - len(gap(id, len(text), len(text), len(text)))
    tail = room // 4
    start, stop = room - tail, len(text) - tail
    return text[:start] + gap(id, start, stop, len(text)) + text[stop:]


def gap(id: str, start: int, stop: int, length: int) -> str:
    """What stands for the characters from `start` to `stop` (exclusive) of a result."""
    where = f"characters {start} to {stop} of {length} are left out here"
    return f'\n[... {where}; read_result(result="{id}", start={start}) reads on ...]\n'


@tool(idempotent=True)
def read_result(context: ToolContext, result: str, start: int = 0, length: int | None = None) -> str:
    """Read a part of an earlier tool result that was too long to be shown whole.

    result is the id that stands where characters were left out, start the first character wanted, counted from 0, length
    how many, where fewer than fit are wanted.
    """
    whole = recorded(context, result)
    wanted = "" if length is None else f", {length} of them"
    if not 0 <= start < max(1, len(whole)) or (length is not None and length < 1):
        raise IndexError(f"{result} has {len(whole)} characters, from 0 on: there are none at {start}{wanted}")
    most = context.runtime.state("settings", context.agent).live.result_excerpt_chars
    fits = most - len(heading(result, len(whole), len(whole), len(whole)))
    stop = min(len(whole), start + min(fits, length or fits))
    return heading(result, start, stop, len(whole)) + whole[start:stop]


def heading(id: str, start: int, stop: int, length: int) -> str:
    return f"[{id}: characters {start} to {stop} of {length}]\n"


def recorded(context: ToolContext, id: str) -> str:
    """The whole of a result of this agent's, from the log. Raises LookupError."""
    call = id.removeprefix(f"{context.agent}/call/").partition("/")[0]
    if id.startswith(f"{context.agent}/call/") and call.isdecimal() and len(call) < 19:
        stream = f"agent/{context.agent}"
        for one in context.runtime.log.read(stream=stream, kinds=["tool_returned"], after_version=int(call)):
            if isinstance(one.event, ToolReturned) and one.event.tool_call == id:
                return one.event.result
    raise LookupError(f"{context.agent} has no tool result {id!r}; the line where characters were left out names one")


BUILT_IN = {read_result.spec.name: read_result}
"""Tools that no configuration names."""
