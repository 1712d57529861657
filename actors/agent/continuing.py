"""A turn that has had an answer goes on: it waits for summaries where they can make room, else it is sent all the same."""

from __future__ import annotations

from msgspec.structs import replace

from rewake.actors.agent.state import Agent, planned
from rewake.events import Overhead
from rewake.projections import strategies
from rewake.projections.holds import spent
from rewake.projections.plan import Plan, Refusal


def can_wait(state: Agent, refusal: Refusal) -> bool:
    """Whether the running turn may be held for the summaries that it lacks, and some can be made."""
    if not refusal.compressible or state.live.kind == "ephemeral" or spent(state.holds, state.turn.id):
        return False
    return strategies.pending(state.conversation, state.compression, state.settings, refusal.demand)


def regardless(state: Agent, beside: Overhead, refusal: Refusal) -> Plan | None:
    """What a turn that has had an answer is sent with when nothing can make room: all that can be folded is.

    It is the turn itself that is too large. Its tools have run: to give it up for an estimate would be to lose what they did.
    """
    if not state.turn.step or can_wait(state, refusal):
        return None
    budget = refusal.tokens + 1 + state.live.max_tokens
    wide = replace(state.live, context_budget_tokens=budget, over_budget_grace_ratio=0.0, physical_window_tokens=None)
    plan = planned(state, beside, wide)
    return replace(plan, bounds=refusal.bounds) if isinstance(plan, Plan) else None
