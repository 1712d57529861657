"""The hypothesis profiles: free at home, repeatable in CI. Every log that a test makes is decided again behind it, every
request that it sends is priced again.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import settings

from rewake.actors.orders import Infer
from rewake.actors.ports import Ports
from rewake.actors.providers import Request
from rewake.actors.testing import forbid_real_providers, redecided
from rewake.events import Text
from rewake.projections import pricing

settings.register_profile("home", deadline=None, print_blob=True)
settings.register_profile("ci", parent=settings.get_profile("home"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "home")


@pytest.fixture(autouse=True)
def laws() -> Iterator[None]:
    """Nothing leaves this machine; today's code decides every log of the test as it was decided; what a request was priced
    at is the price of what was sent.
    """
    with forbid_real_providers(), redecided(), added_up():
        yield


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
