"""What the model is shown: one pure function for the compile, a hold's check, a preview and a what-if."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from itertools import groupby

from msgspec import Struct

from rewake.events import Overhead, Settings, Stretch, Tokens
from rewake.events.context import Bound
from rewake.projections import settings as live
from rewake.projections.compression import Compression, Summary, Unit, applying, head_end, tail_start, units
from rewake.projections.conversation import Conversation, flat_price, price
from rewake.projections.conversation import digest as digest_of
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
    price: Tokens = 0
    flat: Tokens = 0
    probe: bool = False

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


def bounds(settings: Settings, overhead: Overhead, multiplier: float = 1.0, offset: float = 0.0) -> Bounds:
    """The bounds of an agent's settings, what is sent beside the history estimated at `multiplier` and `offset`.

    Raises nothing: a window that leaves no room is a refusal.
    """
    window, left = settings.physical_window_tokens, None
    if window is not None:
        left = math.floor(window - settings.max_tokens - overhead.total * multiplier - offset)
    return Bounds(live.room(settings), live.bound(settings), left, overhead)


def plan(
    conversation: Conversation, summaries: Compression, settings: Settings, multiplier: float, within: Bounds
) -> Plan | Refusal:
    """Show the head, the newest turn and the recent tail raw, the middle raw or by summaries, oldest folded first.

    Tokens are estimates: prices times `multiplier`, per message. Starts from the folds that the last compile committed.
    """
    if (extended := longer(conversation, settings, multiplier, within)) is not None:
        return extended
    head, newest = head_end(conversation, settings), conversation.newest
    tail = max(head, min(tail_start(conversation, settings, within.limit), newest))
    parts = list(units(conversation, summaries, settings, head, newest, tail))
    mandatory = estimate(conversation, 0, head, multiplier)
    mandatory += estimate(conversation, newest, len(conversation.messages), multiplier)
    costs = [
        (estimate(conversation, part.start, part.stop, multiplier), cost(part.summary, multiplier)) for part in parts
    ]
    goals = [FULL * min(within.room, within.limit) if part.start < tail else within.limit for part in parts]
    folded = committed(conversation, parts)
    total = mandatory + sum(pair[fold] for pair, fold in zip(costs, folded, strict=True))
    for index, part in enumerate(parts):
        if part.summary and not folded[index] and total > goals[index]:
            raw, short = costs[index]
            folded[index], total = True, total - raw + short
    lacking = list(lacks(conversation, summaries, parts, costs, goals, total))
    demand = tuple(stretch for stretch, _ in lacking)
    full = within.window_room is not None and (within.window_room <= 0 or mandatory > within.window_room)
    if full or total > within.limit:
        helps = not full and bool(demand) and total - sum(raw for _, raw in lacking) <= within.limit
        why = "window_full" if full else "over_budget"
        over = max(0, rounded(total) - within.limit)
        return Refusal(why, rounded(total), within, rounded(mandatory), over, helps, demand)
    stretches = tuple(joined(conversation, head, parts, folded))
    shown, raw = 0, [(0, head), (newest, len(conversation.messages))]
    for part, fold in zip(parts, folded, strict=True):
        if fold and part.summary:
            shown += part.summary.tokens
        else:
            raw.append((part.start, part.stop))
    shown += sum(price(conversation, *span) for span in raw)
    fixed = sum(flat_price(conversation, *span) for span in raw)
    marked = digest(conversation, stretches)
    return Plan(stretches, marked, rounded(total), within, sum(folded), demand, shown, fixed)


def longer(conversation: Conversation, settings: Settings, multiplier: float, within: Bounds) -> Plan | None:
    """The last plan with what came after it, when only the end has changed and nothing is so full that it would fold.

    What the whole plan would give, without looking at what it has looked at before.
    """
    shown = conversation.shown
    if shown is None or folds_head(conversation, settings, shown.stretches):
        return None
    came, last = conversation.messages[shown.messages :], len(conversation.messages)
    cost, fixed = shown.price + price(conversation, shown.messages, last), shown.flat
    fixed += flat_price(conversation, shown.messages, last)
    tokens = scaled(cost, fixed, multiplier)
    if tokens > FULL * min(within.room, within.limit):
        return None
    stretches = shown.stretches
    if came and stretches and stretches[-1].level == 0:
        stretches = (*stretches[:-1], Stretch(0, stretches[-1].first, came[-1].id))
    elif came:
        stretches = (*stretches, Stretch(0, came[0].id, came[-1].id))
    marked = digest(conversation, stretches)
    return Plan(stretches, marked, rounded(tokens), within, shown.folded, (), cost, fixed)


def folds_head(conversation: Conversation, settings: Settings, stretches: tuple[Stretch, ...]) -> bool:
    """Whether these stretches show a part of the head by summaries: it was shorter when they were chosen."""
    head = head_end(conversation, settings)
    if head == 0 or not stretches:
        return False
    return stretches[0].level > 0 or conversation.places[stretches[0].last] + 1 < head


def committed(conversation: Conversation, parts: Iterable[Unit]) -> list[bool]:
    """Which parts the last compile showed by their summaries."""
    spans = sorted(spans_of(conversation, conversation.folds))
    folded, index = list[bool](), 0
    for part in parts:
        while index < len(spans) and spans[index][1] < part.start:
            index += 1
        folded.append(part.summary is not None and index < len(spans) and spans[index][0] <= part.start)
    return folded


def lacks(
    conversation: Conversation,
    summaries: Compression,
    parts: Iterable[Unit],
    costs: Iterable[tuple[float, float]],
    goals: Iterable[float],
    total: float,
) -> Iterator[tuple[Stretch, float]]:
    """The raw stretches, oldest first, without which there would be room enough, and what each takes."""
    for part, (raw, _), goal in zip(parts, costs, goals, strict=True):
        if total <= goal:
            return
        if part.summary is None and not quarantined(conversation, summaries, part):
            yield Stretch(0, *ends(conversation, part)), raw
            total -= raw


def shown(
    conversation: Conversation, summaries: Compression, stretches: Iterable[Stretch]
) -> Iterator[tuple[int, int, list[Summary]]]:
    """What a plan shows, in order, and after it whatever came later: places from and to (exclusive), raw or by summaries."""
    end = 0
    for stretch in stretches:
        place, end = conversation.places[stretch.first], conversation.places[stretch.last] + 1
        yield place, end, standing(conversation, summaries, place, end) if stretch.level else []
    if end < len(conversation.messages):
        yield end, len(conversation.messages), []


def standing(conversation: Conversation, summaries: Compression, place: int, end: int) -> list[Summary]:
    """The summaries that stand for the messages from one place to another."""
    found: list[Summary] = []
    while place < end:
        summary = applying(conversation, summaries, place)
        if summary is None:
            raise LookupError(f"no summary applies at {conversation.messages[place].id}")
        found.append(summary)
        place += len(summary.work.sources)
    return found


def estimate(conversation: Conversation, start: int, stop: int, multiplier: float) -> float:
    """What messages shown raw are expected to count: their price times the multiplier, images as they are."""
    return scaled(price(conversation, start, stop), flat_price(conversation, start, stop), multiplier)


def cost(summary: Summary | None, multiplier: float) -> float:
    return summary.tokens * multiplier if summary else 0


def rounded(tokens: float) -> Tokens:
    """Half up; sums are rounded once, at the end."""
    return math.floor(tokens + 0.5)


def ends(conversation: Conversation, part: Unit) -> tuple[str, str]:
    return conversation.messages[part.start].id, conversation.messages[part.stop - 1].id


def quarantined(conversation: Conversation, summaries: Compression, part: Unit) -> bool:
    if not summaries.quarantined:
        return False
    return digest_of(conversation.messages[part.start : part.stop]) in summaries.quarantined


def spans_of(conversation: Conversation, folds: Iterable[Stretch]) -> Iterator[tuple[int, int]]:
    """The first and the last place of each stretch, where both its ends are still there."""
    for fold in folds:
        start, last = conversation.places.get(fold.first), conversation.places.get(fold.last)
        if start is not None and last is not None:
            yield start, last


def joined(conversation: Conversation, head: int, parts: list[Unit], folded: list[bool]) -> Iterator[Stretch]:
    """The shown stretches, neighbours of one level joined into one."""
    spans = [(0, 0, head)] if head else []
    spans += [(int(fold), part.start, part.stop) for part, fold in zip(parts, folded, strict=True)]
    covered = spans[-1][2] if spans else 0
    if covered < len(conversation.messages):
        spans.append((0, covered, len(conversation.messages)))
    for level, group in groupby(spans, key=lambda span: span[0]):
        run = list(group)
        start, stop = run[0][1], run[-1][2]
        yield Stretch(level, conversation.messages[start].id, conversation.messages[stop - 1].id)


def digest(conversation: Conversation, stretches: tuple[Stretch, ...]) -> str:
    """Of what is shown, as of the last change of the conversation."""
    said = "\n".join(f"{one.level} {one.first} {one.last}" for one in stretches)
    return hashlib.blake2b(f"{conversation.revision}\n{said}".encode(), digest_size=12).hexdigest()
