"""The error policy: tenacity's stop and wait objects say whether and when a failed turn goes on."""

from __future__ import annotations

from dataclasses import dataclass, field

from tenacity import RetryCallState, Retrying, stop_after_attempt, wait_exponential
from tenacity.stop import stop_base
from tenacity.wait import wait_base

from rewake.events import Failure, InvalidSetting, Millis

FINAL = frozenset({"auth", "invalid_request", "content_refused", "window_full", "tool_loop", "overflow", "abort"})
"""Kinds of failure that no waiting makes better."""


LONGEST_SCHEDULE = 64

EXAMPLES = {"stop": "stop_after_attempt(9)", "wait": "wait_fixed(30)"}


@dataclass(frozen=True)
class ErrorPolicy:
    """When to stop and how long to wait, as tenacity objects. The default retries 3 times, after 1, 2 and 4 s.

    It is asked about each failed call, where the failure comes in. A refused context is tried again by its `schedule`, which
    is recorded with the agent's configuration.
    """

    stop: stop_base = field(default_factory=lambda: stop_after_attempt(4))
    wait: wait_base = field(default_factory=lambda: wait_exponential(multiplier=1, max=4))

    def __post_init__(self) -> None:
        for name, given in (("stop", self.stop), ("wait", self.wait)):
            if not callable(given):
                raise InvalidSetting(name, given, f"a {name} of tenacity's, such as {EXAMPLES[name]}")

    def delay(self, failure: Failure, failures: int, elapsed_ms: Millis = 0) -> Millis | None:
        """Milliseconds to wait after the `failures`-th failure in a row, so long after the first start; None: give up."""
        return None if failure.kind in FINAL else self.after(failures, elapsed_ms)

    def after(self, failures: int, elapsed_ms: Millis) -> Millis | None:
        """The delay, whatever failed."""
        state = RetryCallState(Retrying(), None, (), {})
        state.attempt_number = failures
        state.start_time, state.outcome_timestamp = 0.0, elapsed_ms / 1_000
        return None if self.stop(state) else round(float(self.wait(state)) * 1_000)

    def schedule(self) -> tuple[Millis, ...]:
        """The delays after one failure, two, ... as far as the policy goes on, 64 at the most."""
        delays: list[Millis] = []
        while len(delays) < LONGEST_SCHEDULE and (delay := self.after(len(delays) + 1, sum(delays))) is not None:
            delays.append(delay)
        return tuple(delays)


DEFAULT = ErrorPolicy()
