"""The history as a forest: stretches of messages, the summaries of those, and the summaries of summaries."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from rewake.events import Tokens
from rewake.projections.compression import Compression, Summary, Unit, applied, summarised
from rewake.projections.conversation import Conversation


class Node(Struct, gc=False):
    """Places `start` to `stop` (exclusive) shown one way: raw at level 0, else by `summary`.

    `leaves` to `end` are the leaves below it, `parent` the node that stands for it and its neighbours one level up.
    """

    level: int
    start: int
    stop: int
    tokens: Tokens
    leaf: int
    end: int
    summary: Summary | None = None
    parent: int = -1


def forest(compression: Compression, leaves: Sequence[Unit]) -> list[Node]:
    """The leaves, then every summary that applies to them, level by level, each level in the order of the history."""
    nodes = [Node(0, one.start, one.stop, one.tokens, place, place + 1) for place, one in enumerate(leaves)]
    row: list[int] = []
    for place, one in enumerate(leaves):
        if one.summary:
            nodes[place].parent = len(nodes)
            row.append(len(nodes))
            nodes.append(Node(1, one.start, one.stop, one.summary.tokens, place, place + 1, one.summary))
    for above in compression.levels[1:]:
        row = merged(nodes, row, above)
    return nodes


def merged(nodes: list[Node], row: list[int], above: Mapping[str, Summary]) -> list[int]:
    """The nodes that stand for some of a row: where all that they were made of is there, side by side."""
    found: list[int] = []
    index = 0
    while index < len(row):
        begins = nodes[row[index]].summary
        summary = above.get(begins.work.first) if begins else None
        sources = row[index : index + len(summary.work.sources)] if summary else []
        if summary is None or not made_of(summary, [nodes[one] for one in sources]):
            index += 1
            continue
        first, last = nodes[sources[0]], nodes[sources[-1]]
        for one in sources:
            nodes[one].parent = len(nodes)
        found.append(len(nodes))
        nodes.append(Node(summary.work.level, first.start, last.stop, summary.tokens, first.leaf, last.end, summary))
        index += len(sources)
    return found


def made_of(summary: Summary, sources: Sequence[Node]) -> bool:
    if tuple(one.summary.id for one in sources if one.summary) != summary.work.sources:
        return False
    return all(one.end == other.leaf for one, other in pairwise(sources))


def unmerged(nodes: Sequence[Node], at_once: int) -> Iterator[list[Node]]:
    """Neighbours of one level that nothing stands for, at most so many together, the lowest level first."""
    for level in sorted({one.level for one in nodes if one.level}):
        run: list[Node] = []
        for one in (one for one in nodes if one.level == level):
            if run and (one.parent >= 0 or one.leaf != run[-1].end or len(run) == at_once):
                yield run
                run = []
            if one.parent < 0:
                run.append(one)
        if run:
            yield run


class Covered(Struct, frozen=True):
    """How far summaries stand for the history from place `start` on: to `end`, but for `gaps`, places from and to
    (exclusive). `roots` are the summaries that no other one stands for, the lowest level first.
    """

    start: int
    heads: int
    end: int
    gaps: tuple[tuple[int, int], ...]
    roots: tuple[Node, ...]


def covered(conversation: Conversation, compression: Compression, start: int, stop: int) -> Covered:
    """What summaries that begin from place `start` to `stop` (exclusive) stand for.

    It is kept while the same summaries apply: a decision in a long life does not go through all that was summarised.
    """
    found = applied(conversation, compression)
    heads = bisect_left(found.heads, stop)
    before: Covered | None = found.beside
    if before is None or (before.start, before.heads) != (start, heads):
        before = found.beside = covering(compression, list(summarised(found, start, stop)), start, heads)
    return before


def covering(compression: Compression, units: Sequence[Unit], start: int, heads: int) -> Covered:
    place, leaves, gaps = start, list[Unit](), list[tuple[int, int]]()
    for unit in units:
        if place < unit.start:
            gaps.append((place, unit.start))
            leaves.append(Unit(place, unit.start, 0))
        leaves.append(unit)
        place = unit.stop
    roots = [one for one in forest(compression, leaves) if one.level and one.parent < 0]
    return Covered(start, heads, place, tuple(gaps), tuple(roots))
