"""The laws of an actor: one state live, restarted and offline; nothing decided twice, lost, or otherwise than it was."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from rewake.actors import snapshots
from rewake.actors.agent import agent
from rewake.actors.agent import behaviour as agents
from rewake.actors.agent.commands import Answered, Push, Returned, Start
from rewake.actors.behaviour import Behaviour, Command, Follow, Restarted, Timer
from rewake.actors.config import AgentConfig, RuntimeOptions
from rewake.actors.drain import drain
from rewake.actors.fleet import recorded_settings
from rewake.actors.gate import gate
from rewake.actors.host import Raised
from rewake.actors.incarnation import Answer, Asked, Incarnation, answer, recover
from rewake.actors.providers import ScriptedProvider, call_tool, reply, slow
from rewake.actors.providers.base import Reply
from rewake.actors.redecide import redecide
from rewake.actors.reports import Alert
from rewake.actors.simulation import Simulation
from rewake.actors.testing import assert_commutes, assert_redecides
from rewake.actors.tools import ToolContext, tool
from rewake.events import (
    ActorFailed,
    ActorParked,
    Event,
    EventTooLarge,
    Log,
    MemoryLog,
    Recorded,
    RewakeError,
    Snapshot,
    StreamMoved,
    Text,
    ToolCalled,
    ToolReturned,
    TurnCompleted,
    TurnStarted,
    Wake,
    WakeWithdrawn,
    placing,
)
from rewake.events.errors import ActorParked as Parked
from rewake.events.turns import TurnEnd
from rewake.projections import host as hosts
from tests.actors.worlds import begun, caught_up, configs, lived, offline, parts, restarted, strayed

SEEDS = st.integers(0, 2**32)


# -- one state, however it is come by


@pytest.mark.scenario("L-11")
@pytest.mark.scenario("L-19")
@settings(max_examples=200)
@given(SEEDS)
def test_a_state_is_the_same_live_after_a_restart_and_offline(seed: int):
    sim = lived(seed)
    assert strayed(sim) == []
    at = random.Random(seed).randint(0, sim.log.head())
    for stream in sim.log.streams():
        assert offline(sim.log, stream) == offline(sim.log, stream, at), stream
    assert redecide(sim.log) == []


@pytest.mark.scenario("W-18")
@settings(max_examples=60)
@given(SEEDS)
def test_every_wake_ends_once_or_is_owed_and_every_tool_returns_before_its_turn_ends(seed: int):
    sim = lived(seed, acts=30)
    owed = {one.wake for one in sim.owed()}
    for stream in sim.log.streams():
        if stream.startswith("agent/"):
            ends, wakes, cut = told(list(sim.log.read(stream=stream)))
            assert cut == []
            assert set(ends.values()) <= {1}, stream
            assert wakes - set(ends) == {one for one in owed if one.startswith(f"{stream[6:]}/")}
    sim.crash()


def told(events: list[Recorded]) -> tuple[dict[str, int], set[str], list[str]]:
    """How often each wake ended, which wakes there were, and which tools had not returned when their turn ended."""
    ends, wakes, taken, tools = dict[str, int](), set[str](), dict[str, set[str]](), dict[str, str]()
    cut: list[str] = []
    for event in (recorded.event for recorded in events):
        over: Iterable[str] = ()
        match event:
            case Wake(id=id):
                wakes.add(id)
            case TurnStarted(started, turn):
                taken.setdefault(turn, set()).update(started)
            case WakeWithdrawn(over):
                for one in taken.values():
                    one.difference_update(over)
            case ToolCalled(tool_call, turn=turn):
                tools[tool_call] = turn
            case ToolReturned(tool_call):
                del tools[tool_call]
            case _ if isinstance(event, TurnEnd):
                over = taken.pop(event.turn)
                cut += [one for one, turn in tools.items() if turn == event.turn]
            case _:
                pass
        for one in over:
            ends[one] = ends.get(one, 0) + 1
    return ends, wakes, cut


@pytest.mark.scenario("L-19")
@pytest.mark.parametrize("seed", range(8))
def test_streams_may_arrive_in_any_order(seed: int):
    log = lived(seed, acts=40).log
    for behaviour in (*(one for name in ("ada", "bob", "eve") for one in (agent(name), drain(name))), gate("scripted")):
        assert_commutes(behaviour, log, seed=seed, times=6)


def test_a_fold_of_two_streams_does_not_commute():
    """What the shuffles are there to find."""
    both = toy(evolve=lambda state, one: replace(state, last=one.stream))
    log = MemoryLog()
    log.append("toy", 0, [Wake(reason="a")])
    log.append("host", 0, [ActorFailed("x", "", 1)])
    with pytest.raises(AssertionError, match="folds otherwise"):
        assert_commutes(both, log)


@pytest.mark.scenario("L-10")
def test_100_000_events_fold_to_the_same_with_and_without_snapshots():
    log, names = MemoryLog(), [f"agent{number}" for number in range(90)]
    for name in names:
        converse(log, name, 125)
    assert log.head() > 100_000
    behaviours: list[Behaviour[Any]] = [one for name in names for one in (agent(name), drain(name))]
    log.close()
    with_snapshots = {one.stream: caught_up(Incarnation(one, log)) for one in behaviours}
    assert log.snapshots("agent/agent7")
    log.drop_snapshots()
    assert {name: snapshots.digest(state) for name, state in with_snapshots.items()} == restarted(behaviours, log)
    for stream, state in with_snapshots.items():
        assert {k: snapshots.digest(v) for k, v in parts(state, stream).items()} == offline(log, stream)


def converse(log: Log, name: str, turns: int) -> None:
    """An agent's turns, decided and recorded without a scheduler around them."""
    one = Incarnation(agent(name), log)
    settings = recorded_settings(AgentConfig(name=name, model="m"), ScriptedProvider())

    def decide(*commands: Command) -> None:
        batch = one.decide([], [Asked(said) for said in commands], one.here.at + 1_000)
        written = one.append(batch)
        one.adopt(batch, log.append(written.stream, written.expected_version, written.events))
        if kept := one.snapshot(every=300):
            log.save(kept)

    decide(Restarted(), Start(settings))
    for turn in range(turns):
        decide(Push((Text(f"question {turn}"),), 2, settings.encoding))
        call = one.state.turn.call
        assert call
        decide(Answered(call.call, Reply((Text(f"answer {turn}"),), "end_turn")))


# -- the same seed


def test_a_seed_is_a_log_byte_for_byte_and_another_another_interleaving():
    logs = [list(lived(seed, acts=30).log.raw()) for seed in (3, 3, 4)]
    assert logs[0] == logs[1]
    assert logs[0] != logs[2]


def test_another_seed_gives_the_same_streams_in_another_order():
    def streams(seed: int) -> tuple[list[str], dict[str, list[Event]]]:
        sim = Simulation(agents=configs()[:2], provider=ScriptedProvider(), seed=seed)
        sim.push("ada", "one")
        sim.push("bob", "two")
        sim.run()
        whole = sim.events()
        return [one.stream for one in whole], {
            name: [one.event for one in whole if one.stream == name] for name in sim.log.streams()
        }

    made = [streams(seed) for seed in range(6)]
    assert all(one[1] == made[0][1] for one in made)
    assert len({tuple(one[0]) for one in made}) > 1


# -- crashes, snapshots, late outcomes, timers


@pytest.mark.scenario("L-19")
def test_an_actor_without_events_takes_up_what_it_follows_from_the_first_event():
    """The drain has an empty stream at the crash; the hold that kicks it came before."""
    for seed in range(6):
        sim = begun(seed)
        sim.crash_at("drain_kicked", when="before")
        for number in range(12):
            if sim.running:
                sim.push("bob", f"{number} " * 120)
                sim.advance(seconds=200)
        assert sim.crashed
        assert sim.log.version("drain/bob") == 0
        sim.restart()
        sim.advance(minutes=40)
        assert "compressed" in sim.kinds()
        assert sim.owed() == []


@pytest.mark.scenario("L-19")
def test_a_snapshot_of_older_code_says_only_how_far_was_read():
    log = MemoryLog()
    log.append("host", 0, [ActorFailed(f"x{number}", "", 1) for number in range(5)])
    log.append("toy", 0, [Wake(reason="a")])
    log.save(Snapshot("toy", 1, 3, "older", b"what it was then"))
    here, saved, _ = recover(toy(), log, log.head())
    assert (here.read, here.state.seen, here.version, saved) == (3, 3, 1, 0)
    assert [one.seq for one in Incarnation(toy(), log).feed] == [4, 5]


@pytest.mark.scenario("L-19")
@pytest.mark.parametrize("seed", range(6))
def test_a_late_outcome_of_an_older_incarnation_is_nothing(seed: int):
    sim = Simulation(agents=configs()[:1], provider=ScriptedProvider([slow(reply("first"), seconds=9)]), seed=seed)
    receipt = sim.push("ada", "hello")
    sim.run()
    call = sim.agent("ada").turn.call
    assert call
    sim.scheduler.rebuild("agent/ada")
    sim.scheduler.deliver("agent/ada", Answered(call.call, Reply((Text("late"),), "end_turn")))
    sim.scheduler.deliver("agent/ada", Returned("ada/call/1/0", "late"))
    sim.run_until_idle()
    assert sim.reply_to(receipt) == "first"
    assert sim.kinds("ada").count("inference_completed") == 1
    assert sim.kinds("ada").count("inference_interrupted") == 1
    assert [request.step for request in sim.provider.requests] == [1, 1]


@pytest.mark.scenario("L-19")
def test_restarted_is_recorded_before_anything_is_ordered_again():
    """Else the call that the old process left open would go out before the log says that it was interrupted."""
    provider = ScriptedProvider([slow(reply("first"), seconds=9)])
    for when in ("before", "after"):
        sim = Simulation(agents=configs()[:1], provider=provider)
        sim.push("ada", "hello")
        sim.run()
        sim.crash()
        asked = len(provider.requests)
        sim.crash_at("inference_interrupted", when=when)
        sim.restart()
        assert (sim.crashed, len(provider.requests)) == (True, asked)


@pytest.mark.scenario("L-19")
def test_a_timer_that_is_answered_with_nothing_does_not_come_again():
    sim = Simulation(agents=configs()[:1], provider=ScriptedProvider())
    patient = toy(stream="patient", orders=lambda _: {("due", 7): Timer(1_767_225_605_000)})
    sim.scheduler.join(patient)
    sim.run()
    before = sim.log.head()
    sim.advance(hours=1)
    assert sim.log.head() == before
    assert sim.run_until_idle().idle


@pytest.mark.scenario("L-19")
def test_overdue_timers_come_in_the_order_of_their_times():
    wanted = {("due", name): Timer(1_767_225_600_000 + ms) for name, ms in (("c", 10), ("a", 30), ("b", 20))}
    for seed in range(8):
        sim = Simulation(agents=(), provider=ScriptedProvider(), seed=seed)
        sim.scheduler.join(toy(orders=lambda state: {k: v for k, v in wanted.items() if k[1] not in state.said}))
        sim.run()
        sim.crash()
        sim.advance(seconds=60)
        sim.restart()
        sim.scheduler.join(toy(orders=lambda state: {k: v for k, v in wanted.items() if k[1] not in state.said}))
        sim.run()
        due = [one.event.reason for one in sim.log.read(stream="toy") if isinstance(one.event, Wake)]
        assert due == ["c", "b", "a"]


# -- a toy: says what it is told, unless it is bad; follows the host


class Say(Command, frozen=True):
    text: str


class Toy(Struct, frozen=True):
    said: tuple[str, ...] = ()
    seen: int = 0
    last: str = ""


ALL = hosts.KINDS | {ActorFailed}


def folded(state: Toy, recorded: Recorded) -> Toy:
    if recorded.stream == "host":
        return replace(state, seen=recorded.version)
    return replace(state, said=(*state.said, recorded.event.reason)) if isinstance(recorded.event, Wake) else state


def accepted(state: Toy, command: Any) -> Sequence[Event]:
    match command:
        case Say(text="refused"):
            raise RewakeError("not that")
        case Say(text="now"):
            return [Wake(reason=f"at {state.seen}")]
        case Say(text):
            return [Wake(reason=text)]
        case Restarted():
            return []
        case _:
            return [Wake(reason=command.key[1])] if isinstance(command.key[1], str) else []


def answered(state: Toy, recorded: Recorded) -> Sequence[Event]:
    match recorded.event:
        case Wake(reason="bad"):
            raise ValueError("this can not be")
        case Wake(reason="deep"):
            return [Wake(reason="deeper"), Wake(reason="next")]
        case Wake(reason="deeper"):
            return [Wake(reason="deepest")]
        case _:
            return []


def toy(stream: str = "toy", **changed: Any) -> Behaviour[Toy]:
    functions: dict[str, Any] = {"evolve": folded, "accept": accepted, "react": answered, "orders": lambda _: {}}
    follows = (Follow("host", ALL, frozenset()),)
    return Behaviour(stream, Toy, Toy, **{**functions, "follows": follows, **changed})


def written(log: Log, stream: str = "toy") -> list[str]:
    return [one.event.reason for one in log.read(stream=stream) if isinstance(one.event, Wake)]


def test_what_follows_comes_before_the_next_sibling():
    sim = Simulation(agents=(), provider=ScriptedProvider())
    sim.scheduler.join(toy())
    sim.scheduler.ask("toy", Say(text="deep"))
    assert written(sim.log) == ["deep", "deeper", "deepest", "next"]
    seqs = {one.event.reason: one for one in sim.log.read(stream="toy") if isinstance(one.event, Wake)}
    causes = {reason: one.cause for reason, one in seqs.items()}
    deep, deeper = seqs["deep"].seq, seqs["deeper"].seq
    assert causes == {"deep": None, "deeper": deep, "deepest": deeper, "next": deep}


@pytest.mark.scenario("L-19")
def test_every_event_says_what_had_been_read_when_it_was_decided():
    """Two followed events in one batch: what followed from the first knew nothing of the second."""

    def reports(state: Toy, recorded: Recorded) -> Sequence[Event]:
        if recorded.stream == "host":
            return [Wake(reason=f"saw {recorded.version}")]
        return [] if len(state.said) % 2 == 0 else [Wake(reason=f"of {state.seen}")]

    log, chatty = MemoryLog(), toy(react=reports)
    log.append("host", 0, [ActorFailed("x", "", 1), ActorFailed("y", "", 1)])
    one = Incarnation(chatty, log)
    batch = one.decide(list(one.feed), [Asked(Say(text="and"))], 5)
    append = one.append(batch)
    recorded = log.append(append.stream, append.expected_version, append.events)
    assert written(log) == ["saw 1", "of 1", "saw 2", "of 2", "and", "of 2"]
    assert [one.read for one in recorded] == [1, 1, 2, 2, 2, 2]
    assert_redecides(log, chatty)


@pytest.mark.scenario("L-19")
def test_a_decision_depends_on_what_its_own_batch_has_taken_in():
    log = MemoryLog()
    log.append("host", 0, [ActorFailed("x", "", 1)])
    one = Incarnation(toy(unmoved=lambda state, events: {"host": state.seen}), log)
    append = one.append(one.decide(list(one.feed), [Asked(Say(text="now"))], 5))
    assert append.unmoved == {"host": 1}
    log.append(append.stream, 0, append.events, unmoved=append.unmoved)
    assert written(log) == ["at 1"]


# -- one that raises fails alone


@pytest.mark.scenario("L-20")
def test_of_three_commands_decided_together_only_the_second_fails():
    log, told = MemoryLog(), list[Answer | BaseException]()
    one = Incarnation(toy(), log)
    batch = one.decide([], [Asked(Say(text=text), told.append) for text in ("first", "bad", "third")], 5)
    append = one.append(batch)
    recorded = log.append(append.stream, append.expected_version, append.events)
    one.adopt(batch, recorded)
    answer(batch, recorded)
    assert written(log) == ["first", "third"]
    assert [type(what) for what in told] == [Answer, ValueError, Answer]
    assert one.state.said == ("first", "third")
    assert [failure.asked.command for failure in batch.failures if failure.asked] == [Say(text="bad")]


@pytest.mark.scenario("L-20")
@pytest.mark.parametrize("seed", range(6))
def test_a_command_that_raises_fails_alone_and_is_recorded(seed: int):
    sim, told = Simulation(agents=(), provider=ScriptedProvider(), seed=seed), list[Answer | BaseException]()
    sim.scheduler.join(toy())
    for text in ("first", "bad", "refused", "third"):
        sim.scheduler.post("toy", Asked(Say(text=text), told.append))
    sim.run()
    assert written(sim.log) == ["first", "third"]
    assert [type(what) for what in told] == [Answer, ValueError, RewakeError, Answer]
    failures = [one.event for one in sim.events() if isinstance(one.event, ActorFailed)]
    assert [(one.stream, one.command, one.count) for one in failures] == [("toy", "Say", 1)]


@pytest.mark.scenario("W-15")
@pytest.mark.parametrize("seed", range(4))
def test_an_event_that_breaks_its_actor_parks_it_and_nobody_else(seed: int):
    """A follower raises at a turn's end; after a restart with a fixed one the event is reacted to."""
    alerts: list[Alert] = []

    def breaks(state: Toy, recorded: Recorded) -> Sequence[Event]:
        if isinstance(recorded.event, TurnCompleted):
            raise KeyError("not ready for this")
        return []

    def fixed(state: Toy, recorded: Recorded) -> Sequence[Event]:
        return [Wake(reason=recorded.event.turn)] if isinstance(recorded.event, TurnCompleted) else []

    follows = (Follow("agent/ada", frozenset({TurnCompleted}), frozenset({TurnCompleted})),)
    sim = Simulation(
        agents=configs()[:2],
        provider=ScriptedProvider(),
        seed=seed,
        options=RuntimeOptions(on_alert=alerts.append),
    )
    sim.scheduler.join(toy(react=breaks, follows=follows))
    first = sim.push("ada", "hello")
    sim.run()
    failures = [one.event for one in sim.events() if isinstance(one.event, ActorFailed)]
    assert [one.count for one in failures] == [1, 2, 3]
    assert len({one.at for one in failures}) == 1
    assert [one.event.stream for one in sim.events() if isinstance(one.event, ActorParked)] == ["toy"]
    assert [one.kind for one in alerts] == ["parked"]
    with pytest.raises(Parked):
        sim.scheduler.ask("toy", Say(text="are you there?"))
    second = sim.push("bob", "and you?")
    sim.run()
    assert (sim.reply_to(first), sim.reply_to(second)) == ("echo: hello", "echo: and you?")
    sim.crash()
    sim.restart()
    sim.scheduler.join(toy(react=fixed, follows=follows))
    sim.run()
    assert written(sim.log) == ["ada/turn/4"]


@pytest.mark.scenario("W-15")
@pytest.mark.parametrize("seed", range(4))
def test_an_outcome_that_breaks_its_actor_parks_it_at_the_third_time(seed: int, monkeypatch: pytest.MonkeyPatch):
    """Each time it is rebuilt, the open call is interrupted and ordered again. Pushes in between are taken."""
    real = agents.react

    def breaks(state: Any, recorded: Recorded, *args: Any, **kwargs: Any) -> Sequence[Event]:
        if state.name == "bob" and recorded.kind == "inference_completed":
            raise KeyError("no")
        return real(state, recorded, *args, **kwargs)

    monkeypatch.setattr(agents, "react", breaks)
    sim = Simulation(agents=configs()[:2], provider=ScriptedProvider(), seed=seed)
    bob, ada = sim.push("bob", "hello"), sim.push("ada", "hello")
    sim.run()
    assert sim.kinds().count("actor_failed") == 3
    assert sim.kinds("bob").count("inference_interrupted") == 2
    with pytest.raises(Parked):
        sim.push("bob", "still there?")
    assert sim.reply_to(ada) == "echo: hello"
    assert sim.run_until_idle().owed == (bob.wake,)
    monkeypatch.undo()
    sim.stop()
    sim.restart()
    sim.run()
    assert sim.reply_to(bob) == "echo: hello"


# -- what must still be true when it is written


@pytest.mark.scenario("L-19")
def test_a_decision_true_of_the_present_is_taken_again_when_that_has_moved(monkeypatch: pytest.MonkeyPatch):
    def pinned(state: Toy, events: Sequence[Event]) -> Mapping[str, int]:
        return {"host": state.seen}

    moved = 0
    for seed in range(30):
        sim = Simulation(agents=(), provider=ScriptedProvider(), seed=seed)
        sim.scheduler.join(toy(unmoved=pinned))
        real, outcomes = sim.log.commit, list[Any]()

        def spied(appends: Any, real: Any = real, outcomes: list[Any] = outcomes) -> Any:
            outcomes += (told := real(appends))
            return told

        monkeypatch.setattr(sim.log, "commit", spied)
        for number in range(3):
            sim.scheduler.post("toy", Asked(Say(text="now")))
            sim.scheduler.post("host", Asked(Raised(f"x{number}", "", None, "Say")))
        sim.run()
        moved += sum(isinstance(one, StreamMoved) for one in outcomes)
        there, said = 0, 0
        for recorded in sim.events():
            there += recorded.stream == "host"
            if isinstance(recorded.event, Wake):
                assert recorded.event.reason == f"at {there}"
                said += 1
        assert said == 3
        assert_redecides(sim.log, toy(unmoved=pinned))
    assert moved


@pytest.mark.scenario("L-19")
def test_a_decision_that_can_never_be_written_fails_and_does_not_spin():
    sim = Simulation(agents=(), provider=ScriptedProvider())
    sim.scheduler.join(toy(unmoved=lambda state, events: {"host": 99}))
    with pytest.raises(StreamMoved):
        sim.scheduler.ask("toy", Say(text="now"))
    sim.run()
    assert "actor_failed" in sim.kinds()


# -- what the log can not take


LARGE = "x" * 60_000


@pytest.fixture
def small_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that a test can pass in no time."""
    monkeypatch.setattr(placing, "MAX_EVENT_BYTES", 50_000)


@pytest.mark.usefixtures("small_events")
def test_of_several_messages_only_the_one_that_is_too_large_fails():
    for seed in range(6):
        sim, told = Simulation(agents=(), provider=ScriptedProvider(), seed=seed), list[Answer | BaseException]()
        sim.scheduler.join(toy())
        for text in ("first", LARGE, "third"):
            sim.scheduler.post("toy", Asked(Say(text=text), told.append))
        sim.run()
        assert written(sim.log) == ["first", "third"]
        assert [type(one) for one in told] == [Answer, EventTooLarge, Answer]


@pytest.mark.usefixtures("small_events")
def test_an_outcome_that_is_too_large_becomes_the_failure_of_its_call():
    sim = Simulation(agents=configs()[:1], provider=ScriptedProvider([slow(reply("well"), seconds=5)] * 2))
    receipt = sim.push("ada", "hello")
    sim.run()
    call = sim.agent("ada").turn.call
    assert call
    sim.scheduler.deliver("agent/ada", Answered(call.call, Reply((Text(LARGE),), "end_turn")))
    sim.run_until_idle()
    (failed,) = [one.event for one in sim.events("ada") if one.kind == "inference_failed"]
    assert "50,000" in str(getattr(failed, "error", ""))
    assert sim.reply_to(receipt) == "well"


@pytest.mark.usefixtures("small_events")
def test_a_tool_result_that_is_too_large_becomes_an_error_for_the_model():
    asked = [call_tool("wait", id="c1"), reply("I see")]

    @tool
    async def wait() -> str:
        """Takes its time."""
        await asyncio.sleep(60)
        return "done"

    ada = AgentConfig(name="ada", model="m", tools=(wait,))
    sim = Simulation(agents=[ada], provider=ScriptedProvider(asked))
    receipt = sim.push("ada", "hello")
    sim.run()
    (waits,) = sim.agent("ada").turn.tools
    sim.scheduler.deliver("agent/ada", Returned(waits.id, LARGE))
    sim.run_until_idle()
    assert sim.reply_to(receipt) == "I see"
    (returned,) = [one.event for one in sim.events("ada") if isinstance(one.event, ToolReturned)]
    assert returned.is_error
    assert "50,000" in returned.result


# -- calls from inside, and crashes there


@pytest.mark.parametrize("seed", range(6))
def test_a_tool_may_push_to_its_own_agent(seed: int):
    @tool
    def remind(context: ToolContext) -> str:
        """Push to oneself."""
        return str(context.runtime.push(context.agent, "do not forget").wake)

    ada = AgentConfig(name="ada", model="m", tools=(remind,))
    script = [[call_tool("remind", id="a"), call_tool("remind", id="b")], reply("done"), reply("I did not")]
    sim = Simulation(agents=[ada], provider=ScriptedProvider(script), seed=seed)
    receipt = sim.push("ada", "hello")
    sim.run_until_idle()
    assert sim.reply_to(receipt) == "done"
    assert sim.kinds("ada").count("turn_completed") == 2
    assert sim.owed() == []


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("sync", [True, False])
def test_a_crash_inside_a_tool_is_a_crash(when: Any, sync: bool):
    """Whatever the tool does with what is raised in it, nothing of the dead process goes on."""

    def pushed(context: ToolContext) -> str:
        """Push to another."""
        try:
            context.runtime.push("bob", "from a tool")
        except BaseException:
            context.runtime.push("bob", "from the dead")
        return "done"

    async def awaited(context: ToolContext) -> str:
        """Push to another."""
        return pushed(context)

    ada = AgentConfig(name="ada", model="m", tools=(tool(name="ask")(pushed if sync else awaited),))
    bob = AgentConfig(name="bob", model="m")

    def script(request: Any) -> Any:
        return call_tool("ask") if request.agent == "ada" and request.step == 1 else reply("ok")

    sim = Simulation(agents=[ada, bob], provider=ScriptedProvider(script))
    sim.crash_at("message_added", nth=3, when=when)
    sim.push("ada", "hello")
    sim.run()
    assert sim.crashed
    assert sim.kinds("bob")[1:3] == ([] if when == "before" else ["message_added", "wake"])
    sim.restart()
    sim.run_until_idle()
    assert sim.owed() == []
    assert not any("dead" in text for text in said_to(sim, "bob"))
    assert "interrupted" in str([message.blocks for message in sim.agent("ada").conversation.messages])


def said_to(sim: Simulation, name: str) -> list[str]:
    return [message.text for message in sim.agent(name).conversation.messages if message.role == "user"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "kind", ["message_added", "agent_started", "host_started", "host_stopped", "turn_completed", "*"]
)
def test_the_call_in_which_a_crash_goes_off_ends_without_an_exception(kind: str, when: Any):
    sim = begun(1)
    sim.crash_at(kind, when=when)
    calls = [
        lambda: sim.push("ada", "hello"),
        lambda: sim.run_until_idle(),
        lambda: sim.stop(),
        lambda: sim.restart(),
    ]
    for call in calls:
        if not sim.crashed:
            told = call()
            assert told is None or not sim.crashed
    assert sim.crashed or kind == "agent_started"
    sim.crash()
    sim.restart()
    sim.run_until_idle()
    assert sim.owed() == []


def test_waiting_for_what_never_happens_ends():
    sim = begun(1)
    receipt = sim.push("ada", "hello")
    sim.shift_clock(0.0005)
    sim.run_until_idle(timeout=0.0001)
    sim.crash()
    sim.shift_clock(0.0004)
    sim.restart()
    assert sim.result(receipt).ended
    assert sim.result(sim.push("ada", "again"), timeout=0).state in ("owed", "completed", "exhausted")
