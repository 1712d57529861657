"""A lowered budget is come down to compile by compile; a preview says what the next one would give."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from rewake.actors import AgentConfig, BudgetInfeasible, InvalidSetting, Runtime
from rewake.actors.providers import ScriptedProvider, reply
from rewake.actors.simulation import Simulation
from rewake.events import Compiled, SettingChanged
from rewake.projections.plan import Plan, Refusal

PACE = 8_000
LOWER = 56_000
"""What a budget of 60,000 leaves for the conversation."""


def words(tokens: int) -> str:
    return " word" * tokens


def grown(turns: int = 30, **config: Any) -> Simulation:
    """An agent with 3,000 tokens of history a turn, most of it with summaries, within a budget of 100,000."""
    given: dict[str, Any] = {
        "max_tokens": 4_000,
        "context_budget_tokens": 100_000,
        "recent_window_tokens": 12_000,
        "transition_pace_tokens": PACE,
        "target_chunk_tokens": 3_000,
    }
    ada = AgentConfig(name="ada", model="m", **(given | config))
    sim = Simulation(agents=[ada], provider=ScriptedProvider(lambda _: reply(words(1_000))))
    for _ in range(turns):
        sim.push("ada", words(2_000))
        sim.advance(seconds=20)
    return sim


def asked(sim: Simulation) -> str | None:
    receipt = sim.push("ada", "And?")
    sim.run_until_idle()
    return sim.reply_to(receipt)


def changes(sim: Simulation) -> list[tuple[str, Any]]:
    events = [one.event for one in sim.events("ada")]
    return [(one.path, one.new) for one in events if isinstance(one, SettingChanged)]


def compiles(sim: Simulation) -> list[Compiled]:
    return [one.event for one in sim.events("ada") if isinstance(one.event, Compiled)]


def folded_anew(sim: Simulation) -> list[int]:
    """For each compile, what the messages that it newly shows by summaries took before, priced at multiplier 1.

    Summaries merged are not counted: they are short.
    """
    conversation = sim.state("conversation", "ada")
    raw = set(conversation.places)
    found: list[int] = []
    for compiled in compiles(sim):
        now: set[str] = set()
        for stretch in compiled.plan:
            if stretch.level:
                span = range(conversation.places[stretch.first], conversation.places[stretch.last] + 1)
                now |= {conversation.messages[place].id for place in span}
        found.append(sum(conversation.messages[conversation.places[id]].tokens for id in now & raw))
        raw -= now
    return found


@pytest.mark.scenario("C-20")
def test_a_lowered_budget_is_come_down_to_within_the_pace_and_a_restart_goes_on():
    sim = grown()
    before = len(compiles(sim))
    found = sim.configure("ada", context_budget_tokens=60_000)
    assert (found.fits, found.live_room, found.target_room) == (True, 96_000, LOWER)
    live = [96_000]
    for number in range(20):
        expected = sim.preview("ada")
        assert asked(sim)
        compiled = compiles(sim)[-1]
        assert isinstance(expected, Plan)
        assert compiled.folded == expected.folded
        assert compiled.tokens <= compiled.room * 1.02
        after = sim.preview("ada")
        assert after.live_room is not None
        live.append(after.live_room)
        if number == 2:
            assert LOWER < after.live_room < 96_000
            assert after.target_room == LOWER
            sim.crash()
            sim.restart()
            assert sim.preview("ada") == after
        if after.live_room == LOWER:
            break
    assert len(live) > 4
    assert live == sorted(live, reverse=True)
    assert live[-1] == LOWER
    assert sim.state("settings", "ada").target is None
    assert "refused" not in sim.kinds("ada")
    assert max(folded_anew(sim)[before:]) <= PACE
    assert {path for path, _ in changes(sim)} == {"paced", "step"}


def test_a_pace_smaller_than_a_fold_is_one_fold_a_compile():
    sim = grown(transition_pace_tokens=0)
    sim.configure("ada", context_budget_tokens=60_000)
    folded = [compiles(sim)[-1].folded]
    while sim.state("settings", "ada").target is not None:
        assert asked(sim)
        folded.append(compiles(sim)[-1].folded)
    steps = [after - before for before, after in pairwise(folded)]
    assert len(steps) > 5
    assert set(steps[:-1]) <= {1, 2}


def test_a_compile_that_makes_a_step_sends_one_request():
    sim = grown()
    sim.configure("ada", context_budget_tokens=60_000)
    sent = len(sim.provider.requests)
    assert asked(sim)
    assert len([one for one in sim.provider.requests[sent:] if one.purpose == "turn"]) == 1


def test_what_fits_with_nothing_read_again_waits_for_no_compile():
    sim = grown(1)
    found = sim.configure("ada", context_budget_tokens=60_000)
    assert (found.live_room, found.target_room) == (LOWER, LOWER)
    assert changes(sim) == [("paced", 60_000), ("step", 60_000)]


def test_a_raise_drops_what_was_being_come_down_to():
    sim = grown()
    sim.configure("ada", context_budget_tokens=60_000)
    assert asked(sim)
    live = sim.state("settings", "ada").live.context_budget_tokens
    sim.configure("ada", context_budget_tokens=live)
    assert sim.state("settings", "ada").target is None
    sim.configure("ada", context_budget_tokens=50_000)
    sim.configure("ada", context_budget_tokens=200_000)
    state = sim.state("settings", "ada")
    assert (state.live.context_budget_tokens, state.target) == (200_000, None)


def test_no_budget_is_a_lowering_from_a_larger_one():
    sim = grown(60, context_budget_tokens=200_000)
    sim.configure("ada", context_budget_tokens=None)
    assert sim.state("settings", "ada").target == 100_000
    while sim.state("settings", "ada").target is not None:
        assert asked(sim)
    assert sim.preview("ada").live_room == 96_000


def test_an_immediate_cut_that_does_not_fit_is_refused_with_its_numbers():
    sim = grown()
    head = sim.log.head()
    with pytest.raises(BudgetInfeasible, match="8,000") as refused:
        sim.configure("ada", context_budget_tokens=12_000, immediate=True)
    assert sim.log.head() == head
    error = refused.value
    assert (error.room, error.bound, error.binding) == (8_000, 8_160, "budget")
    assert error.tokens > 8_160 > error.mandatory
    with pytest.raises(BudgetInfeasible, match="window would leave room for 5,000") as refused:
        sim.configure("ada", physical_window_tokens=9_000, immediate=True)
    assert (refused.value.window_room, refused.value.binding) == (5_000, "window")
    assert sim.log.head() == head
    found = sim.configure("ada", context_budget_tokens=12_000, immediate=True, allow_infeasible=True)
    assert isinstance(found, Refusal)
    assert (found.live_room, found.target_room) == (8_000, 8_000)
    sim.push("ada", "Hi.")
    sim.run()
    assert "held" in sim.kinds("ada")


def test_a_preview_commits_nothing_and_prices_the_window():
    sim = grown(2)
    head = sim.log.head()
    assert sim.preview("ada").fits
    for window in (4_000, 3_999, 2_000):
        full = sim.preview("ada", physical_window_tokens=window)
        assert isinstance(full, Refusal)
        assert (full.why, full.window_room) == ("window_full", window - 4_000)
    assert sim.preview("ada", physical_window_tokens=40_000).window_room == 36_000
    narrow = sim.preview("ada", context_budget_tokens=5_000)
    assert (narrow.fits, narrow.room, narrow.live_room, narrow.target_room) == (False, 1_000, 96_000, 1_000)
    assert sim.log.head() == head


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"context_budget_tokens": -1}, "-1.*more than max_tokens = 4,000"),
        ({"context_budget_tokens": 0}, "0.*more than max_tokens = 4,000"),
        ({"context_budget_tokens": 4_000}, "4000.*more than max_tokens = 4,000"),
        ({"max_tokens": 100_000}, "100000.*more than max_tokens = 100,000"),
        ({"max_tokens": 0}, "at least 1"),
        ({"physical_window_tokens": 0}, "at least 1"),
        ({"physical_window_tokens": -1}, "at least 1"),
        ({"compression_window_tokens": 0}, "at least 1"),
        ({"recent_window_tokens": -1}, "at least 0"),
        ({"transition_pace_tokens": -1}, "at least 0"),
        ({"encoding": "klingon"}, "can not change"),
        ({"nonsense": 1}, "no such setting"),
    ],
)
def test_what_can_not_be_is_refused_alike_by_a_preview_and_a_change(change: dict[str, Any], why: str):
    sim = grown(0)
    head = sim.log.head()
    for call in (sim.preview, sim.configure):
        with pytest.raises(InvalidSetting, match=why):
            call("ada", **change)
    assert sim.log.head() == head


def test_a_larger_reply_is_refused_while_a_budget_comes_down_below_it():
    sim = grown()
    sim.configure("ada", context_budget_tokens=60_000)
    with pytest.raises(InvalidSetting, match=r"60000.*more than max_tokens = 60,000"):
        sim.configure("ada", max_tokens=60_000)
    sim.configure("ada", max_tokens=5_000)
    assert sim.preview("ada").target_room == 55_000


@pytest.mark.parametrize("larger", [60_000, 150_000])
def test_a_later_configuration_whose_reply_is_larger_than_what_was_configured_opens(larger: int):
    """What was configured of the budget gives way: the log opens, and the agent answers."""
    sim = grown(context_budget_tokens=None)
    sim.configure("ada", context_budget_tokens=90_000, immediate=True)
    sim.configure("ada", context_budget_tokens=60_000)
    sim.stop()
    sim.restart(agents=[AgentConfig(name="ada", model="m", max_tokens=larger)])
    state = sim.state("settings", "ada")
    assert (state.live.max_tokens, state.target) == (larger, None)
    assert state.live.context_budget_tokens == (90_000 if larger < 90_000 else None)
    assert asked(sim)


def test_a_later_configuration_whose_budget_is_smaller_than_the_reply_that_was_configured_opens():
    sim = grown(1)
    sim.configure("ada", max_tokens=50_000)
    sim.stop()
    ada = AgentConfig(name="ada", model="m", max_tokens=4_000, context_budget_tokens=40_000)
    sim.restart(agents=[ada])
    live = sim.state("settings", "ada").live
    assert (live.max_tokens, live.context_budget_tokens) == (4_000, 40_000)
    assert asked(sim)


def test_a_runtime_previews_and_paces_too():
    ada = AgentConfig(name="ada", model="m", max_tokens=1_000, context_budget_tokens=50_000)
    with Runtime(":memory:", provider=ScriptedProvider(), agents=[ada]) as runtime:
        runtime.push("ada", words(3_000))
        assert runtime.run_until_idle(30).idle
        assert not runtime.preview("ada", context_budget_tokens=2_000).fits
        found = runtime.configure("ada", context_budget_tokens=3_000)
        assert (found.live_room, found.target_room) == (49_000, 2_000)
