"""The `window` strategy: the newest part of the history, without summaries."""

from __future__ import annotations

from bisect import bisect_left

from rewake.events import LEFT_OUT, Settings, Work
from rewake.projections.compression import Compression, head_end
from rewake.projections.conversation import Conversation, closes, flat_price, price
from rewake.projections.messages import Message
from rewake.projections.plan import Bounds, Plan, Refusal, digest, estimate, rounded, spanning
from rewake.projections.settings import AgentSettings


class Window:
    """Shows the head and, from an anchor on, everything that came later; what is between them is left out.

    The anchor stays where the last compile had it, so that a provider's prompt cache keeps the prefix. When there is no
    more room it jumps so far that half of the room is left. Once everything would leave half of it, everything is shown
    again. The newest turn is always shown: alone it may be over the budget, never over the window. Nothing is ever pending.
    """

    def plan(
        self, conversation: Conversation, summaries: Compression, settings: Settings, multiplier: float, within: Bounds
    ) -> Plan | Refusal:
        last, head = len(conversation.messages), head_end(conversation, settings)
        beside = estimate(conversation, 0, head, multiplier)
        must = beside + estimate(conversation, conversation.newest, last, multiplier)
        if within.window_room is not None and (within.window_room <= 0 or must > within.window_room):
            over = max(0, rounded(must) - within.window_room)
            return Refusal("window_full", rounded(must), within, rounded(must), over, False)

        def takes(place: int) -> float:
            return beside + estimate(conversation, place, last, multiplier)

        half = min(within.room, within.limit) // 2
        start = head if conversation.anchor <= head else cut(conversation, conversation.anchor)
        if takes(head) <= half:
            start = head
        elif takes(start) > within.limit:
            start = cut(conversation, bisect_left(range(last + 1), True, start, key=lambda place: takes(place) <= half))
            if start == last and takes(newest := before(conversation, head)) <= within.limit:
                start = newest
        spans = [(0, 0, head), (LEFT_OUT, head, start), (0, start, last)]
        shown = price(conversation, 0, head) + price(conversation, start, last)
        fixed = flat_price(conversation, 0, head) + flat_price(conversation, start, last)
        stretches = tuple(spanning(conversation, spans))
        return Plan(stretches, digest(conversation, stretches), rounded(takes(start)), within, price=shown, flat=fixed)

    def next_work(
        self, conversation: Conversation, summaries: Compression, settings: AgentSettings, demand: object = ()
    ) -> Work | None:
        return None


def cut(conversation: Conversation, place: int) -> int:
    """The first place from this one on, at most where the newest turn begins, where what is shown may begin."""
    while place < conversation.newest and not begins(conversation, place):
        place += 1
    return min(place, conversation.newest)


def before(conversation: Conversation, least: int) -> int:
    """The last place before the newest turn where what is shown may begin."""
    place = max(least, conversation.newest - 1)
    while place > least and not begins(conversation, place):
        place -= 1
    return place


def begins(conversation: Conversation, place: int) -> bool:
    """Whether what is shown may begin here: with the user, and not with the results of calls that are left out."""
    messages = conversation.messages
    return opens(messages[place]) and (place == 0 or closes(messages[place - 1]))


def opens(message: Message) -> bool:
    """Whether a provider takes it as the first: it is the user's, or comes after a line that is."""
    return bool(message.said) and message.said[0].role == "user"
