"""Recorded conversations through a real runtime: `python -m rewake.scripts.transcripts RECORDINGS.jsonl`.

A recording is a JSON line `{"id", "messages": [{"role", "content", "tool_calls", "tool_call_id", "name"}]}`. Three of
them after one another are one agent's life, in a room of half of what it takes: so its history is compressed and turns
are held. The model and the tools answer as recorded.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress

from rewake.actors import Result, Runtime, RuntimeOptions
from rewake.actors.providers import ScriptedProvider
from rewake.actors.providers.base import Request
from rewake.actors.providers.script import Item
from rewake.events import Log, ToolCalled, ToolReturned, TurnExhausted
from rewake.projections.verifying import verify
from rewake.scripts.cli import Plain, told
from rewake.scripts.errors import Failed
from rewake.scripts.logs import reading
from rewake.scripts.recordings import Player, config, players, transcripts
from rewake.scripts.tables import Form, emit, formed

PATIENCE = 300.0
"""Seconds that one answer may take."""


class Wrong(Exception):
    """An answer that is not the recorded one."""


@click.command(cls=Plain)
@click.argument("recordings", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--log", "place", type=click.Path(path_type=Path), help="Keep the log here; else it is thrown away.")
@click.option("-n", "most", type=click.IntRange(min=1), help="The first N recordings only.")
@click.option("--each", type=click.IntRange(min=1), default=3, show_default=True, help="Recordings an agent.")
@click.option("--durability", type=click.Choice(["full", "normal"]), default="full", show_default=True)
@formed
def main(form: Form, recordings: Path, place: Path | None, most: int | None, each: int, durability: Any) -> None:
    """Run recorded conversations and report turns, holds, compressions, time and size.

    Exit code 1 when a message was not answered as recorded, a tool call has no result, or a turn was given up.
    """
    cast = players(transcripts(recordings)[:most], each)
    with tempfile.TemporaryDirectory() as folder:
        path = place or Path(folder) / "transcripts.db"
        if place is not None and place.exists():
            raise click.UsageError(f"{place} is there already")
        began = time.monotonic()
        wrong = asyncio.run(played(cast, str(path), RuntimeOptions(durability=durability)))
        seconds = time.monotonic() - began
        with reading(str(path)) as log:
            row, faults = account(log)
        size = path.stat().st_size
    said = {"transcripts": sum(1 for _ in transcripts(recordings)[:most]), "agents": len(cast)}
    emit([said | row | {"seconds": round(seconds, 2), "bytes": size}], form)
    if problems := [*wrong, *faults]:
        for problem in problems[:20]:
            told(problem)
        raise Failed(f"{len(problems)} things are not as recorded")


async def played(cast: list[Player], path: str, options: RuntimeOptions) -> list[str]:
    """Every agent lives through its recordings, all at the same time. What went wrong."""
    by_name = {player.name: player for player in cast}

    def script(request: Request) -> Item:
        return by_name[request.agent].answer(request)

    provider = ScriptedProvider(script)
    wrong: list[str] = []
    total = sum(len(player.rounds) for player in cast)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("messages", total=total)
        agents = [config(player) for player in cast]
        async with Runtime(path, provider=provider, agents=agents, options=options) as runtime:

            async def life(player: Player) -> None:
                try:
                    for _ in player.rounds:
                        await exchange(runtime, player)
                        progress.advance(task)
                except Wrong as error:
                    wrong.append(str(error))

            await asyncio.gather(*(life(player) for player in cast))
    return wrong


async def exchange(runtime: Runtime, player: Player) -> None:
    """The next message, and its answer. Raises Wrong."""
    one = player.next()
    receipt = await runtime.apush(player.name, one.said, author="customer")
    result: Result = await runtime.aresult(receipt, timeout=PATIENCE)
    if result.state != "completed" or result.text != one.reply:
        raise Wrong(f"{receipt.wake} is {result.state} ({result.why}): {result.text!r}, recorded {one.reply!r}")


def account(log: Log) -> tuple[dict[str, Any], list[str]]:
    """What the log says was done, and what of it is wrong."""
    kinds: Counter[str] = Counter()
    called: Counter[str] = Counter()
    wrong: list[str] = []
    for recorded in log.read():
        kinds[recorded.kind] += 1
        match recorded.event:
            case ToolCalled(tool_call=call):
                called[call] += 1
            case ToolReturned(tool_call=call):
                called[call] -= 1
            case TurnExhausted(turn, _, error):
                wrong.append(f"{turn} was given up: {error.kind}: {error.message}")
            case _:
                pass
    wrong += [f"{call} has {'no result' if left > 0 else 'a result too many'}" for call, left in called.items() if left]
    if not (found := verify(log)).ok:
        wrong.append(f"the log is not whole: {found.why}")
    row = {
        "messages": kinds["wake"],
        "turns": kinds["turn_completed"],
        "tool_calls": kinds["tool_called"],
        "refusals": kinds["refused"],
        "holds": kinds["held"],
        "compressions": kinds["compressed"],
        "quarantined": kinds["quarantined"],
        "events": sum(kinds.values()),
    }
    return row, wrong


if __name__ == "__main__":
    main()
