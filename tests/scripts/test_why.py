"""`rewake why`: the story of a wake or a turn, from the log alone."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from rewake.actors import AgentConfig
from rewake.actors.agent import behaviour as agents
from rewake.actors.providers import ScriptedProvider, call_tool, reply, server_error, slow
from rewake.actors.simulation import Simulation
from rewake.actors.tools import tool
from rewake.events import Compiled, InferenceRequested, Recorded, open_log
from rewake.scripts.histories import story

Rewake = Callable[..., Result]


@tool
async def look(n: int) -> str:
    """Takes two seconds."""
    await asyncio.sleep(2)
    return "saw " + "x" * 30_000


@tool
def broken() -> str:
    raise KeyError("gone")


@pytest.fixture
def lived(tmp_path: Path) -> Path:
    """Twelve turns of history, then one that is refused, held, joined, released, retried, runs tools and is answered."""
    path = tmp_path / "lived.db"
    round = [call_tool("look", {"n": 1}), call_tool("broken")]
    script = [*["fine " * 20] * 12, server_error(), round, slow(reply("done"), 3)]
    provider = ScriptedProvider(
        script, summarize=lambda _: slow(reply("Short."), 70), count=lambda _, estimate: round_up(estimate)
    )
    ada = AgentConfig(
        name="ada",
        model="m",
        max_tokens=200,
        context_budget_tokens=20_000,
        physical_window_tokens=40_000,
        recent_window_tokens=300,
        target_chunk_tokens=100,
        system="Be brief.",
        tools=[look, broken],
    )
    simulation = Simulation(agents=[ada], provider=provider, log=str(path))
    for number in range(12):
        simulation.push("ada", f"{'word ' * 80}{number}")
        simulation.run()
    simulation.configure("ada", context_budget_tokens=1_000, immediate=True, allow_infeasible=True)
    simulation.push("ada", "one \x1b[31mred", author="grace", channel="cli")
    simulation.advance(seconds=20)
    simulation.wake("ada", "tick")
    simulation.run_until_idle()
    simulation.crash()
    return path


def round_up(estimate: int) -> int:
    return -(-estimate * 6 // 5)


def told(rewake: Rewake, path: Path, id: str, *options: object) -> dict[str, Any]:
    result = rewake("why", path, id, "--json", *options)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def last(path: Path, kind: str) -> dict[str, Any]:
    """The data of the log's last event of that kind, with its seq."""
    log = open_log(path, readonly=True)
    recorded = list(log.read(kinds=[kind]))[-1]
    return {"seq": recorded.seq, **json.loads(json.dumps({"id": getattr(recorded.event, "id", "")}))}


def test_a_story_takes_the_forms_that_other_commands_have_but_csv(rewake: Rewake, lived: Path):
    id = last(lived, "wake")["id"]
    page, json_of = rewake("why", lived, id).stdout, rewake("why", lived, id, "--json").stdout
    assert page.startswith(f"{id}: completed")
    assert (rewake("why", lived, id, "-t").stdout, rewake("why", lived, id, "--nl").stdout) == (page, json_of)
    assert rewake("why", lived, id, "--csv").exit_code == 2


def test_a_wake_has_its_whole_story(rewake: Rewake, lived: Path):
    tick = last(lived, "wake")
    said = told(rewake, lived, tick["id"])
    (wake,), (turn,) = said["wakes"], said["turns"]
    assert (wake["reason"], wake["state"], wake["seq"], wake["turns"]) == (
        "tick",
        "completed",
        tick["seq"],
        [turn["id"]],
    )
    assert [one["kind"] for one in turn["steps"]] == [
        *("turn_started", "refused", "held", "alerted", "wake", "hold_looked", "hold_looked", "hold_ended"),
        *("turn_started", "compiled", "inference_requested", "inference_failed", "retry_scheduled", "retry_due"),
        *("inference_requested", "inference_completed", "calibration_sampled", "tool_called", "tool_called"),
        *("tool_returned", "tool_returned"),
        *("inference_requested", "inference_completed", "message_added", "calibration_sampled", "usage_recorded"),
        "turn_completed",
    ]
    assert wake["at"] == turn["since"] + 20_000


def test_its_page_reads_as_what_happened(rewake: Rewake, lived: Path):
    shown = rewake("why", lived, told(rewake, lived, last(lived, "wake")["id"])["turns"][0]["id"]).stdout
    for sentence in (
        "a message by grace, on cli: one \\x1b[31mred",
        "tokens against the 800 that its budget leaves; ",
        "are too many, at multiplier 1.200; summaries can make room",
        "held until 00:30:00Z at the latest, for ada/wake/",
        "joins the hold",
        " tokens do not fit yet",
        "the hold ends, fit, after 3 min: 3 summaries were made meanwhile, 2 looks",
        "started again, attempt 2, for ada/wake/",
        "the budget leaves 800, 816 with its grace; the window leaves 39,6",
        "multiplier 1.200, learned from its counts",
        "raw: 13 messages, ",
        "level 1: 4 messages, ada/msg/2 to ada/msg/20, 206 tokens shown in 8",
        ", injections 0, messages 33 tokens",
        "[budget-hold] Your context didn't fit its budget",
        "failed after 0 ms: server: the provider had an internal error",
        "waits 1 s, until 00:03:31Z, after server",
        "tries again",
        "/0) returned after 2,000 ms: 30,004 characters, of which an excerpt of 24,000 is shown",
        "/1) failed after 0 ms: KeyError: 'gone'",
        "3 tools offered",
        "answered after 3,000 ms (end_turn); the provider counted ",
        " against an estimate of ",
        "says: done",
        "completed (end_turn)",
    ):
        assert sentence in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize("form", ["wake", "turn"])
def test_until_it_has_ended_it_says_what_owed_says(rewake: Rewake, lived: Path, form: str):
    """At every moment of it: what it waits for, and until when."""
    wake = last(lived, "wake")
    end, turn = last(lived, "turn_completed")["seq"], told(rewake, lived, wake["id"])["turns"][0]["id"]
    seen: set[str] = set()
    for seq in range(wake["seq"], end):
        owed = [json.loads(line) for line in rewake("owed", lived, "--at", seq).stdout.splitlines()]
        now = next(one for one in owed if one["wake"] == wake["id"])
        said = told(rewake, lived, wake["id"] if form == "wake" else turn, "--at", seq)[f"{form}s"][0]
        assert (said["why"], said["next_at"]) == (now["why"], now["next_at"])
        assert said["state"] == now["state"] or form == "turn"
        seen.add(said["state"])
    assert seen == ({"held", "owed"} if form == "wake" else {"held", "owed", "retrying", "running"})


def test_the_parts_of_a_plan_add_up_to_what_was_sent(lived: Path):
    log = open_log(lived, readonly=True)
    events = [one.event for one in log.read(stream="agent/ada")]
    plans = [one for one in events if isinstance(one, Compiled)]
    assert any(one.folded for one in plans)
    for compiled in plans:
        (turn,) = story(log, compiled.turn).turns
        (plan,) = (step.plan for step in turn.steps if step.plan)
        assert plan.raw_tokens + sum(one.tokens for one in plan.summaries) == compiled.price
        sent = next(one for one in events if isinstance(one, InferenceRequested) and one.turn == compiled.turn)
        assert sent.payload == compiled.price + plan.overhead.total
        assert plan.raw_messages + sum(one.messages for one in plan.summaries) == messages_before(events, compiled)
        assert 0 < plan.fill <= 1


def messages_before(events: list[Any], compiled: Compiled) -> int:
    return sum(one.kind == "message_added" for one in events[: events.index(compiled)])


def test_a_probe_is_told_as_one(rewake: Rewake, tmp_path: Path):
    """A window that fits what must be sent, but not at the ceiling."""
    path = tmp_path / "probe.db"
    ada = AgentConfig(name="ada", model="m", max_tokens=200, physical_window_tokens=1_600)
    simulation = Simulation(agents=[ada], provider=ScriptedProvider(["hi"]), log=str(path))
    turn = simulation.result(simulation.push("ada", "word " * 1_000)).turn
    simulation.crash()
    (plan,) = (one["plan"] for one in told(rewake, path, str(turn))["turns"][0]["steps"] if "plan" in one)
    assert (plan["probe"], plan["provisional"], plan["binding"], plan["multiplier"]) == (True, True, "window", 1.0)
    shown = rewake("why", path, turn).stdout
    assert "of its window: the budget leaves 96,000" in shown
    assert "provisional: the provider has counted nothing yet; a probe" in shown


def test_a_turn_that_is_given_up_says_why(rewake: Rewake, tmp_path: Path):
    path = tmp_path / "down.db"
    provider = ScriptedProvider(lambda _: server_error())
    simulation = Simulation(agents=[AgentConfig(name="ada", model="m")], provider=provider, log=str(path))
    receipt = simulation.push("ada", "hello")
    simulation.run_until_idle()
    simulation.crash()
    (wake,) = told(rewake, path, str(receipt.wake))["wakes"]
    assert (wake["state"], wake["why"]) == ("exhausted", "server: the provider had an internal error")
    shown = rewake("why", path, receipt.wake).stdout
    assert shown.count("waits ") == 3
    assert "given up after 4 failures and 0 tool calls: server: the provider had an internal error" in shown
    assert "the agent is told: [turn failed] server" in shown


@pytest.mark.parametrize(
    ("id", "code", "said"),
    [
        ("ada/turn/5", 1, "there is no ada/turn/5 in this log; near it: ada/turn/4, "),
        ("ada/wake/999999", 1, "there is no ada/wake/999999 in this log; near it: ada/wake/"),
        ("bob/turn/4", 1, "the log has no agent of that name; it has ada"),
        ("ada", 2, "ada is no id of a wake or a turn: they look like ada/wake/9 and ada/turn/10"),
        ("ada/msg/2", 2, "they look like ada/wake/9 and ada/turn/10"),
        ("ada/turn/x", 2, "they look like ada/wake/9 and ada/turn/10"),
    ],
)
def test_an_id_that_is_none_is_one_line(rewake: Rewake, lived: Path, id: str, code: int, said: str):
    result = rewake("why", lived, id)
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (code, "", 1)
    assert said in result.stderr


def test_before_a_wake_was_accepted_there_is_none(rewake: Rewake, lived: Path):
    wake = last(lived, "wake")
    assert rewake("why", lived, wake["id"], "--at", wake["seq"] - 1).exit_code == 1
    assert rewake("why", lived, wake["id"], "--at", 0).exit_code == 1


def test_the_log_may_come_from_the_environment(rewake: Rewake, lived: Path):
    env = {"REWAKE_LOG": str(lived)}
    assert rewake("why", "ada/turn/4", env=env).stdout == rewake("why", lived, "ada/turn/4").stdout
    assert rewake("why", lived).exit_code == 2


def test_what_befell_its_agent_and_its_process_is_told_where_it_did(
    rewake: Rewake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    real = agents.react

    def breaks(state: Any, recorded: Recorded, *args: Any) -> Any:
        if recorded.kind == "tool_returned":
            raise KeyError("no")
        return real(state, recorded, *args)

    monkeypatch.setattr(agents, "react", breaks)
    path = tmp_path / "log.db"
    provider = ScriptedProvider(["hi", *[[call_tool("look", {"n": 7})]] * 2])
    agents_of = [AgentConfig(name=name, model="m", tools=[look]) for name in ("ada", "bob")]
    sim = Simulation(agents=agents_of, provider=provider, log=str(path))
    before = sim.push("ada", "good morning")
    sim.run()
    receipt = sim.push("ada", "hello")
    sim.push("bob", "hello")
    sim.crash_at("tool_called", nth=2, when="after")
    sim.run()
    sim.restart()
    sim.run()
    sim.crash()
    assert receipt.wake
    assert before.wake
    page = rewake("why", path, receipt.wake).stdout
    story = [
        '/0): {"n":7}',
        "process number 2 starts, with version ",
        "agent/ada failed on Restarted, failure 1 in a row: KeyError: 'no'",
        "agent/ada is parked until the next start of the process: KeyError: 'no'",
    ]
    assert [page.count(one) for one in story] == [1] * len(story)
    assert sorted(story, key=page.index) == story
    seqs = [one["seq"] for turn in told(rewake, path, receipt.wake)["turns"] for one in turn["steps"]]
    assert seqs == sorted(seqs)
    assert "bob" not in page
    assert " starts, " not in rewake("why", path, before.wake).stdout
