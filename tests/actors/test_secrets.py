"""A key that stands in what a provider's error says is nowhere: not in the log's bytes, not in what anybody is told."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from rewake.actors.config import AgentConfig, RuntimeOptions
from rewake.actors.providers import AuthFailed, InvalidRequest, ProviderLimit, ScriptedProvider, ServerError
from rewake.actors.providers.failures import masked
from rewake.actors.reports import Alert
from rewake.actors.simulation import Simulation
from rewake.actors.tools import tool
from rewake.scripts.cli import main

SHAPES = [
    "Incorrect API key provided: {key}. You can find yours at https://keys.example",
    "Invalid bearer token: Bearer {key}",
    '{{"error": {{"headers": {{"x-api-key": "{key}", "accept": "*/*"}}}}}}',
    "POST https://api.example/v1/messages?alt=json&key={key}&n=1 failed",
    "proxy https://grace:{key}@proxy.example:8080 refused",
    "headers=[(b'authorization', b'Bearer {key}'), (b'host', b'api.example')]",
    'body: {{\\"api_key\\": \\"{key}\\"}}',
    "https%3A%2F%2Fapi.example%2F%3Fapi_key%3D{key}",
    "no such key sk-ant-api03-{key}",
    "{{'Authorization': 'Basic {key}'}}",
]
LETTERS = string.ascii_letters + string.digits
KEYS = st.text(LETTERS, min_size=20, max_size=64).filter(lambda key: not key.isalpha() and not key.isdigit())


@given(KEYS, st.sampled_from(SHAPES), st.text(max_size=15), st.text(max_size=15))
@settings(max_examples=400)
def test_a_key_is_masked_whatever_says_it(key: str, shape: str, before: str, after: str):
    assert key not in masked(f"{before} {shape.format(key=key)} {after}")


@pytest.mark.parametrize(
    "said",
    [
        "the request is too long: 12345 tokens against 4096",
        "message 0: no result for the call 'toolu_01A09q90qw90lq917835lq9' of the message before",
        "model claude-3-5-sonnet-20241022 not found; request id req_011CSHoEeqs5C35K2UUqR7Fy",
        "key 'messages' is missing, basic authorization-required-for-organisation",
    ],
)
def test_what_is_no_key_is_left_as_it_is(said: str):
    assert masked(said) == said


KEY = "aB3dE5fG7hJ9kL1mN3pQ5rS7"
ERRORS = [AuthFailed, InvalidRequest, ServerError, lambda said: ProviderLimit(said, retry_after=7_200), KeyError]


@pytest.mark.scenario("L-18")
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[2], SHAPES[3]])
def test_a_key_in_a_providers_error_is_in_no_byte_of_the_log_and_in_nothing_that_is_told(
    error: Any, shape: str, tmp_path: Path
):
    path, heard = tmp_path / "agents.db", list[Alert]()
    said = f"{shape.format(key=KEY)} {'more ' * 1_000}"

    def script(_: Any) -> Any:
        raise error(said)

    sim = Simulation(
        agents=[AgentConfig(name="ada", model="m")],
        provider=ScriptedProvider(script),
        log=str(path),
        options=RuntimeOptions(on_alert=heard.append),
    )
    receipt = sim.push("ada", "hello")
    for _ in range(3):
        sim.advance(seconds=1)
        seen = [repr(sim.health()), repr(sim.owed()), repr(sim.result(receipt, 0)), repr(heard), repr(list(sim.tail()))]
        assert [one for one in seen if KEY in one] == []
        assert "[masked]" in "".join(seen)
    failures = [one.event for one in sim.events("ada") if one.kind == "inference_failed"]
    assert {len(msgspec.json.decode(msgspec.json.encode(one))["error"]["message"]) for one in failures} == {2_000}
    sim.stop()
    for file in tmp_path.iterdir():
        assert KEY.encode() not in file.read_bytes(), file
    for command in (["tail"], ["tail", "--table"], ["owed"], ["agents"], ["why"], ["show"], ["export"]):
        more = {"why": [receipt.wake], "show": ["turns"]}.get(command[0], [])
        shown = CliRunner().invoke(main, [command[0], str(path), *command[1:], *map(str, more)])
        assert shown.exit_code == 0
        assert KEY not in shown.output


@pytest.mark.scenario("L-18")
def test_a_key_in_what_a_callable_of_the_agent_raises_is_masked_too_and_a_tools_exception_is_data():
    """What a tool says is for the model: a person's data, kept as it is."""

    def context(_: Any) -> Any:
        raise ValueError(f"api_key={KEY}")

    sim = Simulation(agents=[AgentConfig(name="ada", model="m", context=context)], provider=ScriptedProvider())
    sim.push("ada", "hello")
    sim.run()
    assert KEY not in repr(sim.events())
    assert "[masked]" in sim.owed()[0].why

    @tool
    def look() -> str:
        """Raises."""
        raise ValueError(f"no row has api_key={KEY}")

    from rewake.actors.providers import call_tool

    sim = Simulation(
        agents=[AgentConfig(name="ada", model="m", tools=[look])],
        provider=ScriptedProvider([[call_tool("look")], "ok"]),
    )
    sim.push("ada", "hello")
    sim.run_until_idle()
    assert KEY in repr(sim.events())
