"""A gate as agents see it: who may go, and by which opening."""

from __future__ import annotations

from immutables import Map

from rewake.events import CompressionHeld, Event, GateClosed, GateOpened, ProviderHeld, ProviderTried, Recorded
from rewake.projections.gates import Gate, evolve, evolve_all, opened_for, reopening, rows, shut, shut_off

ADA, BOB = "agent/ada", "agent/bob"
CLOSED = GateClosed("limit", 0, 60_000, "m")
PROBING = GateOpened("due", "m", probing=True, probe=ADA)
RAMPING = GateOpened("probe_succeeded", "m", limit=1)
OPEN = GateOpened("probe_succeeded", "m")


def recorded(version: int, event: Event) -> Recorded:
    return Recorded(version, 0, "gate/p", version, None, 0, event)


def after(*events: Event) -> Gate:
    state = Gate()
    for version, event in enumerate(events, 1):
        state = evolve(state, recorded(version, event))
    return state


def held(version: int, *, met: bool = False) -> ProviderHeld:
    return ProviderHeld("ada/turn/1", (), "p", "m", 0, version, met=met)


def test_a_closed_gate_is_shut_for_all_a_probing_one_for_all_but_one():
    assert [shut(after(CLOSED), "m", who) for who in (ADA, BOB)] == [True, True]
    assert [shut(after(CLOSED, PROBING), "m", who) for who in (ADA, BOB)] == [False, True]
    assert [shut(after(CLOSED, PROBING, RAMPING), "m", who) for who in (ADA, BOB)] == [False, False]
    assert not shut(after(CLOSED), "other", ADA)


def test_what_waits_is_let_go_by_the_first_opening_for_it_after_its_own_version():
    assert [opened_for(after(CLOSED, PROBING), who, held(1)) for who in (ADA, BOB)] == [2, None]
    assert [opened_for(after(CLOSED, PROBING, RAMPING), who, held(1)) for who in (ADA, BOB)] == [3, 3]
    assert opened_for(after(CLOSED, PROBING, RAMPING, OPEN), BOB, held(2)) == 3
    assert opened_for(after(CLOSED, PROBING, RAMPING, OPEN), BOB, held(3)) is None
    assert opened_for(after(CLOSED, PROBING, RAMPING, CLOSED), BOB, held(1)) is None


def test_a_call_that_met_the_limit_waits_for_the_closing_that_is_to_come():
    """Else what the gate did of another's success would let it go, and it would come back at once."""
    waits = CompressionHeld("", 2, "p", "m", met=True)
    for one in (held(2, met=True), waits):
        assert opened_for(after(CLOSED, PROBING, RAMPING), ADA, one) is None
        assert opened_for(after(CLOSED, PROBING, RAMPING, CLOSED, PROBING), ADA, one) == 5


def test_who_has_declined_to_probe_does_not_go_before_another_is_named():
    gates = Map({"p": after(CLOSED, PROBING)})
    told = [
        None,
        ProviderTried("p", "m", 2, ok=False),
        ProviderTried("p", "m", 2),
        ProviderTried("q", "m", 2, ok=False),
    ]
    assert [shut_off(gates, "p", "m", ADA, one) is not None for one in told] == [False, True, False, False]


def test_only_while_it_reopens_is_a_success_news():
    assert [reopening(after(*events), "m", 2) for events in ((CLOSED, PROBING), (CLOSED, PROBING, RAMPING, OPEN))] == [
        True,
        False,
    ]
    assert not reopening(after(CLOSED, PROBING, RAMPING), "m", 1)
    assert reopening(after(CLOSED), "m", 2)


def test_a_gate_is_told_in_rows_and_several_are_folded_each_from_its_own_stream():
    (row,) = rows(after(CLOSED, PROBING))
    assert (row["model"], row["state"], row["until"], row["probe"]) == ("m", "probing", 60_000, ADA)
    assert rows(after(CLOSED, PROBING, RAMPING, OPEN)) == []
    assert evolve_all(Map(), recorded(1, CLOSED)) == Map({"p": after(CLOSED)})
