"""`rewake demo`: a turn is held, its process is killed, and the turn is answered all the same."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from rewake.events import CompressionRequested, Held, Log, Recorded, Wake, open_log
from rewake.projections.verifying import verify
from rewake.scripts.accounts import owed_in, timeline
from rewake.scripts.errors import Failed
from rewake.scripts.logs import reading
from rewake.scripts.story import Cut, faults, sentence
from rewake.scripts.tables import as_table, screen
from rewake.scripts.tailing import said

PATIENCE = 14.0
"""Seconds after which the story did not come out."""
POLL = 0.03


@click.command()
@click.option("--keep", type=click.Path(path_type=Path, dir_okay=False), help="Keep the log at this path.")
def demo(keep: Path | None) -> None:
    """Watch an agent's turn outlive its process: under 15 seconds, offline, without a key.

    Exit code 1 when the story does not come out; the log itself is asked.
    """
    if keep is not None and keep.exists():
        raise click.UsageError(f"{keep} is there already")
    with tempfile.TemporaryDirectory(prefix="rewake-") as folder:
        path = keep or Path(folder) / "demo.db"
        open_log(path).close()
        with reading(str(path)) as log:
            told(Teller(), log, path)
    if keep is not None:
        screen().print(f"\nThe log is kept: rewake tail {keep}", style="dim", soft_wrap=True)


class Teller:
    """Says what happens, when it happens: styled on a terminal, plain lines otherwise."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.seen = 0
        self.history: list[Recorded] = []

    def chapter(self, text: str) -> None:
        screen().print(f"\n{text}", style="bold", markup=False, soft_wrap=True)

    def line(self, text: str) -> None:
        screen().print(f"{time.monotonic() - self.began:6.2f} s  {text}", markup=False, soft_wrap=True)

    def follow(self, log: Log, child: subprocess.Popen[str], killing: bool) -> Held:
        """Tell the events as they come: to where a second wake has joined a hold, or to the end of the process."""
        while True:
            ended = child.poll() is not None
            for recorded in log.read(self.seen):
                self.seen = recorded.seq
                self.history.append(recorded)
                if text := sentence(recorded, self.history):
                    self.line(text)
            if killing and (held := is_held_twice(self.history)):
                return held
            if ended and not killing and child.returncode == 0:
                return next(one.event for one in self.history if isinstance(one.event, Held))
            if ended:
                raise Failed(f"process {child.pid} ended by itself: {last_line(child)}")
            if time.monotonic() - self.began > PATIENCE:
                raise Failed(f"the story did not come out within {PATIENCE:g} s")
            time.sleep(POLL)


def told(teller: Teller, log: Log, path: Path) -> None:
    """The story, as the log tells it to a reader in another process than the one that writes."""
    teller.chapter("An agent has a history. Then its budget is cut, and two people ask it something.")
    with process(path, "first") as child:
        held = teller.follow(log, child, killing=True)
        child.send_signal(signal.SIGKILL)
        child.wait()
    cut = Cut(log.head(), held)
    teller.chapter(f"Process {child.pid} is killed (SIGKILL). Nothing runs; what the log says is owed:")
    owed(log)
    teller.chapter("Another process starts on the same log. Nobody wakes the agent again.")
    with process(path, "second") as child:
        teller.follow(log, child, killing=False)
    teller.chapter(f"The log's own account of {held.turn}:")
    as_table(
        [{"seq": one.seq, "at": one.at, "kind": one.kind, "what": said(one)} for one in timeline(log, held.turn)], None
    )
    teller.chapter("What is owed now:")
    owed(log)
    found = verify(log)
    teller.line(f"verify: {'the log is whole' if found.ok else found.why}, {found.last_good_seq} events")
    if wrong := faults(log, cut):
        raise Failed(f"the story did not come out: {'; '.join(wrong)}")
    teller.chapter("Both wakes were answered by one turn, begun before the kill and ended after it.")


def is_held_twice(history: list[Recorded]) -> Held | None:
    """The hold, once both wakes wait in it and a summary is on its way."""
    held = next((one for one in history if isinstance(one.event, Held)), None)
    asked = any(isinstance(one.event, CompressionRequested) for one in history)
    if held is None or not isinstance(held.event, Held) or not asked:
        return None
    joined = any(isinstance(one.event, Wake) and one.seq > held.seq for one in history)
    return held.event if joined else None


@contextmanager
def process(path: Path, life: str) -> Generator[subprocess.Popen[str]]:
    """A process that runs the agent; it is gone at the end of the block."""
    command = [sys.executable, "-m", "rewake.scripts.demo_child", str(path), life]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def last_line(child: subprocess.Popen[str]) -> str:
    lines = ["", *(child.stderr or ())]
    return lines[-1].strip() or f"exit code {child.returncode}"


def owed(log: Log) -> None:
    rows = [msgspec.structs.asdict(one) for one in owed_in(log, ["ada"])]
    if rows:
        as_table(rows, ("wake", "state", "why", "since", "next_at"))
    else:
        screen().print("nothing")
