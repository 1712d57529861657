"""Compression of one agent's history: the summaries, the work in flight, what failed, and what is pending."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from immutables import Map
from msgspec import Struct
from msgspec.structs import replace

from rewake.events import (
    Compressed,
    CompressionDiscarded,
    CompressionFailed,
    CompressionHeld,
    CompressionReleased,
    CompressionRequested,
    CompressionTried,
    DrainKicked,
    DrainPassed,
    Event,
    Failure,
    Millis,
    Quarantined,
    Recorded,
    Released,
    Settings,
    Tokens,
    Work,
)
from rewake.projections.conversation import Conversation, closes, digest, price
from rewake.projections.gates import closes_gate
from rewake.projections.maps import without
from rewake.projections.messages import Message
from rewake.projections.pages import PAGE, Pages

NAME = "compression"
KINDS: frozenset[type[Event]] = frozenset(
    {
        Compressed,
        CompressionDiscarded,
        CompressionFailed,
        CompressionHeld,
        CompressionReleased,
        CompressionRequested,
        CompressionTried,
        DrainKicked,
        DrainPassed,
        Quarantined,
        Released,
    }
)
TRIES = 2
"""Times that one piece of work is asked for, before its halves are."""
SMALLEST_CHUNK = 4
"""Messages that a chunk has at least, unless a refusal wants it sooner."""


class Summary(Struct, frozen=True):
    """Stands for the messages of `work`; `tokens` is what showing it costs."""

    id: str
    work: Work
    text: str
    tokens: Tokens


class Parts(Struct, frozen=True):
    """What was made so far of a message that is summarised in `count` pieces."""

    count: int
    texts: tuple[str, ...] = ()


class Pass(Struct, frozen=True):
    """A pass of the drain: the calls it may still make, those it made, and why it began."""

    left: int
    made: int = 0
    why: str = ""


class Compression(Struct, frozen=True):
    """`made` are the summaries, in the order in which they came; `open` is in flight.

    `quarantined` and `parts` by the work's digest, `attempts` by the work's `key`. What was released is in `again` until it
    was tried, and in `retried` with the time. `vain` are the answers in a row that were no summaries, `failed` is the last
    failure since a summary. Until `paused_until` no pass begins. `gated`: the pass waits for the provider's gate; `tried`:
    what was last told to a gate.
    """

    made: Pages[Summary] = Pages()
    open: CompressionRequested | None = None
    attempts: Map[str, int] = Map()
    quarantined: Map[str, Quarantined] = Map()
    again: Map[str, Work] = Map()
    retried: Map[str, Millis] = Map()
    parts: Map[str, Parts] = Map()
    vain: int = 0
    failed: Failure | None = None
    passing: Pass | None = None
    pauses: int = 0
    next_at: Millis = 0
    paused_until: Millis = 0
    passes: int = 0
    moved_at: Millis = 0
    revision: int = 0
    gated: CompressionHeld | None = None
    tried: CompressionTried | None = None

    @property
    def levels(self) -> tuple[Mapping[str, Summary], ...]:
        """The summaries of each level by the first message that they cover: the newest, where there are several."""
        return known(self.made).levels

    @property
    def summaries(self) -> list[Summary]:
        """Those of all levels, the lowest first."""
        return [summary for level in self.levels for summary in level.values()]


class Unit(Struct, frozen=True):
    """A stretch of the history, places `start` to `stop` (exclusive), that is shown raw or by `summary`, one or the other.

    `closed`: large enough to be compressed.
    """

    start: int
    stop: int
    tokens: Tokens
    summary: Summary | None = None
    closed: bool = False


def initial() -> Compression:
    return Compression()


def evolve(state: Compression, recorded: Recorded) -> Compression:
    event = recorded.event
    match event:
        case DrainKicked(why, ticks):
            joins = state.passing is not None or recorded.at < state.paused_until
            return state if joins else replace(state, passing=Pass(ticks, why=why))
        case CompressionRequested():
            going = state.passing or Pass(1)
            return replace(state, open=event, passing=replace(going, left=going.left - 1, made=going.made + 1))
        case Compressed(work=work) if work.part:
            return replace(answered(state, work), parts=state.parts.set(work.digest, joined(state, event)))
        case Compressed(request, work, text, tokens):
            summary = Summary(event.summary, work, text, tokens)
            going = state.passing
            if not request:
                done = replace(state, passing=going and replace(going, left=going.left - 1))
            else:
                done = replace(answered(state, work), parts=without(state.parts, work.digest))
            moved = {"moved_at": recorded.at, "revision": recorded.version}
            done = replace(done, again=without(state.again, work.digest))
            return replace(done, made=state.made.append(summary), **moved)
        case CompressionFailed(_, work, error, attempt, transient):
            if transient:
                pauses = state.pauses + (0 if closes_gate(error) else 1)
                return replace(state, open=None, failed=error, pauses=pauses)
            tried = max(attempt, TRIES) if error.kind == "overflow" else attempt
            attempts = state.attempts.set(key(work), tried)
            return replace(state, open=None, failed=error, vain=state.vain + 1, attempts=attempts)
        case CompressionDiscarded():
            return replace(state, open=None)
        case CompressionHeld():
            going = state.passing
            if going and state.open:
                going = replace(going, left=going.left + 1, made=going.made - 1)
            return replace(state, open=None, passing=going, gated=event)
        case CompressionReleased():
            return replace(state, gated=None)
        case CompressionTried():
            return replace(state, tried=event)
        case Quarantined(work):
            given = {
                "quarantined": state.quarantined.set(work.digest, event),
                "parts": without(state.parts, work.digest),
            }
            return replace(state, **given, moved_at=recorded.at, revision=recorded.version)
        case Released(digests, why):
            return replace(released(state, digests, why, recorded.at), revision=recorded.version)
        case DrainPassed(_, pending, why, next_at):
            revision = state.revision if pending else recorded.version
            paused = next_at if why == "paused" else 0
            done = replace(state, passing=None, next_at=next_at, paused_until=paused)
            return replace(done, passes=recorded.version, revision=revision)
        case _:
            return state


def key(work: Work) -> str:
    """What the attempts at a piece of work are counted by."""
    return f"{work.digest} {work.part[0]}/{work.part[1]}" if work.part else work.digest


def answered(state: Compression, work: Work) -> Compression:
    return replace(state, open=None, pauses=0, vain=0, failed=None, attempts=without(state.attempts, key(work)))


def joined(state: Compression, event: Compressed) -> Parts:
    """The pieces of a message that are there, with this one."""
    index, count = event.work.part or (1, 1)
    before = state.parts.get(event.work.digest)
    texts = before.texts[: index - 1] if before and before.count == count else ()
    return Parts(count, (*texts, event.text))


def released(state: Compression, digests: tuple[str, ...], why: str, at: Millis) -> Compression:
    """Work that may be tried again: once, after the success of another; from the beginning when somebody says so or the
    model is another one.
    """
    left, again, retried = state.quarantined, state.again, state.retried
    for one in digests:
        if one in left:
            again, retried = again.set(one, left[one].work), retried.set(one, at)
            left = left.delete(one)
    state = replace(state, quarantined=left, again=again, retried=retried)
    if why == "success":
        return state
    paused = state.paused_until if state.pauses else 0
    return replace(state, attempts=Map(), vain=0, paused_until=paused)


def rows(state: Compression) -> list[dict[str, Any]]:
    age = {one.id: index for index, one in enumerate(state.made)}
    done = [
        {"id": one.id, "state": "summary", "level": one.work.level, "first": one.work.first, "last": one.work.last}
        | {"sources": len(one.work.sources), "source_tokens": one.work.tokens, "tokens": one.tokens, "text": one.text}
        for one in sorted(state.summaries, key=lambda one: age[one.id])
    ]
    stuck = [
        {"id": digest, "state": "quarantined", "level": one.work.level, "first": one.work.first, "last": one.work.last}
        | {"sources": len(one.work.sources), "source_tokens": one.work.tokens, "tokens": None, "text": one.why}
        for digest, one in sorted(state.quarantined.items())
    ]
    open = state.open
    flying = [
        {"id": open.id, "state": "requested", "level": open.work.level, "first": open.work.first}
        | {"last": open.work.last, "sources": len(open.work.sources), "source_tokens": open.work.tokens}
        | {"tokens": None, "text": ""}
        for _ in range(1)
        if open
    ]
    return done + stuck + flying


def head_end(conversation: Conversation, settings: Settings) -> int:
    """The place after the head: the first messages, up to `head_window_tokens`, are always raw."""
    taken, end = 0, 0
    if settings.head_window_tokens:
        for place in range(conversation.newest):
            message = conversation.messages[place]
            taken += message.shown
            if taken > settings.head_window_tokens:
                break
            if closes(message):
                end = place + 1
    return end


def tail_start(conversation: Conversation, settings: Settings, limit: Tokens) -> int:
    """The place where the recent tail begins: at most `recent_window_tokens`, and at most half of what there is room for.

    The newest turn is always in it; it never begins with the result of a call that is not.
    """
    messages = conversation.messages
    least = conversation.total - min(settings.recent_window_tokens, limit // 2)
    start = min(costing(messages, least, 0, len(messages)), conversation.newest)
    while 0 < start < len(messages) and not closes(messages[start - 1]):
        start += 1
    return start


def costing(messages: Sequence[Message], tokens: Tokens, start: int, stop: int) -> int:
    """The first place from `start` to `stop` before which there are at least so many tokens; `stop` where there is none.

    Of most pages it looks at the first message alone.
    """
    firsts = range(-(-start // PAGE) * PAGE, stop, PAGE)
    page = bisect_left(firsts, tokens, key=lambda place: messages[place].before)
    low, high = firsts[page - 1] if page else start, firsts[page] if page < len(firsts) else stop
    return bisect_left(messages, tokens, low, high, key=lambda message: message.before)


def applying(conversation: Conversation, compression: Compression, place: int, level: int = 1) -> Summary | None:
    """The summary of that level that begins at this place, if its messages are all still there and unchanged."""
    levels, first = compression.levels, conversation.messages[place].id
    summary = levels[level - 1].get(first) if level <= len(levels) else None
    if summary is None or level == 1:
        return summary if summary and applies(conversation, summary, place) else None
    for source in summary.work.sources:
        below = applying(conversation, compression, place, level - 1) if place < len(conversation.messages) else None
        if below is None or below.id != source:
            return None
        place = conversation.places[below.work.last] + 1
    return summary


def standing(conversation: Conversation, compression: Compression, place: int, end: int, level: int) -> list[Summary]:
    """The summaries of one level that stand for the messages from one place to another.

    Raises LookupError where one does not apply.
    """
    found: list[Summary] = []
    while place < end:
        summary = applying(conversation, compression, place, level)
        if summary is None:
            raise LookupError(f"no summary applies at {conversation.messages[place].id}")
        found.append(summary)
        place = conversation.places[summary.work.last] + 1
    return found


def applies(conversation: Conversation, summary: Summary, place: int) -> bool:
    """Whether the messages from this place on are what the summary stands for."""
    work = summary.work
    end = place + len(work.sources)
    if conversation.places.get(work.last, -1) != end - 1:
        return False
    if not conversation.edited or conversation.edited.isdisjoint(work.sources):
        return True
    return digest(conversation.messages[place:end]) == work.digest


class Known:
    """What is known of summaries beside themselves: their levels, and those that applied when somebody last asked."""

    __slots__ = ("applied", "levels")

    def __init__(self, levels: tuple[Mapping[str, Summary], ...]) -> None:
        self.levels = levels
        self.applied: Applied | None = None


def known(made: Pages[Summary]) -> Known:
    """What is known of these summaries, worked out when it is first asked for."""
    found: Known | None = made.derived
    if found is None:
        levels: list[dict[str, Summary]] = []
        for one in made:
            levels += [{} for _ in range(one.work.level - len(levels))]
            levels[one.work.level - 1][one.work.first] = one
        found = made.derived = Known(tuple(levels))
    return found


class Applied:
    """The summaries of messages that apply to a conversation, by the place where each begins.

    They apply to whatever it grows to. A message of a conversation stands behind one history only: where the last one that
    there was is the very same object, all that were before it are. `lacking` are the ends of others, which are not there.
    `beside` is what else was worked out of them.
    """

    __slots__ = ("beside", "by_place", "count", "heads", "lacking", "last")

    def __init__(self, conversation: Conversation, lowest: Mapping[str, Summary]) -> None:
        places, messages = conversation.places, conversation.messages
        self.count = len(messages)
        self.last = messages[-1] if messages else None
        self.lacking = {id for one in lowest.values() for id in (one.work.first, one.work.last) if id not in places}
        found = ((places.get(first), one) for first, one in lowest.items())
        there = {place: one for place, one in found if place is not None and applies(conversation, one, place)}
        self.heads = sorted(there)
        self.by_place = {place: there[place] for place in self.heads}
        self.beside: Any = None

    def before(self, place: int) -> int | None:
        """The last place before this one where a summary begins."""
        index = bisect_left(self.heads, place)
        return self.heads[index - 1] if index else None

    def still(self, conversation: Conversation) -> bool:
        """Whether this conversation has grown from that one, and no summary of it applies that did not."""
        messages, places = conversation.messages, conversation.places
        if self.last is None or len(messages) < self.count or messages[self.count - 1] is not self.last:
            return False
        return not any(id in places for id in self.lacking)


def applied(conversation: Conversation, compression: Compression) -> Applied:
    """The summaries of messages that apply: looked for where a summary is new or the conversation has changed."""
    about = known(compression.made)
    found = about.applied
    if found is None or not found.still(conversation):
        found = about.applied = Applied(conversation, about.levels[0] if about.levels else {})
    return found


def units(
    conversation: Conversation, compression: Compression, settings: Settings, start: int, stop: int, edge: int
) -> Iterator[Unit]:
    """The history from `start` to `stop` in stretches that are shown alike; a raw stretch never crosses `edge`."""
    place = start
    for unit in summarised(applied(conversation, compression), start, stop):
        yield from raw(conversation, settings, place, unit.start, edge)
        place = unit.stop
        yield unit
    yield from raw(conversation, settings, place, stop, edge)


def summarised(found: Applied, start: int, stop: int) -> Iterator[Unit]:
    """The stretches that begin from place `start` to `stop` (exclusive) and are shown by a summary."""
    place = start
    for head in found.heads[bisect_left(found.heads, start) : bisect_left(found.heads, stop)]:
        if head >= place:  # else another summary stands for it already
            summary = found.by_place[head]
            place = head + len(summary.work.sources)
            yield Unit(head, place, summary.work.tokens, summary, closed=True)


def raw(conversation: Conversation, settings: Settings, start: int, stop: int, edge: int) -> Iterator[Unit]:
    """Raw messages in chunks: each as long as it must be to be compressed, the last of them perhaps not."""
    if start < edge < stop:
        yield from raw(conversation, settings, start, edge, edge)
        start = edge
    messages = conversation.messages
    while start < stop:
        full = costing(messages, messages[start].before + settings.target_chunk_tokens, start, stop)
        end = max(full, start + SMALLEST_CHUNK)
        while end < stop and not closes(messages[end - 1]):
            end += 1
        if end > stop or (end == stop and not full_chunk(conversation, settings, start, stop)):
            yield Unit(start, stop, price(conversation, start, stop))
            return
        yield Unit(start, end, price(conversation, start, end), closed=True)
        start = end


def full_chunk(conversation: Conversation, settings: Settings, start: int, stop: int) -> bool:
    enough = price(conversation, start, stop) >= settings.target_chunk_tokens and stop - start >= SMALLEST_CHUNK
    return enough and closes(conversation.messages[stop - 1])
