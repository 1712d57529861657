"""A log is decided again: by today's code as it was, by changed code with the first difference named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tenacity import stop_after_attempt, stop_never, wait_fixed, wait_random

from rewake.actors import snapshots
from rewake.actors.agent import agent, holding
from rewake.actors.agent import behaviour as agents
from rewake.actors.config import AgentConfig
from rewake.actors.policy import ErrorPolicy
from rewake.actors.providers import ScriptedProvider, overflow, reply, server_error
from rewake.actors.redecide import Difference, redecide
from rewake.actors.simulation import Simulation
from rewake.actors.testing import assert_redecides, folded, streams_of
from rewake.events import Event, HoldLooked, InvalidSetting, Recorded
from tests.actors.worlds import lived

PATIENT = ErrorPolicy(stop=stop_after_attempt(9), wait=wait_fixed(7))


class Hasty(ErrorPolicy):
    """A policy that a log can name."""

    def __init__(self) -> None:
        super().__init__(stop=stop_after_attempt(2), wait=wait_fixed(3))


@pytest.fixture(scope="module")
def log() -> Any:
    """A life in which a turn was held, and tools ran."""
    lives = (lived(seed) for seed in range(40))
    return next(sim.log for sim in lives if {"held", "tool_called"} <= set(sim.kinds()))


@pytest.mark.scenario("L-12")
@pytest.mark.parametrize("seed", range(12))
def test_todays_code_decides_a_log_as_it_was_decided(seed: int):
    assert redecide(lived(seed, acts=40).log) == []


@pytest.mark.scenario("L-13")
def test_a_changed_decision_is_named_with_both_answers(log: Any, monkeypatch: pytest.MonkeyPatch):
    refused = next(one for one in log.read() if one.kind == "refused")
    with monkeypatch.context() as changed:
        changed.setattr(holding, "may_hold", lambda *_: False)
        found = redecide(log)
    first = found[0]
    assert (first.seq, first.stream) == (refused.seq, refused.stream)
    assert '"kind":"held"' in first.recorded[0]
    assert '"kind":"retry_scheduled"' in first.now[0]
    assert {one.stream for one in found} == {refused.stream}
    assert redecide(log, stream="drain/bob") == []
    bob = agent("bob")
    known = [
        one
        for stream in streams_of(bob, log)
        for one in stream
        if one.seq <= (refused.seq if one.stream == refused.stream else refused.read)
    ]
    assert first.state == snapshots.digest(folded(bob, known))


@pytest.mark.scenario("L-13")
def test_an_answer_to_what_nothing_followed_from_is_found(log: Any, monkeypatch: pytest.MonkeyPatch):
    real = agents.react

    def talkative(state: Any, recorded: Recorded, *args: Any, **kwargs: Any) -> Sequence[Event]:
        answer = real(state, recorded, *args, **kwargs)
        return [*answer, HoldLooked("x", (), 0)] if recorded.kind == "compressed" else answer

    compressed = [one.seq for one in log.read() if one.kind == "compressed"]
    with monkeypatch.context() as changed:
        changed.setattr(agents, "react", talkative)
        found = redecide(log)
    assert found
    assert {one.seq for one in found} <= set(compressed)
    assert all(len(one.now) == len(one.recorded) + 1 for one in found)


@pytest.mark.scenario("L-13")
def test_code_that_raises_is_a_difference(log: Any, monkeypatch: pytest.MonkeyPatch):
    def breaks(*_: Any, **__: Any) -> Sequence[Event]:
        raise KeyError("no such thing")

    with monkeypatch.context() as changed:
        changed.setattr(agents, "compile", breaks)
        found = redecide(log)
    assert {one.now for one in found} == {("raises KeyError: 'no such thing'",)}
    assert isinstance(found[0], Difference)
    with monkeypatch.context() as changed:
        changed.setattr(agents, "compile", breaks)
        with pytest.raises(AssertionError, match="decided otherwise"):
            assert_redecides(log)


def test_a_stream_that_no_actor_has_is_refused():
    log = lived(1).log
    with pytest.raises(InvalidSetting, match="no actor"):
        redecide(log, stream="nobody")
    log.append("visitor", 0, [HoldLooked("x", (), 0)])
    assert redecide(log) == []


@pytest.mark.parametrize("policy", [ErrorPolicy(stop_after_attempt(3), wait_random(1, 9)), ErrorPolicy(stop_never)])
def test_a_policy_that_draws_is_asked_once_and_its_refusals_are_decided_again_alike(policy: ErrorPolicy):
    ada = AgentConfig(name="ada", model="m", error_policy=policy, context_budget_tokens=4_200)
    sim = Simulation(agents=[ada], provider=ScriptedProvider())
    sim.push("ada", "word " * 300)
    sim.advance(minutes=2)
    assert "retry_due" in sim.kinds()
    assert redecide(sim.log) == []


def test_a_log_is_decided_again_by_the_policy_that_it_names():
    """A refusal that nothing can be compressed for: the policy is asked where it is reacted to."""
    ada = AgentConfig(name="ada", model="m", error_policy=Hasty(), context_budget_tokens=4_200)
    sim = Simulation(agents=[ada], provider=ScriptedProvider([server_error(), overflow(), reply("ok")]))
    sim.push("ada", "word " * 300)
    sim.run_until_idle()
    waits = [getattr(one.event, "delay_ms", 0) for one in sim.events("ada") if one.kind == "retry_scheduled"]
    assert waits == [3_000]
    assert redecide(sim.log) == []
