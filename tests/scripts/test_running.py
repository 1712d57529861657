"""`run`: lines in, lines out, an orderly stop, and configurations that can not be."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from rewake.actors import AgentConfig, Runtime
from rewake.actors.providers import ScriptedProvider
from rewake.events import open_log

COMMAND = [sys.executable, "-m", "rewake.scripts.cli", "run"]

pytestmark = pytest.mark.timeout(60)


def run(config: Path, *lines: object, args: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    command = [*COMMAND, str(config), *args]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=40, check=False)


def answers(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert "Traceback" not in done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@contextmanager
def running(config: Path) -> Iterator[subprocess.Popen[str]]:
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*COMMAND, str(config)], **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def say(process: subprocess.Popen[str], line: dict[str, Any]) -> dict[str, Any]:
    """Say a line and take the answer to it."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(line) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def test_a_push_is_answered_by_its_receipt_and_then_its_result(config: Path):
    done = run(config, {"agent": "ada", "content": "hello", "author": "grace", "channel": "cli", "dedupe_key": "k"})
    receipt, result, stopped = answers(done)
    assert done.returncode == 0
    assert receipt == {"receipt": {"seq": 3, "message": "ada/msg/2", "wake": "ada/wake/3"}}
    assert result["wake"] == "ada/wake/3"
    assert (result["result"]["state"], result["result"]["text"]) == ("completed", "echo: hello")
    assert stopped["stopped"]["idle"]["idle"]
    assert stopped["stopped"]["pending"] == []


def test_the_log_is_beside_the_configuration(config: Path):
    run(config)
    kinds = [one.kind for one in open_log(config.parent / "agents.db", readonly=True).read()]
    assert kinds == ["host_started", "agent_started", "host_stopped"]


def test_a_push_without_a_wake_has_a_receipt_alone(config: Path):
    receipt, _ = answers(run(config, {"agent": "ada", "content": "hello", "wake": False}))
    assert receipt["receipt"]["wake"] is None


def test_commands_are_answered(config: Path):
    owed, health, configured, woken, *rest = answers(
        run(
            config,
            {"do": "owed"},
            {"do": "health"},
            {"do": "configure", "agent": "ada", "max_tokens": 100},
            {"do": "wake", "agent": "ada", "reason": "tick"},
        )
    )
    assert owed == {"do": "owed", "answer": []}
    assert health["answer"]["agents"][0]["agent"] == "ada"
    assert configured["do"] == "configure"
    assert woken["receipt"]["wake"] == rest[0]["wake"]


WRONG: list[tuple[object, str]] = [
    ("garbage", "DecodeError"),
    ("[1]", "BadLine"),
    ('"text"', "BadLine"),
    ("\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), "DecodeError"),
    ({}, "ValidationError"),
    ({"agent": "ada"}, "ValidationError"),
    ({"agent": "ada", "content": 7}, "ValidationError"),
    ({"agent": "ada", "content": "x", "colour": "red"}, "ValidationError"),
    ({"agent": "ada", "content": " "}, "InvalidContent"),
    ({"agent": "nobody", "content": "x"}, "UnknownAgent"),
    ({"do": "fly"}, "BadLine"),
    ({"do": ["owed"]}, "BadLine"),
    ({"do": "_close"}, "BadLine"),
    ({"do": "wake", "agent": "ada"}, "BadLine"),
    ({"do": "owed", "colour": "red"}, "BadLine"),
    ({"do": "owed", "agent": "nobody"}, "UnknownAgent"),
    ({"do": "result", "wake": "ada/wake/9"}, "NoWake"),
    ({"do": "configure", "agent": "ada", "max_tokens": -1}, "InvalidSetting"),
    ({"do": "configure", "agent": "ada", "colour": "red"}, "InvalidSetting"),
]
"""Lines that can not be, and the error that each is answered by."""


def test_a_line_that_can_not_be_is_answered_and_the_run_goes_on(config: Path):
    """Nothing of it is appended."""
    done = run(config, *(line for line, _ in WRONG), {"agent": "ada", "content": "still there?"})
    told = answers(done)
    assert [one.get("error") for one in told[: len(WRONG)]] == [error for _, error in WRONG]
    assert all(one["message"] for one in told[: len(WRONG)])
    assert told[len(WRONG)]["receipt"]["seq"] == 3
    assert done.returncode == 0


def test_answers_have_what_the_caller_called_the_line_and_errors_its_number(config: Path):
    done = run(
        config, {"agent": "ada", "content": "x", "id": 7}, "", "no", {"do": "owed", "id": "o"}, {"do": "fly", "id": "f"}
    )
    told = answers(done)
    by = {("result" if "result" in one else one.get("error") or one.get("do") or "receipt"): one for one in told[:-1]}
    assert (by["receipt"]["id"], by["result"]["id"], by["owed"]["id"]) == (7, 7, "o")
    assert (by["DecodeError"]["line"], "id" in by["DecodeError"]) == (3, False)
    assert (by["BadLine"]["line"], by["BadLine"]["id"]) == (5, "f")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_stops_in_good_order(config: Path, number: signal.Signals):
    """What is owed stays owed, and the next process takes it up."""
    config.write_text(config.read_text("utf-8").replace('"scripted"', '"scripted"\ndelay = 30'), "utf-8")
    with running(config) as process:
        receipt = say(process, {"agent": "ada", "content": "hello"})["receipt"]
        process.send_signal(number)
        out, _ = process.communicate(timeout=20)
        assert process.returncode == 0
    assert json.loads(out.splitlines()[-1])["stopped"]["pending"] == [receipt["wake"]]
    assert [one.kind for one in open_log(config.parent / "agents.db", readonly=True).read()][-1] == "host_stopped"
    config.write_text(config.read_text("utf-8").replace("delay = 30", "delay = 0"), "utf-8")
    run(config)
    ends = [one.event for one in open_log(config.parent / "agents.db", readonly=True).read(kinds=["turn_completed"])]
    assert len(ends) == 1


def test_past_the_timeout_it_stops_all_the_same(config: Path):
    config.write_text(config.read_text("utf-8").replace('"scripted"', '"scripted"\ndelay = 30'), "utf-8")
    done = run(config, {"agent": "ada", "content": "hello"}, args=("--timeout", "0.3"))
    assert done.returncode == 1
    assert answers(done)[-1]["stopped"]["idle"] == {"idle": False, "held": [], "gated": [], "owed": ["ada/wake/3"]}


def test_a_log_in_use_is_exit_code_4(config: Path):
    """The process that has it is named."""
    with Runtime(config.parent / "agents.db", provider=ScriptedProvider(), agents=[AgentConfig(name="x", model="m")]):
        done = run(config, {"agent": "ada", "content": "hello"})
    assert (done.returncode, done.stdout) == (4, "")
    assert f"process {os.getpid()}" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_tool_from_a_module_beside_the_configuration(config: Path):
    config.parent.joinpath("house_tools.py").write_text(
        "from rewake.actors import tool\n\n@tool\ndef search(q: str) -> str:\n    return q\n", "utf-8"
    )
    config.write_text(config.read_text("utf-8") + 'tools = ["house_tools:search"]\n', "utf-8")
    assert run(config).returncode == 0
    started = next(open_log(config.parent / "agents.db", readonly=True).read(kinds=["agent_started"]))
    assert [tool.name for tool in started.event.config.tools] == ["search"]  # pyright: ignore[reportAttributeAccessIssue]


def test_a_text_from_the_configuration(config: Path):
    config.write_text(config.read_text("utf-8").replace('"scripted"', '"scripted"\nreply = "Yes."'), "utf-8")
    _, result, _ = answers(run(config, {"agent": "ada", "content": "hello"}))
    assert result["result"]["text"] == "Yes."


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("[options]", "[options", 6, "not TOML"),
        ('log = "agents.db"', "log = 7", 1, "log"),
        ('log = "agents.db"', "", 1, "log"),
        ('log = "agents.db"', 'logg = "agents.db"', 1, "logg"),
        ('"scripted"', '"anthropic"', 4, "this version"),
        ('"scripted"', '"telepathy"', 4, "telepathy"),
        ('kind = "scripted"', "", 3, "provider.claude.kind"),
        ('kind = "scripted"', 'kind = "scripted"\nwords = 3', 5, "provider.claude.words"),
        ('durability = "normal"', 'durability = "some"', 7, "options.durability"),
        ('durability = "normal"', "stop_timeout = -1", 7, "options.stop_timeout"),
        ('durability = "normal"', "patience = 1", 7, "options.patience"),
        ('model = "m"', "", 9, "agent.model"),
        ('model = "m"', "model = 7", 11, "agent.model"),
        ('model = "m"', 'model = "m"\nmax_tokens = "many"', 12, "agent.max_tokens"),
        ('model = "m"', 'model = "m"\nmax_tokens = -1', 12, "agent.max_tokens"),
        ('model = "m"', 'model = "m"\ncontext_budget_tokens = 10', 12, "agent.context_budget_tokens"),
        ('model = "m"', 'model = "m"\ncolour = "red"', 12, "agent.colour"),
        ('model = "m"', 'model = "m"\nprovider = "other"', 12, "agent.provider"),
        ('model = "m"', 'model = "m"\ntools = ["no_such_module:x"]', 12, "no_such_module"),
        ('model = "m"', 'model = "m"\ntools = ["json:nothing"]', 12, "nothing"),
        ('model = "m"', 'model = "m"\ntools = ["json:dumps"]', 12, "agent.tools"),
        ('model = "m"', 'model = "m"\ntools = ["json"]', 12, "package.module:name"),
        ('model = "m"', 'model = "m"\n[[agent]]\nname = "ada"\nmodel = "m"', 13, "agent.name"),
        ('[[agent]]\nname = "ada"\nmodel = "m"', "", 1, "agent"),
    ],
)
def test_a_configuration_that_can_not_be(
    rewake: Callable[..., Result], config: Path, old: str, new: str, line: int, said: str
):
    """File, line and key are named in one line; no log is made."""
    config.write_text(config.read_text("utf-8").replace(old, new), "utf-8")
    result = rewake("run", config)
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert f"{config}:{line}: " in result.stderr
    assert said in result.stderr
    assert not config.parent.joinpath("agents.db").exists()


def test_a_configuration_that_is_not_there(rewake: Callable[..., Result], tmp_path: Path):
    result = rewake("run", tmp_path / "none.toml")
    assert result.exit_code == 2
    assert "No such file" in result.stderr


def test_an_unknown_agent_to_chat_with(rewake: Callable[..., Result], config: Path):
    result = rewake("run", config, "--chat", "nobody")
    assert result.exit_code == 1
    assert "nobody" in result.stderr
