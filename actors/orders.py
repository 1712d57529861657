"""What is ordered of the world. Each order is a frozen value; its key in `orders` names one attempt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from rewake.actors.providers.base import Request
from rewake.projections.gates import Gate

OPEN = Gate()
"""A gate that nothing has happened to."""


@dataclass(frozen=True)
class Infer:
    """Send this call to a provider, when its gate admits it.

    `render` makes the request, at the moment that it is sent. `host_version`: what whoever orders it knows of the host.
    """

    call: str
    stream: str
    purpose: Literal["turn", "compression"]
    provider: str
    model: str
    fresh: bool
    timeout: float
    render: Callable[[], Request] = field(compare=False, repr=False)
    host_version: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Admit:
    """A gate's standing order: at most `limit` calls at a time (0: any number), and for each model what `gate` says.

    `fresh`: whether a turn's first request, or its first since a release, goes too; the host says so at `host_version`.
    """

    provider: str
    limit: int
    gate: Gate = OPEN
    fresh: bool = True
    host_version: int = 0


@dataclass(frozen=True)
class RunTool:
    """Run a tool of the agent's."""

    agent: str
    turn: str
    tool_call: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Ask:
    """Ask the agent's own callables about this start of a turn; `wakes` are what it would answer.

    What they give is priced in `encoding`, behind the system prompt. They have `timeout` seconds, None: for ever.
    """

    agent: str
    turn: str
    attempt: int
    wakes: tuple[Any, ...]
    channel: str | None = None
    trigger: str = ""
    system: str = field(default="", repr=False)
    encoding: str = ""
    timeout: float | None = None
