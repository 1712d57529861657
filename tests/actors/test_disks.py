"""Disks that fail or are full: the runtime stops with an error that says so, acts on nothing that is not durable, and goes on
from what is when it is started again; of a file that could not be made whole nothing is left.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from rewake.actors import Runtime
from rewake.actors.providers import ScriptedProvider
from rewake.events import LogFailed, LogFull, OutputRefused, Snapshot, backup, open_log
from rewake.scripts.cli import main
from tests.actors.processes import answered, ask, child, fill, in_order, line, small_disk
from tests.actors.threads import agents, said

pytestmark = pytest.mark.usefixtures("nothing_left")

SOURCE = Path(__file__).with_name("failing.c")


# -- failing


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that makes a disk fail."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler or not sys.platform.startswith("linux"):
        pytest.skip("a failing disk needs a C compiler, and Linux")
    made = tmp_path_factory.mktemp("failing") / "failing.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(made), str(SOURCE), "-ldl"], check=True)
    return made


@pytest.fixture
def disk(failing: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of a process whose log is on such a disk."""
    place, mark = tmp_path / "disk", tmp_path / "mark"
    place.mkdir()
    return {**os.environ, "LD_PRELOAD": str(failing), "FAILING_PATH": str(place), "FAILING_MARK": str(mark)}


@pytest.mark.scenario("L-06")
@pytest.mark.parametrize(("fault", "end"), [("sync", "killed"), ("sync-once", "stopped"), ("write", "stopped")])
def test_a_commit_that_the_disk_refuses_stops_the_runtime(disk: dict[str, str], tmp_path: Path, fault: str, end: str):
    """Also where the next one would go well: what a failed sync has lost, the one after it does not bring back.

    Nothing is asked of a provider for what was not committed. After a kill nobody knows of the one commit that failed.
    """
    path, mark, stderr = tmp_path / "disk" / "log.db", tmp_path / f"mark.{fault}", tmp_path / "stderr"
    with stderr.open("w") as errors, child(str(path), "serve", "mute", env=disk, stderr=errors) as running:
        assert line(running) == "runs"
        kept = [ask(running, f"push {number}") for number in range(3)]
        while "called" not in stderr.read_text() or ask(running, "read") != ask(running, "read"):
            pass
        head = int(ask(running, "read"))
        mark.touch()
        first = ask(running, "push lost")
        assert first.startswith(f"LogFailed {path}: "), first
        assert ask(running, "push more") == first, "it goes on after that"
        assert int(ask(running, "read")) == head
        mark.unlink(missing_ok=True)
        assert ask(running, "push late") == first
        if end == "stopped":
            assert ask(running, "stop") == "stopped"
        running.kill()
        running.wait(20)
        assert stderr.read_text().count("called ") == 1
    with Runtime(path, provider=(provider := ScriptedProvider()), agents=agents()) as rt:
        assert rt.run_until_idle(20).idle
        assert said(rt.log) in (["0", "1", "2"], ["0", "1", "2", "lost"][: 3 + (end == "killed")])
        done = answered(rt.log)
        assert set(kept) <= set(done)
        assert len(done) == len(set(done)) == len(said(rt.log))
        assert len(provider.requests) == 2
        in_order(rt.log)


@pytest.mark.scenario("L-06")
def test_a_disk_that_fails_at_the_start_starts_nothing(disk: dict[str, str], tmp_path: Path):
    path, stderr = tmp_path / "disk" / "log.db", tmp_path / "stderr"
    with Runtime(path, provider=ScriptedProvider(), agents=agents()) as rt:
        kept = rt.push("ada", "kept", wake=False)
    (tmp_path / "mark.sync").touch()
    with stderr.open("w") as errors, child(str(path), "serve", "echo", env=disk, stderr=errors) as running:
        assert line(running).startswith(f"LogFailed {path}")
        assert running.wait(20) == 0
    assert "called" not in stderr.read_text()
    with closing(open_log(path, readonly=True)) as log:
        in_order(log)
        assert [recorded.seq for recorded in log.read(kinds=["message_added"])] == [kept.seq]


# -- full


@contextmanager
def full(tmp_path: Path) -> Iterator[Path]:
    """A disk with room for some pages."""
    with small_disk(tmp_path / "full") as place:
        fill(place, 5)
        yield place


@contextmanager
def limited(tmp_path: Path) -> Iterator[Path]:
    """No file may be larger than ten pages, which a reader of a log needs: for whoever may not mount a disk."""
    resource = pytest.importorskip("resource")
    place, before = tmp_path / "limited", resource.getrlimit(resource.RLIMIT_FSIZE)
    place.mkdir()
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, before[1]))
    try:
        yield place
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


Narrow = Callable[[Path], AbstractContextManager[Path]]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    with Runtime(tmp_path / "log.db", provider=ScriptedProvider(), agents=agents()) as rt:
        for number in range(20):
            rt.push("ada", f"{number} " + "word " * 200)
        assert rt.run_until_idle(20).idle
    return tmp_path / "log.db"


@pytest.mark.parametrize("narrow", [full, limited])
def test_what_does_not_fit_is_not_there(log: Path, tmp_path: Path, narrow: Narrow):
    """One line on stderr that names the file, exit code 1, nothing left beside it; the log is as it was."""
    lines, before = tmp_path / "a.jsonl", log.read_bytes()
    assert CliRunner().invoke(main, ["export", str(log), str(lines)]).exit_code == 0
    with narrow(tmp_path) as place:
        there, out = set(place.iterdir()), place / "out"
        for command in (["export", log, out], ["backup", log, out], ["tables", log, out], ["import", out, lines]):
            result = CliRunner().invoke(main, [str(one) for one in command], catch_exceptions=False)
            assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1), (command, result.stderr)
            assert f"{out}: " in result.stderr
            assert set(place.iterdir()) == there, command
        with pytest.raises(LogFailed if narrow is full else (LogFailed, OutputRefused)):
            backup(log, out)
        assert set(place.iterdir()) == there
    assert log.read_bytes() == before


@pytest.mark.parametrize("command", ["export", "tail", "verify"])
def test_an_output_that_is_full_is_an_error_in_one_line(log: Path, command: str):
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    with open("/dev/full", "wb") as out:
        run = [sys.executable, "-m", "rewake.scripts.cli", command, str(log)]
        ran = subprocess.run(run, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    assert (ran.returncode, len(ran.stderr.splitlines())) == (1, 1), ran.stderr


@pytest.mark.scenario("L-06")
@pytest.mark.parametrize("narrow", [full, limited])
def test_a_start_without_room_starts_nothing(log: Path, tmp_path: Path, narrow: Narrow):
    """Neither on a log that is there nor on a new one."""
    with narrow(tmp_path) as place, pytest.raises(LogFailed):
        Runtime(place / "new.db", provider=ScriptedProvider(), agents=agents()).__enter__()
    with small_disk(tmp_path / "disk") as place:
        shutil.copy(log, place)
        fill(place, 1)
        with pytest.raises(LogFull):
            Runtime(place / "log.db", provider=ScriptedProvider(), agents=agents()).__enter__()
        (place / "ballast").unlink()
        with Runtime(place / "log.db", provider=ScriptedProvider(), agents=agents()) as rt:
            assert rt.result(rt.push("ada", "after"), 20).text == "echo: after"
            in_order(rt.log)


@pytest.mark.scenario("L-06")
def test_a_snapshot_without_room_is_left_out(tmp_path: Path):
    """The log goes on; at an orderly stop as well."""
    with small_disk(tmp_path / "disk") as place:
        with Runtime(place / "log.db", provider=ScriptedProvider(), agents=agents()) as rt:
            receipt = rt.push("ada", "before")
            assert rt.run_until_idle(20).idle
            rt.journal.save(Snapshot("agent/ada", 1, 0, "code", bytes(2**21)))
            after = rt.push("ada", "after")
            assert rt.result(after, 20).text == "echo: after"
            in_order(rt.log)
            assert rt.log.snapshots("agent/ada") == []
            fill(place, 0)
        (place / "ballast").unlink()
        with Runtime(place / "log.db", provider=ScriptedProvider(), agents=agents()) as rt:
            assert {rt.result(one, 20).state for one in (receipt, after)} == {"completed"}
            in_order(rt.log)
