"""What the model is shown: one pure function for the compile, a hold's check, a preview and a what-if."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from itertools import groupby

from msgspec import Struct

from rewake.events import Overhead, Settings, Stretch, Tokens
from rewake.events.context import Bound, RefusalWhy
from rewake.projections import settings as live
from rewake.projections.backlog import left, made_of, merge
from rewake.projections.compression import Compression, Summary, head_end, standing, tail_start, units
from rewake.projections.conversation import Conversation, flat_price, price
from rewake.projections.forest import Node, forest, unmerged
from rewake.projections.pricing import scaled
from rewake.projections.raising import Folding, Goal, committed, fold

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

    `live_room` and `target_room` are told by a preview: what the present budget leaves, and the one that is asked for.
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
    live_room: Tokens | None = None
    target_room: Tokens | None = None

    @property
    def fits(self) -> bool:
        return True

    @property
    def room(self) -> Tokens:
        """What the budget leaves for the conversation."""
        return self.bounds.room

    @property
    def bound(self) -> Tokens:
        """The room with its grace."""
        return self.bounds.bound

    @property
    def window_room(self) -> Tokens | None:
        """What the window leaves for the history; None without one."""
        return self.bounds.window_room


class Refusal(Struct, frozen=True):
    """It does not fit: by how much, what must stay, and whether summaries that could still be made would help.

    `live_room` and `target_room` as in a Plan. `uncovered`: the plan loses the messages `missing`, which are neither shown
    nor under a shown summary. `error` says what is wrong with a plan that can not be sent, or why there is no strategy.
    """

    why: RefusalWhy
    tokens: Tokens
    bounds: Bounds
    mandatory: Tokens
    shortfall: Tokens
    compressible: bool
    demand: tuple[Stretch, ...] = ()
    missing: tuple[str, ...] = ()
    error: str = ""
    live_room: Tokens | None = None
    target_room: Tokens | None = None

    @property
    def fits(self) -> bool:
        return False

    @property
    def room(self) -> Tokens:
        """What the budget leaves for the conversation."""
        return self.bounds.room

    @property
    def bound(self) -> Tokens:
        """The room with its grace."""
        return self.bounds.bound

    @property
    def window_room(self) -> Tokens | None:
        """What the window leaves for the history; None without one."""
        return self.bounds.window_room


def bounds(settings: Settings, overhead: Overhead, multiplier: float = 1.0, offset: float = 0.0) -> Bounds:
    """The bounds of an agent's settings, what is sent beside the history estimated at `multiplier` and `offset`.

    Raises nothing: a window that leaves no room is a refusal.
    """
    window, left = settings.physical_window_tokens, None
    if window is not None:
        left = math.floor(window - settings.max_tokens - scaled(overhead.total, overhead.flat, multiplier) - offset)
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
    nodes = forest(summaries, parts)
    costs = [cost(conversation, node, multiplier) for node in nodes]
    goals = FULL * min(within.room, within.limit), within.limit

    def goal(node: Node) -> float:
        return goals[node.start >= tail]

    folding = committed(conversation, nodes, len(parts), costs, mandatory)
    if folding.total > goals[0]:
        fold(conversation, folding, settings.recent_window_tokens, goal)
    shows, total = [nodes[one] for one in folding.shown()], folding.total
    lacking = list(lacks(conversation, summaries, settings, folding, goal))
    demand = tuple(stretch for stretch, _ in lacking)
    full = within.window_room is not None and (within.window_room <= 0 or mandatory > within.window_room)
    if full or total > within.limit:
        helps = not full and bool(demand) and total - sum(cost for _, cost in lacking) <= within.limit
        why = "window_full" if full else "over_budget"
        over = max(0, rounded(total) - within.limit)
        return Refusal(why, rounded(total), within, rounded(mandatory), over, helps, demand)
    stretches = tuple(joined(conversation, head, shows))
    raw = [(0, head), *((one.start, one.stop) for one in shows if not one.level), (newest, len(conversation.messages))]
    shown = sum(one.tokens for one in shows if one.level) + sum(price(conversation, *span) for span in raw)
    fixed = sum(flat_price(conversation, *span) for span in raw)
    folded, marked = sum(made(nodes, one) for one in shows), digest(conversation, stretches)
    return Plan(stretches, marked, rounded(total), within, folded, demand, shown, fixed)


def longer(conversation: Conversation, settings: Settings, multiplier: float, within: Bounds) -> Plan | None:
    """The last plan with what came after it, when only the end has changed and nothing is so full that it would fold.

    What the whole plan would give, without looking at what it has looked at before.
    """
    shown = conversation.shown
    if shown is None or conversation.anchor or folds_head(conversation, settings, shown.stretches):
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


def made(nodes: list[Node], node: Node) -> int:
    """How many summaries there are in a node: its own, and those that it was merged from."""
    found = 0
    for leaf in range(node.leaf, node.end):
        climbed = nodes[leaf].parent
        while climbed >= 0 and nodes[climbed].leaf == leaf and nodes[climbed].level <= node.level:
            found, climbed = found + 1, nodes[climbed].parent
    return found


def lacks(
    conversation: Conversation, summaries: Compression, settings: Settings, folding: Folding, goal: Goal
) -> Iterator[tuple[Stretch, float]]:
    """What is shown, oldest first, without which there would be room enough, and what each takes: raw stretches that
    nothing stands for, then neighbours that were not merged.
    """
    shows = [folding.nodes[one] for one in folding.shown()]
    costs, total = [folding.costs[one] for one in folding.shown()], folding.total
    for node, cost in zip(shows, costs, strict=True):
        if total <= goal(node):
            return
        if node.level == 0 and node.parent < 0 and left(conversation, summaries, settings, node.start, node.stop):
            yield Stretch(0, *ends(conversation, node)), cost
            total -= cost
    cost_of = {node.leaf: cost for node, cost in zip(shows, costs, strict=True)}
    for run in unmerged(shows, settings.merge_threshold):
        if total <= goal(run[0]):
            return
        if merge(summaries, settings, made_of(run)):
            takes = sum(cost_of[node.leaf] for node in run)
            yield Stretch(run[0].level, ends(conversation, run[0])[0], ends(conversation, run[-1])[1]), takes
            total -= takes


def shown(
    conversation: Conversation, summaries: Compression, stretches: Iterable[Stretch]
) -> Iterator[tuple[int, int, list[Summary]]]:
    """What a plan shows, in order, and after it whatever came later: places from and to (exclusive), raw or by summaries."""
    end = 0
    for stretch in stretches:
        place, end = conversation.places[stretch.first], conversation.places[stretch.last] + 1
        level = stretch.level
        if level >= 0:
            yield place, end, standing(conversation, summaries, place, end, level) if level else []
    if end < len(conversation.messages):
        yield end, len(conversation.messages), []


def ends(conversation: Conversation, node: Node) -> tuple[str, str]:
    return conversation.messages[node.start].id, conversation.messages[node.stop - 1].id


def estimate(conversation: Conversation, start: int, stop: int, multiplier: float) -> float:
    """What messages shown raw are expected to count: their price times the multiplier, images as they are."""
    return scaled(price(conversation, start, stop), flat_price(conversation, start, stop), multiplier)


def cost(conversation: Conversation, node: Node, multiplier: float) -> float:
    if node.level:
        return node.tokens * multiplier
    return estimate(conversation, node.start, node.stop, multiplier)


def rounded(tokens: float) -> Tokens:
    """Half up; sums are rounded once, at the end."""
    return math.floor(tokens + 0.5)


def joined(conversation: Conversation, head: int, shows: list[Node]) -> Iterator[Stretch]:
    """The shown stretches, neighbours of one level joined into one."""
    spans = [(0, 0, head)] if head else []
    spans += [(node.level, node.start, node.stop) for node in shows]
    covered = spans[-1][2] if spans else 0
    spans.append((0, covered, len(conversation.messages)))
    return spanning(conversation, spans)


def spanning(conversation: Conversation, spans: Iterable[tuple[int, int, int]]) -> Iterator[Stretch]:
    """Levels and the places from and to (exclusive) that they are for, as stretches: neighbours of one level are one."""
    for level, group in groupby((span for span in spans if span[1] < span[2]), key=lambda span: span[0]):
        run = list(group)
        start, stop = run[0][1], run[-1][2]
        yield Stretch(level, conversation.messages[start].id, conversation.messages[stop - 1].id)


def digest(conversation: Conversation, stretches: tuple[Stretch, ...]) -> str:
    """Of what is shown, as of the last change of the conversation."""
    said = "\n".join(f"{one.level} {one.first} {one.last}" for one in stretches)
    return hashlib.blake2b(f"{conversation.revision}\n{said}".encode(), digest_size=12).hexdigest()
