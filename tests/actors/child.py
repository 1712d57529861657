"""A program that a test kills: it pushes from several threads and prints each receipt once it has it.

`child.py LOG SEED` is busy until it is killed; `child.py LOG tools MARKS` is killed in the middle of two tools; `child.py LOG
hold` only holds the log; `child.py LOG serve echo|mute` does what each line of its input says, and answers with a line;
`child.py LOG stages SEED` starts, stops and copies its log again and again.
"""

from __future__ import annotations

import random
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

from rewake.actors import AgentConfig, Runtime, tool
from rewake.actors.providers import Reply, Request, ScriptedProvider, call_tool, slow
from rewake.events import RewakeError, ToolResult, backup, open_log
from rewake.projections import tables
from rewake.projections.exchange import export, import_

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


class Counted:
    """Echoes, or says nothing for ever; each call leaves a line on stderr."""

    name = "counted"

    def __init__(self, mute: bool) -> None:
        self.inner = ScriptedProvider((lambda request: slow("too late", 3_600)) if mute else None)

    async def infer(self, request: Request, on_delta: Any, /) -> Reply:
        print(f"called {request.call}", file=sys.stderr, flush=True)
        return await self.inner.infer(request, on_delta)


def serve(path: str, how: str) -> None:
    """`push TEXT` is answered by its wake, `read` by the length of the log, each by the type of its error and what that says;
    `stop` and the end of the input by `stopped`.
    """
    rt = Runtime(path, provider=Counted(how == "mute"), agents=[AgentConfig(name="ada", model="m")])
    try:
        with rt:
            print("runs", flush=True)
            for line in sys.stdin:
                what, _, text = line.strip().partition(" ")
                if what == "stop":
                    break
                try:
                    print(rt.push("ada", text).wake if what == "push" else sum(1 for _ in rt.log.read()), flush=True)
                except RewakeError as error:
                    print(type(error).__name__, error, flush=True)
        print("stopped", flush=True)
    except RewakeError as error:
        print(type(error).__name__, error, flush=True)


def stages(path: str, seed: str) -> None:
    """Each round starts a runtime, stops it with snapshots, and makes a file of each sort beside the log."""
    print("ready", flush=True)
    for number in range(1_000):
        with Runtime(path, provider=ScriptedProvider(), agents=[AgentConfig(name="ada", model="m")]) as rt:
            for one in range(3):
                text = f"{seed}/{number}/{one}"
                print(rt.push("ada", text).wake, text, flush=True)
            rt.log.drop_snapshots()
        made = Path(path).with_name(f"{seed}-{number}")
        backup(path, made.with_suffix(".backup"))
        with closing(open_log(path, readonly=True)) as log:
            tables(log, made.with_suffix(".tables"))
            import_(export(log), made.with_suffix(".import"))


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
    elif what == "serve":
        serve(path, more[0])
    elif what == "stages":
        stages(path, more[0])
    else:
        busy(path, int(what))


if __name__ == "__main__":
    main()
