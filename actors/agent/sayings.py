"""What the messages of a conversation are sent as: a long one is not gone through again for each of its requests."""

from __future__ import annotations

from itertools import chain

from msgspec import Struct

from rewake.events import Message as Said
from rewake.projections.conversation import Conversation
from rewake.projections.messages import Message


class Kept(Struct, frozen=True):
    """The messages of a raw stretch up to place `stop`, as they are sent; `last` is the last of them."""

    stop: int
    last: Message
    said: tuple[Said, ...]


class Sayings:
    """One agent's, with the raw stretches that its last request had, by the place where each begins.

    A message of a conversation stands behind one history only: it is made as it enters, and made anew when anything before
    it changes. So where the last one is the very same object, all that were before it are.
    """

    def __init__(self) -> None:
        self.former: dict[int, Kept] = {}
        self.found: dict[int, Kept] = {}

    def begin(self) -> None:
        """Another request: what the one before it had no use for is forgotten."""
        self.former, self.found = self.found, {}

    def of(self, conversation: Conversation, start: int, stop: int) -> tuple[Said, ...]:
        """The messages from place `start` to place `stop` (exclusive)."""
        if start >= stop:
            return ()
        messages, kept = conversation.messages, self.former.get(start)
        if kept and kept.stop <= stop and messages[kept.stop - 1] is kept.last:
            said = kept.said + rendered(conversation, kept.stop, stop)
        else:
            said = rendered(conversation, start, stop)
        self.found[start] = Kept(stop, messages[stop - 1], said)
        return said


def rendered(conversation: Conversation, start: int, stop: int) -> tuple[Said, ...]:
    return tuple(chain.from_iterable([one.said for one in conversation.messages[start:stop]]))
