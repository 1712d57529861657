"""Days of many agents in virtual time, with all that may befall them."""

import pytest

from rewake.scripts.soak import Soak


@pytest.mark.soak
@pytest.mark.scenario("W-18")
def test_days_of_many_agents_lose_nothing_and_do_nothing_twice():
    """The month of fifty is `python -m rewake.scripts.soak`."""
    soak = Soak(days=4, agents=12, seed=11, rate=16)
    report = soak.run(again=False)
    assert (report.lost, report.twice, report.untold, report.owed) == ((), (), (), ())
    assert report.verified
    assert report.acknowledged > 600
    assert report.torn
    assert report.events.keys() >= {
        *("held", "hold_ended", "provider_held", "gate_closed", "compression_failed", "retry_scheduled"),
        *("inference_interrupted", "setting_changed", "turn_aborted", "turn_exhausted"),
    }
