"""What the model is shown: one pure function for the compile, a hold's check, a preview and a what-if."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from msgspec import Struct

from rewake.events import Overhead, Settings, Stretch, Tokens
from rewake.events.context import Bound
from rewake.projections import settings as live
from rewake.projections.compression import Compression, Summary, Unit, applying, head_end, tail_start, units
from rewake.projections.conversation import Conversation, Message
from rewake.projections.pricing import scaled

FULL = 0.9
"""Above this part of what there is room for, the oldest raw stretches are shown by their summaries."""


class Bounds(Struct, frozen=True):
    """What a plan must stay within.

    `room` is the budget's, `bound` the room with its grace, `window_room` the window's.
    """

    room: Tokens
    bound: Tokens
    window_room: Tokens | None = None
    overhead: Overhead = Overhead()

    @property
    def limit(self) -> Tokens:
        """The smaller bound."""
        return self.bound if self.window_room is None else min(self.bound, self.window_room)

    @property
    def binding(self) -> Bound:
        return "window" if self.window_room is not None and self.window_room < self.bound else "budget"


class Plan(Struct, frozen=True):
    """The stretches shown, in order, what they take, how many summaries are among them, and what it would rather have
    had.
    """

    stretches: tuple[Stretch, ...]
    digest: str
    tokens: Tokens
    bounds: Bounds
    folded: int = 0
    demand: tuple[Stretch, ...] = ()

    @property
    def fits(self) -> bool:
        return True


class Refusal(Struct, frozen=True):
    """It does not fit: by how much, what must stay, and whether summaries that could still be made would help."""

    why: str
    tokens: Tokens
    bounds: Bounds
    mandatory: Tokens
    shortfall: Tokens
    compressible: bool
    demand: tuple[Stretch, ...] = ()

    @property
    def fits(self) -> bool:
        return False


def bounds(settings: Settings, overhead: Overhead) -> Bounds:
    """The bounds of an agent's settings. Raises nothing: a window that leaves no room is a refusal."""
    window = settings.physical_window_tokens
    left = None if window is None else window - settings.max_tokens - overhead.total
    return Bounds(live.room(settings), live.bound(settings), left, overhead)


def plan(
    conversation: Conversation, summaries: Compression, settings: Settings, multiplier: float, within: Bounds
) -> Plan | Refusal:
    """Show the head, the newest turn and the recent tail raw, the middle raw or by summaries, oldest folded first.

    Tokens are estimates: prices times `multiplier`, per message. Starts from the folds that the last compile committed.
    """
    head, newest = head_end(conversation, settings), conversation.newest
    tail = min(tail_start(conversation, settings, within.limit), newest)
    parts = list(units(conversation, summaries, settings, min(head, tail), newest, tail))
    committed = frozenset(places_of(conversation, conversation.folds))
    mandatory = priced(conversation.messages[:head], multiplier) + priced(conversation.messages[newest:], multiplier)
    costs = [(scaled(part.tokens, multiplier), cost(part.summary, multiplier)) for part in parts]
    folded = [part.summary is not None and part.start in committed for part in parts]
    total = mandatory + sum(pair[fold] for pair, fold in zip(costs, folded, strict=True))
    expected, demand = total, list[Stretch]()
    for index, part in enumerate(parts):
        goal = FULL * min(within.room, within.limit) if part.start < tail else within.limit
        if folded[index] or expected <= goal:
            continue
        raw, short = costs[index]
        if part.summary:
            folded[index] = True
            total, expected = total - raw + short, expected - raw + short
        elif (wanted := Stretch(0, *ends(conversation, part))) and not quarantined(summaries, wanted):
            demand.append(wanted)
            expected -= raw
    if total > within.limit:
        full = within.window_room is not None and mandatory > within.window_room
        compressible = mandatory <= within.limit and bool(demand)
        why = "window_full" if full else "over_budget"
        return Refusal(why, total, within, mandatory, total - within.limit, compressible, tuple(demand))
    stretches = tuple(joined(conversation, head, parts, folded))
    return Plan(stretches, digest(conversation, stretches), total, within, sum(folded), tuple(demand))


def shown(
    conversation: Conversation, summaries: Compression, stretches: Iterable[Stretch]
) -> Iterator[Message | Summary]:
    """What a plan shows, in order, and after it every message that came later."""
    end = 0
    for stretch in stretches:
        place, end = conversation.places[stretch.first], conversation.places[stretch.last] + 1
        if stretch.level == 0:
            yield from conversation.messages[place:end]
        while stretch.level and place < end:
            summary = applying(conversation, summaries, place)
            if summary is None:
                raise LookupError(f"no summary applies at {conversation.messages[place].id}")
            yield summary
            place += len(summary.work.sources)
    yield from conversation.messages[end:]


def priced(messages: Iterable[Message], multiplier: float) -> Tokens:
    return sum(scaled(message.shown, multiplier) for message in messages)


def cost(summary: Summary | None, multiplier: float) -> Tokens:
    return scaled(summary.tokens, multiplier) if summary else 0


def ends(conversation: Conversation, part: Unit) -> tuple[str, str]:
    return conversation.messages[part.start].id, conversation.messages[part.stop - 1].id


def quarantined(summaries: Compression, stretch: Stretch) -> bool:
    return any(
        one.work.first == stretch.first and one.work.last == stretch.last for one in summaries.quarantined.values()
    )


def places_of(conversation: Conversation, folds: Iterable[Stretch]) -> Iterator[int]:
    for fold in folds:
        start, last = conversation.places.get(fold.first), conversation.places.get(fold.last)
        if start is not None and last is not None:
            yield from range(start, last + 1)


def joined(conversation: Conversation, head: int, parts: list[Unit], folded: list[bool]) -> Iterator[Stretch]:
    """The shown stretches, neighbours of one level joined into one."""
    spans = [(0, 0, head)] if head else []
    spans += [(int(fold), part.start, part.stop) for part, fold in zip(parts, folded, strict=True)]
    covered = spans[-1][2] if spans else 0
    if covered < len(conversation.messages):
        spans.append((0, covered, len(conversation.messages)))
    while spans:
        level, start, stop = spans.pop(0)
        while spans and spans[0][0] == level:
            stop = spans.pop(0)[2]
        yield Stretch(level, conversation.messages[start].id, conversation.messages[stop - 1].id)


def digest(conversation: Conversation, stretches: tuple[Stretch, ...]) -> str:
    """Of what is shown, as of the last change of the conversation."""
    said = "\n".join(f"{one.level} {one.first} {one.last}" for one in stretches)
    return hashlib.blake2b(f"{conversation.revision}\n{said}".encode(), digest_size=12).hexdigest()
