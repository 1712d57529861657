"""Holds that end otherwise than by fitting: aborted, cancelled, disposed, declined, never begun."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from rewake.actors.config import AgentConfig, RuntimeOptions
from rewake.actors.providers import ScriptedProvider, reply
from rewake.actors.simulation import Simulation
from rewake.events import (
    DrainPassed,
    Held,
    HoldEnded,
    Quiesced,
    Refused,
    Resumed,
    TurnAborted,
    TurnExhausted,
    TurnStarted,
    TurnWithdrawn,
    WakeWithdrawn,
)
from tests.actors.test_holds import CONTEXT, MINUTE, after, at, calls, crowded, hold, overfull, said, texts, words
from tests.actors.worlds import host_says


def full(sim: Simulation) -> Any:
    """Push what does not fit."""
    return sim.push("ada", words(CONTEXT - 90_009))


def overfull_once_more(sim: Simulation) -> int:
    """Another turn that has nothing to do with the one before and is refused; when that happened."""
    sim.configure("ada", context_budget_tokens=30_000, immediate=True, allow_infeasible=True)
    sim.push("ada", "Something else.")
    sim.run()
    return sim.now


# -- which are held


@pytest.mark.scenario("H-11")
@pytest.mark.parametrize("kind", ["ephemeral", "conversation"])
def test_an_ephemeral_run_fails_at_once_and_a_conversation_is_held(kind: Any):
    sim = crowded(after(420), kind=kind)
    receipt = full(sim)
    sim.advance(seconds=20)
    assert ("held" in sim.kinds("ada")) == (kind == "conversation")
    assert sim.result(receipt, 0).state == ("exhausted" if kind == "ephemeral" else "held")
    assert "retry_scheduled" not in sim.kinds("ada")


@pytest.mark.scenario("H-11")
def test_a_run_of_its_own_that_does_not_fit_fails_at_once():
    sim = Simulation(agents=(), provider=ScriptedProvider())
    scout = AgentConfig(name="scout", model="m", context_budget_tokens=5_000)
    before = sim.now
    assert sim.run_once(scout, words(2_000)).state == "exhausted"
    assert sim.now == before
    assert "held" not in sim.kinds("scout")
    assert sim.kinds("scout")[-2:] == ["turn_exhausted", "agent_disposed"]


@pytest.mark.scenario("H-26")
def test_what_fills_the_window_is_never_held_and_one_token_smaller_is():
    """The newest message alone, which no compression makes smaller, fills it."""
    for size, why in ((20_001, "window_full"), (20_000, "over_budget")):
        sim = crowded(after(420), physical_window_tokens=200_000)
        sim.configure("ada", physical_window_tokens=20_000 + 4_096)
        sim.push("ada", words(size))
        sim.run()
        assert said(sim, Refused)[-1].why == why
        assert bool(said(sim, Held)) == (why == "over_budget")
        assert ("turn_exhausted" in sim.kinds("ada")) == (why == "window_full")
        assert "retry_scheduled" not in sim.kinds("ada")


# -- ended from outside


@pytest.mark.scenario("H-38")
@pytest.mark.scenario("Q-08")
@pytest.mark.parametrize("joined", [False, True])
def test_an_abort_ends_a_held_turn_and_what_joined_it_is_still_owed(joined: bool):
    sim = overfull(after(420))
    turn, first = said(sim, Held)[0].turn, said(sim, Held)[0].wakes
    late = sim.push("ada", "And this?") if joined else None
    report = sim.abort("ada", reason="never mind")
    assert (report.turn, report.wakes) == (turn, first)
    kinds = sim.kinds("ada")
    start = kinds.index("hold_ended")
    assert kinds[start : start + 2] == ["hold_ended", "turn_aborted"]
    assert [(one.why, one.turn) for one in said(sim, HoldEnded)] == [("cancelled", turn)]
    assert [one.wake for one in sim.owed()] == ([late.wake] if late else [])
    sim.advance(minutes=8)
    assert sim.owed() == []
    assert len(calls(sim)) == 9 + joined
    assert "never mind" not in "".join(message.text for message in sim.agent("ada").conversation.messages)


@pytest.mark.scenario("H-38")
def test_an_abort_next_in_the_mailbox_after_the_refusal_and_a_stop_instead():
    for stops in (False, True):
        sim = crowded(after(900))
        receipt = full(sim)
        if stops:
            sim.stop()
            sim.restart()
            assert sim.result(receipt, 0).state == "held"
            assert "hold_ended" not in sim.kinds("ada")
        else:
            sim.abort("ada")
            assert sim.kinds("ada")[-4:] == ["held", "alerted", "hold_ended", "turn_aborted"]
            assert sim.result(receipt, 0).state == "aborted"
            assert hold(sim) is None


@pytest.mark.scenario("H-27")
@pytest.mark.parametrize("seed", range(6))
def test_an_abort_right_after_the_release_sends_nothing_and_leaves_no_record(seed: int):
    sim = overfull(after(420), seed=seed)
    turn = said(sim, Held)[0].turn
    released = sim.now + 7 * MINUTE
    while not said(sim, HoldEnded):
        if not sim.scheduler.step():
            due = sim._next_due()
            assert due is not None
            sim._tick(due)
    assert sim.now == released
    sim.abort("ada", turn=turn)
    sim.run()
    assert [one.turn for one in said(sim, TurnAborted)] == [turn]
    assert len(calls(sim)) == 9
    assert sim.agent("ada").holds.over is None
    again = overfull_once_more(sim)
    assert (said(sim, Held)[-1].since, said(sim, Held)[-1].until) == (again, again + 30 * MINUTE)
    sim.advance(minutes=31)
    assert not any("waited 37 min" in text for text in texts(calls(sim)[-1]))


@pytest.mark.scenario("H-21")
def test_a_hold_whose_every_cause_is_cancelled_is_over_without_a_call():
    sim = overfull(after(420))
    turn = said(sim, Held)[0].turn
    joined = [sim.push("ada", "More."), sim.wake("ada", "alarm")]
    report = sim.cancel("ada", drop="all")
    assert report.turn == turn
    assert {one.wake for one in joined} < set(report.wakes)
    assert [one.why for one in said(sim, HoldEnded)] == ["cancelled"]
    assert [(one.turn, one.why) for one in said(sim, TurnWithdrawn)] == [(turn, "cancelled")]
    sim.advance(minutes=40)
    assert len(calls(sim)) == 9
    assert sim.owed() == []
    assert len(said(sim, TurnStarted)) == 10
    assert sim.agent("ada").conversation.total == 90_009


@pytest.mark.scenario("Q-09")
def test_a_cancel_drops_the_machines_causes_of_a_hold_and_people_are_still_held():
    sim = crowded(after(420))
    people = [full(sim)]
    sim.run()
    machines = [sim.wake("ada", "alarm"), sim.push("ada", "a log line", addressed=False)]
    people.append(sim.push("ada", "Still there?"))
    report = sim.cancel("ada")
    assert report.wakes == tuple(one.wake for one in machines)
    assert [one.why for one in said(sim, WakeWithdrawn)] == ["cancelled"]
    assert said(sim, HoldEnded) == []
    waiting = hold(sim)
    assert waiting
    assert waiting.wakes == tuple(one.wake for one in people)
    sim.advance(minutes=7)
    assert [sim.result(one).state for one in people] == ["completed"] * 2
    assert "a log line" not in texts(calls(sim)[-1])


def test_a_message_that_goes_with_a_cancelled_wake_may_let_the_rest_run():
    """What was dropped is not in the request that goes at once."""
    sim = crowded(after(3_000), kind="resident")
    sim.configure("ada", context_budget_tokens=100_000, immediate=True, allow_infeasible=True)
    people = sim.push("ada", "Hello?")
    sim.run()
    assert sim.result(people, 0).state == "completed"
    machines = [sim.push("ada", words(size), addressed=False) for size in (9_000, 5_000)]
    sim.run()
    grace = sim.push("ada", "And me?")
    assert said(sim, Held)
    report = sim.cancel("ada")
    assert report.messages == tuple(one.message for one in machines)
    assert [one.why for one in said(sim, HoldEnded)] == ["fit"]
    sim.run()
    assert sim.result(grace).state == "completed"
    assert not {words(9_000), words(5_000)} & set(texts(calls(sim)[-1]))


@pytest.mark.scenario("H-19")
def test_an_agent_that_is_disposed_while_held_ends_what_it_owes_and_says_so():
    sim = overfull(after(420))
    turn = said(sim, Held)[0].turn
    wakes = [*said(sim, Held)[0].wakes, sim.wake("ada", "alarm").wake]
    sim.dispose("ada")
    assert [(one.turn, one.why) for one in said(sim, HoldEnded)] == [(turn, "stopped")]
    assert [(list(one.wakes), one.why) for one in said(sim, WakeWithdrawn)] == [(wakes, "disposed")]
    assert sim.kinds("ada")[-1] == "agent_disposed"
    assert [one.state for one in sim.health().agents] == ["disposed"]
    assert [sim.result(sim.receipt(str(one))).why for one in wakes] == ["disposed"] * 2
    assert sim.owed() == []
    sim.advance(minutes=40)
    sim.crash()
    sim.restart()
    sim.advance(minutes=40)
    assert len(calls(sim)) == 9
    assert sim.kinds().count("compressed") == 0


# -- released, and then something else


async def declines(agent: str, wakes: Any) -> bool:
    """After five seconds, once it is asked for the eleventh time."""
    declines.asked += 1  # pyright: ignore[reportFunctionMemberAccess]
    await asyncio.sleep(5)
    return declines.asked != 11  # pyright: ignore[reportFunctionMemberAccess]


@pytest.mark.scenario("H-15")
def test_a_released_turn_that_the_policy_declines_leaves_nothing_of_its_hold():
    declines.asked = 0  # pyright: ignore[reportFunctionMemberAccess]
    sim = crowded(after(420), inference_policy=declines)
    receipt = full(sim)
    sim.advance(minutes=8)
    assert [one.why for one in said(sim, HoldEnded)] == ["fit"]
    assert sim.result(receipt).state == "declined"
    assert sim.agent("ada").holds.over is None
    sim.push("ada", "Something else.")
    sim.advance(seconds=10)
    assert "budget-hold" not in "".join(texts(calls(sim)[-1]))
    overfull_once_more(sim)
    sim.advance(seconds=5)
    held = said(sim, Held)[-1]
    assert held.until - held.since == 30 * MINUTE
    assert held.since == next(one.at for one in reversed(sim.events("ada")) if isinstance(one.event, Refused))


@pytest.mark.scenario("H-37")
def test_a_released_start_that_fails_before_its_compile_takes_its_hold_with_it():
    asked: list[int] = []

    def policy(agent: str, wakes: Any) -> bool:
        asked.append(1)
        if 10 < len(asked) <= 14:
            raise LookupError("no such rule")
        return True

    sim = crowded(after(420), inference_policy=policy)
    receipt = full(sim)
    sim.advance(minutes=8)
    assert [one.why for one in said(sim, HoldEnded)] == ["fit"]
    assert sim.result(receipt).state == "exhausted"
    assert said(sim, TurnExhausted)[0].error.type == "LookupError"
    sim.push("ada", "Something else.")
    sim.run()
    assert "budget-hold" not in "".join(texts(calls(sim)[-1]))
    again = overfull_once_more(sim)
    assert (said(sim, Held)[-1].since, said(sim, Held)[-1].until) == (again, again + 30 * MINUTE)


# -- passes while it waits


@pytest.mark.scenario("H-33")
def test_without_maintenance_a_hold_has_its_passes_five_seconds_apart():
    """Twenty calls are needed: 8, 8 and 4 of them; nobody asks for them."""
    ada = AgentConfig(
        name="ada",
        model="m",
        context_budget_tokens=300_000,
        recent_window_tokens=150_000,
        target_chunk_tokens=1_000,
        merge_threshold=1_000,
    )
    provider = ScriptedProvider(lambda _: reply("ok"), summarize=lambda _: reply("They said hello."))
    sim = Simulation(agents=[ada], provider=provider, options=RuntimeOptions(maintenance_interval=0))
    for _ in range(40):
        sim.push("ada", words(500))
        sim.run()
    sim.configure("ada", context_budget_tokens=4_096 + 600, immediate=True, allow_infeasible=True)
    receipt = sim.push("ada", "Now?")
    sim.run_until_idle()
    assert sim.result(receipt).state == "completed"
    passes = [(one.at, one.event) for one in sim.log.read(stream="drain/ada") if isinstance(one.event, DrainPassed)]
    assert [one.ticks for _, one in passes] == [8, 8, 4]
    assert [later - earlier for (earlier, _), (later, _) in pairwise(passes)] == [5_000, 5_000]
    assert [one.why for one in said(sim, HoldEnded)] == ["fit"]
    assert at(sim, HoldEnded) == [10_000]


# -- while the host is quiesced


@pytest.mark.scenario("H-46")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("takes", "why", "minutes"), [(3_000, "deadline", 30), (420, "fit", 7)])
def test_what_a_hold_releases_while_the_host_is_quiesced_is_parked_and_compiled_at_resume(
    takes: float, why: str, minutes: int, seed: int
):
    """Also over a restart."""
    sim = overfull(after(takes), seed=seed)
    sim.advance(minutes=5)
    host_says(sim, Quiesced("surgery"))
    sim.advance(minutes=40)
    before = len(calls(sim))
    assert ([one.why for one in said(sim, HoldEnded)], at(sim, HoldEnded)) == ([why], [minutes * MINUTE])
    assert [(one.state, one.why, one.ends) for one in sim.owed()] == [
        ("gated", "the host is quiesced", "the host's resume")
    ]
    starts = len(said(sim, TurnStarted))
    sim.crash()
    sim.restart()
    sim.advance(minutes=1)
    assert (len(said(sim, TurnStarted)), len(calls(sim)), len(sim.run_until_idle().gated)) == (starts, before, 1)
    host_says(sim, Resumed())
    assert len(said(sim, TurnStarted)) == starts + 1
    assert len(calls(sim)) == before + (why == "fit")
    assert len(said(sim, Refused)) == (1 if why == "fit" else 2)
