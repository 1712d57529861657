"""What was acknowledged is on disk and is owed its turn: under load, when the process is killed, when the disk is full."""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rewake.actors import Runtime, RuntimeOptions
from rewake.actors.providers import ScriptedProvider
from rewake.events import LogFailed, LogFull, LogInUse, MemoryLog, open_log
from tests.actors.child import NAMES, config, results
from tests.actors.processes import answered, child, fill, in_order, line, small_disk
from tests.actors.threads import Controlled, agents, kinds, said

pytestmark = pytest.mark.usefixtures("nothing_left")

# -- under load


@pytest.mark.scenario("L-02")
def test_eight_threads_append_while_others_read(tmp_path: Path):
    """One reader holds a snapshot all the time, another polls: what each sees is a prefix of the log."""
    path = tmp_path / "log.db"
    wrong: list[BaseException] = []
    done = threading.Event()
    polled: list[int] = []

    def pushing(rt: Runtime, who: int) -> None:
        try:
            for number in range(500):
                rt.push(NAMES[who % 3], f"{who} {number}", wake=False)
        except BaseException as error:
            wrong.append(error)

    def polling() -> None:
        try:
            with closing(sqlite3.connect(path, timeout=0)) as conn:
                while not done.wait(0.005):
                    last, count = conn.execute("SELECT max(seq), count(*) FROM events").fetchone()
                    assert last == count
                    polled.append(count)
        except BaseException as error:
            wrong.append(error)

    with Runtime(path, provider=ScriptedProvider(), agents=agents(*NAMES)) as rt:
        first = rt.log.head()
        with closing(sqlite3.connect(path, isolation_level=None)) as holder:
            holder.execute("BEGIN")
            snapshot = holder.execute("SELECT seq, kind FROM events ORDER BY seq").fetchall()
            threads = [threading.Thread(target=pushing, args=(rt, who)) for who in range(8)]
            reader = threading.Thread(target=polling)
            for thread in (reader, *threads):
                thread.start()
            for thread in threads:
                thread.join(120)
            done.set()
            reader.join(20)
            assert holder.execute("SELECT seq, kind FROM events ORDER BY seq").fetchall() == snapshot
        assert not wrong
        assert len(snapshot) == first
        assert polled == sorted(polled)
        assert rt.log.head() == first + 4_000
        in_order(rt.log)
        texts = said(rt.log)
        for who in range(8):
            mine = [text for text in texts if text.startswith(f"{who} ")]
            assert mine == [f"{who} {number}" for number in range(500)]


@pytest.mark.scenario("L-21")
def test_a_lock_that_somebody_else_holds_is_waited_out(tmp_path: Path):
    path = tmp_path / "log.db"
    with Runtime(path, provider=ScriptedProvider(), agents=agents()) as rt:
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        begun = threading.Barrier(21)
        taken: list[int] = []

        def pushing(number: int) -> None:
            begun.wait(20)
            taken.append(rt.push("ada", f"{number}", wake=False).seq)

        threads = [threading.Thread(target=pushing, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        begun.wait(20)
        held = threading.Timer(1.0, other.execute, ["ROLLBACK"])
        held.start()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        held.join()
        other.close()
        assert len(set(taken)) == 20
        assert sorted(said(rt.log)) == sorted(str(number) for number in range(20))


@pytest.mark.scenario("L-21")
def test_a_lock_that_is_held_too_long_fails_the_log(tmp_path: Path):
    path = tmp_path / "log.db"
    options = RuntimeOptions(busy_timeout=0.2)
    with Runtime(path, provider=ScriptedProvider(), agents=agents(), options=options) as rt:
        receipt = rt.push("ada", "before", wake=False)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(LogFailed, match="busy"):
                rt.push("ada", "lost")
            other.execute("ROLLBACK")
    with Runtime(path, provider=ScriptedProvider(), agents=agents()) as rt:
        assert receipt.seq == 3
        assert said(rt.log) == ["before"]
        assert rt.result(rt.push("ada", "after"), 20).text == "echo: after"


# -- killed


def killed(path: Path, rounds: int, seed: int) -> None:
    """Kill a busy program at some moment, so many times on one log; each time all that it was told is there."""
    chance, told = random.Random(seed), dict[str, tuple[int, str]]()
    for number in range(rounds):
        with child(str(path), str(seed * 1_000 + number)) as running:
            for _ in range(chance.randint(1, 120)):
                seq, wake, text = line(running).split()
                told[text] = int(seq), wake
            running.kill()
            assert running.stdout
            for late in running.stdout.read().splitlines():
                if len(parts := late.split()) == 3:
                    told[parts[2]] = int(parts[0]), parts[1]
        with closing(open_log(str(path), readonly=True)) as log:
            in_order(log)
            texts = said(log)
            assert len(texts) == len(set(texts))
            assert told.keys() <= set(texts)
    with Runtime(path, provider=ScriptedProvider(), agents=agents(*NAMES)) as rt:
        assert rt.run_until_idle(120).idle
        assert rt.owed() == []
        in_order(rt.log)
        done = answered(rt.log)
        assert len(done) == len(set(done)), "a wake was answered twice"
        wakes = {wake for _, wake in told.values() if wake != "-"}
        assert wakes <= set(done)
        assert {rt.result(rt.receipt(wake), 0).state for wake in list(wakes)[:20]} == {"completed"}


@pytest.mark.scenario("L-05")
def test_a_killed_process_loses_nothing_that_it_acknowledged(tmp_path: Path):
    killed(tmp_path / "log.db", 6, seed=1)


@pytest.mark.soak
@pytest.mark.scenario("L-05")
def test_a_process_killed_fifty_times_loses_nothing_that_it_acknowledged(tmp_path: Path):
    for seed in range(2, 7):
        killed(tmp_path / f"{seed}.db", 10, seed)


def killed_at_any_stage(path: Path, rounds: int, seed: int) -> None:
    """Kill a program that starts, stops and copies its log, at some moment; what it has made is whole or not there."""
    chance, told = random.Random(seed), dict[str, str]()
    for number in range(rounds):
        with child(str(path), "stages", f"{seed}-{number}") as running:
            assert line(running) == "ready"
            killing = threading.Timer(chance.uniform(0, 1.0), running.kill)
            killing.start()
            assert running.stdout
            for late in running.stdout.read().splitlines():
                if len(parts := late.split()) == 2:
                    told[parts[1]] = parts[0]
            killing.join()
        if not path.exists() or not path.stat().st_size:  # killed before there was a log
            assert not told
            continue
        for made in [path, *path.parent.glob("*.backup"), *path.parent.glob("*.import")]:
            with closing(open_log(made, readonly=True)) as log:
                in_order(log)
        for made in path.parent.glob("*.tables"):
            with closing(sqlite3.connect(made)) as conn:
                assert conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)
                assert conn.execute("SELECT count(*) = max(seq) FROM events").fetchone() == (1,)
    with Runtime(path, provider=ScriptedProvider(), agents=agents()) as rt:
        assert rt.run_until_idle(60).idle
        assert told.keys() <= set(said(rt.log))
        done = answered(rt.log)
        assert len(done) == len(set(done))
        assert set(told.values()) <= set(done)
        in_order(rt.log)


@pytest.mark.scenario("L-05")
def test_a_process_killed_while_it_starts_stops_or_copies_loses_nothing(tmp_path: Path):
    killed_at_any_stage(tmp_path / "log.db", 2, seed=1)


@pytest.mark.soak
@pytest.mark.scenario("L-05")
def test_a_process_killed_while_it_starts_stops_or_copies_loses_nothing_many_times(tmp_path: Path):
    killed_at_any_stage(tmp_path / "log.db", 8, seed=2)


@pytest.mark.scenario("L-04")
def test_a_log_that_another_process_writes_is_in_use_until_that_is_killed(tmp_path: Path):
    path = tmp_path / "log.db"
    with child(str(path), "hold") as holder:
        wake = line(holder)
        begun = time.monotonic()
        with pytest.raises(LogInUse) as refused:
            Runtime(path, provider=ScriptedProvider(), agents=agents()).__enter__()
        assert time.monotonic() - begun < 1
        assert refused.value.pid == holder.pid
        holder.kill()
        holder.wait(20)
        with Runtime(path, provider=ScriptedProvider(), agents=agents()) as rt:
            assert rt.result(rt.receipt(wake), 20).text == "echo: held"


@pytest.mark.scenario("L-04")
def test_a_second_runtime_of_this_process_is_refused_like_another_process(tmp_path: Path):
    path, log = tmp_path / "log.db", MemoryLog()
    for where in (path, log):
        with Runtime(where, provider=ScriptedProvider(), agents=agents()) as rt:
            with pytest.raises(LogInUse) as refused:
                Runtime(where, provider=ScriptedProvider(), agents=agents("bob")).__enter__()
            assert refused.value.pid == os.getpid()
            assert rt.result(rt.push("ada", "hello"), 20).text == "echo: hello"


@pytest.mark.scenario("T-02")
def test_a_process_killed_in_its_tools(tmp_path: Path):
    """The idempotent one runs again; of the other nobody knows, and the model is told so."""
    path, marks = tmp_path / "log.db", tmp_path / "marks"
    with child(str(path), "tools", f"{marks}!") as running:
        wake = line(running)
        assert {line(running), line(running)} == {"again", "once"}
    with Runtime(path, provider=ScriptedProvider(results), agents=[config(str(marks))]) as rt:
        result = rt.result(rt.receipt(wake), 20)
        assert result.text == "again is done | interrupted: it may or may not have run"
        assert kinds(rt.log).count("tool_returned") == 2
    assert sorted(marks.read_text().split()) == ["again", "again", "once"]


# -- full


def by_pages(tmp_path: Path) -> Iterator[tuple[Path, Callable[[Runtime], None]]]:
    """SQLite itself refuses to grow the file: works wherever SQLite does."""

    def fill(rt: Runtime) -> None:
        conn: sqlite3.Connection = rt.log._conn  # pyright: ignore[reportAttributeAccessIssue]
        (pages,) = conn.execute("PRAGMA page_count").fetchone()
        conn.execute(f"PRAGMA max_page_count = {pages + 4}")

    yield tmp_path / "log.db", fill


def by_a_small_disk(tmp_path: Path) -> Iterator[tuple[Path, Callable[[Runtime], None]]]:
    """A file system of a megabyte, and a file on it that leaves no room; it is gone at the restart."""
    with small_disk(tmp_path / "disk") as disk:
        yield disk / "log.db", lambda rt: fill(disk)


@pytest.fixture(params=[by_pages, by_a_small_disk])
def filling(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, Callable[[Runtime], None]]]:
    """Where a log is, and what leaves no room for it."""
    yield from request.param(tmp_path)


@pytest.mark.scenario("L-06")
def test_a_full_disk_stops_the_runtime_and_loses_nothing(
    filling: tuple[Path, Callable[[Runtime], None]], controlled: Controlled
):
    path, fill = filling
    taken: list[Any] = []
    refused: list[str] = []
    with Runtime(path, provider=controlled, agents=agents(*NAMES)) as rt:

        def pushing() -> None:
            """Until there is no room."""
            for number in range(1_000):
                refused[:] = [f"{number} " + "x" * 2_000]
                taken.append(rt.push(NAMES[number % 3], refused[0]))

        taken += [rt.push(name, "before") for name in NAMES]
        controlled.arrived(3)
        fill(rt)
        with pytest.raises(LogFull):
            pushing()
        with pytest.raises(LogFull):
            rt.push("ada", "still full")
        head = rt.log.head()
        controlled.release()
    path.with_name("ballast").unlink(missing_ok=True)
    with closing(open_log(str(path), readonly=True)) as log:
        in_order(log)
        assert log.head() == head
        assert len(said(log)) == len(taken)
        assert refused[0] not in said(log)
    with Runtime(path, provider=ScriptedProvider(), agents=agents(*NAMES)) as rt:
        assert rt.run_until_idle(60).idle
        assert {rt.result(receipt, 0).state for receipt in taken} == {"completed"}
        in_order(rt.log)
