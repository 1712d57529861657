"""What the benchmark counts, which no machine changes: syncs and bytes. Nothing here is timed."""

import json

import pytest
from click.testing import CliRunner

from rewake.scripts.bench import command
from rewake.scripts.bench.figures import sizes
from rewake.scripts.bench.floor import floor
from rewake.scripts.bench.measuring import Figure, side_by_side
from rewake.scripts.bench.turns import Backwards, shape, turns, varied

FIVE_KB = 5_000


@pytest.fixture(autouse=True)
def files_go_here(tmp_path, monkeypatch):
    monkeypatch.setenv("REWAKE_BENCH_DIR", str(tmp_path))


def test_a_simple_turn_takes_two_syncs():
    """One before the call and one after it, with one agent and every actor running."""
    assert turns(1, 20).syncs == 2.0


def test_agents_that_turn_together_share_their_syncs():
    assert turns(20, 5).syncs < 2.0


@pytest.mark.scenario("L-17")
def test_the_file_grows_with_the_turns_and_not_with_their_square():
    """2,000 turns of 5 KB against 1,000, of ten agents, with their snapshots: each has more than 1,000 events."""
    once, twice = (
        turns(
            10,
            each,
            warm=0,
            said=varied(FIVE_KB // 2),
            provider=Backwards(),
            durability="normal",
            context_budget_tokens=10_000_000,
        )
        for each in (100, 200)
    )
    assert twice.file < 2.2 * once.file


def test_the_floor_writes_what_a_turn_writes():
    """As many events, in two appends, of the sizes that ours have."""
    form = shape()
    assert (len(form.before), len(form.after)) == (6, 5)
    assert floor(2, 3, form).turns > 0


def test_repeats_alternate():
    order: list[str] = []
    pair = side_by_side(lambda: order.append("ours") or 2.0, lambda: order.append("theirs") or 4.0, 2)
    assert (order, pair.ratio) == (["ours", "theirs"] * 2, 0.5)


def test_the_pair_told_is_the_one_of_the_median_ratio():
    ours, theirs = iter([300.0, 280.0, 100.0]), iter([300.0, 400.0, 50.0])
    pair = side_by_side(lambda: next(ours), lambda: next(theirs), 3)
    assert (pair.first, pair.second, pair.ratio) == (300.0, 300.0, 1.0)


def test_a_figure_says_whether_it_is_reached():
    assert Figure("syncs", 2.0, "syncs", 2).reached is True
    assert Figure("turns", 59.0, "%", 60, "at_least").reached is False
    assert Figure("told only", 1.0, "ms").reached is None


def test_figures_are_json_lines_off_a_terminal(monkeypatch):
    monkeypatch.setattr(command, "short", lambda pause, repeats: [("bytes", lambda: sizes(5))])
    ran = CliRunner().invoke(command.bench, ["--quick"])
    assert [json.loads(line)["unit"] for line in ran.stdout.splitlines()] == ["×", "×"]
    assert "measuring: bytes" in ran.stderr


def test_peers_are_not_slowed():
    assert CliRunner().invoke(command.bench, ["--peers", "--slow-sync", "5"]).exit_code == 2
