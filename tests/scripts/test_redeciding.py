"""A log decided again on the command line: as it was, by other code, with other settings."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from msgspec.structs import replace

from rewake.actors import AgentConfig, Difference
from rewake.actors.agent import holding
from rewake.actors.providers import ScriptedProvider
from rewake.actors.simulation import Simulation
from rewake.events import (
    Compiled,
    CompressionRequested,
    DrainKicked,
    DrainPassed,
    Held,
    HoldDue,
    HoldEnded,
    HoldLooked,
    InferenceRequested,
    Refused,
)
from rewake.events.codec import encode
from rewake.events.drain import Work
from rewake.projections import strategies
from rewake.scripts import differing

Rewake = Callable[..., Result]

STRATEGY = """\
from rewake.projections.strategies import Autobiographical

class Mine(Autobiographical):
    pass
"""
POLICY = """\
from tenacity import stop_after_attempt, wait_fixed
from rewake.actors import ErrorPolicy

PATIENT = ErrorPolicy(stop_after_attempt(9), wait_fixed(7))
"""


def rows(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_log_that_is_decided_as_it_was_is_exit_code_0(rewake: Rewake, held: Path):
    result = rewake("redecide", held)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "all decided as they were" in result.stderr
    assert rewake("redecide", held, "--stream", "agent/ada").exit_code == 0
    assert rewake("redecide", held, "--stream", "nobody").exit_code == 1


def test_how_much_was_decided_is_told_of_the_streams_that_were(rewake: Rewake, held: Path):
    """A stream that the log does not have is not one that is as it was."""
    assert "1 streams, 1 events: " in rewake("redecide", held, "--stream", "agent/bob").stderr
    absent = rewake("redecide", held, "--stream", "agent/nobody")
    assert absent.exit_code == 1
    assert "the log has no such stream; it has host, agent/ada, agent/bob" in absent.stderr


@pytest.mark.scenario("L-13")
def test_a_decision_that_changed_is_told_with_both_answers(rewake: Rewake, held: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as changed:
        changed.setattr(holding, "may_hold", lambda *_: False)
        result, page = rewake("redecide", held), rewake("redecide", held, "-t").stdout
        drain = rewake("redecide", held, "--stream", "drain/ada")
    (refused,) = [one for one in rows(result) if one["kind"] == "refused"]
    assert (result.exit_code, drain.exit_code) == (3, 0)
    assert (refused["stream"], len(refused["state"])) == ("agent/ada", 32)
    assert (refused["recorded"][0]["kind"], refused["now"][0]["kind"]) == ("held", "retry_scheduled")
    assert f"agent/ada, event {refused['seq']}, refused" in page
    assert "retry scheduled instead of held" in page
    assert "waits 1 s" in page


def test_a_strategy_that_is_not_here_is_named_by_stream(
    rewake: Rewake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The other streams are decided; with the module back, all are."""
    (tmp_path / "my_strategy.py").write_text(STRATEGY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    log = str(tmp_path / "log.db")
    agents = [AgentConfig(name="ada", model="m", strategy="my_strategy:Mine"), AgentConfig(name="bob", model="m")]
    sim = Simulation(agents=agents, provider=ScriptedProvider(), log=log)
    sim.result(sim.push("ada", "hello"))
    sim.stop()
    assert rewake("redecide", log).exit_code == 0
    (tmp_path / "my_strategy.py").rename(tmp_path / "gone.txt")
    strategies.imported.cache_clear()
    monkeypatch.delitem(sys.modules, "my_strategy")
    result = rewake("redecide", log)
    assert (result.exit_code, result.stdout) == (1, "")
    named = [line for line in result.stderr.splitlines() if "my_strategy:Mine" in line]
    assert len(named) == 1
    assert named[0].startswith("rewake: agent/ada: not decided: strategy = ")
    (tmp_path / "gone.txt").rename(tmp_path / "my_strategy.py")
    strategies.imported.cache_clear()
    assert rewake("redecide", log).exit_code == 0
    monkeypatch.delitem(sys.modules, "my_strategy", raising=False)


def test_another_budget_would_have_gone_another_way(rewake: Rewake, held: Path):
    result = rewake("what-if", held, "--set", "ada.context_budget_tokens=60_000")
    (found,) = rows(result)
    assert result.exit_code == 3
    assert (found["stream"], found["kind"], found["how"]) == (
        "agent/ada",
        "turn_started",
        "it would not have been refused",
    )
    assert f"after event {found['seq']}" in result.stderr
    page = rewake("what-if", held, "--set", "ada.context_budget_tokens=60_000", "-t").stdout
    assert "recorded: refused, over_budget" in page
    assert "now:      compiled: " in page
    assert rewake("what-if", held, "--set", "ada.context_budget_tokens=none").exit_code == 3


def test_what_changes_nothing_is_exit_code_0(rewake: Rewake, held: Path):
    result = rewake("what-if", held, "--set", "bob.max_tokens=99", "--set", "ada.physical_window_tokens=1_000_000")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no other way" in result.stderr


def test_the_first_of_several_is_told(rewake: Rewake, held: Path):
    given = ("--set", "ada.context_budget_tokens=5000", "--set", "ada.model=n", "--set", "bob.model=n")
    (found,) = rows(rewake("what-if", held, *given))
    assert found["how"] == "it would have asked otherwise: model n instead of m"


def test_a_policy_is_imported(rewake: Rewake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "my_policy.py").write_text(POLICY)
    monkeypatch.chdir(tmp_path)
    log = str(tmp_path / "log.db")
    sim = Simulation(
        agents=[AgentConfig(name="ada", model="m", context_budget_tokens=4_200)], provider=ScriptedProvider(), log=log
    )
    sim.push("ada", "word " * 300)
    sim.run_until_idle()
    sim.stop()
    (found,) = rows(rewake("what-if", log, "--set", "ada.error_policy=my_policy:PATIENT"))
    assert (found["recorded"][0]["delay_ms"], found["now"][0]["delay_ms"]) == (1_000, 7_000)
    assert rewake("what-if", log, "--set", "ada.error_policy=my_policy:GONE").exit_code == 2


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ("ada.context_budget_tokens", 2, "AGENT.SETTING=VALUE"),
        ("max_tokens=3", 2, "AGENT.SETTING=VALUE"),
        ("ada.budget=3", 2, "there is no setting 'budget'; there are "),
        ("ada.max_tokens=many", 2, "Expected `int`"),
        ("ada.max_tokens=900", 2, "more than max_tokens"),
        ("ada.encoding=o200k_base", 2, "counted in the one that it had"),
        ("ada.tools=[]", 2, "is in no log"),
        ("ada.context=mine:context", 2, "is in no log"),
        ("eve.max_tokens=3", 1, "it has ada, bob"),
    ],
)
def test_what_can_not_be_set_is_refused(rewake: Rewake, held: Path, given: str, code: int, said: str):
    result = rewake("what-if", held, "--set", given)
    assert (result.exit_code, result.stdout) == (code, "")
    assert said in result.stderr


OVER = Refused("t", 1, "over_budget", 900, 700, "e")
FITS = Compiled("t", 1, (), "d", 600, 700, "e")
ASKED = InferenceRequested("t", 1, "p", "m", 100)
PASSED = DrainPassed(1, False, "dry", 5)


def asks(last: str, model: str = "m") -> CompressionRequested:
    return CompressionRequested(Work(1, "m/1", last, (), "d", 9), "p", model, id="c")


@pytest.mark.parametrize(
    ("recorded", "now", "said"),
    [
        ([FITS], [OVER], "it would have been refused"),
        ([OVER], [FITS], "it would not have been refused"),
        ([OVER], [replace(OVER, tokens=800)], "it would have been refused otherwise"),
        ([FITS], [replace(FITS, digest="x")], "it would have been shown another plan"),
        ([ASKED], [replace(ASKED, max_tokens=50)], "it would have asked otherwise: max_tokens 50 instead of 100"),
        ([HoldLooked("t", (), 900)], [HoldEnded("t", "fit", 0)], "its hold would have ended: fit"),
        ([HoldEnded("t", "fit", 0)], [HoldLooked("t", (), 900)], "its hold would have gone on"),
        ([], [HoldDue("t", "stalled")], "there would have been: hold due"),
        ([HoldDue("t", "stalled")], [], "there would have been no hold due"),
        (
            [ASKED, PASSED],
            [ASKED, replace(PASSED, pending=True)],
            "another drain passed: pending true instead of false",
        ),
        ([OVER], ["raises KeyError: 'no'"], "today's code raises"),
        (
            [Held("t", ("w",), 0, 60_000, OVER)],
            [Held("t", ("w",), 0, 30_000, OVER)],
            "another held: until 1970-01-01T00:00:30.000Z instead of 1970-01-01T00:01:00.000Z",
        ),
        ([asks("m/1")], [asks("m/2")], "it would have summarised something else"),
        ([asks("m/1")], [asks("m/1", "o")], "another compression requested: model o instead of m"),
        ([PASSED], [DrainKicked("due", 8)], "drain kicked instead of drain passed"),
    ],
)
def test_how_two_answers_differ_in_words(recorded: list[Any], now: list[Any], said: str):
    then, instead = (
        tuple(one if isinstance(one, str) else encode(one).decode() for one in two) for two in (recorded, now)
    )
    found = Difference(1, then, instead, "state")
    assert differing.how(found) == said
    assert "another held" not in said or differing.words(then) != differing.words(instead)
    for answer in (then, instead):
        assert (differing.words(answer) == "nothing") == (not answer)
