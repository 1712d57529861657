"""What a provider is asked and answers, how it fails, and the one that answers from a script."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewake.actors.providers import (
    AuthFailed,
    ContentRefused,
    ContextOverflow,
    InvalidRequest,
    Message,
    Provider,
    ProviderError,
    ProviderLimit,
    ProviderOverloaded,
    ProviderTimeout,
    Reply,
    Request,
    ScriptedProvider,
    ScriptExhausted,
    ServerError,
    TransportError,
    auth,
    call_tool,
    drop,
    failure_of,
    invalid,
    limit,
    overflow,
    overloaded,
    refused,
    reply,
    server_error,
    slow,
    validate,
)
from rewake.actors.providers.base import Validator
from rewake.actors.providers.failures import NEVER_MS, masked
from rewake.events.calls import Usage
from rewake.events.messages import AnyBlock, Reasoning, Text, ToolCall, ToolResult
from rewake.events.turns import Failure


def user(*blocks: AnyBlock | str) -> Message:
    return Message("user", tuple(Text(block) if isinstance(block, str) else block for block in blocks))


def model(*blocks: AnyBlock | str) -> Message:
    return Message("assistant", user(*blocks).blocks)


def request(text: str = "hello", **fields: Any) -> Request:
    given: dict[str, Any] = {"agent": "ada", "messages": (user(text),), "max_tokens": 100, "estimate": 10} | fields
    return Request(**given)


def ask(provider: Provider, *requests: Request) -> list[Reply | BaseException]:
    """What each request, one after the other, came to."""

    async def all_of() -> list[Reply | BaseException]:
        outcomes: list[Reply | BaseException] = []
        for each in requests:
            outcomes += await asyncio.gather(provider.infer(each, lambda delta: None), return_exceptions=True)
        return outcomes

    return asyncio.run(all_of())


def only(provider: Provider, asked: Request) -> Reply:
    (outcome,) = ask(provider, asked)
    assert isinstance(outcome, Reply), outcome
    return outcome


def texts(outcomes: list[Reply | BaseException]) -> list[str]:
    return [outcome.text if isinstance(outcome, Reply) else type(outcome).__name__ for outcome in outcomes]


# Failures


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        (ProviderLimit(), "limit", True),
        (ProviderOverloaded(), "overloaded", True),
        (ServerError(), "server", True),
        (TransportError(), "transport", True),
        (ProviderTimeout(), "timeout", True),
        (ContextOverflow(), "overflow", False),
        (InvalidRequest(), "invalid_request", False),
        (AuthFailed(), "auth", False),
        (ContentRefused(), "content_refused", False),
        (KeyError("x"), "unknown", True),
    ],
)
def test_each_error_has_its_kind(error: BaseException, kind: str, retryable: bool):
    failure = failure_of(error)
    assert (failure.kind, failure.retryable, failure.type) == (kind, retryable, type(error).__name__)
    assert failure.message


def test_a_failure_keeps_the_numbers():
    assert failure_of(ProviderLimit("slow down", retry_after=0.0301, status=429)) == Failure(
        "limit", "slow down", True, "ProviderLimit", 429, 31
    )
    assert ProviderLimit(30).retry_after == ProviderLimit(retry_after=timedelta(seconds=30)).retry_after == 30
    overflowed = ContextOverflow(1_200, 1_000)
    assert (overflowed.counted, overflowed.limit) == (1_200, 1_000)
    assert str(overflowed) == "the request is too long: 1,200 tokens against 1,000"


@pytest.mark.parametrize(("seconds", "ms"), [(None, None), (0, 0), (-5, 0), (math.nan, None), (math.inf, NEVER_MS)])
def test_any_stated_wait_can_be_recorded(seconds: float | None, ms: int | None):
    assert failure_of(ServerError(retry_after=seconds)).retry_after_ms == ms


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-abcDEF123456",
        "Authorization: Bearer abc.def-123",
        "'x-api-key': '0123456789abcdef0123'",
        "api_key=QUJDREVGR0hJSktMTU5PUA1=",
        "?key=AIzaSyA1234567890abcdefghijklmno",
    ],
)
def test_keys_are_masked(secret: str):
    message = failure_of(AuthFailed(f"refused {secret} for max_tokens: 4096")).message
    assert "[masked]" in message
    assert message.endswith("for max_tokens: 4096")
    assert not any(part in message for part in ("abcDEF", "abc.def", "0123456789", "QUJD", "AIza"))


@given(st.text())
def test_masking_is_done_once_and_a_failure_can_be_stored(text: str):
    assert masked(masked(text)) == masked(text)
    assert len(failure_of(ValueError(text * 500 + "\ud800")).message) <= 2_000
    msgspec.json.encode(failure_of(ValueError(text + "\ud800")))


# What a real provider refuses

ASKED = model("let me see", ToolCall("a", "search"), ToolCall("b", "search"))
A, B = ToolResult("a", "1"), ToolResult("b", "2")


@pytest.mark.parametrize(
    "messages",
    [
        (user("hi"),),
        (user("hi"), user("there")),
        (user("hi"), model("yes"), model("and"), user("so")),
        (user("hi"), ASKED, user(B, A, "and?")),
        (user("hi"), ASKED, user(A, B), model(Reasoning("hm"), ToolCall("a", "search")), user(A)),
    ],
)
def test_a_valid_sequence_passes(messages: tuple[Message, ...]):
    validate(messages)


@pytest.mark.parametrize(
    "messages",
    [
        (),
        (model("hi"), user("x")),
        (user("hi"), model("x")),
        (user("hi"), Message("system", (Text("x"),)), user("x")),
        (user(),),
        (user("  "),),
        (user("hi"), ASKED, user(A)),
        (user("hi"), ASKED, user(A), user(B)),
        (user("hi"), ASKED, user(A, B, B)),
        (user("hi"), ASKED, user("wait", A, B)),
        (user("hi"), ASKED, user("never mind")),
        (user("hi"), ASKED, model("x"), user(A, B)),
        (user("hi"), model("x"), user(A)),
        (user(A),),
        (user("hi"), model(ToolCall("a", "x"), ToolCall("a", "x")), user(A)),
        (user("hi", ToolCall("a", "x")), user(A)),
        (user("hi"), model("x", A), user("x")),
    ],
)
def test_an_invalid_sequence_is_refused(messages: tuple[Message, ...]):
    with pytest.raises(InvalidRequest):
        validate(messages)


def naively_valid(messages: list[Message]) -> bool:
    """The rule, the slow way: take each message with the one before it."""
    for before, message in zip([None, *messages], messages, strict=False):
        calls = (
            Counter(block.id for block in before.blocks if isinstance(block, ToolCall)) if before else Counter[str]()
        )
        results = Counter(block.id for block in message.blocks if isinstance(block, ToolResult))
        if calls != results or any(times > 1 for times in calls.values()) or not message.blocks:
            return False
    return bool(messages) and messages[0].role == messages[-1].role == "user"


calls = st.lists(st.sampled_from("ab").map(lambda id: ToolCall(id, "t")), max_size=2)
results = st.permutations([A, B]).flatmap(lambda both: st.integers(0, 2).map(lambda n: both[:n]))
said = st.lists(st.just(Text("x")), max_size=1)
turns = st.one_of(
    st.tuples(results, said).map(lambda parts: user(*parts[0], *parts[1])),
    st.tuples(said, calls).map(lambda parts: model(*parts[0], *parts[1])),
    st.just(ASKED),
    st.just(user(A, B)),
)


@given(st.lists(turns, max_size=5).map(lambda middle: [user("hi"), *middle]))
def test_exactly_the_valid_sequences_pass(messages: list[Message]):
    try:
        validate(tuple(messages))
    except InvalidRequest:
        assert not naively_valid(messages)
    else:
        assert naively_valid(messages)


@given(st.lists(st.lists(turns, max_size=4), max_size=4))
def test_a_validator_that_remembers_finds_what_a_forgetful_one_finds(rounds: list[list[Message]]):
    validator, sent = Validator(), [user("hi")]
    for came in rounds:
        asked = (*sent, *came)
        refused = refuses(validate, asked)
        assert refuses(partial(validator.validate, "ada"), asked) == refused
        sent = sent if refused else [*asked]


def refuses(check: Callable[[tuple[Message, ...]], None], messages: tuple[Message, ...]) -> bool:
    try:
        check(messages)
    except InvalidRequest:
        return True
    return False


# The script


def test_items_are_answered_in_order_and_then_run_out():
    provider = ScriptedProvider(script=[reply("one"), "two", Reply((Text("three"),), "max_tokens")])
    outcomes = ask(provider, *[request(agent=agent) for agent in ("ada", "bob", "ada", "bob")])
    assert texts(outcomes) == ["one", "two", "three", "ScriptExhausted"]
    assert isinstance(outcomes[3], ScriptExhausted)
    assert not isinstance(outcomes[3], ProviderError)
    assert [each.agent for each in provider.requests] == ["ada", "bob", "ada", "bob"]


def test_words_are_the_errors_they_name():
    words = [
        limit(retry_after=30), overloaded(), server_error(), drop(), slow(), overflow(9, 8),
        invalid(), auth(), refused(),
    ]  # fmt: skip
    outcomes = ask(ScriptedProvider(script=words), *[request()] * len(words))
    assert [failure_of(error).kind for error in outcomes if isinstance(error, BaseException)] == [
        "limit", "overloaded", "server", "transport", "timeout", "overflow",
        "invalid_request", "auth", "content_refused",
    ]  # fmt: skip
    first, sixth = outcomes[0], outcomes[5]
    assert isinstance(first, ProviderLimit)
    assert first.retry_after == 30
    assert isinstance(sixth, ContextOverflow)
    assert (sixth.counted, sixth.limit) == (9, 8)


def test_a_list_is_one_answer_with_parallel_calls():
    script = [["both:", call_tool("search", {"q": "x"}, id="c1"), call_tool("search")], call_tool("search")]
    provider = ScriptedProvider(script=script)
    first = only(provider, request(turn="ada/turn/7", step=2))
    assert first.blocks == (
        Text("both:"),
        ToolCall("c1", "search", {"q": "x"}),
        ToolCall("call_ada-turn-7_2_2", "search", {}),
    )
    assert first.stop_reason == "tool_use"
    assert len(only(provider, request()).blocks) == 1


def test_a_function_answers_the_request_or_raises():
    def script(asked: Request) -> Any:
        if asked.agent == "bob":
            raise KeyError(asked.agent)
        return [reply(asked.system), call_tool("x", id="1")]

    outcomes = ask(ScriptedProvider(script=script), request(system="be kind"), request(agent="bob"))
    assert isinstance(outcomes[0], Reply)
    assert outcomes[0].blocks == (Text("be kind"), ToolCall("1", "x", {}))
    assert isinstance(outcomes[1], KeyError)


def test_without_a_script_it_echoes():
    messages = (user("how far?"), model(ToolCall("a", "x")), user(A))
    assert only(ScriptedProvider(), request(messages=messages)).text == "echo: how far?"


def test_text_comes_in_deltas_also_before_a_failure():
    async def streamed(item: Any) -> tuple[list[str], BaseException | None]:
        deltas: list[str] = []
        try:
            await ScriptedProvider(script=[item]).infer(request(), deltas.append)
        except ProviderError as error:
            return deltas, error
        return deltas, None

    assert asyncio.run(streamed(reply("a b"))) == (["a b"], None)
    assert asyncio.run(streamed(reply("a b", deltas=["a", " b"]))) == (["a", " b"], None)
    assert asyncio.run(streamed(call_tool("x"))) == ([], None)
    deltas, error = asyncio.run(streamed(drop(after="half an ans")))
    assert isinstance(error, TransportError)
    assert deltas == [error.emitted] == ["half an ans"]


def test_usage_is_what_count_says():
    assert only(ScriptedProvider(script=["yes"]), request()).usage == Usage(10, 1)
    assert only(ScriptedProvider(count=lambda r, estimate: estimate * 2), request()).usage == Usage(20, 3)
    assert only(ScriptedProvider(count=lambda r, estimate: None), request()).usage is None
    assert only(ScriptedProvider(script=[reply("x", Usage(5, 6))]), request()).usage == Usage(5, 6)


def test_the_window_and_strictness_refuse_without_using_an_item_up():
    provider = ScriptedProvider(script=["in"], window=120, count=lambda r, estimate: estimate + 1)
    outcomes = ask(provider, request(estimate=20), request(messages=(model("x"),)), request(estimate=19))
    assert texts(outcomes) == ["ContextOverflow", "InvalidRequest", "in"]
    assert isinstance(outcomes[0], ContextOverflow)
    assert (outcomes[0].counted, outcomes[0].limit) == (21, 120)
    assert len(provider.requests) == 3
    assert texts(ask(ScriptedProvider(script=["x"], strict=False), request(messages=(model("x"),)))) == ["x"]


def test_compression_uses_no_item_and_is_an_extract():
    source = "The moon is far away, and nobody there. " * 20
    asked = request(purpose="compression", messages=(user(source), model(source), user(source)))
    provider = ScriptedProvider(script=["turn"])
    summary = only(provider, asked).text
    assert 0 < len(summary) < len(source) * 3 / 4
    assert summary == only(provider, asked).text
    assert summary.endswith(".")
    assert only(provider, request()).text == "turn"
    assert only(ScriptedProvider(summarize=lambda r: "short"), asked).text == "short"
    assert texts(ask(ScriptedProvider(summarize=lambda r: overloaded()), asked)) == ["ProviderOverloaded"]


def test_an_extract_has_the_sections_it_was_asked_for():
    system = "Write the sections Goal, Progress, Next Steps, Critical Context."
    messages = (user("Find the moon, please, it was here. " * 9), model("I looked. " * 30), user("Go on then. " * 20))
    text = only(ScriptedProvider(), request(purpose="compression", system=system, messages=messages)).text
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "## Goal", "## Progress", "## Next Steps", "## Critical Context",
    ]  # fmt: skip


@given(st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=5))
def test_an_extract_is_never_empty(said: list[str]):
    asked = request(purpose="compression", messages=tuple(user(text) for text in said))
    assert only(ScriptedProvider(), asked).text.strip()


def test_a_lost_answer_is_given_again_and_a_failure_is_not():
    provider = ScriptedProvider(script=[limit(), "one", "two", "three"])
    first, second = request(turn="ada/turn/1"), request(turn="ada/turn/1", step=1)
    outcomes = ask(provider, first, first, first, second, first, second, request("other", turn="ada/turn/1"))
    assert texts(outcomes) == ["ProviderLimit", "one", "one", "two", "one", "two", "three"]


def test_an_answer_that_was_cut_off_is_given_again():
    provider = ScriptedProvider(script=[slow("one", 60), "two"])
    asked = request(turn="ada/turn/1")

    async def cut_off() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(provider.infer(asked, lambda delta: None), 0.001)

    asyncio.run(cut_off())
    patient = msgspec.structs.replace(asked, timeout=0.001)
    assert texts(ask(provider, patient)) == ["ProviderTimeout"], "the slow one, again"


def test_one_slower_than_its_caller_waits_is_a_timeout_and_used_up():
    provider = ScriptedProvider(script=[slow("one", seconds=60), slow("two", seconds=timedelta(milliseconds=1))])
    asked = request(turn="ada/turn/1", timeout=0.01)
    assert texts(ask(provider, asked, asked)) == ["ProviderTimeout", "two"]


def test_what_is_no_item_is_named():
    (outcome,) = ask(ScriptedProvider(script=lambda asked: object()), request())  # pyright: ignore[reportArgumentType]
    assert isinstance(outcome, TypeError)
    assert "is no answer of a script" in str(outcome)
