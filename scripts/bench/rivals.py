"""The peers: what people would use instead, each a script of its own in an environment that uv makes for it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from rewake.scripts.bench.measuring import Figure, folder, side_by_side

SCRIPTS = Path(__file__).parent / "peers"


class Peer(Struct, frozen=True):
    """A script, what it needs, and for which history and how many turns it is run."""

    name: str
    script: str
    needs: tuple[str, ...]
    history: int
    turns: int
    reach: float | None = None


PEERS = (
    Peer("langgraph", "langgraph_turns.py", ("langgraph", "langgraph-checkpoint-sqlite"), 10, 30, 8),
    Peer("langgraph", "langgraph_turns.py", ("langgraph", "langgraph-checkpoint-sqlite"), 1_000, 10, 40),
    Peer("dbos", "dbos_turns.py", ("dbos",), 10, 60),
    Peer("eventsourcing", "eventsourcing_turns.py", ("eventsourcing",), 10, 200),
)


class Unavailable(Exception):
    """This peer can not be run here."""


def run(peer: Peer) -> float:
    """Turns per second of a peer."""
    uv = shutil.which("uv")
    if uv is None:
        raise Unavailable("uv is not installed")
    needs = [word for need in peer.needs for word in ("--with", need)]
    with folder() as place:
        arguments = [place, str(peer.history), str(peer.turns)]
        line = [uv, "run", "-q", "--no-project", *needs, "python", str(SCRIPTS / peer.script), *arguments]
        ran = subprocess.run(line, capture_output=True, text=True, timeout=600, env=os.environ, check=False)
    if ran.returncode:
        raise Unavailable((ran.stderr.strip().splitlines() or ["it failed"])[-1])
    return float(ran.stdout.strip().splitlines()[-1])


def beside(ours: Callable[[int, int], float], repeats: int, told: Callable[[str], None]) -> list[Figure]:
    """Our turns per second over each peer's, in turns with it; `ours` is told the history and how many turns."""
    figures: list[Figure] = []
    for peer in PEERS:
        what = f"turns/s over {peer.name}, {peer.history:,} messages"
        told(what)
        try:
            pair = side_by_side(lambda peer=peer: ours(peer.history, 100), lambda peer=peer: run(peer), repeats)
        except (Unavailable, subprocess.TimeoutExpired) as error:
            told(f"{peer.name} is left out: {error}")
            continue
        rates = f"{pair.first:,.0f} against {pair.second:,.1f} turns/s"
        figures.append(Figure(what, pair.ratio, "×", peer.reach, "at_least", rates))
    return figures
