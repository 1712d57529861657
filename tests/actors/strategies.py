"""Strategies of one's own: an example to write others after, and those that are wrong in one way each.

A strategy is a class with `plan` and `next_work`. An agent is given the class, `AgentConfig(strategy=DecisionsStay)`, or its
name, `strategy="tests.actors.strategies:DecisionsStay"`: the name is what the log has of it.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from rewake.events import LEFT_OUT, Settings, Stretch, Work
from rewake.projections import backlog
from rewake.projections.compression import Compression, applies
from rewake.projections.conversation import Conversation, closes
from rewake.projections.messages import Message
from rewake.projections.plan import Bounds, Plan, Refusal
from rewake.projections.plan import plan as autobiographical
from rewake.projections.settings import AgentSettings
from rewake.projections.strategies import arranged
from rewake.projections.window import opens


class DecisionsStay:
    """Shows the newest half of what there is room for, and of all that is older only what people have decided: messages
    that begin with "DECISION:". Nothing is summarised.
    """

    def plan(
        self, conversation: Conversation, summaries: Compression, settings: Settings, multiplier: float, within: Bounds
    ) -> Plan | Refusal:
        told, taken, start = conversation.messages, 0.0, conversation.newest
        for place in range(conversation.newest - 1, -1, -1):
            taken += told[place].shown * multiplier
            if taken > within.limit // 2:
                break
            if opens(told[place]) and (place == 0 or closes(told[place - 1])):
                start = place
        levels = [0 if place >= start or decided(one) else LEFT_OUT for place, one in enumerate(told)]
        return arranged(conversation, summaries, settings, multiplier, within, levels)

    def next_work(
        self, conversation: Conversation, summaries: Compression, settings: AgentSettings, demand: tuple[Stretch, ...]
    ) -> Work | None:
        return None


def decided(message: Message) -> bool:
    return message.role == "user" and message.text.startswith("DECISION:")


class SummariesOnly:
    """Every older stretch is shown by its summary or, until it has one, not at all; what it wants is what is left out."""

    def plan(
        self, conversation: Conversation, summaries: Compression, settings: Settings, multiplier: float, within: Bounds
    ) -> Plan | Refusal:
        newest, lowest = conversation.newest, summaries.levels[0] if summaries.levels else {}
        levels = [LEFT_OUT] * newest + [0] * (len(conversation.messages) - newest)
        for first, summary in lowest.items():
            place = conversation.places.get(first)
            if place is not None and applies(conversation, summary, place):
                levels[place : place + len(summary.work.sources)] = [1] * len(summary.work.sources)
        return arranged(conversation, summaries, settings, multiplier, within, levels)

    def next_work(
        self, conversation: Conversation, summaries: Compression, settings: AgentSettings, demand: tuple[Stretch, ...]
    ) -> Work | None:
        return backlog.next_work(conversation, summaries, settings, demand)


class Wrong:
    """The default plan, with something wrong about it. Nothing is ever pending."""

    def plan(
        self, conversation: Conversation, summaries: Compression, settings: Settings, multiplier: float, within: Bounds
    ) -> Any:
        found = autobiographical(conversation, summaries, settings, multiplier, within)
        return self.wrong(conversation, found) if isinstance(found, Plan) else found

    def wrong(self, conversation: Conversation, found: Plan) -> Any:
        return found

    def next_work(self, *said: Any) -> Any:
        return None


class LosesOne(Wrong):
    """Loses the second message, from the third on."""

    def wrong(self, conversation: Conversation, found: Plan) -> Any:
        ids = [one.id for one in conversation.messages]
        return replace(found, stretches=(Stretch(0, ids[0], ids[0]), Stretch(0, ids[2], ids[-1]))) if ids[2:] else found


class LosesOneForAWhile(LosesOne):
    """The same, until there are eight; the drain may help."""

    def wrong(self, conversation: Conversation, found: Plan) -> Any:
        return super().wrong(conversation, found) if len(conversation.messages) < 8 else found

    def next_work(self, *said: Any) -> Any:
        return backlog.next_work(*said)


class RaisesOnce(LosesOneForAWhile):
    """And raises at the fifth."""

    def wrong(self, conversation: Conversation, found: Plan) -> Any:
        if len(conversation.messages) == 5:
            raise ValueError("five")
        return super().wrong(conversation, found)


class Raises(Wrong):
    def wrong(self, conversation: Conversation, found: Plan) -> Any:
        raise ValueError(f"{len(conversation.messages)} messages are too many \ud800")


class Exits(Wrong):
    def wrong(self, conversation: Conversation, found: Plan) -> Any:
        raise SystemExit(3)

    def next_work(self, *said: Any) -> Any:
        raise SystemExit(3)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class RaisesUnspeakably(Wrong):
    def wrong(self, conversation: Conversation, found: Plan) -> Any:
        raise Unspeakable


class DemandsNoText(Wrong):
    def wrong(self, conversation: Conversation, found: Plan) -> Any:
        return replace(found, demand=(Stretch(0, "\ud800", "\ud800"),))


class DemandsTooMuch(Wrong):
    def wrong(self, conversation: Conversation, found: Plan) -> Any:
        return replace(found, demand=(Stretch(0, "x" * 100_000, "y"),) * 100)


class ShowsTwice(Wrong):
    def wrong(self, conversation: Conversation, found: Plan) -> Any:
        return replace(found, stretches=found.stretches * 2)


class KnowsMore(Wrong):
    def wrong(self, conversation: Conversation, found: Plan) -> Any:
        return replace(found, stretches=(Stretch(0, "ada/msg/0", conversation.messages[-1].id),))


class HasSummaries(Wrong):
    def wrong(self, conversation: Conversation, found: Plan) -> Any:
        first, last = conversation.messages[0].id, conversation.messages[-1].id
        return replace(found, stretches=(Stretch(7, first, first), Stretch(0, first, last))) if first != last else found


class LosesTheNewest(Wrong):
    def wrong(self, conversation: Conversation, found: Plan) -> Any:
        return replace(found, stretches=(Stretch(LEFT_OUT, found.stretches[0].first, conversation.messages[-1].id),))


class IsNoPlan(Wrong):
    def wrong(self, conversation: Conversation, found: Plan) -> Any:
        return [one.id for one in conversation.messages]


class HasNoNumbers(Wrong):
    def wrong(self, conversation: Conversation, found: Plan) -> Any:
        return replace(found, stretches=(("zero", "ada", None),))


class RefusesOddly(Wrong):
    def wrong(self, conversation: Conversation, found: Plan) -> Any:
        return Refusal("whatever", 0, found.bounds, 0, 0, True)  # pyright: ignore[reportArgumentType]


class TakesAll(Wrong):
    """Shows everything, whatever fits."""

    def plan(
        self, conversation: Conversation, summaries: Compression, settings: Settings, multiplier: float, within: Bounds
    ) -> Any:
        told = conversation.messages
        stretches = (Stretch(0, told[0].id, told[-1].id),) if told else ()
        return Plan(stretches, "", 0, within)


class WorksOddly(Wrong):
    """Wants the same piece of work for ever, and no such piece can be."""

    def next_work(self, *said: Any) -> Any:
        first = said[0].messages[0].id if said[0].messages else ""
        return Work(1, first, first, (first,), "0" * 24, 100)


class Tuned(DecisionsStay):
    """Takes a value, which its name does not tell."""

    def __init__(self, value: int = 0) -> None:
        self.value = value


TUNED = Tuned(5)
