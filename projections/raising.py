"""How far the history is folded: from what was shown before, stretch after stretch one level up until there is room.

The order of the raises never depends on the room, only how many of them are made: so a larger room never shows less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from msgspec import Struct

from rewake.events import Stretch, Tokens
from rewake.projections.conversation import Conversation
from rewake.projections.forest import Node

Goal = Callable[[Node], float]
"""What the whole must come down to for this node not to be raised to."""


class Folding(Struct, gc=False):
    """What is shown of a forest, while it is being folded: `top` is the node shown at its first leaf."""

    nodes: list[Node]
    costs: list[float]
    top: list[int]
    total: float

    def shown(self, leaf: int = 0, end: int | None = None) -> list[int]:
        """The nodes shown, in order, from one leaf to another."""
        found: list[int] = []
        end = len(self.top) if end is None else end
        while leaf < end:
            found.append(self.top[leaf])
            leaf = self.nodes[self.top[leaf]].end
        return found


def committed(conversation: Conversation, nodes: list[Node], leaves: int, costs: list[float], beside: float) -> Folding:
    """The forest as the last compile showed it; where a summary is not there any more, those that it was made of."""
    spans = sorted(spans_of(conversation, conversation.folds))
    top, index = list(range(leaves)), 0
    for leaf in range(leaves):
        while index < len(spans) and spans[index][1] < nodes[leaf].start:
            index += 1
        if index == len(spans):
            break
        first, last, level = spans[index]
        climbed = nodes[leaf].parent if first <= nodes[leaf].start else -1
        while climbed >= 0 and stands(nodes[climbed], leaf, first, last, level):
            top[leaf], climbed = climbed, nodes[climbed].parent
    state = Folding(nodes, costs, top, beside)
    state.total += sum(costs[one] for one in state.shown())
    return state


def stands(node: Node, leaf: int, first: int, last: int, level: int) -> bool:
    """Whether what was shown by summaries of that level, places `first` to `last`, was shown by this node or one above."""
    inside = node.level == 1 or (first <= node.start and node.stop - 1 <= last)
    return node.level <= level and node.leaf == leaf and inside


def spans_of(conversation: Conversation, folds: Sequence[Stretch]) -> list[tuple[int, int, int]]:
    """The first and the last place of each stretch, and its level, where both its ends are still there."""
    places = conversation.places
    spans = ((places.get(fold.first), places.get(fold.last), fold.level) for fold in folds)
    return [(start, last, level) for start, last, level in spans if start is not None and last is not None]


def fold(conversation: Conversation, state: Folding, recent: Tokens, goal: Goal) -> None:
    """Raise the oldest stretch at the fullest level, again and again, while there is more than the goal.

    The recent tail is left alone while anything else can be raised: `recent` tokens, at most half of what is shown. Then
    it yields, oldest first.
    """
    nodes, costs = state.nodes, state.costs
    waiting = state.shown()
    alive, counted = set(waiting), set[int]()
    sizes: dict[int, float] = {}
    heaps: dict[int, list[tuple[int, int]]] = {}

    def enter(one: int) -> None:
        level = nodes[one].level
        counted.add(one)
        sizes[level] = sizes.get(level, 0) + costs[one]
        if nodes[one].parent >= 0:
            heappush(heaps.setdefault(level, []), (nodes[one].start, one))

    def oldest() -> int | None:
        for level in sorted(heaps, key=lambda level: (-sizes[level], level)):
            heap = heaps[level]
            while heap and heap[0][1] not in alive:
                heappop(heap)
            if heap:
                return heap[0][1]
        return None

    place = 0
    while True:
        spared = min(recent, state.total // 2)
        while place < len(waiting) and after(conversation, nodes[waiting[place]]) > spared:
            if waiting[place] in alive:
                enter(waiting[place])
            place += 1
        found = oldest()
        if found is None:
            if place == len(waiting):
                return
            if waiting[place] in alive:
                enter(waiting[place])
            place += 1
            continue
        up = nodes[found].parent
        below = state.shown(nodes[up].leaf, nodes[up].end)
        while (saved := sum(costs[one] for one in below) - costs[up]) <= 0 and nodes[up].parent >= 0:
            up = nodes[up].parent
            below = state.shown(nodes[up].leaf, nodes[up].end)
        if saved <= 0:
            heappop(heaps[nodes[found].level])
            continue
        if state.total <= goal(nodes[up]):
            return
        for one in below:
            alive.discard(one)
            if one in counted:
                sizes[nodes[one].level] -= costs[one]
        state.top[nodes[up].leaf] = up
        state.total -= saved
        alive.add(up)
        enter(up)


def after(conversation: Conversation, node: Node) -> Tokens:
    """What the messages from this node's first one to the end take, raw."""
    return conversation.total - conversation.messages[node.start].before
