"""Wakes: accepted durably or refused, told apart by their keys alone, each answered by one turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewake.actors.config import AgentConfig
from rewake.actors.providers import ScriptedProvider, reply, server_error, slow
from rewake.actors.simulation import EPOCH, Simulation
from rewake.events import Event, MessageAdded, TurnCompleted, TurnStarted, UnknownAgent, Wake
from rewake.events.turns import TURN_ENDS

Simulate = Callable[..., Simulation]
E = TypeVar("E", bound=Event)


def those(simulation: Simulation, kind: type[E], agent: str = "ada") -> list[E]:
    """The events of that kind in an agent's stream."""
    return [recorded.event for recorded in simulation.events(agent) if isinstance(recorded.event, kind)]


def busily(request: Any) -> Any:
    """A script: every answer takes two seconds."""
    return slow(reply("done"), seconds=2)


def crash(simulation: Simulation) -> None:
    simulation.crash()
    simulation.restart()


def stop(simulation: Simulation) -> None:
    simulation.stop()
    simulation.restart()


def nothing(simulation: Simulation) -> None:
    """The process goes on."""


@pytest.mark.scenario("W-02")
@pytest.mark.parametrize("between", [nothing, crash, stop])
def test_a_key_seen_in_the_last_seven_days_gives_its_first_receipt(simulate: Simulate, between: Any):
    simulation = simulate()
    first = simulation.push("ada", "hello", dedupe_key="k")
    assert simulation.push("ada", "hello", dedupe_key="k") == first
    simulation.run_until_idle()
    between(simulation)
    assert simulation.push("ada", "hello", dedupe_key="k") == first
    simulation.advance(days=6)
    between(simulation)
    assert simulation.push("ada", "other words", dedupe_key="k") == first
    simulation.run_until_idle()
    assert [len(those(simulation, kind)) for kind in (Wake, TurnStarted)] == [1, 1]
    assert [message.role for message in those(simulation, MessageAdded)] == ["user", "assistant"]


@pytest.mark.scenario("W-02")
@pytest.mark.parametrize("between", [nothing, crash])
def test_after_eight_days_a_key_is_new_again(simulate: Simulate, between: Any):
    simulation = simulate()
    first = simulation.push("ada", "hello", dedupe_key="k")
    simulation.advance(days=8)
    between(simulation)
    second = simulation.push("ada", "hello", dedupe_key="k")
    assert second != first
    assert simulation.push("ada", "hello", dedupe_key="k") == second
    simulation.run_until_idle()
    assert len(those(simulation, TurnCompleted)) == 2


@pytest.mark.scenario("W-02")
def test_a_key_is_one_agents_and_nothing_without_a_key_is_the_same(simulate: Simulate):
    simulation = simulate(agents=("ada", "bob"))
    receipts = [simulation.push(agent, "hello", dedupe_key="k") for agent in ("ada", "bob")]
    receipts += [simulation.push("ada", "hello") for _ in range(3)]
    receipts += [simulation.push("ada", "a note", wake=False, dedupe_key=key) for key in ("k", "note", "note")]
    assert receipts[-3] == receipts[0]
    assert receipts[-2] == receipts[-1]
    assert len(set(receipts)) == 6


def test_a_receipt_is_found_again_by_its_wake(simulate: Simulate):
    simulation = simulate()
    receipts = [simulation.push("ada", "hello"), simulation.wake("ada", "tick")]
    simulation.run_until_idle()
    crash(simulation)
    assert [simulation.receipt(receipt.wake) for receipt in receipts if receipt.wake] == receipts


@pytest.mark.scenario("W-03")
def test_what_arrives_while_a_turn_runs_is_one_more_turn(simulate: Simulate):
    simulation = simulate(busily)
    simulation.push("ada", "begin")
    simulation.advance(seconds=1)
    wakes = tuple(simulation.push("ada", f"message {n}").wake for n in range(100))
    simulation.run_until_idle()
    assert [turn.wakes for turn in those(simulation, TurnStarted)][1:] == [wakes]
    said = [block.text for message in simulation.provider.requests[-1].messages for block in message.blocks]
    assert said[-100:] == [f"message {n}" for n in range(100)]


@pytest.mark.scenario("W-04")
@pytest.mark.parametrize(
    ("wakes", "channel", "addressed"),
    [
        ([("first", True, 200), ("late", True, 100), ("ambient", False, 300)], "first", True),
        ([("first", False, 200), ("late", False, 100)], "first", False),
        ([("ambient", False, 100), (None, True, 200)], "ambient", False),
        ([("one", True, 100), ("other", True, 100)], "other", True),
        ([(None, True, 100), (None, False, 200)], None, True),
    ],
)
def test_a_turns_channel_is_that_of_the_latest_addressed_wake(
    simulate: Simulate, wakes: Any, channel: str | None, addressed: bool
):
    simulation = simulate(busily)
    simulation.push("ada", "begin")
    simulation.advance(seconds=1)
    for at, addressee, when in wakes:
        simulation.wake("ada", "said", channel=at, addressed=addressee, wake_at=EPOCH + when)
    simulation.run_until_idle()
    turn = those(simulation, TurnStarted)[1]
    assert (turn.channel, turn.addressed, len(turn.wakes)) == (channel, addressed, len(wakes))


def test_silence_is_kept_only_where_every_wake_is_silent(simulate: Simulate):
    simulation = simulate(busily)
    for silences in ([True, True], [True, False]):
        simulation.push("ada", "begin")
        simulation.advance(seconds=1)
        for silent in silences:
            simulation.wake("ada", "heartbeat", silent=silent)
        simulation.run_until_idle()
    assert [turn.silent for turn in those(simulation, TurnStarted)] == [False, True, False, False]


@pytest.mark.scenario("W-17")
@pytest.mark.parametrize("seed", range(10))
def test_wakes_of_several_kinds_are_taken_in_the_order_of_their_coming(simulate: Simulate, seed: int):
    simulation = simulate(busily, seed=seed)
    simulation.push("ada", "begin")
    simulation.advance(seconds=1)
    wakes = (
        simulation.wake("ada", "a").wake,
        simulation.push("ada", "b").wake,
        simulation.wake("ada", "b", wake_at=EPOCH - 1).wake,
        simulation.wake("ada", "a").wake,
    )
    simulation.run_until_idle()
    assert those(simulation, TurnStarted)[1].wakes == wakes


@pytest.mark.scenario("W-18")
@pytest.mark.parametrize("seed", [1, 2])
def test_two_thousand_wakes_of_five_hundred_agents_end_once_each(simulate: Simulate, seed: int):
    names = tuple(f"agent-{n}" for n in range(500))
    simulation = simulate(busily, agents=names, seed=seed)
    for round in range(4):
        for name in names:
            simulation.wake(name, f"round {round}")
        simulation.advance(seconds=0.5)
    report = simulation.run_until_idle()
    assert (report.idle, report.owed) == (True, ())
    assert len(simulation.owed()) == 0
    assert Counter(ended_in(simulation)) == Counter(wake.id for name in names for wake in those(simulation, Wake, name))


@pytest.mark.scenario("W-20")
def test_an_agent_that_does_not_exist_takes_nothing(simulate: Simulate):
    simulation = simulate()
    head = simulation.log.head()
    for call in (simulation.push, simulation.wake):
        with pytest.raises(UnknownAgent):
            call("grace", "hello")
    simulation.run()
    assert simulation.log.head() == head
    assert simulation.push("ada", "hello").seq == head + 1


@pytest.mark.scenario("W-23")
def test_a_slot_costs_one_turn_however_often_its_timer_fires(simulate: Simulate):
    simulation = simulate()
    slot = {"dedupe_key": "report/2026-01-02", "wake_at": EPOCH + 24 * 3_600_000}
    first = simulation.wake("ada", "report", **slot)
    assert simulation.wake("ada", "report", **slot) == first
    simulation.crash()
    simulation.advance(hours=24)
    simulation.restart()
    assert simulation.wake("ada", "report", **slot) == first
    simulation.run_until_idle()
    turns = [recorded for recorded in simulation.events("ada") if recorded.kind == "turn_started"]
    assert [turn.at for turn in turns] == [EPOCH]
    assert those(simulation, Wake)[0].wake_at == EPOCH + 24 * 3_600_000


def ended_in(simulation: Simulation) -> list[str]:
    """Every wake that an ended turn had taken, once for each such turn."""
    took: dict[str, tuple[str, ...]] = {}
    ended: list[str] = []
    for recorded in simulation.events():
        event: Any = recorded.event
        if isinstance(event, TurnStarted):
            took[event.turn] = event.wakes
        elif type(event) in TURN_ENDS:
            ended += took[event.turn]
    return ended


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """What may happen to two agents in a while."""
    agent = st.sampled_from(["ada", "bob"])
    key = st.sampled_from([None, None, "k", "l"])
    act = st.one_of(
        st.tuples(st.just("push"), st.tuples(agent, key)),
        st.tuples(st.just("wake"), st.tuples(agent, key)),
        st.tuples(st.just("wait"), st.sampled_from([0.5, 1, 5, 30])),
        st.tuples(st.just("crash"), st.booleans()),
        st.tuples(st.just("stop"), st.booleans()),
    )
    return draw(st.lists(act, max_size=25))


@given(histories(), st.integers(0, 2**16), st.lists(st.sampled_from("aaaef"), min_size=1, max_size=8))
@settings(max_examples=80)
def test_every_wake_ends_once_or_is_owed_and_none_is_taken_twice(acts: list[tuple[str, Any]], seed: int, fates: str):
    """Through answers, failures, crashes and stops, in any interleaving."""
    calls = iter(range(10_000))
    words = {"a": "fine", "e": server_error(), "f": slow(reply("late"), seconds=3)}
    provider = ScriptedProvider(lambda request: words[fates[next(calls) % len(fates)]])
    agents = [AgentConfig(name=name, model="m") for name in ("ada", "bob")]
    simulation = Simulation(agents=agents, provider=provider, seed=seed)
    receipts: dict[Any, Any] = {}
    for act, said in acts:
        if act in ("push", "wake"):
            agent, key = said
            receipt = getattr(simulation, act)(agent, "hello", dedupe_key=key)
            assert receipts.setdefault((agent, key) if key else len(receipts), receipt) == receipt
        elif act == "wait":
            simulation.advance(seconds=said)
        else:
            getattr(simulation, act)()
            if said:
                simulation.advance(seconds=10)
            simulation.restart()
        wakes = Counter(wake.id for name in ("ada", "bob") for wake in those(simulation, Wake, name))
        assert Counter([*ended_in(simulation), *(one.wake for one in simulation.owed())]) == wakes
    assert simulation.run_until_idle().idle
    assert sorted(ended_in(simulation)) == sorted(receipt.wake for receipt in receipts.values())
    simulation.crash()
