"""Strategies: what of its history an agent is shown, and what of it is summarised. Two are built in, and users write theirs.

A strategy is a class with `plan` and `next_work`, both pure: the same arguments, the same answer. It is named in the log and
imported by that name wherever the log is decided on: live, and when a log is decided again. One object of it serves all
agents, on several threads: it keeps nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from rewake.events import MAX_EVENT_BYTES, InvalidPlan, InvalidSetting, Settings, Stretch, Work
from rewake.projections import backlog
from rewake.projections.checking import checked, taken
from rewake.projections.compression import Compression, standing
from rewake.projections.conversation import Conversation, price
from rewake.projections.conversation import digest as digest_of
from rewake.projections.plan import Bounds, Plan, Refusal, digest, plan, rounded, spanning
from rewake.projections.pricing import scaled
from rewake.projections.settings import AgentSettings
from rewake.projections.window import Window

P = TypeVar("P", Plan, Refusal)


class Strategy(Protocol):
    """What an agent is shown, and what is summarised for it."""

    def plan(
        self,
        conversation: Conversation,
        summaries: Compression,
        settings: Settings,
        multiplier: float,
        within: Bounds,
        /,
    ) -> Plan | Refusal:
        """The context of the next request, within these bounds; `arranged` makes one of a level for each message.

        Sizes are tokens: prices times `multiplier`. The plan is checked before anything is sent: the newest turn is shown
        raw, a message neither shown nor under a shown summary nor left out on purpose is refused as `uncovered`, whatever
        else is wrong is an InvalidPlan. What it raises is one too.
        """
        ...

    def next_work(
        self,
        conversation: Conversation,
        summaries: Compression,
        settings: AgentSettings,
        demand: tuple[Stretch, ...],
        /,
    ) -> Work | None:
        """What to summarise next; `demand` are the stretches that the last refusal lacked. None: nothing is pending.

        `rewake.projections.backlog.next_work` is the built-in answer. One that raises has nothing to do.
        """
        ...


class Autobiographical:
    """The default: older history by summaries over several levels, the recent part and the head raw."""

    def plan(
        self, conversation: Conversation, summaries: Compression, settings: Settings, multiplier: float, within: Bounds
    ) -> Plan | Refusal:
        return plan(conversation, summaries, settings, multiplier, within)

    def next_work(
        self, conversation: Conversation, summaries: Compression, settings: AgentSettings, demand: tuple[Stretch, ...]
    ) -> Work | None:
        return backlog.next_work(conversation, summaries, settings, demand)


BUILT_IN: dict[str, Strategy] = {"autobiographical": Autobiographical(), "window": Window()}


def strategy(name: str) -> Strategy:
    """The strategy of that name, or imported from `module:name`. Raises InvalidSetting."""
    return BUILT_IN[name] if name in BUILT_IN else imported(name)


@cache
def imported(name: str) -> Strategy:
    """A user's own: a class, a function that makes one, or the object itself."""
    module, colon, path = name.partition(":")
    if not (module and colon and path):
        known = ", ".join(BUILT_IN)
        raise InvalidSetting("strategy", name, f"the strategies are: {known}, or one of your own as module:name")
    if module == "__main__":
        why = "a log is decided again by other programs, which can not import __main__: put it into a module of its own"
        raise InvalidSetting("strategy", name, why)
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
        made = found() if isinstance(found, type) or not hasattr(found, "plan") else found
    except (Exception, SystemExit) as error:
        raise InvalidSetting("strategy", name, f"it can not be imported: {type(error).__name__}: {error}") from error
    if not all(callable(getattr(made, one, None)) for one in ("plan", "next_work")):
        raise InvalidSetting("strategy", name, "a strategy has plan and next_work")
    return made


def asked(
    conversation: Conversation, summaries: Compression, settings: Settings, multiplier: float, within: Bounds
) -> Plan | Refusal:
    """What the agent's strategy gives, checked. Raises InvalidPlan, and InvalidSetting where it can not be imported."""
    name = settings.strategy
    chosen = strategy(name)
    try:
        found = chosen.plan(conversation, summaries, settings, multiplier, within)
    except InvalidPlan:
        raise
    except (Exception, SystemExit) as error:
        raise InvalidPlan(name, f"it raised {spelled(error)}") from error
    if name not in BUILT_IN:
        found = own(name, found, within)
    if isinstance(found, Refusal):
        return found
    return checked(name, conversation, summaries, settings, multiplier, found)


def own(name: str, found: Any, within: Bounds) -> Plan | Refusal:
    """What a user's strategy gave, as it may be recorded: types as they should be, the figures of a plan are ours."""
    try:
        if isinstance(found, Refusal) and found.why not in ("invalid_plan", "no_strategy"):
            return writable(name, msgspec.convert(msgspec.to_builtins(replace(found, bounds=within)), Refusal))
        if isinstance(found, Plan):
            kept = msgspec.to_builtins((found.stretches, found.demand))
            stretches, demand = msgspec.convert(kept, tuple[tuple[Stretch, ...], tuple[Stretch, ...]])
            return writable(name, Plan(stretches, "", 0, within, 0, tuple(one for one in demand if one.level >= 0)))
    except (msgspec.ValidationError, TypeError, AttributeError) as error:
        raise InvalidPlan(name, f"its plan has what no plan has: {error}") from error
    raise InvalidPlan(name, f"it gave a {type(found).__name__}, neither a Plan nor a Refusal")


def writable(name: str, found: P) -> P:
    """What can be an event's. Raises InvalidPlan for what is too large for one, or no valid text."""
    try:
        size = len(msgspec.json.encode(found))
    except UnicodeEncodeError as error:
        raise InvalidPlan(name, f"its plan has a lone surrogate at {error.start}") from error
    if size > MAX_EVENT_BYTES // 2:
        raise InvalidPlan(name, f"its plan is {size:,} bytes long, at most {MAX_EVENT_BYTES // 2:,} are taken")
    return found


def spelled(error: BaseException) -> str:
    """What was raised, whatever its own text does."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def arranged(
    conversation: Conversation,
    summaries: Compression,
    settings: Settings,
    multiplier: float,
    within: Bounds,
    levels: Sequence[int],
    demand: tuple[Stretch, ...] = (),
) -> Plan | Refusal:
    """The plan that shows each message at its level: raw at 0, by its level-k summary, not at all at `LEFT_OUT`.

    A refusal where it does not fit: compressible if `demand` names stretches whose summaries would help. Raises InvalidPlan
    where there are no such summaries.
    """
    spans = ((level, place, place + 1) for place, level in enumerate(levels))
    stretches = tuple(spanning(conversation, spans))
    takes = taken(settings.strategy, conversation, summaries, stretches)
    tokens = rounded(scaled(takes.price, takes.flat, multiplier))
    newest = price(conversation, conversation.newest, len(conversation.messages))
    if tokens > within.limit:
        full = within.window_room is not None and newest > within.window_room
        why = "window_full" if full else "over_budget"
        return Refusal(why, tokens, within, newest, tokens - within.limit, bool(demand) and not full, demand)
    marked = digest(conversation, stretches)
    return Plan(stretches, marked, tokens, within, takes.folded, demand, takes.price, takes.flat)


def next_work(
    conversation: Conversation, summaries: Compression, settings: AgentSettings, demand: tuple[Stretch, ...] = ()
) -> Work | None:
    """What the agent's strategy wants summarised next; None where it can not be asked, or wants what is no work."""
    live = settings.live
    if live is None or live.strategy in BUILT_IN:
        chosen = BUILT_IN["autobiographical" if live is None else live.strategy]
        return chosen.next_work(conversation, summaries, settings, demand)
    try:
        found = strategy(live.strategy).next_work(conversation, summaries, settings, demand)
        return found if found is not None and is_work(conversation, summaries, found) else None
    except (Exception, SystemExit):
        return None


def pending(
    conversation: Conversation, summaries: Compression, settings: AgentSettings, demand: tuple[Stretch, ...] = ()
) -> bool:
    """Whether a summary is in flight, or could still be made."""
    return summaries.open is not None or next_work(conversation, summaries, settings, demand) is not None


def is_work(conversation: Conversation, summaries: Compression, found: Work) -> bool:
    """Whether a piece of work is of what there is now, and was neither done nor given up. Raises LookupError."""
    work = msgspec.convert(msgspec.to_builtins(found), Work)
    start, stop = conversation.places[work.first], conversation.places[work.last] + 1
    if work.level == 1:
        told = conversation.messages[start:stop]
        is_so = work.sources == tuple(one.id for one in told) and work.digest == digest_of(told)
    else:
        below = standing(conversation, summaries, start, stop, work.level - 1)
        is_so = work.sources == tuple(one.id for one in below) and work.digest == backlog.said(below)
    done = summaries.levels[work.level - 1].get(work.first) if 1 <= work.level <= len(summaries.levels) else None
    return is_so and work.digest not in summaries.quarantined and (done is None or done.work.digest != work.digest)


__all__ = [
    "BUILT_IN",
    "Strategy",
    "arranged",
    "asked",
    "next_work",
    "pending",
    "strategy",
]
