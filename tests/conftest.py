"""The hypothesis profiles: free at home, repeatable in CI. Every log that a test makes is decided again behind it, every
request that it sends is priced again; beside every scenario stands one that crashes it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import settings

from rewake.actors.orders import Infer
from rewake.actors.ports import Ports
from rewake.actors.providers import Request
from rewake.actors.testing import forbid_real_providers, redecided
from rewake.events import Log, RewakeError, Text, open_log
from rewake.projections import pricing
from tests.matrix import NOTED, TALLY, Tally, crashed, tells
from tests.stories import Notes, watched

settings.register_profile("home", deadline=None, print_blob=True)
settings.register_profile("ci", parent=settings.get_profile("home"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "home")


@pytest.fixture(autouse=True)
def laws(request: pytest.FixtureRequest) -> Iterator[None]:
    """Nothing leaves this machine; today's code decides every log of the test as it was decided; what a request was priced
    at is the price of what was sent.
    """
    with forbid_real_providers(), redecided() as used, added_up():
        yield
        request.config.stash[DECIDED] += heads({log for log, _ in used.values()})


DECIDED = pytest.StashKey[list[int]]()
"""How many events each log has that was decided again."""


def heads(logs: Iterable[Log]) -> list[int]:
    """How many events each of these logs has; a file's that was opened again and again once."""
    found = [log.head() for log in logs if log.path == ":memory:"]
    for path in {log.path for log in logs} - {":memory:"}:
        with suppress(FileNotFoundError, RewakeError), closing(open_log(path, readonly=True)) as log:
            found.append(log.head())
    return found


@contextmanager
def added_up() -> Iterator[None]:
    """Every request's estimate, the sum of its plan's parts, against a price of the whole request as it was sent."""
    called: Callable[..., Any] = vars(Ports)["called"]
    wrong: list[str] = []

    def checked(self: Ports, order: Infer, gate_version: int) -> Any:
        def render() -> Request:
            request = order.render()
            if (sent := price(request)) != request.estimate:
                wrong.append(
                    f"{request.call}: priced {request.estimate:,}, sent {sent:,}: {request.messages[-2:]}"[:400]
                )
            return request

        return called(self, replace(order, render=render), gate_version)

    patched: Any = Ports
    patched.called = checked
    try:
        yield
    finally:
        patched.called = called
    assert not wrong, f"{len(wrong)} requests were priced wrongly: {wrong[:3]}"


def price(request: Request) -> int:
    """What a request takes at multiplier 1, counted from what is sent alone."""
    encoding = request.encoding
    blocks = [block for message in request.messages for block in message.blocks]
    said = sum(counted(one.text, encoding) if isinstance(one, Text) else pricing.price(one, encoding) for one in blocks)
    return counted(request.system, encoding) + pricing.price_tools(request.tools, encoding) + said


@lru_cache(maxsize=10_000)
def counted(text: str, encoding: str) -> int:
    """Tokens of a text: a conversation is sent again and again."""
    return pricing.count_tokens(text, encoding)


# -- the crash matrix


def pytest_addoption(parser: pytest.Parser) -> None:
    said = "plays with crashes of each scenario's story at the most; 0: all of them (default: a sample)"
    parser.addoption("--crashes", type=int, default=None, help=said)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TALLY] = Tally()
    config.stash[NOTED] = {}
    config.stash[DECIDED] = []


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Generator[None, Any, Any]:
    made = yield
    return [*made, *crashed(made)] if isinstance(made, list) else made


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    if type(pyfuncitem) is not pytest.Function or not tells(pyfuncitem):
        return (yield)
    notes = Notes()
    with watched(notes):
        passed = yield
    pyfuncitem.config.stash[NOTED][pyfuncitem.nodeid] = notes.told()
    return passed


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.stash[TALLY].stories:
        terminalreporter.write_line(str(config.stash[TALLY]))
    if found := config.stash[DECIDED]:
        terminalreporter.write_line(f"decided again as they were: {len(found):,} logs of {sum(found):,} events")
