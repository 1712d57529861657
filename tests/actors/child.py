"""A program that a test kills: it pushes from several threads and prints each receipt once it has it.

`child.py LOG SEED` is busy until it is killed; `child.py LOG tools MARKS` is killed in the middle of two tools; `child.py LOG
hold` only holds the log.
"""

from __future__ import annotations

import random
import sys
import threading
from pathlib import Path
from typing import Any

from rewake.actors import AgentConfig, Runtime, tool
from rewake.actors.providers import Request, ScriptedProvider, call_tool, slow
from rewake.events import ToolResult

NAMES = ("ada", "bob", "cyd")
FOREVER = threading.Event()


def busy(path: str, seed: int) -> None:
    provider = ScriptedProvider(lambda request: slow("fine", seconds=0.001))
    rt = Runtime(path, provider=provider, agents=[AgentConfig(name=name, model="m") for name in NAMES])
    printing = threading.Lock()

    def pushing(who: int) -> None:
        chance = random.Random(seed * 10 + who)
        for number in range(100_000):
            text = f"{seed}/{who}/{number}"
            wakes = chance.random() < 0.7
            receipt = rt.push(chance.choice(NAMES), text, wake=wakes)
            with printing:
                print(receipt.seq, receipt.wake or "-", text, flush=True)

    with rt:
        threads = [threading.Thread(target=pushing, args=(who,), daemon=True) for who in range(4)]
        for thread in threads:
            thread.start()
        FOREVER.wait()


def results(request: Request) -> Any:
    """A script: two tools at once, then what they gave."""
    given = [block.content for block in request.messages[-1].blocks if isinstance(block, ToolResult)]
    return " | ".join(str(one) for one in given) or [call_tool("again"), call_tool("once")]


def tools(marks: str) -> list[Any]:
    """Each run leaves a mark in a file; `MARKS` that ends in `!` waits for ever then."""
    path, stays = Path(marks.removesuffix("!")), marks.endswith("!")

    def run(name: str) -> str:
        with path.open("a") as file:
            file.write(f"{name}\n")
        if stays:
            sys.stdout.write(f"{name}\n")  # one write: two tools do so at once
            sys.stdout.flush()
            FOREVER.wait()
        return f"{name} is done"

    @tool(idempotent=True)
    def again() -> str:
        return run("again")

    @tool
    def once() -> str:
        return run("once")

    return [again, once]


def config(marks: str) -> AgentConfig:
    return AgentConfig(name="ada", model="m", tools=tools(marks))


def main() -> None:
    path, what, *more = sys.argv[1:]
    if what == "tools":
        with Runtime(path, provider=ScriptedProvider(results), agents=[config(more[0])]) as rt:
            print(rt.push("ada", "go").wake, flush=True)
            FOREVER.wait()
    elif what == "hold":
        with Runtime(path, provider=ScriptedProvider(), agents=[AgentConfig(name="ada", model="m")]) as rt:
            print(rt.push("ada", "held").wake, flush=True)
            FOREVER.wait()
    else:
        busy(path, int(what))


if __name__ == "__main__":
    main()
