"""A request as it is sent: the recorded plan, what came after it, and what stands beside them for this turn alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from msgspec.structs import replace

from rewake.actors.agent.sayings import Sayings
from rewake.actors.agent.state import Agent
from rewake.actors.providers.base import Request
from rewake.events import InferenceRequested, Message, Settings, Text, Tokens
from rewake.projections.compression import Summary
from rewake.projections.conversation import Conversation, sent_to
from rewake.projections.plan import shown
from rewake.projections.pricing import count_tokens
from rewake.projections.turns import Turn

CONTINUE = "[Continue]"
SUMMARY = "[Summary of earlier messages]\n"


def render(state: Agent, call: InferenceRequested, sayings: Sayings | None = None) -> Request:
    """The whole request of an open call, from the recorded plan, with the settings and for the model that it was ordered
    with: a later start may have others. `sayings`: what is known of the request before it.
    """
    turn, live = state.turn, state.asked or state.live
    state = replace(state, conversation=sent_to(state.conversation, (call.provider, call.model)))
    return Request(
        agent=state.name,
        purpose="turn",
        system=system(live, turn),
        messages=messages(state, turn, sayings or Sayings()),
        tools=live.tools,
        max_tokens=call.max_tokens,
        model=call.model,
        turn=turn.id,
        step=call.step,
        call=call.call,
        estimate=call.payload,
        encoding=live.encoding,
        timeout=live.call_timeout_ms / 1_000,
        prefilled=bool(prefill(turn)[0]),
    )


def system(live: Settings, turn: Turn) -> str:
    """The system prompt, and behind it what this turn adds."""
    return with_injection(live.system, turn.prepared.injections.system if turn.prepared else "")


def with_injection(system: str, injected: str) -> str:
    return "\n\n".join(part for part in (system, injected) if part)


def cue(state: Agent, turn: Turn) -> tuple[str, Tokens]:
    """The request-only user line that the request ends on, and its price: when it would end on the agent's own words, or
    the turn has nothing of its own to show, what it answers having been read by a turn before.
    """
    if turn.cue and turn.opening:
        return turn.cue, turn.cue_tokens
    last = next((one for one in reversed(state.conversation.messages) if one.said), None)
    new = state.conversation.newest < len(state.conversation.messages)
    if new and last is not None and last.role != "assistant":
        return "", 0
    return CONTINUE, count_tokens(CONTINUE, state.live.encoding)


def prefill(turn: Turn) -> tuple[str, Tokens]:
    """How the answer to the turn's first request begins, and its price."""
    prepared = turn.prepared if turn.opening else None
    return (prepared.prefill, prepared.prefill_tokens) if prepared else ("", 0)


def messages(state: Agent, turn: Turn, sayings: Sayings) -> tuple[Message, ...]:
    """What the model is shown, in order: the plan, what came after it, and what it ends on."""
    conversation, plan = state.conversation, turn.compiled.plan if turn.compiled else ()
    inserted, sent = insertions(conversation, turn), list[Sequence[Message]]()
    sayings.begin()
    for start, stop, summaries in shown(conversation, state.compression, plan):
        place = start
        for before, said in inserted:
            if start <= before < stop:
                sent += [said] if summaries else [sayings.of(conversation, place, before), said]
                place = before
        sent.append([rendered(one) for one in summaries] or sayings.of(conversation, place, stop))
    sent += [said for before, said in inserted if before == len(conversation.messages)]
    if line := cue(state, turn)[0]:
        sent.append((user(line),))
    if begun := prefill(turn)[0]:
        sent.append((Message("assistant", (Text(begun),)),))
    return tuple(sent[0] if len(sent) == 1 else chain.from_iterable(sent))  # one stretch is not copied


def insertions(conversation: Conversation, turn: Turn) -> list[tuple[int, tuple[Message, ...]]]:
    """What is sent between the messages of the conversation, with the place of the message that it stands before.

    A hold's note stands before the newest turn. What `context=` gave stands around the turn's newest message of a user,
    the tail behind it; in a turn without one, before the line that its first request ends on. There it stays in every
    request of the turn: what was sent once is sent again alike.
    """
    note, prepared = turn.compiled.note if turn.compiled else "", turn.prepared
    found = [(conversation.newest, (user(note),))] if note else []
    if prepared is None:
        return found
    given, tail = prepared.injections, (user(prepared.tail),) if prepared.tail else ()
    own = answered_at(conversation, turn)
    place = newest_input(conversation, own)
    if place is None:
        return [*found, (own, (*given.before, *given.after, *tail))]
    return [*found, (place, given.before), (place + 1, (*given.after, *tail))]


def answered_at(conversation: Conversation, turn: Turn) -> int:
    """The place of the first message that the turn itself has made; the end, where it has made none."""
    places = range(conversation.newest, len(conversation.messages))
    return next((place for place in places if conversation.messages[place].turn == turn.id), places.stop)


def newest_input(conversation: Conversation, end: int) -> int | None:
    """The place of the newest turn's last message of a user before the place `end`."""
    places = reversed(range(conversation.newest, end))
    return next((place for place in places if conversation.messages[place].role == "user"), None)


def rendered(summary: Summary) -> Message:
    """A summary as a provider takes it."""
    return user(SUMMARY + summary.text)


def user(text: str) -> Message:
    return Message("user", (Text(text),))
