"""Following a log from another process, while it is written."""

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rewake.actors import AgentConfig, Runtime
from rewake.actors.providers import ScriptedProvider

COMMAND = [sys.executable, "-m", "rewake.scripts.cli"]


@pytest.mark.timeout(60)
def test_tail_follows_a_writer(tmp_path: Path):
    """Every event, in order, none twice, until it is interrupted: then it ends well."""
    path = tmp_path / "log.db"
    agents = [AgentConfig(name="ada", model="m")]
    with Runtime(path, provider=ScriptedProvider(), agents=agents) as runtime:
        runtime.result(runtime.push("ada", "before"), 10)
        with subprocess.Popen([*COMMAND, "tail", "-f", path], stdout=subprocess.PIPE, text=True) as tail:
            guard = threading.Timer(30, tail.kill)
            guard.start()
            assert tail.stdout is not None
            first = [json.loads(next(tail.stdout)) for _ in range(runtime.log.head())]
            for number in range(20):
                runtime.result(runtime.push("ada", f"after {number}"), 10)
            rest = [json.loads(next(tail.stdout)) for _ in range(runtime.log.head() - len(first))]
            tail.send_signal(signal.SIGINT)
            assert tail.wait(10) == 0
            guard.cancel()
        assert [one["seq"] for one in first + rest] == list(range(1, runtime.log.head() + 1))


def test_a_reader_that_leaves_early_is_no_traceback(held: Path):
    piped = f"{sys.executable} -m rewake.scripts.cli tail {held} | head -n 1"
    done = subprocess.run(piped, shell=True, capture_output=True, text=True, timeout=30, check=False)
    assert json.loads(done.stdout)["seq"] == 1
    assert "Traceback" not in done.stderr
