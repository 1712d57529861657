"""Turns beside the floor, and the figures that no machine changes: syncs and bytes."""

from __future__ import annotations

from statistics import median

from rewake.scripts.bench.floor import floor
from rewake.scripts.bench.measuring import Figure, Rate, side_by_side
from rewake.scripts.bench.turns import Backwards, Turned, shape, turns, varied

TO_REACH = 60
"""Per cent of the floor."""


def beside_the_floor(agents: int, each: int, pause: float, repeats: int) -> list[Figure]:
    """Durable turns per second over the floor's, in turns with it."""
    form, runs, floors = shape(), list[Turned](), list[Rate]()

    def ours() -> float:
        runs.append(turns(agents, each, pause=pause))
        return runs[-1].rate.turns

    def theirs() -> float:
        floors.append(floor(agents, each, form, pause))
        return floors[-1].turns

    pair = side_by_side(ours, theirs, repeats)
    cpu = median(run.rate.cpu for run in runs), median(one.cpu for one in floors)
    many = f"{agents} agent{'' if agents == 1 else 's'}"
    rates = f"{pair.first:,.0f} against {pair.second:,.0f} turns/s"
    found = [Figure(f"turns/s over the floor, {many}", pair.ratio * 100, "%", TO_REACH, "at_least", rates)]
    syncs = median(run.syncs for run in runs)
    events = f"{median(run.events for run in runs):g} events a turn"
    spent = f"{cpu[0] * 1_000:.2f} against {cpu[1] * 1_000:.2f} ms"
    found.append(Figure(f"CPU of a turn over the floor's, {many}", cpu[0] / cpu[1], "×", beside=spent))
    return [*found, Figure(f"syncs per simple turn, {many}", syncs, "syncs", 2, "at_most", events)]


def spoken(count: int) -> Turned:
    """Turns of one agent that say something else each time: a snapshot of them packs as badly as it may."""
    return turns(1, count, warm=0, durability="normal", said=varied(200), provider=Backwards())


def sizes(count: int = 300) -> list[Figure]:
    """The bytes of the file over those of the events, and how they grow when there are twice as many turns."""
    once, twice = (spoken(many) for many in (count, 2 * count))
    each = f"{twice.events and twice.bytes / twice.turns:,.0f} bytes of events a turn"
    return [
        Figure("file over the bytes of its events", twice.file / twice.bytes, "×", 2, "at_most", each),
        Figure(f"file at {2 * count} turns over {count}", twice.file / once.file, "×", 2.2),
    ]
