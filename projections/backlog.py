"""What is left to compress: which chunk of messages, or which summaries to merge, comes next."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence

from immutables import Map
from msgspec.structs import replace

from rewake.events import Settings, Stretch, Tokens, Work
from rewake.projections.compression import (
    TRIES,
    Compression,
    Summary,
    Unit,
    applied,
    applying,
    head_end,
    key,
    raw,
    standing,
    tail_start,
)
from rewake.projections.conversation import Conversation, closes, digest, price
from rewake.projections.forest import Node, covered, unmerged
from rewake.projections.settings import AgentSettings, goal

WORTH: Tokens = 16
"""What fewer tokens say is not worth a summary: what introduces one takes half as many."""
LONGEST: Tokens = 2_000
"""The most that a summary may be."""
INSTRUCTION: Tokens = 100
"""What the summariser's instruction takes, at the most."""
SPEAKER: Tokens = 4
"""What it takes to say whose a message is."""
SAFE = 0.9
"""The part of the summariser's window that our count of its sources may fill."""
UNEVEN = 1.2
"""How much more tokens than another one of the same length a piece of a text may have."""


def next_work(
    conversation: Conversation, compression: Compression, settings: AgentSettings, demand: tuple[Stretch, ...] = ()
) -> Work | None:
    """The next piece of work: what a refusal lacks first, then a chunk, then a merge.

    None for an agent that was never started.
    """
    live = settings.live
    if live is None:
        return None
    for level, start, stop in demanded(conversation, compression, demand):
        if wanted := lacked(conversation, compression, live, level, start, stop):
            return wanted
    return ripe(conversation, compression, live, goal(settings)) or again(conversation, compression, live)


def demanded(
    conversation: Conversation, compression: Compression, demand: tuple[Stretch, ...]
) -> Iterator[tuple[int, int, int]]:
    """The level and the places of those stretches that a refusal wants a summary for, where no summary stands for a part
    of them.
    """
    if not demand:
        return
    there = applied(conversation, compression)
    for stretch in demand:
        start, last = conversation.places.get(stretch.first), conversation.places.get(stretch.last)
        if start is None or last is None:
            continue
        head = there.before(last + 1)
        if stretch.level or head is None or head + len(there.by_place[head].work.sources) <= start:
            yield stretch.level, start, last + 1


def lacked(
    conversation: Conversation, compression: Compression, settings: Settings, level: int, start: int, stop: int
) -> Work | None:
    if level == 0:
        return chunk(conversation, compression, settings, start, stop)
    try:
        sources = standing(conversation, compression, start, stop, level)
    except LookupError:
        return None
    above = (applying(conversation, compression, conversation.places[one.work.first], level + 1) for one in sources)
    return None if any(above) else merge(compression, settings, sources)


def again(conversation: Conversation, compression: Compression, settings: Settings) -> Work | None:
    """What was given up and released, the oldest first, if its sources are what they were."""
    there = [work for work in compression.again.values() if work.first in conversation.places]
    for work in sorted(there, key=lambda work: (conversation.places[work.first], work.level)):
        stretch = Stretch(work.level - 1, work.first, work.last)
        for level, start, stop in demanded(conversation, compression, (stretch,)):
            fresh = replace(compression, attempts=Map()) if work.of else compression  # a half has no halves
            found = lacked(conversation, fresh, settings, level, start, stop)
            if found and found.digest == work.digest:
                return replace(found, of=work.of)
            if found and found.of == work.digest:
                return found
    return None


def ripe(conversation: Conversation, compression: Compression, settings: Settings, limit: Tokens) -> Work | None:
    """The oldest closed chunk before the tail that has no summary and is not the newest one; else the oldest merge."""
    if conversation.total <= min(settings.recent_window_tokens, limit // 2):
        return None
    start, stop = head_end(conversation, settings), min(tail_start(conversation, settings, limit), conversation.newest)
    cover = covered(conversation, compression, start, stop)
    for unit in closed(conversation, settings, cover.gaps, cover.end, stop):
        if found := chunk(conversation, compression, settings, unit.start, unit.stop):
            return found
    for run in unmerged(cover.roots, settings.merge_threshold):
        if len(run) == settings.merge_threshold and (found := merge(compression, settings, made_of(run))):
            return found
    return None


def closed(
    conversation: Conversation, settings: Settings, gaps: Sequence[tuple[int, int]], end: int, stop: int
) -> Iterator[Unit]:
    """The closed chunks in the gaps between summaries, and from place `end`, after them, to `stop`: there but the newest."""
    for first, last in gaps:
        yield from (unit for unit in raw(conversation, settings, first, last, last) if unit.closed)
    oldest = None
    for unit in raw(conversation, settings, end, stop, stop):
        if unit.closed:
            if oldest:
                yield oldest
            oldest = unit


def made_of(nodes: Sequence[Node]) -> list[Summary]:
    return [one.summary for one in nodes if one.summary]


def chunk(
    conversation: Conversation, compression: Compression, settings: Settings, start: int, stop: int
) -> Work | None:
    """What to ask for of a stretch of messages: all of it, or the first part that the summariser's window takes and that was
    not given up. None where nothing is left to try.
    """
    most = capacity(settings)
    while start < stop:
        end = stop if most is None else fitting(conversation, start, stop, most)
        if found := messages(conversation, compression, start, end, most):
            return found
        start = end
    return None


def left(conversation: Conversation, compression: Compression, settings: Settings, start: int, stop: int) -> bool:
    """Whether there is something to ask for of a stretch of messages."""
    if compression.quarantined or compression.attempts:
        return chunk(conversation, compression, settings, start, stop) is not None
    return price(conversation, start, stop) >= WORTH


def messages(
    conversation: Conversation, compression: Compression, start: int, stop: int, most: Tokens | None, of: str = ""
) -> Work | None:
    """These messages as a piece of work; its halves, once it was tried in vain; pieces of it, where it is too large."""
    covered = conversation.messages[start:stop]
    ids = tuple(one.id for one in covered)
    found = Work(1, ids[0], ids[-1], ids, digest(covered), price(conversation, start, stop), of)
    if found.digest in compression.quarantined or found.tokens < WORTH:
        return None
    if most is not None and size(conversation, start, stop) > most:
        return piece(compression, found, most)
    middle = halfway(conversation, start, stop)
    if of or middle is None or compression.attempts.get(found.digest, 0) < TRIES:
        return found
    first = messages(conversation, compression, start, middle, most, found.digest)
    return first or messages(conversation, compression, middle, stop, most, found.digest)


def piece(compression: Compression, whole: Work, most: Tokens) -> Work:
    """The next piece of a message that is too large for the summariser."""
    count = math.ceil(whole.tokens * UNEVEN / most)
    parts = compression.parts.get(whole.digest)
    done = len(parts.texts) if parts and parts.count == count else 0
    return replace(whole, tokens=whole.tokens // count, part=(min(done + 1, count), count))


def merge(compression: Compression, settings: Settings, sources: Sequence[Summary]) -> Work | None:
    """What to ask for of neighbouring summaries of one level: all of them, or the first of them that the summariser's window
    takes and that were not given up.
    """
    most, place = capacity(settings), 0
    while place < len(sources):
        end, taken = place + 1, sources[place].tokens
        while end < len(sources) and (most is None or taken + sources[end].tokens <= most):
            end, taken = end + 1, taken + sources[end].tokens
        if (most is None or taken <= most) and (found := summaries(compression, sources[place:end])):
            return found
        place = end
    return None


def summaries(compression: Compression, sources: Sequence[Summary], of: str = "") -> Work | None:
    if len(sources) < 2:
        return None
    first, last = sources[0].work, sources[-1].work
    ids, takes = tuple(one.id for one in sources), sum(one.tokens for one in sources)
    found = Work(first.level + 1, first.first, last.last, ids, said(sources), takes, of)
    if found.digest in compression.quarantined:
        return None
    if of or not halves(found) or compression.attempts.get(found.digest, 0) < TRIES:
        return found
    middle = len(sources) // 2
    return summaries(compression, sources[:middle], found.digest) or summaries(
        compression, sources[middle:], found.digest
    )


def halves(merge: Work) -> bool:
    """Whether each half of a merge would be one."""
    return merge.part is None and len(merge.sources) >= 4


def spent(conversation: Conversation, compression: Compression, settings: Settings, work: Work) -> bool:
    """Whether nothing is left to try of a piece of work that failed: not the same again, nor its halves."""
    if work.of:
        return True
    if compression.attempts.get(key(work), 0) < TRIES:
        return False
    if work.part or work.level > 1:
        return not halves(work)
    start, last = conversation.places[work.first], conversation.places[work.last]
    found = messages(conversation, compression, start, last + 1, capacity(settings))
    return found is None or found.digest == work.digest


def halfway(conversation: Conversation, start: int, stop: int) -> int | None:
    """The place where a stretch may be cut into halves, most evenly; None where it may not."""
    told = conversation.messages
    cuts = [place for place in range(start + 1, stop) if closes(told[place - 1])]
    middle = told[start].before + price(conversation, start, stop) // 2
    return min(cuts, key=lambda place: abs(told[place].before - middle), default=None)


def capacity(settings: Settings) -> Tokens | None:
    """What the summariser's window takes of sources, beside its instruction and its answer. None: no window is declared."""
    window = window_of(settings)
    return None if window is None else max(1, int((window - longest(settings) - INSTRUCTION) * SAFE))


def window_of(settings: Settings) -> Tokens | None:
    if settings.compression_window_tokens is not None:
        return settings.compression_window_tokens
    own = settings.compression_model in (None, settings.model)
    return settings.physical_window_tokens if own else None


def longest(settings: Settings) -> Tokens:
    """The most that a summary may be."""
    window = window_of(settings)
    return LONGEST if window is None else max(1, min(LONGEST, window // 4))


def fitting(conversation: Conversation, start: int, stop: int, most: Tokens) -> int:
    """The place to which the messages from `start` on fit into so many tokens.

    At least the first ones that belong together.
    """
    end = start
    for place in range(start + 1, stop + 1):
        if end > start and size(conversation, start, place) > most:
            break
        if place == stop or closes(conversation.messages[place - 1]):
            end = place
    return end


def size(conversation: Conversation, start: int, stop: int) -> Tokens:
    """What messages take as a summariser is told them: each after a line that says whose it is."""
    return price(conversation, start, stop) + SPEAKER * (stop - start)


def said(sources: Sequence[Summary]) -> str:
    """What these summaries are: another one in the place of one of them makes another digest."""
    hashed = hashlib.blake2b(digest_size=12)
    for one in sources:
        hashed.update(f"{one.id} {one.work.digest}\n".encode())
    return hashed.hexdigest()
