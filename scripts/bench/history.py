"""What the length of a history costs a turn."""

from __future__ import annotations

import os

from rewake.actors import AgentConfig, Runtime, RuntimeOptions
from rewake.scripts.bench.made import talked
from rewake.scripts.bench.measuring import Figure, driven, folder, side_by_side
from rewake.scripts.bench.turns import SAID, Instant, opened


def after(messages: int, turns: int, pause: float = 0.0) -> float:
    """Turns per second of one agent that has so many messages of history, all of them shown to the model."""
    room = 10 * messages + 100_000
    with folder() as place:
        path = os.path.join(place, "history.db")
        log = opened(path, 0.0, "normal")
        talked(log, "ada", messages, context_budget_tokens=room)
        log.close()
        log = opened(path, pause)
        config = AgentConfig(name="ada", model="instant", context_budget_tokens=room)
        options = RuntimeOptions(maintenance_interval=0)
        with Runtime(log, provider=Instant(), agents=[config], options=options) as rt:

            def turn(_: int) -> None:
                rt.result(rt.push("ada", SAID))

            driven(1, 2, turn)
            rt.run_until_idle()  # the drain reads a history that it has no snapshot of, once
            return driven(1, turns, turn).turns


def history(pause: float, repeats: int, long: int = 10_000) -> list[Figure]:
    pair = side_by_side(lambda: after(10, 40, pause), lambda: after(long, 40, pause), repeats)
    rates = f"{1_000 / pair.first:.2f} ms at 10, {1_000 / pair.second:.2f} ms at {long:,}"
    return [Figure(f"turn cost at {long:,} messages of history over 10", pair.ratio, "×", 1.5, "at_most", rates)]
