"""Makes `first.sqlite` and `first.json`: a life of two agents, and what every projection then said, by today's code.

The two files beside it are of commit 198f141, the first with a command line: this file, run there with `uv run python`. They
are never made again.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from rewake.actors.config import AgentConfig
from rewake.actors.providers import ScriptedProvider, call_tool, drop, reply, server_error, slow
from rewake.actors.simulation import Simulation
from rewake.actors.tools import tool
from rewake.projections.fold import PROJECTIONS, fold, streams_of


@tool(idempotent=True)
async def look(what: str) -> str:
    """Look something up."""
    await asyncio.sleep(5)
    return f"found {what}"


@tool
async def send(what: str) -> str:
    """Send something."""
    await asyncio.sleep(5)
    return f"sent {what}"


def life(path: str) -> Simulation:
    """Tools cut off by a crash, retries, a broken answer, a hold over a crash, a failure for good, settings that change."""
    script = [
        [call_tool("look", {"what": "the moon"}, id="c1"), call_tool("send", {"what": "a card"}, id="c2")],
        reply("It is there. 月は遠い"),
        server_error("busy"),
        reply("Sorry for the wait."),
        drop(after="I was about to"),
        reply("say this."),
        *(server_error("down") for _ in range(4)),
        *(slow(reply(f"well {number}"), seconds=2) for number in range(40)),
    ]
    small: Any = {"max_tokens": 100, "recent_window_tokens": 100, "target_chunk_tokens": 120}
    sim = Simulation(
        agents=[
            AgentConfig(name="ada", model="m", system="Be kind.", tools=(look, send), **small),
            AgentConfig(name="bob", model="m"),
        ],
        provider=ScriptedProvider(script, summarize=lambda _: slow(reply("They spoke of the moon."), seconds=30)),
        seed=1,
        log=path,
    )
    sim.push("ada", "How far is the moon?", channel="cli", author="grace", dedupe_key="one")
    sim.advance(seconds=1)
    sim.crash()
    sim.restart()
    for said in ("And now?", "Go on.", "Once more."):
        sim.run_until_idle()
        sim.push("ada", said, channel="cli")
    sim.run_until_idle()
    for number in range(8):
        sim.push("ada", f"{'word ' * 60}{number}", author="grace")
        sim.run_until_idle(timeout=20)
    sim.wake("bob", "tick", silent=True)
    sim.configure("ada", context_budget_tokens=600, immediate=True, allow_infeasible=True)
    sim.push("ada", "Does it fit?")
    sim.run()
    sim.crash()
    sim.restart()
    sim.push("ada", "And this?")
    sim.advance(hours=1)
    sim.stop()
    sim.restart()
    sim.push("bob", "bye")
    sim.run()
    sim.crash()
    return sim


def said(log: Any) -> dict[str, Any]:
    """The rows of every projection of every stream that it is folded from."""
    return {
        f"{name} {stream}": msgspec.to_builtins(projection.rows(fold(log, name, stream=stream)))
        for name, projection in PROJECTIONS.items()
        for stream in streams_of(log, name)
    }


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    life(str(folder / "first.sqlite"))
    from rewake.events import open_log

    log = open_log(str(folder / "first.sqlite"), readonly=True)
    (folder / "first.json").write_text(json.dumps(said(log), indent=1, sort_keys=True, ensure_ascii=False) + "\n")
