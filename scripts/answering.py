"""What `run` answers to a line: a receipt and later a result, a command's answer, or an error."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import click
import msgspec
from msgspec import Struct

from rewake.actors import IdleReport, Receipt, Runtime, StopReport
from rewake.events import AnyBlock, LogFailed, RewakeError, RuntimeStopped
from rewake.scripts.tables import json

COMMANDS = ("wake", "abort", "cancel", "owed", "health", "configure", "result", "receipt")
"""What `do` may say; the other fields are the call's arguments."""


class BadLine(RewakeError):
    """A line that is neither a push nor a command."""


class Said(Struct, frozen=True, forbid_unknown_fields=True):
    """A push, as a line."""

    agent: str
    content: str | list[AnyBlock]
    channel: str | None = None
    author: str | None = None
    addressed: bool = True
    wake: bool = True
    dedupe_key: str | None = None


class Answers:
    """Writes the answers of a runtime to stdout, in the loop's own thread."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.waiting: set[asyncio.Task[None]] = set()

    async def take(self, line: bytes, number: int) -> None:
        """Answer the line of that number. Raises what ends the runtime itself."""
        echo: dict[str, Any] = {}
        try:
            asked = parsed(line)
            if "id" in asked:
                echo["id"] = asked.pop("id")
            await self._take(asked, echo)
        except (LogFailed, RuntimeStopped) as error:
            write(failure(error) | {"line": number} | echo)
            raise
        except Exception as error:
            write(failure(error) | {"line": number} | echo)

    async def _take(self, asked: dict[str, Any], echo: dict[str, Any]) -> None:
        if "do" not in asked:
            said = msgspec.convert(asked, Said)
            how = {name: getattr(said, name) for name in Said.__struct_fields__[2:]}
            self.received(await self.runtime.apush(said.agent, said.content, **how), echo)
            return
        name = asked.pop("do")
        answer = await asyncio.to_thread(call, self.runtime, name, asked)
        if isinstance(answer, Receipt) and name != "receipt":
            self.received(answer, echo)
        else:
            write({"do": name, "answer": plain(answer)} | echo)

    def received(self, receipt: Receipt, echo: dict[str, Any]) -> None:
        """The receipt at once; its result when there is one. Both have what the caller called them (`echo`)."""
        write({"receipt": plain(receipt)} | echo)
        if receipt.wake is not None:
            task = asyncio.get_running_loop().create_task(self.result(receipt, echo))
            self.waiting.add(task)
            task.add_done_callback(self.waiting.discard)

    async def result(self, receipt: Receipt, echo: dict[str, Any]) -> None:
        try:
            write({"result": plain(await self.runtime.aresult(receipt)), "wake": receipt.wake} | echo)
        except RewakeError:
            return

    async def settle(self, seconds: float) -> None:
        """Let the results that are there be written."""
        if self.waiting:
            await asyncio.wait(self.waiting, timeout=seconds)

    def stopped(self, idle: IdleReport | None, stop: StopReport) -> None:
        """The last line: whether it was idle, and which wakes are still owed."""
        for task in self.waiting:
            task.cancel()
        write({"stopped": {"idle": plain(idle), "pending": list(stop.pending)}})


def parsed(line: bytes) -> dict[str, Any]:
    asked = msgspec.json.decode(line)
    if not isinstance(asked, dict):
        raise BadLine('a line is a JSON object: {"agent": ..., "content": ...} or {"do": ...}')
    return asked  # pyright: ignore[reportUnknownVariableType]


def call(runtime: Runtime, name: Any, fields: dict[str, Any]) -> Any:
    """One command. Raises BadLine for one that there is not, or with arguments that it does not take."""
    if name not in COMMANDS:
        raise BadLine(f"there is no command {name!r}; there are {', '.join(COMMANDS)}", command=name)
    if name == "result":
        return runtime.result(runtime.receipt(str(fields.get("wake", ""))), 0)
    method = getattr(runtime, name)
    try:
        inspect.signature(method).bind(**fields)
    except TypeError as error:
        raise BadLine(f"{name}: {error}", command=name) from error
    return method(**fields)


def failure(error: Exception) -> dict[str, Any]:
    """An error as a line: its type, what it says, and its fields."""
    fields = error.fields if isinstance(error, RewakeError) else {}
    return {**plain(fields), "error": type(error).__name__, "message": str(error)}


def plain(value: Any) -> Any:
    """An answer as JSON has it; what JSON can not say, as Python shows it."""
    return msgspec.to_builtins(value, enc_hook=repr, str_keys=True)


def write(line: dict[str, Any]) -> None:
    click.echo(json(line))
