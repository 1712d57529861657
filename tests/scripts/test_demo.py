"""The demo: a real process is killed in the middle of a hold, and the turn is answered by the next."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from rewake.events import HoldEnded, TurnStarted, open_log
from rewake.projections import verify

COMMAND = [sys.executable, "-m", "rewake.scripts.cli", "demo"]


@pytest.mark.timeout(60)
def test_the_demo_comes_out(tmp_path: Path):
    path, began = tmp_path / "demo.db", time.monotonic()
    done = subprocess.run([*COMMAND, "--keep", path], capture_output=True, text=True, timeout=40, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert time.monotonic() - began < 15
    assert "\x1b" not in done.stdout
    log = open_log(path, readonly=True)
    assert verify(log).ok
    again = [one.event for one in log.read(kinds=["turn_started"]) if isinstance(one.event, TurnStarted)][-1]
    assert (again.attempt, len(again.wakes)) == (2, 2)
    assert [one.event.why for one in log.read() if isinstance(one.event, HoldEnded)] == ["fit"]


def test_the_demo_writes_over_no_log(tmp_path: Path):
    path = tmp_path / "demo.db"
    path.touch()
    done = subprocess.run([*COMMAND, "--keep", path], capture_output=True, text=True, timeout=40, check=False)
    assert done.returncode == 2
    assert path.stat().st_size == 0
