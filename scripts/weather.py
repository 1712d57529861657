"""A provider whose weather a seed decides: fair most of the time, with limits, overloads, outages and slow hours."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from rewake.actors.providers import drop, limit, overloaded, reply, server_error, slow
from rewake.actors.providers.base import OnDelta, Reply, Request
from rewake.actors.providers.extract import extract
from rewake.actors.providers.script import Item, call_tool
from rewake.actors.providers.scripted import played, used
from rewake.events import Millis

HOUR: Millis = 3_600_000
SPELLS = ("limit", "stated", "overloaded", "down", "slow")
FOUL = 0.03
"""How many calls fail in fair weather."""


class Spell(Struct, frozen=True):
    """Foul weather of one model, from one time to another (UTC milliseconds)."""

    model: str
    what: str
    start: Millis
    end: Millis


def spells(chance: random.Random, models: tuple[str, ...], start: Millis, days: float) -> list[Spell]:
    """About one spell a day and model, of minutes or hours; the last of `models` is the summariser, which is down longer."""
    found: list[Spell] = []
    for model in models:
        for _ in range(max(1, round(days))):
            began = start + round(chance.random() * days * 24 * HOUR)
            what = chance.choice(("down", "limit") if model == models[-1] else SPELLS)
            hours = chance.choice([0.1, 0.3, 1.0, 4.0 if model == models[-1] else 1.5])
            found.append(Spell(model, what, began, began + round(hours * HOUR)))
    return found


class Weather:
    """Answers by chance, or as the spell of the moment has it. `now` gives the time, UTC milliseconds."""

    name = "weather"

    def __init__(self, chance: random.Random, spells: list[Spell], now: Callable[[], Millis]) -> None:
        self.chance = chance
        self.spells = spells
        self.now = now
        self.calls = 0

    async def infer(self, request: Request, on_delta: OnDelta, /) -> Reply:
        self.calls += 1
        return used(await played(self.item(request), request, on_delta), request, request.estimate)

    def item(self, request: Request) -> Item:
        chance, now = self.chance, self.now()
        spell = next((one for one in self.spells if one.model == request.model and one.start <= now < one.end), None)
        if spell and chance.random() < 0.9:
            return self.foul(spell.what, request)
        if chance.random() < FOUL:
            return self.foul(chance.choice(SPELLS), request)
        return slow(self.fair(request), chance.choice([0.5, 2.0, 9.0, 30.0]))

    def foul(self, what: str, request: Request) -> Item:
        chance = self.chance
        match what:
            case "limit":
                return limit()
            case "stated":
                return limit(chance.choice([2, 30, 600]))
            case "overloaded":
                return overloaded(chance.choice([None, None, 20]))
            case "slow":
                return slow(self.fair(request), chance.choice([60.0, 200.0, 400.0]))
            case _:
                return chance.choice([server_error(), drop(), drop(after="I was about to"), slow(None, 20.0)])

    def fair(self, request: Request) -> Item:
        chance = self.chance
        if request.purpose == "compression":
            return extract(request) if chance.random() < 0.98 else reply("")
        if request.tools and request.step < 8 and chance.random() < 0.3:
            names: list[Any] = [chance.choice(request.tools).name for _ in range(chance.randint(1, 3))]
            calls = [call_tool(name, {"what": "it"}) for name in names if name != "read_result"]
            return calls or reply("nothing to read")
        return reply("well " * chance.randint(1, 80))
