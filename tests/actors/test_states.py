"""The states of a turn: what the README draws is what lives visit, and nothing else."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from rewake.events import Log, TurnStarted
from rewake.projections import holds, turns, wakes
from rewake.projections.holds import Holds
from rewake.projections.turns import Turns
from rewake.projections.wakes import Wakes, waiting
from tests.actors.worlds import lived

README = (Path(__file__).parents[2] / "README.md").read_text()
OUTSIDE = "[*]"
LIVES = 1_000

Transition = tuple[str, str, str]
"""From a state, to a state, by an event of that kind."""


@pytest.mark.soak
def test_the_readme_draws_what_a_thousand_lives_visit_and_nothing_else():
    visited = Counter[Transition]()
    for seed in range(LIVES):
        sim = lived(seed, acts=12)
        visited += transitions(sim.log)
        sim.crash()
    assert set(visited) - drawn(README) == set(), "visited, not drawn"
    assert drawn(README) - set(visited) == set(), "drawn, never visited"


def drawn(text: str) -> set[Transition]:
    """The transitions of the only state diagram in a text, one for each kind that an arrow names."""
    (diagram,) = re.findall(r"```mermaid\nstateDiagram-v2\n(.*?)```", text, re.DOTALL)
    arrows = [re.fullmatch(r" +(\S+) --> (\S+): (.+)", line) for line in diagram.splitlines()]
    return {(one[1], one[2], kind) for one in arrows if one for kind in one[3].split(", ")}


def transitions(log: Log) -> Counter[Transition]:
    """How often the turns of a log, and the wakes that have none yet, went from one state to another, by which event."""
    found = Counter[Transition]()
    for stream in log.streams():
        if not stream.startswith("agent/"):
            continue
        owed, turn, hold = wakes.initial(), turns.initial(), holds.initial()
        before: dict[str, str] = {}
        for recorded in log.read(stream=stream):
            kind = type(recorded.event)
            owed = wakes.evolve(owed, recorded) if kind in wakes.KINDS else owed
            turn = turns.evolve(turn, recorded) if kind in turns.KINDS else turn
            hold = holds.evolve(hold, recorded) if kind in holds.KINDS else hold
            after = states(owed, turn, hold)
            if isinstance(event := recorded.event, TurnStarted):  # the wakes that it takes are in its state from here
                for one in event.wakes:
                    before = {event.turn: before.pop(one)} | before if one in before else before
            for one in before.keys() | after.keys():
                there, here = before.get(one, OUTSIDE), after.get(one, OUTSIDE)
                if there != here:
                    found[there, here, recorded.kind] += 1
            before = after
    return found


def states(owed: Wakes, turn: Turns, hold: Holds) -> dict[str, str]:
    """An agent's wakes that no turn has taken, by id, and its turn, each with its state."""
    found = {one.id: "owed" for one in waiting(owed)}
    if turn.running:
        found[turn.running.id] = turn.running.stage
    if turn.held:
        found[turn.held.id] = "held" if hold.waiting else "gated" if hold.gated else "released"
    return found
