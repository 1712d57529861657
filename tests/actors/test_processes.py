"""Processes that take a log over, from one that was paused, that drains, whose lock or whose file somebody took away."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from rewake.actors import Runtime, RuntimeOptions
from rewake.actors.providers import ScriptedProvider
from rewake.events import LogFailed, LogInUse, open_log
from tests.actors.processes import answered, ask, child, in_order, line, small_disk
from tests.actors.threads import agents, said

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.mark.scenario("L-15")
def test_a_paused_process_that_was_replaced_writes_nothing(tmp_path: Path):
    """It stops with an error that says so; what it leaves behind is the new one's."""
    path, lock = tmp_path / "log.db", tmp_path / "log.db.lock"
    with child(str(path), "serve", "mute") as old:
        assert line(old) == "runs"
        before = ask(old, "push before")
        os.kill(old.pid, signal.SIGSTOP)
        with pytest.raises(LogInUse):
            Runtime(path, provider=ScriptedProvider(), agents=agents()).__enter__()
        lock.unlink()
        with Runtime(path, provider=ScriptedProvider(), agents=agents()) as rt:
            assert rt.result(rt.receipt(before), 20).text == "echo: before"
            head = rt.log.head()
            os.kill(old.pid, signal.SIGCONT)
            assert ask(old, "push lost").startswith(f"Fenced {path}: epoch 2 has taken over from epoch 1")
            assert ask(old, "push again").startswith("Fenced")
            assert int(ask(old, "read")) == head, "what is durable stays readable"
            assert ask(old, "stop") == "stopped"
            assert old.wait(20) == 0
            assert rt.log.head() == head
            with pytest.raises(LogInUse):
                Runtime(path, provider=ScriptedProvider(), agents=agents()).__enter__()
            assert Path(f"{path}-head").exists()
            assert rt.result(rt.push("ada", "after"), 20).text == "echo: after"
    with closing(open_log(path, readonly=True)) as log:
        in_order(log)
        assert said(log) == ["before", "after"]


@pytest.mark.scenario("L-25")
def test_a_new_process_waits_for_the_old_one_and_answers_what_that_was_told_last(tmp_path: Path):
    path = tmp_path / "log.db"
    with child(str(path), "serve", "mute") as old:
        assert line(old) == "runs"
        begun = time.monotonic()
        with pytest.raises(LogInUse) as refused:
            Runtime(path, provider=ScriptedProvider(), agents=agents()).__enter__()
        assert time.monotonic() - begun < 1
        assert refused.value.pid == old.pid
        opened = threading.Event()
        wakes: list[str] = []
        options = RuntimeOptions(lock_timeout=10)

        def taking_over() -> None:
            with Runtime(path, provider=ScriptedProvider(), agents=agents(), options=options) as rt:
                opened.set()
                for wake in wakes:
                    assert rt.result(rt.receipt(wake), 20).state == "completed"
                assert rt.owed() == []
                assert sorted(answered(rt.log)) == sorted(wakes)

        waiting = threading.Thread(target=taking_over)
        waiting.start()
        wakes += [ask(old, f"push {number}") for number in range(5)]
        assert not opened.is_set()
        assert ask(old, "stop") == "stopped"
        waiting.join(30)
        assert opened.is_set()
    with closing(open_log(path, readonly=True)) as log:
        assert len(answered(log)) == len(wakes) == 5
        in_order(log)


@pytest.mark.scenario("L-15")
def test_of_two_writers_whose_lock_was_deleted_the_newer_writes(tmp_path: Path):
    """The lock is gone, the epoch is not."""
    path = tmp_path / "log.db"
    with child(str(path), "serve", "echo") as old:
        assert line(old) == "runs"
        Path(f"{path}.lock").unlink()
        with child(str(path), "serve", "echo") as new:
            assert line(new) == "runs"
            assert ask(old, "push lost").startswith("Fenced")
            assert ask(new, "push kept") == "ada/wake/3"
            assert ask(new, "stop") == "stopped"
    with closing(open_log(path, readonly=True)) as log:
        assert said(log) == ["kept"]


@pytest.mark.parametrize("how", ["deleted", "moved away", "replaced"])
def test_a_log_that_is_no_more_where_it_was_takes_nothing(tmp_path: Path, how: str):
    """SQLite would go on writing a file that nobody finds again."""
    path, other = tmp_path / "log.db", tmp_path / "other.db"
    with Runtime(other, provider=ScriptedProvider(), agents=agents()) as rt:
        rt.push("ada", "in the other", wake=False)
    with Runtime(path, provider=ScriptedProvider(), agents=agents()) as rt:
        kept = rt.push("ada", "kept", wake=False)
        head = rt.log.head()
        if how == "deleted":
            path.unlink()
        else:
            os.replace(*((path, tmp_path / "away.db") if how == "moved away" else (other, path)))
        with pytest.raises(LogFailed, match="was deleted or replaced while it was written"):
            rt.push("ada", "lost")
        with pytest.raises(LogFailed, match="was deleted or replaced"):
            rt.push("ada", "still lost")
        assert rt.log.head() >= head
    match how:
        case "moved away":
            with Runtime(tmp_path / "away.db", provider=ScriptedProvider(), agents=agents()) as rt:
                assert said(rt.log)[:1] == ["kept"]
                assert next(rt.log.read(kept.seq - 1)).seq == kept.seq
        case "replaced":
            with Runtime(path, provider=ScriptedProvider(), agents=agents()) as rt:
                assert said(rt.log) == ["in the other"]
                in_order(rt.log)
        case _:
            assert not path.exists()


def test_a_replaced_log_reads_nothing_of_the_other_one(tmp_path: Path):
    path, other = tmp_path / "log.db", tmp_path / "other.db"
    with closing(open_log(other)) as log:
        log.open_writer()
    with closing(open_log(path)) as log:
        log.open_writer()
        shutil.copy(other, tmp_path / "copy.db")
        os.replace(tmp_path / "copy.db", path)
        with pytest.raises(LogFailed, match="deleted or replaced"):
            log.head()


def test_a_log_on_a_disk_that_is_read_only_does_not_start(tmp_path: Path):
    with small_disk(tmp_path / "disk") as disk:
        path = disk / "log.db"
        with Runtime(path, provider=ScriptedProvider(), agents=agents()) as rt:
            rt.push("ada", "kept", wake=False)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        for where in (path, disk / "new.db"):
            with pytest.raises(LogFailed, match="no permission to write") as refused:
                Runtime(where, provider=ScriptedProvider(), agents=agents()).__enter__()
            assert "\n" not in str(refused.value)
        with closing(open_log(path, readonly=True)) as log:
            assert said(log) == ["kept"]
