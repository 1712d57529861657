"""What a fuzzer found, each as short as it came to be."""

from __future__ import annotations

from tenacity import stop_after_attempt, wait_none

from rewake.actors.policy import ErrorPolicy
from rewake.actors.providers import auth, reply
from tests.actors.conftest import Simulate


class AtOnce(ErrorPolicy):
    """Tries again without a wait."""

    def __init__(self) -> None:
        super().__init__(stop_after_attempt(5), wait_none())


def test_a_refusal_that_is_tried_again_without_a_wait_is_tried_again_each_time(simulate: Simulate):
    """All its retries are due at one time: each has a timer of its own."""
    sim = simulate(context_budget_tokens=200, max_tokens=100, error_policy=AtOnce())
    receipt = sim.push("ada", "word " * 300)
    sim.run_until_idle()
    assert sim.result(receipt, 0).state == "exhausted"
    assert sim.kinds("ada").count("retry_due") == 4
    assert sim.owed() == []


def test_after_a_first_turn_that_had_nothing_to_show_a_head_is_shown(simulate: Simulate):
    """The request of a wake without a message before any other holds no stretch of the conversation."""
    sim = simulate([reply("good morning"), reply("well")], head_window_tokens=50)
    sim.wake("ada", "tick")
    sim.run_until_idle()
    receipt = sim.push("ada", "hello")
    sim.run_until_idle()
    assert sim.reply_to(receipt) == "well"


def test_a_wake_s_receipt_has_no_message_of_the_turn_that_it_started(simulate: Simulate):
    sim = simulate([auth()], physical_window_tokens=150, max_tokens=100)
    sim.push("ada", "word " * 300, wake=False)
    first = sim.wake("ada", "tick", dedupe_key="one")
    assert sim.result(first, 0).state == "exhausted"
    assert first.message is None
    assert sim.wake("ada", "tick", dedupe_key="one") == first == sim.receipt(first.wake or "")
