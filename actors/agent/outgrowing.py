"""Between two requests of a turn: one that has outgrown its bounds is compiled afresh where its history can make room."""

from __future__ import annotations

from collections.abc import Sequence

from rewake.actors.agent.calling import priced
from rewake.actors.agent.continuing import can_wait
from rewake.actors.agent.planning import overhead
from rewake.actors.agent.state import Agent, planned
from rewake.actors.agent.waking import mine, started
from rewake.events import Event, InvalidPlan, InvalidSetting, Stretch
from rewake.projections.calibration import estimate, meter
from rewake.projections.plan import Plan
from rewake.projections.pricing import scaled
from rewake.projections.settings import bound


def outgrown(state: Agent) -> list[Event]:
    """The turn's continuation, when what it has said since its compile no longer fits and a compile would, now or once there
    are summaries. Nothing where the turn alone is too large: it goes on, and the provider's answer decides.
    """
    if fits(state):
        return []
    turn = state.turn
    try:
        plan = planned(state, overhead(state, turn))
    except (InvalidPlan, InvalidSetting):  # what was compiled was in order
        return []
    if not isinstance(plan, Plan) and not can_wait(state, plan):
        return []
    shown, note = (turn.compiled.plan, turn.compiled.note) if turn.compiled else ((), "")
    if isinstance(plan, Plan) and begun(plan.stretches) == begun(shown) and not note:
        return []  # it would show what is shown now; a hold's note it would leave out
    return [started(state, mine(state, turn.wakes), turn)]


def begun(stretches: Sequence[Stretch]) -> list[tuple[int, str]]:
    return [(one.level, one.first) for one in stretches]


def fits(state: Agent) -> bool:
    """Whether the next request, as the last compile would have it, is within the budget and the window."""
    turn, live = state.turn, state.live
    learned = meter(state.calibration, live)
    payload, fixed = priced(state, turn)
    sent = estimate(learned, payload, fixed, live.overhead_digest) + live.max_tokens
    if live.physical_window_tokens is not None and sent > live.physical_window_tokens:
        return False
    beside = overhead(state, turn, turn.compiled.note if turn.compiled else "")
    return scaled(payload - beside.total, fixed - beside.flat, learned.multiplier) <= bound(live)
