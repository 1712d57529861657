"""Checking a plan before it is committed: every message shown once or left out on purpose, in order, within the bounds.

No strategy is believed, not the built-in ones either. What only goes on from the last compile's plan is looked at where it
goes on: the rest was checked then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rewake.events import LEFT_OUT, InvalidPlan, Settings, Stretch, Tokens
from rewake.projections.compression import Compression, head_end, standing
from rewake.projections.conversation import Conversation, Shown, closes, flat_price, price
from rewake.projections.plan import Bounds, Plan, Refusal, digest, rounded
from rewake.projections.pricing import scaled
from rewake.projections.window import opens


class Takes(Struct, frozen=True):
    """What a plan's stretches take at multiplier 1, the part of it that no multiplier is for, the summaries among them with
    those that they were merged from, and the messages that they lose.
    """

    price: Tokens
    flat: Tokens
    folded: int = 0
    missing: tuple[str, ...] = ()


def checked(
    strategy: str,
    conversation: Conversation,
    summaries: Compression,
    settings: Settings,
    multiplier: float,
    found: Plan,
) -> Plan | Refusal:
    """The plan, priced anew; `uncovered` where it loses messages. Raises InvalidPlan, with the numbers.

    What must be sent may be over the budget, where a strategy sends it alone: never over the window.
    """
    takes = grown(conversation, found.stretches) or taken(strategy, conversation, summaries, found.stretches)
    within, tokens = found.bounds, rounded(scaled(takes.price, takes.flat, multiplier))
    if takes.missing:
        return uncovered(conversation, within, tokens, takes.missing)
    limit = within.window_room if takes.price <= must(conversation, settings) else within.limit
    if limit is not None and tokens > limit:
        raise InvalidPlan(
            strategy, f"its plan takes {tokens:,} tokens, at most {limit:,} fit", tokens=tokens, limit=limit
        )
    figures = {"tokens": tokens, "price": takes.price, "flat": takes.flat, "folded": takes.folded}
    return replace(found, digest=digest(conversation, found.stretches), **figures)


def grown(conversation: Conversation, stretches: Sequence[Stretch]) -> Takes | None:
    """What they take, where they are those of the last compile and, raw, what came after it; else None."""
    shown = conversation.shown
    if shown is None or not goes_on(conversation, shown, tuple(stretches)):
        return None
    came = shown.messages, len(conversation.messages)
    return Takes(
        shown.price + price(conversation, *came), shown.flat + flat_price(conversation, *came), folded=shown.folded
    )


def goes_on(conversation: Conversation, shown: Shown, stretches: tuple[Stretch, ...]) -> bool:
    """Whether these are the stretches of a former plan, with what came after it shown raw."""
    messages = conversation.messages
    if len(messages) == shown.messages or not messages:
        return stretches == shown.stretches
    came = Stretch(0, messages[shown.messages].id, messages[-1].id)
    if shown.stretches and shown.stretches[-1].level == 0:
        return stretches == (*shown.stretches[:-1], replace(shown.stretches[-1], last=came.last))
    return stretches == (*shown.stretches, came)


def taken(strategy: str, conversation: Conversation, summaries: Compression, stretches: Sequence[Stretch]) -> Takes:
    """What they take, stretch by stretch. Raises InvalidPlan for what is unknown, out of order, or can not be sent."""
    cost = fixed = folded = end = 0
    missing: list[str] = []
    level = shows = 0
    for start, stop, one in places(strategy, conversation, stretches):
        if start < end:
            raise InvalidPlan(strategy, f"it shows {one.first} twice, or out of order", message_id=one.first)
        missing += (lost.id for lost in conversation.messages[end:start])
        whole = start > 0 and not missing
        if whole and (level or one.level) and not closes(conversation.messages[start - 1]):
            raise InvalidPlan(strategy, f"it parts a tool call from its result at {one.first}", message_id=one.first)
        if one.level == 0:
            if whole and not shows and start < conversation.newest and not opens(conversation.messages[start]):
                raise InvalidPlan(strategy, f"it begins with the agent's own words, {one.first}", message_id=one.first)
            cost += price(conversation, start, stop)
            fixed += flat_price(conversation, start, stop)
        elif stop > conversation.newest:
            lost = conversation.messages[max(start, conversation.newest)].id
            raise InvalidPlan(strategy, f"it does not show the newest turn as it is: {lost}", message_id=lost)
        elif one.level > 0:
            told = told_by(strategy, conversation, summaries, start, stop, one)
            cost, folded = cost + told[0], folded + told[1]
        level, shows, end = one.level, shows + (one.level >= 0), stop
    missing += (lost.id for lost in conversation.messages[end:])
    return Takes(cost, fixed, folded, tuple(missing))


def places(
    strategy: str, conversation: Conversation, stretches: Sequence[Stretch]
) -> Iterator[tuple[int, int, Stretch]]:
    """Each stretch with the places from and to (exclusive) that it stands for."""
    for one in stretches:
        ends = [conversation.places.get(id) for id in (one.first, one.last)]
        for id, place in zip((one.first, one.last), ends, strict=True):
            if place is None:
                raise InvalidPlan(strategy, f"{id} is no message of the conversation", message_id=id)
        start, last = ends
        if start is None or last is None or last < start or one.level < LEFT_OUT:
            raise InvalidPlan(strategy, f"there is no stretch from {one.first} to {one.last}", message_id=one.first)
        yield start, last + 1, one


def told_by(
    strategy: str, conversation: Conversation, summaries: Compression, start: int, stop: int, one: Stretch
) -> tuple[Tokens, int]:
    """What the summaries of a stretch take, and how many they are with those that they were merged from."""
    try:
        found = standing(conversation, summaries, start, stop, one.level)
        if conversation.places[found[-1].work.last] != stop - 1:
            raise LookupError(f"the last one ends at {found[-1].work.last}")
    except LookupError as error:
        why = f"no summaries of level {one.level} stand for {one.first} to {one.last}: {error}"
        raise InvalidPlan(strategy, why, message_id=one.first) from error
    below = [standing(conversation, summaries, start, stop, level) for level in range(1, one.level)]
    return sum(summary.tokens for summary in found), len(found) + sum(len(level) for level in below)


def uncovered(conversation: Conversation, within: Bounds, tokens: Tokens, missing: tuple[str, ...]) -> Refusal:
    """A plan that loses messages: what the drain may make of them is all that can be hoped for."""
    demand: list[Stretch] = []
    for id in missing:
        place = conversation.places[id]
        if demand and conversation.places[demand[-1].last] == place - 1:
            demand[-1] = replace(demand[-1], last=id)
        else:
            demand.append(Stretch(0, id, id))
    newest = price(conversation, conversation.newest, len(conversation.messages))
    return Refusal("uncovered", tokens, within, newest, 0, True, tuple(demand), missing)


def must(conversation: Conversation, settings: Settings) -> Tokens:
    """The price of what is sent whatever the budget: the head and the newest turn."""
    head = price(conversation, 0, head_end(conversation, settings))
    return head + price(conversation, conversation.newest, len(conversation.messages))
