"""Damaged files: some bytes of a real log's file are flipped, a page is zeroed, the end is cut; and what came of it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec import Struct

from rewake.actors import AgentConfig, Runtime
from rewake.actors.providers import ScriptedProvider, reply
from rewake.actors.simulation import Simulation
from rewake.actors.snapshots import digest
from rewake.events import Row, open_log
from rewake.projections import verify
from rewake.projections.verifying import Verification

PAGE = 4_096
AGENTS = [AgentConfig(name=name, model="m") for name in ("ada", "bob")]
ENDS = ("", "-wal", "-head")


class Whole(Struct):
    """A log whose process was killed: its files, what they say, and what a start makes of them."""

    path: Path
    rows: list[Row]
    started: Any


class Found(Struct, frozen=True):
    """What was found of damage: by `verify`, and by a start (an error, or what it made of the log)."""

    verified: Verification | Exception
    started: Any
    rows: list[Row] | None


def answers() -> ScriptedProvider:
    return ScriptedProvider(lambda request: reply(f"answer {len(request.messages)} " + "word " * 40))


def lived(folder: Path, *, snapshots: bool, wal: bool) -> Whole:
    """Two lives of a real runtime; the second is copied while it runs, as a kill would leave it."""
    path, kept = folder / "live.db", folder / "whole.db"
    for turns in (6, 3):
        with Runtime(path, provider=answers(), agents=AGENTS) as rt:
            for turn in range(turns):
                for one in AGENTS:
                    rt.result(rt.push(one.name, f"question {turn} " + "more " * 60), 20)
            rt.push("ada", "not to be answered", wake=False)
            if turns == 3 and not snapshots:
                rt.log.drop_snapshots()
            if turns == 3:
                copied(path, kept)
    if not wal:
        with closing(open_log(kept)) as log:
            log.open_writer()
    with closing(open_log(kept, readonly=True)) as log:
        rows = list(log.raw())
    whole = Whole(kept, rows, None)
    again = copied(kept, folder / "again.db")
    whole.started = started(again, len(rows))
    return whole


def copied(path: Path, to: Path) -> Path:
    for end in (*ENDS, "-shm", ".lock"):
        Path(f"{to}{end}").unlink(missing_ok=True)
    for end in ENDS:
        if Path(f"{path}{end}").exists():
            shutil.copy(f"{path}{end}", f"{to}{end}")
    Path(f"{to}.lock").touch()
    return to


def started(path: Path, head: int) -> Any:
    """A start in virtual time: every actor's state, and all that is recorded behind the head."""
    simulation = Simulation(agents=AGENTS, provider=answers(), log=str(path))
    try:
        simulation.run()
        states = {stream: digest(cell.incarnation.state) for stream, cell in simulation.scheduler.cells.items()}
        return states, [tuple(row)[:9] for row in simulation.log.raw(head)]
    finally:
        simulation.crash()


def flip(chance: random.Random, data: bytearray) -> str:
    count = chance.choice((1, 1, 1, 2, 8, 64))
    places = [chance.randrange(len(data)) for _ in range(count)]
    for place in places:
        data[place] ^= 1 << chance.randrange(8)
    return f"flip {places[:3]}"


def burst(chance: random.Random, data: bytearray) -> str:
    start, length = chance.randrange(len(data)), chance.choice((4, 16, 100))
    data[start : start + length] = chance.randbytes(len(data[start : start + length]))
    return f"burst {start}+{length}"


def blank(chance: random.Random, data: bytearray) -> str:
    page = chance.randrange(-(-len(data) // PAGE))
    data[page * PAGE : (page + 1) * PAGE] = bytes(len(data[page * PAGE : (page + 1) * PAGE]))
    return f"blank page {page}"


def cut(chance: random.Random, data: bytearray) -> str:
    kept = chance.randrange(len(data))
    if chance.random() < 0.5:
        kept = kept // PAGE * PAGE
    del data[kept:]
    return f"cut to {kept}"


HOW: tuple[Callable[[random.Random, bytearray], str], ...] = (flip, flip, flip, burst, blank, cut)


def damaged(whole: Whole, to: Path, seed: int) -> str:
    """A damaged copy; what was done to it."""
    chance = random.Random(seed)
    copied(whole.path, to)
    ends = [end for end in ("", "-wal") if (file := Path(f"{to}{end}")).exists() and file.stat().st_size]
    end = chance.choice(ends)
    data = bytearray(Path(f"{to}{end}").read_bytes())
    said = chance.choice(HOW)(chance, data)
    Path(f"{to}{end}").write_bytes(data)
    return f"{end or 'file'}: {said}"


def found(path: Path, head: int) -> Found:
    """What `verify` and a start say of a damaged log."""
    rows: list[Row] | None = None
    copy = copied(path, path.with_name("verified.db"))
    try:
        with closing(open_log(copy, readonly=True)) as log:
            verified: Verification | Exception = verify(log)
            if verified.ok:
                rows = list(log.raw())
    except Exception as error:
        verified = error
    try:
        began = started(path, head)
    except Exception as error:
        began = error
    return Found(verified, began, rows)
