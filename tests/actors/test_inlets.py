"""Whatever comes in, by whichever inlet: lone surrogates, NUL, integers of more than 64 bits, values of other types."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewake.actors import Context, EndTurn
from rewake.actors.config import AgentConfig
from rewake.actors.providers import ScriptedProvider, ServerError, call_tool, reply
from rewake.actors.providers.base import Reply
from rewake.actors.simulation import Simulation
from rewake.actors.tools import tool
from rewake.events import (
    Document,
    Image,
    InferenceFailed,
    MemoryLog,
    Reasoning,
    RewakeError,
    Text,
    ToolCall,
    ToolReturned,
    Usage,
)
from rewake.projections import verify
from rewake.projections.exchange import export
from rewake.projections.tables import tables

TEXTS = st.text(st.sampled_from("ab\x00é月\U0001f600\ud800\udfff \n"), max_size=6)
NUMBERS = st.sampled_from([0, -1, 2**53 + 1, 2**63, -(2**70), 10**30, True, 1.5, float("nan")])
VALUES = st.recursive(
    TEXTS | NUMBERS | st.none() | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
COUNTS = st.builds(Usage, *[st.sampled_from([0, 7, -3, 2**53, 2**80])] * 4)
BLOCKS = st.one_of(
    st.builds(Text, TEXTS),
    st.builds(ToolCall, TEXTS, TEXTS | st.just("look"), st.dictionaries(TEXTS, VALUES, max_size=2)),
    st.builds(ToolCall, st.just("c"), st.just("look"), st.fixed_dictionaries({"n": NUMBERS})),
    st.builds(Reasoning, TEXTS, TEXTS),
)
REPLIES = st.builds(
    Reply, st.lists(BLOCKS, max_size=3).map(tuple), TEXTS | st.just("end_turn"), COUNTS, st.lists(TEXTS).map(tuple)
)


def sound(sim: Simulation) -> None:
    """Nothing of it has broken an actor or the log: every event is read, written and tabled."""
    assert not {"actor_failed", "actor_parked"} & set(sim.kinds())
    assert isinstance(sim.log, MemoryLog)
    sim.log._events = [None] * len(sim.log._events)  # as another process reads them
    assert verify(sim.log).ok
    assert [msgspec.json.decode(line) for line in export(sim.log)]
    assert not [one.why for one in sim.owed() if not one.why]


@given(
    answer=REPLIES,
    result=VALUES | st.builds(EndTurn, VALUES),
    raises=st.booleans(),
    context=st.tuples(TEXTS, TEXTS, TEXTS),
    error=TEXTS,
    summary=st.builds(Text, TEXTS),
)
@settings(max_examples=60)
def test_whatever_the_world_answers_is_recorded_or_is_a_failure_of_that_alone(
    answer: Reply, result: Any, raises: bool, context: tuple[str, str, str], error: str, summary: Text
):
    """An agent that met it is answered the next time."""

    @tool
    def look(n: int = 0) -> Any:
        """Gives whatever there is."""
        if raises:
            raise ValueError(error)
        return result

    asked = 0

    def facts(turn: Any) -> Context:
        nonlocal asked
        asked += 1
        return Context(system=context[0], tail=context[1], before=[context[2]]) if asked == 1 else Context()

    items = iter([[call_tool("look")], answer, None])

    def script(request: Any) -> Any:
        if (item := next(items, "fine")) is None:
            raise ServerError(error, emitted=error)
        return item

    provider = ScriptedProvider(script, strict=False, summarize=lambda _: Reply((summary,), usage=answer.usage))
    small: Any = {"max_tokens": 50, "recent_window_tokens": 20, "target_chunk_tokens": 20}
    sim = Simulation(
        agents=[AgentConfig(name="ada", model="m", tools=[look], context=facts, **small)], provider=provider
    )
    for _ in range(3):  # a tool that ends its turn leaves the answer to the next one
        sim.push("ada", "hello " * 50)
        sim.run_until_idle(timeout=600)
    last = sim.push("ada", "and now?")
    sim.run_until_idle(timeout=600)
    assert sim.result(last, 0).state == "completed"
    assert (sim.result(last, 0).text or "").endswith("fine")
    sound(sim)
    sim.crash()


SAID = st.one_of(
    TEXTS,
    st.builds(Text, TEXTS | NUMBERS),
    st.builds(Image, TEXTS, TEXTS, TEXTS | NUMBERS),
    st.lists(st.builds(Document, TEXTS, TEXTS, TEXTS, TEXTS), max_size=2),
    VALUES,
)
ANY = VALUES | st.none()


@given(data=st.data())
@settings(max_examples=100)
def test_whatever_a_person_says_is_taken_whole_or_refused_with_nothing_appended(data: st.DataObject):
    sim = Simulation(agents=[AgentConfig(name="ada", model="m")], provider=ScriptedProvider(lambda _: reply("ok")))
    draw: Any = data.draw
    calls: list[Any] = [
        lambda: sim.push(
            "ada",
            draw(SAID),
            channel=draw(ANY),
            author=draw(ANY),
            dedupe_key=draw(ANY),
            addressed=draw(st.booleans() | ANY),
            wake=draw(st.booleans() | ANY),
        ),
        lambda: sim.wake("ada", draw(VALUES), channel=draw(ANY), wake_at=draw(ANY), silent=draw(ANY)),
        lambda: sim.configure("ada", **{draw(st.sampled_from(["model", "max_tokens"])): draw(VALUES)}),
        lambda: sim.start(AgentConfig(name="bob", model=draw(TEXTS), system=draw(VALUES), max_tokens=draw(NUMBERS))),
        lambda: sim.dispose("ada", reason=draw(VALUES)),
        lambda: sim.release("scripted", draw(ANY), by=draw(ANY)),
        lambda: sim.run_once(AgentConfig(name="run", model="m"), draw(SAID)),
    ]
    for call in draw(st.lists(st.sampled_from(calls), min_size=1, max_size=4)):
        head = sim.log.head()
        try:
            call()
        except RewakeError:
            assert sim.log.head() == head
        sim.run()
    sound(sim)
    sim.crash()


def failures(answer: Any) -> list[InferenceFailed]:
    sim = Simulation(agents=[AgentConfig(name="ada", model="m")], provider=ScriptedProvider([answer] * 4, strict=False))
    sim.push("ada", "hello")
    sim.run_until_idle()
    return [one.event for one in sim.events("ada") if isinstance(one.event, InferenceFailed)]


@pytest.mark.parametrize(
    ("block", "why"),
    [
        (ToolCall("c", "look", {"what": "a\ud800"}), "it has a lone surrogate at 1"),
        (ToolCall("c", "look", {"what": object()}), "Encoding objects of type object is unsupported"),
    ],
)
def test_an_answer_that_can_not_be_recorded_is_a_failure_that_says_why(block: ToolCall, why: str):
    failed = failures(Reply((block,)))
    assert len(failed) == 4
    assert {one.error.told for one in failed} == {f"InvalidContent: the answer can not be recorded: {why}"}


def test_a_result_that_can_not_be_encoded_is_an_error_result_and_large_integers_are_data(tmp_path: Path):
    @tool
    def look(n: int = 0) -> Any:
        """Gives it back, or what no text can have."""
        return n if n else {"name": "a\ud800"}

    large = 2**80
    answers = [[call_tool("look"), call_tool("look", {"n": large})], "ok"]
    sim = Simulation(agents=[AgentConfig(name="ada", model="m", tools=[look])], provider=ScriptedProvider(answers))
    receipt = sim.push("ada", "hello")
    sim.run_until_idle()
    assert sim.result(receipt).text == "ok"
    returned = [one.event for one in sim.events("ada") if isinstance(one.event, ToolReturned)]
    assert sorted((one.is_error, one.result[:32]) for one in returned) == [
        (False, str(large)),
        (True, "the result can not be encoded: '"),
    ]
    tables(sim.log, str(tmp_path / "tables.db"))
    with closing(sim.log):
        sound(sim)
