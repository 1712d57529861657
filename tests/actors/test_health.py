"""What an operator is told: a hold while it waits, how compression stands, and the wakes that wait too long."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from rewake.actors import AgentConfig, RuntimeOptions
from rewake.actors.providers import ScriptedProvider, reply, slow
from rewake.actors.providers.base import ProviderTimeout
from rewake.actors.reports import AgentHealth, DrainHealth
from rewake.actors.simulation import Simulation
from rewake.scripts.cli import main

MINUTE = 60_000


def rewake(*args: object) -> list[dict[str, Any]]:
    """What a command prints, read as JSON lines."""
    said = CliRunner().invoke(main, [str(arg) for arg in args], catch_exceptions=False)
    assert said.exit_code == 0, said.stderr
    return [json.loads(line) for line in said.stdout.splitlines()]


def small(summarize: Any, log: Path | None = None, turns: int = 12, chunk: int = 100, **options: Any) -> Simulation:
    """An agent with a dozen short turns behind it."""
    ada = AgentConfig(name="ada", model="m", max_tokens=200, target_chunk_tokens=chunk, call_timeout=3_600)
    provider = ScriptedProvider(lambda _: slow(reply("ok"), 20), summarize=summarize)
    path = None if log is None else str(log)
    simulation = Simulation(agents=[ada], provider=provider, log=path, options=RuntimeOptions(**options))
    for number in range(turns):
        simulation.push("ada", f"{'word ' * 80}{number}")
        simulation.advance(seconds=20)
    return simulation


def cut(simulation: Simulation) -> None:
    """The budget no longer takes the history: the next turn is held."""
    simulation.configure("ada", context_budget_tokens=900, immediate=True, allow_infeasible=True)


def agent(simulation: Simulation) -> AgentHealth:
    return simulation.health().agents[0]


def drain(simulation: Simulation) -> DrainHealth:
    return simulation.health().drains[0]


@pytest.mark.scenario("H-40")
def test_a_hold_is_shown_while_it_waits_and_nothing_of_it_afterwards(tmp_path: Path):
    simulation = small(lambda _: slow(reply("Short."), 420), tmp_path / "held.db")
    cut(simulation)
    first, since = simulation.push("ada", "one"), simulation.now
    simulation.advance(minutes=1)
    second = simulation.push("ada", "two")
    simulation.run()
    for minutes in (1, 8):
        simulation.advance(minutes=minutes - (simulation.now - since) // MINUTE)
        shown = agent(simulation)
        hold = shown.hold
        assert hold is not None
        assert (shown.state, hold.since, hold.until, hold.wakes) == (
            "held",
            since,
            since + 30 * MINUTE,
            both(first, second),
        )
        assert (hold.refusal.room, hold.refusal.why) == (700, "over_budget")
        assert hold.looks >= 1
        assert hold.looked_at == (since + MINUTE if minutes == 1 else since + 7 * MINUTE)
        owed = simulation.owed()
        assert [one.wake for one in owed] == list(both(first, second))
        assert all((one.state, one.since, one.next_at) == ("held", since, since + 30 * MINUTE) for one in owed)
        assert all("tokens against 700; compression works: ada/compression/" in one.why for one in owed)
        assert [one["why"] for one in rewake("owed", tmp_path / "held.db")] == [one.why for one in owed]
    while "hold_ended" not in simulation.kinds("ada"):
        simulation.advance(seconds=10)
    shown = agent(simulation)
    assert (shown.state, shown.hold, shown.why, shown.next_at) == ("running", None, "calling", None)
    assert (
        {one.state for one in simulation.owed()}
        == {one["state"] for one in rewake("owed", simulation.log.path)}
        == {"owed"}
    )
    assert simulation.result(second).state == "completed"
    shown = agent(simulation)
    assert (shown.state, shown.hold, shown.why, shown.since, shown.next_at) == ("idle", None, "", None, None)
    assert simulation.owed() == rewake("owed", tmp_path / "held.db") == []
    assert "held" not in str(simulation.health().agents)


def both(*receipts: Any) -> tuple[str, ...]:
    return tuple(one.wake for one in receipts)


def test_compression_is_idle_works_waits_or_is_stuck_and_says_why():
    answers: list[Any] = [slow(reply("Short."), 60), ProviderTimeout("no answer")]
    simulation = small(lambda _: answers.pop(0) if answers else reply(""), turns=1)
    assert (drain(simulation).state, drain(simulation).why) == ("idle", "nothing is left to summarise")
    for number in range(11):
        simulation.push("ada", f"{'word ' * 80}{number}")
        simulation.advance(seconds=20)
    cut(simulation)
    simulation.push("ada", "one")
    simulation.run()
    working = drain(simulation)
    assert working.state == "working"
    assert "a summary of 4 messages, is in flight" in working.why
    simulation.advance(minutes=1)
    paused = drain(simulation)
    assert (paused.state, paused.next_at) == ("waiting", simulation.now + 30_000)
    assert paused.why == "paused after timeout: no answer"
    (owed,) = simulation.owed()
    assert "; compression waits until 00:05:30Z: paused after timeout: no answer" in owed.why
    simulation.advance(hours=20)
    assert drain(simulation).quarantined == len(drain(simulation).given_up) > 0
    assert "quarantined" in drain(simulation).why
    assert "can not be summarised and stays as it is: invalid_summary" in drain(simulation).given_up[0]


def test_it_is_stuck_once_all_that_is_left_was_given_up(tmp_path: Path):
    """And what was given up is listed, until somebody has it tried again."""
    healed: list[bool] = []
    simulation = small(lambda _: reply("Short." if healed else ""), tmp_path / "stuck.db", chunk=500)
    cut(simulation)
    simulation.push("ada", "one")
    simulation.advance(hours=2)
    stuck = drain(simulation)
    assert (stuck.state, stuck.next_at) == ("stuck", None)
    assert "release_quarantine" in stuck.why
    rows = rewake("owed", tmp_path / "stuck.db")
    assert [(one["wake"], one["agent"], one["state"]) for one in rows] == [
        (None, "ada", "quarantined")
    ] * stuck.quarantined
    assert [one["why"] for one in rows] == list(stuck.given_up)
    given = [one.at for one in simulation.log.read(stream="drain/ada", kinds=["quarantined"])]
    assert sorted(one["since"] for one in rows) == sorted(given)
    healed.append(True)
    simulation.release_quarantine("ada")
    simulation.run()
    assert drain(simulation).given_up == ()
    assert rewake("owed", tmp_path / "stuck.db") == []


def test_where_no_pass_begins_by_itself_it_says_so():
    simulation = small(lambda _: reply("Short."), maintenance_interval=0)
    simulation.configure("ada", context_budget_tokens=900)
    simulation.run()
    assert drain(simulation).state == "waiting"
    assert "maintenance_interval is 0" in drain(simulation).why


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6))
def test_a_wake_that_waits_for_more_than_30_seconds_is_reported(gaps: list[int]):
    """Those of the running turn do not wait; the others do, from when they were accepted."""
    provider = ScriptedProvider(lambda _: slow(reply("ok"), 400))
    simulation = Simulation(agents=[AgentConfig(name="ada", model="m")], provider=provider)
    simulation.push("ada", "first")
    simulation.run()
    accepted: dict[str, int] = {}
    for gap in gaps:
        accepted[simulation.push("ada", "more").wake or ""] = simulation.now
        simulation.advance(seconds=gap)
        shown = agent(simulation)
        assert shown.late == tuple(wake for wake, at in accepted.items() if simulation.now - at > 30_000)
        assert shown.oldest == min(accepted.values())
    simulation.run_until_idle()
    assert (agent(simulation).late, agent(simulation).oldest) == ((), None)
    simulation.crash()
