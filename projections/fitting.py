"""Whether a context fits, budget and window both: planned at what the calibration expects, with caution while it is new.

While nothing was counted yet, a provider may count up to 1.8 times what we price. So everything is priced at that ceiling
against the window first; where that refuses, what must be sent is priced as it is, and only optional history at the ceiling.
What fits then is a *probe*: it is sent, and its count settles what was not known. No store is refused for want of a count.
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from rewake.events import Overhead, Settings
from rewake.projections.calibration import HIGH, Meter
from rewake.projections.compression import Compression, head_end
from rewake.projections.conversation import Conversation, flat_price
from rewake.projections.plan import Bounds, Plan, Refusal, bounds, estimate
from rewake.projections.strategies import asked


def fit(
    conversation: Conversation, summaries: Compression, settings: Settings, meter: Meter, overhead: Overhead
) -> Plan | Refusal:
    """The plan of an agent's next request, or its refusal. `overhead` is priced at multiplier 1.

    Raises InvalidPlan for what a strategy may not give, InvalidSetting for one that can not be imported.
    """
    expected = meter.offsets.get(settings.overhead_digest, 0.0)
    within = bounds(settings, overhead, meter.multiplier, expected)
    if within.window_room is not None and meter.provisional:
        found = careful(conversation, summaries, settings, meter, within)
    else:
        found = asked(conversation, summaries, settings, meter.multiplier, within)
    if isinstance(found, Refusal) and found.why == "window_full":
        return flat_probe(conversation, summaries, settings, meter, within) or found
    return found


def careful(
    conversation: Conversation, summaries: Compression, settings: Settings, meter: Meter, within: Bounds
) -> Plan | Refusal:
    """A plan at the ceiling; else a probe, whose optional history alone is at the ceiling; else why there is none."""
    multiplier, room = meter.multiplier, within.window_room or 0
    fixed = flat_mandatory(conversation, settings)
    ceiling = bounds(settings, within.overhead, HIGH).window_room or 0
    narrow = replace(within, window_room=math.floor((ceiling - fixed) * multiplier / HIGH + fixed))
    found = asked(conversation, summaries, settings, multiplier, narrow)
    if isinstance(found, Plan):
        return replace(found, bounds=within)
    must = mandatory(conversation, settings, multiplier)
    if must > room:
        return asked(conversation, summaries, settings, multiplier, within)
    spare = replace(within, window_room=math.floor(must + (room - must) * multiplier / HIGH))
    probe = asked(conversation, summaries, settings, multiplier, spare)
    return replace(probe, bounds=within, probe=True) if isinstance(probe, Plan) else probe


def flat_probe(
    conversation: Conversation, summaries: Compression, settings: Settings, meter: Meter, within: Bounds
) -> Plan | None:
    """What flat prices alone make too large is sent all the same: an image may count far less than we price it."""
    room, fixed = within.window_room or 0, flat_mandatory(conversation, settings)
    if room <= 0 or not fixed or mandatory(conversation, settings, meter.multiplier) - fixed > room:
        return None
    wide = replace(within, window_room=room + fixed)
    found = asked(conversation, summaries, settings, meter.multiplier, wide)
    return replace(found, bounds=within, probe=True) if isinstance(found, Plan) else None


def mandatory(conversation: Conversation, settings: Settings, multiplier: float) -> float:
    """What must be sent: the head and the newest turn."""
    end = len(conversation.messages)
    head = estimate(conversation, 0, head_end(conversation, settings), multiplier)
    return head + estimate(conversation, conversation.newest, end, multiplier)


def flat_mandatory(conversation: Conversation, settings: Settings) -> int:
    head, end = head_end(conversation, settings), len(conversation.messages)
    return flat_price(conversation, 0, head) + flat_price(conversation, conversation.newest, end)
