"""A lowered budget is reached compile by compile: how far the live one may go at once, and what that makes read anew."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from rewake.actors.agent.state import Agent, planned
from rewake.events import InvalidPlan, InvalidSetting, Overhead, SettingChanged, Tokens
from rewake.projections import settings
from rewake.projections.calibration import meter
from rewake.projections.compression import standing
from rewake.projections.plan import FULL, Plan, Refusal, estimate
from rewake.projections.raising import spans_of

BUDGET = "context_budget_tokens"


class Step(Struct, frozen=True):
    """A step of the live budget, and the plan that it is made with."""

    budget: Tokens
    plan: Plan


def step(state: Agent, beside: Overhead) -> Step | None:
    """The lowest budget, down to the target, that the next compile may have; None where it has to stay.

    Its plan fits and re-reads no more than the pace, or than the live budget's would. Where that is not one fold, it is one
    all the same: every compile goes on while there are summaries. As long as the target itself does not fit, the budget
    comes down only with a fold, and leaves a tenth of its room free: no turn is held for a bound lowered on the way.
    """
    wanted, live = state.settings.target, settings.budget(state.live)
    if wanted is None:
        return None

    @cache
    def at(budget: Tokens) -> Plan | Refusal:
        return trial(state, beside, budget)

    now, last = at(live), at(wanted)
    if isinstance(last, Plan) and slow(state, now, last):
        return Step(wanted, last)

    def may(plan: Plan | Refusal) -> bool:
        return isinstance(plan, Plan) and (isinstance(last, Plan) or has_room(plan))

    if not may(now):
        return None
    budget = lowest(wanted, live, lambda budget: may(at(budget)) and slow(state, now, at(budget)))
    stays = shows(at(budget)) == shows(now) and (budget == live or not reread(state, at(budget)))
    if stays and may(at(budget - 1)):
        budget -= 1
    found = at(budget)
    moved = budget < live and (isinstance(last, Plan) or shows(found) != shows(now))
    return Step(budget, found) if moved and isinstance(found, Plan) else None


def reached(state: Agent, beside: Overhead) -> SettingChanged | None:
    """The target's own step, where the present context fits it within the pace: it waits for no compile."""
    wanted = state.settings.target
    if wanted is None:
        return None
    try:
        fair = slow(state, planned(state, beside), trial(state, beside, wanted))
    except (InvalidPlan, InvalidSetting):  # the compile says what is wrong with the strategy
        return None
    return stepped(state, wanted) if fair else None


def stepped(state: Agent, budget: Tokens, *, more: bool = False) -> SettingChanged:
    return SettingChanged(BUDGET, state.live.context_budget_tokens, budget, "step", more=more)


def trial(state: Agent, beside: Overhead, budget: Tokens) -> Plan | Refusal:
    """What a compile would give with another budget."""
    return planned(state, beside, replace(state.live, context_budget_tokens=budget))


def slow(state: Agent, now: Plan | Refusal, plan: Plan | Refusal) -> bool:
    """Whether this plan fits and re-reads no more than the pace, or no more than the compile will anyhow."""
    if not isinstance(plan, Plan):
        return False
    return shows(plan) == shows(now) or reread(state, plan) <= state.live.transition_pace_tokens


def shows(plan: Plan | Refusal) -> object:
    return plan.stretches if isinstance(plan, Plan) else None


def has_room(plan: Plan) -> bool:
    """Whether what is shown is no more than a plan lets it become before it folds."""
    return plan.tokens <= FULL * min(plan.bounds.room, plan.bounds.limit)


def lowest(low: Tokens, high: Tokens, may: Callable[[Tokens], bool]) -> Tokens:
    """The lowest number that may be, where `low` may not and `high` may."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if may(middle) else (middle, high)
    return high


def reread(state: Agent, plan: Plan | Refusal) -> Tokens:
    """What of the history, as the last compile showed it, this plan shows in another way: estimated tokens.

    A message counts at what the last compile showed for it: its own price while it was raw, its share of the summary's where
    it was under one. What stays as it was is not counted, though a provider whose cache is a prefix reads it again where it
    comes after something that changed: the oldest stretches are folded first, so that is the same for one fold as for ten.
    """
    if isinstance(plan, Refusal):
        return 0
    conversation, done = state.conversation, state.compression
    multiplier = meter(state.calibration, state.live).multiplier
    before, after = (
        [(start, last + 1, level) for start, last, level in spans_of(conversation, folds)]
        for folds in (conversation.folds, [one for one in plan.stretches if one.level > 0])
    )
    found = 0.0
    for start, stop in pairwise(sorted({place for span in (*before, *after) for place in span[:2]})):
        was = level_at(before, start)
        if was == level_at(after, start):
            continue
        try:
            summaries = standing(conversation, done, start, stop, was) if was else []
        except LookupError:  # what was shown is gone since: an edit
            summaries = []
        raw = 0.0 if summaries else estimate(conversation, start, stop, multiplier)
        found += raw + sum(one.tokens for one in summaries) * multiplier
    return round(found)


def level_at(spans: list[tuple[int, int, int]], place: int) -> int:
    return next((level for start, stop, level in spans if start <= place < stop), 0)
