"""A compiled plan explained: what of the history was shown raw, what by which summary, and what it had to fit."""

from __future__ import annotations

from msgspec import Struct

from rewake.actors.agent.state import Agent
from rewake.events import Compiled, Overhead, Tokens
from rewake.events.context import Bound
from rewake.projections.calibration import meter
from rewake.projections.conversation import price
from rewake.projections.plan import shown
from rewake.projections.settings import bound


class Standing(Struct, frozen=True):
    """A summary that was shown: the messages that it stands for, what they take, and what it takes."""

    id: str
    level: int
    first: str
    last: str
    messages: int
    source_tokens: Tokens
    tokens: Tokens


class Planned(Struct, frozen=True):
    """What a compile chose, in tokens. `tokens` is the estimate: prices times `multiplier`.

    `room` is what the budget leaves and `bound` that with its grace, `window_room` what the window leaves; `binding` is the
    smaller of the last two, `fill` the part of it that is used. `provisional`: nothing was counted by the provider yet.
    `lacking` summaries would have been shown had they been there.
    """

    tokens: Tokens
    room: Tokens
    bound: Tokens
    window_room: Tokens | None
    binding: Bound
    fill: float
    raw_messages: int
    raw_tokens: Tokens
    summaries: tuple[Standing, ...]
    overhead: Overhead
    multiplier: float
    provisional: bool
    probe: bool
    note: str
    lacking: int


def explained(state: Agent, compiled: Compiled) -> Planned:
    """The plan that was committed, from the state right after it."""
    conversation, summaries, most = state.conversation, list[Standing](), bound(state.live)
    messages, tokens = 0, 0
    for start, stop, stands in shown(conversation, state.compression, compiled.plan):
        if not stands:
            messages, tokens = messages + stop - start, tokens + price(conversation, start, stop)
        for one in stands:
            first, last = conversation.places[one.work.first], conversation.places[one.work.last] + 1
            sources = price(conversation, first, last)
            summaries.append(
                Standing(one.id, one.work.level, one.work.first, one.work.last, last - first, sources, one.tokens)
            )
    window = compiled.window_room
    limit = most if window is None else min(most, window)
    return Planned(
        compiled.tokens,
        compiled.room,
        most,
        window,
        "window" if window is not None and window < most else "budget",
        compiled.tokens / limit if limit > 0 else 1.0,
        messages,
        tokens,
        tuple(summaries),
        compiled.overhead,
        compiled.multiplier,
        meter(state.calibration, state.live).provisional,
        compiled.probe,
        compiled.note,
        len(compiled.demand),
    )


def lines(plan: Planned) -> list[str]:
    """The plan as lines of text."""
    whose = "window" if plan.binding == "window" else "budget"
    leaves = f"the budget leaves {plan.room:,}, {plan.bound:,} with its grace"
    if plan.window_room is not None:
        leaves += f"; the window leaves {plan.window_room:,}"
    known = "provisional: the provider has counted nothing yet" if plan.provisional else "learned from its counts"
    beside = plan.overhead
    found = [
        f"fills {plan.fill:.0%} of its {whose}: {leaves}",
        f"multiplier {plan.multiplier:.3f}, {known}" + (PROBE if plan.probe else ""),
        f"raw: {plan.raw_messages:,} messages, {plan.raw_tokens:,} tokens",
        *(summary(one) for one in plan.summaries),
        f"beside them: system {beside.system:,}, tools {beside.tools:,}, injections {beside.injections:,}, "
        f"messages {beside.messages:,} tokens",
    ]
    if plan.lacking:
        found.append(f"would rather have shown {plan.lacking} stretches more by summaries that are not there")
    return [*found, plan.note] if plan.note else found


PROBE = "; a probe: sent without knowing that it fits, its count settles that"


def summary(one: Standing) -> str:
    return (
        f"{one.id}, level {one.level}: {one.messages:,} messages, {one.first} to {one.last}, "
        f"{one.source_tokens:,} tokens shown in {one.tokens:,}"
    )
