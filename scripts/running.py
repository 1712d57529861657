"""`rewake run`: agents from a file, JSON lines in on stdin, JSON lines out on stdout."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

import click

from rewake.actors import IdleReport, Runtime
from rewake.scripts.answering import Answers
from rewake.scripts.configs import House, configured
from rewake.scripts.errors import Failed
from rewake.scripts.lines import Lines

ENOUGH = 2
"""Signals that end the run at once."""


@click.command()
@click.argument("config", type=click.Path(), metavar="CONFIG.toml")
@click.option("--chat", metavar="AGENT", help="Talk to this agent in the terminal instead.")
@click.option(
    "--timeout", type=click.FloatRange(min=0), default=60.0, show_default=True, help="Seconds to wait at stdin's end."
)
def run(config: str, chat: str | None, timeout: float) -> None:
    """Run the agents of CONFIG.toml, which is the one process that writes their log.

    Each line of stdin is a JSON object: a push, {"agent": "ada", "content": "hello"}, also with channel, author,
    dedupe_key, addressed, wake; or a command, {"do": "owed"}, {"do": "configure", "agent": "ada", "max_tokens": 100}.
    Each is answered by a line: a push by its receipt at once, and by its result when its turn has ended. A line that can
    not be is answered by {"error": ..., "line": its number}, and the run goes on. A line's "id" comes back in its answers.
    At the end of stdin it waits until nothing runs.

    One SIGINT or SIGTERM stops in good order: what is owed stays owed. A second one exits at once.
    """
    house = configured(config)
    runtime = Runtime(house.log, provider=house.providers, agents=house.agents, options=house.options)
    if chat is not None:
        from rewake.scripts.chat import converse

        converse(runtime, chat)
        return
    report = asyncio.run(serve(runtime, house, timeout))
    if report is not None and not report.idle:
        raise Failed(f"not idle within {timeout:g} s: what is owed stays owed")


async def serve(runtime: Runtime, house: House, timeout: float) -> IdleReport | None:
    """Answer lines until stdin ends, then wait until idle; or until a signal, without a report of idleness."""
    stopping = asyncio.Event()
    catch(stopping)
    async with runtime as rt:
        answers = Answers(rt)
        taking = asyncio.ensure_future(take(answers, Lines(sys.stdin.fileno())))
        await either(taking, stopping)
        report = None
        if not stopping.is_set():
            waiting = asyncio.ensure_future(rt.aidle(timeout))
            await either(waiting, stopping)
            report = waiting.result() if waiting.done() else None
            await answers.settle(0.5)
        stopped = await rt.astop()
        answers.stopped(report, stopped)
    return report


async def take(answers: Answers, lines: Lines) -> None:
    number = 0
    while (line := await lines.next()) is not None:
        number += 1
        if line.strip():
            await answers.take(line, number)


async def either(work: asyncio.Future[Any], stopping: asyncio.Event) -> None:
    """Wait for the work, or for a signal; an error of the work is raised."""
    stopped = asyncio.ensure_future(stopping.wait())
    await asyncio.wait((work, stopped), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if work.done():
        work.result()


def catch(stopping: asyncio.Event) -> None:
    """The first SIGINT or SIGTERM asks for an orderly stop, the second exits."""
    seen: list[int] = []

    def caught(number: int) -> None:
        seen.append(number)
        if len(seen) >= ENOUGH:
            os._exit(128 + number)
        click.echo("rewake: stopping; once more to exit at once", err=True)
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, caught, number)
