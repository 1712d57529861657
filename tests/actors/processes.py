"""The program of `child.py` as a process, small disks, and what a log says of a run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from rewake.events import TurnCompleted, TurnStarted
from rewake.projections import verify

CHILD = Path(__file__).with_name("child.py")


@contextmanager
def child(*arguments: str, **how: Any) -> Iterator[subprocess.Popen[str]]:
    """The program, killed at the end at the latest."""
    command = [sys.executable, str(CHILD), *arguments]
    running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **how)
    try:
        yield running
    finally:
        running.kill()
        running.wait(20)
        assert running.stdout
        assert running.stdin
        running.stdout.close()
        with suppress(BrokenPipeError):
            running.stdin.close()


def line(running: subprocess.Popen[str]) -> str:
    assert running.stdout
    said = running.stdout.readline()
    assert said.endswith("\n"), "the program ended"
    return said.strip()


def ask(running: subprocess.Popen[str], what: str) -> str:
    """What the program answers to a line."""
    assert running.stdin
    running.stdin.write(f"{what}\n")
    running.stdin.flush()
    return line(running)


def in_order(log: Any) -> None:
    """Gapless, whole, every version of every stream once."""
    assert [recorded.seq for recorded in log.read()] == list(range(1, log.head() + 1))
    assert verify(log).ok, verify(log)


def answered(log: Any) -> list[str]:
    """The wakes of turns that completed, each as often as it was answered."""
    turns: dict[str, tuple[str, ...]] = {}
    done: list[str] = []
    for recorded in log.read(kinds=["turn_started", "turn_completed"]):
        match recorded.event:
            case TurnStarted(wakes=wakes, turn=turn):
                turns[turn] = wakes
            case TurnCompleted(turn=turn):
                done += turns[turn]
            case _:
                pass
    return done


@contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    """A file system of a megabyte, where root may mount one."""
    mount, umount = shutil.which("mount"), shutil.which("umount")
    place.mkdir()
    if not (mount and umount):
        pytest.skip("no mount")
    command = [mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        yield place
    finally:
        subprocess.run([umount, "-l", str(place)], check=False)


def fill(place: Path, left: int = 8) -> None:
    """Leave so many blocks."""
    status = os.statvfs(place)
    (place / "ballast").write_bytes(b"x" * (max(0, status.f_bavail - left) * status.f_frsize))
