"""A walk through a log: forward, back and to what one looks for; what it shows is what the log says by itself."""

from __future__ import annotations

import os
import random
import re
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rewake.actors import snapshots
from rewake.events import Log, open_log
from rewake.projections.fold import fold
from rewake.scripts import changes, stepping, walking
from rewake.scripts.accounts import drain_of, state_of
from rewake.scripts.cli import main
from rewake.scripts.walking import STOPS, Walk
from tests.actors.worlds import lived

Rewake = Callable[..., Result]
EVENT = re.compile(r"(\d+)  \S+  (\S+)@\d+  (\S+)")


@pytest.fixture
def walk(held: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[int, str]]]:
    """The seqs and kinds of the events that these keys lead to, the first one's among them."""
    monkeypatch.setattr(stepping, "attended", lambda: True)

    def walked(keys: str, *options: str) -> list[tuple[int, str]]:
        result = CliRunner().invoke(main, ["replay", str(held), "--step", *options], input=keys, catch_exceptions=False)
        assert result.exit_code == 0
        return [(int(seq), kind) for seq, _, kind in EVENT.findall(result.stdout)]

    return walked


@pytest.fixture
def log(held: Path) -> Iterator[Log]:
    with closing(open_log(held, readonly=True)) as log:
        yield log


def seqs(log: Log, *kinds: str) -> list[int]:
    return [one.seq for one in log.read(kinds=kinds)]


def test_keys_go_forward_and_back(walk: Any):
    assert [seq for seq, _ in walk("nn nbpq")] == [1, 2, 3, 4, 5, 4, 3]
    assert [seq for seq, _ in walk("b?xn")] == [1, 2]


def test_keys_go_to_holds_refusals_and_failures(walk: Any, log: Log):
    (refused,), (held,) = seqs(log, "refused"), seqs(log, "held")
    assert walk("rhbHRbq") == [
        (1, "host_started"),
        (refused, "refused"),
        (held, "held"),
        (refused, "refused"),
        (refused - 1, "turn_started"),
    ]
    assert walk("f") == [(1, "host_started")]
    assert walk("g100\nq")[-1][0] == 100
    assert [seq for seq, _ in walk("$0q")] == [1, log.head(), 1]


def test_one_agents_events_alone(walk: Any, log: Log):
    ada = [one.seq for one in log.read() if one.stream in ("agent/ada", "drain/ada")]
    assert [seq for seq, _ in walk("nnnbq", "--agent", "ada")] == [*ada[:4], ada[2]]
    bob = [one.seq for one in log.read(stream="agent/bob")]
    assert [seq for seq, _ in walk("$0q", "--agent", "bob")] == [bob[0], bob[-1], bob[0]]


def test_the_agents_state_is_that_of_the_event(rewake: Rewake, held: Path, log: Log, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stepping, "attended", lambda: True)
    args = ["replay", str(held), "--step"]
    shown = CliRunner().invoke(main, args, input="hsq", catch_exceptions=False).stdout
    (at,) = seqs(log, "held")
    agent = rewake("agents", held, "--at", at, "--csv").stdout.splitlines()[1].split(",")
    assert agent[1] == "held"
    assert f"ada is held in {agent[2]}, {agent[3]} owed" in shown
    assert re.search(r"budget +900", shown)
    keys = CliRunner().invoke(main, args, input="?", catch_exceptions=False).stdout
    assert "the next hold, refusal, crash, failure" in keys


def test_a_pipe_has_what_replay_writes(rewake: Rewake, held: Path):
    assert rewake("replay", held, "--step").stdout == rewake("replay", held).stdout
    assert rewake("replay", held, "--step", "-t", "--agent", "ada").stdout == (
        rewake("replay", held, "-t", "--agent", "ada").stdout
    )


def test_crashes_are_starts_without_a_stop_before():
    log = next(sim.log for sim in map(lived, range(60)) if stops_and_crashes(sim.log))
    way, stopped, crashes = Walk(log), True, list[int]()
    for one in log.read():
        if one.kind in STOPS["crash"] and not (one.kind == "host_started" and stopped):
            crashes.append(one.seq)
        stopped = {"host_started": False, "host_stopped": True}.get(one.kind, stopped)
    found, seq = list[int](), 0
    while step := way.jump(seq, "crash"):
        seq = step.recorded.seq
        found.append(seq)
    assert found == crashes
    back, seq = list[int](), log.head() + 1
    while step := way.jump(seq, "crash", forward=False):
        seq = step.recorded.seq
        back.append(seq)
    assert back == crashes[::-1]


def stops_and_crashes(log: Log) -> bool:
    kinds = [one.kind for one in log.read(stream="host")]
    return "host_stopped" in kinds[:-1] and kinds.count("host_started") > kinds.count("host_stopped") + 1


def test_wherever_one_comes_from_the_states_are_the_logs(monkeypatch: pytest.MonkeyPatch):
    """Every projection of every stream and every actor, on a walk that goes forward and back at random."""
    monkeypatch.setattr(walking, "EVERY", 16)
    log, dice = lived(5, acts=40).log, random.Random(5)
    way = Walk(log)
    for _ in range(12):
        seq = dice.randint(1, log.head())
        step = way.at(seq)
        assert step is not None
        assert step.recorded.seq == seq
        for (name, stream), state in step.after.projections.items():
            assert snapshots.digest(state) == snapshots.digest(fold(log, name, stream=stream, until=seq))
        for name in ("ada", "bob", "eve"):
            if state := step.agent(name):
                assert snapshots.digest(state) == snapshots.digest(state_of(log, name, seq))
            if drain := step.drain(name):
                assert snapshots.digest(drain) == snapshots.digest(drain_of(log, name, seq))


def test_going_back_folds_no_more_than_lies_between_two_states(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(walking, "EVERY", 16)
    log = lived(5, acts=40).log
    folded, real = list[int](), Walk.step
    monkeypatch.setattr(Walk, "step", lambda self, here, one: folded.append(one.seq) or real(self, here, one))
    way = Walk(log)
    assert way.at(log.head()) is not None
    assert len(folded) == log.head()
    folded.clear()
    for seq in range(log.head() - 1, 0, -1):
        assert way.near(seq + 1, forward=False) is not None
    assert len(folded) <= 17 * log.head()


def test_what_an_event_changed_is_looked_for_where_it_is_shown(monkeypatch: pytest.MonkeyPatch):
    """What lies before is folded alone: a long log is soon walked to its end."""
    log = lived(5, acts=40).log
    looked, real = list[Any](), changes.differences
    monkeypatch.setattr(changes, "differences", lambda *states: looked.append(states) or real(*states))
    step = Walk(log).at(log.head())
    assert list(changes.replayed(log, after=log.head())) == []
    assert step is not None
    assert not looked
    ((_, shown),) = changes.replayed(log, after=log.head() - 1)
    assert step.changed == shown


def test_an_event_and_a_state_are_shown_whole(walk: Any, held: Path, monkeypatch: pytest.MonkeyPatch):
    """However narrow the terminal is."""
    monkeypatch.setattr(stepping, "fitted", lambda line: line[:30])
    result = CliRunner().invoke(main, ["replay", str(held), "--step"], input="hesq")
    shown = result.stdout.splitlines()
    assert '        wakes          ["ada/wake/136"]' in shown
    assert any(line.startswith("        refusal        {") and line.endswith("}") for line in shown)
    assert "        cause          " in result.stdout
    assert any(" why        ada/turn/137 waits for compression: 1,9" in line for line in shown)


def test_a_terminal_is_walked_key_by_key(held: Path, log: Log):
    """A key typed before the terminal takes single keys is lost: each is typed until it is answered."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "rewake.scripts.cli", "replay", str(held), "--step"]
    env = os.environ | {"COLUMNS": "100", "TERM": "dumb"}
    last, out = list(log.read())[-1], ""
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, env=env) as process:
        os.close(theirs)
        with suppress(OSError):  # a terminal without a reader at its other end is an error, not an end
            for key, shown in ((b"", "host_started"), (b"h", "  held  "), (b"$", f"{last.seq}  "), (b"q", None)):
                while shown is None or shown not in out:
                    os.write(ours, key)
                    if select.select([ours], [], [], 0.3)[0]:
                        out += os.read(ours, 65_536).decode()
        assert process.wait(10) == 0
    os.close(ours)
    kinds = dict.fromkeys(kind for _, _, kind in EVENT.findall(out.replace("\r", "")))
    assert list(kinds) == ["host_started", "held", last.kind]
