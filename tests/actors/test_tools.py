"""A typed function as a tool: its schema, its calls, and everything that can go wrong in one."""

from __future__ import annotations

import asyncio
import threading
from datetime import date, timedelta
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewake.actors.tools import EndTurn, Outcome, Tool, ToolContext, run, tool, unknown_tool
from rewake.events.errors import InvalidSetting

CONTEXT = ToolContext("ada", "ada/turn/1", "ada/call/2/0", "ada/call/2/0")


class Place(msgspec.Struct):
    city: str
    day: date | None = None


@tool
def search(query: str, limit: int = 3) -> list[str]:
    """Look things up.

    Newest first.

    Args:
        query: what to look for
    """
    return [query] * limit


@tool(idempotent=True, timeout=0.05, name="wait-for")
async def wait(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "slept"


@tool
def whoami(context: ToolContext, *, loud: bool = False) -> str:
    return context.agent.upper() if loud else context.agent


def call(which: Tool[..., Any], arguments: Any = None, in_thread: Any = asyncio.to_thread) -> Outcome:
    return asyncio.run(run(which, CONTEXT, {} if arguments is None else arguments, in_thread))


def test_a_tool_is_told_by_its_annotations_and_docstring():
    assert search.spec.name == "search"
    assert search.spec.description == "Look things up.\n\nNewest first."
    assert search.spec.schema == {
        "type": "object",
        "properties": {"query": {"type": "string"}, "limit": {"type": "integer", "default": 3}},
        "required": ["query"],
        "additionalProperties": False,
    }
    assert not search.spec.idempotent
    assert search.spec.timeout_ms == 60_000
    assert (wait.spec.name, wait.spec.idempotent, wait.spec.timeout_ms) == ("wait-for", True, 50)


def test_a_tool_is_still_the_function():
    assert search("x", 2) == ["x", "x"]
    assert search.__name__ == "search"
    assert asyncio.run(wait(0)) == "slept"


def test_the_context_is_given_and_not_in_the_schema():
    assert call(whoami, {"loud": True}) == Outcome("ADA")
    assert list(whoami.spec.schema["properties"]) == ["loud"]


def test_types_are_converted_and_referred_to():
    @tool
    def book(place: Place, kind: Literal["rail", "air"], seats: Annotated[int, msgspec.Meta(ge=1)] = 1) -> str:
        assert isinstance(place.day, date)
        return f"{place.city} {place.day:%Y} {kind} {seats}"

    assert list(book.spec.schema["$defs"]) == ["Place"]
    assert call(book, {"place": {"city": "Bern", "day": "2026-02-01"}, "kind": "rail"}) == Outcome("Bern 2026 rail 1")
    assert "`$.seats`" in call(book, {"place": {"city": "Bern"}, "kind": "air", "seats": 0}).result


def test_types_that_are_local_to_the_definition_are_found():
    class Local(msgspec.Struct):
        x: int

    @tool
    def local(value: Local) -> int:
        return value.x

    @tool(name="again")
    def other(value: Local) -> int:
        return value.x

    assert [call(each, {"value": {"x": 7}}).result for each in (local, other)] == ["7", "7"]


def test_a_default_that_json_can_not_show_is_the_functions_own():
    @tool
    def tagged(tags: list[str] = [], since: date = date(2026, 1, 1), extra=()) -> str:  # noqa: B006
        return f"{tags} {since} {extra}"

    assert "required" not in tagged.spec.schema or not tagged.spec.schema["required"]
    assert call(tagged).result == "[] 2026-01-01 ()"
    assert call(tagged, {"tags": ["a"], "extra": 1}).result == "['a'] 2026-01-01 1"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"query": 1}, "`$.query`"),
        ({}, "`query`"),
        ({"query": "x", "depth": 1}, "`depth`"),
        ({"query": "x", "limit": "3"}, "`$.limit`"),
        (["x"], "array"),
    ],
)
def test_a_wrong_argument_is_named(arguments: Any, named: str):
    outcome = call(search, arguments)
    assert outcome.is_error
    assert outcome.result.startswith("invalid arguments for search: ")
    assert named in outcome.result


@pytest.mark.parametrize(
    "error", [KeyError("gone"), SystemExit(3), KeyboardInterrupt(), StopIteration(1), TimeoutError()]
)
@pytest.mark.parametrize("sync", [True, False])
def test_a_raise_is_an_error_result(error: BaseException, sync: bool):
    def broken() -> str:
        raise error

    async def abroken() -> str:
        raise error

    outcome = call(tool(broken) if sync else tool(abroken))
    assert outcome.is_error
    assert not outcome.ends_turn
    if not (isinstance(error, StopIteration) and not sync):  # a coroutine turns that into a RuntimeError
        assert outcome.result == f"{type(error).__name__}: {error}"


def test_a_cancellation_of_the_tools_own_is_an_error_result_and_the_callers_is_not():
    @tool
    async def lost() -> str:
        raise asyncio.CancelledError

    @tool
    async def long() -> str:
        await asyncio.sleep(60)
        return "never"

    async def cancel() -> None:
        task = asyncio.create_task(run(long, CONTEXT, {}, asyncio.to_thread))
        await asyncio.sleep(0)
        task.cancel()
        await task

    assert call(lost).result.startswith("CancelledError")
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancel())


def test_too_long_is_an_error_result_sync_or_async():
    go_on = threading.Event()

    @tool(timeout=timedelta(milliseconds=20))
    def stuck() -> str:
        go_on.wait(10)
        return "late"

    async def once() -> Outcome:
        try:
            return await run(stuck, CONTEXT, {}, asyncio.to_thread)
        finally:
            go_on.set()

    assert asyncio.run(once()) == Outcome("stuck did not return within 0.02 s", is_error=True)
    assert call(wait, {"seconds": 5.0}) == Outcome("wait-for did not return within 0.05 s", is_error=True)


def returning(value: Any) -> Outcome:
    def give() -> Any:
        return value

    return call(tool(give))


def test_a_result_is_its_text_or_json():
    assert returning("plain") == Outcome("plain")
    assert returning({"a": [1, None]}) == Outcome('{"a":[1,null]}')
    assert returning(Place("Bern", date(2026, 2, 1))) == Outcome('{"city":"Bern","day":"2026-02-01"}')
    assert returning(None) == Outcome("null")


def test_a_result_that_can_not_be_encoded_is_an_error_result():
    circle: list[Any] = []
    circle.append(circle)
    for value in (object(), {object(): 1}, circle, "\ud800", {"a": "\ud800"}, EndTurn(object())):
        outcome = returning(value)
        assert outcome.is_error, value
        assert not outcome.ends_turn
        assert outcome.result.startswith("the result can not be encoded: ")
        msgspec.json.encode(outcome)


def test_a_raise_whose_message_is_no_text_is_an_error_result():
    def broken() -> None:
        raise ValueError("\ud800" + "x" * 10_000)

    outcome = call(tool(broken))
    assert outcome.is_error
    assert len(outcome.result) < 5_000
    msgspec.json.encode(outcome)


def test_a_result_of_20_mib_names_its_size_and_the_limit():
    outcome = returning("x" * 20 * 2**20)
    assert outcome.is_error
    assert "20 MiB" in outcome.result
    assert "16 MiB" in outcome.result
    assert returning("\0" * 3 * 2**20).is_error, "18 MiB as JSON"
    assert not returning("x" * 15 * 2**20).is_error


def test_end_turn_ends_the_turn():
    assert returning(EndTurn({"done": True})) == Outcome('{"done":true}', ends_turn=True)
    assert returning(EndTurn()) == Outcome("", ends_turn=True)


def test_a_sync_tool_runs_where_it_is_told_to_and_may_return_an_awaitable():
    places: list[str] = []

    @tool
    def where() -> Any:
        places.append(threading.current_thread().name)
        return asyncio.sleep(0, "awaited")

    async def inline(fn: Any) -> Any:
        return fn()

    assert call(where, in_thread=inline) == call(where) == Outcome("awaited")
    assert places[0] == threading.main_thread().name != places[1]


def test_an_unknown_tool_names_those_there_are():
    assert unknown_tool("serch", ["search", "book"]) == Outcome(
        "no tool is called 'serch'; there are: book, search", True
    )
    assert unknown_tool("x", []).result == "no tool is called 'x'; there are none"


def test_what_can_not_be_a_tool_is_refused_when_made():
    def pile(*things: str) -> str:
        return "".join(things)

    def odd(x: threading.Lock) -> str:  # pyright: ignore[reportGeneralTypeIssues, reportInvalidTypeForm]
        return str(x)

    def nowhere(x: Missing) -> str:  # pyright: ignore[reportUndefinedVariable]  # noqa: F821
        return str(x)

    wrongs: list[Any] = [pile, odd, nowhere, lambda: ""]
    for wrong in wrongs:
        with pytest.raises(InvalidSetting):
            tool(wrong)
    with pytest.raises(InvalidSetting):
        tool(timeout=0)(lambda: "")


@given(st.dictionaries(st.sampled_from(["query", "limit", "more"]), st.one_of(st.integers(-3, 3), st.text(max_size=3))))
def test_a_call_succeeds_exactly_when_its_arguments_are_of_the_types(arguments: dict[str, Any]):
    fine = (
        set(arguments) <= {"query", "limit"}
        and isinstance(arguments.get("query"), str)
        and isinstance(arguments.get("limit", 3), int)
    )

    async def inline(fn: Any) -> Any:
        return fn()

    assert call(search, arguments, inline).is_error is not fine
