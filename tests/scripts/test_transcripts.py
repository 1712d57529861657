"""Recorded conversations through a runtime whose rooms are too small for them."""

import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from rewake.actors.config import settings
from rewake.actors.providers import ScriptedProvider
from rewake.actors.simulation import Simulation
from rewake.events import TurnStarted
from rewake.scripts.recordings import MAX_TOKENS, Player, config, players, transcripts
from rewake.scripts.transcripts import main

RECORDINGS = Path(__file__).parents[2].parent / "shared" / "data" / "airline_transcripts.jsonl"


def recorded(number: int) -> dict[str, object]:
    """Eight questions, each answered by a tool and a text."""
    messages: list[dict[str, object]] = [{"role": "system", "content": "Be brief."}]
    for turn in range(8):
        call = {"id": f"c{turn}", "name": "look_up", "arguments": {"what": f"thing {turn}"}}
        messages += [
            {"role": "user", "content": f"{number}/{turn}: " + "please tell me about it " * 12},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{turn}", "name": "look_up", "content": "found it " * 20},
            {"role": "assistant", "content": f"Answer {turn} " + "and so on " * 12},
        ]
    return {"id": f"made-up-{number}", "messages": [*messages, {"role": "user", "content": "Thank you."}]}


def test_made_up_recordings_are_held_compressed_and_answered(tmp_path: Path):
    path = tmp_path / "made_up.jsonl"
    path.write_text("\n".join(json.dumps(recorded(number)) for number in range(4)), "utf-8")
    result = CliRunner().invoke(main, [str(path), "--each", "2", "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    (row,) = json.loads(result.stdout)
    assert (row["agents"], row["messages"], row["turns"], row["tool_calls"]) == (2, 36, 36, 32)
    assert row["compressions"] > 0
    assert row["holds"] > 0


@pytest.mark.skipif(not RECORDINGS.is_file(), reason="the recordings are not part of the repository")
def test_recordings_are_answered_as_recorded():
    result = CliRunner().invoke(main, [str(RECORDINGS), "-n", "6", "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    (row,) = json.loads(result.stdout)
    assert row["turns"] == row["messages"]
    assert row["compressions"] > 0


def test_a_file_that_is_none_is_named_with_its_line(tmp_path: Path):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"id": "x", "messages": []}\nnothing\n', "utf-8")
    result = CliRunner().invoke(main, [str(path)], catch_exceptions=False)
    assert result.exit_code == 1
    assert "bad.jsonl:2" in result.stderr


@pytest.mark.scenario("C-24")
@pytest.mark.skipif(not RECORDINGS.is_file(), reason="the recordings are not part of the repository")
def test_recordings_ten_after_each_other_live_in_rooms_far_too_small_for_them():
    """Every message is answered as recorded, every call is paired, nothing is given up that summaries could have saved."""
    compressions, holds = 0, 0
    for number, player in enumerate(players(transcripts(RECORDINGS), 10)):
        space = random.Random(number).randint(1_000, 3_000)
        sizes = {"context_budget_tokens": space + MAX_TOKENS, "recent_window_tokens": space // 4}
        own = replace(config(player), **sizes)
        sim = Simulation(agents=[own], provider=ScriptedProvider(script=player.answer), seed=number)
        for _ in player.rounds:
            heard = player.next()
            receipt = sim.push(player.name, heard.said)
            sim.run_until_idle()
            result = sim.result(receipt, 0)
            assert (result.state, result.text) == ("completed", heard.reply), result.why
        kinds = sim.kinds()
        compressions += kinds.count("compressed")
        holds += kinds.count("held")
        assert kinds.count("tool_called") == kinds.count("tool_returned")
        assert "turn_exhausted" not in kinds
        sim.stop()
    assert compressions >= 200
    assert holds >= 50


@pytest.mark.parametrize("factor", [1.0, 1.3])
@pytest.mark.skipif(not RECORDINGS.is_file(), reason="the recordings are not part of the repository")
def test_recordings_live_in_small_windows_without_a_refusal_by_the_provider(factor: float):
    """Windows of 3,000 to 8,000 that their longest turn alone fits; the provider counts as we price, then more."""
    compressions, continued = 0, 0
    for number, player in enumerate(players(transcripts(RECORDINGS)[:25], 5)):
        window = max(random.Random(number).randint(3_000, 8_000), least(player))
        if window > 8_000:
            continue
        sizes = {"context_budget_tokens": None, "max_tokens": 512, "recent_window_tokens": window // 4}
        own = replace(config(player), physical_window_tokens=window, **sizes)
        provider = ScriptedProvider(player.answer, count=lambda _, priced: round(priced * factor), window=window)
        sim = Simulation(agents=[own], provider=provider, seed=number)
        for _ in player.rounds:
            heard = player.next()
            receipt = sim.push(player.name, heard.said)
            sim.run_until_idle()
            result = sim.result(receipt, 0)
            assert (result.state, result.text) == ("completed", heard.reply), result.why
        kinds = sim.kinds()
        assert "inference_failed" not in kinds
        compressions += kinds.count("compressed")
        continued += sum(one.attempt > 1 for one in starts(sim))
        sim.stop()
    assert compressions >= 50
    assert continued >= 15


def starts(sim: Simulation) -> list[TurnStarted]:
    return [one.event for one in sim.tail() if isinstance(one.event, TurnStarted)]


def least(player: Player) -> int:
    """A window that the longest turn fits beside the system prompt, the tools, the reply and a summary."""
    given = settings(config(player), "scripted")
    longest = max(one.tokens for one in player.rounds)
    return round(1.3 * (given.system_tokens + given.tools_tokens + longest)) + 512 + 500
