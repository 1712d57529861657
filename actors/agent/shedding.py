"""A provider that refuses request after request as invalid: what it may be that it can not take is left out, once a turn."""

from __future__ import annotations

from rewake.actors.agent.state import Agent
from rewake.events import Event, MessageEdited, MessageRemoved, Text
from rewake.events.messages import ERROR_POLICY
from rewake.projections.conversation import Conversation
from rewake.projections.pricing import count_tokens

REJECTED = 3
"""Turns in a row that the provider refuses on the same history before something is left out."""
SHEDDINGS = 3
"""Exchanges that are left out at the most before a turn is answered, or fails for another reason."""
MARKER = "[left out: the provider refused every request that had this exchange]"


def shed(state: Agent) -> list[Event]:
    """The newest complete exchange leaves the conversation, behind one marker; the log keeps it. Nothing where that may not
    be the cause: too few refusals, too much left out already, no exchange.
    """
    turns, turn = state.turns, state.turn
    if not turn.opening or turn.shed or turns.rejected + 1 < REJECTED or turns.sheddings >= SHEDDINGS:
        return []
    start, stop = exchange(state.conversation, turn.id)
    ids, encoding = [one.id for one in state.conversation.messages[start:stop]], state.live.encoding
    if not ids:
        return []
    tokens = count_tokens(MARKER, encoding)
    return [
        *(MessageRemoved(id, ERROR_POLICY, more=True) for id in ids[1:]),
        MessageEdited(ids[0], (Text(MARKER),), tokens, encoding, ERROR_POLICY),
    ]


def exchange(conversation: Conversation, running: str) -> tuple[int, int]:
    """The places of the newest answered turn but the running one: what it was asked, its rounds, its answer."""
    said = conversation.messages
    answers = (one.turn for one in reversed(said) if one.role == "assistant" and one.turn != running)
    turn = next(answers, None)
    if turn is None:
        return 0, 0
    places = [place for place, one in enumerate(said) if one.turn == turn]
    start = places[0]
    while start and said[start - 1].turn is None:
        start -= 1
    return start, places[-1] + 1
