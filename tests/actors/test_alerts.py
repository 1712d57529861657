"""What operators are told, how often, and what it says."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewake.actors.config import RuntimeOptions
from rewake.actors.providers import auth, reply, server_error, slow
from rewake.actors.reports import Alert
from rewake.actors.simulation import Simulation
from rewake.events import Alerted, DrainKicked, Held, HoldDue, HoldEnded, InvalidSetting, Recorded, TurnExhausted
from rewake.projections import alerts
from tests.actors.test_hold_ends import full
from tests.actors.test_holds import MINUTE, after, at, crowded, overfull, said, words

Simulate = Callable[..., Simulation]


def told(sim: Simulation) -> list[Alerted]:
    """Every alert of the log, whatever its stream."""
    return [recorded.event for recorded in sim.events() if isinstance(recorded.event, Alerted)]


def listened(sim: Simulation) -> list[Alert]:
    """What `on_alert` is called with from here on."""
    heard: list[Alert] = []
    sim.options = RuntimeOptions(on_alert=heard.append)
    return heard


@given(st.lists(st.tuples(st.sampled_from(["auth", "stuck"]), st.integers(0, 20 * MINUTE), st.booleans()), max_size=40))
@settings(max_examples=200)
def test_of_each_kind_one_alert_is_posted_in_a_quarter_of_an_hour(news: list[tuple[str, int, bool]]):
    """But for worse news, which is posted whatever was before."""
    state, now, posted = alerts.initial(), 0, dict[str, list[int]]()
    for kind, pause, worse in news:
        now += pause
        posts = worse or alerts.due(state, kind, now)
        last = posted.get(kind, [])
        assert posts == (worse or not last or now - last[-1] >= 15 * MINUTE)
        if posts:
            posted.setdefault(kind, []).append(now)
        event = Alerted(kind, "", posts)
        state = alerts.evolve(state, Recorded(0, now, "agent/ada", 1, None, 0, event))
    assert dict(state.posted) == {kind: times[-1] for kind, times in posted.items()}


@pytest.mark.scenario("Q-16")
def test_that_a_held_turn_failed_after_all_is_told_whatever_was_told_before():
    sim = crowded(lambda _: slow(reply(""), seconds=2))
    heard = listened(sim)
    full(sim)
    sim.run()
    assert [(one.kind, "is held" in one.message) for one in heard] == [("context_refusal", True)]
    sim.advance(minutes=3)
    assert [one.why for one in said(sim, HoldEnded)] == ["nothing_pending"]
    assert at(sim, TurnExhausted)[0] < 15 * MINUTE
    refusals = [one for one in heard if one.kind == "context_refusal"]
    assert [("is held" in one.message, "ended without an answer" in one.message) for one in refusals] == [
        (True, False),
        (False, True),
    ]
    sim.crash()
    sim.restart()
    sim.advance(minutes=1)
    assert len([one for one in heard if one.kind == "context_refusal"]) == 2


@pytest.mark.scenario("Q-16")
@pytest.mark.parametrize("crash", [False, True])
def test_compression_that_makes_nothing_for_five_minutes_is_stuck_once(crash: bool):
    sim = overfull(after(3_000))
    sim.advance(minutes=4, seconds=59)
    assert "stuck" not in [one.about for one in told(sim)]
    if crash:
        sim.crash()
        sim.restart()
    sim.advance(minutes=25)
    (stuck,) = [one for one in told(sim) if one.about == "stuck"]
    assert stuck.turn == said(sim, Held)[0].turn
    assert stuck.message.startswith(f"{stuck.turn} is held, and nothing was summarised for 5 min: compression works: ")
    assert "ada/compression/" in stuck.message


def test_compression_that_makes_something_is_not_stuck():
    """Two summaries, four minutes each; then none."""
    sim = overfull(after(240, 240, 3_000), chunk=20_000)
    sim.advance(minutes=12, seconds=59)
    assert sim.kinds().count("compressed") == 2
    assert "stuck" not in [one.about for one in told(sim)]
    sim.advance(seconds=1)
    assert [one.about for one in told(sim)].count("stuck") == 1


@pytest.mark.scenario("H-28")
@pytest.mark.parametrize("seed", range(3))
def test_a_hold_whose_compression_stands_still_ends_stalled_and_no_new_one_begins_before_it_moves(seed: int):
    down = True
    sim = overfull(lambda _: server_error() if down else reply("They said hello."), seed=seed, hold_stall_after=300)
    sim.advance(minutes=5, seconds=10)
    assert [(one.why, one.waited_ms) for one in said(sim, HoldEnded)] == [("stalled", 5 * MINUTE)]
    assert [one.what for one in said(sim, HoldDue)] == ["stalled"]
    assert at(sim, HoldEnded) == [5 * MINUTE]
    assert "the hold ended: stalled" in said(sim, Alerted)[-1].message
    second = sim.push("ada", "Hello?")
    sim.advance(seconds=10)
    assert sim.result(second, 0).state == "exhausted"
    assert len(said(sim, Held)) == 1
    down = False
    sim.advance(minutes=11)
    assert sim.kinds().count("compressed") > 0
    sim.configure("ada", context_budget_tokens=30_000, immediate=True, allow_infeasible=True)
    down = True
    third = sim.push("ada", words(20_000))
    sim.run()
    assert sim.result(third, 0).state in ("held", "completed")
    assert len(said(sim, Held)) + ("turn_completed" in sim.kinds("ada")[-1:]) == 2


def test_when_a_hold_stalls_may_change_while_it_waits():
    sim = overfull(after(3_000))
    sim.advance(minutes=2)
    with pytest.raises(InvalidSetting):
        sim.configure("ada", hold_stall_after=-1)
    sim.configure("ada", hold_stall_after=180)
    sim.advance(minutes=2)
    assert [(one.why, one.waited_ms) for one in said(sim, HoldEnded)] == [("stalled", 3 * MINUTE)]


@pytest.mark.scenario("W-21")
def test_a_refused_turn_that_ends_tells_what_the_one_kick_of_compression_did():
    sim = overfull(lambda _: reply(""))
    sim.advance(minutes=2)
    assert len(said(sim, TurnExhausted)) == 1
    given = len(sim.state("compression", "ada").quarantined)
    assert given >= 3
    alert = [one for one in said(sim, Alerted) if one.about == "context_refusal"][-1]
    assert alert.posted
    assert f"0 ticks, {given} stretches are quarantined and nothing else is left" in alert.message
    assert "context_budget_tokens" in alert.message
    assert "physical_window_tokens" not in alert.message
    assert [one.why for one in said(sim, DrainKicked, "drain/ada") if one.why != "due"] == ["hold", "refusal"]


@pytest.mark.scenario("W-21")
def test_a_refusal_that_the_window_binds_advises_no_larger_budget():
    sim = crowded(lambda _: reply(""), physical_window_tokens=200_000)
    sim.configure("ada", physical_window_tokens=20_000 + 4_096)
    sim.push("ada", words(19_000))
    sim.advance(minutes=31)
    alert = [one for one in said(sim, Alerted) if one.about == "context_refusal"][-1]
    assert "ended without an answer" in alert.message
    assert "physical_window_tokens = 24,096" in alert.message
    assert "budget" not in alert.message


def test_a_key_that_a_provider_refuses_is_told_once_in_a_quarter_of_an_hour(simulate: Simulate):
    sim = simulate([auth("no such key")] * 4)
    heard = listened(sim)
    for _ in range(2):
        sim.push("ada", "hello")
        sim.run_until_idle()
    sim.advance(minutes=15)
    sim.push("ada", "hello")
    sim.run_until_idle()
    assert [one.posted for one in told(sim) if one.about == "auth"] == [True, False, True]
    assert [one.kind for one in heard] == ["auth", "auth", "hard_down"]
    assert "no such key" in heard[0].message
