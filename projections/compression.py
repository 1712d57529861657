"""Compression of one agent's history: the summaries, the work in flight, what failed, and what is pending."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from immutables import Map
from msgspec import Struct
from msgspec.structs import replace
from pyrsistent import PVector, pvector

from rewake.events import (
    Compressed,
    CompressionDiscarded,
    CompressionFailed,
    CompressionHeld,
    CompressionRequested,
    DrainKicked,
    DrainPassed,
    Event,
    Millis,
    Quarantined,
    Recorded,
    Released,
    Settings,
    Stretch,
    Tokens,
    Work,
)
from rewake.projections.conversation import Conversation, Message, closes, digest, price
from rewake.projections.maps import without
from rewake.projections.settings import AgentSettings, goal

NAME = "compression"
KINDS: frozenset[type[Event]] = frozenset(
    {
        Compressed,
        CompressionDiscarded,
        CompressionFailed,
        CompressionHeld,
        CompressionRequested,
        DrainKicked,
        DrainPassed,
        Quarantined,
        Released,
    }
)
SMALLEST_CHUNK = 4
"""Messages that a chunk has at least, unless a refusal wants it sooner."""


class Summary(Struct, frozen=True):
    """Stands for the messages of `work`; `tokens` is what showing it costs."""

    id: str
    work: Work
    text: str
    tokens: Tokens


class Pass(Struct, frozen=True):
    """A pass of the drain: the calls it may still make, those it made, and why it began."""

    left: int
    made: int = 0
    why: str = ""


class Compression(Struct, frozen=True):
    """`summaries` by the first message covered; `open` is in flight; `quarantined` and `attempts` by the work's
    digest. Until `paused_until`, after a transient failure, no pass begins.
    """

    summaries: Map[str, Summary] = Map()
    order: PVector[str] = pvector()
    open: CompressionRequested | None = None
    attempts: Map[str, int] = Map()
    quarantined: Map[str, Quarantined] = Map()
    passing: Pass | None = None
    pauses: int = 0
    next_at: Millis = 0
    paused_until: Millis = 0
    passes: int = 0
    moved_at: Millis = 0
    revision: int = 0


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
        case Compressed(_, work, text, tokens):
            summary = Summary(event.summary, work, text, tokens)
            done = replace(state, open=None, pauses=0, attempts=without(state.attempts, work.digest))
            kept = state.summaries.set(work.first, summary)
            moved = {"moved_at": recorded.at, "revision": recorded.version}
            return replace(done, summaries=kept, order=state.order.append(event.summary), **moved)
        case CompressionFailed(_, work, _, attempt, transient):
            if transient:
                return replace(state, open=None, pauses=state.pauses + 1)
            return replace(state, open=None, attempts=state.attempts.set(work.digest, attempt))
        case CompressionDiscarded() | CompressionHeld():
            return replace(state, open=None)
        case Quarantined(work):
            quarantined = state.quarantined.set(work.digest, event)
            return replace(state, quarantined=quarantined, moved_at=recorded.at, revision=recorded.version)
        case Released(digests):
            left = state.quarantined
            for one in digests:
                left = without(left, one)
            return replace(state, quarantined=left, attempts=Map(), revision=recorded.version)
        case DrainPassed(_, pending, why, next_at):
            revision = state.revision if pending else recorded.version
            paused = next_at if why == "paused" else 0
            done = replace(state, passing=None, next_at=next_at, paused_until=paused)
            return replace(done, passes=recorded.version, revision=revision)
        case _:
            return state


def rows(state: Compression) -> list[dict[str, Any]]:
    age = {id: index for index, id in enumerate(state.order)}
    done = [
        {"id": one.id, "state": "summary", "level": one.work.level, "first": one.work.first, "last": one.work.last}
        | {"sources": len(one.work.sources), "source_tokens": one.work.tokens, "tokens": one.tokens, "text": one.text}
        for one in sorted(state.summaries.values(), key=lambda one: age[one.id])
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
        for place, message in enumerate(conversation.messages[: conversation.newest]):
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
    start = min(bisect_left(messages, least, key=starting), conversation.newest)
    while 0 < start < len(messages) and not closes(messages[start - 1]):
        start += 1
    return start


def starting(message: Message) -> Tokens:
    return message.before


def applying(conversation: Conversation, compression: Compression, place: int) -> Summary | None:
    """The summary that begins at this place, if its messages are all still there and unchanged."""
    summary = compression.summaries.get(conversation.messages[place].id)
    return summary if summary and applies(conversation, summary, place) else None


def applies(conversation: Conversation, summary: Summary, place: int) -> bool:
    """Whether the messages from this place on are what the summary stands for."""
    work = summary.work
    end = place + len(work.sources)
    if conversation.places.get(work.last, -1) != end - 1:
        return False
    if conversation.edited.isdisjoint(work.sources):
        return True
    return digest(conversation.messages[place:end]) == work.digest


def beginnings(conversation: Conversation, compression: Compression) -> dict[int, Summary]:
    """The summaries that apply, by the place where they begin."""
    places = conversation.places
    found = ((places.get(first), summary) for first, summary in compression.summaries.items())
    return {place: summary for place, summary in found if place is not None and applies(conversation, summary, place)}


def units(
    conversation: Conversation, compression: Compression, settings: Settings, start: int, stop: int, edge: int
) -> Iterator[Unit]:
    """The history from `start` to `stop` in stretches that are shown alike; a raw stretch never crosses `edge`."""
    summaries = beginnings(conversation, compression)
    place = start
    for head in sorted(head for head in summaries if start <= head < stop):
        summary = summaries[head]
        yield from raw(conversation, settings, place, head, edge)
        place = head + len(summary.work.sources)
        yield Unit(head, place, summary.work.tokens, summary, closed=True)
    yield from raw(conversation, settings, place, stop, edge)


def raw(conversation: Conversation, settings: Settings, start: int, stop: int, edge: int) -> Iterator[Unit]:
    """Raw messages in chunks: each as long as it must be to be compressed, the last of them perhaps not."""
    if start < edge < stop:
        yield from raw(conversation, settings, start, edge, edge)
        start = edge
    messages = conversation.messages
    while start < stop:
        full = bisect_left(messages, messages[start].before + settings.target_chunk_tokens, start, stop, key=starting)
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


def work(conversation: Conversation, start: int, stop: int, tokens: Tokens) -> Work:
    """A chunk as a piece of work."""
    covered = conversation.messages[start:stop]
    ids = tuple(one.id for one in covered)
    return Work(1, ids[0], ids[-1], ids, digest(covered), tokens)


def demanded(
    conversation: Conversation, compression: Compression, demand: tuple[Stretch, ...]
) -> Iterator[tuple[int, int]]:
    """The places of those stretches that a refusal wants a summary for, where no summary stands for a part of them."""
    summaries = beginnings(conversation, compression) if demand else {}
    heads = sorted(summaries)
    for stretch in demand:
        start, last = conversation.places.get(stretch.first), conversation.places.get(stretch.last)
        if start is None or last is None:
            continue
        before = bisect_left(heads, last + 1) - 1
        if before < 0 or heads[before] + len(summaries[heads[before]].work.sources) <= start:
            yield start, last + 1


def next_work(
    conversation: Conversation, compression: Compression, settings: AgentSettings, demand: tuple[Stretch, ...] = ()
) -> Work | None:
    """The next chunk to compress: what a refusal lacks first, then the oldest closed chunk, the newest one held back.

    None for an agent that was never started.
    """
    for start, stop in demanded(conversation, compression, demand):
        wanted = work(conversation, start, stop, price(conversation, start, stop))
        if wanted.digest not in compression.quarantined:
            return wanted
    return None if settings.live is None else ripe(conversation, compression, settings.live, goal(settings))


def ripe(conversation: Conversation, compression: Compression, settings: Settings, limit: Tokens) -> Work | None:
    """The oldest closed chunk before the tail that has no summary and is not the newest one."""
    if conversation.total <= min(settings.recent_window_tokens, limit // 2):
        return None
    first = None
    start, stop = head_end(conversation, settings), min(tail_start(conversation, settings, limit), conversation.newest)
    for unit in units(conversation, compression, settings, start, stop, stop):
        if first is not None and unit.closed:
            return first
        if unit.summary or not unit.closed:
            continue
        chunk = work(conversation, unit.start, unit.stop, unit.tokens)
        if chunk.digest not in compression.quarantined:
            first = chunk
    return None


def pending(
    conversation: Conversation, compression: Compression, settings: AgentSettings, demand: tuple[Stretch, ...] = ()
) -> bool:
    """Whether a summary is in flight, or could still be made."""
    return compression.open is not None or next_work(conversation, compression, settings, demand) is not None
