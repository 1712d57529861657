"""What every measurement shares: callers on threads, repeats side by side, medians, and a figure beside its target."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from statistics import median
from typing import Literal

from msgspec import Struct

Sense = Literal["at_most", "at_least"]


class Figure(Struct, frozen=True):
    """One measured number: what it is, its unit, and what is to be reached (None: it is only told)."""

    what: str
    value: float
    unit: str
    reach: float | None = None
    sense: Sense = "at_most"
    beside: str = ""

    @property
    def reached(self) -> bool | None:
        if self.reach is None:
            return None
        return self.value <= self.reach if self.sense == "at_most" else self.value >= self.reach


class Rate(Struct, frozen=True):
    """Turns per second, and the seconds of CPU that each took of this process."""

    turns: float
    cpu: float


class Pair(Struct, frozen=True):
    """Two things measured in turns, A B A B, so that a busy machine is busy for both: the repeat of the median ratio."""

    first: float
    second: float
    ratio: float


def side_by_side(first: Callable[[], float], second: Callable[[], float], repeats: int) -> Pair:
    """Of all repeats the one whose first / second is the median: what it is of two is the lower."""
    taken = [(first(), second()) for _ in range(repeats)]
    pairs = sorted((Pair(one, other, one / other) for one, other in taken), key=lambda pair: pair.ratio)
    return pairs[(repeats - 1) // 2]


def driven(agents: int, each: int, turn: Callable[[int], None]) -> Rate:
    """The rate at which a thread of its own for each agent drives it, and waits for every answer."""
    ready = threading.Barrier(agents + 1)

    def caller(agent: int) -> None:
        ready.wait()
        for _ in range(each):
            turn(agent)

    threads = [threading.Thread(target=caller, args=(agent,), daemon=True) for agent in range(agents)]
    for thread in threads:
        thread.start()
    ready.wait()
    begun, cpu = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.join()
    turns = max(1, agents * each)
    return Rate(turns / (time.perf_counter() - begun), (time.process_time() - cpu) / turns)


def seconds(work: Callable[[], object], repeats: int = 1) -> float:
    """The median CPU time of some work in one thread: a busy machine makes it no longer."""
    taken: list[float] = []
    for _ in range(repeats):
        begun = time.process_time()
        work()
        taken.append(time.process_time() - begun)
    return median(taken)


@contextmanager
def folder() -> Generator[str]:
    """A directory for the files of one measurement, under the working directory: `/tmp` may be no disk at all."""
    with tempfile.TemporaryDirectory(prefix="rewake-bench-", dir=os.environ.get("REWAKE_BENCH_DIR", ".")) as path:
        yield path


def size(path: str) -> int:
    """The bytes of a log's file with its write-ahead log."""
    return sum(os.path.getsize(path + end) for end in ("", "-wal") if os.path.exists(path + end))
