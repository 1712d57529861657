"""Calibration: what the provider counts beside what we price, learned per provider, model, encoding and price table.

A request is estimated as `multiplier × price + offset`: the multiplier is the model's, the offset belongs to the system
prompt and the tools that were sent, which a provider counts in its own way. Flat prices (images, documents) stay out of both.
"""

from __future__ import annotations

import math
from typing import Any

from immutables import Map
from msgspec import Struct
from msgspec.structs import replace

from rewake.events import CalibrationSampled, Event, Recorded, Settings, Tokens
from rewake.projections.pricing import VERSION, scaled

NAME = "calibration"
KINDS: frozenset[type[Event]] = frozenset({CalibrationSampled})

LOW, HIGH = 0.6, 1.8
"""The clamp: no multiplier is outside it, and no accepted sample either."""
EQUAL_WEIGHTS = 5
"""The first accepted samples count alike; later ones a fifth each."""
REJECTED_ALIKE = 5
"""Rejected samples in a row, all too low or all too high, after which the nearer end of the clamp holds."""
SPREAD = 1.15
"""How much the conversation must have grown over the samples before an offset can be told from a ratio."""
RESIDUAL = 0.03
"""How far, in parts of the count, the samples may be from the line that an offset is read off."""


class Line(Struct, frozen=True):
    """Sums over the samples of one system prompt and tool set: conversation priced x, counted y."""

    n: int = 0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0
    yy: float = 0.0
    low: float = math.inf
    high: float = 0.0


class Meter(Struct, frozen=True):
    """What was learned for one key. `side` and `alike`: the rejected samples in a row and which way they were off."""

    multiplier: float = 1.0
    accepted: int = 0
    rejected: int = 0
    side: str = ""
    alike: int = 0
    offsets: Map[str, float] = Map()
    lines: Map[str, Line] = Map()

    @property
    def provisional(self) -> bool:
        """Whether nothing was learned yet: everything is priced with caution."""
        return not self.accepted and self.alike < REJECTED_ALIKE


class Calibration(Struct, frozen=True):
    """A meter for each (provider, model, encoding, price version), by its key."""

    meters: Map[str, Meter] = Map()
    revision: int = 0


def initial() -> Calibration:
    return Calibration()


def evolve(state: Calibration, recorded: Recorded) -> Calibration:
    match recorded.event:
        case CalibrationSampled(dropped=True):
            return state
        case CalibrationSampled() as sample:
            key = key_of(sample.provider, sample.model, sample.encoding, sample.prices)
            meter = state.meters.get(key, Meter())
            return replace(state, meters=state.meters.set(key, learned(meter, sample)), revision=recorded.version)
        case _:
            return state


def rows(state: Calibration) -> list[dict[str, Any]]:
    return [
        {"key": key, "multiplier": meter.multiplier, "accepted": meter.accepted, "rejected": meter.rejected}
        | {"provisional": meter.provisional, "offsets": {name: round(value) for name, value in meter.offsets.items()}}
        for key, meter in sorted(state.meters.items())
    ]


def key_of(provider: str, model: str, encoding: str, prices: int = VERSION) -> str:
    """What a meter belongs to: another model, encoding or price table starts anew, going back finds the old one."""
    return f"{provider}/{model}/{encoding}/{prices}"


def meter(state: Calibration, settings: Settings) -> Meter:
    """The meter of an agent's present model."""
    return state.meters.get(key_of(settings.provider, settings.model, settings.encoding), Meter())


def estimate(meter: Meter, priced: Tokens, flat: Tokens, digest: str) -> float:
    """What the provider is expected to count for a request of that price."""
    return scaled(priced, flat, meter.multiplier) + meter.offsets.get(digest, 0.0)


def observed(meter: Meter, sample: CalibrationSampled) -> float:
    """The ratio that this sample shows, the offset of its system prompt and tools aside."""
    priced = sample.priced - sample.flat
    counted = sample.counted - sample.flat - meter.offsets.get(sample.digest, 0.0)
    return counted / priced if priced > 0 else 0.0


def judged(meter: Meter, sample: CalibrationSampled) -> tuple[bool, str]:
    """Whether a sample is accepted, and why not: it is when it, or what the estimate missed it by, is in [0.6, 1.8]."""
    if sample.counted <= 0 or sample.priced <= 0:
        return False, "nothing was counted"
    ratio = observed(with_line(meter, sample), sample)
    missed = sample.counted / max(1.0, estimate(meter, sample.priced, sample.flat, sample.digest))
    if LOW <= ratio <= HIGH or LOW <= missed <= HIGH:
        return True, ""
    return False, f"counted {sample.counted:,} for {sample.priced:,} priced: a ratio of {ratio:.2f}"


def learned(meter: Meter, sample: CalibrationSampled) -> Meter:
    """The meter after a sample, accepted or not as the event says."""
    if not sample.accepted:
        return after_rejected(meter, sample)
    before = meter.offsets.get(sample.digest, 0.0)
    meter = with_line(meter, sample)
    count = meter.accepted + 1
    if meter.offsets.get(sample.digest, 0.0) != before and before == 0.0:
        ratio, weight = slope(meter.lines[sample.digest]), 1.0
    else:
        ratio, weight = observed(meter, sample), 1 / count if count <= EQUAL_WEIGHTS else 0.2
    multiplier = clamped(meter.multiplier + (ratio - meter.multiplier) * weight)
    return replace(meter, multiplier=multiplier, accepted=count, alike=0, side="")


def after_rejected(meter: Meter, sample: CalibrationSampled) -> Meter:
    side = "low" if observed(meter, sample) < LOW else "high"
    alike = meter.alike + 1 if side == meter.side else 1
    multiplier = meter.multiplier
    if not meter.accepted and alike >= REJECTED_ALIKE:
        multiplier = LOW if side == "low" else HIGH
    return replace(meter, rejected=meter.rejected + 1, side=side, alike=alike, multiplier=multiplier)


def with_line(meter: Meter, sample: CalibrationSampled) -> Meter:
    """The meter with this sample's point, and the offset that its line shows once it shows one."""
    x = float(sample.priced - sample.overhead - sample.flat)
    y = float(sample.counted - sample.flat)
    old = meter.lines.get(sample.digest, Line())
    line = Line(
        old.n + 1,
        old.x + x,
        old.y + y,
        old.xx + x * x,
        old.xy + x * y,
        old.yy + y * y,
        min(old.low, x),
        max(old.high, x),
    )
    meter = replace(meter, lines=meter.lines.set(sample.digest, line))
    if not straight(line):
        return meter
    gradient = slope(line)
    offset = (line.y - gradient * line.x) / line.n - gradient * sample.overhead
    return replace(meter, offsets=meter.offsets.set(sample.digest, offset))


def slope(line: Line) -> float:
    return (line.n * line.xy - line.x * line.y) / (line.n * line.xx - line.x * line.x)


def straight(line: Line) -> bool:
    """Whether the samples lie on a line, over enough of a range, whose slope a provider could have."""
    if line.n < 3 or line.high < line.low * SPREAD or line.n * line.xx - line.x * line.x <= 0:
        return False
    gradient = slope(line)
    if not LOW <= gradient <= HIGH:
        return False
    intercept = (line.y - gradient * line.x) / line.n
    squares = line.yy - intercept * line.y - gradient * line.xy
    return math.sqrt(max(0.0, squares) / line.n) <= RESIDUAL * line.y / line.n


def clamped(multiplier: float) -> float:
    return min(HIGH, max(LOW, multiplier))
